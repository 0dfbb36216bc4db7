"""Distributions of a score: the one interface that intervals, comparisons and rankings use.

The score is s̄ = (1/M) Σ_α s_α. Every distribution can be drawn from. Of some the quantiles are
computed; others are represented by draws.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import NamedTuple

import numpy as np
from scipy import special

from lm_eval_bayes.stats.arrays import FloatArray

#: From this number of questions on, their mean score is taken as a Beta variable.
MANY_QUESTIONS = 20
#: Sums of a Beta's parameters above which it is taken as normal.
_LARGEST = 1e12
_SMALLEST = 1e-300


class QuestionMeans(NamedTuple):
    """The mean scores of M questions and the sampling variance of each, both of shape (M,)."""

    average: FloatArray
    noise: FloatArray


class CategoryDraws(NamedTuple):
    """Joint draws of the category probabilities θ_α of all questions, D of M questions.

    `theta` has shape (D, M, K), and `weights`, shape (K,), are the scores of the categories.
    """

    theta: FloatArray
    weights: FloatArray


class Distribution(ABC):
    """The distribution of a benchmark's score."""

    #: Exact mean and standard deviation of the score.
    mean: float
    sd: float

    #: Whether :meth:`quantiles` and :meth:`cdf` are computed; if not, they are those of `draws`.
    computed: bool = False
    #: The seed and the number of these draws.
    seed: int
    n_draws: int = 20_000

    @abstractmethod
    def draw(self, n_draws: int, rng: np.random.Generator) -> FloatArray:
        """Draw the score `n_draws` times, shape (n_draws,)."""

    @property
    def draws(self) -> FloatArray:
        """Draws of the score, shape (n_draws,), such that consecutive parts are independent."""
        return self.draw(self.n_draws, np.random.default_rng([self.seed, 1]))

    @cached_property
    def _sorted(self) -> FloatArray:
        return np.sort(self.draws)

    def quantiles(self, masses: FloatArray) -> FloatArray:
        """Return the scores below which the masses lie, an array of any shape in [0, 1]."""
        return np.asarray(np.quantile(self._sorted, masses))

    def cdf(self, scores: FloatArray) -> FloatArray:
        """Return the masses below the scores, an array of any shape; half of a mass at a score."""
        first = np.searchsorted(self._sorted, scores, side="left")
        last = np.searchsorted(self._sorted, scores, side="right")
        return np.asarray((first + last) / (2.0 * self._sorted.size))

    def question_means(self, mu: FloatArray, sigma: FloatArray) -> QuestionMeans | None:
        """Return every question's mean score over its trials, and its sampling variance.

        The variance is that of one trial's score, expected under the posterior (so it is above
        0 where all trials agree), over the number of trials. A question without trials is
        represented by its posterior.

        Parameters
        ----------
        mu, sigma : array, shape (M,)
            Posterior mean and sd of every question's score.

        Returns
        -------
        QuestionMeans or None
            None where the prior was not learned, or the distribution is of a population's mean.
        """
        return None

    def draw_categories(self, n_draws: int, rng: np.random.Generator) -> CategoryDraws | None:
        """Draw all questions' category probabilities jointly.

        Returns
        -------
        CategoryDraws or None
            None where the distribution does not determine how a further trial would change it.
        """
        return None


@dataclass(frozen=True, eq=False)
class TabulatedDistribution(Distribution):
    """A distribution given by its tabulated distribution function, linear between its points.

    Parameters
    ----------
    probability, score : array, shape (L,)
        Points of the distribution function, both non-decreasing; probability runs from 0 to 1.
    mean, sd : float
        Exact mean and standard deviation.
    """

    computed = True

    probability: FloatArray
    score: FloatArray
    mean: float
    sd: float

    def quantiles(self, masses: FloatArray) -> FloatArray:
        """Return the scores below which the masses lie."""
        return np.interp(masses, self.probability, self.score)

    def cdf(self, scores: FloatArray) -> FloatArray:
        """Return the masses at or below the scores."""
        return np.interp(scores, self.score, self.probability, left=0.0, right=1.0)

    def draw(self, n_draws: int, rng: np.random.Generator) -> FloatArray:
        """Draw the score `n_draws` times, shape (n_draws,)."""
        return self.quantiles(rng.random(n_draws))

    def scaled(self, low: float, high: float) -> TabulatedDistribution:
        """Return the distribution of low + (high − low)·score."""
        span = high - low
        score, mean = low + span * self.score, low + span * self.mean
        return TabulatedDistribution(self.probability, score, mean, span * self.sd)


