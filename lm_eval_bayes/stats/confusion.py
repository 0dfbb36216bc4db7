"""Scores of a confusion matrix, such as F_β and MCC, and their posteriors."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from lm_eval_bayes._util.plain import NOT_IN_JSON, Record
from lm_eval_bayes._util.validation import (
    check_level,
    check_positive,
    check_prior,
    check_seed,
    check_size,
)
from lm_eval_bayes.errors import InvalidInputError
from lm_eval_bayes.stats.arrays import FloatArray, blocks, check_counts, numeric, read_only
from lm_eval_bayes.stats.intervals import Interval, drawn_ends

_BATCHES = 20
_BLOCK = 500_000


@dataclass(frozen=True, eq=False)
class ConfusionPosterior(Record):
    """The posterior of a score of a confusion matrix, as draws.

    Attributes
    ----------
    quantity : str
        The name of the score.
    mu, sigma : float
        Posterior mean and standard deviation.
    mc_error : float
        Monte-Carlo standard error of `mu`.
    estimate : float or None
        The score of the counts themselves; None where that is 0/0.
    draws : array, shape (n,)
        Draws of the score, read-only, those where it was 0/0 left out.
    n_undefined : int
        How many were left out.
    prior : float
        The pseudo-count of every cell.
    seed : int
        The seed of the draws.
    note : str or None
        A warning about the numbers.
    """

    quantity: str
    mu: float
    sigma: float
    mc_error: float
    estimate: float | None
    draws: FloatArray = field(repr=False, metadata=NOT_IN_JSON)
    n_undefined: int
    prior: float
    seed: int
    note: str | None = None

    def interval(self, level: float = 0.95) -> Interval:
        """Return the equal-tailed credible interval of the draws, of scope "population".

        Parameters
        ----------
        level : float
            Posterior mass, strictly between 0 and 1.

        Returns
        -------
        Interval
            With the Monte-Carlo error of the less certain endpoint, from 20 parts of the draws.

        Raises
        ------
        InvalidInputError
            If `level` breaks its rule.
        """
        low, high, error = drawn_ends(self.draws, check_level(level))
        return Interval(low, high, level, "exact", "population", error, self.seed)

    def to_dict(self) -> dict[str, Any]:
        """Return the fields as plain JSON types, the number of draws in place of the draws."""
        return {**super().to_dict(), "n_draws": int(self.draws.size)}


def confusion_posterior(
    counts: Mapping[str, int] | Sequence[int] | npt.ArrayLike,
    score: str | ConfusionScore = "f1",
    *,
    prior: str | float = "uniform",
    draws: int = 100_000,
    seed: int = 0,
) -> ConfusionPosterior:
    """Return the posterior of a score of a confusion matrix [Bowyer 2025, §3.5].

    The shares of the K² cells get the prior Dirichlet(1, …, 1), so given the counts they are
    Dirichlet(1 + counts); the score is computed for every draw. The CLT does not apply directly,
    since the score is not a mean. Draws of which the score is 0/0 are left out and counted: the
    posterior is that of the score given that it is defined. A Dirichlet draw has no zero, so this
    concerns tiny pseudo-counts and one's own functions only.

    Parameters
    ----------
    counts : mapping, 4 numbers or array of shape (K, K)
        (tp, fp, fn, tn), a mapping of these names, or a matrix with the truth as rows and
        the answers as columns; of two classes the second is the positive one.
    score : str or callable
        For two classes "f1", "precision", "recall", "g_score" (sqrt(precision·recall), the
        Fowlkes–Mallows index) or "mcc"; or a function that takes matrices of shape (n, K, K) and
        gives (n,), such as `f_score(2)`.
    prior : "uniform", "jeffreys" or float
        The pseudo-count of every cell: 1 (the paper), ½, or a finite number above 0.
    draws : int
        1,000 to 10⁷.
    seed : int
        Of the draws.

    Returns
    -------
    ConfusionPosterior

    Raises
    ------
    InvalidInputError
        If an argument breaks its rule, or no draw has a defined score.

    Examples
    --------
    >>> posterior = confusion_posterior((12, 3, 2, 13), "f1")
    >>> interval = posterior.interval()
    >>> round(posterior.estimate, 3), round(interval.low, 2), round(interval.high, 2)
    (0.828, 0.6, 0.91)
    """
    matrix = as_matrix(counts)
    name, function = named_score(score, matrix.shape[0])
    pseudo, seed = check_prior(prior), check_seed(seed)
    draws = check_size("draws", draws, 1000)
    rng, values = np.random.default_rng(seed), np.empty(draws)
    for part in blocks(draws, matrix.size, _BLOCK):
        cells = rng.standard_gamma(matrix + pseudo, size=(part.stop - part.start, *matrix.shape))
        with np.errstate(invalid="ignore"):
            values[part] = apply_score(function, cells / cells.sum(axis=(1, 2), keepdims=True))
    values = values[np.isfinite(values)]
    n_undefined = draws - values.size
    if values.size < _BATCHES:
        rule = "be defined (not 0/0) for nearly all draws"
        got = f"undefined in {n_undefined} of {draws} draws"
        raise InvalidInputError.of("score", "unsupported", rule, got)
    (estimate,), sd = apply_score(function, matrix[None]).tolist(), float(values.std())
    defined = np.isfinite(estimate)
    note = "the counts themselves give 0/0, so the posterior rests on the prior"
    return ConfusionPosterior(
        quantity=name,
        mu=float(values.mean()),
        sigma=sd,
        mc_error=sd / float(np.sqrt(values.size)),
        estimate=estimate if defined else None,
        draws=read_only(values, np.float64),
        n_undefined=n_undefined,
        prior=pseudo,
        seed=seed,
        note=None if defined else note,
    )


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
