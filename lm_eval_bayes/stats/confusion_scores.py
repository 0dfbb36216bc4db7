"""Scores of a confusion matrix, vectorized over matrices."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import TypeAlias

import numpy as np
import numpy.typing as npt

from lm_eval_bayes._util.validation import check_positive
from lm_eval_bayes.errors import InvalidInputError
from lm_eval_bayes.stats.arrays import FloatArray, check_counts, numeric

#: Takes matrices of shape (..., K, K), rows the truth and columns the answer; gives (...).
#: Where the score is 0/0 it gives NaN.
ConfusionScore: TypeAlias = Callable[[FloatArray], FloatArray]

#: Order of the four numbers of a two-class problem.
CELLS = ("tp", "fp", "fn", "tn")


def precision(matrix: FloatArray) -> FloatArray:
    """Return tp / (tp + fp)."""
    return _ratio(matrix[..., 1, 1], matrix[..., :, 1].sum(axis=-1))


def recall(matrix: FloatArray) -> FloatArray:
    """Return tp / (tp + fn)."""
    return _ratio(matrix[..., 1, 1], matrix[..., 1, :].sum(axis=-1))


def g_score(matrix: FloatArray) -> FloatArray:
    """Return sqrt(precision·recall), also called the Fowlkes–Mallows index."""
    return np.asarray(np.sqrt(precision(matrix) * recall(matrix)))


def mcc(matrix: FloatArray) -> FloatArray:
    """Return Matthews' correlation coefficient."""
    (tn, fp), (fn, tp) = np.moveaxis(
        matrix / matrix.sum(axis=(-2, -1), keepdims=True), (-2, -1), (0, 1)
    )
    return _ratio(tp * tn - fp * fn, np.sqrt((tp + fp) * (tp + fn) * (tn + fp) * (tn + fn)))


def f_score(beta: float = 1.0) -> ConfusionScore:
    """Return the score F_β = (1 + β²) tp / ((1 + β²) tp + β² fn + fp).

    Raises
    ------
    InvalidInputError
        If `beta` is not a finite number above 0.

    Examples
    --------
    >>> matrix = np.array([[5.0, 2.0], [1.0, 4.0]])  # tn, fp / fn, tp
    >>> round(float(f_score(1.0)(matrix)), 4), round(float(f_score(2.0)(matrix)), 4)
    (0.7273, 0.7692)
    """
    number = check_positive("beta", beta)
    square = number * number

    def score(matrix: FloatArray) -> FloatArray:
        """Return F_β."""
        hits = (1.0 + square) * matrix[..., 1, 1]
        return _ratio(hits, hits + square * matrix[..., 1, 0] + matrix[..., 0, 1])

    return score


#: Scores of two classes by name, the second class being the positive one.
SCORES: Mapping[str, ConfusionScore] = MappingProxyType(
    {score.__name__: score for score in (precision, recall, g_score, mcc)} | {"f1": f_score(1.0)}
)


def as_matrix(counts: Mapping[str, int] | Sequence[int] | npt.ArrayLike) -> FloatArray:
    """Return counts as a (K, K) matrix, rows the truth and columns the answer.

    Parameters
    ----------
    counts : mapping, 4 numbers or array of shape (K, K)
        A mapping has the keys tp, fp, fn and tn, four numbers have that order; either
        becomes [[tn, fp], [fn, tp]].

    Raises
    ------
    InvalidInputError
        If it is none of these, an entry is no whole number of at least 0, or K < 2.

    Examples
    --------
    >>> as_matrix({"tp": 4, "fp": 2, "fn": 1, "tn": 5}).tolist()
    [[5.0, 2.0], [1.0, 4.0]]
    """
    rule = "be (tp, fp, fn, tn), a mapping of these names, or a (K, K) matrix with K >= 2"
    if isinstance(counts, Mapping):
        if set(counts) != set(CELLS):
            raise InvalidInputError.of("counts", "choice", rule, dict(counts))
        counts = [counts[cell] for cell in CELLS]
    array = numeric("counts", counts)
    if array.shape == (4,):
        tp, fp, fn, tn = array
        array = np.array([[tn, fp], [fn, tp]])
    if array.ndim != 2 or array.shape[0] != array.shape[1] or array.shape[0] < 2:
        raise InvalidInputError.of("counts", "shape", rule, f"shape {array.shape}")
    return check_counts("counts", array, len(array)).astype(np.float64)


def named_score(score: str | ConfusionScore, n_classes: int) -> tuple[str, ConfusionScore]:
    """Return the name of a score and the score itself.

    Raises
    ------
    InvalidInputError
        If the name is unknown or wants two classes, or `score` is no function either.
    """
    if callable(score) and not isinstance(score, type):
        return str(getattr(score, "__name__", "score")), score
    if not isinstance(score, str) or score not in SCORES or n_classes != 2:
        rule = f"be a function, or for two classes one of {', '.join(SCORES)}"
        raise InvalidInputError.of("score", "choice", rule, score)
    return score, SCORES[score]


def apply_score(score: ConfusionScore, matrices: FloatArray) -> FloatArray:
    """Return the score of each matrix of shape (n, K, K), checking the output of a function.

    Raises
    ------
    InvalidInputError
        If it gave anything but one real number per matrix.
    """
    with np.errstate(divide="ignore", invalid="ignore"):
        values = np.asarray(score(matrices))
    if values.shape != matrices.shape[:1] or values.dtype.kind not in "biuf":
        rule = f"give one number per matrix, shape {matrices.shape[:1]} for {matrices.shape}"
        got = f"shape {values.shape}, dtype {values.dtype}"
        raise InvalidInputError.of("score", "shape", rule, got)
    return values.astype(np.float64)


def _ratio(top: FloatArray, bottom: FloatArray) -> FloatArray:
    """Return top / bottom, NaN where both are 0."""
    with np.errstate(divide="ignore", invalid="ignore"):
        return np.asarray(top / bottom)
