"""Quantiles of weighted values, and weighted averages of distributions of the same score."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from scipy import special

from lm_eval_bayes.stats.arrays import FloatArray, IntArray
from lm_eval_bayes.stats.distributions.base import CdfTable, Distribution, FromTable, QuestionMeans

#: Masses at which every component gives a point of the table.
_MASSES = special.ndtr(np.linspace(-6.5, 6.5, 521))


def weighted_quantiles(values: FloatArray, weight: FloatArray, masses: FloatArray) -> FloatArray:
    """Return quantiles of weighted values, half of each weight being below its value.

    Parameters
    ----------
    values, weight : array, shape (K,)
        The values in any order, and their weights, with any positive sum.
    masses : array
        Probabilities.

    Examples
    --------
    >>> values, weight = np.array([3.0, 1.0, 2.0]), np.array([1.0, 1.0, 2.0])
    >>> weighted_quantiles(values, weight, np.array([0.5, 0.875])).tolist()
    [2.0, 3.0]
    """
    order = np.argsort(values)
    weight = weight[order]
    below = np.cumsum(weight)
    return np.interp(masses, (below - 0.5 * weight) / below[-1], values[order])


def weighted_distribution(
    components: Sequence[Distribution], weight: FloatArray, mean: float, sd: float
) -> Distribution:
    """Return Σ_j weight_j component_j.

    Parameters
    ----------
    components : sequence of Distribution
        Of the same score.
    weight : array, shape (J,)
        Their probabilities, sum 1.
    mean, sd : float
        Mean and standard deviation of the result.

    Returns
    -------
    Distribution
        Computed where all components are.

    Examples
    --------
    >>> from lm_eval_bayes.stats.distributions.base import TabulatedDistribution
    >>> halves = [CdfTable(np.array([0.0, 1.0]), np.array([x, x + 0.5])) for x in (0.0, 0.5)]
    >>> sd = 0.5 / 12**0.5
    >>> parts = [TabulatedDistribution(table, table.score.mean(), sd) for table in halves]
    >>> unit = weighted_distribution(parts, np.array([0.5, 0.5]), 0.5, 1 / 12**0.5)
    >>> unit.quantiles(np.array([0.25, 0.9])).round(6).tolist()
    [0.25, 0.9]
    """
    computed = all(component.computed for component in components)
    kind = _TabulatedAverage if computed else _WeightedAverage
    return kind(tuple(components), weight, mean, sd)


@dataclass(frozen=True, eq=False)
class _WeightedAverage(Distribution):
    """A weighted average of distributions, by draws."""

    components: tuple[Distribution, ...]
    weight: FloatArray
    mean: float
    sd: float

    def draw(self, n_draws: int, rng: np.random.Generator) -> FloatArray:
        """Draw the score `n_draws` times, shape (n_draws,)."""
        sizes = self._sizes(n_draws, rng)
        parts = [part.draw(n, rng) for part, n in zip(self.components, sizes, strict=True) if n]
        return rng.permutation(np.concatenate(parts))

    def question_means(self, mu: FloatArray, sigma: FloatArray) -> QuestionMeans | None:
        """Return the averages of the components' means and noise; None where one has none."""
        parts = [component.question_means(mu, sigma) for component in self.components]
        available = [part for part in parts if part is not None]
        if len(available) < len(parts):
            return None
        average = self.weight @ np.stack([part.average for part in available])
        noise = self.weight @ np.stack([part.noise for part in available])
        return QuestionMeans(np.asarray(average), np.asarray(noise))

    def _sizes(self, n_draws: int, rng: np.random.Generator) -> IntArray:
        """Return the number of draws of every component, each within 1 of its expectation."""
        ends = np.floor(np.cumsum(self.weight) * n_draws + rng.random()).astype(np.int64)
        ends[-1] = n_draws
        return np.diff(np.minimum(ends, n_draws), prepend=0)


class _TabulatedAverage(FromTable, _WeightedAverage):
    """A weighted average of distributions whose distribution functions are computed."""

    @cached_property
    def table(self) -> CdfTable:  # type: ignore[override]  # an attribute, computed once
        """The average distribution function, at quantiles of all components."""
        points = [component.quantiles(_MASSES) for component in self.components]
        score = np.unique(np.concatenate(points))
        below = self.weight @ np.stack([component.cdf(score) for component in self.components])
        below = np.maximum.accumulate(np.clip(below, 0.0, 1.0))
        # the mass beyond either end is put on it
        below[-1] = 1.0
        return CdfTable(np.append(0.0, below), np.append(score[0], score))
