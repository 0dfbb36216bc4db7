"""The mixture of two kinds of questions, against draws from its prior weighted by the likelihood.

The oracle shares no code with the package: (w, m, s) from the prior as the docstring states it,
the likelihood of every question from `scipy.special`, and a draw of θ where a question's score is
asked.
"""

from __future__ import annotations

import numpy as np
import pytest
from scipy import integrate, special, stats

from lm_eval_bayes.stats.mixture import learn_mixture
from lm_eval_bayes.stats.states import (
    StateDistribution,
    extreme_moments,
    score_moments,
    state_moments,
    vote_moments,
)

_DRAWS = 400_000


def _prior(n_categories, n_tasks, rng):
    """Return w (D, T, 2), m (D, 2, C+1) and s (D, 2) from the prior."""
    m = rng.dirichlet(np.full(n_categories, 1.4 / n_categories), (_DRAWS, 2))
    ends = special.expit(np.array([-2.5, 6.5]) - np.log(20.0)) ** 0.7
    share = rng.uniform(*ends, (_DRAWS, 2)) ** (1.0 / 0.7)
    s = np.where(rng.random((_DRAWS, 2)) < 0.25, 1e6, 20.0 * share / (1.0 - share))
    v = rng.beta(0.075, 0.075, _DRAWS)
    if n_tasks == 1:
        w = v[:, None]
    else:
        c = np.exp(np.log(50.0) + 2.0 * rng.standard_normal(_DRAWS))
        a, b = np.maximum(c * v, 1e-12), np.maximum(c * (1.0 - v), 1e-12)
        w = rng.beta(a[:, None], b[:, None], (_DRAWS, n_tasks))
    return np.stack([w, 1.0 - w], axis=2), m, s


def _weighted(counts, task, weights, seed):
    """Return draws of the score of these questions and of the population's by task, and weights."""
    rng = np.random.default_rng(seed)
    n_tasks = task.max() + 1
    w, m, s = _prior(counts.shape[1], n_tasks, rng)
    alpha = np.maximum(m * s[..., None], 1e-12)
    log_weight, score = np.zeros(_DRAWS), np.zeros((n_tasks, _DRAWS))
    for row, t in zip(counts, task, strict=True):
        after = alpha + row
        log_like = special.gammaln(after).sum(axis=2) - special.gammaln(after.sum(axis=2))
        log_like -= special.gammaln(alpha).sum(axis=2) - special.gammaln(alpha.sum(axis=2))
        part = w[:, t] * np.exp(log_like)
        log_weight += np.log(part.sum(axis=1))
        kind = (rng.random(_DRAWS) < part[:, 1] / part.sum(axis=1)).astype(int)
        gammas = rng.standard_gamma(after[np.arange(_DRAWS), kind]) + 1e-300
        score[t] += gammas @ weights / gammas.sum(axis=1) / (task == t).sum()
    population = np.einsum("dtk,dkc,c->td", w, m, weights)
    weight = np.exp(log_weight - log_weight.max())
    return score, population, weight / weight.sum()


def _summary(values, weight):
    order = np.argsort(values)
    below = np.cumsum(weight[order])
    ends = values[order][np.searchsorted(below, [0.025, 0.975])]
    mean = weight @ values
    return np.array([mean, np.sqrt(weight @ (values - mean) ** 2), *ends])


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
    score, population, weight = _weighted(counts, task, weights, 1)
    of_seeds = []
    for seed in range(4):
        mixture = learn_mixture(counts, task, seed=seed)
        moments = state_moments(mixture, score_moments(weights))
        rows = []
        for t in range(task.max() + 1):
            bounds = (weights.min(), weights.max())
            of_task = [
                (moments.mean[0, t], moments.variance[0, t]),
                (moments.population[0, t], np.zeros(mixture.n_states)),
            ]
            for mean, variance in of_task:
                states = StateDistribution(mean, variance, mixture.chain, bounds, seed)
                ends = states.quantiles(np.array([0.025, 0.975]))
                rows.append([states.mean, states.sd, *ends])
        of_seeds.append(rows)
    expected = [
        _summary(values[t], weight) for t in range(task.max() + 1) for values in (score, population)
    ]
    sd = np.array(expected)[:, 1:2]
    # the mean of four seeds; the oracle has an error of its own
    np.testing.assert_array_less(np.abs(np.mean(of_seeds, axis=0) - expected) / sd, 0.12)
    # each seed alone, an interval's end the least certain
    np.testing.assert_array_less(np.abs(np.array(of_seeds) - expected) / sd, 0.35)


@pytest.mark.parametrize(("a", "b"), [(0.3, 4.0), (5.0, 0.6), (60.0, 90.0), (2e5, 3e5)])
@pytest.mark.parametrize("k", [1, 5, 16])
def test_moments_of_votes_are_those_of_quadrature(a, b, k):
    rng = np.random.default_rng(k)
    credits = [1.0 * (np.arange(k + 1) == k), np.sort(rng.random(k + 1)), rng.random(2)]
    found = vote_moments(credits)(np.array([[b], [a]]))
    # an integral over u with p its quantile has no singular end
    node, node_weight = np.polynomial.legendre.leggauss(4_000)
    p = stats.beta(a, b).ppf(0.5 + 0.5 * node)
    for j, credit in enumerate(credits):
        n = credit.size - 1
        value = stats.binom.pmf(np.arange(n + 1), n, p[:, None]) @ credit
        expected = 0.5 * node_weight @ np.stack([value, value**2], axis=1)
        assert (found.first[j, 0], found.second[j, 0]) == pytest.approx(tuple(expected), abs=2e-6)


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
