"""Posteriors of scores of a confusion matrix, such as F_β and MCC."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

from lm_eval_bayes._util.plain import NOT_IN_JSON, Record
from lm_eval_bayes._util.validation import (
    check_level,
    check_prior,
    check_seed,
    check_size,
)
from lm_eval_bayes.errors import InvalidInputError
from lm_eval_bayes.stats.arrays import FloatArray, blocks, read_only
from lm_eval_bayes.stats.confusion_scores import (
    ConfusionScore,
    apply_score,
    as_matrix,
    named_score,
)
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
