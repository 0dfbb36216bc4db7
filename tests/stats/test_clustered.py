"""The cluster model, against plain quadrature and the importance sampler it replaces."""

from __future__ import annotations

import json

import numpy as np
import pytest
from scipy import stats

from lm_eval_bayes.errors import InvalidInputError
from lm_eval_bayes.stats.clustered import clustered_posterior
from lm_eval_bayes.stats.outcomes import Outcomes

FEW = [[0, 4], [4, 0], [0, 4], [1, 3], [3, 1]]


def density(theta, d, counts):
    """p(θ, d, data), from scipy's beta-binomial."""
    out = np.exp(-d)
    for wrong, right in counts:
        out = out * stats.betabinom.pmf(right, wrong + right, d * theta, d * (1 - theta))
    return out


def panels(counts, low=0.0, high=1.0):
    """Gauss–Legendre on panels that crowd towards the ends: θ, d, and joint mass times weight."""
    x, w = np.polynomial.legendre.leggauss(24)
    steps = np.concatenate(([0], np.geomspace(1e-9, 0.5, 12)))
    steps = np.concatenate((steps, 1 - steps[-2::-1]))
    grid = []
    for points in (low + (high - low) * steps, np.concatenate(([0], np.geomspace(1e-6, 60, 16)))):
        half = np.diff(points)[:, None] / 2
        grid.append((points[:-1, None] + half * (x + 1), half * w))
    (theta, wt), (d, wd) = ((a.ravel(), b.ravel()) for a, b in grid)
    return theta, d, density(theta[:, None], d, counts) * wt[:, None] * wd


@pytest.mark.parametrize("counts", [FEW, [[5, 5]], [[2, 0], [0, 1], [7, 3]], [[0, 6], [0, 6]]])
def test_moments_and_quantiles_by_plain_quadrature(counts):
    theta, d, mass = panels(counts)
    total = mass.sum()
    mass /= total
    posterior = clustered_posterior(Outcomes.from_counts(counts))
    by_theta = mass.sum(axis=1)
    mean = by_theta @ theta
    assert posterior.mu == pytest.approx(mean, abs=1e-6)
    assert posterior.sigma == pytest.approx(np.sqrt(by_theta @ (theta - mean) ** 2), abs=1e-6)
    interval = posterior.interval(0.9)
    for end, tail in ((interval.low, 0.05), (interval.high, 0.95)):
        below = panels(counts, 0.0, end)[2].sum() / total
        assert below == pytest.approx(tail, abs=1e-5)
    # each cluster's own p_t given (θ, d) is Beta(S + dθ, F + d(1 − θ))
    wrong, right = np.array(counts, dtype=float)[0]
    p = (right + np.outer(theta, d)) / (wrong + right + d)
    assert posterior.per_question.mu[0] == pytest.approx((mass * p).sum(), abs=1e-5)
    second = p * (right + np.outer(theta, d) + 1) / (wrong + right + d + 1)
    sd = np.sqrt((mass * second).sum() - (mass * p).sum() ** 2)
    assert posterior.per_question.sigma[0] == pytest.approx(sd, abs=1e-5)
    middle = np.interp(0.5, np.cumsum(mass.sum(axis=0)), d)
    assert posterior.learned.strength == pytest.approx(middle, rel=0.1)


def test_one_trial_a_cluster_is_the_beta_of_independent_answers():
    posterior = clustered_posterior(Outcomes.from_matrix([[1]] * 7 + [[0]] * 3))
    truth = stats.beta(8, 4)
    assert posterior.mu == pytest.approx(truth.mean(), abs=1e-9)
    assert posterior.sigma == pytest.approx(truth.std(), abs=1e-9)
    interval = posterior.interval()
    assert (interval.low, interval.high) == pytest.approx(truth.interval(0.95), abs=1e-6)


