"""Percentile bootstrap of a mean: over questions, over clusters, or over the trials of each."""

from __future__ import annotations

from collections.abc import Hashable, Sequence

import numpy as np
import numpy.typing as npt

from lm_eval_bayes.errors import InvalidInputError
from lm_eval_bayes.stats.bayes_at_n import avg_at_n, require_trials
from lm_eval_bayes.stats.distributions.base import BLOCK
from lm_eval_bayes.stats.frequentist.interval import (
    NO_SPREAD,
    Bounds,
    ConfidenceInterval,
    as_scores,
)
from lm_eval_bayes.stats.frequentist.means import cluster_index, cluster_sums
from lm_eval_bayes.stats.intervals import SCOPES, Scope
from lm_eval_bayes.stats.outcomes import Outcomes, distinct_pairs
from lm_eval_bayes.stats.validation import (
    FloatArray,
    check_level,
    check_option,
    check_seed,
    check_size,
)


def bootstrap_interval(
    scores: Outcomes | npt.ArrayLike,
    level: float = 0.95,
    *,
    scope: Scope = "population",
    clusters: Sequence[Hashable] | None = None,
    replicates: int = 10_000,
    seed: int = 0,
    bounds: Bounds = (0.0, 1.0),
) -> ConfidenceInterval:
    """Return the percentile bootstrap interval of a mean score.

    Scope "population" draws questions with replacement, or whole clusters of them where
    `clusters` is given; scope "benchmark" keeps the questions and draws the trials of each.
    The ends are the (1 ± level)/2 quantiles of the means drawn [Bowyer 2025, §3.1]. Outcomes
    that are absent from the data are absent from the replicates: if every score is equal, the
    interval is a point. The clustered bootstrap that Bowyer's experiments compare with draws
    within clusters instead, which leaves out how clusters differ.

    Parameters
    ----------
    scores : Outcomes or array, shape (n,)
        One score per question, or outcomes; scope "benchmark" needs outcomes.
    level : float
        In (0, 1).
    scope : {"population", "benchmark"}
        Whether questions or trials are resampled.
    clusters : sequence, length n, optional
        The cluster of each score; scope "population" only.
    replicates : int
        100 to 10⁷.
    seed : int
        Of the resampling.
    bounds : tuple of float or None
        The possible scores; outcomes bring their own.

    Returns
    -------
    ConfidenceInterval
        With `seed` and `replicates`; its standard error is the sd of the means drawn.

    Raises
    ------
    InvalidInputError
        If an argument breaks its rule, or scope and input do not fit.

    Examples
    --------
    >>> interval = bootstrap_interval([1, 0, 1, 1, 0, 1, 1, 1, 1, 0])
    >>> interval.estimate, interval.low, interval.high, interval.seed
    (0.7, 0.4, 1.0, 0)
    """
    level, seed = check_level(level), check_seed(seed)
    replicates = check_size("replicates", replicates, 100)
    scope = check_option("scope", scope, SCOPES)
    rng = np.random.default_rng(seed)
    if scope == "population":
        values, bounds = as_scores("scores", scores, bounds, 1)
        estimate = float(values.mean())
        where = np.arange(values.size)
        if clusters is not None:
            where = cluster_index(clusters, values.size, "score")
        means = _over_units(*cluster_sums(values, where), replicates, rng)
        estimand = "mean score of the population of questions"
    else:
        if not isinstance(scores, Outcomes) or clusters is not None:
            rule = 'be outcomes, and `clusters` None, in scope "benchmark"'
            raise InvalidInputError.of("scores", rule, scores)
        require_trials(scores)
        estimate = avg_at_n(scores).value
        means = _over_trials(scores, replicates, rng)
        estimand = "mean score of these questions"
    low, high = np.quantile(means, [0.5 * (1.0 - level), 0.5 * (1.0 + level)])
    error = float(means.std())
    return ConfidenceInterval(
        low=float(low),
        high=float(high),
        level=level,
        method="bootstrap" if clusters is None else "clustered-bootstrap",
        estimand=estimand,
        scope=scope,
        estimate=estimate,
        standard_error=error,
        raw_low=float(low),
        raw_high=float(high),
        seed=seed,
        replicates=replicates,
        note=NO_SPREAD if means.min() == means.max() else None,
    )


def _over_units(
    totals: FloatArray, sizes: FloatArray, replicates: int, rng: np.random.Generator
) -> FloatArray:
    """Draw as many units as there are, with replacement; return Σ totals / Σ sizes of each draw.

    Units that are alike are interchangeable, so it is enough to draw how often each distinct
    one comes: for 0/1 scores a replicate is one binomial number.
    """
    units = distinct_pairs(totals, sizes)
    share = units.times / units.times.sum()
    means = np.empty(replicates)
    block = max(1, BLOCK // share.size)
    for start in range(0, replicates, block):
        stop = min(replicates, start + block)
        often = rng.multinomial(totals.size, share, size=stop - start)
        means[start:stop] = (often @ units.first) / (often @ units.second)
    return means


def _over_trials(outcomes: Outcomes, replicates: int, rng: np.random.Generator) -> FloatArray:
    """Draw N_α trials of every question with replacement; return the mean scores."""
    n_trials = outcomes.n_trials
    share = outcomes.counts / n_trials[:, None]
    means = np.empty(replicates)
    block = max(1, BLOCK // share.size)
    for start in range(0, replicates, block):
        stop = min(replicates, start + block)
        often = rng.multinomial(n_trials, share, size=(stop - start, n_trials.size))
        means[start:stop] = ((often @ outcomes.weights) / n_trials).mean(axis=1)
    return means
