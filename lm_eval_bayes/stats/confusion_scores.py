"""Scores of a confusion matrix, vectorized over matrices."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import TypeAlias

import numpy as np
import numpy.typing as npt

from lm_eval_bayes.errors import InvalidInputError
from lm_eval_bayes.stats.arrays import FloatArray
from lm_eval_bayes.stats.validation import check_positive

#: Takes matrices of shape (..., K, K), rows the truth and columns the answer; gives (...).
#: Where the score is 0/0 it gives NaN.
ConfusionScore: TypeAlias = Callable[[FloatArray], FloatArray]

#: Order of the four numbers of a two-class problem.
CELLS = ("tp", "fp", "fn", "tn")


def accuracy(matrix: FloatArray) -> FloatArray:
    """Return the share on the diagonal."""
    return _ratio(np.trace(matrix, axis1=-2, axis2=-1), matrix.sum(axis=(-2, -1)))


def recalls(matrix: FloatArray) -> FloatArray:
    """Return the recall of every class, shape (..., K)."""
    return _ratio(_diagonal(matrix), matrix.sum(axis=-1))


def precisions(matrix: FloatArray) -> FloatArray:
    """Return the precision of every class, shape (..., K)."""
    return _ratio(_diagonal(matrix), matrix.sum(axis=-2))


def balanced_accuracy(matrix: FloatArray) -> FloatArray:
    """Return the mean recall of the classes."""
    return np.asarray(recalls(matrix).mean(axis=-1))


def macro_f1(matrix: FloatArray) -> FloatArray:
    """Return the mean F1 of the classes."""
    sums = matrix.sum(axis=-1) + matrix.sum(axis=-2)
    return np.asarray(_ratio(2.0 * _diagonal(matrix), sums).mean(axis=-1))


def g_mean(matrix: FloatArray) -> FloatArray:
    """Return the geometric mean of the recalls; for two classes sqrt(recall·specificity)."""
    with np.errstate(divide="ignore"):
        return np.asarray(np.exp(np.log(recalls(matrix)).mean(axis=-1)))


def mcc(matrix: FloatArray) -> FloatArray:
    """Return Matthews' correlation coefficient, Gorodkin's R_K for more than two classes."""
    share = matrix / matrix.sum(axis=(-2, -1), keepdims=True)
    truth, answer = share.sum(axis=-1), share.sum(axis=-2)
    covariance = np.trace(share, axis1=-2, axis2=-1) - (truth * answer).sum(axis=-1)
    # 1 − Σ p² as Σ p(1 − p): nothing cancels where one class has nearly everything
    spread = (truth * (1.0 - truth)).sum(axis=-1), (answer * (1.0 - answer)).sum(axis=-1)
    return np.asarray(np.clip(_ratio(covariance, np.sqrt(spread[0] * spread[1])), -1.0, 1.0))


def kappa(matrix: FloatArray) -> FloatArray:
    """Return Cohen's κ, the agreement beyond that of the margins."""
    share = matrix / matrix.sum(axis=(-2, -1), keepdims=True)
    chance = (share.sum(axis=-1) * share.sum(axis=-2)).sum(axis=-1)
    return _ratio(np.trace(share, axis1=-2, axis2=-1) - chance, 1.0 - chance)


def precision(matrix: FloatArray) -> FloatArray:
    """Return tp / (tp + fp)."""
    return np.asarray(precisions(matrix)[..., 1])


def recall(matrix: FloatArray) -> FloatArray:
    """Return tp / (tp + fn)."""
    return np.asarray(recalls(matrix)[..., 1])


def specificity(matrix: FloatArray) -> FloatArray:
    """Return tn / (tn + fp)."""
    return np.asarray(recalls(matrix)[..., 0])


def g_score(matrix: FloatArray) -> FloatArray:
    """Return sqrt(precision·recall), also called the Fowlkes–Mallows index."""
    return np.asarray(np.sqrt(precision(matrix) * recall(matrix)))


