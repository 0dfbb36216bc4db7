"""The figures of a panel, drawn with matplotlib: the same numbers as on the page."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from lm_eval_bayes._util.text import format_large, format_percent
from lm_eval_bayes.analysis.cost import ModelCost
from lm_eval_bayes.analysis.report_data import ReportData, TaskPanel
from lm_eval_bayes.analysis.rubric_table import RubricTable
from lm_eval_bayes.report.page import text as words
from lm_eval_bayes.report.page.questions import questions_of
from lm_eval_bayes.report.page.svg import log_ticks, round_range
from lm_eval_bayes.report.page.text import Scale
from lm_eval_bayes.report.plots.drawing import short_name
from lm_eval_bayes.report.plots.rank_trajectories import draw_ranks

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

#: What pictures are called.
NAMES = ("leaderboard", "pairs", "questions", "convergence", "cost", "rubrics")

_BLUE, _BAR, _ORANGE, _GREY, _GRID, _TEXT = (
    "#0072B2", "#5FA8D3", "#D55E00", "#8A9097", "#E6E4DE", "#222222"
)  # fmt: skip


def leaderboard(figure: Figure, panel: TaskPanel, level: float) -> None:
    """Draw means and intervals, best first; thin lines are about questions like these."""
    n, scale = len(panel.models), Scale(*panel.bounds)
    figure.set_size_inches(8.0, 1.5 + 0.34 * n)
    axes = figure.add_subplot()
    for y, one in enumerate(panel.summaries):
        thick, thin = one.intervals["benchmark"], one.intervals["population"]
        axes.plot([thin.low, thin.high], [y, y], color=_GREY, lw=1.2, marker="|", ms=7, zorder=2)
        axes.plot(
            [thick.low, thick.high], [y, y], color=_BAR, lw=7, solid_capstyle="butt", zorder=3
        )
        mu = panel.board.rows[y].posterior.mu
        axes.plot([mu, mu], [y - 0.28, y + 0.28], color=_TEXT, lw=1.6, zorder=4)
        axes.annotate(
            f"{scale.short(mu)} ± {scale.short(panel.board.rows[y].posterior.sigma)}",
            (1.015, y), xycoords=("axes fraction", "data"), va="center", fontsize=8.5, color=_TEXT,
        )  # fmt: skip
    names = [
        f"{short_name(name)}  {line.rank:g}"
        for name, line in zip(words.short_names(panel.models), panel.board.rows, strict=True)
    ]
    axes.set_yticks(range(n), names)
    axes.set_ylim(n - 0.4, -0.6)
    told = (
        f"score{' in percent' if scale.percent else ''}; bar: {100 * level:g}% interval, these "
        "questions; line: questions like these"
    )
    axes.set_xlabel(told, fontsize=8.5, color=_TEXT)
    ends = [i for one in panel.summaries for s, i in one.intervals.items() if s != "paper"]
    axes.set_xlim(*_range(panel, min(e.low for e in ends), max(e.high for e in ends)))
    _plain(axes, panel, "x")
    _title(figure, axes, panel, "leaderboard")


def pairs(figure: Figure, panel: TaskPanel) -> None:
    """Draw P(A > B)."""
    p = np.array(panel.board.p_greater, dtype=np.float64)
    n = len(panel.models)
    figure.set_size_inches(3.0 + 0.42 * n, 2.4 + 0.36 * n)
    axes = figure.add_subplot()
    np.fill_diagonal(p, np.nan)
    from matplotlib.colors import LinearSegmentedColormap

    colours = LinearSegmentedColormap.from_list("pairs", ["#D3743A", "#F1F0EC", "#3A86BB"])
    axes.imshow(p, cmap=colours, vmin=0.0, vmax=1.0, aspect="auto")
    for i in range(n):
        for j in range(n):
            if i != j:
                axes.text(
                    j, i, format_percent(float(panel.board.p_greater[i, j])),
                    ha="center", va="center", fontsize=7.5, color="black",
                )  # fmt: skip
    _cells(axes, words.short_names(panel.models), words.short_names(panel.models))
    _title(figure, axes, panel, "probability in percent that the line scores more than the column")


def questions(figure: Figure, panel: TaskPanel, contents: ReportData) -> None:
    """Draw the posterior mean of every question and model, the hardest question at the top."""
    found = questions_of(panel, contents)
    mu = np.array([[cell.share for cell in one.cells] for one in found.shown])
    rows, columns = mu.shape
    figure.set_size_inches(2.6 + 0.42 * columns, 2.2 + 0.2 * rows)
    axes = figure.add_subplot()
    axes.imshow(mu, cmap="cividis", vmin=0.0, vmax=1.0, aspect="auto")
    scale = Scale(*panel.bounds)
    for i, one in enumerate(found.shown):
        for j, cell in enumerate(one.cells):
            said = f"{100 * cell.share:.0f}" if scale.percent else f"{cell.mu:.2f}"
            colour = "white" if cell.share < 0.45 else "black"
            axes.text(j, i, said, ha="center", va="center", fontsize=6.5, color=colour)
    _cells(axes, words.short_names(panel.models), [f"{one.number}" for one in found.shown])
    chosen = f" ({found.chosen})" if found.chosen else ""
    _title(figure, axes, panel, f"score of every question{chosen}")


def convergence(figure: Figure, panel: TaskPanel, level: float) -> None:
    """Draw how every score became known, one field a model."""
    found = [
        (m, c) for m, c in zip(words.short_names(panel.models), panel.curves, strict=True) if c
    ]
    columns = min(4, len(found))
    rows = math.ceil(len(found) / columns)
    figure.set_size_inches(0.6 + 2.6 * columns, 0.9 + 1.75 * rows)
    grid = figure.subplots(rows, columns, sharex=True, sharey=True, squeeze=False)
    low = min(min(curve.low) for _, curve in found)
    high = max(max(curve.high) for _, curve in found)
    most = max(curve.n[-1] for _, curve in found)
    for axes, (name, curve) in zip(grid.flat, found, strict=False):
        for _, other in found:
            axes.plot(other.n, other.mu, color=_GREY, lw=0.7, alpha=0.35, zorder=1)
        axes.fill_between(curve.n, curve.low, curve.high, color=_BAR, alpha=0.45, lw=0, zorder=2)
        axes.plot(curve.n, curve.mu, color=_BLUE, lw=1.6, zorder=3)
        axes.set_title(short_name(name), fontsize=8.5, loc="left", color=_TEXT)
        if most > 1:
            axes.set_xscale("log")
        axes.set_xticks([n for n in log_ticks(1, most, 5) if n == int(n)] if most > 1 else [1])
        axes.minorticks_off()
        axes.xaxis.set_major_formatter(lambda n, _: f"{n:g}")
        axes.set_ylim(*_range(panel, low, high))
        _plain(axes, panel, "y")
    for axes in grid.flat[len(found) :]:
        axes.set_visible(False)
    told = f"trials of every question; band: {100 * level:g}% interval"
    figure.supxlabel(told, fontsize=8.5, color=_TEXT)
    figure.suptitle(short_name(words.name(panel.task)), fontsize=10, color=_TEXT)
    figure.tight_layout()


def cost(figure: Figure, panel: TaskPanel, costs: Sequence[ModelCost], level: float) -> None:
    """Draw scores against the tokens of a trial."""
    figure.set_size_inches(7.5, 4.6)
    axes = figure.add_subplot()
    best = sorted((one for one in costs if one.frontier), key=lambda one: one.tokens)
    if len(best) > 1:
        axes.step(
            [one.tokens for one in best], [one.mu for one in best],
            where="post", color=_ORANGE, lw=1.2, ls=(0, (4, 3)), zorder=1,
        )  # fmt: skip
    names = words.short_names(panel.models)
    for one in costs:
        colour = _BLUE if one.frontier else _GREY
        axes.plot([one.tokens] * 2, [one.interval.low, one.interval.high], color=colour, lw=1.3)
        axes.plot(one.tokens, one.mu, "o", color=colour, ms=5, zorder=3)
        axes.annotate(
            short_name(names[one.position - 1]), (one.tokens, one.mu), xytext=(6, 4),
            textcoords="offset points", fontsize=8, color=_TEXT,
        )  # fmt: skip
    axes.set_xscale("log")
    low, high = min(one.tokens for one in costs) / 1.15, max(one.tokens for one in costs) * 1.35
    axes.set_xlim(low, high)
    marks = log_ticks(low, high, 6)
    axes.set_xticks(marks if len(marks) > 1 else [one.tokens for one in costs[:3]])
    axes.minorticks_off()
    axes.xaxis.set_major_formatter(lambda n, _: format_large(n))
    ends = [one.interval for one in costs]
    axes.set_ylim(*_range(panel, min(e.low for e in ends), max(e.high for e in ends)))
    axes.set_xlabel("completion tokens of a trial, on average", fontsize=8.5, color=_TEXT)
    axes.set_ylabel(f"score, with its {100 * level:g}% interval", fontsize=8.5, color=_TEXT)
    _plain(axes, panel, "y")
    _title(figure, axes, panel, "score against tokens")


def rubrics(figure: Figure, table: RubricTable) -> None:
    """Draw the ranks under every rubric."""
    found = table.classified
    figure.set_size_inches(1.2 + 0.95 * len(table.rows), 1.3 + 0.3 * len(found.models))
    draw_ranks(
        figure,
        [words.name(row.schema.name) for row in table.rows],
        [words.name(model) for model in found.models],
        table.ranks,
        table.mu,
        f"{words.name(found.task)}: rank under each rubric",
    )


# -- what the figures share ----------------------------------------------------------------------


def _range(panel: TaskPanel, low: float, high: float) -> tuple[float, float]:
    first, last = round_range(low, high, (Scale(*panel.bounds).low, Scale(*panel.bounds).high))
    room = 0.01 * (last - first)
    return first - room, last + room


def _plain(axes: Axes, panel: TaskPanel, scored: str) -> None:
    """Leave of an axis what is needed; `scored` is the one that has scores."""
    for side in ("top", "right", "left", "bottom"):
        axes.spines[side].set_visible(False)
    axes.tick_params(length=0, labelsize=8.5, labelcolor=_TEXT)
    axes.grid(axis="x" if scored == "x" else "y", color=_GRID, lw=0.8)
    axes.set_axisbelow(True)
    axis = axes.xaxis if scored == "x" else axes.yaxis
    axis.set_major_formatter(lambda value, _: Scale(*panel.bounds).tick(float(f"{value:.9g}")))


def _cells(axes: Axes, columns: Sequence[str], rows: Sequence[str]) -> None:
    """Name the columns and rows of a heat map, and part its cells."""
    axes.set_xticks(
        range(len(columns)), [short_name(one) for one in columns], rotation=45, ha="left"
    )
    axes.xaxis.tick_top()
    for label in axes.get_xticklabels():
        label.set_rotation_mode("anchor")
    axes.set_yticks(range(len(rows)), [short_name(one) for one in rows])
    axes.set_xticks(np.arange(len(columns) + 1) - 0.5, minor=True)
    axes.set_yticks(np.arange(len(rows) + 1) - 0.5, minor=True)
    axes.grid(which="minor", color="white", lw=1.2)
    axes.tick_params(which="both", length=0, labelsize=8, labelcolor=_TEXT)
    for spine in axes.spines.values():
        spine.set_visible(False)


def _title(figure: Figure, axes: Axes, panel: TaskPanel, told: str) -> None:
    axes.set_title(
        f"{short_name(words.name(panel.task))}: {told}", fontsize=10, color=_TEXT, pad=12
    )