def test_the_importance_sampler_of_the_paper_draws_the_same_posterior():
    # the paper's code: θ and d from their priors, weighted by the beta-binomial likelihood
    rng = np.random.default_rng(7)
    counts = [[0, 5], [4, 1], [2, 3], [5, 0], [0, 5], [1, 4]]
    theta, d = rng.random(400_000), rng.gamma(1.0, 1.0, 400_000)
    logs = np.zeros(theta.size)
    for wrong, right in counts:
        logs += stats.betabinom(wrong + right, d * theta, d * (1 - theta)).logpmf(right)
    weights = np.exp(logs - np.nanmax(logs))
    weights[~np.isfinite(weights)] = 0.0
    weights /= weights.sum()
    ess = 1 / (weights**2).sum()
    posterior = clustered_posterior(Outcomes.from_counts(counts))
    mean = weights @ theta
    assert posterior.mu == pytest.approx(mean, abs=4 * posterior.sigma / np.sqrt(ess))
    order = np.argsort(theta)
    below = np.cumsum(weights[order])
    interval = posterior.interval()
    for end, tail in ((interval.low, 0.025), (interval.high, 0.975)):
        share = below[np.searchsorted(theta[order], end)]
        assert share == pytest.approx(tail, abs=4 * np.sqrt(0.025 * 0.975 / ess))


def test_clusters_put_questions_together():
    outcomes = Outcomes.from_matrix([[1], [1], [0], [1], [0], [0]])
    together = clustered_posterior(outcomes, ["a", "a", "b", "a", "b", "c"])
    by_hand = clustered_posterior(Outcomes.from_counts([[0, 3], [2, 0], [1, 0]]))
    assert together.to_dict() == by_hand.to_dict()
    assert together.per_question.mu.size == 3


def test_scores_follow_the_weights():
    plain = clustered_posterior(Outcomes.from_counts(FEW))
    scaled = clustered_posterior(Outcomes.from_counts(FEW, weights=[-1.0, 3.0]))
    assert scaled.mu == pytest.approx(4 * plain.mu - 1)
    assert scaled.sigma == pytest.approx(4 * plain.sigma)
    assert scaled.interval().high == pytest.approx(4 * plain.interval().high - 1)
    turned = clustered_posterior(Outcomes.from_counts(FEW, weights=[1.0, 0.0]))
    assert turned.mu == pytest.approx(1 - plain.mu, abs=1e-12)


@pytest.mark.parametrize(
    "counts", [[[0, 3]] * 40, [[30_000, 70_000]] * 200, [[1, 0]], [[10**6, 0], [0, 10**6]]]
)
def test_extreme_counts_stay_in_order(counts):
    posterior = clustered_posterior(Outcomes.from_counts(counts))
    for method in ("normal", "beta", "exact", "hdi"):
        interval = posterior.interval(method=method)
        assert 0.0 <= interval.low < interval.high <= 1.0
        assert interval.scope == "population"
    draws = posterior.distribution.draw(2000, np.random.default_rng(0))
    assert abs(draws.mean() - posterior.mu) < 5 * posterior.sigma / np.sqrt(2000)
    json.dumps(posterior.to_dict(), allow_nan=False)


def test_it_is_wider_than_the_posterior_that_takes_answers_as_independent():
    interval = clustered_posterior(Outcomes.from_counts(FEW)).interval()
    right, wrong = 12, 8
    low, high = stats.beta(right + 1, wrong + 1).interval(0.95)
    assert interval.width > 1.4 * (high - low)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (
            lambda: clustered_posterior(Outcomes.from_counts([[1, 2, 3]])),
            "`outcomes` must have two distinct weights",
        ),
        (
            lambda: clustered_posterior(Outcomes.from_counts([[1, 2]], weights=[1, 1])),
            "`outcomes` must have two distinct weights",
        ),
        (
            lambda: clustered_posterior(Outcomes.from_counts([[0, 0]])),
            "`outcomes` must have at least one trial",
        ),
        (
            lambda: clustered_posterior(Outcomes.from_counts([[1, 0]]), ["a", "b"]),
            r"`clusters` must have one entry per question \(1\)",
        ),
    ],
)
def test_bad_input_is_named(call, message):
    with pytest.raises(InvalidInputError, match=message):
        call()
