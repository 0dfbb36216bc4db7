"""A picture of how models change places from rubric to rubric [Hariri 2026, Fig. 7].

Every schema is a column, and every model has a place of its own in it, the best at the top.
Models that share a rank stand in one bar with the rank's number. Which of them stands higher
there means nothing: they keep the order of the column before, so that two lines only cross
where one model is better than the other.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from contextlib import suppress
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from lm_eval_bayes.core.checks import FloatArray, IntArray
from lm_eval_bayes.errors import InvalidInputError, LmEvalBayesError
from lm_eval_bayes.store.locations import temporary_name

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

#: What a picture's name may end with.
SUFFIXES = (".svg", ".png")

#: Okabe and Ito's colours, which colour-blind people tell apart, without yellow and with grey.
_COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#56B4E9", "#E69F00", "#595959")
#: With the colours 28 different lines; the number of both has no common divisor.
_DASHES = ("-", (0, (5, 1.5)), (0, (1.2, 1.2)), (0, (6, 1.5, 1.2, 1.5)))
_MARKERS = ("o", "s", "^", "D", "v")
_TEXT, _BAR = "#222222", "#ECECEC"
_LONGEST_NAME = 40


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


def check_picture(path: Path, argument: str = "plot") -> None:
    """Refuse, before any work, a picture that could not be drawn.

    Raises
    ------
    InvalidInputError
        If the name ends with no kind of picture, or its folder does not exist.
    LmEvalBayesError
        If matplotlib is not installed.
    """
    if path.suffix.lower() not in SUFFIXES:
        raise InvalidInputError.of(argument, f"end with {' or '.join(SUFFIXES)}", path.name)
    if not path.absolute().parent.is_dir():
        raise InvalidInputError.of(argument, "lie in a folder that exists", str(path))
    if path.is_dir():
        raise InvalidInputError.of(argument, "be a file", str(path))
    if find_spec("matplotlib") is None:
        raise LmEvalBayesError(
            "a picture needs matplotlib, which is not installed: pip install 'lm-eval-bayes[plots]'"
        )


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
        _draw(figure, schemata, models, ranks, mu, title)
        _write(figure, path, kind, metadata)


def _draw(
    figure: Figure,
    schemata: Sequence[str],
    models: Sequence[str],
    ranks: IntArray,
    mu: FloatArray,
    title: str,
) -> None:
    place = places(ranks, mu)
    axes = figure.add_subplot()
    for column, (shared, standing) in enumerate(zip(ranks, place, strict=True)):
        for rank in np.unique(shared):
            _bar(axes, column, standing[shared == rank], int(rank))
    last = len(schemata) - 1
    for model, name in enumerate(models):
        colour = _COLOURS[model % len(_COLOURS)]
        axes.plot(
            np.arange(len(schemata)),
            place[:, model],
            color=colour,
            linestyle=_DASHES[model % len(_DASHES)],
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
                _short(name),
                color=_TEXT,
                ha=side,
                va="center",
                fontsize=9,
                parse_math=False,
            )
    axes.set_xlim(-0.4, last + 0.4)
    axes.set_ylim(len(models) - 0.4, -0.6)
    axes.set_xticks(range(len(schemata)))
    labels = axes.set_xticklabels([_short(s) for s in schemata], rotation=40, ha="right")
    for label in labels:
        label.set_rotation_mode("anchor")
        label.set_parse_math(False)
    axes.set_yticks([])
    axes.tick_params(axis="x", length=0)
    for spine in axes.spines.values():
        spine.set_visible(False)
    told = "the number is the rank, 1 the best; models in one bar share it"
    axes.set_xlabel(told, fontsize=8, color=_TEXT)
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
    axes.text(*corner, str(rank), ha="left", va="center", fontsize=6.5, color=_TEXT, zorder=4)


def _short(name: str) -> str:
    """Leave out the middle of a long name."""
    if len(name) <= _LONGEST_NAME:
        return name
    return f"{name[: _LONGEST_NAME // 2 - 1]}…{name[-_LONGEST_NAME // 2 :]}"


def _write(figure: Figure, path: Path, kind: str, metadata: dict[str, Any]) -> None:
    import warnings

    temporary = temporary_name(path)
    try:
        with open(temporary, "xb") as output, warnings.catch_warnings():
            # a name in letters that the font has not is drawn with boxes
            warnings.filterwarnings("ignore", message="Glyph .* missing from")
            figure.savefig(output, format=kind, dpi=160, bbox_inches="tight", metadata=metadata)
            output.flush()
            os.fsync(output.fileno())
        os.replace(temporary, path)
    except OSError as error:
        rule = f"be a file that can be written; {path}: {error.strerror}"
        raise InvalidInputError.of("plot", rule, path.name) from None
    finally:
        with suppress(OSError):
            temporary.unlink()
