"""The posterior of a mean of independent scores, as of several tasks."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from lm_eval_bayes.errors import InvalidInputError
from lm_eval_bayes.stats.comparison.difference import (
    MASSES,
    Quantile,
    difference_table,
    joined_notes,
)
from lm_eval_bayes.stats.distributions.base import (
    CdfTable,
    Distribution,
    Moments,
    TabulatedDistribution,
)
from lm_eval_bayes.stats.results import PerQuestion, Posterior
from lm_eval_bayes.stats.validation import FloatArray, as_real, read_only

#: From no mass to all of it.
_MASSES = np.concatenate([[0.0], MASSES, [1.0]])


@dataclass(frozen=True, eq=False)
class WeightedSum(Distribution):
    """The distribution of shift + Σ w_t S_t for independent S_t, where it has to be drawn."""

    terms: tuple[Distribution, ...]
    weights: tuple[float, ...]
    shift: float = 0.0

    def moments(self) -> Moments:
        """Return the exact mean and standard deviation."""
        moments = [term.moments() for term in self.terms]
        pairs = list(zip(self.weights, moments, strict=True))
        mean = self.shift + sum(weight * each.mean for weight, each in pairs)
        return Moments(mean, float(np.sqrt(sum((weight * each.sd) ** 2 for weight, each in pairs))))

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

    Its mean is Σ w μ and its standard deviation sqrt(Σ w² σ²), exactly. Its distribution is
    computed by convolution where all of theirs are computed, and drawn otherwise.

    Parameters
    ----------
    posteriors : sequence of Posterior
        One a task: scores, or differences of scores; of one scope.
    weights : sequence of float, optional
        Above 0; left out, the same for all. They are scaled to sum to 1.

    Returns
    -------
    Posterior
        With all questions in `per_question`, task by task. It carries no `benchmark`.

    Raises
    ------
    InvalidInputError
        If there is none, scopes differ, or the weights are no such numbers.

    Examples
    --------
    Beta(2, 1) and Beta(1, 2), each of sd 1/√18, in equal parts:

    >>> from lm_eval_bayes.stats.outcomes import Outcomes
    >>> from lm_eval_bayes.stats.bayes_at_n import bayes_at_n
    >>> a, b = (bayes_at_n(Outcomes.from_matrix([[r]])) for r in (1, 0))
    >>> mean = mean_posterior([a, b])
    >>> mean.mu, round(mean.sigma, 6)  # 1/6
    (0.5, 0.166667)
    """
    if not posteriors or len({one.scope for one in posteriors}) > 1:
        rule = "be at least one posterior, all of one scope"
        raise InvalidInputError.of("posteriors", rule, [one.scope for one in posteriors])
    shares = _shares(weights, len(posteriors))
    pairs = list(zip(shares, posteriors, strict=True))
    bounds = (
        float(sum(w * one.bounds[0] for w, one in pairs)),
        float(sum(w * one.bounds[1] for w, one in pairs)),
    )
    trials = [one.n_trials for one in posteriors]
    ranges = [one.trials_range for one in posteriors]
    sizes = np.array([one.per_question.mu.size for one in posteriors], dtype=np.float64)
    known = [n for n in trials if n is not None]
    fewest = [one for one in ranges if one is not None]
    effective = [one.ess for one in posteriors if one.ess is not None]
    first = posteriors[0]
    return Posterior(
        quantity=f"mean of {first.quantity}",
        mu=float(np.clip(sum(w * one.mu for w, one in pairs), *bounds)),
        sigma=float(np.sqrt(sum((w * one.sigma) ** 2 for w, one in pairs))),
        per_question=PerQuestion(
            read_only(np.concatenate([one.per_question.mu for one in posteriors]), np.float64),
            read_only(np.concatenate([one.per_question.sigma for one in posteriors]), np.float64),
        ),
        bounds=bounds,
        prior=first.prior,
        distribution=_sum_distribution(pairs),
        scope=first.scope,
        level=first.level,
        method=first.method,
        n_trials=float(sizes @ known / sizes.sum()) if len(known) == len(trials) else None,
        trials_range=(min(low for low, _ in fewest), max(high for _, high in fewest))
        if len(fewest) == len(ranges)
        else None,
        ess=min(effective) if effective else None,
        seed=next((one.seed for one in posteriors if one.seed is not None), None),
        note=joined_notes(one.note for one in posteriors),
    )


def _shares(weights: Sequence[float] | None, n: int) -> list[float]:
    """Return weights that sum to 1."""
    if weights is None:
        return [1.0 / n] * n
    numbers = [as_real(one) for one in weights]
    found = [one for one in numbers if one is not None and 0.0 < one < np.inf]
    if len(found) < len(numbers) or len(numbers) != n:
        raise InvalidInputError.of("weights", f"be {n} finite numbers above 0", list(weights))
    total = sum(found)
    return [one / total for one in found]


def _sum_distribution(pairs: Sequence[tuple[float, Posterior]]) -> Distribution:
    """Return the distribution of the weighted sum."""
    certain = float(sum(w * each.mu for w, each in pairs if each.sigma == 0.0))
    varying = [(w, each) for w, each in pairs if each.sigma > 0.0]
    if not varying or not all(each.distribution.computed for _, each in varying):
        terms, shares = (tuple(each.distribution for _, each in varying), [w for w, _ in varying])
        return WeightedSum(terms, tuple(shares), certain)
    weight, first = varying[0]
    mu, variance = certain + weight * first.mu, (weight * first.sigma) ** 2
    total = _stretched(first.distribution.quantiles, weight, certain)
    table = CdfTable(_MASSES, total(_MASSES))
    for weight, each in varying[1:]:
        mu, variance = mu + weight * each.mu, variance + (weight * each.sigma) ** 2
        # a sum is the difference from the other's mirror image
        mirrored = _mirrored(_stretched(each.distribution.quantiles, weight, 0.0))
        table = difference_table(total, mirrored, mu, float(np.sqrt(variance)))
        total = table.quantile
    return TabulatedDistribution(table, mu, float(np.sqrt(variance)))


def _stretched(quantile: Quantile, scale: float, shift: float) -> Quantile:
    return lambda u: shift + scale * quantile(u)


def _mirrored(quantile: Quantile) -> Quantile:
    return lambda u: -quantile(1.0 - u)
