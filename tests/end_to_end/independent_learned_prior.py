"""The posterior under a prior that questions share, without any library.

Used by ``recompute.py``; imports nothing of the package it checks. The chances of question i are
theta_i ~ Dirichlet(s m), m ~ Dirichlet(.7, .7) and s / (20 + s) ~ Beta(.7, 1). (m, s) is
integrated out, and the score is one of two: the benchmark's, the mean of w.theta_i, or that of the
population of such questions, w.m. Two weights only. Sums over an even grid in y = log(m / (1 - m))
and l = log s are all but exact for a smooth density with exponential tails. The population's
distribution function comes from the density of y. The benchmark's is a Fourier series, whose
coefficients average the product of the questions' characteristic functions over the grid; where
those die out too slowly (questions that are all but certain), it is drawn.
"""

from __future__ import annotations

import cmath
import itertools
import math
import random
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache, cached_property

from independent_scores import (
    SEED,
    Curve,
    Ends,
    Law,
    Learned,
    Sample,
    Score,
    gammas,
    log_sigmoid,
    rising,
)

_DEPTH = 25.0  # a density e^-25 of the highest is left out
# Nodes of a grid in each direction, and their distance where that makes more of them: there the
# tails are like e^-|y|. The fine grid is right to 1e-8 and the coarse one to 1e-5.
_FINE, _COARSE = (64, 0.3), (40, 0.4)
_FARTHEST = 30  # the frequency up to which a power series of a characteristic function serves


def learned(counts: Sequence[Sequence[int]], weights: Sequence[float]) -> Learned:
    """Return both posteriors, from each question's trials in each category."""
    floor, top = min(weights), max(weights)
    pairs = []
    for row in counts:
        right = sum(c for c, w in zip(row, weights, strict=True) if w == top)
        pairs.append((right, sum(row) - right))
    return _by_grid(tuple(sorted(pairs)), floor, top)


@dataclass(frozen=True)
class Row:
    """What matters at one l: bounds of y, and how far the peak is above what does not matter."""

    log_s: float
    low: float
    high: float
    height: float


class Hyper:
    """The posterior of y = log(m / (1 - m)) and l = log s, up to a constant."""

    def __init__(self, pairs: Sequence[tuple[int, int]], grid: tuple[int, float] = _FINE) -> None:
        self.grid = grid
        self.right = rising(r for r, _ in pairs)
        self.wrong = rising(w for _, w in pairs)
        self.all = rising(r + w for r, w in pairs)
        self.rows = self._rows()

    def log(self, y: float, log_s: float) -> float:
        more, less = log_sigmoid(y), log_sigmoid(-y)
        # on the axes of y and l
        prior = 0.7 * (more + less + log_s) - 1.7 * math.log(20 + math.exp(log_s))
        return prior + self.right(log_s + more) + self.wrong(log_s + less) - self.all(log_s)

    def even(self, low: float, high: float) -> list[float]:
        return even(low, high, max(self.grid[0], math.ceil((high - low) / self.grid[1])))

    def _rows(self) -> list[Row]:
        """Return rows at even values of l."""
        low, high = -30.0, 40.0
        narrower = True
        while narrower:
            axis = even(low, high, 71)
            peaks = [(self._peak(log_s), log_s) for log_s in axis]
            least = max(value for (value, _), _ in peaks) - _DEPTH
            kept = [log_s for (value, _), log_s in peaks if value > least]
            step = axis[1] - axis[0]
            narrower = kept[-1] - kept[0] < 0.5 * (high - low)
            low, high = kept[0] - step, kept[-1] + step
        rows = []
        for log_s in self.even(low, high):
            value, y = self._peak(log_s)
            if value > least:
                left, right = (self._edge(log_s, y, way, least) for way in (-1, 1))
                rows.append(Row(log_s, left, right, value - least))
        return rows

    def _peak(self, log_s: float) -> Ends:
        """Return the highest density at this l, and where: as a function of m it is log-concave."""
        low, high, golden = -45.0, 45.0, (math.sqrt(5) - 1) / 2
        one, two = high - golden * (high - low), low + golden * (high - low)
        first, second = self.log(one, log_s), self.log(two, log_s)
        while high - low > 1e-4:
            if first > second:
                high, two, second = two, one, first
                one = high - golden * (high - low)
                first = self.log(one, log_s)
            else:
                low, one, first = one, two, second
                two = low + golden * (high - low)
                second = self.log(two, log_s)
        return first, one

    def _edge(self, log_s: float, y: float, way: int, least: float) -> float:
        """Return where, that way from the peak at y, the density falls below the least."""
        inside, outside = y, y + 0.01 * way
        while self.log(outside, log_s) > least:
            inside, outside = outside, outside + 2 * (outside - y)
        for _ in range(8):
            middle = (inside + outside) / 2
            if self.log(middle, log_s) > least:
                inside = middle
            else:
                outside = middle
        return outside

    @cached_property
    def nodes(self) -> list[tuple[float, float, float]]:
        """(probability, y, l) of every node that matters; each row has a step of its own."""
        found = []
        for row in self.rows:
            axis = self.even(row.low, row.high)
            step = math.log(axis[1] - axis[0])
            found += [(self.log(y, row.log_s) + step, y, row.log_s) for y in axis]
        top = max(found)[0]
        kept = [(math.exp(v - top), y, log_s) for v, y, log_s in found if v > top - _DEPTH]
        total = math.fsum(w for w, _, _ in kept)
        return [(w / total, y, log_s) for w, y, log_s in kept]


