"""Distributions under a prior learned across questions: mixtures over its hyperparameters."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import numpy.typing as npt

from lm_eval_bayes.stats.arrays import FloatArray, IntArray, blocks
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
from lm_eval_bayes.stats.distributions.beta_mixture import BetaMixture, Cumulants, mixture_table
from lm_eval_bayes.stats.outcomes import scaled_weights

#: Floats per block, few enough for the processor's cache.
_BLOCK = 100_000
#: Minimum number of questions, and largest sizes of the third and fourth standardized cumulant, for
#: draws of the score by Cornish and Fisher's expansion: quantiles are off by less than .01 sd.
_MANY, _SKEW, _EXCESS = 8, 0.35, 0.25


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
        """Draw the benchmark's score `n_draws` times, shape (n_draws,).

        At particles where the mean of the questions is close to normal it is drawn from its first
        four cumulants, else as the mean of Dirichlet draws.
        """
        # sorted, so that the order of the questions does not matter
        counts, times = np.unique(self.counts, axis=0, return_counts=True)
        drawn = draw_particles(self.weight, n_draws, rng)
        particles, at = np.unique(drawn, return_inverse=True)
        at_particle = _dirichlet_cumulants(counts, times, self.alpha[particles], self.weights)
        is_normal = (_are_nearly_normal(at_particle) & (self.counts.shape[0] >= _MANY))[at]
        means = np.empty(n_draws)
        z = rng.standard_normal(int(is_normal.sum()))
        low, span, _ = scaled_weights(self.weights)
        normal = Cumulants(*(values[at[is_normal]] for values in at_particle))
        means[is_normal] = low + span * np.clip(_cornish_fisher(z, normal), 0.0, 1.0)
        rest = np.flatnonzero(~is_normal)
        counts = np.repeat(counts, times, axis=0)
        for part in blocks(rest.size, counts.size, _BLOCK):
            nu = counts + self.alpha[drawn[rest[part]], None, :]
            means[rest[part]] = draw_dirichlet_scores(nu, self.weights, rng).mean(axis=1)
        return means

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


def _dirichlet_cumulants(
    counts: FloatArray, times: IntArray, alpha: FloatArray, weights: FloatArray
) -> Cumulants:
    """Return the cumulants of (1/M) Σ_α Σ_k u_k θ_αk, θ_α ~ Dirichlet(n_α + alpha).

    u are the weights scaled to [0, 1]. With the total T of a Dirichlet's parameters ν, its mean μ
    and p_j = Σ_k ν_k (u_k − μ)^j, the central moments of Σ_k u_k θ_k are p_2 / (T (T + 1)),
    2 p_3 / (T (T + 1) (T + 2)) and (6 p_4 + 3 p_2²) / (T (T + 1) (T + 2) (T + 3)).

    Parameters
    ----------
    counts : array, shape (D, C+1)
        The distinct questions.
    times : array, shape (D,)
        How often each occurs; they sum to M.
    alpha : array, shape (P, C+1)
        s·m of each particle.
    weights : array, shape (C+1,)
        The score of each category.
    """
    powers = scaled_weights(weights)[2][:, None] ** np.arange(5)
    prior = (alpha @ powers).T
    sums = np.zeros((6, alpha.shape[0]))
    for own, n in zip(counts @ powers, times, strict=True):
        total, r1, r2, r3, r4 = own[:, None] + prior
        mean = r1 / total
        square = mean * mean
        p2 = np.maximum(r2 - total * square, 0.0)
        p3 = r3 - mean * (3.0 * r2 - 2.0 * mean * r1)
        p4 = r4 - mean * (4.0 * r3 - mean * (6.0 * r2 - 3.0 * mean * r1))
        rising = total * (total + 1.0)
        variance = p2 / rising
        rising *= total + 2.0
        third = 2.0 * p3 / rising
        fourth = (6.0 * p4 + 3.0 * p2**2) / (rising * (total + 3.0)) - 3.0 * variance**2
        for sum_, values in zip(
            sums, (mean, variance, third, np.abs(third), fourth, np.abs(fourth)), strict=True
        ):
            sum_ += n * values
    return Cumulants(*(sums / float(times.sum()) ** np.array([1, 2, 3, 3, 4, 4])[:, None]))


def _are_nearly_normal(at_particle: Cumulants) -> npt.NDArray[np.bool_]:
    """Return at which particles Cornish and Fisher's expansion is accurate, shape (P,)."""
    variance = at_particle.variance
    with np.errstate(divide="ignore", invalid="ignore"):
        skew, excess = at_particle.third_size / variance**1.5, at_particle.fourth_size / variance**2
        return np.asarray((skew <= _SKEW) & (excess <= _EXCESS))


def _cornish_fisher(z: FloatArray, of_score: Cumulants) -> FloatArray:
    """Return scores with these cumulants from standard normal numbers [Cornish & Fisher 1938]."""
    spread, square = np.sqrt(of_score.variance), z * z
    skew, excess = of_score.third / spread**3, of_score.fourth / spread**4
    x = z + skew * (square - 1.0) / 6.0
    x += z * (excess * (square - 3.0) / 24.0 - skew**2 * (2.0 * square - 5.0) / 36.0)
    x -= skew * excess * ((square - 5.0) * square + 2.0) / 24.0
    x += skew**3 * ((12.0 * square - 53.0) * square + 17.0) / 324.0
    return np.asarray(of_score.mean + spread * x)


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
