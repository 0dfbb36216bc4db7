"""Credible intervals of a mean of Beta posteriors, without any library.

Used by ``recompute.py``; imports nothing of the package it checks. With M questions and the uniform
prior, question i has the posterior Beta(1 + right_i, 1 + wrong_i), and the benchmark's score is the
mean of the M draws. Its distribution function is had three ways, by M:

* M = 1: a binomial tail;
* M = 2: Gauss-Legendre quadrature, which is exact for polynomials;
* M > 2: the Fourier series of a density on [0, 1], whose coefficients are products of the
  questions' characteristic functions.
"""

from __future__ import annotations

import cmath
import math
from collections import Counter
from collections.abc import Callable, Sequence
from functools import cache
from statistics import NormalDist

Distribution = Callable[[float], float]
Counts = Sequence[tuple[int, int]]  # (right, wrong) of each question

_TERMS = 600  # of the Fourier series; it stops earlier once its terms are negligible


def beta_tail(a: int, b: int, x: float) -> float:
    """P(Beta(a, b) <= x) for whole a, b, as P(Binomial(a + b - 1, x) >= a)."""
    if x <= 0 or x >= 1:
        return float(x >= 1)
    n = a + b - 1
    log_x, log_y = math.log(x), math.log1p(-x)
    logs = [
        math.lgamma(n + 1)
        - math.lgamma(j + 1)
        - math.lgamma(n - j + 1)
        + j * log_x
        + (n - j) * log_y
        for j in range(a, n + 1)
    ]
    return min(1.0, math.fsum(math.exp(v) for v in logs))


def beta_density(a: int, b: int, x: float) -> float:
    norm = math.lgamma(a + b) - math.lgamma(a) - math.lgamma(b)
    return math.exp(norm + (a - 1) * math.log(x) + (b - 1) * math.log1p(-x))


@cache
def legendre(n: int) -> tuple[tuple[float, float], ...]:
    """Nodes and weights of Gauss-Legendre quadrature on [0, 1], by Newton's method."""
    pairs = []
    for i in range(1, n + 1):
        x = math.cos(math.pi * (i - 0.25) / (n + 0.5))
        for _ in range(100):
            before, now = 1.0, x
            for j in range(2, n + 1):
                before, now = now, ((2 * j - 1) * x * now - (j - 1) * before) / j
            slope = n * (x * now - before) / (x * x - 1)
            step = now / slope
            x -= step
            if abs(step) < 1e-15:
                break
        pairs.append(((1 + x) / 2, 1 / ((1 - x * x) * slope * slope)))
    return tuple(pairs)


def mean_distribution(counts: Counts) -> Distribution:
    """Return P(mean of the questions' success rates <= x)."""
    shapes = [(1 + right, 1 + wrong) for right, wrong in counts]
    if len(shapes) == 1:
        return lambda x: beta_tail(*shapes[0], x)
    if len(shapes) == 2:
        return _distribution_of_two(*shapes)
    return _distribution_by_fourier(shapes)


def _distribution_of_two(first: tuple[int, int], second: tuple[int, int]) -> Distribution:
    nodes = legendre(sum(first) + sum(second) + 2)

    def distribution(x: float) -> float:
        # where 2x - u leaves [0, 1], the second factor is constant: split there
        low, high = max(0.0, 2 * x - 1), min(1.0, 2 * x)
        sure = beta_tail(*first, low)
        inner = math.fsum(
            w * beta_density(*first, u) * beta_tail(*second, 2 * x - u)
            for u, w in ((low + (high - low) * t, (high - low) * w) for t, w in nodes)
        )
        return sure + inner

    return distribution


def _distribution_by_fourier(shapes: Sequence[tuple[int, int]]) -> Distribution:
    m = len(shapes)
    groups = Counter(shapes)
    widest = 2 * math.pi * _TERMS / m
    biggest = max(a + b for a, b in groups)
    panels = math.ceil(max(64.0, widest / 6, 6 * math.sqrt(biggest)))
    nodes = [((p + t) / panels, w / panels) for p in range(panels) for t, w in legendre(8)]
    tables = [
        (times, [(u, w * beta_density(a, b, u)) for u, w in nodes])
        for (a, b), times in groups.items()
    ]
    coefficients: list[complex] = []
    quiet = 0
    for n in range(1, _TERMS + 1):
        frequency = -2j * math.pi * n / m
        waves = [cmath.exp(frequency * u) for u, _ in nodes]
        value: complex = 1.0
        for times, table in tables:
            value *= sum(f * wave for (_, f), wave in zip(table, waves, strict=True)) ** times
            if abs(value) < 1e-30:
                break
        coefficients.append(value / (2j * math.pi * n))
        quiet = quiet + 1 if abs(coefficients[-1]) < 1e-15 else 0
        if quiet == 3:
            break

    def distribution(x: float) -> float:
        if x <= 0 or x >= 1:
            return float(x >= 1)
        turn = 2j * math.pi * x
        return x + 2 * math.fsum(
            (c * (cmath.exp(n * turn) - 1)).real for n, c in enumerate(coefficients, 1)
        )

    return distribution


def quantile(distribution: Distribution, mass: float) -> float:
    low, high = 0.0, 1.0
    for _ in range(60):
        middle = (low + high) / 2
        if distribution(middle) < mass:
            low = middle
        else:
            high = middle
    return (low + high) / 2


def exact(counts: Counts, level: float) -> tuple[float, float]:
    distribution = mean_distribution(counts)
    tail = (1 - level) / 2
    return quantile(distribution, tail), quantile(distribution, 1 - tail)


def normal(mu: float, sigma: float, level: float, floor: float, top: float) -> tuple[float, float]:
    z = NormalDist().inv_cdf((1 + level) / 2)
    return max(floor, mu - z * sigma), min(top, mu + z * sigma)


def moment_matched(
    mu: float, sigma: float, level: float, floor: float, top: float
) -> tuple[float, float]:
    """Quantiles of the Beta on [floor, top] that has this mean and sd."""
    m, s = (mu - floor) / (top - floor), sigma / (top - floor)
    size = m * (1 - m) / (s * s) - 1
    a, b = m * size, (1 - m) * size

    def distribution(x: float) -> float:
        return incomplete_beta(a, b, x)

    tail = (1 - level) / 2
    low, high = quantile(distribution, tail), quantile(distribution, 1 - tail)
    return floor + (top - floor) * low, floor + (top - floor) * high


def incomplete_beta(a: float, b: float, x: float) -> float:
    """The regularised incomplete beta function, by its continued fraction (Lentz's method)."""
    if x <= 0 or x >= 1:
        return float(x >= 1)
    if x > (a + 1) / (a + b + 2):
        return 1 - incomplete_beta(b, a, 1 - x)
    front = math.exp(
        math.lgamma(a + b) - math.lgamma(a) - math.lgamma(b) + a * math.log(x) + b * math.log1p(-x)
    )
    tiny = 1e-300
    c, d = 1.0, 1 / (1 - (a + b) * x / (a + 1) or tiny)
    fraction = d
    for j in range(1, 10_000):
        for top in (
            j * (b - j) * x / ((a + 2 * j - 1) * (a + 2 * j)),
            -(a + j) * (a + b + j) * x / ((a + 2 * j) * (a + 2 * j + 1)),
        ):
            d = 1 / (1 + top * d or tiny)
            c = 1 + top / c or tiny
            fraction *= c * d
        if abs(c * d - 1) < 1e-16:
            break
    return front * fraction / a
