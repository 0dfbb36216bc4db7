"""Distributions of a score: the one interface that intervals, comparisons and rankings use.

The score is s̄ = (1/M) Σ_α s_α. Every distribution can be drawn from. Where each s_α is a rising
function of one Beta variable (two distinct weights, and the whole pass family) its quantiles
are computed as well; where it is a weighted Dirichlet vector it is represented by draws.

The quantiles, the distribution function and the draws of Betas and Dirichlets, for many questions
at once, are here as well.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from functools import cached_property
from typing import ClassVar, NamedTuple

import numpy as np
from scipy import special

from lm_eval_bayes.stats.arrays import FloatArray


class Moments(NamedTuple):
    """Mean and standard deviation."""

    mean: float
    sd: float


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

    #: Mean and standard deviation, of distributions that are built with them.
    mean: float
    sd: float

    #: Whether :meth:`quantiles` and :meth:`cdf` are computed; if not, they are those of `draws`.
    computed: ClassVar[bool] = False
    #: The seed and the number of these draws.
    seed: int
    n_draws: int = 20_000

    def moments(self) -> Moments:
        """Return the mean and the standard deviation of the score."""
        return Moments(self.mean, self.sd)

    @abstractmethod
    def draw(self, n_draws: int, rng: np.random.Generator) -> FloatArray:
        """Draw the score `n_draws` times, shape (n_draws,)."""

    @cached_property
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
class CdfTable:
    """A distribution function, tabulated; linear between its points.

    Parameters
    ----------
    probability, score : array, shape (L,)
        Points of the distribution function, both non-decreasing; probability runs from 0 to 1.
    """

    probability: FloatArray
    score: FloatArray

    def quantile(self, masses: FloatArray) -> FloatArray:
        """Return the scores below which the masses lie."""
        return np.interp(masses, self.probability, self.score)

    def cdf(self, scores: FloatArray) -> FloatArray:
        """Return the masses at or below the scores."""
        return np.interp(scores, self.score, self.probability, left=0.0, right=1.0)

    def clipped(self, low: float, high: float) -> CdfTable:
        """Return the table with its scores clipped to [low, high]."""
        return CdfTable(self.probability, np.clip(self.score, low, high))

    def scaled(self, low: float, high: float) -> CdfTable:
        """Return the table of low + (high − low)·score."""
        return CdfTable(self.probability, low + (high - low) * self.score)


class FromTable(Distribution):
    """A distribution whose numbers come from its table."""

    computed: ClassVar[bool] = True

    table: CdfTable

    def quantiles(self, masses: FloatArray) -> FloatArray:
        """Return the scores below which the masses lie."""
        return self.table.quantile(masses)

    def cdf(self, scores: FloatArray) -> FloatArray:
        """Return the masses at or below the scores."""
        return self.table.cdf(scores)

    def draw(self, n_draws: int, rng: np.random.Generator) -> FloatArray:
        """Draw the score `n_draws` times, shape (n_draws,)."""
        return self.table.quantile(rng.random(n_draws))


@dataclass(frozen=True, eq=False)
class TabulatedDistribution(FromTable):
    """A distribution given by its tabulated distribution function.

    Parameters
    ----------
    table : CdfTable
        On the scale of the score.
    mean, sd : float
        Exact mean and standard deviation.
    """

    table: CdfTable
    mean: float
    sd: float


def logit_table(axis: FloatArray, density: FloatArray) -> tuple[float, float, CdfTable]:
    """Return mean, sd and distribution function of a probability from the density of its logit.

    Parameters
    ----------
    axis, density : array, shape (Y,)
        The density at even steps of the logit, smooth, and negligible at both ends.
    """
    probability = special.expit(axis)
    weight = density * (axis[1] - axis[0])
    mean = float(weight @ probability)
    sd = float(np.sqrt(weight @ (probability - mean) ** 2))
    finer, below = cdf_from_density(axis, density)
    return mean, sd, CdfTable(below, np.asarray(special.expit(finer)))


def cdf_from_density(axis: FloatArray, density: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Integrate a density on an even axis: a finer axis, and the distribution function there."""
    from scipy.interpolate import CubicSpline  # takes long to import

    finer = np.linspace(axis[0], axis[-1], max(16 * axis.size, 16_000))
    below = CubicSpline(axis, density).antiderivative()(finer)
    return finer, np.maximum.accumulate(np.clip(below / below[-1], 0.0, 1.0))


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


def beta_cdf(a: FloatArray, b: FloatArray, x: FloatArray, error: float) -> FloatArray:
    """Return the distribution functions of Beta(a, b).

    Where b is large compared with a, a gamma approximates the Beta, which takes half the time.

    Parameters
    ----------
    a, b : array, shape (G,)
        Parameters, above 0.
    x : array, shape (G, L) or (1, L)
        Points in [0, 1].
    error : float
        Tolerance of the result, above 0; the bound is met from 1e-9 to 1e-4.

    Returns
    -------
    array, shape (G, L)

    Examples
    --------
    >>> found = beta_cdf(np.array([1.0]), np.array([3.0]), np.array([[0.5]]), 1e-6)
    >>> round(float(found[0, 0]), 6)
    0.875
    """
    x = np.broadcast_to(x, (a.size, x.shape[1]))
    # an empirical bound of the expansion's first neglected term
    neglected = a * (1.0 + a) ** 3 * (1.0 + a / 20.0) ** 2
    gamma = neglected <= 2.5 * error * (b + 0.5 * (a - 1.0)) ** 4
    below = np.empty(x.shape)
    below[gamma] = _as_gamma(a[gamma, None], b[gamma, None], x[gamma])
    rest = ~gamma
    below[rest] = special.betainc(a[rest, None], b[rest, None], x[rest])
    return below


def _as_gamma(a: FloatArray, b: FloatArray, x: FloatArray) -> FloatArray:
    """Return a Beta's distribution function by Wise's expansion, to its second term.

    −log(1 − x) has the density of a gamma of shape a and rate T times (sinh(v/2) / (v/2))^(a−1),
    of which 1 + (a − 1) v² / 24 is kept.
    """
    rate = b + 0.5 * (a - 1.0)
    y = np.clip(-rate * np.log1p(-np.minimum(x, 1.0 - 1e-16)), 1e-307, 1e300)
    density = np.exp(a * np.log(y) - y - special.gammaln(a + 1.0))
    bend = (a - 1.0) * a * (a + 1.0) / (24.0 * rate**2)
    part = special.gammainc(a, y) - bend / (1.0 + bend) * density * (1.0 + y / (a + 1.0))
    return np.where(x > 0.0, np.clip(part, 0.0, 1.0), 0.0)


def draw_beta(
    a: FloatArray, b: FloatArray, size: tuple[int, ...], rng: np.random.Generator
) -> tuple[FloatArray, FloatArray]:
    """Draw p ~ Beta(a, b) and q = 1 − p, each with its own digits."""
    x, y = rng.standard_gamma(a, size=size), rng.standard_gamma(b, size=size)
    total = x + y
    # With both parameters near 0 both gammas can underflow: then the draw is one of two atoms.
    lost = total == 0.0
    if lost.any():
        top = rng.random(size) < a / (a + b)
        x, y = np.where(lost, top, x), np.where(lost, ~top, y)
        total = x + y
    return x / total, y / total


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
