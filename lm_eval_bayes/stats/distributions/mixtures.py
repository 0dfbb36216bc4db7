"""Distributions under a prior learned across questions: mixtures over its hyperparameters."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from lm_eval_bayes.stats.distributions.base import (
    CategoryPosterior,
    CdfTable,
    Distribution,
    FromTable,
    Moments,
    QuestionMeans,
    draw_beta,
    draw_dirichlet_scores,
)
from lm_eval_bayes.stats.distributions.beta_mixture import BetaMixture, mixture_table
from lm_eval_bayes.stats.validation import FloatArray, IntArray, blocks

#: Floats per block, few enough for the processor's cache.
_BLOCK = 100_000


@dataclass(frozen=True, eq=False)
class BetaMixtureDistribution(FromTable):
    """p_α ~ Beta(x_α + s m, y_α + s (1 − m)) with (m, s) on a weighted grid; C = 1.

    Parameters
    ----------
    successes, failures : array, shape (M,)
        x_α and y_α, the trials of question α.
    low, high : float
        The scores of a wrong and of a right trial (low <= high).
    mixture : BetaMixture
        The distinct questions at every node of a fine grid.
    coarse_mixture : callable
        Returns the same mixture on a coarser grid, from which the distribution function of
        more than one distinct question is tabulated: each of its nodes is expensive.
    mu, sigma : float
        Mean and standard deviation of (1/M) Σ p_α.
    """

    successes: FloatArray
    failures: FloatArray
    low: float
    high: float
    mixture: BetaMixture
    coarse_mixture: Callable[[], BetaMixture]
    mu: float
    sigma: float

    def moments(self) -> Moments:
        """Return the exact mean and standard deviation of the benchmark's score."""
        span = self.high - self.low
        return Moments(self.low + span * self.mu, span * self.sigma)

    @cached_property
    def table(self) -> CdfTable:  # type: ignore[override]  # an attribute, computed once
        """The distribution function of the benchmark's score."""
        mixture = self.mixture if self.mixture.x.size == 1 else self.coarse_mixture()
        return mixture_table(mixture, self.mu, self.sigma).scaled(self.low, self.high)

    def draw_questions(self, n_draws: int, rng: np.random.Generator) -> FloatArray:
        """Draw the scores of all questions jointly, shape (n_draws, M)."""
        # the sum over an even grid is accurate without spreading the nodes over their cells
        node = rng.choice(self.mixture.weight.size, size=n_draws, p=self.mixture.weight)
        s = self.mixture.s[node]
        a = self.successes + (s * self.mixture.m[node])[:, None]
        b = self.failures + (s * self.mixture.rest[node])[:, None]
        p, _ = draw_beta(a, b, a.shape, rng)
        return np.asarray(self.low + (self.high - self.low) * p)

    def question_means(self, mu: FloatArray, sigma: FloatArray) -> QuestionMeans:
        """Return every question's mean score over its trials, and its sampling variance."""
        counts, weights = self._categories()
        span = self.high - self.low
        share = (mu - self.low) / span if span else np.zeros(len(counts))
        mean_square = self.low**2 + (self.high**2 - self.low**2) * share
        return _question_means(counts, weights, mean_square, mu, sigma)

    def category_posterior(self, n_draws: int, rng: np.random.Generator) -> CategoryPosterior:
        """Return the questions' Beta posteriors at nodes drawn by their weights."""
        counts, weights = self._categories()
        node = draw_particles(self.mixture.weight, n_draws, rng)
        strength = self.mixture.s[node]
        shares = np.stack([self.mixture.rest[node], self.mixture.m[node]], axis=1)
        return CategoryPosterior(counts, strength[:, None] * shares, strength, weights)

    def _categories(self) -> tuple[FloatArray, FloatArray]:
        """Return the trials of each question by category, (M, 2), and the weights, (2,)."""
        counts = np.stack([self.failures, self.successes], axis=1)
        return counts, np.array([self.low, self.high])


