"""Confidence intervals, against scipy.stats, formulas written out anew, and enumeration."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
from _support.errors import refusals
from scipy import stats

from lm_eval_bayes.stats.frequentist import (
    clopper_pearson_interval,
    odds_ratio_interval,
    wilson_interval,
)
from lm_eval_bayes.stats.frequentist_means import (
    bootstrap_interval,
    clt_interval,
    clustered_interval,
    difference_interval,
    t_interval,
    within_question_clt,
)
from lm_eval_bayes.stats.outcomes import Outcomes
from lm_eval_bayes.stats.uniform_prior import avg_at_n

RNG = np.random.default_rng(20250302)
SCORES = RNG.random(23)
RUBRIC = Outcomes.from_counts([[3, 1, 2], [0, 0, 7], [2, 2, 0], [1, 0, 1]], weights=[0, 0.25, 1])


def ends(interval):
    return interval.low, interval.high


def test_clt_and_t_are_those_of_scipy():
    mean, error = SCORES.mean(), stats.sem(SCORES)
    expected = stats.norm.interval(0.8, mean, error)
    assert ends(clt_interval(SCORES, 0.8)) == pytest.approx(expected, abs=1e-12)
    expected = stats.t.interval(0.8, SCORES.size - 1, mean, error)
    assert ends(t_interval(SCORES, 0.8)) == pytest.approx(expected, abs=1e-12)


def test_within_question_clt_from_the_scores_themselves():
    scores = [np.repeat(RUBRIC.weights, row) for row in RUBRIC.counts]
    error = math.sqrt(sum(x.var(ddof=1) / x.size for x in scores)) / len(scores)
    mean = np.mean([x.mean() for x in scores])
    interval = within_question_clt(RUBRIC, 0.9)
    assert interval.standard_error == pytest.approx(error, rel=1e-12)
    assert ends(interval) == pytest.approx(stats.norm.interval(0.9, mean, error), abs=1e-12)
    assert interval.scope == "benchmark"


def test_outcomes_give_their_question_means():
    means = avg_at_n(RUBRIC).per_question
    assert clt_interval(RUBRIC).to_dict() == clt_interval(means).to_dict()
    ids = ["a", "a", "b", "b"]
    assert clustered_interval(RUBRIC, ids).low == clustered_interval(means, ids).low


def miller_equation_4(scores, clusters):
    """SE_CLT² plus the covariances within clusters, pair by pair, in [Bowyer 2025]'s form."""
    n, mean = len(scores), np.mean(scores)
    total = sum((s - mean) ** 2 for s in scores)
    for i, j in itertools.permutations(range(n), 2):
        if clusters[i] == clusters[j]:
            total += (scores[i] - mean) * (scores[j] - mean)
    return math.sqrt(total) / n


def test_clustered_standard_error_pair_by_pair():
    clusters = RNG.integers(0, 6, SCORES.size)
    expected = miller_equation_4(SCORES, clusters)
    interval = clustered_interval(SCORES, clusters.tolist(), 0.9)
    assert interval.standard_error == pytest.approx(expected, rel=1e-12)
    wide = clustered_interval(SCORES, clusters.tolist(), 0.9, small_sample=True)
    groups = np.unique(clusters).size
    assert wide.standard_error == pytest.approx(expected * math.sqrt(groups / (groups - 1)))
    t = stats.t.ppf(0.95, groups - 1)
    assert wide.high == pytest.approx(SCORES.mean() + t * wide.standard_error)


def test_bootstrap_of_a_share_is_the_binomial():
    scores = [1] * 30 + [0] * 20
    interval = bootstrap_interval(scores, 0.9, replicates=200_000, seed=3)
    # Bin(50, .6): both quantiles lie well within an atom, so 2·10⁵ draws hit them
    assert ends(interval) == tuple(stats.binom.ppf([0.05, 0.95], 50, 0.6) / 50)
    assert interval.standard_error == pytest.approx(math.sqrt(0.24 / 50), rel=0.01)
    assert (interval.seed, interval.replicates) == (3, 200_000)


def test_no_spread_has_a_note():
    for interval in (t_interval([1, 1, 1]), bootstrap_interval([1, 1, 1])):
        assert interval.width == 0.0
        assert "no variation" in interval.note


def test_differences_have_the_standard_errors_of_the_t_tests():
    other = np.clip(SCORES + RNG.normal(0, 0.2, SCORES.size), 0, 1)
    paired = difference_interval(SCORES, other)
    test = stats.ttest_rel(SCORES, other)
    assert paired.estimate / paired.standard_error == pytest.approx(test.statistic, rel=1e-12)
    unpaired = difference_interval(SCORES, other[:20], paired=False)
    test = stats.ttest_ind(SCORES, other[:20], equal_var=False)
    assert unpaired.estimate / unpaired.standard_error == pytest.approx(test.statistic, rel=1e-12)


