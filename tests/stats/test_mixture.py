"""The mixture of two kinds of questions, against draws of its prior weighted by the likelihood."""

from __future__ import annotations

from functools import cache

import numpy as np
import pytest
from _support.weighted_prior import posterior_draws, summary
from scipy import integrate, special, stats

from lm_eval_bayes.stats.mixture import learn_mixture
from lm_eval_bayes.stats.states import (
    QuestionStates,
    StateDistribution,
    extreme_moments,
    score_moments,
    state_moments,
    vote_moments,
)


@pytest.mark.parametrize(
    ("counts", "task", "weights"),
    [
        ([[0, 4], [4, 0], [4, 0], [3, 1]], [0, 0, 0, 0], [0.0, 1.0]),
        ([[0, 9], [0, 9], [0, 9], [9, 0], [0, 2]], [0, 0, 0, 0, 0], [0.0, 1.0]),
        ([[1, 0], [1, 0], [0, 1]], [0, 0, 0], [0.0, 1.0]),
        ([[2, 0, 1], [0, 0, 3], [1, 1, 0]], [0, 0, 0], [0.0, 0.5, 1.0]),
        ([[3, 1], [4, 0], [0, 2], [1, 1]], [0, 0, 1, 1], [0.0, 1.0]),
        ([[0.5, 2.25], [1.5, 0.0]], [0, 0], [-1.0, 3.0]),
    ],
)
def test_states_are_those_of_the_weighted_prior(counts, task, weights):
    counts, task, weights = np.array(counts, float), np.array(task), np.array(weights)
    drawn = posterior_draws(counts, task)
    assert drawn.effective > 3_000
    score, population = (
        drawn.theta @ weights,
        np.einsum("dtk,dkc,c->dt", drawn.weight, drawn.mean, weights),
    )
    n_tasks = task.max() + 1
    of_draws = [
        summary(values)
        for t in range(n_tasks)
        for values in (score[:, task == t].mean(axis=1), population[:, t])
    ]
    of_seeds = []
    for seed in range(4):
        mixture = learn_mixture(counts, task, seed=seed)
        moments = state_moments(mixture, score_moments(weights))
        common = (mixture.chain, (weights.min(), weights.max()), seed)
        rows = []
        for t in range(n_tasks):
            scores = (moments.mean[0, t], moments.variance[0, t], *common)
            means = moments.population[0, t]
            for states in (
                QuestionStates(*scores, mixture, weights)
                if n_tasks == 1
                else StateDistribution(*scores),
                StateDistribution(means, np.zeros_like(means), *common),
            ):
                ends = states.quantiles(np.array([0.025, 0.975]))
                rows.append([states.mean, states.sd, *ends])
        of_seeds.append(rows)
    off = np.abs(np.array(of_seeds) - of_draws) / np.array(of_draws)[:, 1:2]
    # the mean of four seeds; the draws have an error of their own
    bias = np.abs(np.mean(of_seeds, axis=0) - of_draws) / np.array(of_draws)[:, 1:2]
    np.testing.assert_array_less(bias, 0.12)
    # each seed alone, an interval's end the least certain
    np.testing.assert_array_less(off, 0.35)


@cache
def legendre():
    """Nodes and weights of quadrature over (0, 1)."""
    node, weight = np.polynomial.legendre.leggauss(200)
    return 0.5 + 0.5 * node, 0.5 * weight


@pytest.mark.parametrize(("a", "b"), [(0.3, 4.0), (5.0, 0.6), (60.0, 90.0), (2e5, 3e5)])
@pytest.mark.parametrize("k", [1, 5, 16])
def test_moments_of_votes_are_those_of_quadrature(a, b, k):
    rng = np.random.default_rng(k)
    credits = [1.0 * (np.arange(k + 1) == k), np.sort(rng.random(k + 1)), rng.random(2)]
    moments = vote_moments(credits)(np.array([[b], [a]]))
    if a < 1000.0:
        node, weight = special.roots_jacobi(40, b - 1.0, a - 1.0)
        p, weight = 0.5 + 0.5 * node, weight / weight.sum()
    else:
        node, weight = legendre()
        p = special.betaincinv(a, b, node)
    for j, credit in enumerate(credits):
        n = credit.size - 1
        value = stats.binom.pmf(np.arange(n + 1), n, p[:, None]) @ credit
        expected = weight @ np.stack([value, value**2], axis=1)
        own = (moments.first[j, 0], moments.second[j, 0])
        assert own == pytest.approx(tuple(expected), abs=2e-6)


def test_moments_of_extreme_powers():
    a, b, k = 0.7, 30.0, 4_000
    alpha = np.array([[b], [a]])
    all_right, some_right = (
        extreme_moments(k, right=True)(alpha),
        extreme_moments(k, right=False)(alpha),
    )
    for power, moment in ((1, all_right.first), (2, all_right.second)):
        log_moment = special.betaln(a + power * k, b) - special.betaln(a, b)
        assert moment[0, 0] == pytest.approx(np.exp(log_moment), rel=1e-9)
    value = integrate.quad(
        lambda p: (1.0 - (1.0 - p) ** k) * stats.beta(a, b).pdf(p), 0.0, 1.0, points=[1e-4, 1e-2]
    )[0]
    assert some_right.first[0, 0] == pytest.approx(value, abs=1e-6)


def test_the_order_of_questions_does_not_matter_and_the_seed_does():
    rng = np.random.default_rng(0)
    right = rng.binomial(8, rng.beta(0.5, 0.8, 40))
    counts = np.stack([8 - right, right], axis=1)
    turned = counts[::-1]
    first, second, other = (
        learn_mixture(c, seed=s) for c, s in ((counts, 0), (turned, 0), (counts, 1))
    )
    assert (first.share == second.share).all()
    assert (first.counts[first.where] == counts).all()
    assert (second.counts[second.where] == turned).all()
    assert not (first.share == other.share).all()


def test_the_reported_error_is_the_scatter_between_seeds():
    rng = np.random.default_rng(3)
    right = rng.binomial(16, np.where(rng.random(60) < 0.3, 0.0, rng.beta(25, 2, 60)))
    counts = np.stack([16 - right, right], axis=1)
    means, reported = [], []
    for seed in range(24):
        mixture = learn_mixture(counts, seed=seed)
        values = np.einsum("kp,kp->p", mixture.weight[:, 0], mixture.share[:, 1])
        states = StateDistribution(values, np.zeros_like(values), mixture.chain, (0.0, 1.0), seed)
        means.append(states.mean)
        reported.append(states.sd / np.sqrt(states.ess))
    assert np.std(means, ddof=1) == pytest.approx(np.mean(reported), rel=0.5)
    assert np.std(means, ddof=1) < 0.05 * states.sd


@pytest.mark.parametrize("count", [0, 1, 10**6])
def test_extreme_counts_have_finite_states(count):
    for row in ([0, count], [count, 0], [count, count]):
        mixture = learn_mixture([row] * 12)
        moments = state_moments(mixture, score_moments(np.array([0.0, 1.0])))
        for values in (moments.mean, moments.variance, moments.population, mixture.weight):
            assert np.isfinite(values).all()
