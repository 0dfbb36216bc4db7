"""Anchors, against the paper's formulas written out query by query, and enumeration."""

from __future__ import annotations

import itertools
import json
from dataclasses import replace

import numpy as np
import pytest
from _support.errors import refusals
from scipy import integrate, special, stats

from lm_eval_bayes.stats.anchor_capability import (
    capability_intervals,
    shared_position_log,
)
from lm_eval_bayes.stats.anchor_matrix import (
    AnchorMatrix,
    filter_queries,
    ordering_violations,
)
from lm_eval_bayes.stats.independence import query_independence
from lm_eval_bayes.stats.outcomes import Outcomes
from lm_eval_bayes.stats.score_outcomes import ScoreOutcomes

TABLE = [[0.0, 0.3, 0.1, 0.0], [0.5, 0.75, 0.3, 0.1], [1.0, 0.9, 0.25, 0.5]]
NAMES = ["small", "medium", "large"]
ANCHORS = AnchorMatrix.from_probabilities(TABLE, NAMES, question_ids=["p", "q", "r", "s"])
COUNTS = [[2, 2], [0, 4], [1, 0], [0, 0]]


def rows(epsilon):
    """The anchors within [ε, 1 − ε], and the two virtual ones."""
    inner = [[min(max(p, epsilon), 1 - epsilon) for p in row] for row in TABLE]
    return [[epsilon] * 4, *inner, [1 - epsilon] * 4]


@pytest.mark.parametrize("epsilon", [0.01, 0.2])
def test_query_by_query_average_of_two_binomials(epsilon):
    edges = rows(epsilon)
    likelihoods = []
    for lower, upper in itertools.pairwise(edges):
        value = 1.0
        for (wrong, right), p, q in zip(COUNTS, lower, upper, strict=True):
            n = wrong + right
            value *= (stats.binom.pmf(right, n, p) + stats.binom.pmf(right, n, q)) / 2
        likelihoods.append(value)
    outcomes = Outcomes.from_counts(COUNTS)
    posterior = capability_intervals(ANCHORS, outcomes, epsilon, between="query")
    expected = np.array(likelihoods) / sum(likelihoods)
    assert posterior.probability == pytest.approx(expected, abs=1e-12)
    assert posterior.labels == (
        *("below small", "small to medium"),
        *("medium to large", "above large"),
    )
    assert posterior.p_above("medium") == pytest.approx(expected[2:].sum())
    assert posterior.to_dict()["peak"] == expected.argmax()
    # the paper's likelihood carries a warning
    assert "overconfident" in posterior.note
    assert (posterior.n_queries, posterior.n_trials) == (3, 9)


@pytest.mark.parametrize("epsilon", [0.01, 0.2])
def test_shared_position_is_an_integral_over_it(epsilon):
    likelihoods = []
    for lower, upper in itertools.pairwise(rows(epsilon)):

        def at(u, lower=lower, upper=upper):
            p = (1 - u) * np.array(lower) + u * np.array(upper)
            right = [row[1] for row in COUNTS]
            return np.prod(stats.binom.pmf(right, np.sum(COUNTS, axis=1), p))

        likelihoods.append(integrate.quad(at, 0, 1, epsabs=0, epsrel=1e-10)[0])
    outcomes = Outcomes.from_counts(COUNTS)
    posterior = capability_intervals(ANCHORS, outcomes, epsilon)
    expected = np.array(likelihoods) / sum(likelihoods)
    assert posterior.probability == pytest.approx(expected, abs=1e-9)
    assert (posterior.between, posterior.note) == ("shared", None)


@pytest.mark.parametrize("between", ["query", "shared"])
def test_queries_like_these_by_all_bootstrap_samples(between):
    # the last query has no trial, so three are drawn from three
    expected = np.zeros(4)
    for drawn in itertools.product(range(3), repeat=3):
        once = AnchorMatrix.from_probabilities([[row[q] for q in drawn] for row in TABLE])
        counts = Outcomes.from_counts([COUNTS[q] for q in drawn])
        expected += capability_intervals(once, counts, between=between).probability / 27
    outcomes = Outcomes.from_counts(COUNTS)
    posterior = capability_intervals(
        ANCHORS, outcomes, between=between, scope="population", replicates=20_000
    )
    assert posterior.probability == pytest.approx(expected, abs=0.008)
    assert posterior.scope == json.loads(json.dumps(posterior.to_dict()))["scope"] == "population"
    here = capability_intervals(ANCHORS, outcomes, between=between)
    assert np.abs(here.probability - expected).max() > 0.02


