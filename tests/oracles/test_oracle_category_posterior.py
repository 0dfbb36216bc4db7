"""The learned prior of rubrics against quadrature, closed forms and simulation."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import special, stats

from lm_eval_bayes import Outcomes, bayes_at_n, hbayes_at_n
from lm_eval_bayes.stats.hierarchical.hbayes_at_n import category_posterior
from lm_eval_bayes.stats.intervals import IntervalSpec

# --- quadrature over all hyperparameters, question by question, with no thought for speed ---


def beta_nodes(size, a, b):
    """Gauss-Jacobi nodes and weights of Beta(a, b)."""
    nodes, weights = special.roots_jacobi(size, b - 1.0, a - 1.0)
    return 0.5 * (nodes + 1.0), weights / weights.sum()


def hyper_grid(categories, size):
    """Nodes (m, s) and prior weights of m ~ Dirichlet(1.4/K), s / (20 + s) ~ Beta(.7, 1)."""
    a = 1.4 / categories
    # by stick breaking: the share of category k in what is left
    axes = [beta_nodes(size, a, a * left) for left in range(categories - 1, 0, -1)]
    axes.append(beta_nodes(3 * size, 0.7, 1.0))
    points = np.meshgrid(*(nodes for nodes, _ in axes), indexing="ij")
    weights = np.meshgrid(*(w for _, w in axes), indexing="ij")
    *sticks, u = (p.ravel() for p in points)
    weight = np.prod([w.ravel() for w in weights], axis=0)
    left, share = np.ones_like(u), []
    for stick in sticks:
        share.append(left * stick)
        left = left * (1.0 - stick)
    return np.stack([*share, left], axis=1), 20.0 * u / (1.0 - u), weight


def spread_out(counts, weights, share, strength, weight):
    """Spread the population's score to the sample variance of the questions' average scores."""
    if weights.size == 2:
        return share @ weights
    low, span = weights.min(), np.ptp(weights)
    unit = (weights - low) / span
    score = share @ unit
    variance = share @ unit**2 - score**2
    averages, information, n_trials = [], [], []
    for row in counts:
        n = row.sum()
        if n > 0:
            averages.append(row @ unit / n)
            # between questions var/(s + 1), within one of them s/(s + 1) of var per trial
            between, within = variance / (strength + 1), variance * strength / (strength + 1)
            information.append(1 / (weight @ (between + within / n)))
            n_trials.append(n)
    averages, information, n_trials = map(np.array, (averages, information, n_trials))
    repeated = n_trials >= 2
    if (m := repeated.sum()) < 2:
        return low + span * score
    used = information[repeated] / information[repeated].sum()
    squares = (averages[repeated] - used @ averages[repeated]) ** 2
    of_mean = m / (m - 1) * (used**2 @ squares) * information[repeated].sum() / information.sum()
    ratio = of_mean / (weight @ (score - weight @ score) ** 2)
    dispersion = max(1.0, (5 + (m - 1) * ratio) / (5 + m - 1))
    middle = special.logit(weight @ score)
    return low + span * special.expit(
        middle + np.sqrt(dispersion) * (special.logit(score) - middle)
    )


def quadrature(counts, weights, size):
    """Return moments of the benchmark, the population and each question, and the nodes."""
    share, strength, weight = hyper_grid(counts.shape[1], size)
    a = share * strength[:, None]
    log = np.zeros_like(strength)
    for row in counts:
        log += special.gammaln(strength) - special.gammaln(strength + row.sum())
        log += (special.gammaln(a + row) - special.gammaln(a)).sum(axis=1)
    weight = weight * np.exp(log - log.max())
    weight /= weight.sum()
    means, variances = [], []
    for row in counts:
        nu = a + row
        total = nu.sum(axis=1)
        mean = nu @ weights / total
        means.append(mean)
        variances.append((nu @ weights**2 / total - mean**2) / (total + 1.0))
    means, variances = np.array(means), np.array(variances)

    def moments(mean, within):
        mu = weight @ mean
        return mu, np.sqrt(weight @ (within + (mean - mu) ** 2))

    questions = [moments(m, v) for m, v in zip(means, variances, strict=True)]
    return {
        "benchmark": moments(means.mean(axis=0), variances.sum(axis=0) / len(counts) ** 2),
        "population": moments(spread_out(counts, weights, share, strength, weight), 0.0),
        "questions": np.array(questions),
        "nodes": (a, weight),
    }


CASES = {
    "two: spread": ([[8, 0], [5, 3], [1, 7], [8, 0], [7, 1]], [0, 1], 1.0),
    "two: ragged": ([[2, 0], [5, 3], [0, 0], [0, 1], [12, 4]], [1, 0], 1.0),
    "two: one question": ([[3, 1]], [0, 1], 1.0),
    "three: spread": ([[4, 0, 0], [1, 3, 0], [0, 0, 4], [2, 2, 0]], [0, 0.5, 1], 1.0),
    "three: never seen": ([[3, 2, 0], [5, 0, 0], [4, 1, 0]], [0, 0.3, 1], 1.0),
    "three: all or nothing": ([[7, 1, 0], [0, 1, 7], [8, 0, 0], [0, 0, 8]], [0, 0.5, 1], 1.0),
    "three: ragged": ([[0, 0, 0], [1, 0, 0], [2, 1, 5], [0, 3, 0]], [-1, 2, 0.5], 1.0),
    "three: power prior": ([[2, 1, 0], [0, 2, 1], [1, 0, 0]], [0, 0.5, 1], 0.3),
}


@pytest.mark.parametrize("name", CASES)
def test_quadrature_agrees(name):
    counts, weights, strength = CASES[name]
    counts, weights = np.array(counts), np.array(weights, dtype=float)
    earlier = np.zeros_like(counts) if strength == 1.0 else counts[::-1]
    oracle = quadrature(counts + strength * earlier, weights, 120 if counts.shape[1] == 2 else 36)
    outcomes = Outcomes.from_counts(
        counts, weights=weights, prior_counts=earlier, prior_strength=strength
    )
    for scope in ("benchmark", "population"):
        posterior = category_posterior(outcomes, IntervalSpec(0.95, scope, "exact", 11))
        mu, sigma = oracle[scope]
        # four standard errors: the particles are worth some 15,000 draws
        assert posterior.mu == pytest.approx(mu, abs=0.032 * sigma)
        assert posterior.sigma == pytest.approx(sigma, rel=0.03)
        expected = oracle["questions"]
        error = np.abs(posterior.per_question.mu - expected[:, 0]) / expected[:, 1]
        assert error.max() < 0.032
        np.testing.assert_allclose(posterior.per_question.sigma, expected[:, 1], rtol=0.03)


@pytest.mark.parametrize("name", ["two: ragged", "two: one question"])
@pytest.mark.parametrize("scope", ["benchmark", "population"])
def test_two_categories_have_the_posterior_of_the_quadrature_in_the_package(name, scope):
    counts, weights, _ = CASES[name]
    outcomes = Outcomes.from_counts(counts, weights=weights)
    sampled = category_posterior(outcomes, IntervalSpec(0.9, scope, "exact", 3))
    computed = hbayes_at_n(outcomes, scope, 0.9)
    assert computed.ess is None
    assert sampled.mu == pytest.approx(computed.mu, abs=0.032 * computed.sigma)
    assert sampled.sigma == pytest.approx(computed.sigma, rel=0.03)
    ends = [(p.interval().low, p.interval().high) for p in (sampled, computed)]
    assert ends[0] == pytest.approx(ends[1], abs=0.08 * computed.sigma)


@pytest.mark.parametrize("name", ["three: ragged", "three: never seen"])
def test_exact_interval_is_that_of_draws_from_the_quadrature(name):
    counts, weights, _ = CASES[name]
    counts, weights = np.array(counts), np.array(weights, dtype=float)
    a, weight = quadrature(counts, weights, 120 if counts.shape[1] == 2 else 36)["nodes"]
    rng = np.random.default_rng(0)
    nodes = a[rng.choice(weight.size, 100_000, p=weight)]
    gamma = rng.standard_gamma(nodes[:, None, :] + counts)
    score = ((gamma / gamma.sum(axis=2, keepdims=True)) @ weights).mean(axis=1)
    posterior = category_posterior(
        Outcomes.from_counts(counts, weights=weights), IntervalSpec(0.9, "benchmark", "exact", 0)
    )
    interval = posterior.interval()
    slack = 0.05 * posterior.sigma
    assert interval.low == pytest.approx(np.quantile(score, 0.05), abs=slack)
    assert interval.high == pytest.approx(np.quantile(score, 0.95), abs=slack)
    assert interval.mc_error < slack


def test_one_trial_a_question_gives_a_dirichlet_for_rubrics():
    totals, weights = np.array([9, 0, 4, 2]), np.array([0, 0.25, 0.5, 1])
    counts = np.repeat(np.eye(4, dtype=int), totals, axis=0)
    posterior = category_posterior(
        Outcomes.from_counts(counts, weights=weights), IntervalSpec(scope="population", seed=2)
    )
    nu = totals + 1.4 / 4
    mean = nu @ weights / nu.sum()
    sd = np.sqrt((nu @ weights**2 / nu.sum() - mean**2) / (nu.sum() + 1.0))
    assert posterior.mu == pytest.approx(mean, abs=0.032 * sd)
    assert posterior.sigma == pytest.approx(sd, rel=0.04)
    np.testing.assert_allclose(posterior.learned.mean, nu / nu.sum(), atol=0.004)


# --- simulation -------------------------------------------------------------------------


@pytest.mark.slow
def test_ranks_are_uniform_when_truth_comes_from_the_prior():
    # simulation-based calibration: no approximation excuses a miss here
    rng = np.random.default_rng(2024)
    ranks = {"benchmark": [], "population": []}
    for run in range(120):
        categories, questions = int(rng.integers(3, 6)), int(rng.integers(1, 9))
        weights = np.sort(rng.random(categories))
        share = rng.dirichlet(np.full(categories, 1.4 / categories))
        u = rng.beta(0.7, 1.0)
        gamma = rng.standard_gamma(share * 20 * u / (1 - u), (questions, categories)) + 1e-300
        theta = gamma / gamma.sum(axis=1, keepdims=True)
        trials = rng.integers(0, 12, questions)
        counts = np.array([rng.multinomial(n, t) for n, t in zip(trials, theta, strict=True)])
        truth = {"benchmark": (theta @ weights).mean(), "population": share @ weights}
        outcomes = Outcomes.from_counts(counts, weights=weights)
        for scope, found in ranks.items():
            posterior = category_posterior(outcomes, IntervalSpec(0.95, scope, "exact", run))
            draws = posterior.distribution.draw(2_000, rng)
            found.append((draws < truth[scope]).mean())
    for found in ranks.values():
        assert stats.kstest(found, "uniform").pvalue > 0.01


SHAPES = {
    "even": lambda rng: rng.dirichlet(np.ones(5), 30),
    "skewed": lambda rng: rng.dirichlet([0.2, 0.2, 0.2, 0.2, 2], 30),
    "alike": lambda rng: np.tile([0.05, 0.05, 0.1, 0.3, 0.5], (30, 1)),
}


def coverage(shape, trials, runs, draws=1_000, seed=0):
    """Share of runs whose 95% interval holds the truth (learned, uniform), and mean widths."""
    rng = np.random.default_rng(seed)
    held, width = np.zeros(2), np.zeros(2)
    weights = np.arange(5) / 4
    for run in range(runs):
        theta = SHAPES[shape](rng)
        counts = np.array([rng.multinomial(trials, row) for row in theta])
        truth = (theta @ weights).mean()
        outcomes = Outcomes.from_counts(counts, weights=weights)
        learned = category_posterior(outcomes, IntervalSpec(0.95, "benchmark", "exact", run))
        for index, posterior in enumerate((learned, bayes_at_n(outcomes))):
            interval = posterior.interval(seed=run, draws=draws)
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
