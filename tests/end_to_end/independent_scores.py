"""Posteriors of a score, and the tools of their grids. No library is needed.

Used by ``recompute.py`` through ``independent_learned_prior.py``; imports nothing of the package it
checks. A law is computed (`Curve`) or stands in draws (`Sample`), and then says how far its
quantiles may be off by chance.
"""

from __future__ import annotations

import math
import random
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property

import independent_interval as interval

Real = Callable[[float], float]
Ends = tuple[float, float]

SEED = 20260101


class Curve:
    """A law with a computed distribution function on [low, high]."""

    def __init__(self, distribution: Real, low: float, high: float) -> None:
        self.distribution, self.low, self.high = distribution, low, high

    def quantile(self, mass: float) -> float:
        span = self.high - self.low
        unit = interval.quantile(lambda u: self.distribution(self.low + span * u), mass)
        return self.low + span * unit

    def slack(self, mass: float) -> float:
        """How far a quantile may be off by chance."""
        return 0.0


class Sample:
    """A law that only draws stand for; they count as `effective` independent ones."""

    def __init__(self, draws: Iterable[float], effective: float) -> None:
        self.draws, self.effective = sorted(draws), effective

    def quantile(self, mass: float) -> float:
        place = min(max(mass, 0.0), 1.0) * (len(self.draws) - 1)
        below = min(int(place), len(self.draws) - 2)
        left, right = self.draws[below : below + 2]
        return left + (place - below) * (right - left)

    def slack(self, mass: float) -> float:
        """Four standard errors of a quantile: those of its mass, looked up among the draws."""
        off = 4 * math.sqrt(mass * (1 - mass) / self.effective)
        middle = self.quantile(mass)
        return max(middle - self.quantile(mass - off), self.quantile(mass + off) - middle)


Law = Curve | Sample


@dataclass(frozen=True)
class Score:
    """The posterior of one score: its moments, and its law once that is asked for."""

    mu: float
    sigma: float
    floor: float
    top: float
    find: Callable[[], Law]

    @cached_property
    def law(self) -> Law:
        return self.find()

    @cached_property
    def _known(self) -> dict[tuple[str, float], Ends]:
        return {}

    def ends(self, method: str, level: float) -> Ends:
        """Return the ends of an interval that holds the level."""
        if (method, level) not in self._known:
            self._known[method, level] = self._ends(method, level)
        return self._known[method, level]

    def _ends(self, method: str, level: float) -> Ends:
        if method == "normal":
            return interval.normal(self.mu, self.sigma, level, self.floor, self.top)
        if method == "beta":
            return interval.moment_matched(self.mu, self.sigma, level, self.floor, self.top)
        tail, span = (1 - level) / 2, self.top - self.floor
        low, high = self.law.quantile(tail), self.law.quantile(tail + level)
        return self.floor + span * low, self.floor + span * high

    def slack(self, level: float) -> float:
        """How far the ends of an equal-tailed interval may be off by chance."""
        tail = (1 - level) / 2
        return (self.top - self.floor) * max(map(self.law.slack, (tail, 1 - tail)))


@dataclass(frozen=True)
class Learned:
    benchmark: Score
    population: Score


def gammas(shapes: Sequence[float], rng: random.Random) -> list[float]:
    """Draw gamma variates up to a common factor, which keeps them from all being nought."""
    if max(shapes) > 1:
        return [rng.gammavariate(a, 1) if a else 0.0 for a in shapes]
    # Gamma(a) is Gamma(a + 1) U^(1/a); in logs, for it may be too small for a float
    logs = [
        math.log(rng.gammavariate(a + 1, 1)) + math.log(1 - rng.random()) / a if a else -math.inf
        for a in shapes
    ]
    return [math.exp(v - max(logs)) for v in logs]


def rising(counts: Iterable[int]) -> Real:
    """Return the sum of log(a (a + 1) ... (a + c - 1)) over counts c, as a function of log a."""
    times = Counter(c for c in counts if c)
    most = max(times, default=0)
    above = [sum(t for c, t in times.items() if c > j) for j in range(most)]

    def log_product(log_a: float) -> float:
        if not above:
            return 0.0
        a = math.exp(log_a)
        return above[0] * log_a + sum(t * math.log(a + j) for j, t in enumerate(above) if j)

    return log_product


def log_sigmoid(y: float) -> float:
    return min(y, 0.0) - math.log1p(math.exp(-abs(y)))
