"""Confidence intervals for a score of a confusion matrix: the delta method and the bootstrap."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import numpy.typing as npt
from scipy import special

from lm_eval_bayes.errors import InvalidInputError
from lm_eval_bayes.stats.confusion.scores import (
    ConfusionScore,
    apply_score,
    as_matrix,
    named_score,
)
from lm_eval_bayes.stats.frequentist.interval import NO_SPREAD, ConfidenceInterval, mean_interval
from lm_eval_bayes.stats.validation import (
    FloatArray,
    check_level,
    check_option,
    check_seed,
    check_size,
)

#: Step of the central differences, as a share of all cases.
_STEP = 1e-5
#: Scores that can be negative; every other named one lies in [0, 1].
_SIGNED = ("mcc", "kappa")


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
    :func:`lm_eval_bayes.stats.confusion.posterior.confusion_posterior`;
    where a cell is empty both say too little [Bowyer 2025, §3.5].

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
        raise InvalidInputError.of("counts", "count at least one case", "none")
    share = matrix / total
    estimate = float(apply_score(function, share[None])[0])
    if not np.isfinite(estimate):
        raise InvalidInputError.of("counts", f'give "{name}" a value', "0/0")
    if method == "delta":
        gradient = _gradient(function, share)
        centre = float((share * gradient).sum())
        variance = float((share * (gradient - centre) ** 2).sum()) / total
        bounds = None
        if isinstance(score, str):
            bounds = (-1.0 if name in _SIGNED else 0.0, 1.0)
        return mean_interval(
            estimate,
            float(np.sqrt(variance)),
            level,
            float(special.ndtri(0.5 + 0.5 * level)),
            method="delta",
            estimand=name,
            scope="population",
            bounds=bounds,
        )
    drawn = np.random.default_rng(seed).multinomial(int(total), share.ravel(), size=replicates)
    values = apply_score(function, drawn.reshape(replicates, *share.shape).astype(np.float64))
    kept = values[np.isfinite(values)]
    if kept.size < 2:
        raise InvalidInputError.of("counts", f'give "{name}" a value in the replicates', "0/0")
    low, high = np.quantile(kept, [0.5 * (1.0 - level), 0.5 * (1.0 + level)])
    note = NO_SPREAD if kept.min() == kept.max() else None
    if kept.size < replicates:
        note = f"{replicates - kept.size} of {replicates} replicates gave 0/0 and were left out"
    return ConfidenceInterval(
        low=float(low),
        high=float(high),
        level=level,
        method="bootstrap",
        estimand=name,
        scope="population",
        estimate=estimate,
        standard_error=float(kept.std()),
        raw_low=float(low),
        raw_high=float(high),
        seed=seed,
        replicates=replicates,
        note=note,
    )


def _gradient(score: ConfusionScore, share: FloatArray) -> FloatArray:
    """Return the derivative of the score by each cell's share; 0 for empty cells.

    Their variance is 0, so whatever stands there does not count, and some scores cannot be
    asked about a negative share.
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
