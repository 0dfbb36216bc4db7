from __future__ import annotations

import json

import numpy as np
import pytest
from _support.errors import refusals
from scipy import stats

from lm_eval_bayes.stats.comparison.compare import compare, share_error, z_threshold
from lm_eval_bayes.stats.hierarchical.hbayes_at_n import (
    PRIOR_ALONE,
    few_questions_note,
)
from lm_eval_bayes.stats.outcomes import Outcomes
from lm_eval_bayes.stats.uniform_prior import bayes_at_n

A = Outcomes.from_matrix([[1, 1, 1, 1], [1, 0, 1, 1], [0, 1, 1, 0]])
B = Outcomes.from_matrix([[1, 0, 0, 1], [0, 0, 1, 0], [0, 0, 0, 0]])


def matrices(seed, questions, trials, a=(1, 1), b=(1, 1)):
    rng = np.random.default_rng(seed)
    return [
        Outcomes.from_matrix(rng.binomial(1, rng.beta(*p, (questions, 1)), (questions, trials)))
        for p in (a, b)
    ]


def test_z_and_rho_of_the_paper():
    # [Hariri 2026, §2.9]: z = 1.645 is ρ = .95 and z = 1.96 is ρ = .975, one-sided
    assert z_threshold(0.95) == pytest.approx(1.645, abs=5e-4)
    assert z_threshold(0.975) == pytest.approx(1.96, abs=5e-4)
    result = compare(A, B, estimator="bayes")
    first, second = bayes_at_n(A), bayes_at_n(B)
    z = abs(first.mu - second.mu) / np.sqrt(first.sigma**2 + second.sigma**2)
    assert result.z == pytest.approx(z, rel=1e-12)
    assert result.rho == pytest.approx(stats.norm.cdf(z), rel=1e-12)
    assert result.difference == pytest.approx(first.mu - second.mu, abs=1e-15)


def test_near_the_threshold_of_z():
    """Right answers of four by question; z is 1.673 and 1.633, by hand from Alg. 1."""
    first, second, third = (
        Outcomes.from_counts([[4 - c, c] for c in right])
        for right in ((2, 4, 4), (0, 3, 3), (0, 1, 1))
    )
    above, below = (compare(a, b, estimator="bayes") for a, b in ((first, second), (second, third)))
    assert (above.z, below.z) == pytest.approx((1.67332, 1.632993), abs=1e-6)
    assert (above.rule_z, below.rule_z) == ("a", "undecided")
    assert compare(second, first, estimator="bayes").rule_z == "b"


def test_p_a_greater_against_simulation_by_hand():
    rng = np.random.default_rng(0)
    n = 500_000
    scores = [
        rng.beta(1 + side.counts[:, 1], 1 + side.counts[:, 0], (n, 3)).mean(axis=1)
        for side in (A, B)
    ]
    drawn = scores[0] - scores[1]
    result = compare(A, B, estimator="bayes", rope=(-0.05, 0.1))
    error = result.mc_error
    assert 0.0 < error < 2e-3
    assert result.p_a_greater == pytest.approx((drawn > 0).mean(), abs=4 * error)
    inside = ((drawn >= -0.05) & (drawn <= 0.1)).mean()
    assert result.p_rope == pytest.approx(inside, abs=0.015)
    low, high = np.quantile(drawn, [0.025, 0.975])
    ends = (result.interval.low, result.interval.high)
    assert ends == pytest.approx((low, high), abs=5 * result.interval.mc_error)


def test_the_rule_of_the_intervals_is_the_stricter_one():
    strong, weak = matrices(1, 40, 12, (6, 2), (2, 6))
    result = compare(strong, weak)
    assert (result.rule_intervals, result.rule_z) == ("a", "a")
    assert result.interval_a.low > result.interval_b.high
    assert compare(weak, strong).rule_intervals == "b"
    both = compare(A, B, estimator="bayes", interval="normal")
    assert (both.rule_intervals, both.rule_z) == ("undecided", "a")


@pytest.mark.parametrize("method", ["exact", "normal", "beta"])
def test_every_kind_of_interval(method):
    result = compare(A, B, "population", 0.9, interval=method)
    interval = result.interval
    assert (interval.method, interval.scope, interval.level) == (method, "population", 0.9)
    assert -1 <= interval.low < result.difference < interval.high <= 1
    if method == "normal":
        half = stats.norm.ppf(0.95) * result.sd
        low, high = max(-1, result.difference - half), min(1, result.difference + half)
        assert (interval.low, interval.high) == pytest.approx((low, high))
    assert interval.width == pytest.approx(2 * 1.645 * result.sd, rel=0.15)


