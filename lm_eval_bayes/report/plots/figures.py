"""The report's figures, drawn with matplotlib from the same numbers as the page, and their files.

File names consist of a fixed word and a panel's number; names of models and tasks are untrusted
and never part of a path.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from lm_eval_bayes._util.files import check_writable
from lm_eval_bayes._util.text import format_large, format_percent
from lm_eval_bayes.analysis.report_data import ReportData, TaskPanel
from lm_eval_bayes.analysis.rubric_table import RubricTable
from lm_eval_bayes.errors import InvalidInputError
from lm_eval_bayes.report.page.svg import doubling_ticks, log_ticks, round_range
from lm_eval_bayes.report.page.tables import question_table
from lm_eval_bayes.report.page.text import Scale, name, short_names
from lm_eval_bayes.report.plots.drawing import (
    check_matplotlib,
    draw_as,
    file_start,
    short_name,
    write_figure_file,
)
from lm_eval_bayes.report.plots.rank_trajectories import draw_ranks

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

KINDS = ("png", "svg")
#: Identifies a figure of this package, in its metadata.
MARK = "lm-eval-bayes"
#: File names of the figures, without the panel's number and the suffix.
NAMES = ("leaderboard", "pairs", "questions", "convergence", "cost", "rubrics")

_BLUE, _BAR, _ORANGE, _GREY, _GRID, _TEXT = (
    "#0072B2", "#5FA8D3", "#D55E00", "#8A9097", "#E6E4DE", "#222222"
)  # fmt: skip


def leaderboard(figure: Figure, panel: TaskPanel, level: float) -> None:
    """Draw means and intervals, best first: bars for the benchmark, lines for the population."""
    n, scale = len(panel.board.models), Scale(*panel.bounds)
    figure.set_size_inches(8.0, 1.5 + 0.34 * n)
    axes = figure.add_subplot()
    for y, (row, summary) in enumerate(zip(panel.board.rows, panel.summaries, strict=True)):
        benchmark, population = summary.intervals["benchmark"], summary.intervals["population"]
        axes.plot(
            [population.low, population.high], [y, y],
            color=_GREY, lw=1.2, marker="|", ms=7, zorder=2,
        )  # fmt: skip
        axes.plot(
            [benchmark.low, benchmark.high], [y, y],
            color=_BAR, lw=7, solid_capstyle="butt", zorder=3,
        )  # fmt: skip
        mu, sigma = row.posterior.mu, row.posterior.sigma
        axes.plot([mu, mu], [y - 0.28, y + 0.28], color=_TEXT, lw=1.6, zorder=4)
        axes.annotate(
            f"{scale.short(mu)} ± {scale.short(sigma)}",
            (1.015, y), xycoords=("axes fraction", "data"), va="center", fontsize=8.5, color=_TEXT,
        )  # fmt: skip
    labels = [
        f"{short_name(model)}  {row.rank:g}"
        for model, row in zip(short_names(panel.board.models), panel.board.rows, strict=True)
    ]
    axes.set_yticks(range(n), labels)
    axes.set_ylim(n - 0.4, -0.6)
    label = (
        f"score{' in percent' if scale.percent else ''}; bar: {100 * level:g}% interval, "
        "benchmark; line: population of questions"
    )
    axes.set_xlabel(label, fontsize=8.5, color=_TEXT)
    axes.set_xlim(*_limits(panel, *panel.interval_range))
    _style_axis(axes, panel, "x")
    _set_title(axes, panel, "leaderboard")


def pairs(figure: Figure, panel: TaskPanel) -> None:
    """Draw P(A > B) as a heat map."""
    p = np.array(panel.board.ranking.p_greater, dtype=np.float64)
    n = len(panel.board.models)
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
                    j, i, format_percent(float(panel.board.ranking.p_greater[i, j])),
                    ha="center", va="center", fontsize=7.5, color="black",
                )  # fmt: skip
    _label_cells(axes, short_names(panel.board.models), short_names(panel.board.models))
    _set_title(axes, panel, "probability in percent that the row scores more than the column")


def questions(figure: Figure, panel: TaskPanel, data: ReportData) -> None:
    """Draw the posterior mean of every question and model as a heat map, hardest first."""
    table = question_table(panel, data)
    shares = np.array([[cell.share for cell in row.cells] for row in table.rows])
    n_rows, n_columns = shares.shape
    figure.set_size_inches(2.6 + 0.42 * n_columns, 2.2 + 0.2 * n_rows)
    axes = figure.add_subplot()
    axes.imshow(shares, cmap="cividis", vmin=0.0, vmax=1.0, aspect="auto")
    scale = Scale(*panel.bounds)
    for i, row in enumerate(table.rows):
        for j, cell in enumerate(row.cells):
            text = f"{100 * cell.share:.0f}" if scale.percent else f"{cell.mu:.2f}"
            colour = "white" if cell.share < 0.45 else "black"
            axes.text(j, i, text, ha="center", va="center", fontsize=6.5, color=colour)
    _label_cells(axes, short_names(panel.board.models), [f"{row.number}" for row in table.rows])
    selection = f" ({table.selection})" if table.selection else ""
    _set_title(axes, panel, f"score of every question{selection}")


def convergence(figure: Figure, panel: TaskPanel, level: float) -> None:
    """Draw every model's score curve, one subplot per model."""
    curves = [
        (model, curve)
        for model, curve in zip(short_names(panel.board.models), panel.curves, strict=True)
        if curve
    ]
    n_columns = min(4, len(curves))
    n_rows = math.ceil(len(curves) / n_columns)
    figure.set_size_inches(0.6 + 2.6 * n_columns, 0.9 + 1.75 * n_rows)
    grid = figure.subplots(n_rows, n_columns, sharex=True, sharey=True, squeeze=False)
    low = min(point.interval.low for _, curve in curves for point in curve)
    high = max(point.interval.high for _, curve in curves for point in curve)
    n_max = max(curve[-1].n for _, curve in curves)
    for axes, (model, curve) in zip(grid.flat, curves, strict=False):
        for _, other in curves:
            means = [point.mu for point in other]
            axes.plot([p.n for p in other], means, color=_GREY, lw=0.7, alpha=0.35, zorder=1)
        n, ends = [point.n for point in curve], [point.interval for point in curve]
        lower, upper = [i.low for i in ends], [i.high for i in ends]
        axes.fill_between(n, lower, upper, color=_BAR, alpha=0.45, lw=0, zorder=2)
        axes.plot(n, [point.mu for point in curve], color=_BLUE, lw=1.6, zorder=3)
        axes.set_title(short_name(model), fontsize=8.5, loc="left", color=_TEXT)
        if n_max > 1:
            axes.set_xscale("log")
        axes.set_xticks(doubling_ticks(n_max))
        axes.minorticks_off()
        axes.xaxis.set_major_formatter(lambda n, _: f"{n:g}")
        axes.set_ylim(*_limits(panel, low, high))
        _style_axis(axes, panel, "y")
    for axes in grid.flat[len(curves) :]:
        axes.set_visible(False)
    label = f"trials per question; band: {100 * level:g}% interval"
    figure.supxlabel(label, fontsize=8.5, color=_TEXT)
    figure.suptitle(short_name(name(panel.board.task)), fontsize=10, color=_TEXT)
    figure.tight_layout()


