"""Distributions of a score: the one interface that intervals, comparisons and rankings use.

The score is s̄ = (1/M) Σ_α s_α. Every distribution can be drawn from. Where each s_α is a rising
function of one Beta variable (two distinct weights, and the whole pass family) its quantiles
are computed as well; where it is a weighted Dirichlet vector it is represented by draws.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import ClassVar, NamedTuple

import numpy as np

from lm_eval_bayes.errors import InvalidInputError
from lm_eval_bayes.stats.validation import FloatArray, protect

#: Numbers drawn at a time, which bounds the memory of a draw.
BLOCK = 2_000_000


class Moments(NamedTuple):
    """Mean and standard deviation."""

    mean: float
    sd: float


class QuestionMeans(NamedTuple):
    """The mean scores of M questions and the sampling variance of each, both of shape (M,)."""

    average: FloatArray
    noise: FloatArray


class CategoryPosterior(NamedTuple):
    """θ_α ~ Dirichlet(counts_α + prior_d), the questions' category probabilities in D draws.

    `counts` has shape (M, K): the trials, and under a fixed prior its pseudo-counts. `prior` has
    shape (D, K): what each draw of a learned prior adds, s·m, and 0 for a fixed one.
    `strength`, shape (D,), is the s of each draw; None where the prior is fixed. `weights`,
    shape (K,), are the scores of the categories.
    """

    counts: FloatArray
    prior: FloatArray
    strength: FloatArray | None
    weights: FloatArray


class Distribution(ABC):
    """The distribution of a benchmark's score."""

    #: Whether :meth:`quantiles` and :meth:`cdf` are computed; if not, there are only draws.
    computed: ClassVar[bool] = False

    @abstractmethod
    def moments(self) -> Moments:
        """Return the mean and the standard deviation of the score."""

    @abstractmethod
    def draw(self, n_draws: int, rng: np.random.Generator) -> FloatArray:
        """Draw the score `n_draws` times, shape (n_draws,)."""

    def draw_questions(self, n_draws: int, rng: np.random.Generator) -> FloatArray:
        """Draw the scores of all questions jointly, shape (n_draws, M).

        Raises
        ------
        InvalidInputError
            If the distribution is of a population's mean, which has no single questions.
        """
        rule = 'be "benchmark" to draw single questions'
        raise InvalidInputError.of("scope", rule, "population")

    def quantiles(self, masses: FloatArray) -> FloatArray:
        """Return the scores below which the masses lie, an array of any shape in [0, 1].

        Raises
        ------
        NotImplementedError
            If the distribution is not `computed`.
        """
        raise NotImplementedError(f"{type(self).__name__} has draws only")

    def cdf(self, scores: FloatArray) -> FloatArray:
        """Return the masses at or below the scores, an array of any shape.

        Raises
        ------
        NotImplementedError
            If the distribution function is not computed.
        """
        raise NotImplementedError(f"{type(self).__name__} has draws only")

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

    def category_posterior(
        self, n_draws: int, rng: np.random.Generator
    ) -> CategoryPosterior | None:
        """Return the questions' Dirichlet posteriors in draws of the prior's parameters.

        Returns
        -------
        CategoryPosterior or None
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

    def __post_init__(self) -> None:
        protect(self)

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


@dataclass(frozen=True, eq=False)
class TabulatedDistribution(Distribution):
    """A distribution given by its tabulated distribution function.

    Parameters
    ----------
    table : CdfTable
        On the scale of the score.
    mean, sd : float
        Exact mean and standard deviation.
    """

    computed: ClassVar[bool] = True

    table: CdfTable
    mean: float
    sd: float

    def moments(self) -> Moments:
        """Return the exact mean and standard deviation."""
        return Moments(self.mean, self.sd)

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
class SampleDistribution(Distribution):
    """A distribution known by one set of draws, so that all its summaries use the same.

    Parameters
    ----------
    sample : array, shape (n,)
        The draws.
    """

    sample: FloatArray

    def moments(self) -> Moments:
        """Return the mean and the standard deviation of the draws."""
        return Moments(float(self.sample.mean()), float(self.sample.std()))

    def draw(self, n_draws: int, rng: np.random.Generator) -> FloatArray:
        """Return the draws, or as many resampled ones where another number is wanted."""
        return self.sample if n_draws == self.sample.size else rng.choice(self.sample, n_draws)


def mean_in_blocks(
    distribution: Distribution, per_draw: int, n_draws: int, rng: np.random.Generator
) -> FloatArray:
    """Average the questions draw by draw, never holding more than a block of numbers.

    Parameters
    ----------
    distribution : Distribution
        Whose questions are averaged.
    per_draw : int
        How many random numbers one draw takes.
    n_draws : int
        How many draws.
    rng : Generator
        The source of the draws.

    Returns
    -------
    array, shape (n_draws,)
    """
    means = np.empty(n_draws)
    block = max(1, BLOCK // per_draw)
    for start in range(0, n_draws, block):
        stop = min(n_draws, start + block)
        means[start:stop] = distribution.draw_questions(stop - start, rng).mean(axis=1)
    return means