def test_more_than_two_categories():
    weights = [0, 0.3, 1]
    rng = np.random.default_rng(2)
    a, b = (Outcomes.from_matrix(rng.integers(0, 3, (8, 5)), weights=weights) for _ in "ab")
    result = compare(a, b, estimator="bayes", seed=3, rope=0.02)
    gammas = [rng.standard_gamma(np.broadcast_to(x.counts + 1, (40_000, 8, 3))) for x in (a, b)]
    drawn = [(g @ np.array(weights) / g.sum(axis=2)).mean(axis=1) for g in gammas]
    share = (drawn[0] > drawn[1]).mean()
    assert result.p_a_greater == pytest.approx(share, abs=5 * (0.0025 + result.mc_error))
    p = result.p_a_greater
    assert result.mc_error == pytest.approx(np.sqrt(p * (1 - p) / 20_000), rel=1e-3)
    assert 0 < share_error(1.0, 10_000) < 1e-3
    assert result.seed == 3
    assert 0 < result.p_rope < 1
    assert compare(a, b, "population").interval.mc_error > 0


def test_scores_that_are_certain():
    flat = Outcomes.from_counts([[1, 3], [0, 2]], weights=[1, 1])
    result = compare(flat, flat, rope=0.0)
    assert (result.difference, result.sd, result.z, result.rho) == (0.0, 0.0, 0.0, 0.5)
    assert (result.p_a_greater, result.p_rope) == (0.5, 1.0)
    assert (result.rule_intervals, result.rule_z) == ("undecided", "undecided")
    json.dumps(result.to_dict(), allow_nan=False)


def test_one_trial_a_question_comes_with_a_note():
    a, b = matrices(0, 30, 1)
    assert compare(a, b).to_dict()["note"] == PRIOR_ALONE
    # observed differences do not rest on a prior
    assert compare(a, b, "population").to_dict()["note"] is None
    assert compare(A, B).to_dict()["note"] == few_questions_note(3)


IDS = ["q1", "q2", "q3"]


def with_ids(outcomes, ids):
    return Outcomes.from_counts(outcomes.counts, question_ids=ids)


def test_the_intersection_is_counted_and_in_the_order_of_a():
    a = with_ids(A, ["q3", "q2", "q1"])
    b = with_ids(B, ["q1", "q9", "q3"])
    result = compare(a, b, align="intersection", estimator="bayes")
    assert (result.n_questions, result.left_out_a, result.left_out_b) == (2, 1, 1)
    expected = bayes_at_n(Outcomes.from_counts(A.counts[[0, 2]])).per_question.mu
    np.testing.assert_array_equal(result.a.per_question.mu, expected)
    expected = bayes_at_n(Outcomes.from_counts(B.counts[[2, 0]])).per_question.mu
    np.testing.assert_array_equal(result.b.per_question.mu, expected)


def test_prior_trials_travel_with_their_questions():
    prior = np.array([[5, 0], [0, 5], [1, 1]])
    a = Outcomes.from_counts(A.counts, prior_counts=prior, prior_strength=0.5, question_ids=IDS)
    turned = Outcomes.from_counts(
        A.counts[::-1], prior_counts=prior[::-1], prior_strength=0.5, question_ids=IDS[::-1]
    )
    result = compare(a, turned)
    np.testing.assert_array_equal(result.a.per_question.mu, result.b.per_question.mu)
    assert result.p_a_greater == pytest.approx(0.5, abs=4 * result.mc_error)


NAMED = with_ids(A, IDS)
ONE = Outcomes.from_matrix([[1, 0]])


test_questions_that_do_not_match = refusals(
    (lambda: compare(A, Outcomes.from_counts(B.counts[:2])), "b", "shape"),
    (lambda: compare(NAMED, B), "b", "missing"),
    (lambda: compare(B, NAMED, align="intersection"), "a", "missing"),
    (lambda: compare(NAMED, with_ids(B, ["q1", "q7", "q3"])), "b", "mismatch"),
    (lambda: compare(NAMED, with_ids(B, ["x", "y", "z"]), align="intersection"), "b", "mismatch"),
    (lambda: compare(A, Outcomes.from_counts(B.counts, weights=[0, 2])), "b", "mismatch"),
    (lambda: compare(ONE, ONE, scope="population"), "posteriors", "empty"),
)


test_arguments_that_are_refused = refusals(
    (lambda: compare(A, B, scope="world"), "scope", "choice"),
    (lambda: compare(A, B, estimator="avg"), "estimator", "choice"),
    (lambda: compare(A, B, scope="population", estimator="bayes"), "estimator", "unsupported"),
    (lambda: compare(A, B, align="loose"), "align", "choice"),
    (lambda: compare(A, B, rope=-0.1), "rope", "range"),
    (lambda: compare(A, B, rope=float("nan")), "rope", "range"),
)
