"""Goals that further trials can reach, and the number of trials at which they do."""

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
from lm_eval_bayes.stats.sequential.predictive_draws import FuturePopulation, FutureTrials
from lm_eval_bayes.stats.validation import FloatArray, IntArray

#: Each further look of the coarse search goes so many times as far.
_STRIDE = 4
#: Numbers of trials looked at between the ends of the band.
_FINE = 16
#: After that, so many times half-way between the nearest two for each answer.
_ROUNDS = 3
#: A Beta distribution of so many trials has the normal interval's width.
_NORMAL = 1e8


class Goal(Protocol):
    """Something to be reached by further trials."""

    @property
    def done(self) -> bool:
        """Whether it is reached already."""

    def reached(self, extra: int, rng: np.random.Generator) -> npt.NDArray[np.bool_]:
        """Say which futures have reached it after `extra` further trials a question."""


@dataclass(frozen=True, eq=False)
class WidthGoal:
    """A credible interval at most `target` wide.

    Parameters
    ----------
    future : FutureTrials or FuturePopulation
        The futures of the posterior.
    target, current : float
        The width to be reached, and the width now.
    bounds : tuple of float
        The smallest and the largest score that are possible.
    spec : IntervalSpec
        Level and method of the interval. Any method but "normal" is represented by the
        moment-matched Beta.
    """

    future: FutureTrials | FuturePopulation
    target: float
    current: float
    bounds: tuple[float, float]
    spec: IntervalSpec

    @property
    def done(self) -> bool:
        """Whether the interval is narrow enough already."""
        return self.current <= self.target

    def reached(self, extra: int, rng: np.random.Generator) -> npt.NDArray[np.bool_]:
        """Say in which futures the interval is narrow enough."""
        mu, sigma = self.future.moments(extra, rng)
        return np.asarray(self._widths(mu, sigma) <= self.target)

    def limit(self) -> float | None:
        """Return the median width that no number of trials gets below, None where it is 0."""
        if isinstance(self.future, FutureTrials):
            return None
        return float(np.median(self._widths(*self.future.at_last())))

    def _widths(self, mu: FloatArray, sigma: FloatArray) -> FloatArray:
        """Return the width of the interval at each mean and sd."""
        return interval_widths(mu, sigma, self.bounds, self.spec)


@dataclass(frozen=True, eq=False)
class SeparationGoal:
    """Two models' z = |μ − μ'| / sqrt(σ² + σ'²) at least `target`.

    Parameters
    ----------
    futures : pair of FutureTrials or FuturePopulation
        The futures of the two models.
    target, current : float
        The z to be reached, and the z now.
    """

    futures: tuple[FutureTrials | FuturePopulation, FutureTrials | FuturePopulation]
    target: float
    current: float

    @property
    def done(self) -> bool:
        """Whether the models are so far apart already."""
        return self.current >= self.target

    def reached(self, extra: int, rng: np.random.Generator) -> npt.NDArray[np.bool_]:
        """Say in which futures the models are so far apart."""
        (mu, sigma), (mu_other, sigma_other) = (f.moments(extra, rng) for f in self.futures)
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
    """Return after how many trials a question given shares of the futures have reached a goal.

    The share of futures is looked at in strides of four, then at some numbers between the
    strides that enclose the answers, then closer and closer to each answer. What is left
    between is taken to rise evenly in the logarithm of the trials.

    Parameters
    ----------
    goal : Goal
        Reached in a growing share of the futures.
    shares : tuple of float
        In (0, 1), rising.
    max_trials : int
        The most trials to look at.
    rng : Generator
        The source of the futures' trials.

    Returns
    -------
    needed : list of int or None
        One a share, None where it takes more than `max_trials`.
    last : float
        The share at `max_trials`.
    """
    if goal.done:
        return [0] * len(shares), 1.0
    coarse = [1]
    while coarse[-1] < max_trials:
        coarse.append(min(coarse[-1] * _STRIDE, max_trials))
    seen = {n: float(goal.reached(n, rng).mean()) for n in (1, max_trials)}
    last = seen[max_trials]
    for n in coarse[1:-1]:
        seen[n] = float(goal.reached(n, rng).mean())
        if seen[n] > 0.5 * (1.0 + shares[-1]):
            break
    visited = sorted(seen)
    first = max([n for n in visited if seen[n] < shares[0]], default=1)
    final = min([n for n in visited if n > first and seen[n] >= shares[-1]], default=max_trials)
    more = np.unique(np.geomspace(first, final, _FINE).round().astype(np.int64)).tolist()
    for _ in range(1 + _ROUNDS):
        for n in more:
            if n not in seen:
                seen[n] = float(goal.reached(n, rng).mean())
        trials, share = _rising(seen)
        more = [_between(trials, share, wanted) for wanted in shares]
    return [_first(trials, share, wanted) for wanted in shares], last


def _rising(seen: dict[int, float]) -> tuple[FloatArray, FloatArray]:
    """Return the numbers of trials looked at, and shares that rise with them.

    The futures scatter: half-way between the tightest rising curves above and below the
    shares lies the best guess.
    """
    trials = np.array(sorted(seen), dtype=np.float64)
    share = np.array([seen[int(n)] for n in trials])
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
    """Two models' z in scope "population" at least `target`, their questions being paired.

    The futures are those of the questions at hand, as in scope "benchmark": a truth for each
    question, and trials from it. What they say of questions like these is then the z of
    `compare`, whose sd has a part that no trials reduce: how much the questions' differences
    differ.

    Parameters
    ----------
    futures : pair of FutureTrials
        The futures of the two models' benchmark posteriors.
    columns : pair of array of int, shape (M,)
        Where each keeps the first one's questions.
    target, current : float
        The z to be reached, and the z now.
    """

    futures: tuple[FutureTrials, FutureTrials]
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
        """Draw the futures of two models on the same questions."""
        first, second = (FutureTrials.of(each, draws, rng) for each in shared.posteriors)
        columns = shared.columns[0], shared.columns[1]
        return cls((first, second), columns, target, current)

    @property
    def done(self) -> bool:
        """Whether the models are so far apart already."""
        return self.current >= self.target

    def reached(self, extra: int, rng: np.random.Generator) -> npt.NDArray[np.bool_]:
        """Say in which futures the models are so far apart."""
        (first, noise), (second, other_noise) = (
            (average[:, columns], noise[:, columns])
            for (average, noise), columns in zip(
                (future.question_averages(extra, rng) for future in self.futures),
                self.columns,
                strict=True,
            )
        )
        return self._apart(first - second, noise + other_noise)

    def at_last(self) -> float:
        """Return the share of futures in which endless trials would bring them so far apart."""
        first, second = (
            (future.truth @ future.unit)[:, columns]
            for future, columns in zip(self.futures, self.columns, strict=True)
        )
        return float(self._apart(first - second, np.zeros_like(first)).mean())

    def _apart(self, difference: FloatArray, noise: FloatArray) -> npt.NDArray[np.bool_]:
        """Hold z against the target."""
        sd = paired_spread(difference, noise).sd
        return np.asarray(np.abs(difference.mean(axis=1)) > self.target * sd)