def even(low: float, high: float, n: int) -> list[float]:
    return [low + (high - low) * i / (n - 1) for i in range(n)]


def _shapes(y: float, log_s: float) -> tuple[float, float]:
    """Return s m and s (1 - m)."""
    return math.exp(log_s + log_sigmoid(y)), math.exp(log_s + log_sigmoid(-y))


@cache
def _by_grid(pairs: tuple[tuple[int, int], ...], floor: float, top: float) -> Learned:
    hyper = Hyper(pairs)
    span = top - floor

    def score(moments: Ends, find: Callable[[], Law]) -> Score:
        return Score(floor + span * moments[0], span * moments[1], floor, top, find)

    own = _benchmark_moments(hyper, pairs)
    shares = [(w, 1 / (1 + math.exp(-y))) for w, y, _ in hyper.nodes]
    mean = math.fsum(w * m for w, m in shares)
    sd = math.sqrt(math.fsum(w * (m - mean) ** 2 for w, m in shares))
    return Learned(
        score(own, lambda: _fourier(pairs, *own) or _drawn(hyper, pairs)),
        score((mean, sd), lambda: _population(hyper)),
    )


def _benchmark_moments(hyper: Hyper, pairs: Sequence[tuple[int, int]]) -> Ends:
    """Return mean and sd of the mean of all p_i."""
    found = []
    for weight, y, log_s in hyper.nodes:
        a, b = _shapes(y, log_s)
        mean = variance = 0.0
        for (right, wrong), times in Counter(pairs).items():
            size = right + wrong + a + b
            p, q = (right + a) / size, (wrong + b) / size
            mean += times * p
            variance += times * p * q / (size + 1)
        found.append((weight, mean / len(pairs), variance / len(pairs) ** 2))
    mu = math.fsum(w * mean for w, mean, _ in found)
    return mu, math.sqrt(math.fsum(w * (v + (mean - mu) ** 2) for w, mean, v in found))


def _population(hyper: Hyper) -> Curve:
    """Return the law of m, from the density of y with l summed out."""
    low, high = min(row.low for row in hyper.rows), max(row.high for row in hyper.rows)
    # a normal law that reaches so far down has this sd, and one with longer tails a larger
    sds = [(r.high - r.low) / math.sqrt(8 * r.height) for r in hyper.rows if r.height > _DEPTH / 2]
    axis = even(low, high, math.ceil((high - low) / min(0.1, min(sds) / 8)))
    kept = [row.log_s for row in hyper.rows if row.height > _DEPTH / 6]
    rows = [[hyper.log(y, log_s) for log_s in kept] for y in axis]
    top = max(map(max, rows))
    density = [math.fsum(math.exp(v - top) for v in row) for row in rows]
    step = axis[1] - axis[0]
    total = step * math.fsum(density)
    density = [0.0, *(d / total for d in density), 0.0]
    sums = itertools.accumulate(density)
    below = []
    for i, done in zip(range(1, len(density) - 1), itertools.islice(sums, 1, None), strict=False):
        slope = (density[i + 1] - density[i - 1]) / (2 * step)
        # the trapezoidal rule with the first correction of Euler and Maclaurin
        below.append(step * (done - density[i] / 2) - step**2 / 12 * slope)
    density = density[1:-1]

    def distribution(m: float) -> float:
        if m <= 0 or m >= 1:
            return float(m >= 1)
        place = (math.log(m) - math.log1p(-m) - axis[0]) / step
        if place <= 0 or place >= len(axis) - 1:
            return float(place > 0)
        i = int(place)
        t = place - i
        # the cubic with these values and these slopes
        rise = below[i + 1] - below[i]
        d, e = step * density[i], step * density[i + 1]
        return below[i] + t * (d + t * (3 * rise - 2 * d - e + t * (d + e - 2 * rise)))

    return Curve(distribution, 0.0, 1.0)


