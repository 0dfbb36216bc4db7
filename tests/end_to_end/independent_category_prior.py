"""The posterior under a prior that questions share, for more than two weights, by draws.

Used by ``recompute.py`` through ``independent_learned_prior.py``, which states the model; imports
nothing of the package it checks. The K shares are m ~ Dirichlet(1.4/K, ..., 1.4/K), and
s / (20 + s) ~ Beta(.7, 1). Categories of one weight are merged first. Chains
walk in the logs of m and s and take one another's differences for steps [ter Braak 2006]; for a
single question, draws from the prior are weighted by its likelihood. Given m and s all moments are
known.
"""

from __future__ import annotations

import bisect
import itertools
import math
import random
from collections import Counter
from collections.abc import Callable, Sequence
from functools import cache

from independent_scores import (
    SEED,
    Law,
    Learned,
    Sample,
    Score,
    draw,
    expected,
    log_sigmoid,
    rising,
)

_MEAN, _SCALE, _SHAPE = 1.4, 20.0, 0.7


@cache
def by_chains(counts: tuple[tuple[int, ...], ...], weights: tuple[float, ...]) -> Learned:
    if len(set(weights)) < len(weights):
        distinct = tuple(sorted(set(weights)))
        merged = [
            tuple(sum(c for c, v in zip(row, weights, strict=True) if v == w) for w in distinct)
            for row in counts
        ]
        return by_chains(tuple(sorted(merged)), distinct)
    floor, top = min(weights), max(weights)
    unit = [(w - floor) / (top - floor) for w in weights]
    if len(counts) == 1:
        states, worth = _weighted(counts[0])
    else:
        states, worth = _chained(counts), None
    shares = _spread_out([expected(shape, unit) for shape in states], counts, unit, states)
    rows = Counter(counts)
    means, within = [], []
    for shape in states:
        mean = variance = 0.0
        for row, times in rows.items():
            nu = [a + c for a, c in zip(shape, row, strict=True)]
            m = expected(nu, unit)
            square = expected(nu, [(u - m) ** 2 for u in unit])
            mean += times * m
            variance += times * square / (sum(nu) + 1)
        means.append(mean / len(counts))
        within.append(variance / len(counts) ** 2)

    def score(values: list[float], extra: float, find: Callable[[float], Law]) -> Score:
        mu = math.fsum(values) / len(values)
        between = math.fsum((v - mu) ** 2 for v in values) / len(values)
        sigma = math.sqrt(between + extra)
        effective = worth or _effective(values, mu, between)
        span = top - floor
        slack = 4 / math.sqrt(effective)
        law = cache(lambda: find(effective))
        return Score(floor + span * mu, span * sigma, floor, top, law, slack)

    def drawn(effective: float) -> Sample:
        rng = random.Random(SEED)
        chosen = states[:: math.ceil(len(states) / max(1000, min(5000, 400_000 // len(counts))))]
        draws = [draw(shape, counts, unit, rng) for shape in chosen]
        return Sample(draws, min(effective, len(draws)))

    return Learned(
        score(means, math.fsum(within) / len(within), drawn),
        score(shares, 0.0, lambda effective: Sample(shares, effective)),
    )


def _spread_out(
    values: list[float],
    counts: Sequence[Sequence[int]],
    unit: Sequence[float],
    states: Sequence[Sequence[float]],
) -> list[float]:
    """Return the population's score in each state, spread by Pearson's dispersion.

    The question's average scores are compared with the variances that are expected of them.
    """
    tried = [row for row in counts if sum(row) >= 2]
    if len(unit) < 3 or len(tried) < 2:
        return values

    def expected_square(n: int) -> float:
        total = 0.0
        for shape, value in zip(states, values, strict=True):
            s = sum(shape)
            variance = expected(shape, [(u - value) ** 2 for u in unit])
            total += variance * (1 / n + (1 - 1 / n) / (s + 1))
        return total / len(states)

    squares = {n: expected_square(n) for n in {sum(row) for row in tried}}
    averages = [(expected(row, unit), squares[sum(row)]) for row in tried]
    centre = sum(a / v for a, v in averages) / sum(1 / v for _, v in averages)
    pearson = sum((a - centre) ** 2 / v for a, v in averages)
    factor = math.sqrt(max(1.0, (5 + pearson) / (5 + len(tried) - 1)))
    mean = math.fsum(values) / len(values)
    middle = math.log(mean / (1 - mean))
    spread = []
    for value in values:
        y = middle + factor * (math.log(value / (1 - value)) - middle)
        spread.append(math.exp(log_sigmoid(y)))
    return spread


def _effective(values: Sequence[float], mu: float, variance: float) -> float:
    """How many independent draws the states are worth, from the means of 25 stretches."""
    size = len(values) // 25
    batches = [math.fsum(values[i * size : (i + 1) * size]) / size - mu for i in range(25)]
    return min(25 * 24 * variance / math.fsum(b * b for b in batches), len(values))


@cache
def _prior(size: int, draws: int = 16_000) -> list[tuple[float, list[float]]]:
    """Draw log s and the logs of m from their prior."""
    rng = random.Random(SEED)
    found = []
    for i in range(draws):
        u = ((i + rng.random()) / draws) ** (1 / _SHAPE)
        shares = [rng.gammavariate(_MEAN / size, 1) for _ in range(size)]
        total = math.fsum(shares)
        found.append((math.log(_SCALE * u / (1 - u)), [math.log(x / total) for x in shares]))
    return found


def _weighted(row: Sequence[int], kept: int = 4000) -> tuple[list[list[float]], float]:
    """Return draws of s m given one question, and how many independent ones they are worth."""
    terms, total = [rising([c]) for c in row], rising([sum(row)])
    prior = _prior(len(row))
    logs = [
        sum(term(log_s + share) for term, share in zip(terms, shares, strict=True)) - total(log_s)
        for log_s, shares in prior
    ]
    top = max(logs)
    likely = [math.exp(v - top) for v in logs]
    sums = list(itertools.accumulate(likely))
    effective = sums[-1] ** 2 / math.fsum(v * v for v in likely)
    chosen = [bisect.bisect_left(sums, (i + 0.5) / kept * sums[-1]) for i in range(kept)]
    states = [[math.exp(prior[i][0] + share) for share in prior[i][1]] for i in chosen]
    return states, 1 / (1 / effective + 1 / kept)


def _chained(counts: Sequence[Sequence[int]], evaluations: int = 30_000) -> list[list[float]]:
    """Return draws of s m, from chains that take one another's differences for steps."""
    rng = random.Random(SEED)
    columns = list(zip(*counts, strict=True))
    terms, total = [rising(column) for column in columns], rising(map(sum, counts))

    def log_shares(place: Sequence[float]) -> list[float]:
        # log(m_k / m_0) for every k > 0, and log s
        ratios = [0.0, *place[:-1]]
        top = max(ratios)
        size = top + math.log(math.fsum(math.exp(r - top) for r in ratios))
        return [r - size for r in ratios]

    def log_density(place: Sequence[float]) -> float:
        log_s, shares = place[-1], log_shares(place)
        if not -50 < log_s < 50 or min(shares) < -300:
            return -math.inf
        # on the axes of log m and log s
        prior = _MEAN / len(shares) * sum(shares) + _SHAPE * log_s
        prior -= (_SHAPE + 1) * math.log(_SCALE + math.exp(log_s))
        likely = sum(term(log_s + share) for term, share in zip(terms, shares, strict=True))
        return prior + likely - total(log_s)

    trials = sum(map(sum, counts)) / len(counts)
    chains = []
    for _ in range(6 * len(columns)):
        gammas = [rng.gammavariate(1 + sum(c) / max(trials, 1), 1) for c in columns]
        u = rng.random()
        place = [math.log(g / gammas[0]) for g in gammas[1:]] + [math.log((1 - u) / u)]
        chains.append((log_density(place), place))
    found = []
    stretch = 2.38 / math.sqrt(2 * len(columns))
    rounds = evaluations // len(chains)
    for turn in range(rounds):
        factor = 1.0 if turn % 10 == 9 else stretch
        for i, (value, place) in enumerate(chains):
            first, second = rng.sample(range(len(chains) - 1), 2)
            # the chain itself is none of the two
            one, two = (chains[j + (j >= i)][1] for j in (first, second))
            step = [
                p + factor * (a - b) + rng.gauss(0, 1e-4)
                for p, a, b in zip(place, one, two, strict=True)
            ]
            new = log_density(step)
            if math.log(1 - rng.random()) < new - value:
                chains[i] = new, step
        if turn >= rounds // 5:
            found += [
                [math.exp(place[-1] + share) for share in log_shares(place)] for _, place in chains
            ]
    return found