def test_outcomes_are_paired_by_their_ids():
    a = Outcomes.from_matrix([[1, 1, 0], [0, 1, 0]], question_ids=["p", "q"])
    b = Outcomes.from_matrix([[0, 1, 0, 1], [0, 0, 0, 1]], question_ids=["q", "p"])
    # p against p, although b tells of q first
    gaps = np.array([2 / 3 - 1 / 4, 1 / 3 - 1 / 2])
    error = difference_interval(a, b).standard_error
    assert error == pytest.approx(gaps.std(ddof=1) / math.sqrt(2), rel=1e-12)


def test_odds_ratio_is_that_of_scipy():
    table = np.array([[15, 5], [9, 11]])
    for method, kind in (("delta", "sample"), ("fisher", "conditional")):
        theirs = stats.contingency.odds_ratio(table, kind=kind)
        limits = theirs.confidence_interval(0.9)
        interval = odds_ratio_interval(15, 20, 9, 20, 0.9, method=method)
        assert interval.estimate == pytest.approx(theirs.statistic)
        assert ends(interval) == pytest.approx((limits.low, limits.high), rel=1e-6)


def test_odds_ratio_with_an_empty_cell():
    interval = odds_ratio_interval(10, 10, 6, 10)
    logs = math.log(10.5 / 0.5) - math.log(6.5 / 4.5)
    error = math.sqrt(1 / 10.5 + 1 / 0.5 + 1 / 6.5 + 1 / 4.5)
    z = stats.norm.ppf(0.975)
    assert interval.low == pytest.approx(math.exp(logs - z * error))
    assert interval.note is not None
    fisher = odds_ratio_interval(10, 10, 6, 10, method="fisher")
    assert fisher.high == math.inf
    assert fisher.to_dict()["high"] is None
    nothing = odds_ratio_interval(5, 5, 4, 4, method="fisher")
    assert ends(nothing) == (0.0, math.inf)
    assert nothing.note is not None


def test_what_leaves_the_possible_scores_is_clipped():
    interval = clt_interval([1] * 19 + [0])
    assert interval.high == 1.0 < 0.95 + stats.norm.ppf(0.975) * interval.standard_error
    assert interval.width == interval.high - interval.low
    outcomes = Outcomes.from_counts([[0, 4], [1, 3]], weights=[-1.0, 2.0])
    assert within_question_clt(outcomes).high == 2.0
    assert difference_interval([1, 1, 1, 0], [0, 0, 1, 0]).high == 1.0


test_bad_input_is_named = refusals(
    (lambda: clt_interval([1]), "scores", "empty"),
    (lambda: t_interval([[1, 0]]), "scores", "shape"),
    (lambda: clt_interval([0.5, np.nan]), "scores", "range"),
    (lambda: within_question_clt(Outcomes.from_counts([[1, 1], [1, 0]])), "outcomes", "empty"),
    (lambda: wilson_interval(3, 2), "successes", "range"),
    (lambda: clustered_interval([0, 1], ["a", "a"]), "clusters", "empty"),
    (lambda: difference_interval([0, 1], [0, 1, 1]), "b", "shape"),
    (lambda: odds_ratio_interval(3, 2, 1, 2), "successes_a", "range"),
    (lambda: clt_interval([0.5, 3.0]), "scores", "range"),
)


@pytest.mark.parametrize("level", [0.5, 0.999])
@pytest.mark.parametrize(("s", "n"), [(0, 10), (1, 1), (30, 1000)])
def test_binomial_intervals_are_those_of_scipy(s, n, level):
    for interval, name in ((wilson_interval, "wilson"), (clopper_pearson_interval, "exact")):
        expected = stats.binomtest(s, n).proportion_ci(level, method=name)
        assert ends(interval(s, n, level)) == pytest.approx(tuple(expected), rel=1e-8, abs=1e-12)


@pytest.mark.parametrize("level", [0.5, 0.999])
@pytest.mark.parametrize("n", [3, 10**12])
def test_clopper_pearson_keeps_its_digits_at_tiny_shares(n, level):
    tail = 0.5 * (1.0 - level)
    none, every, single = (clopper_pearson_interval(s, n, level) for s in (0, n, 1))
    # no success: (1 - p)^n = tail; all: p^n = tail; one: 1 - (1 - p)^n = tail at the lower end
    assert none.high == pytest.approx(-math.expm1(math.log(tail) / n), rel=1e-11)
    assert every.low == pytest.approx(math.exp(math.log(tail) / n), rel=1e-12)
    assert single.low == pytest.approx(-math.expm1(math.log1p(-tail) / n), rel=1e-11)


def test_wilson_keeps_its_digits_at_tiny_shares():
    n = 10**12
    interval, z = wilson_interval(1, n), stats.norm.ppf(0.975)
    # the product of the roots of (1/n - p)^2 = z^2 p (1 - p) / n is 1 / (n (n + z^2))
    assert interval.low * interval.high * n * (n + z * z) == pytest.approx(1.0, rel=1e-12)
    assert interval.low + interval.high == pytest.approx((2 + z * z) / (n + z * z), rel=1e-12)
