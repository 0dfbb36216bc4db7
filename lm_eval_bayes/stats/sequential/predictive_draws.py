"""Posterior predictive draws of further trials, and the number of trials that reaches a goal."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
import numpy.typing as npt
from scipy import special

from lm_eval_bayes.errors import InvalidInputError
from lm_eval_bayes.stats.arrays import FloatArray, IntArray, cluster_index
from lm_eval_bayes.stats.comparison.difference import cluster_values, paired_spread
from lm_eval_bayes.stats.distributions.base import beta_quantile
from lm_eval_bayes.stats.intervals import IntervalSpec
from lm_eval_bayes.stats.mixture import MEAN_TOTAL
from lm_eval_bayes.stats.outcomes import scaled_weights
from lm_eval_bayes.stats.results import Posterior
from lm_eval_bayes.stats.score_outcomes import PRIOR_DF


@dataclass(frozen=True, eq=False)
class DispersionDraws:
    """Draws of the dispersion φ of scores between two bounds, see `ScoreOutcomes`.

    The estimate φ̂ has ν degrees of freedom, so that φ is from ν φ̂/χ²_ν, at most 1.

    Parameters
    ----------
    estimate : float
        φ̂ from the trials so far.
    df : float
        Its degrees of freedom ν.
    df_per_trial : float
        How many one further trial of every question adds.
    draws : array, shape (D,)
        Draws of φ.
    """

    estimate: float
    df: float
    df_per_trial: float
    draws: FloatArray

    @classmethod
    def of(cls, posterior: Posterior, draws: int, rng: np.random.Generator) -> DispersionDraws:
        """Draw φ `draws` times."""
        phi, df = posterior.dispersion, posterior.dispersion_df
        n_questions = posterior.per_question.mu.size
        free = max(n_questions * ((posterior.n_trials or 1.0) - 1.0), 0.0) + PRIOR_DF
        phis = np.minimum(df * phi / rng.chisquare(df, draws), 1.0)
        return cls(phi, df, n_questions * df / free, phis)

    def after(self, extra: int, rng: np.random.Generator) -> FloatArray:
        """Draw the estimate of φ after `extra` more trials of every question, shape (D,)."""
        more = self.df_per_trial * extra
        further = self.draws * rng.chisquare(more, self.draws.size)
        return np.minimum((self.df * self.estimate + further) / (self.df + more), 1.0)


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
    dispersion : DispersionDraws or None
        Of scores between two bounds: n trials count n/φ.
    """

    known_counts: FloatArray
    strength: FloatArray | None
    truth: FloatArray
    unit: FloatArray
    low: float
    span: float
    dispersion: DispersionDraws | None = None

    @classmethod
    def of(cls, posterior: Posterior, draws: int, rng: np.random.Generator) -> PredictiveTrials:
        """Draw category probabilities `draws` times from a posterior of bayes@N or hbayes@N.

        Raises
        ------
        InvalidInputError
            If the posterior is of another quantity, whose distribution does not determine how
            a further trial would change it.
        """
        drawn = posterior.distribution.draw_categories(draws, rng)
        if drawn is None:
            rule = "be one of bayes@N or hbayes@N"
            got = f"a posterior of {posterior.quantity}"
            raise InvalidInputError.of("posterior", "unsupported", rule, got)
        known_counts, truth, strength, weights = drawn
        low, span, unit = scaled_weights(weights)
        dispersion = DispersionDraws.of(posterior, draws, rng) if posterior.scored else None
        return cls(known_counts, strength, truth, unit, low, span, dispersion)

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
        return self.moments_given(self.counts_after(extra, rng))

    def moments_given(self, counts: FloatArray) -> tuple[FloatArray, FloatArray]:
        """Return the posterior mean and sd of each draw given all its counts, (D, M, K)."""
        n_categories = self.known_counts.shape[1]
        mean_sd = np.zeros(counts.shape[:2])
        if self.strength is not None:
            s = self.strength[:, None]
            trials = counts.sum(axis=2)
            share = (s + 1.0) / (trials + s)
            # the number of independent trials with the same information about m
            information = (share * trials).sum(axis=1)
            prior = MEAN_TOTAL / n_categories
            learned = (share[:, :, None] * counts).sum(axis=1) + prior
            information += MEAN_TOTAL
            learned /= information[:, None]
            mean = learned @ self.unit
            spread = np.maximum(learned @ self.unit**2 - mean**2, 0.0)
            mean_sd = s / (trials + s) * np.sqrt(spread / (information + 1.0))[:, None]
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
        counts = self.counts_after(extra, rng)
        trials = np.maximum(counts.sum(axis=2), 1e-9)
        average = counts @ self.unit / trials
        # the draw's own probabilities approximate the posterior expectation for one trial
        one_trial = self.truth @ self.unit**2 - (self.truth @ self.unit) ** 2
        return average, np.maximum(one_trial, 0.0) / trials

    def counts_after(self, extra: int, rng: np.random.Generator) -> FloatArray:
        """Return all counts of each draw after `extra` more trials, shape (D, M, K).

        Of scores between two bounds the mean of the further ones is from the Beta distribution
        with mean p and variance φ p(1 − p)/extra; all trials count by φ as it is estimated then.
        """
        if self.dispersion is None or extra == 0:
            return self.known_counts + self.draw_trials(extra, rng)
        phi, smallest = self.dispersion.draws[:, None], np.finfo(np.float64).tiny
        weight = np.maximum(extra / phi - 1.0, smallest)
        wrong, right = np.maximum(weight * np.moveaxis(self.truth, 2, 0), smallest)
        mean = rng.beta(right, wrong)
        score_sums = self.known_counts * self.dispersion.estimate
        counts = score_sums + extra * np.stack([1.0 - mean, mean], axis=2)
        return np.asarray(counts / self.dispersion.after(extra, rng)[:, None, None])

    def draw_trials(self, extra: int, rng: np.random.Generator) -> FloatArray:
        """Draw `extra` trials of categories of every question in every draw, shape (D, M, K)."""
        if self.truth.shape[2] > 2:
            return np.asarray(rng.multinomial(extra, self.truth), dtype=np.float64)
        top = rng.binomial(extra, self.truth[:, :, 1])
        return np.stack([extra - top, top], axis=2).astype(np.float64)


