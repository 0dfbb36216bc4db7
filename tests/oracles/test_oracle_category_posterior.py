"""The learned prior of rubrics against weighted draws, closed forms and simulation."""

from __future__ import annotations

import numpy as np
import pytest
from _support.weighted_prior import posterior_draws, prior_draws, summary
from scipy import stats

from lm_eval_bayes import Outcomes, bayes_at_n, hbayes_at_n

CASES = {
    "three: spread": ([[4, 0, 0], [1, 3, 0], [0, 0, 4], [2, 2, 0]], [0, 0.5, 1], 1.0),
    "three: never seen": ([[3, 2, 0], [5, 0, 0], [4, 1, 0]], [0, 0.3, 1], 1.0),
    "three: all or nothing": ([[7, 1, 0], [0, 1, 7], [8, 0, 0], [0, 0, 8]], [0, 0.5, 1], 1.0),
    "three: ragged": ([[0, 0, 0], [1, 0, 0], [2, 1, 5], [0, 3, 0]], [-1, 2, 0.5], 1.0),
    "three: power prior": ([[2, 1, 0], [0, 2, 1], [1, 0, 0]], [0, 0.5, 1], 0.3),
}


@pytest.mark.parametrize("name", CASES)
def test_the_posterior_is_that_of_weighted_draws(name):
    counts, weights, strength = CASES[name]
    counts, weights = np.array(counts), np.array(weights, dtype=float)
    earlier = np.zeros_like(counts) if strength == 1.0 else counts[::-1]
    outcomes = Outcomes.from_counts(
        counts, weights=weights, prior_counts=earlier, prior_strength=strength
    )
    drawn = posterior_draws(counts + strength * earlier)
    scores = drawn.theta @ weights
    of_scope = {
        "benchmark": scores.mean(axis=1),
        "population": np.einsum("dk,dkc,c->d", drawn.weight[:, 0], drawn.mean, weights),
    }
    for scope, values in of_scope.items():
        posterior = hbayes_at_n(outcomes, scope, seed=11)
        interval = posterior.interval()
        own = np.array([posterior.mu, posterior.sigma, interval.low, interval.high])
        off = np.abs(own - summary(values)) / values.std()
        # Monte Carlo of states and of draws
        np.testing.assert_array_less(off, [0.1, 0.1, 0.25, 0.25])
    sd = scores.std(axis=0)
    assert (np.abs(posterior.per_question.mu - scores.mean(axis=0)) / sd).max() < 0.25
    np.testing.assert_allclose(posterior.per_question.sigma, sd, rtol=0.15)


def test_one_trial_a_question_gives_a_dirichlet_for_rubrics():
    totals, weights = np.array([9, 0, 4, 2]), np.array([0, 0.25, 0.5, 1])
    counts = np.repeat(np.eye(4, dtype=int), totals, axis=0)
    outcomes = Outcomes.from_counts(counts, weights=weights)
    posterior = hbayes_at_n(outcomes, "population", seed=2)
    nu = totals + 1.4 / 4
    mean = nu @ weights / nu.sum()
    sd = np.sqrt((nu @ weights**2 / nu.sum() - mean**2) / (nu.sum() + 1.0))
    # two kinds are possible, but rare
    assert posterior.mu == pytest.approx(mean, abs=0.15 * sd)
    assert posterior.sigma == pytest.approx(sd, rel=0.1)
    np.testing.assert_allclose(posterior.learned.mean, nu / nu.sum(), atol=0.02)


# --- simulation -------------------------------------------------------------------------


@pytest.mark.slow
def test_ranks_are_uniform_when_truth_comes_from_the_prior():
    # simulation-based calibration: no approximation excuses a miss here
    rng = np.random.default_rng(2024)
    ranks = {"benchmark": [], "population": []}
    for run in range(120):
        categories, questions = int(rng.integers(3, 6)), int(rng.integers(1, 9))
        weights = np.sort(rng.random(categories))
        w, m, s = (values[run] for values in prior_draws(categories, 1))
        kind = (rng.random(questions) < w[0, 1]).astype(int)
        gamma = rng.standard_gamma((m * s[:, None])[kind]) + 1e-300
        theta = gamma / gamma.sum(axis=1, keepdims=True)
        trials = rng.integers(0, 12, questions)
        counts = np.array([rng.multinomial(n, t) for n, t in zip(trials, theta, strict=True)])
        truth = {"benchmark": (theta @ weights).mean(), "population": w[0] @ m @ weights}
        outcomes = Outcomes.from_counts(counts, weights=weights)
        for scope in ranks:
            draws = hbayes_at_n(outcomes, scope, seed=run).distribution.draw(2_000, rng)
            ranks[scope].append((draws < truth[scope]).mean())
    for of_scope in ranks.values():
        assert stats.kstest(of_scope, "uniform").pvalue > 0.01


SHAPES = {
    "even": lambda rng: rng.dirichlet(np.ones(5), 30),
    "skewed": lambda rng: rng.dirichlet([0.2, 0.2, 0.2, 0.2, 2], 30),
    "alike": lambda rng: np.tile([0.05, 0.05, 0.1, 0.3, 0.5], (30, 1)),
}


def coverage(shape, trials, runs, seed=0):
    """Share of runs whose 95% interval holds the truth (learned, uniform), and mean widths."""
    rng = np.random.default_rng(seed)
    held, width = np.zeros(2), np.zeros(2)
    weights = np.arange(5) / 4
    for _ in range(runs):
        theta = SHAPES[shape](rng)
        counts = np.array([rng.multinomial(trials, row) for row in theta])
        truth = (theta @ weights).mean()
        outcomes = Outcomes.from_counts(counts, weights=weights)
        for index, posterior in enumerate((hbayes_at_n(outcomes), bayes_at_n(outcomes))):
            interval = posterior.interval()
            held[index] += interval.low <= truth <= interval.high
            width[index] += interval.width
    return held / runs, width / runs


@pytest.mark.slow
@pytest.mark.parametrize("shape", SHAPES)
def test_intervals_hold_the_truth(shape):
    runs = 30
    few, _ = coverage(shape, 4, runs)
    more, _ = coverage(shape, 16, runs, seed=1)
    learned, uniform = np.mean([few, more], axis=0)
    # of 60 runs at 95%, fewer than 52 hold with a chance of 1 in 300
    assert learned >= 52 / 60
    if shape == "skewed":
        assert uniform < 0.4  # the paper's prior pulls every question towards ½
