"""Benchmarks of unkind shapes, and real counts: intervals hold what they are about."""

from __future__ import annotations

import csv

import numpy as np
import pytest
from _support.outcomes import binary_outcomes

from lm_eval_bayes import hbayes_at_n, maj_at_k_posterior
from lm_eval_bayes.stats.intervals import SCOPES
from lm_eval_bayes.stats.pass_family_estimators import PassQuantity
from lm_eval_bayes.stats.pass_family_posteriors import pass_posteriors

M = 30


def mostly(common, rare, share, rng):
    return np.where(rng.random(M) < share, rare, common)


#: Draws of p of M questions, and the mean over their population.
SHAPES = {
    "several kinds": (lambda rng: mostly(rng.beta(25, 2, M), 0.0, 0.3, rng), 0.7 * 25 / 27),
    "one outlier": (lambda rng: mostly(0.1, 0.95, 1 / M, rng), 0.1 + 0.85 / M),
    "never": (lambda rng: np.full(M, 0.002), 0.002),
    "near 1": (lambda rng: rng.beta(50, 1, M), 50 / 51),
    "U-shaped": (lambda rng: rng.beta(0.2, 0.3, M), 0.4),
    "equal": (lambda rng: np.full(M, 0.5), 0.5),
}
QUANTITIES = [
    PassQuantity(name, k) for name in ("pass@k", "pass^k", "mg-pass@k") for k in (2, 4, 16)
] + [PassQuantity("g-pass@k", k, 0.5) for k in (2, 16)]


@pytest.mark.parametrize("n", [1, 4, 16])
@pytest.mark.parametrize("shape", SHAPES)
def test_no_posterior_mean_lies_outside_its_interval(shape, n):
    rng = np.random.default_rng(n)
    right = rng.binomial(n, SHAPES[shape][0](rng))
    outcomes = binary_outcomes(right, n)
    marks = [[True] * x + [False] * (n - x) for x in right]
    answers = [["r" if mark else str(rng.integers(3)) for mark in row] for row in marks]
    for scope in SCOPES:
        posteriors = [
            hbayes_at_n(outcomes, scope),
            *pass_posteriors(outcomes, QUANTITIES, scope=scope),
            maj_at_k_posterior(answers, marks, 4, scope),
        ]
        for posterior in posteriors:
            interval = posterior.interval()
            name = f"{posterior.quantity}, k = {posterior.k}, {scope}"
            assert interval.low <= posterior.mu <= interval.high, name
            assert posterior.bounds[0] <= interval.low < interval.high <= posterior.bounds[1], name


@pytest.mark.slow
@pytest.mark.parametrize("n", [4, 16])
@pytest.mark.parametrize("shape", SHAPES)
def test_intervals_hold_the_score_and_its_population(shape, n):
    draw, population = SHAPES[shape]
    rng = np.random.default_rng([n, 1])
    held, runs = dict.fromkeys(SCOPES, 0), 300
    for _ in range(runs):
        p = draw(rng)
        outcomes = binary_outcomes(rng.binomial(n, p), n)
        for scope, truth in zip(SCOPES, (p.mean(), population), strict=True):
            interval = hbayes_at_n(outcomes, scope).interval()
            held[scope] += interval.low <= truth <= interval.high
    # two standard errors below
    assert min(held.values()) >= (0.89 - 2 * (0.89 * 0.11 / runs) ** 0.5) * runs, held


@pytest.fixture(scope="module")
def real_counts(shared):
    """The right answers of 128 to 69 questions, by model."""
    with (shared / "data" / "outcomes" / "counts128_aime24_amc23.csv").open() as file:
        rows = list(csv.DictReader(file))
    return {name: np.array([int(row[name]) for row in rows]) for name in ("c_base", "c_rl")}


@pytest.mark.parametrize(("name", "most"), [("c_base", 0.35), ("c_rl", 0.7)])
def test_the_population_of_real_counts_is_about_their_mean(real_counts, name, most):
    """Of c_rl one U-shaped kind is the most probable, whose mean lies below that of the trials."""
    counts = real_counts[name]
    rng = np.random.default_rng(0)
    for n in (4, 16, 128):
        right = rng.hypergeometric(counts, 128 - counts, n)
        posterior = hbayes_at_n(binary_outcomes(right, n), "population")
        average = right.mean() / n
        assert abs(posterior.mu - average) <= most * posterior.sigma
        assert posterior.benchmark.mu == pytest.approx(average, abs=0.3 * posterior.benchmark.sigma)
        interval = posterior.interval()
        assert interval.low < counts.mean() / 128 < interval.high


@pytest.mark.slow
@pytest.mark.parametrize("n", [4, 16])
def test_intervals_of_real_counts_hold(real_counts, n):
    rng = np.random.default_rng(n)
    held, runs = dict.fromkeys(SCOPES, 0), 200
    for _ in range(runs):
        counts = rng.choice(real_counts["c_base"], M)
        right = rng.hypergeometric(counts, 128 - counts, n)
        truths = (counts.mean() / 128, real_counts["c_base"].mean() / 128)
        for scope, truth in zip(SCOPES, truths, strict=True):
            interval = hbayes_at_n(binary_outcomes(right, n), scope).interval()
            held[scope] += interval.low <= truth <= interval.high
    assert min(held.values()) >= (0.89 - 2 * (0.89 * 0.11 / runs) ** 0.5) * runs, held