@dataclass(frozen=True, eq=False)
class PredictivePopulation:
    """Predictive draws of a population's mean for further trials on the same questions.

    M questions with N trials each have the information of E = M(s + 1)N/(N + s) trials of as many
    different questions about a population's mean, so that its variance is proportional to
    1/(E + 1.4 + 1), 1.4 being the sum of its prior's parameters. For any N, E is below M(s + 1).
    N scores between two bounds count N/φ trials, φ being their dispersion as it is estimated then.
    With clusters E is the sum of E_t (d + 1)/(E_t + d), E_t being the information of the questions
    of a cluster about its mean.

    Parameters
    ----------
    posterior : Posterior
        The posterior now.
    trials : float
        N so far.
    strength : array, shape (D,)
        Draws of s.
    cluster_sizes : array, shape (T,), or None
        The number of questions of every cluster.
    cluster_strength : array, shape (D,), or None
        Draws of d.
    step : array, shape (D,)
        Standard normal draws: the further change of each draw's mean, in sd.
    dispersion : DispersionDraws or None
        Of scores between two bounds.
    """

    posterior: Posterior
    trials: float
    strength: FloatArray
    step: FloatArray
    cluster_sizes: FloatArray | None = None
    cluster_strength: FloatArray | None = None
    dispersion: DispersionDraws | None = None

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
            got = f"one of {posterior.quantity}"
            raise InvalidInputError.of("posterior", "unsupported", rule, got)
        bounds = (learned.strength, learned.strength_low, learned.strength_high)
        strength, step = _draw_strength(*bounds, draws, rng), rng.standard_normal(draws)
        dispersion = DispersionDraws.of(posterior, draws, rng) if posterior.scored else None
        clusters = posterior.clusters
        if clusters is None:
            return cls(posterior, trials, strength, step, dispersion=dispersion)
        index = cluster_index(clusters.labels, len(clusters.labels), "question")
        bounds = (clusters.strength, clusters.strength_low, clusters.strength_high)
        alike = _draw_strength(*bounds, draws, rng)
        if clusters.within is not None and clusters.within_low and clusters.within_high:
            within = (clusters.within, clusters.within_low, clusters.within_high)
            strength = _draw_strength(*within, draws, rng)
        sizes = np.bincount(index).astype(np.float64)
        return cls(posterior, trials, strength, step, sizes, alike)

    def moments(self, extra: int, rng: np.random.Generator) -> tuple[FloatArray, FloatArray]:
        """Return the posterior mean and sd of each draw after `extra` more trials.

        Parameters
        ----------
        extra : int
            Further trials per question.
        rng : Generator
            The source of the estimate of φ; of right and wrong answers each draw has its own step.

        Returns
        -------
        mu, sigma : array, shape (D,)
            On the scale of the score.
        """
        phi = 1.0 if self.dispersion is None else self.dispersion.after(extra, rng)
        return self._moments(phi / (self.trials + extra))

    def at_last(self) -> tuple[FloatArray, FloatArray]:
        """Return the limits of mean and sd for many trials, each (D,)."""
        return self._moments(0.0)

    def _moments(self, per_trial: FloatArray | float) -> tuple[FloatArray, FloatArray]:
        """Return mean and sd of each draw at φ/N = `per_trial`."""
        mu_now, sigma_now = self.posterior.mu, self.posterior.sigma
        # with any number of categories the prior's parameters have the sum of those for two
        prior, dispersion = MEAN_TOTAL + 1.0, self.posterior.dispersion
        now, then = (prior + self._information(x) for x in (dispersion / self.trials, per_trial))
        sigma = sigma_now * np.sqrt(now / then)
        gained = np.maximum(sigma_now**2 - sigma**2, 0.0)
        return mu_now + self.step * np.sqrt(gained), sigma

    def _information(self, per_trial: FloatArray | float) -> FloatArray:
        """Return E of each draw at φ/N = `per_trial`, shape (D,)."""
        s = self.strength
        of_question = (s + 1.0) / (1.0 + s * per_trial)
        if self.cluster_sizes is None or self.cluster_strength is None:
            return self.posterior.per_question.mu.size * of_question
        d, total = self.cluster_strength, np.zeros_like(s)
        for size, times in zip(*np.unique(self.cluster_sizes, return_counts=True), strict=True):
            of_cluster = size * of_question
            total += times * of_cluster * (d + 1.0) / (of_cluster + d)
        return total


