"""Every schema over all combinations of variables, and over all combinations of signals."""

from __future__ import annotations

import itertools
from collections import Counter

import numpy as np
import pytest
from _support.errors import refused
from _support.fake_runs import LOOKS_AT, category_of, with_columns
from hypothesis import given, settings
from hypothesis import strategies as st

from lm_eval_bayes.rubric.rules import VARIABLES, variable
from lm_eval_bayes.rubric.schemata import SCHEMATA
from lm_eval_bayes.rubric.scoring import score
from lm_eval_bayes.rubric.signals import SignalTable
from lm_eval_bayes.rubric.thresholds import TaskThresholds, task_thresholds

CATEGORIES = {
    "exact_match": 3,
    "format_aware": 5,
    "conf_calibrated": 6,
    "ood_robustness": 5,
    "strict_compliance": 3,
    "conf_wrong_penalty": 4,
    "verifier_only": 4,
    "format_confidence": 8,
    "length_robust": 3,
    "verifier_probe": 5,
    "efficiency_adjusted": 7,
    "concision_high_conf": 6,
}

#: The best category, where it is not the last.
BEST = {"ood_robustness": 3, "efficiency_adjusted": 4}


def all_worlds():
    """Yield every combination of variables that can be: 1,728 of them."""
    two = (True, False)
    for invalid, boxed, sure, ood, a_high, b_leads in itertools.product(two, repeat=6):
        for grade in ("correct", "wrong", "confidently wrong"):
            for length, third in itertools.product(range(3), repeat=2):
                yield {
                    "invalid": invalid,
                    "correct": grade == "correct",
                    "wrong": grade != "correct",
                    "wrong_high_conf": grade == "confidently wrong",
                    "boxed": boxed,
                    "unboxed": not boxed,
                    "high_conf": sure,
                    "low_conf": not sure,
                    "ood": ood,
                    "ind": not ood,
                    "economical": length == 0,
                    "moderate": length == 1,
                    "verbose": length == 2,
                    "corr_high": third == 0,
                    "corr_mid": third == 1,
                    "corr_low": third == 2,
                    "A_high": a_high,
                    "B_leads": b_leads,
                }


WORLDS = list(all_worlds())


def test_the_worlds_are_all_of_them():
    assert len(WORLDS) == 1728
    assert all(set(world) == set(VARIABLES) for world in WORLDS)


@pytest.mark.parametrize("name", SCHEMATA)
def test_exactly_one_rule_holds_in_every_world(name):
    """Total and disjoint, so that even the order of the rules does not matter."""
    schema = SCHEMATA[name]
    arrays = {v: np.array([w[v] for w in WORLDS], dtype=float) for v in VARIABLES}
    truths = np.array([rule.evaluate(arrays.__getitem__, None) for rule in schema.rules])
    assert set(np.unique(truths)) == {0, 1}
    assert (truths.sum(axis=0) == 1).all()
    assert (truths.sum(axis=1) > 0).all(), "a category that no trial can be in"
    assert (truths[0] == arrays["invalid"]).all()


@pytest.mark.parametrize("name", SCHEMATA)
def test_names_counts_and_weights(name):
    schema = SCHEMATA[name]
    names = [category.name for category in schema.categories]
    assert len(names) == len(set(names)) == CATEGORIES[name]
    assert names[0] == "invalid"
    assert schema.weights[0] == 0.0
    assert min(schema.weights) == 0.0
    assert max(schema.weights) == schema.weights[BEST.get(name, -1)] == 1.0
    assert schema.weights.count(1.0) == 1
    assert schema.why


def test_the_weights_that_the_paper_gives():
    assert SCHEMATA["format_aware"].weights == (0.0, 0.0, 1 / 3, 2 / 3, 1.0)


def test_a_right_answer_is_worth_more_than_a_wrong_one():
    for schema in SCHEMATA.values():
        right = [c.weight for c in schema.categories if c.name.startswith("correct")]
        wrong = [c.weight for c in schema.categories if c.name.startswith("wrong")]
        assert not right or min(right) > max(wrong)


# --- all combinations of signals, with every one of them missing as well ---

CUTS = [
    {"tau_high": 1.0, "tau_low_wrong": 2.0, "corr_p33": 0.5, "corr_p66": 1.5},
    {"tau_high": 1.5, "tau_low_wrong": 0.5, "corr_p33": 1.0, "corr_p66": 1.0},
]
OTHERS = {"tau_prompt": 3.0, "ratio_p33": 0.25, "ratio_p66": 0.5}
LEVELS = {
    "is_correct": (0, 1, None),
    "has_box": (0, 1, None),
    "repeated_pattern": (0, 1, None),
    "verifier_c": (0.2, 0.3, 0.49, 0.5, 0.9, None),
    "verifier_b": (0.2, 0.3, 0.4, None),
    "verifier_a": (0.1, 0.59, 0.6, 1.0, None),
    "completion_bpt": (0.25, 0.5, 0.75, 1.0, 1.25, 1.5, 1.75, 2.0, 2.25, None),
    "prompt_bpt": (2.0, 3.0, 4.0, None),
    "token_ratio": (0.1, 0.25, 0.3, 0.5, 1.0, None),
}