@dataclass(frozen=True, eq=False)
class MatchedBeta(Distribution):
    """The Beta distribution on `bounds` of this mean and sd.

    No variance exceeds that of two atoms at the bounds, and the Beta distributions that come near
    it approach these; from there on the distribution is the atoms. An sd too small for a Beta's
    parameters gives a normal distribution, clipped.
    """

    computed = True

    mean: float
    sd: float
    bounds: tuple[float, float]
    seed: int = 0

    def _shape(self) -> tuple[float, float]:
        """Return the mean on [0, 1] and the sum of the parameters."""
        low, high = self.bounds
        mean, variance = (self.mean - low) / (high - low), (self.sd / (high - low)) ** 2
        return mean, mean * (1.0 - mean) / max(variance, _SMALLEST) - 1.0

    def quantiles(self, masses: FloatArray) -> FloatArray:
        """Return the scores below which the masses lie."""
        if not self.computed:
            return super().quantiles(masses)
        masses, (low, high) = np.asarray(masses, dtype=np.float64), self.bounds
        if self.sd == 0.0:
            return np.full(masses.shape, self.mean)
        mean, total = self._shape()
        if total <= 0.0:
            return np.where(masses >= 1.0 - mean, high, low)
        if total > _LARGEST:
            return np.asarray(np.clip(self.mean + self.sd * special.ndtri(masses), low, high))
        a, b = mean * total, (1.0 - mean) * total
        below, above = beta_quantile(a, b, masses), beta_quantile(b, a, 1.0 - masses)
        # the other tail has more digits above one half
        return np.asarray(low + (high - low) * np.where(below > 0.5, 1.0 - above, below))

    def cdf(self, scores: FloatArray) -> FloatArray:
        """Return the masses at or below the scores."""
        if not self.computed:
            return super().cdf(scores)
        scores, (low, high) = np.asarray(scores, dtype=np.float64), self.bounds
        if self.sd == 0.0:
            return np.where(scores >= self.mean, 1.0, 0.0)
        mean, total = self._shape()
        if total <= 0.0:
            return np.where(scores < low, 0.0, np.where(scores < high, 1.0 - mean, 1.0))
        if total > _LARGEST:
            return np.asarray(special.ndtr((scores - self.mean) / self.sd))
        unit = np.clip((scores - low) / (high - low), 0.0, 1.0)
        return np.asarray(special.betainc(mean * total, (1.0 - mean) * total, unit))

    def draw(self, n_draws: int, rng: np.random.Generator) -> FloatArray:
        """Draw the score `n_draws` times, shape (n_draws,)."""
        mean, total = self._shape() if self.sd else (self.mean, 0.0)
        if not 0.0 < total <= _LARGEST:
            return self.quantiles(rng.random(n_draws))
        low, high = self.bounds
        drawn = rng.beta(mean * total, (1.0 - mean) * total, n_draws)
        return np.asarray(low + (high - low) * drawn)


@dataclass(frozen=True, eq=False)
class IndependentDirichlets(MatchedBeta):
    """The distribution of the mean of Σ_k w_k θ_αk with θ_α ~ Dirichlet(ν_α).

    It is a Beta distribution of its moments where questions are many, or one of two categories,
    and represented by draws otherwise.

    Parameters
    ----------
    nu : array, shape (M, K)
        Dirichlet parameters above 0.
    weights : array, shape (K,)
        The distinct scores of the categories.
    """

    nu: FloatArray = field(default_factory=lambda: np.ones((1, 2)))
    weights: FloatArray = field(default_factory=lambda: np.arange(2.0))

    def __post_init__(self) -> None:
        n_questions, n_categories = self.nu.shape
        is_beta = n_questions >= MANY_QUESTIONS or (n_questions == 1 and n_categories == 2)
        object.__setattr__(self, "computed", is_beta or self.sd == 0.0)

    def draw(self, n_draws: int, rng: np.random.Generator) -> FloatArray:
        """Draw the score `n_draws` times, shape (n_draws,)."""
        if self.computed:
            return super().draw(n_draws, rng)
        # the order of the questions does not matter
        in_order = replace(self, nu=self.nu[np.lexsort(self.nu.T)])
        theta, weights = in_order.draw_categories(n_draws, rng)
        return np.asarray((theta @ weights).mean(axis=1))

    def draw_categories(self, n_draws: int, rng: np.random.Generator) -> CategoryDraws:
        """Draw the Dirichlet posteriors."""
        nu = np.broadcast_to(self.nu, (n_draws, *self.nu.shape))
        return CategoryDraws(draw_dirichlet(nu, rng), self.weights)


def of_logit(axis: FloatArray, density: FloatArray) -> TabulatedDistribution:
    """Return the distribution of a probability from the density of its logit.

    Parameters
    ----------
    axis, density : array, shape (Y,)
        The density at even steps of the logit, smooth, and negligible at both ends.
    """
    from scipy.interpolate import CubicSpline  # takes long to import

    probability = special.expit(axis)
    weight = density * (axis[1] - axis[0])
    mean = float(weight @ probability)
    sd = float(np.sqrt(weight @ (probability - mean) ** 2))
    finer = np.linspace(axis[0], axis[-1], max(16 * axis.size, 16_000))
    below = CubicSpline(axis, density).antiderivative()(finer)
    below = np.maximum.accumulate(np.clip(below / below[-1], 0.0, 1.0))
    return TabulatedDistribution(below, np.asarray(special.expit(finer)), mean, sd)


def beta_quantile(
    a: FloatArray | float, b: FloatArray | float, u: FloatArray | float
) -> FloatArray:
    """Return the Beta(a, b) quantile at u, also where scipy's inverse fails.

    With b far below 1 a quantile can be closer to 1 than a float can represent, and the inverse
    then returns NaN; it is computed from the other tail.
    """
    p = np.asarray(special.betaincinv(a, b, u), dtype=np.float64)
    if np.isnan(p).any():
        other = 1.0 - special.betaincinv(b, a, 1.0 - u)
        p = np.where(np.isnan(p), other, p)
    return p


def draw_dirichlet(alpha: FloatArray, rng: np.random.Generator) -> FloatArray:
    """Draw from Dirichlet distributions, parameters along the last axis; they may be near 0."""
    gammas = rng.standard_gamma(alpha)
    total = gammas.sum(axis=-1, keepdims=True)
    # With parameters near 0 every gamma can underflow: then the draw is one atom.
    lost = total[..., 0] == 0.0
    if lost.any():
        share = np.cumsum(alpha[lost], axis=-1)
        atom = (rng.random(int(lost.sum()))[:, None] * share[:, -1:] > share).sum(axis=-1)
        gammas[lost] = np.eye(alpha.shape[-1])[atom]
        total[lost] = 1.0
    return np.asarray(gammas / total)


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