@dataclass(frozen=True, eq=False)
class DirichletMixtureDistribution(Distribution):
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
    mean, sd : float
        Mean and standard deviation of the benchmark's score.
    """

    counts: FloatArray
    alpha: FloatArray
    weight: FloatArray
    weights: FloatArray
    mean: float
    sd: float

    def particle_means(self) -> FloatArray:
        """Return the mean of the benchmark's score at every particle, shape (P,)."""
        strength, prior = self.alpha.sum(axis=1), self.alpha @ self.weights
        scores = self.counts @ self.weights
        total = np.zeros_like(prior)
        for n in np.unique(trials := self.counts.sum(axis=1)):
            at_n = trials == n
            total += (scores[at_n].sum() + at_n.sum() * prior) / (n + strength)
        return np.asarray(total / scores.size)

    def draw(self, n_draws: int, rng: np.random.Generator) -> FloatArray:
        """Draw the benchmark's score `n_draws` times, shape (n_draws,)."""
        # sorted, so that the order of the questions does not matter
        counts = self.counts[np.lexsort(self.counts.T)]
        alpha = self.alpha[draw_particles(self.weight, n_draws, rng)]
        means = np.empty(n_draws)
        for part in blocks(n_draws, counts.size, _BLOCK):
            nu = counts + alpha[part, None, :]
            means[part] = draw_dirichlet_scores(nu, self.weights, rng).mean(axis=1)
        return means

    def draw_questions(self, n_draws: int, rng: np.random.Generator) -> FloatArray:
        """Draw the scores of all questions jointly, shape (n_draws, M)."""
        alpha = self.alpha[draw_particles(self.weight, n_draws, rng)]
        return draw_dirichlet_scores(self.counts + alpha[:, None, :], self.weights, rng)

    def question_means(self, mu: FloatArray, sigma: FloatArray) -> QuestionMeans:
        """Return every question's mean score over its trials, and its sampling variance."""
        # E θ_α under the posterior
        trials, where = np.unique(self.counts.sum(axis=1), return_inverse=True)
        share = self.weight / (trials[:, None] + self.alpha.sum(axis=1))
        own, prior = share.sum(axis=1), share @ self.alpha
        expected = self.counts * own[where, None] + prior[where]
        mean_square = expected @ self.weights**2
        return _question_means(self.counts, self.weights, mean_square, mu, sigma)

    def category_posterior(self, n_draws: int, rng: np.random.Generator) -> CategoryPosterior:
        """Return the questions' Dirichlet posteriors at particles drawn by their weights."""
        prior = self.alpha[draw_particles(self.weight, n_draws, rng)]
        return CategoryPosterior(self.counts, prior, prior.sum(axis=1), self.weights)


@dataclass(frozen=True, eq=False)
class ParticleDistribution(Distribution):
    """The distribution of a population's mean Σ_k w_k m_k from weighted particles; C > 1.

    Parameters
    ----------
    scores : array, shape (P,)
        Σ_k w_k m_k of each particle.
    weight : array, shape (P,)
        Posterior probability of each particle, sum 1.
    mean, sd : float
        Mean and standard deviation of the particles.
    """

    scores: FloatArray
    weight: FloatArray
    mean: float
    sd: float

    def draw(self, n_draws: int, rng: np.random.Generator) -> FloatArray:
        """Draw the score `n_draws` times, shape (n_draws,)."""
        return self.scores[draw_particles(self.weight, n_draws, rng)]


def draw_particles(weight: FloatArray, n_draws: int, rng: np.random.Generator) -> IntArray:
    """Choose a particle for each draw, in proportion to the weights, shape (n_draws,).

    Systematic resampling of the particles in random order: one from each of `n_draws` equal slices
    of the cumulative weight. Batches of the draws then share no particle, and the scatter of their
    quantiles includes the error of the particles as well as that of the draws.
    """
    order = rng.permutation(weight.size)
    ends = np.cumsum(weight[order])
    u = (np.arange(n_draws) + rng.random(n_draws)) * (ends[-1] / n_draws)
    chosen = np.minimum(np.searchsorted(ends, u, side="right"), weight.size - 1)
    return np.asarray(order[chosen])


def _question_means(
    counts: FloatArray,
    weights: FloatArray,
    mean_square: FloatArray,
    mu: FloatArray,
    sigma: FloatArray,
) -> QuestionMeans:
    """Return means and sampling variances from counts (M, K) and E[w²] of one trial (M,)."""
    trials = counts.sum(axis=1)
    tried = trials > 0.0
    variance = np.maximum(mean_square - mu**2 - sigma**2, 0.0)
    average = np.divide(counts @ weights, trials, out=mu.copy(), where=tried)
    noise = np.divide(variance, trials, out=sigma**2, where=tried)
    return QuestionMeans(average, noise)
