"""Laws of a prior learned across questions: mixtures over its hyperparameters."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NoReturn

import numpy as np
from scipy import special

from lm_eval_bayes.core.checks import FloatArray
from lm_eval_bayes.core.laws import draw_beta, draw_dirichlet_scores, mean_in_blocks
from lm_eval_bayes.errors import InvalidInputError


@dataclass(frozen=True, eq=False)
class Table:
    """A distribution function, tabulated.

    Parameters
    ----------
    probability, score : array, shape (L,)
        Points of the distribution function, both non-decreasing; probability runs from 0 to 1.
    """

    probability: FloatArray
    score: FloatArray

    def quantile(self, u: FloatArray) -> FloatArray:
        """Return the scores below which the mass `u` lies."""
        return np.interp(u, self.probability, self.score)

    def cdf(self, x: FloatArray) -> FloatArray:
        """Return the mass at or below the scores `x`."""
        return np.interp(x, self.score, self.probability, left=0.0, right=1.0)


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
    logit_mean, log_strength : array, shape (G,)
        log(m / (1 − m)) and log s of each node.
    steps : array, shape (2, G)
        The width of a node's cell in these two coordinates.
    weight : array, shape (G,)
        Posterior probability of each node's cell, sum 1.
    low, high : float
        The scores of a wrong and of a right trial (low <= high).
    table : Table
        The distribution function of the benchmark's score.
    """

    successes: FloatArray
    failures: FloatArray
    logit_mean: FloatArray
    log_strength: FloatArray
    steps: FloatArray
    weight: FloatArray
    low: float
    high: float
    table: Table

    def draw(self, n_draws: int, rng: np.random.Generator) -> FloatArray:
        """Draw the benchmark's score `n_draws` times, shape (n_draws,)."""
        return self.table.quantile(rng.random(n_draws))

    def draw_questions(self, n_draws: int, rng: np.random.Generator) -> FloatArray:
        """Draw the scores of all questions jointly, shape (n_draws, M)."""
        node = rng.choice(self.weight.size, size=n_draws, p=self.weight)
        jitter = (rng.random((2, n_draws)) - 0.5) * self.steps[:, node]
        y = (self.logit_mean[node] + jitter[0])[:, None]
        s = np.exp(self.log_strength[node] + jitter[1])[:, None]
        a = self.successes + s * special.expit(y)
        b = self.failures + s * special.expit(-y)
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
        return mean_in_blocks(self, self.counts.size, n_draws, rng)

    def draw_questions(self, n_draws: int, rng: np.random.Generator) -> FloatArray:
        """Draw the scores of all questions jointly, shape (n_draws, M)."""
        particle = rng.choice(self.weight.size, size=n_draws, p=self.weight)
        nu = self.counts + self.alpha[particle][:, None, :]
        return draw_dirichlet_scores(nu, self.weights, rng)


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
        return self.scores[rng.choice(self.weight.size, size=n_draws, p=self.weight)]

    def draw_questions(self, n_draws: int, rng: np.random.Generator) -> NoReturn:
        """Refuse: a population's mean speaks of no question."""
        refuse_questions()


def refuse_questions() -> NoReturn:
    """Say that a population's mean has no questions.

    Raises
    ------
    InvalidInputError
        Always.
    """
    raise InvalidInputError.of("scope", 'be "benchmark" to draw single questions', "population")
