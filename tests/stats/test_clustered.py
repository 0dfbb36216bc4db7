"""The cluster model, against plain quadrature and importance sampling."""

from __future__ import annotations

import json

import numpy as np
import pytest
from _support.errors import refusals
from scipy import stats

from lm_eval_bayes.stats.comparison.shared_questions import common_clusters
from lm_eval_bayes.stats.hierarchical.hbayes_at_n import clustered_posterior, hbayes_at_n
from lm_eval_bayes.stats.outcomes import Outcomes

FEW = [[0, 4], [4, 0], [0, 4], [1, 3], [3, 1]]


def panels(counts, low=0.0, high=1.0):
    """Gauss–Legendre on panels that crowd towards the ends: θ, d, and their joint mass."""
    x, w = np.polynomial.legendre.leggauss(12)
    steps = np.concatenate(([0], np.geomspace(1e-9, 0.5, 12)))
    steps = np.concatenate((steps, 1 - steps[-2::-1]))
    half = np.diff(steps)[:, None] / 2
    nodes, weights = (steps[:-1, None] + half * (x + 1)).ravel(), (half * w).ravel()
    theta, d = low + (high - low) * nodes, 3 * nodes / (1 - nodes)
    prior = (high - low) * stats.beta(0.7, 0.7).pdf(theta)[:, None] * stats.beta(1, 0.7).pdf(nodes)
    mass = prior * np.outer(weights, weights)
    for wrong, right in counts:
        a, b = np.outer(theta, d), np.outer(1 - theta, d)
        mass *= stats.betabinom.pmf(right, wrong + right, a, b)
    return theta, d, mass


@pytest.mark.parametrize("counts", [[[2, 0], [0, 1], [7, 3]], [[0, 6], [0, 6]]])
def test_clusters_of_trials_by_plain_quadrature(counts):
    theta, d, mass = panels(counts)
    total = mass.sum()
    mass /= total
    posterior = clustered_posterior(Outcomes.from_counts(counts))
    by_theta = mass.sum(axis=1)
    mean = by_theta @ theta
    assert posterior.mu == pytest.approx(mean, abs=1e-4)
    assert posterior.sigma == pytest.approx(np.sqrt(by_theta @ (theta - mean) ** 2), abs=1e-4)
    interval = posterior.interval(0.9)
    for end, tail in ((interval.low, 0.05), (interval.high, 0.95)):
        assert panels(counts, 0.0, end)[2].sum() / total == pytest.approx(tail, abs=1e-4)
    of_strength = mass.sum(axis=0)
    middle = np.interp(0.5, np.cumsum(of_strength) - 0.5 * of_strength, np.log(d))
    assert posterior.clusters.strength == pytest.approx(np.exp(middle), rel=0.03)


def test_clusters_put_questions_of_one_trial_together():
    outcomes = Outcomes.from_matrix([[1], [1], [0], [1], [0], [0]])
    together = clustered_posterior(outcomes, ["a", "a", "b", "a", "b", "c"])
    by_hand = clustered_posterior(Outcomes.from_counts([[0, 3], [2, 0], [1, 0]]))
    assert together.interval() == by_hand.interval()


NESTED = np.array([[1, 3], [0, 4], [2, 2], [4, 0], [3, 1], [0, 2], [1, 1]])
LABELS = ["a", "a", "b", "c", "c", "c", "d"]


def test_scope_population_of_outcomes_with_clusters_is_the_cluster_model():
    outcomes = Outcomes.from_counts(NESTED, clusters=LABELS)
    population = hbayes_at_n(outcomes, "population")
    assert population.mu == clustered_posterior(outcomes).mu
    assert population.clusters.labels == tuple(LABELS)
    assert population.to_dict()["clusters"]["n_clusters"] == 4
    benchmark, alone = population.benchmark, hbayes_at_n(Outcomes.from_counts(NESTED))
    assert benchmark.to_dict() == alone.to_dict()
    # clusters of one question each say nothing
    single = Outcomes.from_counts(NESTED, clusters=range(7))
    assert hbayes_at_n(single, "population").clusters is None
    assert hbayes_at_n(ALIKE).scope == "benchmark"


def test_a_rubric_of_two_weights_is_the_binary_model_and_others_have_a_note():
    thirds = np.stack([NESTED[:, 0], np.zeros(7, dtype=int), NESTED[:, 1]], axis=1)
    rubric = hbayes_at_n(
        Outcomes.from_counts(thirds, weights=[0, 0.5, 1], clusters=LABELS), "population"
    )
    binary = hbayes_at_n(Outcomes.from_counts(NESTED, clusters=LABELS), "population")
    assert rubric.mu == pytest.approx(binary.mu, abs=1e-9)
    assert "4 clusters" in binary.note


def test_prior_trials_count_by_their_weight():
    counts, prior = NESTED[:, :], NESTED[::-1]
    whole = Outcomes.from_counts(counts + prior, clusters=LABELS)
    split = Outcomes.from_counts(counts, prior_counts=prior, clusters=LABELS)
    assert hbayes_at_n(split, "population").mu == hbayes_at_n(whole, "population").mu


def test_outcomes_carry_clusters():
    outcomes = Outcomes.from_matrix([[1], [0], [1]], clusters=np.array(["x", "y", "x"]))
    assert outcomes.clusters == ("x", "y", "x")
    assert outcomes.take([2, 1]).clusters == ("x", "y")
    assert outcomes.cluster_index.tolist() == [0, 1, 0]


def test_scores_follow_the_weights():
    plain = clustered_posterior(Outcomes.from_counts(FEW))
    scaled = clustered_posterior(Outcomes.from_counts(FEW, weights=[-1.0, 3.0]))
    assert scaled.mu == pytest.approx(4 * plain.mu - 1)
    assert scaled.sigma == pytest.approx(4 * plain.sigma)
    assert scaled.interval().high == pytest.approx(4 * plain.interval().high - 1)


@pytest.mark.parametrize("counts", [[[1, 0]], [[10**5, 0], [0, 10**5]]])
def test_extreme_counts_stay_in_order(counts):
    posterior = clustered_posterior(Outcomes.from_counts(counts))
    for method in ("normal", "beta", "exact"):
        interval = posterior.interval(method=method)
        assert 0.0 <= interval.low < interval.high <= 1.0
        assert interval.scope == "population"
    draws = posterior.distribution.draw(2000, np.random.default_rng(0))
    assert abs(draws.mean() - posterior.mu) < 5 * posterior.sigma / np.sqrt(2000)
    json.dumps(posterior.to_dict(), allow_nan=False)


PAIR = Outcomes.from_counts([[1, 0]] * 2)
ALIKE = Outcomes.from_counts(NESTED, clusters=["a"] * 7)


test_bad_input_is_named = refusals(
    (lambda: Outcomes.from_counts([[1, 0]] * 2, clusters="ab"), "clusters", "type"),
    (lambda: clustered_posterior(PAIR, ["a"]), "clusters", "shape"),
    (lambda: clustered_posterior(PAIR, ["a", float("nan")]), "clusters", "missing"),
    (lambda: hbayes_at_n(ALIKE, "population"), "clusters", "empty"),
    (lambda: common_clusters([("x", "y"), None, ("x", "x")]), "clusters", "mismatch"),
)
