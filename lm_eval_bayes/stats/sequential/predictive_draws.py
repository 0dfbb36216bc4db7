"""Posterior predictive draws of scores after further trials, and the trials that reach a goal.

A draw of the category probabilities of all questions enters by three numbers: the score S of these
questions, the variance V of the mean of one trial of each, and the variance B of their scores. The
posterior of S, with mean μ and variance σ², is worth n = E V / σ² trials of every question: a + b
of a single Beta(a, b), and N of equal numbers of trials under a learned prior, where the pull to
the common mean and what is not known of that mean add up to the variance of the trials' mean. After
t further trials of every question the variance is V_t / (n + t), so that the posterior mean is
then drawn from a distribution of variance r² σ² about μ, r² = t / (n + t), and of the shape of the
posterior: μ_t = μ + r (S − μ). In the same way V_t = E V + r (V − E V), and B_t.

In scope "population" no number of trials reduces the remaining variance, which is proportional to
B_t; the mean changes by as much as that of these questions.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache

import numpy as np
from scipy import special

from lm_eval_bayes.errors import InvalidInputError
from lm_eval_bayes.stats.arrays import FloatArray, cluster_index, protect
from lm_eval_bayes.stats.comparison.difference import cluster_values
from lm_eval_bayes.stats.comparison.shared_questions import SharedQuestions
from lm_eval_bayes.stats.distributions import beta_quantile
from lm_eval_bayes.stats.intervals import IntervalSpec
from lm_eval_bayes.stats.results import Posterior

#: Draws of a forecast.
DRAWS = 2_048
#: The draw of a second model that goes with each of a first: pairs evenly spread over all, by a
#: step without a common factor near the golden section; and such a step for a third quantity.
PAIRED_WITH, _THIRD = np.arange(DRAWS) * 1_265 % DRAWS, 483
#: Category probabilities that are drawn in all, and the fewest draws of all questions.
_PROBABILITIES, _FEWEST = 1 << 20, 256
#: From this sum of its parameters a Beta distribution has the normal interval's width.
_NORMAL = 1e8
#: The share of draws that have reached a goal after a number of further trials per question.
Goal = Callable[[float], float]


@dataclass(frozen=True, eq=False)
class PredictiveScore:
    """Draws of what further trials of a model's questions will say of its score.

    Attributes
    ----------
    posterior : Posterior
        The posterior now.
    worth : float
        n, how many trials of every question the posterior of these questions is worth.
    offset : array, shape (D,)
        S − μ in rising order.
    chance : array, shape (D,)
        V.
    between : array, shape (D,)
        B; where the questions have clusters, of the values of those, see `cluster_values`.
    """

    posterior: Posterior
    worth: float
    offset: FloatArray
    chance: FloatArray
    between: FloatArray

    def __post_init__(self) -> None:
        protect(self)

    @classmethod
    def of(cls, posterior: Posterior) -> PredictiveScore:
        """Draw from a posterior of bayes@N or hbayes@N.

        Raises
        ------
        InvalidInputError
            If the posterior is of another quantity, whose distribution does not determine how a
            further trial would change it, or of a population and without trials.
        """
        own = posterior.benchmark or posterior
        n_questions, labels = own.per_question.mu.size, posterior.clusters
        rng = np.random.default_rng([own.distribution.seed, 3])
        n_draws = int(np.clip(_PROBABILITIES // (2 * n_questions), _FEWEST, DRAWS))
        drawn = own.distribution.draw_categories(n_draws, rng)
        if drawn is None:
            rule = "be one of bayes@N or hbayes@N"
            got = f"a posterior of {posterior.quantity}"
            raise InvalidInputError.of("posterior", "unsupported", rule, got)
        if posterior.scope == "population" and not posterior.n_trials:
            rule = "have a number of trials above 0"
            raise InvalidInputError.of("posterior", "empty", rule, posterior.n_trials)
        scores = drawn.theta @ drawn.weights
        noise = np.maximum(drawn.theta @ drawn.weights**2 - scores**2, 0.0)
        index = None if labels is None else cluster_index(labels.labels, n_questions, "question")
        score = scores.mean(axis=1)
        # each draw of all questions stands for those of its rank
        order = np.argsort(score)[np.arange(DRAWS) * n_draws // DRAWS]
        chance = (own.dispersion * noise.mean(axis=1) / n_questions)[order]
        worth = float(chance.mean() / own.sigma**2) if own.sigma > 0.0 else np.inf
        if own.scored and np.isfinite(own.dispersion_df):
            chance = chance * own.dispersion_df / rng.chisquare(own.dispersion_df, DRAWS)
        return cls(
            posterior,
            worth,
            own.distribution.quantiles((np.arange(DRAWS) + 0.5) / DRAWS) - own.mu,
            chance,
            cluster_values(scores, noise, index)[0].var(axis=1)[order],
        )

    @property
    def rest(self) -> float:
        """The variance of the posterior that no further trial reduces."""
        own = self.posterior.benchmark
        if self.posterior.scope == "benchmark" or own is None:
            return 0.0
        return max(self.posterior.sigma**2 - own.sigma**2, 0.0)

    def progress(self, extra: float) -> float:
        """Return r after `extra` further trials, which may be infinite."""
        return float(1.0 / np.sqrt(1.0 + self.worth / extra)) if extra > 0.0 else 0.0

    def sampling(self, extra: float) -> tuple[FloatArray, FloatArray]:
        """Return the change of the mean, and its sd about these questions, both (D,)."""
        r = self.progress(extra)
        chance = self.chance.mean() + r * (self.chance - self.chance.mean())
        return r * self.offset, np.sqrt(chance / (self.worth + extra))

    def moments(self, extra: float) -> tuple[FloatArray, FloatArray]:
        """Return posterior mean and sd of every draw after `extra` further trials."""
        change, sd = self.sampling(extra)
        mean = self.between.mean()
        grown = 1.0 + self.progress(extra) * (self.between / (mean or 1.0) - 1.0)
        low, high = self.posterior.bounds
        mu = np.clip(self.posterior.mu + change, low, high)
        return mu, np.sqrt(sd**2 + self.rest * grown)

    def widths(self, extra: float) -> FloatArray:
        """Return the width of the credible interval in every draw; see `interval_widths`."""
        own = self.posterior
        spec = IntervalSpec(own.level, own.scope, own.method)
        return interval_widths(*self.moments(extra), own.bounds, spec)


@dataclass(frozen=True, eq=False)
class PredictiveBoard:
    """The predictive draws of several models, and what was observed of shared questions.

    Attributes
    ----------
    scores : tuple of PredictiveScore
        One per model.
    shared : SharedQuestions or None
        In scope "population", where the questions can be paired.
    """

    scores: tuple[PredictiveScore, ...]
    shared: SharedQuestions | None

    @classmethod
    def of(cls, posteriors: Sequence[Posterior]) -> PredictiveBoard:
        """Draw once for every model."""
        shared = SharedQuestions.of(posteriors) if posteriors[0].scope == "population" else None
        return cls(tuple(map(PredictiveScore.of, posteriors)), shared)

    def goal(self, first: int, second: int, target: float) -> Goal:
        """Return the goal of z = |difference| / sd of two models of at least `target`.

        In scope "population" z is that of `compare`: chance becomes less, and the rest, from the
        differences between M questions, changes to what it is drawn to be. The variance of their
        observed differences is that of draws times χ²/(M − 1), with M − 1 degrees of freedom.
        """
        a, b, other = self.scores[first], self.scores[second], PAIRED_WITH

        if self.shared is None:

            def share_apart(extra: float) -> float:
                (mu, sigma), (mu_b, sigma_b) = a.moments(extra), b.moments(extra)
                sd = np.hypot(sigma, sigma_b[other])
                return float(np.mean(np.abs(mu - mu_b[other]) > target * sd))

            return share_apart
        difference = self.shared.difference[first, second]
        sd_now, chance_now, _ = (part[first, second] for part in self.shared.spread)
        rest_now, freedom = sd_now**2 - chance_now**2, self.shared.n_units - 1
        rest = np.maximum(sd_now**2 * _variance_ratios(freedom) - chance_now**2, 0.0)

        def share_apart_paired(extra: float) -> float:
            (change, sd), (change_b, sd_b) = a.sampling(extra), b.sampling(extra)
            rest_then = rest_now + a.progress(extra) * (rest - rest_now)
            apart = np.abs(difference + change - change_b[other])
            return float(np.mean(apart > target * np.sqrt(rest_then + sd**2 + sd_b[other] ** 2)))

        return share_apart_paired


@cache
def _variance_ratios(freedom: int) -> FloatArray:
    """Return draws of a variance over its estimate, in an order unlike that of the scores."""
    mass = (np.arange(DRAWS) * _THIRD % DRAWS + 0.5) / DRAWS
    return np.asarray(0.5 * freedom / special.gammaincinv(0.5 * freedom, mass))


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


def further_trials(goal: Goal, shares: Sequence[float], max_trials: int) -> list[int | None]:
    """Return the fewest trials per question at which given shares of draws reach a goal.

    Parameters
    ----------
    goal : Goal
        Reached in an increasing share of the draws.
    shares : sequence of float
        In (0, 1).
    max_trials : int
        The largest number of trials to evaluate; None stands for more.
    """
    possible = range(1, max_trials + 1)
    cached = cache(goal)
    index = [bisect_left(possible, share, key=cached) for share in shares]
    return [None if i == max_trials else possible[i] for i in index]
