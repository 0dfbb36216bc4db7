"""Goals for further trials, and the number of trials at which they are reached."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

import numpy as np
import numpy.typing as npt
from scipy import special

from lm_eval_bayes.stats.comparison.difference import paired_spread
from lm_eval_bayes.stats.comparison.shared_questions import SharedQuestions
from lm_eval_bayes.stats.distributions.beta import beta_quantile
from lm_eval_bayes.stats.intervals import IntervalSpec
from lm_eval_bayes.stats.sequential.predictive_draws import PredictivePopulation, PredictiveTrials
from lm_eval_bayes.stats.validation import FloatArray, IntArray

#: Factor between the numbers of trials of the coarse search.
_STRIDE = 4
#: Numbers of trials evaluated between the limits of the band.
_FINE = 16
#: Bisections after that, for each of the wanted shares.
_ROUNDS = 3
#: From this sum of its parameters a Beta distribution has the normal interval's width.
_NORMAL = 1e8


class Goal(Protocol):
    """A goal to be reached by further trials."""

    @property
    def done(self) -> bool:
        """Whether it is reached already."""

    def reached(self, extra: int, rng: np.random.Generator) -> npt.NDArray[np.bool_]:
        """Return which draws have reached it after `extra` further trials per question."""


@dataclass(frozen=True, eq=False)
class WidthGoal:
    """A credible interval at most `target` wide.

    Parameters
    ----------
    predictive : PredictiveTrials or PredictivePopulation
        The posterior predictive draws.
    target, current : float
        The width to be reached, and the width now.
    bounds : tuple of float
        The smallest and the largest score that are possible.
    spec : IntervalSpec
        Level and method of the interval. Any method but "normal" is represented by the
        moment-matched Beta.
    """

    predictive: PredictiveTrials | PredictivePopulation
    target: float
    current: float
    bounds: tuple[float, float]
    spec: IntervalSpec

    @property
    def done(self) -> bool:
        """Whether the interval is narrow enough already."""
        return self.current <= self.target

    def reached(self, extra: int, rng: np.random.Generator) -> npt.NDArray[np.bool_]:
        """Return the predictive draws in which the interval is narrow enough."""
        mu, sigma = self.predictive.moments(extra, rng)
        return np.asarray(self._widths(mu, sigma) <= self.target)

    def limit(self) -> float | None:
        """Return the median of the limiting width for many trials, None where it is 0."""
        if isinstance(self.predictive, PredictiveTrials):
            return None
        return float(np.median(self._widths(*self.predictive.at_last())))

    def _widths(self, mu: FloatArray, sigma: FloatArray) -> FloatArray:
        """Return the width of the interval at each mean and sd."""
        return interval_widths(mu, sigma, self.bounds, self.spec)


@dataclass(frozen=True, eq=False)
class SeparationGoal:
    """Two models' z = |μ − μ'| / sqrt(σ² + σ'²) at least `target`.

    Parameters
    ----------
    predictive : pair of PredictiveTrials or PredictivePopulation
        The posterior predictive draws of the two models.
    target, current : float
        The z to be reached, and the z now.
    """

    predictive: tuple[
        PredictiveTrials | PredictivePopulation, PredictiveTrials | PredictivePopulation
    ]
    target: float
    current: float

    @property
    def done(self) -> bool:
        """Whether the current z reaches the target."""
        return self.current >= self.target

    def reached(self, extra: int, rng: np.random.Generator) -> npt.NDArray[np.bool_]:
        """Return the predictive draws in which z reaches the target."""
        (mu, sigma), (mu_other, sigma_other) = (f.moments(extra, rng) for f in self.predictive)
        return np.asarray(np.abs(mu - mu_other) > self.target * np.hypot(sigma, sigma_other))


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
    goal: Goal, shares: tuple[float, ...], max_trials: int, rng: np.random.Generator
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
    rng : Generator
        The source of the predicted trials.

    Returns
    -------
    needed : list of int or None
        One per share, None where it takes more than `max_trials`.
    last : float
        The share at `max_trials`.
    """
    if goal.done:
        return [0] * len(shares), 1.0
    coarse = [1]
    while coarse[-1] < max_trials:
        coarse.append(min(coarse[-1] * _STRIDE, max_trials))
    share_at = {n: float(goal.reached(n, rng).mean()) for n in (1, max_trials)}
    last = share_at[max_trials]
    for n in coarse[1:-1]:
        share_at[n] = float(goal.reached(n, rng).mean())
        if share_at[n] > 0.5 * (1.0 + shares[-1]):
            break
    visited = sorted(share_at)
    first = max([n for n in visited if share_at[n] < shares[0]], default=1)
    final = min([n for n in visited if n > first and share_at[n] >= shares[-1]], default=max_trials)
    more = np.unique(np.geomspace(first, final, _FINE).round().astype(np.int64)).tolist()
    for _ in range(1 + _ROUNDS):
        for n in more:
            if n not in share_at:
                share_at[n] = float(goal.reached(n, rng).mean())
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


@dataclass(frozen=True, eq=False)
class PairedSeparationGoal:
    """Two models' z in scope "population" at least `target`, with paired questions.

    The predictive draws are those of the given questions, as in scope "benchmark": category
    probabilities of every question, and trials from them. For the population of questions they
    give the z of `compare`, whose sd has a part that no trials reduce: the variation of the
    differences between questions.

    Parameters
    ----------
    predictive : pair of PredictiveTrials
        The predictive draws of the two models' benchmark posteriors.
    columns : pair of array of int, shape (M,)
        The column of each of the first model's questions.
    target, current : float
        The z to be reached, and the z now.
    """

    predictive: tuple[PredictiveTrials, PredictiveTrials]
    columns: tuple[IntArray, IntArray]
    target: float
    current: float

    @classmethod
    def of(
        cls,
        shared: SharedQuestions,
        target: float,
        current: float,
        draws: int,
        rng: np.random.Generator,
    ) -> PairedSeparationGoal:
        """Draw from the predictive distributions of two models on the same questions."""
        first, second = (
            PredictiveTrials.of(posterior, draws, rng) for posterior in shared.posteriors
        )
        columns = shared.columns[0], shared.columns[1]
        return cls((first, second), columns, target, current)

    @property
    def done(self) -> bool:
        """Whether the current z reaches the target."""
        return self.current >= self.target

    def reached(self, extra: int, rng: np.random.Generator) -> npt.NDArray[np.bool_]:
        """Return the predictive draws in which z reaches the target."""
        (first, noise), (second, other_noise) = (
            (average[:, columns], noise[:, columns])
            for (average, noise), columns in zip(
                (predictive.question_averages(extra, rng) for predictive in self.predictive),
                self.columns,
                strict=True,
            )
        )
        return self._reaches(first - second, noise + other_noise)

    def at_last(self) -> float:
        """Return the share of draws whose z reaches the target in the limit of many trials."""
        first, second = (
            (predictive.truth @ predictive.unit)[:, columns]
            for predictive, columns in zip(self.predictive, self.columns, strict=True)
        )
        return float(self._reaches(first - second, np.zeros_like(first)).mean())

    def _reaches(self, difference: FloatArray, noise: FloatArray) -> npt.NDArray[np.bool_]:
        """Return whether z reaches the target, per draw."""
        sd = paired_spread(difference, noise).sd
        return np.asarray(np.abs(difference.mean(axis=1)) > self.target * sd)
