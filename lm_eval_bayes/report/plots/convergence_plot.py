"""A picture of scores and rankings that settle as trials come in [Hariri 2026, Fig. 3, 4]."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from lm_eval_bayes.analysis.convergence import TaskConvergence
from lm_eval_bayes.report.plots.drawing import (
    COLOURS,
    DASHES,
    TEXT,
    check_picture,
    short_name,
    write_figure,
)

if TYPE_CHECKING:
    from matplotlib.axes import Axes

#: The intervals of more models than this are not drawn: they would hide each other.
_BANDS = 6


def draw_convergence(path: Path, found: TaskConvergence, title: str = "") -> None:
    """Draw what was found; equal input gives the same bytes.

    Beside the means with their intervals stand, for several models, the share of resampled
    orders of trials after which the ranking has stopped changing, and Kendall's τ with the
    ranking by all trials.

    Parameters
    ----------
    path : Path
        The picture, an .svg or .png; one that is there is replaced when the new one is whole.
    found : TaskConvergence
        What is drawn. No character of a name means anything to the drawing.
    title : str
        What stands above.

    Raises
    ------
    InvalidInputError
        If the picture cannot be written.
    LmEvalBayesError
        If matplotlib is not installed.
    """
    check_picture(path)
    import matplotlib
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    kind = path.suffix.lower().removeprefix(".")
    metadata = {"Date": None, "Creator": None} if kind == "svg" else {"Software": None}
    n_panels = 3 if found.rankings else 1
    with matplotlib.rc_context():
        matplotlib.rcdefaults()
        matplotlib.rcParams["svg.hashsalt"] = "lm-eval-bayes"
        below = len(found.prefixes) // 3 if len(found.prefixes) > _BANDS else 0
        figure = Figure(figsize=(5.4 * n_panels, 4.0 + 0.17 * below))
        figure.set_layout_engine("constrained", w_pad=0.12)
        FigureCanvasAgg(figure)
        axes = figure.subplots(1, n_panels, squeeze=False)[0]
        _means(axes[0], found)
        if found.rankings:
            _settled(axes[1], found)
            _agreement(axes[2], found)
        figure.suptitle(title, fontsize=11, parse_math=False)
        write_figure(figure, path, kind, metadata)


def _means(axes: Axes, found: TaskConvergence) -> None:
    for i, (model, row) in enumerate(found.prefixes.items()):
        n = [one.n for one in row]
        colour, dash = COLOURS[i % len(COLOURS)], DASHES[i % len(DASHES)]
        mu = [one.mu for one in row]
        axes.plot(n, mu, linewidth=1.8, marker="o", markersize=3.5, color=colour, linestyle=dash)
        axes.lines[-1].set_label(short_name(model))
        if len(found.prefixes) <= _BANDS:
            ends = [one.interval for one in row]
            low, high = [one.low for one in ends], [one.high for one in ends]
            axes.fill_between(n, low, high, color=colour, alpha=0.15, linewidth=0)
    shaded = (
        f", {100 * found.spec.level:g}% intervals shaded" if len(found.prefixes) <= _BANDS else ""
    )
    _finish(axes, found, f"hbayes@n{shaded}", "score")


def _settled(axes: Axes, found: TaskConvergence) -> None:
    n = np.arange(1, found.n_trials)
    for i, one in enumerate(found.rankings):
        colour = COLOURS[i % len(COLOURS)]
        cdf = one.convergence.cdf
        axes.step(n, cdf, where="post", color=colour, linewidth=1.8, linestyle=DASHES[i % 4])
        axes.lines[-1].set_label(one.score.name)
        if one.tied is not None:
            axes.step(n, one.tied.cdf, where="post", color=colour, linewidth=1.0, linestyle=":")
            axes.lines[-1].set_label(f"{one.score.name}, ties")
    axes.set_ylim(-0.02, 1.02)
    _finish(axes, found, "ranking has stopped changing", "share of resampled orders")


def _agreement(axes: Axes, found: TaskConvergence) -> None:
    n = np.arange(1, found.n_trials + 1)
    for i, one in enumerate(found.rankings):
        if one.kendall is None:
            continue
        colour = COLOURS[i % len(COLOURS)]
        axes.plot(n, one.kendall.mean, color=colour, linewidth=1.8, linestyle=DASHES[i % 4])
        axes.lines[-1].set_label(one.score.name)
    _finish(axes, found, "agreement with the ranking by all trials", "mean Kendall τ")


def _finish(axes: Axes, found: TaskConvergence, title: str, label: str) -> None:
    axes.set_xscale("log", base=2)
    axes.xaxis.set_major_formatter("{x:g}")
    axes.set_xlabel("trials a question, n", fontsize=9, color=TEXT)
    axes.set_ylabel(label, fontsize=9, color=TEXT)
    axes.set_title(title, fontsize=10)
    axes.grid(color="#dddddd", linewidth=0.6)
    for side in ("top", "right"):
        axes.spines[side].set_visible(False)
    if axes.lines:
        look = {"fontsize": 7.5, "frameon": False, "handlelength": 2.6}
        if len(axes.lines) > _BANDS:
            below = (0.5, -0.18)
            legend = axes.legend(loc="upper center", bbox_to_anchor=below, ncols=3, **look)
        else:
            legend = axes.legend(**look)
        for text in legend.get_texts():
            text.set_parse_math(False)