def cost(figure: Figure, panel: TaskPanel, level: float) -> None:
    """Draw scores against tokens per trial."""
    costs = panel.costs
    figure.set_size_inches(7.5, 4.6)
    axes = figure.add_subplot()
    frontier = sorted((cost for cost in costs if cost.frontier), key=lambda cost: cost.tokens)
    if len(frontier) > 1:
        axes.step(
            [cost.tokens for cost in frontier], [cost.row.mu for cost in frontier],
            where="post", color=_ORANGE, lw=1.2, ls=(0, (4, 3)), zorder=1,
        )  # fmt: skip
    names = short_names(panel.board.models)
    for cost in costs:
        colour = _BLUE if cost.frontier else _GREY
        mu, interval = cost.row.mu, cost.row.interval
        axes.plot([cost.tokens] * 2, [interval.low, interval.high], color=colour, lw=1.3)
        axes.plot(cost.tokens, mu, "o", color=colour, ms=5, zorder=3)
        axes.annotate(
            short_name(names[cost.position - 1]), (cost.tokens, mu), xytext=(6, 4),
            textcoords="offset points", fontsize=8, color=_TEXT,
        )  # fmt: skip
    axes.set_xscale("log")
    tokens = [cost.tokens for cost in costs]
    low, high = min(tokens) / 1.15, max(tokens) * 1.35
    axes.set_xlim(low, high)
    ticks = log_ticks(low, high, 6)
    axes.set_xticks(ticks if len(ticks) > 1 else tokens[:3])
    axes.minorticks_off()
    axes.xaxis.set_major_formatter(lambda n, _: format_large(n))
    intervals = [cost.row.interval for cost in costs]
    axes.set_ylim(*_limits(panel, min(i.low for i in intervals), max(i.high for i in intervals)))
    axes.set_xlabel("mean number of completion tokens of a trial", fontsize=8.5, color=_TEXT)
    axes.set_ylabel(f"score, with its {100 * level:g}% interval", fontsize=8.5, color=_TEXT)
    _style_axis(axes, panel, "y")
    _set_title(axes, panel, "score against tokens")


def rubrics(figure: Figure, table: RubricTable) -> None:
    """Draw the models' ranks under every rubric."""
    classified = table.classified
    draw_ranks(
        figure,
        [name(row.schema.name) for row in table.rows],
        [name(model) for model in classified.models],
        table.ranks,
        table.mu,
        f"{name(classified.task)}: rank under each rubric",
    )


# -- shared by the figures -----------------------------------------------------------------------


def _limits(panel: TaskPanel, low: float, high: float) -> tuple[float, float]:
    """Return axis limits around a range of scores."""
    first, last = round_range(low, high, panel.bounds)
    margin = 0.01 * (last - first)
    return first - margin, last + margin