def _draw_strength(
    middle: float, low: float, high: float, draws: int, rng: np.random.Generator
) -> FloatArray:
    """Draw a strength whose median and central 95% are known.

    Its logarithm is normal on either side of the median, with the two tails' own widths.
    """
    normal = rng.standard_normal(draws)
    log_middle, log_low, log_high = np.log([middle, low, high])
    width = np.where(normal < 0.0, log_middle - log_low, log_high - log_middle)
    return np.asarray(np.exp(log_middle + width / special.ndtri(0.975) * normal))


Predictive: TypeAlias = PredictiveTrials | PredictivePopulation
#: Which draws reach a goal after a number of further trials per question, shape (D,).
Goal: TypeAlias = Callable[[int], npt.NDArray[np.bool_]]

#: Factor between the numbers of trials of the coarse search.
_STRIDE = 4
#: Numbers of trials evaluated between the limits of the band.
_FINE = 16
#: Bisections after that, for each of the wanted shares.
_ROUNDS = 3
#: From this sum of its parameters a Beta distribution has the normal interval's width.
_NORMAL = 1e8


def width_goal(
    predictive: Predictive,
    width: float,
    bounds: tuple[float, float],
    spec: IntervalSpec,
    rng: np.random.Generator,
) -> Goal:
    """Return the goal of a credible interval at most `width` wide; see `interval_widths`."""

    def reached(extra: int) -> npt.NDArray[np.bool_]:
        mu, sigma = predictive.moments(extra, rng)
        return np.asarray(interval_widths(mu, sigma, bounds, spec) <= width)

    return reached


