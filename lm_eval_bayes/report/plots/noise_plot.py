"""A figure of the noise of runs: shares of variance, and how far apart runs of a model lie."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from lm_eval_bayes._util.text import one_line
from lm_eval_bayes.analysis.noise import TaskNoise
from lm_eval_bayes.report.plots.drawing import COLOURS, TEXT, draw_file, short_name

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

_BLUE, _ORANGE, _LIGHT, _GRID = COLOURS[0], COLOURS[1], COLOURS[4], "#dddddd"


def draw_noise(path: Path, noise: TaskNoise, title: str = "") -> None:
    """Draw the noise of a task's models; equal input gives the same bytes.

    The first panel has the share of the variance between questions (ICC) with its interval, and
    the questions that flip between two trials; the second how far two runs of the same model lie
    apart, and the smallest difference of two models that is shown.

    Parameters
    ----------
    path : Path
        The figure, .svg or .png; an existing figure is replaced.
    noise : TaskNoise
        The noise. Names in it are untrusted, and drawn literally.
    title : str
        The title.

    Raises
    ------
    InvalidInputError
        If the figure cannot be written.
    LmEvalBayesError
        If matplotlib is not installed.
    """

    def draw(figure: Figure) -> None:
        n = len(noise.models)
        figure.set_size_inches(10.0, 1.9 + 0.34 * n)
        figure.set_layout_engine("constrained", w_pad=0.12)
        shares, distances = figure.subplots(1, 2, sharey=True)
        # the legend lies at the same distance below the axis, however many models there are
        legend = -0.55 / (0.6 + 0.34 * n)
        _draw_shares(shares, noise, legend)
        _draw_distances(distances, noise, legend)
        names = [short_name(one_line(model.model)) for model in noise.models]
        shares.set_yticks(range(n), names)
        shares.set_ylim(n - 0.4, -0.6)
        figure.suptitle(title, fontsize=11)

    draw_file(path, draw)


def _draw_shares(axes: Axes, noise: TaskNoise, legend: float) -> None:
    label: dict[str, Any] = {"icc": "ICC", "flip": "questions that flip"}
    for y, model in enumerate(noise.models):
        for summary, key, colour, offset in (
            (model.components.icc, "icc", _BLUE, -0.13),
            (model.components.flip, "flip", _ORANGE, 0.13),
        ):
            if summary is None:
                continue
            ends = [summary.low, summary.high]
            axes.plot(ends, [y + offset] * 2, color=colour, lw=1.6)
            name = label.pop(key, None)
            axes.plot(summary.mu, y + offset, "o", color=colour, ms=5, label=name)
    axes.set_xlim(-0.02, 1.02)
    level = f"{100 * noise.settings.level:g}% intervals"
    _finish(axes, f"share of variance between questions, and flips, {level}", "share", legend)


def _draw_distances(axes: Axes, noise: TaskNoise, legend: float) -> None:
    level = f"{100 * noise.settings.level:g}%"
    several = any(len(model.runs) > 1 for model in noise.models)
    marked = True
    for y, model in enumerate(noise.models):
        first = y == 0
        axes.barh(
            y, model.single.distance, height=0.62, color=_LIGHT, zorder=2,
            label=f"two single runs, {level} at most" if first else None,
        )  # fmt: skip
        if several:
            axes.barh(
                y, model.full.distance, height=0.3, color=_BLUE, zorder=3,
                label=f"two runs with N trials, {level} at most" if first else None,
            )  # fmt: skip
        shown = model.full.detectable["paired"]
        if shown is not None:
            axes.plot(
                [shown] * 2, [y - 0.36, y + 0.36], color=_ORANGE, lw=1.8, zorder=4,
                label="smallest difference shown, paired" if marked else None,
            )  # fmt: skip
            marked = False
        elif "paired" in model.full.not_detectable:
            axes.annotate(
                "no difference can be shown, paired", (model.single.distance, y), (4, 0),
                textcoords="offset points", va="center", fontsize=7.5, color=_ORANGE,
            )  # fmt: skip
    _finish(axes, "two runs of the same model", "difference of scores", legend)


def _finish(axes: Axes, title: str, label: str, legend: float) -> None:
    axes.set_title(title, fontsize=9.5)
    axes.set_xlabel(label, fontsize=9, color=TEXT)
    axes.tick_params(length=0, labelsize=8.5, labelcolor=TEXT)
    axes.grid(axis="x", color=_GRID, linewidth=0.6)
    axes.set_axisbelow(True)
    axes.spines[:].set_visible(False)
    if axes.get_legend_handles_labels()[0]:
        axes.legend(
            fontsize=7.5, frameon=False, loc="upper left", bbox_to_anchor=(0.0, legend), ncols=1
        )