def test_ranges_of_intervals_by_hand():
    posterior = capability_intervals(ANCHORS, Outcomes.from_counts(COUNTS))
    for probability, level, fewest in [
        ([0.02, 0.08, 0.6, 0.3], 0.9, (2, 3)),
        ([0.06, 0.54, 0.38, 0.02], 0.9, (1, 2)),
        ([0.04, 0.92, 0.04, 0.0], 0.9, (1, 1)),
        ([0.0, 0.0, 0.0, 1.0], 0.95, (3, 3)),
        ([1.0, 0.0, 0.0, 0.0], 0.95, (0, 0)),
        ([0.25, 0.25, 0.25, 0.25], 0.5, (0, 1)),
    ]:
        one = replace(posterior, probability=np.array(probability))
        assert one.interval(level) == fewest


def test_anchors_are_sorted_by_what_they_solve():
    models = {
        "strong": Outcomes.from_counts([[0, 4], [1, 3]]),
        "weak": Outcomes.from_counts([[3, 1], [4, 0]]),
    }
    anchors = AnchorMatrix.from_outcomes(models)
    assert anchors.names == ("weak", "strong")
    assert anchors.probabilities.tolist() == [[0.25, 0.0], [1.0, 0.75]]
    smooth = AnchorMatrix.from_outcomes(models, pseudo_count=1.0)
    assert smooth.probabilities == pytest.approx(np.array([[2 / 6, 1 / 6], [5 / 6, 4 / 6]]))


def test_violations_one_by_one():
    report = ordering_violations(ANCHORS)
    found = [(v.gap, v.weaker, v.stronger, v.query) for v in report.violations]
    assert found == [(pytest.approx(0.05), "medium", "large", 2)]
    assert report.n_comparisons == 12
    assert report.share == pytest.approx(1 / 12)
    tied = AnchorMatrix.from_probabilities([[0.2, 0.4], [0.4, 0.2]], ["a", "b"])
    assert ordering_violations(tied).tied == (("a", "b"),)
    assert ordering_violations(AnchorMatrix.from_probabilities([[0.5]])).share == 0.0
    json.dumps(report.to_dict())


def test_queries_are_kept_by_the_share_of_references_that_solve_them():
    # of 200 references 0, 2, 100, 101 and 200 solve the five queries
    table = np.array([[k < n for n in (0, 2, 100, 101, 200)] for k in range(200)], dtype=float)
    chosen = filter_queries(AnchorMatrix.from_probabilities(table))
    assert chosen.kept.tolist() == [1, 2]
    assert chosen.solved == pytest.approx([0, 0.01, 0.5, 0.505, 1])
    assert filter_queries(AnchorMatrix.from_probabilities(table), 0.0, 0.0).kept.tolist() == [0]
    json.dumps(chosen.to_dict())


def test_taking_queries():
    outcomes = Outcomes.from_counts(COUNTS, question_ids=["p", "q", "r", "s"])
    some, part = ANCHORS.take([3, 0]), outcomes.take([3, 0])
    assert some.question_ids == part.question_ids == ("s", "p")
    assert some.probabilities.tolist() == [[row[3], row[0]] for row in TABLE]
    assert part.counts.tolist() == [COUNTS[3], COUNTS[0]]


def exact_p_value(R):
    """Share of all orders of every query's trials whose totals vary as much."""
    observed = R.sum(axis=0).var(ddof=1)
    hits = total = 0
    for orders in itertools.product(itertools.permutations(range(R.shape[1])), repeat=R.shape[0]):
        moved = np.array([row[list(order)] for row, order in zip(R, orders, strict=True)])
        hits += moved.sum(axis=0).var(ddof=1) >= observed - 1e-12
        total += 1
    return hits / total


def test_independence_by_all_permutations():
    R = np.array([[0, 1, 1], [0, 1, 0], [1, 1, 0]])
    check = query_independence(R, permutations=5_000)
    covariance = np.cov(R)
    assert check.variance_ratio == pytest.approx(covariance.sum() / np.trace(covariance))
    assert check.p_value == pytest.approx(exact_p_value(R), abs=0.02)
    assert (check.permutations, check.seed) == (5_000, 0)


def test_independence_of_several_models_is_pooled():
    rng = np.random.default_rng(3)
    R = rng.integers(0, 2, (3, 5, 6))
    covariances = [np.cov(one) for one in R]
    ratio = sum(c.sum() for c in covariances) / sum(np.trace(c) for c in covariances)
    check = query_independence(R)
    assert check.variance_ratio == pytest.approx(ratio)
    assert check.p_value > 0.05
    # trials that share a mood: the same shift for all queries
    mood = rng.random((1, 1, 40)) < 0.5
    tied = (rng.random((2, 10, 40)) < np.where(mood, 0.8, 0.2)).astype(int)
    assert query_independence(tied).p_value < 0.01


