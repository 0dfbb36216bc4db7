"""Posterior predictive draws: the posteriors to which further trials would lead."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from scipy import special

from lm_eval_bayes.errors import InvalidInputError
from lm_eval_bayes.stats.results import Posterior
from lm_eval_bayes.stats.validation import FloatArray


@dataclass(frozen=True, eq=False)
class PredictiveTrials:
    """Joint draws of all questions' category probabilities, and the counts so far.

    Parameters
    ----------
    known_counts : array, shape (M, K)
        The trials of each category so far, and under a fixed prior its pseudo-counts.
    strength : array, shape (D,), or None
        The strength s of the learned prior in each draw; None where the prior is fixed.
    truth : array, shape (D, M, K)
        The category probabilities of each question in each draw.
    unit : array, shape (K,)
        The score of each category, scaled to [0, 1].
    low, span : float
        The score of 0 on that scale, and the range of scores.
    """

    known_counts: FloatArray
    strength: FloatArray | None
    truth: FloatArray
    unit: FloatArray
    low: float
    span: float

    @classmethod
    def of(cls, posterior: Posterior, draws: int, rng: np.random.Generator) -> PredictiveTrials:
        """Draw category probabilities `draws` times from a posterior of bayes@N or hbayes@N.

        Raises
        ------
        InvalidInputError
            If the posterior is of another quantity, whose distribution does not determine how
            a further trial would change it.
        """
        state = posterior.distribution.category_posterior(draws, rng)
        if state is None:
            rule = "be one of bayes@N or hbayes@N"
            raise InvalidInputError.of("posterior", rule, f"a posterior of {posterior.quantity}")
        known_counts, prior, strength, weights = state
        gammas = rng.standard_gamma(known_counts + prior[:, None, :])
        # with parameters near 0 all gammas of a question can underflow
        gammas = np.maximum(gammas, np.finfo(np.float64).tiny)
        truth = gammas / gammas.sum(axis=2, keepdims=True)
        low, span = float(weights.min()), float(np.ptp(weights))
        unit = (weights - low) / span if span > 0.0 else np.zeros_like(weights)
        return cls(known_counts, strength, truth, unit, low, span)

    @property
    def draws(self) -> int:
        """D, the number of draws."""
        return int(self.truth.shape[0])

    def moments(self, extra: int, rng: np.random.Generator) -> tuple[FloatArray, FloatArray]:
        """Return the posterior mean and sd of each draw after `extra` more trials.

        `extra` trials of every question are drawn from each draw's probabilities and added to
        the counts. Under a fixed prior the moments are exact (Alg. 1 of [Hariri 2026]). Under
        a learned one s is fixed at the draw's, m is estimated again from all questions, with
        weights n/(n + s), and its variance is added.

        Parameters
        ----------
        extra : int
            Further trials per question, at least 0.
        rng : Generator
            The source of the trials.

        Returns
        -------
        mu, sigma : array, shape (D,)
            On the scale of the score.
        """
        counts = self.known_counts + self._drawn(extra, rng)
        n_categories = self.known_counts.shape[1]
        mean_sd = np.zeros(counts.shape[:2])
        if self.strength is not None:
            s = self.strength[:, None]
            trials = counts.sum(axis=2)
            share = (s + 1.0) / (trials + s)
            # the number of independent trials with the same information about m
            information = (share * trials).sum(axis=1)
            learned = (share[:, :, None] * counts).sum(axis=1) + 1.0
            learned /= (information + n_categories)[:, None]
            mean = learned @ self.unit
            spread = np.maximum(learned @ self.unit**2 - mean**2, 0.0)
            mean_sd = (
                s / (trials + s) * np.sqrt(spread / (information + n_categories + 1.0))[:, None]
            )
            counts = counts + s[:, :, None] * learned[:, None, :]
        total = counts.sum(axis=2)
        score = counts @ self.unit / total
        spread = counts @ self.unit**2 / total - score**2
        within = np.maximum(spread, 0.0) / (total + 1.0)
        variance = within.sum(axis=1) / score.shape[1] ** 2 + mean_sd.mean(axis=1) ** 2
        return self.low + self.span * score.mean(axis=1), np.asarray(self.span * np.sqrt(variance))

    def question_averages(
        self, extra: int, rng: np.random.Generator
    ) -> tuple[FloatArray, FloatArray]:
        """Return every question's mean score in each draw after `extra` more trials.

        Returns
        -------
        average, noise : array, shape (D, M)
            A question's average score, scaled to [0, 1], and the variance that chance gives
            it, as :func:`lm_eval_bayes.stats.comparison.difference.question_means` has it.
        """
        counts = self.known_counts + self._drawn(extra, rng)
        trials = np.maximum(counts.sum(axis=2), 1e-9)
        average = counts @ self.unit / trials
        # the draw's own probabilities approximate the posterior expectation for one trial
        one_trial = self.truth @ self.unit**2 - (self.truth @ self.unit) ** 2
        return average, np.maximum(one_trial, 0.0) / trials

    def _drawn(self, extra: int, rng: np.random.Generator) -> FloatArray:
        """Draw `extra` trials of every question in every draw, shape (D, M, K)."""
        if self.truth.shape[2] > 2:
            return np.asarray(rng.multinomial(extra, self.truth), dtype=np.float64)
        top = rng.binomial(extra, self.truth[:, :, 1])
        return np.stack([extra - top, top], axis=2).astype(np.float64)


@dataclass(frozen=True, eq=False)
class PredictivePopulation:
    """Predictive draws of a population's mean for further trials on the same questions.

    M questions with N trials each have the information of E = M(s + 1)N/(N + s) trials of as many
    different questions about a population's mean, so that its variance is proportional to
    1/(E + K + 1). For any N, E is below M(s + 1).

    Parameters
    ----------
    mu, sigma : float
        Posterior mean and sd now.
    trials : float
        N so far.
    n_questions, n_categories : int
        M and K.
    strength : array, shape (D,)
        Draws of s.
    step : array, shape (D,)
        Standard normal draws: the further change of each draw's mean, in sd.
    """

    mu: float
    sigma: float
    trials: float
    n_questions: int
    n_categories: int
    strength: FloatArray
    step: FloatArray

    @classmethod
    def of(
        cls, posterior: Posterior, trials: float, draws: int, rng: np.random.Generator
    ) -> PredictivePopulation:
        """Draw from the predictive distribution of hbayes@N in scope "population".

        Raises
        ------
        InvalidInputError
            If the posterior's prior was not learned.
        """
        learned = posterior.learned
        if learned is None:
            rule = "have a learned prior in scope population"
            raise InvalidInputError.of("posterior", rule, f"one of {posterior.quantity}")
        normal = rng.standard_normal(draws)
        middle, low, high = np.log([learned.strength, learned.strength_low, learned.strength_high])
        # log s is normal on either side of its median, with the two tails' own widths
        width = np.where(normal < 0.0, middle - low, high - middle) / special.ndtri(0.975)
        return cls(
            mu=posterior.mu,
            sigma=posterior.sigma,
            trials=trials,
            n_questions=int(posterior.per_question.mu.size),
            n_categories=int(learned.mean.size),
            strength=np.exp(middle + width * normal),
            step=rng.standard_normal(draws),
        )

    @property
    def draws(self) -> int:
        """D, the number of draws."""
        return int(self.strength.size)

    def moments(self, extra: int, rng: np.random.Generator) -> tuple[FloatArray, FloatArray]:
        """Return the posterior mean and sd of each draw after `extra` more trials.

        Parameters
        ----------
        extra : int
            Further trials per question.
        rng : Generator
            Not used: each draw has its own step.

        Returns
        -------
        mu, sigma : array, shape (D,)
            On the scale of the score.
        """
        return self._moments(1.0 / (self.trials + extra))

    def at_last(self) -> tuple[FloatArray, FloatArray]:
        """Return the limits of mean and sd for many trials, each (D,)."""
        return self._moments(0.0)

    def _moments(self, per_trial: float) -> tuple[FloatArray, FloatArray]:
        """Return mean and sd of each draw at 1/N = `per_trial`."""
        s = self.strength
        prior, most = self.n_categories + 1.0, self.n_questions * (s + 1.0)
        now, then = prior + most / (1.0 + s / self.trials), prior + most / (1.0 + s * per_trial)
        sigma = self.sigma * np.sqrt(now / then)
        return self.mu + self.step * np.sqrt(self.sigma**2 - sigma**2), sigma
