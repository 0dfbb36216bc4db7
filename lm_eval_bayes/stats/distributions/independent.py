"""Questions with independent posteriors: Betas where two weights are distinct, else Dirichlets."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import ClassVar

import numpy as np
from scipy import special

from lm_eval_bayes.stats.distributions.base import (
    CategoryPosterior,
    CdfTable,
    Distribution,
    Moments,
    mean_in_blocks,
)
from lm_eval_bayes.stats.distributions.beta import (
    beta_quantile,
    draw_beta,
    draw_dirichlet_scores,
)
from lm_eval_bayes.stats.distributions.convolution import mean_table
from lm_eval_bayes.stats.distributions.success_curves import Curve, Identity
from lm_eval_bayes.stats.validation import FloatArray, protect


@dataclass(frozen=True, eq=False)
class IndependentBetas(Distribution):
    """s_α = low + (high − low)·curve(p_α) with p_α ~ Beta(a_α, b_α), low <= high.

    Parameters
    ----------
    a, b : array, shape (M,)
        Beta parameters of the M questions.
    curve : Curve
        The score as a function of p_α.
    low, high : float
        The scores at curve values 0 and 1.
    mean, sd : float
        Exact mean and standard deviation of the benchmark's score.
    """

    computed: ClassVar[bool] = True

    a: FloatArray
    b: FloatArray
    curve: Curve
    low: float
    high: float
    mean: float
    sd: float

    def __post_init__(self) -> None:
        protect(self)

    def moments(self) -> Moments:
        """Return the exact mean and standard deviation."""
        return Moments(self.mean, self.sd)

    @cached_property
    def table(self) -> CdfTable:
        """The distribution function of the score for M >= 2 questions, by convolution."""
        span = self.high - self.low
        unit = mean_table(self.a, self.b, self.curve, (self.mean - self.low) / span, self.sd / span)
        return unit.scaled(self.low, self.high)

    def quantiles(self, masses: FloatArray) -> FloatArray:
        """Return the scores below which the masses lie."""
        if self.sd == 0.0:
            return np.full(np.shape(masses), self.mean)
        if self.a.size > 1:
            return self.table.quantile(masses)
        a, b = self.a[0], self.b[0]
        score = self.curve.value(beta_quantile(a, b, masses), beta_quantile(b, a, 1.0 - masses))
        return np.asarray(self.low + (self.high - self.low) * score)

    def cdf(self, scores: FloatArray) -> FloatArray:
        """Return the masses at or below the scores."""
        if self.sd == 0.0:
            return np.where(np.asarray(scores) >= self.mean, 1.0, 0.0)
        if self.a.size > 1:
            return self.table.cdf(scores)
        unit = (np.asarray(scores, dtype=np.float64) - self.low) / (self.high - self.low)
        p, _ = self.curve.inverse(np.clip(unit, 0.0, self.curve.top))
        return np.asarray(special.betainc(self.a[0], self.b[0], p))

    def draw(self, n_draws: int, rng: np.random.Generator) -> FloatArray:
        """Draw the benchmark's score `n_draws` times, shape (n_draws,)."""
        return mean_in_blocks(self, self.a.size, n_draws, rng)

    def draw_questions(self, n_draws: int, rng: np.random.Generator) -> FloatArray:
        """Draw the scores of all questions, shape (n_draws, M)."""
        p, q = draw_beta(self.a, self.b, (n_draws, self.a.size), rng)
        return np.asarray(self.low + (self.high - self.low) * self.curve.value(p, q))

    def category_posterior(
        self, n_draws: int, rng: np.random.Generator
    ) -> CategoryPosterior | None:
        """Return the Beta posteriors of Bayes@N; None for the pass family."""
        if not isinstance(self.curve, Identity):
            return None
        counts, weights = np.stack([self.b, self.a], axis=1), np.array([self.low, self.high])
        return CategoryPosterior(counts, np.zeros((n_draws, 2)), None, weights)


@dataclass(frozen=True, eq=False)
class IndependentDirichlets(Distribution):
    """s_α = Σ_k w_k θ_αk with θ_α ~ Dirichlet(ν_α).

    Parameters
    ----------
    nu : array, shape (M, C+1)
        Dirichlet parameters above 0.
    weights : array, shape (C+1,)
        The score of each category.
    mean, sd : float
        Exact mean and standard deviation of the benchmark's score.
    """

    nu: FloatArray
    weights: FloatArray
    mean: float
    sd: float

    def __post_init__(self) -> None:
        protect(self)

    def moments(self) -> Moments:
        """Return the exact mean and standard deviation."""
        return Moments(self.mean, self.sd)

    def draw(self, n_draws: int, rng: np.random.Generator) -> FloatArray:
        """Draw the benchmark's score `n_draws` times, shape (n_draws,)."""
        return mean_in_blocks(self, self.nu.size, n_draws, rng)

    def draw_questions(self, n_draws: int, rng: np.random.Generator) -> FloatArray:
        """Draw the scores of all questions, shape (n_draws, M)."""
        nu = np.broadcast_to(self.nu, (n_draws, *self.nu.shape))
        return draw_dirichlet_scores(nu, self.weights, rng)

    def category_posterior(
        self, n_draws: int, rng: np.random.Generator
    ) -> CategoryPosterior | None:
        """Return the Dirichlet posteriors."""
        return CategoryPosterior(
            self.nu, np.zeros((n_draws, self.weights.size)), None, self.weights
        )