def separation_goal(
    predictive: Sequence[Predictive], target: float, rng: np.random.Generator
) -> Goal:
    """Return the goal of two models' z = |μ − μ'| / sqrt(σ² + σ'²) of at least `target`."""

    def reached(extra: int) -> npt.NDArray[np.bool_]:
        (mu, sigma), (mu_other, sigma_other) = (side.moments(extra, rng) for side in predictive)
        return np.asarray(np.abs(mu - mu_other) > target * np.hypot(sigma, sigma_other))

    return reached


def interval_widths(
    mu: FloatArray, sigma: FloatArray, bounds: tuple[float, float], spec: IntervalSpec
) -> FloatArray:
    """Return the width of a credible interval at each mean and sd.

    Parameters
    ----------
    mu, sigma : array, shape (D,)
        Posterior means and sds.
    bounds : tuple of float
        The smallest and the largest score that are possible.
    spec : IntervalSpec
        Method "normal": the normal interval, clipped to `bounds`; any other: that of the Beta
        distribution on `bounds` with the same mean and sd, the normal one where there is no
        such Beta.

    Examples
    --------
    Beta(5, 1), the posterior of one question solved four times in four:

    >>> mu, sigma = np.array([5 / 6]), np.array([(5 / 252) ** 0.5])
    >>> interval_widths(mu, sigma, (0.0, 1.0), IntervalSpec()).round(3).tolist()
    [0.517]
    """
    bottom, top = bounds
    half = float(special.ndtri(0.5 + 0.5 * spec.level)) * sigma
    width = np.asarray(np.minimum(mu + half, top) - np.maximum(mu - half, bottom))
    if spec.method == "normal" or top == bottom:
        return width
    mean = (mu - bottom) / (top - bottom)
    variance = np.maximum((sigma / (top - bottom)) ** 2, np.finfo(np.float64).tiny)
    trials = mean * (1.0 - mean) / variance - 1.0
    fits = (trials > 0.0) & (trials < _NORMAL)
    a, b = mean[fits] * trials[fits], (1.0 - mean[fits]) * trials[fits]
    tail = 0.5 * (1.0 - spec.level)
    width[fits] = (top - bottom) * (1.0 - beta_quantile(b, a, tail) - beta_quantile(a, b, tail))
    return width


def further_trials(
    goal: Goal, shares: tuple[float, ...], max_trials: int
) -> tuple[list[int | None], float]:
    """Return the trials per question at which given shares of predictive draws reach a goal.

    The share is evaluated at numbers of trials that grow by a factor of four, then on a finer grid
    around the answers, then by bisection towards each answer. Between these points it is
    interpolated linearly in the logarithm of the trials.

    Parameters
    ----------
    goal : Goal
        Reached in an increasing share of the draws.
    shares : tuple of float
        In (0, 1), increasing.
    max_trials : int
        The largest number of trials to evaluate.

    Returns
    -------
    needed : list of int or None
        One per share, None where it takes more than `max_trials`.
    last : float
        The share at `max_trials`.
    """
    share_at = {n: float(goal(n).mean()) for n in (1, max_trials)}
    last = share_at[max_trials]
    n = _STRIDE
    while n < max_trials:
        share_at[n] = float(goal(n).mean())
        if share_at[n] > 0.5 * (1.0 + shares[-1]):
            break
        n *= _STRIDE
    visited = sorted(share_at)
    first = max([n for n in visited if share_at[n] < shares[0]], default=1)
    final = min([n for n in visited if n > first and share_at[n] >= shares[-1]], default=max_trials)
    more = np.unique(np.geomspace(first, final, _FINE).round().astype(np.int64)).tolist()
    for _ in range(1 + _ROUNDS):
        for n in more:
            if n not in share_at:
                share_at[n] = float(goal(n).mean())
        trials, share = _rising(share_at)
        more = [_between(trials, share, wanted) for wanted in shares]
    return [_first(trials, share, wanted) for wanted in shares], last


