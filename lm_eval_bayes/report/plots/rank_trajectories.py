"""A figure of the models' ranks from rubric to rubric [Hariri 2026, Fig. 7].

Every schema is a column, and every model has a position of its own in it, the best at the top.
Tied models are in one bar with their rank. Within a bar they keep the order of the previous
column, so lines cross only where one model is better than the other.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from lm_eval_bayes.report.plots.drawing import (
    COLOURS,
    DASHES,
    TEXT,
    short_name,
)
from lm_eval_bayes.stats import FloatArray, IntArray

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

_MARKERS = ("o", "s", "^", "D", "v")
_BAR = "#ECECEC"


def positions(ranks: IntArray, mu: FloatArray) -> IntArray:
    """Return a distinct position for every model in every column.

    Parameters
    ----------
    ranks : array of int, shape (S, L)
        Ranks of L models under S schemata, from 1; tied models share a rank.
    mu : array, shape (S, L)
        Posterior means, which order tied models in the first column.

    Returns
    -------
    array of int, shape (S, L)
        A permutation of 0..L−1 in every row, 0 at the top: by rank, and tied models in the order
        of the previous row.

    Examples
    --------
    >>> ranks = np.array([[1, 2, 1], [1, 1, 1], [2, 1, 1]])
    >>> mu = np.array([[0.7, 0.5, 0.8], [0.6, 0.7, 0.6], [0.1, 0.8, 0.9]])
    >>> positions(ranks, mu).tolist()
    [[1, 2, 0], [1, 2, 0], [2, 1, 0]]
    """
    result = np.empty(ranks.shape, dtype=np.int64)
    previous: FloatArray | IntArray = -mu[0] if len(mu) else np.empty(0)
    for column, column_ranks in enumerate(ranks):
        result[column, np.lexsort((previous, column_ranks))] = np.arange(column_ranks.size)
        previous = result[column]
    return result


def draw_ranks(
    figure: Figure,
    schemata: Sequence[str],
    models: Sequence[str],
    ranks: IntArray,
    mu: FloatArray,
    title: str,
) -> None:
    """Draw the ranks of models under several schemata into a figure.

    Parameters
    ----------
    figure : matplotlib.figure.Figure
        An empty figure.
    schemata : sequence of str, length S
        The columns.
    models : sequence of str, length L
        The lines. Names are untrusted, and drawn literally.
    ranks : array of int, shape (S, L)
        Ranks from 1.
    mu : array, shape (S, L)
        Posterior means.
    title : str
        The title.
    """
    position = positions(ranks, mu)
    figure.set_size_inches(1.2 + 0.95 * len(schemata), 1.3 + 0.3 * len(models))
    axes = figure.add_subplot()
    for column, (column_ranks, column_positions) in enumerate(zip(ranks, position, strict=True)):
        for rank in np.unique(column_ranks):
            _draw_bar(axes, column, column_positions[column_ranks == rank], int(rank))
    last = len(schemata) - 1
    for model, name in enumerate(models):
        colour = COLOURS[model % len(COLOURS)]
        axes.plot(
            np.arange(len(schemata)),
            position[:, model],
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
            axes.text(
                column + offset,
                float(position[column, model]),
                short_name(name),
                color=TEXT,
                ha=side,
                va="center",
                fontsize=9,
            )
    axes.set_xlim(-0.4, last + 0.4)
    axes.set_ylim(len(models) - 0.4, -0.6)
    rotated: dict[str, Any] = {"rotation": 40, "ha": "right", "rotation_mode": "anchor"}
    axes.set_xticks(range(len(schemata)), [short_name(schema) for schema in schemata], **rotated)
    axes.set_yticks([])
    axes.tick_params(axis="x", length=0)
    axes.spines[:].set_visible(False)
    axes.set_xlabel(
        "numbers are ranks, 1 is best; models in one bar are tied", fontsize=8, color=TEXT
    )
    axes.set_title(title, fontsize=10)


def _draw_bar(axes: Axes, column: int, tied_positions: IntArray, rank: int) -> None:
    """Draw the bar of tied models, with their rank."""
    from matplotlib.patches import FancyBboxPatch

    top, bottom = float(tied_positions.min()), float(tied_positions.max())
    shape = "round,pad=0,rounding_size=0.14"
    corner, height = (column - 0.27, top - 0.38), bottom - top + 0.76
    axes.add_patch(
        FancyBboxPatch(
            corner, 0.54, height, boxstyle=shape, facecolor=_BAR, edgecolor="none", zorder=1
        )
    )
    # in the corner, where there is no line
    corner = (column - 0.22, top - 0.2)
    axes.text(*corner, str(rank), ha="left", va="center", fontsize=6.5, color=TEXT, zorder=4)
