"""Posteriors and confidence intervals of scores of a confusion matrix, such as F_β and MCC."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from lm_eval_bayes._util.plain import NOT_IN_JSON, Record
from lm_eval_bayes.errors import InvalidInputError
from lm_eval_bayes.stats.arrays import FloatArray, blocks, read_only
from lm_eval_bayes.stats.confusion_scores import (
    ConfusionScore,
    apply_score,
    as_matrix,
    named_score,
)
from lm_eval_bayes.stats.frequentist.interval import (
    NO_SPREAD,
    ConfidenceInterval,
    mean_interval,
)
from lm_eval_bayes.stats.intervals import Interval, drawn_ends, sample_tails
from lm_eval_bayes.stats.validation import (
    check_level,
    check_option,
    check_prior,
    check_seed,
    check_size,
)

#: Step of the central differences, as a share of all cases.
_STEP = 1e-5
#: Scores that can be negative; every other named one lies in [0, 1].
_SIGNED = ("mcc", "kappa")

_METHODS: tuple[Literal["exact", "hdi"], ...] = ("exact", "hdi")
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
        Draws of the score in ascending order, read-only, those where it was 0/0 left out.
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

    def interval(self, level: float = 0.95, method: Literal["exact", "hdi"] = "exact") -> Interval:
        """Return a credible interval from the draws, of scope "population".

        Parameters
        ----------
        level : float
            Posterior mass, strictly between 0 and 1.
        method : {"exact", "hdi"}
            Equal tails, or the shortest interval.

        Returns
        -------
        Interval
            With the Monte-Carlo error of the less certain endpoint, from 20 parts of the draws.

        Raises
        ------
        InvalidInputError
            If `level` or `method` breaks its rule.

        Examples
        --------
        >>> posterior = confusion_posterior((12, 3, 2, 13), "f1")
        >>> shortest = posterior.interval(method="hdi")
        >>> shortest.width < posterior.interval().width
        True
        """
        level = check_level(level)
        method = check_option("method", method, _METHODS)
        # the draws are sorted; after a seeded permutation each part is a sample
        order = np.random.default_rng(self.seed).permutation(self.draws.size)
        low, high, error = drawn_ends(self.draws[order], level, method)
        return Interval(low, high, level, method, "population", error, self.seed)

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
        For two classes "f1", "precision", "recall", "specificity" or "g_score"
        (sqrt(precision·recall), the Fowlkes–Mallows index); for any number "accuracy",
        "balanced_accuracy", "macro_f1", "g_mean" (the geometric mean of the recalls), "mcc"
        or "kappa"; or a function that takes matrices of shape (n, K, K) and gives (n,), such
        as `f_score(2)`.
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
    estimate = float(apply_score(function, matrix[None])[0])
    note = None
    if not np.isfinite(estimate):
        note = "the counts themselves give 0/0, so the posterior rests on the prior"
    sd = float(values.std())
    return ConfusionPosterior(
        quantity=name,
        mu=float(values.mean()),
        sigma=sd,
        mc_error=sd / float(np.sqrt(values.size)),
        estimate=estimate if np.isfinite(estimate) else None,
        draws=read_only(np.sort(values), np.float64),
        n_undefined=n_undefined,
        prior=pseudo,
        seed=seed,
        note=note,
    )


def confusion_confidence(
    counts: Mapping[str, int] | Sequence[int] | npt.ArrayLike,
    score: str | ConfusionScore = "f1",
    level: float = 0.95,
    *,
    method: str = "delta",
    replicates: int = 10_000,
    seed: int = 0,
) -> ConfidenceInterval:
    """Return a confidence interval for a score of a confusion matrix.

    "delta": score ± z·sqrt((Σ p g² − (Σ p g)²)/n), g being the score's gradient at the cell
    shares p. "bootstrap": quantiles of the score of matrices drawn from Multinomial(n, p).
    Both are to be compared with
    :func:`lm_eval_bayes.stats.confusion.confusion_posterior`;
    where a cell is empty both are too narrow [Bowyer 2025, §3.5].

    Parameters
    ----------
    counts : mapping, 4 numbers or array of shape (K, K)
        As in `confusion_posterior`.
    score : str or callable
        As in `confusion_posterior`.
    level : float
        In (0, 1).
    method : {"delta", "bootstrap"}
        See above.
    replicates, seed : int
        Of the bootstrap; 100 to 10⁷ replicates.

    Returns
    -------
    ConfidenceInterval
        Of scope "population". Replicates whose score is 0/0 are left out, and the note counts
        them.

    Raises
    ------
    InvalidInputError
        If an argument breaks its rule, or the score of the counts is 0/0.

    Examples
    --------
    >>> interval = confusion_confidence((12, 3, 2, 13), "f1")
    >>> round(interval.estimate, 3), round(interval.low, 3), round(interval.high, 3)
    (0.828, 0.679, 0.976)
    """
    matrix = as_matrix(counts)
    name, function = named_score(score, matrix.shape[0])
    level, seed = check_level(level), check_seed(seed)
    method = check_option("method", method, ("delta", "bootstrap"))
    replicates = check_size("replicates", replicates, 100, matrix.size)
    total = float(matrix.sum())
    if total == 0.0:
        raise InvalidInputError.of("counts", "empty", "count at least one case", "none")
    share = matrix / total
    estimate = float(apply_score(function, share[None])[0])
    if not np.isfinite(estimate):
        raise InvalidInputError.of("counts", "unsupported", f'give "{name}" a value', "0/0")
    if method == "delta":
        gradient = _gradient(function, share)
        centre = float((share * gradient).sum())
        variance = float((share * (gradient - centre) ** 2).sum()) / total
        possible = (-1.0 if name in _SIGNED else 0.0, 1.0)
        return mean_interval(
            estimate,
            float(np.sqrt(variance)),
            level,
            method="delta",
            estimand=name,
            bounds=possible if isinstance(score, str) else (-np.inf, np.inf),
        )
    drawn = np.random.default_rng(seed).multinomial(int(total), share.ravel(), size=replicates)
    values = apply_score(function, drawn.reshape(replicates, *share.shape).astype(np.float64))
    defined = values[np.isfinite(values)]
    if defined.size < 2:
        rule = f'give "{name}" a value in the replicates'
        raise InvalidInputError.of("counts", "unsupported", rule, "0/0")
    note = NO_SPREAD if defined.min() == defined.max() else None
    if defined.size < replicates:
        note = f"{replicates - defined.size} of {replicates} replicates gave 0/0 and were left out"
    low, high = sample_tails(defined, level)
    return ConfidenceInterval(
        low=low,
        high=high,
        level=level,
        method="bootstrap",
        estimand=name,
        estimate=estimate,
        standard_error=float(defined.std()),
        seed=seed,
        replicates=replicates,
        note=note,
    )


def _gradient(score: ConfusionScore, share: FloatArray) -> FloatArray:
    """Return the derivative of the score by each cell's share; 0 for empty cells.

    Their variance is 0, so their derivative has no effect, and some scores are not defined for
    a negative share.
    """
    gradient = np.zeros(share.size)
    filled = np.flatnonzero(share)
    steps = np.zeros((2, filled.size, share.size))
    steps[0, np.arange(filled.size), filled] = _STEP * share.ravel()[filled]
    steps[1] = -steps[0]
    moved = (share.ravel() + steps).reshape(-1, *share.shape)
    above, below = apply_score(score, moved).reshape(2, filled.size)
    gradient[filled] = (above - below) / (2.0 * _STEP * share.ravel()[filled])
    return gradient.reshape(share.shape)