def test_nothing_varies():
    check = query_independence([[1, 1], [0, 0]])
    assert (check.variance_ratio, check.p_value) == (None, 1.0)
    json.dumps(check.to_dict())
    one = query_independence([[1, 0], [0, 0]])
    assert one.variance_ratio == 1.0


GOOD = Outcomes.from_counts(COUNTS)
NAMED = Outcomes.from_counts(COUNTS, question_ids=["p", "q", "r", "s"])
OTHERS = Outcomes.from_counts(COUNTS, question_ids=["p", "q", "x", "s"])
UNTRIED = Outcomes.from_counts([[0, 0]] * 4)
UNEQUAL = {"a": NAMED, "b": OTHERS}
SINGLE = Outcomes.from_matrix([[1]])
GRADED = Outcomes.from_counts([[1, 1, 1]])


test_bad_input_is_named = refusals(
    (lambda: capability_intervals(ANCHORS, GOOD, 0.5), "epsilon", "range"),
    (lambda: capability_intervals(ANCHORS, GOOD, between="x"), "between", "choice"),
    (lambda: capability_intervals(ANCHORS, GOOD).p_above("x"), "anchor", "choice"),
    (lambda: capability_intervals(ANCHORS, GOOD, scope="x"), "scope", "choice"),
    (lambda: capability_intervals(ANCHORS, SINGLE), "outcomes", "mismatch"),
    (lambda: capability_intervals(ANCHORS, OTHERS), "outcomes", "mismatch"),
    (lambda: capability_intervals(ANCHORS, UNTRIED), "outcomes", "empty"),
    (lambda: AnchorMatrix.from_probabilities([[0.5, 1.5]]), "probabilities", "range"),
    (lambda: AnchorMatrix.from_probabilities([0.5]), "probabilities", "shape"),
    (lambda: AnchorMatrix.from_probabilities(TABLE, ["a", "a", "b"]), "names", "duplicate"),
    (lambda: AnchorMatrix.from_outcomes({}), "models", "empty"),
    (lambda: AnchorMatrix.from_outcomes({"a": GOOD}, pseudo_count=-1), "pseudo_count", "range"),
    (lambda: AnchorMatrix.from_outcomes({"a": GOOD}), "models['a']", "empty"),
    (
        lambda: AnchorMatrix.from_outcomes({"a": NAMED, "b": SINGLE}, pseudo_count=1),
        "models['b']",
        "shape",
    ),
    (lambda: AnchorMatrix.from_outcomes(UNEQUAL, pseudo_count=1), "models['b']", "mismatch"),
    (lambda: AnchorMatrix.from_outcomes({"a": GRADED}), "models['a']", "unsupported"),
    (
        lambda: AnchorMatrix.from_outcomes({"a": ScoreOutcomes.from_scores([[0.9], [0.2]])}),
        "models['a']",
        "unsupported",
    ),
    (lambda: filter_queries(ANCHORS, 0.6, 0.5), "low, high", "range"),
    (lambda: query_independence([[1], [0]]), "R", "shape"),
    (lambda: query_independence([[1, 2], [0, 1]]), "R", "shape"),
)


def fine_grid_log(weaker, stronger, solved, failed, cells=400_000):
    """log ∫₀¹ of the likelihood by Simpson's rule, with 20 cells in the narrowest sd."""
    u = np.linspace(0, 1, cells + 1)
    logs = np.zeros_like(u)
    for a, b, c, f in zip(weaker, stronger, solved, failed, strict=True):
        p = (1 - u) * a + u * b
        logs += c * np.log(p) + f * np.log1p(-p)
    weights = np.ones(cells + 1)
    weights[1:-1:2], weights[2:-1:2] = 4, 2
    return special.logsumexp(logs, b=weights / (3 * cells))


@pytest.mark.parametrize(("trials", "place"), [(100_000, 0.9999), (10_000_000, 0.3)])
def test_a_shared_position_against_a_very_fine_grid(trials, place):
    rng = np.random.default_rng(trials)
    weaker, stronger = np.sort(rng.uniform(0.02, 0.98, (2, 5)), axis=0)
    stronger[4], weaker[4] = weaker[4], stronger[4]  # an anchor that is weaker on one query
    each = max(1, trials // 5)
    solved = rng.binomial(each, (1 - place) * weaker + place * stronger).astype(float)
    ours = shared_position_log(weaker, stronger, solved, each - solved, np.ones((1, 5)))
    brute = fine_grid_log(weaker, stronger, solved, each - solved)
    # of ten million logarithms the sum itself is known to some 1e-9
    assert ours[0] == pytest.approx(brute, abs=1e-10 + 1e-9 * (trials > 1e6))