@pytest.mark.parametrize("cuts", CUTS, ids=["in order", "crossed and tied"])
@pytest.mark.parametrize("name", SCHEMATA)
def test_a_trial_is_missing_exactly_where_its_category_is_not_certain(name, cuts):
    """Beside a classification that tries every value that a missing one might have had."""
    cuts = {**cuts, **OTHERS}
    signals = ("repeated_pattern", "verifier_c", *LOOKS_AT[name])
    combinations = list(itertools.product(*(LEVELS[signal] for signal in signals)))
    trials = [dict(zip(signals, values, strict=True)) for values in combinations]
    columns = {signal: [trial[signal] for trial in trials] for signal in signals}
    table = SignalTable.from_questions([columns])
    found = SCHEMATA[name].classify(table, TaskThresholds(**cuts)).tolist()
    expected = [category_of(name, trial, cuts) for trial in trials]
    different = [
        (trial, a, b) for trial, a, b in zip(trials, found, expected, strict=True) if a != b
    ]
    assert not different
    tied = name == "conf_calibrated" and cuts["corr_p33"] == cuts["corr_p66"]
    assert set(found) == {*range(CATEGORIES[name]), -1} - ({4} if tied else set())


# --- random tables ---


def column(values):
    return st.lists(st.one_of(st.none(), values), min_size=6, max_size=6)


SHARE = st.sampled_from([0.0, 0.1, 0.25, 0.5, 0.6, 1.0])
QUESTION = st.fixed_dictionaries(
    {
        "is_correct": column(st.sampled_from([0, 1])),
        "has_box": column(st.sampled_from([0, 1])),
        "repeated_pattern": column(st.sampled_from([0, 1])),
        "token_ratio": column(SHARE),
        "prompt_bpt": column(st.sampled_from([1.0, 2.0, 3.0])),
        "completion_bpt": column(st.sampled_from([0.5, 1.0, 1.5, 2.0])),
        "verifier_a": column(SHARE),
        "verifier_b": column(SHARE),
        "verifier_c": column(SHARE),
    }
)
TABLES = st.lists(QUESTION, min_size=1, max_size=4).map(SignalTable.from_questions)


@given(TABLES)
@settings(max_examples=20, deadline=None)
def test_groups_of_variables_exclude_each_other_and_know_as_much(table):
    cuts = task_thresholds([table])
    found = {name: variable(name, table, cuts) for name in VARIABLES}
    for group in (
        ("correct", "wrong"),
        ("boxed", "unboxed"),
        ("high_conf", "low_conf"),
        ("ood", "ind"),
        ("economical", "moderate", "verbose"),
        ("corr_high", "corr_mid", "corr_low"),
    ):
        values = np.array([found[name] for name in group])
        unknown = (values == 0.5).any(axis=0)
        assert (values[:, unknown] == 0.5).all()
        assert (values[:, ~unknown].sum(axis=0) == 1).all()
    assert not ((found["wrong_high_conf"] == 1) & (found["wrong"] != 1)).any()


@given(TABLES, st.sampled_from(list(SCHEMATA)), st.randoms(use_true_random=False))
@settings(max_examples=20, deadline=None)
def test_trials_are_counted_once_wherever_they_stand(table, name, random):
    cuts = task_thresholds([table])
    schema = SCHEMATA[name]
    if not all(table.has(signal) for signal in schema.needs):
        return
    if table.n_trials and (schema.classify(table, cuts) < 0).all():
        # each signal is there, but no trial has all of them
        with refused("thresholds", "missing"):
            score(schema, table, cuts)
        return
    found = score(schema, table, cuts)
    assert found.outcomes.counts.sum() + found.missing == table.n_trials
    order = list(range(table.n_trials))
    random.shuffle(order)
    shuffled = SignalTable(
        table.question[order],
        {signal: values[order] for signal, values in table.columns.items()},
        table.n_questions,
    )
    other = score(schema, shuffled, cuts)
    assert task_thresholds([shuffled]) == cuts
    np.testing.assert_array_equal(other.outcomes.counts, found.outcomes.counts)
    categories = Counter(schema.classify(table, cuts).tolist())
    assert [categories[k] for k in range(len(schema.categories))] == found.outcomes.counts.sum(
        0
    ).tolist()


#: The signals that may lie between 0 and 1.
FRACTIONS = {"token_ratio", "prompt_bpt", "completion_bpt", "verifier_a", "verifier_b"}


@given(TABLES, st.sampled_from(list(SCHEMATA)))
@settings(max_examples=20, deadline=None)
def test_learning_a_missing_value_never_changes_a_category(table, name):
    """A trial that had a category keeps it, whatever its missing values turn out to be."""
    cuts = task_thresholds([table])
    before = SCHEMATA[name].classify(table, cuts)
    for fill in (0.0, 0.45, 1.0):
        filled = {
            signal: np.where(np.isnan(values), fill if signal in FRACTIONS else round(fill), values)
            for signal, values in table.columns.items()
            if signal != "verifier_c"  # that a trial has not been judged is known
        }
        after = SCHEMATA[name].classify(with_columns(table, filled), cuts)
        known = before >= 0
        np.testing.assert_array_equal(after[known], before[known])
