"""A figure of the convergence of scores and rankings [Hariri 2026, Fig. 3, 4]."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from lm_eval_bayes._util.text import one_line
from lm_eval_bayes.analysis.convergence import TaskConvergence
from lm_eval_bayes.report.plots.drawing import (
    COLOURS,
    DASHES,
    TEXT,
    draw_file,
    short_name,
)

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

#: Up to so many models intervals are drawn; more would hide each other.
_MAX_BANDS = 6


def draw_convergence(path: Path, result: TaskConvergence, title: str = "") -> None:
    """Draw the convergence of a task's scores; equal input gives the same bytes.

    The first panel has posterior means and intervals. With several models there are two more:
    the share of resampled orders of trials in which the ranking has stopped changing, and
    Kendall's τ with the ranking by all trials.

    Parameters
    ----------
    path : Path
        The figure, .svg or .png; an existing figure is replaced.
    result : TaskConvergence
        The result. Names in it are untrusted, and drawn literally.
    title : str
        The title.

    Raises
    ------
    InvalidInputError
        If the figure cannot be written.
    """

    def draw(figure: Figure) -> None:
        n_panels = 3 if result.rankings else 1
        legend_rows = len(result.prefixes) // 3 if len(result.prefixes) > _MAX_BANDS else 0
        figure.set_size_inches(5.4 * n_panels, 4.0 + 0.17 * legend_rows)
        figure.set_layout_engine("constrained", w_pad=0.12)
        axes = figure.subplots(1, n_panels, squeeze=False)[0]
        _draw_means(axes[0], result)
        if result.rankings:
            _draw_convergence_shares(axes[1], result)
            _draw_kendall(axes[2], result)
        figure.suptitle(title, fontsize=11)

    draw_file(path, draw)


def _draw_means(axes: Axes, result: TaskConvergence) -> None:
    with_bands = len(result.prefixes) <= _MAX_BANDS
    for i, (model, prefixes) in enumerate(result.prefixes.items()):
        n = [prefix.n for prefix in prefixes]
        colour, dash = COLOURS[i % len(COLOURS)], DASHES[i % len(DASHES)]
        mu = [prefix.mu for prefix in prefixes]
        axes.plot(n, mu, linewidth=1.8, marker="o", markersize=3.5, color=colour, linestyle=dash)
        axes.lines[-1].set_label(short_name(one_line(model)))
        if with_bands:
            low = [prefix.interval.low for prefix in prefixes]
            high = [prefix.interval.high for prefix in prefixes]
            axes.fill_between(n, low, high, color=colour, alpha=0.15, linewidth=0)
    shaded = f", {100 * result.spec.level:g}% intervals shaded" if with_bands else ""
    _finish(axes, f"hbayes@n{shaded}", "score")


def _draw_convergence_shares(axes: Axes, result: TaskConvergence) -> None:
    n = np.arange(1, result.n_trials + 1)
    for i, ranking in enumerate(result.rankings):
        colour, score = COLOURS[i % len(COLOURS)], ranking.score.name
        cdf = ranking.convergence.cdf
        axes.step(n, cdf, where="post", color=colour, linewidth=1.8, linestyle=DASHES[i % 4])
        axes.lines[-1].set_label(score)
        if ranking.tied is not None:
            axes.step(n, ranking.tied.cdf, where="post", color=colour, linewidth=1.0, linestyle=":")
            axes.lines[-1].set_label(f"{score}, ties")
    axes.set_ylim(-0.02, 1.02)
    _finish(axes, "ranking has stopped changing", "share of resampled orders")


def _draw_kendall(axes: Axes, result: TaskConvergence) -> None:
    n = np.arange(1, result.n_trials + 1)
    for i, ranking in enumerate(result.rankings):
        if ranking.kendall is None:
            continue
        colour = COLOURS[i % len(COLOURS)]
        axes.plot(n, ranking.kendall.mean, color=colour, linewidth=1.8, linestyle=DASHES[i % 4])
        axes.lines[-1].set_label(ranking.score.name)
    _finish(axes, "agreement with the ranking by all trials", "mean Kendall τ")


def _finish(axes: Axes, title: str, label: str) -> None:
    axes.set_xscale("log", base=2)
    axes.xaxis.set_major_formatter("{x:g}")
    axes.set_xlabel("trials per question, n", fontsize=9, color=TEXT)
    axes.set_ylabel(label, fontsize=9, color=TEXT)
    axes.set_title(title, fontsize=10)
    axes.grid(color="#dddddd", linewidth=0.6)
    axes.spines[["top", "right"]].set_visible(False)
    if axes.lines:
        style: dict[str, Any] = {"fontsize": 7.5, "frameon": False, "handlelength": 2.6}
        if len(axes.lines) > _MAX_BANDS:
            style |= {"loc": "upper center", "bbox_to_anchor": (0.5, -0.18), "ncols": 3}
        axes.legend(**style)
