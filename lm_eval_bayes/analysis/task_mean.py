"""The posterior of a weighted mean of independent scores.

Scores under a uniform prior for every question, and differences that are paired by question, are
independent from task to task. Those of hbayes@N share a prior: see
`lm_eval_bayes.stats.hierarchical.mean_over_tasks`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from lm_eval_bayes.stats.arrays import FloatArray, read_only
from lm_eval_bayes.stats.comparison.difference import (
    MASSES,
    Quantile,
    difference_table,
)
from lm_eval_bayes.stats.distributions.base import (
    CdfTable,
    Distribution,
    Moments,
    TabulatedDistribution,
)
from lm_eval_bayes.stats.results import PerQuestion, Posterior, joined_notes

#: Probabilities from 0 to 1 at which quantiles are tabulated.
_MASSES = np.concatenate([[0.0], MASSES, [1.0]])


@dataclass(frozen=True, eq=False)
class WeightedSum(Distribution):
    """The distribution of shift + Σ w_t S_t for independent S_t, by posterior draws."""

    terms: tuple[Distribution, ...]
    weights: tuple[float, ...]
    shift: float = 0.0

    def moments(self) -> Moments:
        """Return the exact mean and standard deviation."""
        moments = [term.moments() for term in self.terms]
        weighted = list(zip(self.weights, moments, strict=True))
        mean = self.shift + sum(w * term.mean for w, term in weighted)
        return Moments(mean, float(np.sqrt(sum((w * term.sd) ** 2 for w, term in weighted))))

    def draw(self, n_draws: int, rng: np.random.Generator) -> FloatArray:
        """Draw the sum `n_draws` times, shape (n_draws,)."""
        total = np.full(n_draws, self.shift)
        for weight, term in zip(self.weights, self.terms, strict=True):
            total += weight * term.draw(n_draws, rng)
        return total


def mean_posterior(
    posteriors: Sequence[Posterior], weights: Sequence[float] | None = None
) -> Posterior:
    """Return the posterior of Σ w_t S_t for independent scores S_t.

    Its mean is Σ w μ and its standard deviation sqrt(Σ w² σ²), exactly. Its distribution is a
    numeric convolution if all distributions are computed; otherwise it is drawn.

    Parameters
    ----------
    posteriors : sequence of Posterior
        At least one, one per task: scores, or differences of scores; all of one scope.
    weights : sequence of float, optional
        Positive weights, scaled to sum to 1. Equal by default.

    Returns
    -------
    Posterior
        With all questions in `per_question`, task by task, and without `benchmark`.

    Examples
    --------
    Beta(2, 1) and Beta(1, 2), each of sd 1/√18, with equal weights:

    >>> from lm_eval_bayes.stats.outcomes import Outcomes
    >>> from lm_eval_bayes.stats.bayes_at_n import bayes_at_n
    >>> a, b = (bayes_at_n(Outcomes.from_matrix([[r]])) for r in (1, 0))
    >>> mean = mean_posterior([a, b])
    >>> mean.mu, round(mean.sigma, 6)  # 1/6
    (0.5, 0.166667)
    """
    relative = [1.0] * len(posteriors) if weights is None else list(weights)
    total = sum(relative)
    weighted = [(w / total, post) for w, post in zip(relative, posteriors, strict=True)]
    bounds = (
        float(sum(w * post.bounds[0] for w, post in weighted)),
        float(sum(w * post.bounds[1] for w, post in weighted)),
    )
    sizes = np.array([post.per_question.mu.size for post in posteriors], dtype=np.float64)
    n_trials = [post.n_trials for post in posteriors if post.n_trials is not None]
    ranges = [post.trials_range for post in posteriors if post.trials_range is not None]
    sample_sizes = [post.ess for post in posteriors if post.ess is not None]
    first = posteriors[0]
    return Posterior(
        quantity=f"mean of {first.quantity}",
        mu=float(np.clip(sum(w * post.mu for w, post in weighted), *bounds)),
        sigma=float(np.sqrt(sum((w * post.sigma) ** 2 for w, post in weighted))),
        per_question=PerQuestion(
            read_only(np.concatenate([post.per_question.mu for post in posteriors]), np.float64),
            read_only(np.concatenate([post.per_question.sigma for post in posteriors]), np.float64),
        ),
        bounds=bounds,
        prior=first.prior,
        distribution=_sum_distribution(weighted),
        scope=first.scope,
        level=first.level,
        method=first.method,
        n_trials=float(sizes @ n_trials / sizes.sum())
        if len(n_trials) == len(posteriors)
        else None,
        trials_range=(min(low for low, _ in ranges), max(high for _, high in ranges))
        if len(ranges) == len(posteriors)
        else None,
        ess=min(sample_sizes) if sample_sizes else None,
        seed=next((post.seed for post in posteriors if post.seed is not None), None),
        note=joined_notes(post.note for post in posteriors),
    )


def _sum_distribution(weighted: Sequence[tuple[float, Posterior]]) -> Distribution:
    """Return the distribution of the weighted sum."""
    constant = float(sum(w * post.mu for w, post in weighted if post.sigma == 0.0))
    varying = [(w, post) for w, post in weighted if post.sigma > 0.0]
    if not varying or not all(post.distribution.computed for _, post in varying):
        terms, weights = (post.distribution for _, post in varying), (w for w, _ in varying)
        return WeightedSum(tuple(terms), tuple(weights), constant)
    weight, first = varying[0]
    mu, variance = constant + weight * first.mu, (weight * first.sigma) ** 2
    total = _scaled(first.distribution.quantiles, weight, constant)
    table = CdfTable(_MASSES, total(_MASSES))
    for weight, post in varying[1:]:
        mu, variance = mu + weight * post.mu, variance + (weight * post.sigma) ** 2
        # X + Y = X − (−Y)
        negated = _negated(_scaled(post.distribution.quantiles, weight, 0.0))
        table = difference_table(total, negated, mu, float(np.sqrt(variance)))
        total = table.quantile
    return TabulatedDistribution(table, mu, float(np.sqrt(variance)))


def _scaled(quantile: Quantile, scale: float, shift: float) -> Quantile:
    return lambda u: shift + scale * quantile(u)


def _negated(quantile: Quantile) -> Quantile:
    return lambda u: -quantile(1.0 - u)