def _rising(share_at: dict[int, float]) -> tuple[FloatArray, FloatArray]:
    """Return the numbers of trials evaluated, and shares that increase with them.

    The shares have Monte-Carlo error: the estimate is the mean of the tightest increasing curves
    above and below them.
    """
    trials = np.array(sorted(share_at), dtype=np.float64)
    share = np.array([share_at[int(n)] for n in trials])
    above = np.maximum.accumulate(share)
    below = np.minimum.accumulate(share[::-1])[::-1]
    return trials, 0.5 * (above + below)


def _between(trials: FloatArray, share: FloatArray, wanted: float) -> int:
    """Return the number of trials half-way between those that enclose `wanted`."""
    i = int(np.clip(np.searchsorted(share, wanted), 1, share.size - 1))
    return round(float(np.sqrt(trials[i - 1] * trials[i])))


def _first(trials: FloatArray, share: FloatArray, wanted: float) -> int | None:
    """Return the first whole number of trials at which a rising share is at least `wanted`."""
    i = int(np.searchsorted(share, wanted))
    if i == share.size:
        return None
    if i == 0:
        return int(trials[0])
    rise = (wanted - share[i - 1]) / (share[i] - share[i - 1])
    needed = trials[i - 1] * (trials[i] / trials[i - 1]) ** rise
    return int(np.ceil(needed - 1e-9))


def paired_separation_goal(
    predictive: Sequence[PredictiveTrials],
    columns: Sequence[IntArray],
    target: float,
    rng: np.random.Generator,
    cluster_index: IntArray | None = None,
) -> tuple[Goal, float]:
    """Return the goal of a z of at least `target` in scope "population", with paired questions.

    The predictive draws are those of the given questions, as in scope "benchmark": category
    probabilities of every question, and trials from them. For the population of questions they
    give the z of `compare`, whose sd has a part that no trials reduce: the variation of the
    differences between questions.

    Parameters
    ----------
    predictive : sequence of PredictiveTrials
        The predictive draws of the two models' benchmark posteriors.
    columns : sequence of array of int, shape (M,)
        The column of each of the first model's questions, for both models.
    target : float
        The z to be reached.
    rng : Generator
        The source of the predicted trials.
    cluster_index : array of int, shape (M,), optional
        The number of the cluster of each of the first model's questions.

    Returns
    -------
    goal : callable
        See `Goal`.
    at_last : float
        The share of draws whose z reaches the target in the limit of many trials.
    """

    def reaches(averages: list[tuple[FloatArray, FloatArray]]) -> npt.NDArray[np.bool_]:
        (first, noise), (second, other_noise) = (
            (average[:, order], variance[:, order])
            for (average, variance), order in zip(averages, columns, strict=True)
        )
        difference, noise = cluster_values(first - second, noise + other_noise, cluster_index)
        sd = paired_spread(difference, noise, clustered=cluster_index is not None).sd
        return np.asarray(np.abs(difference.mean(axis=1)) > target * sd)

    def reached(extra: int) -> npt.NDArray[np.bool_]:
        return reaches([side.question_averages(extra, rng) for side in predictive])

    scores = [side.truth @ side.unit for side in predictive]
    return reached, float(reaches([(score, np.zeros_like(score)) for score in scores]).mean())