def _fourier(pairs: Sequence[tuple[int, int]], mu: float, sigma: float) -> Curve | None:
    """Return the law of the mean of all p_i, or None where its series is too long."""
    low, high = max(0.0, mu - 20 * sigma), min(1.0, mu + 20 * sigma)
    first = 2 * math.pi / (high - low)
    most = int(min(_FARTHEST * len(pairs), 16 / sigma) / first)
    nodes = [node for node in Hyper(pairs, _COARSE).nodes if node[0] > 1e-8]
    tables = [_Transforms(y, log_s, pairs) for _, y, log_s in nodes]

    def coefficient(n: int) -> complex:
        """E exp(-2 pi i n (score - low) / (high - low)) / (2 pi i n)."""
        frequency = n * first / len(pairs)
        value = sum(w * table(frequency) for (w, _, _), table in zip(nodes, tables, strict=True))
        return value * cmath.exp(1j * n * first * low) / (2j * math.pi * n)

    coefficients: list[complex] = []
    quiet = 0
    while quiet < 3:
        n = len(coefficients) + 1
        coefficients.append(coefficient(n))
        size = abs(coefficients[-1])
        quiet = quiet + 1 if size < 1e-6 else 0
        # a normal law's would be e^-18 by then
        if n >= most or (n * first * sigma > 6 and size > 1e-3):
            return None
    offset = math.fsum(c.real for c in coefficients)

    def distribution(x: float) -> float:
        if x <= low or x >= high:
            return float(x >= high)
        u = (x - low) / (high - low)
        turn = cmath.exp(2j * math.pi * u)
        value: complex = 0.0
        for c in reversed(coefficients):
            value = (value + c) * turn
        return u + 2 * (value.real - offset)

    return Curve(distribution, low, high)


class _Transforms:
    """E exp(-i t sum of p) over all questions, at one node of the grid."""

    def __init__(self, y: float, log_s: float, pairs: Sequence[tuple[int, int]]) -> None:
        up, down = _shapes(y, log_s)
        self.turns = 0  # how many questions are taken by their 1 - p
        self.tables: list[tuple[int, bool, list[float], list[float]]] = []
        for (right, wrong), times in Counter(pairs).items():
            a, b = right + up, wrong + down
            # of p and 1 - p the smaller one's series cancels less
            turned = a > b
            small, size = min(a, b), a + b
            series = [1.0]
            for k in range(4 * _FARTHEST):
                # E p^k / k! of a Beta
                series.append(series[-1] * (small + k) / ((size + k) * (k + 1)))
            self.turns += times * turned
            self.tables.append((times, turned, series[0::2], series[1::2]))

    def __call__(self, t: float) -> complex:
        square, terms = -t * t, 8 + int(1.6 * t)
        product = cmath.exp(-1j * t * self.turns)
        for times, turned, even_terms, odd_terms in self.tables:
            real = imaginary = 0.0
            for c in reversed(even_terms[:terms]):
                real = real * square + c
            for c in reversed(odd_terms[:terms]):
                imaginary = imaginary * square + c
            product *= complex(real, t * imaginary if turned else -t * imaginary) ** times
        return product


def _drawn(hyper: Hyper, pairs: Sequence[tuple[int, int]], draws: int = 20_000) -> Sample:
    """Draw the mean of all p_i."""
    rng = random.Random(SEED)
    draws = min(draws, max(4000, 1_000_000 // len(pairs)))
    weights = [w for w, _, _ in hyper.nodes]
    chosen = rng.choices(hyper.nodes, weights, k=draws)
    scores = []
    for _, y, log_s in chosen:
        a, b = _shapes(y, log_s)
        betas = (gammas((r + a, w + b), rng) for r, w in pairs)
        scores.append(math.fsum(x / (x + y) for x, y in betas) / len(pairs))
    return Sample(scores, draws)