def f_score(beta: float = 1.0) -> ConfusionScore:
    """Return the score F_β = (1 + β²) tp / ((1 + β²) tp + β² fn + fp).

    Raises
    ------
    InvalidInputError
        If `beta` is not a finite number above 0 and at most 1e150.

    Examples
    --------
    >>> matrix = np.array([[5.0, 2.0], [1.0, 4.0]])  # tn, fp / fn, tp
    >>> round(float(f_score(1.0)(matrix)), 4), round(float(f_score(2.0)(matrix)), 4)
    (0.7273, 0.7692)
    """
    number = check_positive("beta", beta)
    if number > 1e150:
        rule = "be at most 1e150, as its square is needed"
        raise InvalidInputError.of("beta", "range", rule, beta)
    square = number**2

    def score(matrix: FloatArray) -> FloatArray:
        """Return F_β."""
        hits = (1.0 + square) * matrix[..., 1, 1]
        return _ratio(hits, hits + square * matrix[..., 1, 0] + matrix[..., 0, 1])

    return score


#: Scores for any number of classes, with their smallest and largest value.
ANY_CLASSES: Mapping[str, ConfusionScore] = MappingProxyType(
    {
        "accuracy": accuracy,
        "balanced_accuracy": balanced_accuracy,
        "macro_f1": macro_f1,
        "g_mean": g_mean,
        "mcc": mcc,
        "kappa": kappa,
    }
)

#: Scores of two classes, the second being the positive one.
TWO_CLASSES: Mapping[str, ConfusionScore] = MappingProxyType(
    {
        "precision": precision,
        "recall": recall,
        "specificity": specificity,
        "f1": f_score(1.0),
        "g_score": g_score,
    }
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
    try:
        array = np.asarray(counts)
    except ValueError:
        raise InvalidInputError.of("counts", "type", rule, counts) from None
    if array.dtype.kind not in "iuf":
        raise InvalidInputError.of("counts", "type", rule, counts)
    if array.shape == (4,):
        tp, fp, fn, tn = array
        array = np.array([[tn, fp], [fn, tp]])
    if array.ndim != 2 or array.shape[0] != array.shape[1] or array.shape[0] < 2:
        raise InvalidInputError.of("counts", "shape", rule, f"shape {array.shape}")
    matrix = array.astype(np.float64)
    if not np.isfinite(matrix).all() or (matrix < 0).any() or (matrix != np.trunc(matrix)).any():
        got = matrix.tolist()
        raise InvalidInputError.of("counts", "range", "hold whole numbers of at least 0", got)
    return matrix


def named_score(score: str | ConfusionScore, n_classes: int) -> tuple[str, ConfusionScore]:
    """Return the name of a score and the score itself.

    Raises
    ------
    InvalidInputError
        If the name is unknown or wants two classes, or `score` is no function either.
    """
    available = dict(ANY_CLASSES)
    if n_classes == 2:
        available.update(TWO_CLASSES)
    if isinstance(score, str):
        if score not in available:
            rule = f"be a function or one of {', '.join(available)} for {n_classes} classes"
            raise InvalidInputError.of("score", "choice", rule, score)
        return score, available[score]
    if not callable(score):
        raise InvalidInputError.of("score", "type", "be a name or a function of matrices", score)
    return str(getattr(score, "__name__", "score")), score


def apply_score(score: ConfusionScore, matrices: FloatArray) -> FloatArray:
    """Return the score of each matrix of shape (n, K, K), checking the output of a function.

    Raises
    ------
    InvalidInputError
        If it gave anything but one real number per matrix.
    """
    if isinstance(score, type):
        raise InvalidInputError.of("score", "type", "be a name or a function of matrices", score)
    with np.errstate(divide="ignore", invalid="ignore"):
        values = np.asarray(score(matrices))
    if values.shape != matrices.shape[:1] or values.dtype.kind not in "biuf":
        rule = f"give one number per matrix, shape {matrices.shape[:1]} for {matrices.shape}"
        got = f"shape {values.shape}, dtype {values.dtype}"
        raise InvalidInputError.of("score", "shape", rule, got)
    return values.astype(np.float64)


def _diagonal(matrix: FloatArray) -> FloatArray:
    """Return the diagonals, shape (..., K)."""
    return np.asarray(np.diagonal(matrix, axis1=-2, axis2=-1))


def _ratio(top: FloatArray, bottom: FloatArray) -> FloatArray:
    """Return top / bottom, NaN where both are 0."""
    with np.errstate(divide="ignore", invalid="ignore"):
        return np.asarray(top / bottom)
