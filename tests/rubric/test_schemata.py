"""The twelve schemata beside Tables 4 and 5, classified once more without the package."""

from __future__ import annotations

import pytest
from _support.errors import refused
from _support.fake_runs import (
    LOOKS_AT,
    MODELS,
    category_of,
    cuts_of,
    fake_runs,
    trials_of,
)

from lm_eval_bayes.rubric.rules import variable
from lm_eval_bayes.rubric.schemata import SCHEMATA, Category, Schema, schema_named
from lm_eval_bayes.rubric.signals import SignalTable
from lm_eval_bayes.rubric.thresholds import TaskThresholds, task_thresholds


@pytest.fixture(scope="module")
def runs():
    return fake_runs()


@pytest.fixture(scope="module")
def tables(runs):
    return {model: SignalTable.from_questions(questions) for model, questions in runs.items()}


@pytest.fixture(scope="module")
def pooled(tables):
    return task_thresholds(list(tables.values()))


def classified(schema, **columns):
    """Return the categories of one question's trials under hand-made thresholds."""
    cuts = TaskThresholds(
        tau_high=1.0, tau_low_wrong=2.0, tau_prompt=3.0, ratio_p33=0.25, ratio_p66=0.5,
        corr_p33=1.0, corr_p66=1.5,
    )  # fmt: skip
    return SCHEMATA[schema].classify(SignalTable.from_questions([columns]), cuts).tolist()


# --- the fake run of three models ---


@pytest.mark.parametrize("schema", SCHEMATA)
@pytest.mark.parametrize("model", MODELS)
def test_categories_equal_an_independent_classification(runs, tables, pooled, schema, model):
    """Pooled thresholds; a missing value matters only where the category depends on it."""
    cuts = cuts_of(trials_of(runs))
    expected = [category_of(schema, trial, cuts) for trial in trials_of({model: runs[model]})]
    found = SCHEMATA[schema].classify(tables[model], pooled)
    assert found.tolist() == expected
    assert -1 in expected


# --- single trials, read off the table ---


@pytest.mark.parametrize(
    ("repeated", "c", "expected"),
    [
        (1, 0.0, 0),
        (0, 0.5, 0),
        (0, 0.4999, 2),
        (None, 0.5, 0),
        (None, 0.4, -1),
        (None, None, -1),
    ],
)
def test_invalid_is_a_repeated_pattern_or_c_of_one_half(repeated, c, expected):
    columns = {"is_correct": [1], "repeated_pattern": [repeated], "verifier_c": [c]}
    assert classified("exact_match", **columns) == [expected]


def test_a_wrong_trial_between_the_two_thresholds_is_confidently_wrong():
    """τ_high = 1 < 1.5 <= τ_low_wrong = 2: neither low nor high by one threshold alone."""
    columns = {"repeated_pattern": [0] * 3, "is_correct": [0] * 3, "completion_bpt": [1.5, 2, 2.1]}
    assert classified("conf_wrong_penalty", **columns) == [1, 1, 2]
    assert classified("conf_calibrated", **columns) == [2, 2, 1]


def test_a_missing_threshold_leaves_only_the_trials_that_need_it_without_a_category():
    columns = {"repeated_pattern": [0, 0, 1], "is_correct": [1, 0, 1], "completion_bpt": [1, 1, 1]}
    table = SignalTable.from_questions([columns])
    found = SCHEMATA["conf_calibrated"].classify(table, TaskThresholds(tau_low_wrong=1.0))
    assert found.tolist() == [-1, 2, 0]


@pytest.mark.parametrize(
    ("name", "signal", "bound", "holds"),
    [
        ("A_high", "verifier_a", 0.6, True),
        ("ood", "prompt_bpt", 3.0, True),
        ("high_conf", "completion_bpt", 1.0, True),
        ("low_conf", "completion_bpt", 1.0, False),
        ("economical", "token_ratio", 0.25, True),
        ("verbose", "token_ratio", 0.5, False),
    ],
)
def test_at_a_bound_table_4_decides(name, signal, bound, holds):
    cuts = TaskThresholds(tau_high=1.0, tau_prompt=3.0, ratio_p33=0.25, ratio_p66=0.5)
    table = SignalTable.from_questions([{signal: [bound]}])
    assert variable(name, table, cuts).tolist() == [int(holds)]


def test_equal_percentiles_leave_nothing_in_the_middle():
    """All trials of one length: the 33rd and 66th percentiles are that length."""
    columns = {"repeated_pattern": [0] * 4, "is_correct": [1] * 4, "token_ratio": [0.5] * 4}
    table = SignalTable.from_questions([columns])
    found = SCHEMATA["efficiency_adjusted"].classify(table, task_thresholds([table]))
    assert found.tolist() == [4] * 4


# --- what a schema says of itself ---


def test_needs_are_the_signals_of_the_table():
    for name, schema in SCHEMATA.items():
        expected = {"repeated_pattern", *LOOKS_AT[name]}
        if name == "verifier_only":
            expected.add("verifier_c")
        assert set(schema.needs) == expected
        assert len(set(schema.needs)) == len(schema.needs)


def test_other_weights_leave_the_rules():
    schema = SCHEMATA["strict_compliance"]
    other = schema.with_weights([0, 0.5, 2])
    assert other.weights == (0.0, 0.5, 2.0)
    assert [c.when for c in other.categories] == [c.when for c in schema.categories]
    assert schema.weights == (0.0, 0.0, 1.0)


@pytest.mark.parametrize(
    ("weights", "rule", "value"),
    [
        ([0, 1], "shape", [0, 1]),
        ([0, 0, float("inf")], "type", float("inf")),
        ([0, 0, True], "type", True),
    ],
)
def test_weights_that_are_none(weights, rule, value):
    with refused("weights", rule, value):
        SCHEMATA["exact_match"].with_weights(weights)


def test_an_unknown_schema():
    with refused("schema", "choice", "exactmatch"):
        schema_named("exactmatch")
    assert schema_named("exact_match") is SCHEMATA["exact_match"]


# --- a schema of one's own ---


def own(*rules, names="abcd"):
    categories = [Category(name, when, 0.5) for name, when in zip(names, rules, strict=False)]
    return Schema("own", tuple(categories))


@pytest.mark.parametrize(
    ("rules", "names", "error"),
    [
        (("boxed", "unboxed"), ("a", "a"), ("categories", "duplicate", ["a", "a"])),
        (("boxed or unboxed",), "a", ("categories", "empty", 1)),
        (("boxed", "unboxd"), "ab", ("the rule of own: b", "choice", "unboxd")),
    ],
)
def test_categories_that_are_refused(rules, names, error):
    with refused(*error):
        own(*rules, names=names)
