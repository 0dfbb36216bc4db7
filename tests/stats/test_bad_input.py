"""Values that any argument of the numeric API may get, and the looks of stopping rules."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from _support.errors import refusals, refused

import lm_eval_bayes as leb
from lm_eval_bayes._util.validation import (
    MOST_DRAWS,
    MOST_HELD,
    check_integer,
    check_seed,
    check_size,
)
from lm_eval_bayes.stats.hierarchical.hbayes_at_n import NO_TRIALS, PRIOR_ALONE

A = leb.Outcomes.from_counts([[3, 5], [6, 2], [4, 4]])
B = leb.Outcomes.from_counts([[5, 3], [6, 2], [7, 1]])
POSTERIOR = leb.bayes_at_n(A)
PAIR = {"a": POSTERIOR, "b": leb.bayes_at_n(B)}
ANCHORS = leb.AnchorMatrix.from_probabilities([[0.1, 0.2, 0.3], [0.5, 0.6, 0.7]])
CELLS = (5, 3, 2, 4)


test_bad_values = refusals(
    (lambda: leb.Outcomes.from_matrix([[1, 2], [3]]), "R", "shape"),
    (lambda: leb.DecisionReached(analyses={1, 2}), "analyses", "type"),
    (lambda: leb.maj_at_k([b"ab"], [[True]], 1), "answers", "type"),
    (lambda: ANCHORS.take(3), "queries", "type"),
    (lambda: leb.compare_pass_curves(A, B, 4), "ks", "type"),
    (lambda: leb.DecisionReached(analyses=range(1, 10**12)), "analyses", "range"),
    (lambda: leb.rank(PAIR, ties=[]), "ties", "choice"),
    (lambda: leb.rank(PAIR).rank_of(np.array(["a", "b"])), "model", "choice"),
    (lambda: leb.difference_interval([1, 0], [0, 0], paired="no"), "paired", "type"),
    (lambda: leb.clustered_interval([1, 0], "ab", small_sample=1), "small_sample", "type"),
    (
        lambda: leb.odds_ratio_interval(1, 10**12, 1, 5, method="fisher"),
        "trials_a, trials_b",
        "range",
    ),
    (lambda: leb.capability_intervals([[0.1], [0.2]], A), "anchors", "type"),
    (lambda: leb.filter_queries(None), "references", "type"),
    (lambda: leb.trials_needed(A, width=0.1), "posterior", "type"),
    (lambda: leb.size_for_difference(A, 0.1), "components", "type"),
    (lambda: leb.confusion_posterior(CELLS, int), "score", "choice"),
)


def test_the_shared_bounds_are_the_documented_ones():
    assert check_size("draws", MOST_DRAWS, 1) == MOST_DRAWS
    assert check_size("draws", MOST_HELD // 100, 1, per_item=100) == MOST_HELD // 100
    with refused("draws", "range", 2_000_001):
        check_size("draws", 2_000_001, 1, per_item=100)
    # the smallest number that makes sense is always allowed
    assert check_size("draws", 100, 100, per_item=MOST_HELD) == 100
    assert check_integer("n", 10**30, 0) == 10**30
    assert check_seed(2**128 - 1) == 2**128 - 1
    with refused("seed", "range", 2**128):
        check_seed(2**128)


@pytest.mark.parametrize(
    "rule",
    [
        leb.WidthReached(0.9),
        leb.DecisionReached(),
    ],
    ids=lambda rule: type(rule).__name__,
)
def test_a_look_at_another_number_of_trials(rule):
    for trials in (7, 9):
        with refused("trials", "mismatch", trials):
            rule.evaluate(trials, PAIR)
    assert rule.evaluate(8, PAIR).trials == 8


def test_a_look_counts_no_prior_trials():
    with_prior = leb.Outcomes.from_counts([[3, 5], [6, 2]], prior_counts=[[1, 3], [0, 2]])
    posterior = leb.hbayes_at_n(with_prior)
    assert posterior.n_trials == 11
    rule = leb.WidthReached(0.9)
    assert rule.evaluate(8, {"a": posterior}).trials == 8
    with refused("trials", "mismatch", 11):
        rule.evaluate(11, {"a": posterior})


def test_a_look_may_be_anywhere_among_ragged_trials():
    posterior = leb.hbayes_at_n(leb.Outcomes.from_counts([[3, 5], [6, 0]]), "population")
    assert posterior.trials_range == (6, 8)
    rule = leb.WidthReached(1e-3)
    for trials in (6, 7, 8):
        assert not rule.evaluate(trials, {"a": posterior}).stop
    for trials in (5, 9):
        with refused("trials", "mismatch", trials):
            rule.evaluate(trials, {"a": posterior})


def test_a_look_at_what_knows_no_trials():
    posterior = replace(leb.hbayes_at_n(A), trials_range=None)
    assert not leb.WidthReached(1e-3).evaluate(9, {"a": posterior}).stop


@pytest.mark.parametrize("width", [2, 3], ids=["binary", "rubric"])
@pytest.mark.parametrize("scope", ["benchmark", "population"])
def test_no_trial_is_not_one_trial(width, scope):
    nothing = leb.hbayes_at_n(leb.Outcomes.from_counts(np.zeros((3, width), int)), scope)
    assert NO_TRIALS in nothing.note
    assert PRIOR_ALONE not in nothing.note
    once = leb.hbayes_at_n(leb.Outcomes.from_counts(np.eye(width, dtype=int)), scope)
    assert (once.note is not None and PRIOR_ALONE in once.note) == (scope == "benchmark")