def _style_axis(axes: Axes, panel: TaskPanel, score_axis: str) -> None:
    """Remove spines and ticks; draw a grid and labels along the axis of the scores."""
    axes.spines[:].set_visible(False)
    axes.tick_params(length=0, labelsize=8.5, labelcolor=_TEXT)
    axes.grid(axis="x" if score_axis == "x" else "y", color=_GRID, lw=0.8)
    axes.set_axisbelow(True)
    axis = axes.xaxis if score_axis == "x" else axes.yaxis
    scale = Scale(*panel.bounds)
    axis.set_major_formatter(lambda value, _: scale.tick(float(f"{value:.9g}")))


def _label_cells(axes: Axes, columns: Sequence[str], rows: Sequence[str]) -> None:
    """Label the columns and rows of a heat map, and separate its cells."""
    rotated: dict[str, Any] = {"rotation": 45, "ha": "left", "rotation_mode": "anchor"}
    axes.set_xticks(range(len(columns)), [short_name(column) for column in columns], **rotated)
    axes.xaxis.tick_top()
    axes.set_yticks(range(len(rows)), [short_name(row) for row in rows])
    axes.set_xticks(np.arange(len(columns) + 1) - 0.5, minor=True)
    axes.set_yticks(np.arange(len(rows) + 1) - 0.5, minor=True)
    axes.grid(which="minor", color="white", lw=1.2)
    axes.tick_params(which="both", length=0, labelsize=8, labelcolor=_TEXT)
    axes.spines[:].set_visible(False)


def _set_title(axes: Axes, panel: TaskPanel, title: str) -> None:
    axes.set_title(
        f"{short_name(name(panel.board.task))}: {title}", fontsize=10, color=_TEXT, pad=12
    )


# -- files --------------------------------------------------------------------------------------


@dataclass(frozen=True)
class FigureFile:
    """A figure and its file name.

    Attributes
    ----------
    name : str
        File name without the suffix, such as "leaderboard-1".
    task : str
        The task.
    draw : callable
        Draws it into a matplotlib figure.
    """

    name: str
    task: str
    draw: Callable[[Figure], None]

    def paths(self, folder: Path) -> tuple[Path, ...]:
        """Return the paths of its files."""
        return tuple(folder / f"{self.name}.{kind}" for kind in KINDS)


def report_figures(data: ReportData) -> tuple[FigureFile, ...]:
    """Return the figures of a report."""
    return tuple(figure for panel in data.panels for figure in _panel_figures(panel, data))


def _panel_figures(panel: TaskPanel, data: ReportData) -> list[FigureFile]:
    level = data.spec.level
    draws: dict[str, Callable[[Figure], None]] = {
        "leaderboard": partial(leaderboard, panel=panel, level=level),
        "questions": partial(questions, panel=panel, data=data),
    }
    if len(panel.board.models) > 1:
        draws["pairs"] = partial(pairs, panel=panel)
    if any(len(curve) > 1 for curve in panel.curves):
        draws["convergence"] = partial(convergence, panel=panel, level=level)
    if panel.compares_costs:
        draws["cost"] = partial(cost, panel=panel, level=level)
    if panel.rubrics is not None and len(panel.rubrics.classified.models) > 1:
        draws["rubrics"] = partial(rubrics, table=panel.rubrics)
    return [
        FigureFile(f"{kind}-{panel.number}", panel.board.task, draw) for kind, draw in draws.items()
    ]


def check_folder(folder: Path, overwrite: bool) -> None:
    """Raise, before any work, if figures cannot be written into a folder.

    Raises
    ------
    InvalidInputError
        If it is not a folder and cannot be created, or a file that is not a figure of this
        package has the name of one.
    LmEvalBayesError
        If matplotlib is not installed.
    """
    if folder.exists() and not folder.is_dir():
        raise InvalidInputError.of("--plots", "path", "be a folder", str(folder))
    check_writable(folder / NAMES[0], "--plots")
    check_matplotlib()
    for figure_name in NAMES:
        for kind in KINDS:
            for path in sorted(folder.glob(f"{figure_name}-*.{kind}")):
                if not overwrite and MARK.encode() not in file_start(path):
                    rule = "have no other files with names of figures, unless --overwrite is given"
                    raise InvalidInputError.of("--plots", "path", rule, path.name)


def write_figures(figure_files: Sequence[FigureFile], folder: Path) -> tuple[Path, ...]:
    """Write figures, each as PNG and as SVG; equal input gives the same bytes.

    Returns
    -------
    tuple of Path
        The files, which are written after all figures are drawn.
    """
    contents: dict[Path, bytes] = {}
    for figure_file in figure_files:
        drawn = draw_as(figure_file.draw, KINDS, creator=MARK)
        contents |= dict(zip(figure_file.paths(folder), drawn, strict=True))
    for path, content in contents.items():
        write_figure_file(content, path)
    return tuple(contents)
