"""Laws of a prior learned across questions: mixtures over its hyperparameters."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import NoReturn

import numpy as np

from lm_eval_bayes.errors import InvalidInputError
from lm_eval_bayes.stats.distributions.beta_mixture import BetaMixture
from lm_eval_bayes.stats.distributions.cdf_table import Table
from lm_eval_bayes.stats.distributions.distributions import draw_beta, draw_dirichlet_scores
from lm_eval_bayes.stats.distributions.mixture_table import mixture_table
from lm_eval_bayes.stats.hierarchical.beta_binomial import hyper_posterior
from lm_eval_bayes.stats.validation import FloatArray, IntArray

# Numbers drawn at a time: few enough to stay near the processor.
_BLOCK = 100_000


@dataclass(frozen=True, eq=False)
class TabulatedLaw:
    """The law of a population's mean, given by its distribution function."""

    table: Table

    def draw(self, n_draws: int, rng: np.random.Generator) -> FloatArray:
        """Draw the score `n_draws` times, shape (n_draws,)."""
        return self.table.quantile(rng.random(n_draws))

    def draw_questions(self, n_draws: int, rng: np.random.Generator) -> NoReturn:
        """Refuse: a population's mean speaks of no question."""
        refuse_questions()


@dataclass(frozen=True, eq=False)
class BetaMixtureLaw:
    """p_α ~ Beta(x_α + s m, y_α + s (1 − m)) with (m, s) on a weighted grid; C = 1.

    Parameters
    ----------
    successes, failures : array, shape (M,)
        x_α and y_α, the trials of question α.
    low, high : float
        The scores of a wrong and of a right trial (low <= high).
    mixture : BetaMixture
        The distinct questions at every node of a fine grid.
    mu, sigma : float
        Mean and standard deviation of (1/M) Σ p_α.
    """

    successes: FloatArray
    failures: FloatArray
    low: float
    high: float
    mixture: BetaMixture
    mu: float
    sigma: float

    @cached_property
    def table(self) -> Table:
        """The distribution function of the benchmark's score, computed when first asked for."""
        mixture = self.mixture
        if mixture.x.size > 1:
            # one node costs as much as it has questions: a rough grid has to do
            grid = hyper_posterior(self.successes, self.failures, rough=True)
            mixture = BetaMixture.on_grid(mixture.x, mixture.y, mixture.times, grid)
        return mixture_table(mixture, self.mu, self.sigma).scaled(self.low, self.high)

    def draw(self, n_draws: int, rng: np.random.Generator) -> FloatArray:
        """Draw the benchmark's score `n_draws` times, shape (n_draws,)."""
        return self.table.quantile(rng.random(n_draws))

    def draw_questions(self, n_draws: int, rng: np.random.Generator) -> FloatArray:
        """Draw the scores of all questions jointly, shape (n_draws, M)."""
        # A sum over even nodes is exact as it is: spreading them over their cells would widen it.
        node = rng.choice(self.mixture.weight.size, size=n_draws, p=self.mixture.weight)
        s = self.mixture.s[node]
        a = self.successes + (s * self.mixture.m[node])[:, None]
        b = self.failures + (s * self.mixture.rest[node])[:, None]
        p, _ = draw_beta(a, b, a.shape, rng)
        return np.asarray(self.low + (self.high - self.low) * p)


@dataclass(frozen=True, eq=False)
class DirichletMixtureLaw:
    """θ_α ~ Dirichlet(n_α + s m) with (m, s) from weighted particles; C > 1.

    Parameters
    ----------
    counts : array, shape (M, C+1)
        The trials of each question.
    alpha : array, shape (P, C+1)
        s·m of each particle.
    weight : array, shape (P,)
        Posterior probability of each particle, sum 1.
    weights : array, shape (C+1,)
        The score of each category.
    """

    counts: FloatArray
    alpha: FloatArray
    weight: FloatArray
    weights: FloatArray

    def draw(self, n_draws: int, rng: np.random.Generator) -> FloatArray:
        """Draw the benchmark's score `n_draws` times, shape (n_draws,)."""
        # in an order of their own, the questions' order changes nothing
        counts = self.counts[np.lexsort(self.counts.T)]
        alpha = self.alpha[draw_particles(self.weight, n_draws, rng)]
        means = np.empty(n_draws)
        block = max(1, _BLOCK // counts.size)
        for start in range(0, n_draws, block):
            part = slice(start, start + block)
            nu = counts + alpha[part, None, :]
            means[part] = draw_dirichlet_scores(nu, self.weights, rng).mean(axis=1)
        return means

    def draw_questions(self, n_draws: int, rng: np.random.Generator) -> FloatArray:
        """Draw the scores of all questions jointly, shape (n_draws, M)."""
        alpha = self.alpha[draw_particles(self.weight, n_draws, rng)]
        return draw_dirichlet_scores(self.counts + alpha[:, None, :], self.weights, rng)


@dataclass(frozen=True, eq=False)
class WeightedMeanLaw:
    """The law of a population's mean Σ_k w_k m_k from weighted particles; C > 1.

    Parameters
    ----------
    scores : array, shape (P,)
        Σ_k w_k m_k of each particle.
    weight : array, shape (P,)
        Posterior probability of each particle, sum 1.
    """

    scores: FloatArray
    weight: FloatArray

    def draw(self, n_draws: int, rng: np.random.Generator) -> FloatArray:
        """Draw the score `n_draws` times, shape (n_draws,)."""
        return self.scores[draw_particles(self.weight, n_draws, rng)]

    def draw_questions(self, n_draws: int, rng: np.random.Generator) -> NoReturn:
        """Refuse: a population's mean speaks of no question."""
        refuse_questions()


def draw_particles(weight: FloatArray, n_draws: int, rng: np.random.Generator) -> IntArray:
    """Choose a particle for each draw, in proportion to the weights, shape (n_draws,).

    The particles are shuffled, laid end to end, and one is taken from each of `n_draws` equal
    slices. So stretches of the draws share no particle, and how much their quantiles scatter
    shows the error of the particles as well as that of the draws.
    """
    order = rng.permutation(weight.size)
    ends = np.cumsum(weight[order])
    u = (np.arange(n_draws) + rng.random(n_draws)) * (ends[-1] / n_draws)
    chosen = np.minimum(np.searchsorted(ends, u, side="right"), weight.size - 1)
    return np.asarray(order[chosen])


def refuse_questions() -> NoReturn:
    """Say that a population's mean has no questions.

    Raises
    ------
    InvalidInputError
        Always.
    """
    raise InvalidInputError.of("scope", 'be "benchmark" to draw single questions', "population")
