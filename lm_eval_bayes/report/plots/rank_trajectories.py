"""A picture of how models change places from rubric to rubric [Hariri 2026, Fig. 7].

Every schema is a column, and every model has a place of its own in it, the best at the top.
Models that share a rank stand in one bar with the rank's number. Which of them stands higher
there means nothing: they keep the order of the column before, so that two lines only cross
where one model is better than the other.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from lm_eval_bayes.errors import InvalidInputError
from lm_eval_bayes.report.plots.drawing import (
    COLOURS,
    DASHES,
    TEXT,
    check_picture,
    short_name,
    write_figure,
)
from lm_eval_bayes.stats.validation import FloatArray, IntArray

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

_MARKERS = ("o", "s", "^", "D", "v")
_BAR = "#ECECEC"


def places(ranks: IntArray, mu: FloatArray) -> IntArray:
    """Give every model a place of its own in every column.

    Parameters
    ----------
    ranks : array of int, shape (S, L)
        Ranks of L models under S schemata, from 1; tied models share one.
    mu : array, shape (S, L)
        Their means, which order tied models in the first column.

    Returns
    -------
    array of int, shape (S, L)
        From 0 at the top, in every row each of 0..L−1 once; a better rank stands higher, and
        models of one rank are in the order of the row before.

    Examples
    --------
    >>> ranks = np.array([[1, 2, 1], [1, 1, 1], [2, 1, 1]])
    >>> mu = np.array([[0.7, 0.5, 0.8], [0.6, 0.7, 0.6], [0.1, 0.8, 0.9]])
    >>> places(ranks, mu).tolist()
    [[1, 2, 0], [1, 2, 0], [2, 1, 0]]
    """
    found = np.empty(ranks.shape, dtype=np.int64)
    before: FloatArray | IntArray = -mu[0] if len(mu) else np.empty(0)
    for column, shared in enumerate(ranks):
        found[column, np.lexsort((before, shared))] = np.arange(shared.size)
        before = found[column]
    return found


def draw_rank_trajectories(
    path: Path,
    schemata: Sequence[str],
    models: Sequence[str],
    ranks: IntArray,
    mu: FloatArray,
    title: str = "",
) -> None:
    """Draw the ranks of models under several schemata; equal input gives the same bytes.

    Parameters
    ----------
    path : Path
        The picture, an .svg or .png; one that is there is replaced when the new one is whole.
    schemata : sequence of str, length S
        The columns.
    models : sequence of str, length L
        The lines. No character of a name means anything to the drawing.
    ranks : array of int, shape (S, L)
        Ranks from 1.
    mu : array, shape (S, L)
        Posterior means.
    title : str
        What stands above.

    Raises
    ------
    InvalidInputError
        If there is nothing to draw, or the picture cannot be written.
    LmEvalBayesError
        If matplotlib is not installed.
    """
    check_picture(path)
    if not schemata or not models:
        raise InvalidInputError.of("plot", "have a schema and a model to show", "none")
    import matplotlib
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    kind = path.suffix.lower().removeprefix(".")
    # no date, no version, no random names of elements: the same numbers give the same file
    metadata = {"Date": None, "Creator": None} if kind == "svg" else {"Software": None}
    with matplotlib.rc_context():
        matplotlib.rcdefaults()
        matplotlib.rcParams["svg.hashsalt"] = "lm-eval-bayes"
        figure = Figure(figsize=(1.2 + 0.95 * len(schemata), 1.3 + 0.3 * len(models)))
        FigureCanvasAgg(figure)
        draw_ranks(figure, schemata, models, ranks, mu, title)
        write_figure(figure, path, kind, metadata)


def draw_ranks(
    figure: Figure,
    schemata: Sequence[str],
    models: Sequence[str],
    ranks: IntArray,
    mu: FloatArray,
    title: str,
) -> None:
    """Draw the ranks into a figure; the arguments are those of :func:`draw_rank_trajectories`."""
    place = places(ranks, mu)
    axes = figure.add_subplot()
    for column, (shared, standing) in enumerate(zip(ranks, place, strict=True)):
        for rank in np.unique(shared):
            _bar(axes, column, standing[shared == rank], int(rank))
    last = len(schemata) - 1
    for model, name in enumerate(models):
        colour = COLOURS[model % len(COLOURS)]
        axes.plot(
            np.arange(len(schemata)),
            place[:, model],
            color=colour,
            linestyle=DASHES[model % len(DASHES)],
            linewidth=1.8,
            marker=_MARKERS[model % len(_MARKERS)],
            markersize=5.5,
            markeredgecolor="white",
            markeredgewidth=0.8,
            zorder=3,
        )
        for column, offset, side in ((0, -0.42, "right"), (last, 0.42, "left")):
            # parse_math off: a dollar in a name is a dollar
            axes.text(
                column + offset,
                float(place[column, model]),
                short_name(name),
                color=TEXT,
                ha=side,
                va="center",
                fontsize=9,
                parse_math=False,
            )
    axes.set_xlim(-0.4, last + 0.4)
    axes.set_ylim(len(models) - 0.4, -0.6)
    axes.set_xticks(range(len(schemata)))
    labels = axes.set_xticklabels([short_name(s) for s in schemata], rotation=40, ha="right")
    for label in labels:
        label.set_rotation_mode("anchor")
        label.set_parse_math(False)
    axes.set_yticks([])
    axes.tick_params(axis="x", length=0)
    for spine in axes.spines.values():
        spine.set_visible(False)
    told = "the number is the rank, 1 the best; models in one bar share it"
    axes.set_xlabel(told, fontsize=8, color=TEXT)
    axes.set_title(title, fontsize=10, parse_math=False)


def _bar(axes: Axes, column: int, standing: IntArray, rank: int) -> None:
    """Draw the bar of the models that share a rank, with its number."""
    from matplotlib.patches import FancyBboxPatch

    top, bottom = float(standing.min()), float(standing.max())
    shape = "round,pad=0,rounding_size=0.14"
    corner, height = (column - 0.27, top - 0.38), bottom - top + 0.76
    axes.add_patch(
        FancyBboxPatch(
            corner, 0.54, height, boxstyle=shape, facecolor=_BAR, edgecolor="none", zorder=1
        )
    )
    # in the corner, where no line runs
    corner = (column - 0.22, top - 0.2)
    axes.text(*corner, str(rank), ha="left", va="center", fontsize=6.5, color=TEXT, zorder=4)
