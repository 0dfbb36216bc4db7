"""Columns of numbers, and what the signals of a trial are taken from."""

from __future__ import annotations

import json

import numpy as np
import pytest
from _support.errors import refused

from lm_eval_bayes.rubric.signals import MAX_GEN_TOKS, SignalTable, trial_signals

NAN = float("nan")


def test_questions_are_joined_with_gaps_where_one_lacks_a_signal():
    table = SignalTable.from_questions(
        [
            {"is_correct": [True, False], "prompt_bpt": [1.5, None]},
            {},
            {"is_correct": [1], "verifier_a": [np.float32(0.5)]},
        ]
    )
    assert table.question.tolist() == [0, 0, 2]
    assert (table.n_trials, table.n_questions) == (3, 3)
    np.testing.assert_array_equal(table.columns["is_correct"], [1, 0, 1])
    np.testing.assert_array_equal(table.columns["prompt_bpt"], [1.5, NAN, NAN])
    np.testing.assert_array_equal(table.columns["verifier_a"], [NAN, NAN, 0.5])


@pytest.mark.parametrize("value", [None, "0.5", [], -float("inf"), NAN, 10**400])
def test_what_is_no_finite_number_is_missing(value):
    table = SignalTable.from_questions([{"completion_bpt": [value, 2.0]}])
    np.testing.assert_array_equal(table.columns["completion_bpt"], [NAN, 2.0])


def test_has_asks_for_one_value_that_is_there():
    table = SignalTable.from_questions([{"a": [None, 0.0], "b": [None, None]}])
    assert (table.has("a"), table.has("b"), table.has("c")) == (True, False, False)
    assert np.isnan(table.column("c")).all()
    assert table.column("c").shape == (2,)


@pytest.mark.parametrize(
    ("question", "columns", "argument"),
    [
        ([0, 2], {}, "question"),
        ([-1], {}, "question"),
        ([[0]], {}, "question"),
        ([0, 1], {"a": np.zeros(3)}, "columns['a']"),
    ],
)
def test_tables_that_are_none(question, columns, argument):
    with refused(argument, "shape"):
        SignalTable(np.array(question), columns, 2)
    with refused("questions[1]", "shape", [1, 2]):
        SignalTable.from_questions([{"a": [1]}, {"a": [1, 2], "b": [1]}])


# --- from texts, grades and recorded numbers ---

LOOP = "Wait, let me check again. " * 40


def test_a_plain_backend_gives_what_the_text_gives():
    texts = ["So \\boxed{4}.", "4", "\\boxed{}", LOOP]
    found = trial_signals(texts, [1, 0, 0, 0], {})
    assert found == {
        "outcome": [1, 0, 0, 0],
        "has_box": [1, 0, 0, 0],
        "text_loop": [0, 0, 0, 1],
        "is_correct": [1, 0, 0, 0],
    }


def test_a_box_counts_only_after_thinking():
    texts = [
        "<think>\\boxed{4}</think> It is 4.",
        "<think>hm</think> \\boxed{4}",
        "\\boxed{4} #E 4",
    ]
    assert trial_signals(texts, [1] * 3, {})["has_box"] == [0, 1, 1]
    assert trial_signals(texts, [1] * 3, {}, think_end_token="#E")["has_box"] == [0, 1, 0]


def test_recorded_numbers_by_hand():
    found = trial_signals(
        ["a"] * 4,
        [0] * 4,
        {
            "completion_tokens": [16_384, 32_768, None, 0],
            "finish_reason": ["stop", "length", None, "abort"],
            "completion_bpt": [0.5, None, 1, "?"],
            "prompt_bpt": [2.5] * 4,
            "prompt_truncated": [False, True, None, False],
            "seed": [1, 2, 3, 4],
        },
    )
    assert MAX_GEN_TOKS == 32_768
    assert found["token_ratio"] == [0.5, 1.0, None, 0.0]
    assert found["repeated_pattern"] == [0, 1, None, 1]
    assert found["completion_bpt"] == [0.5, None, 1.0, None]
    assert found["prompt_truncated"] == [0, 1, None, 0]
    assert "seed" not in found
    json.dumps(found)


def test_token_ratio_is_of_the_runs_own_limit():
    found = trial_signals(["a", "b"], [0, 0], {"completion_tokens": [64, 32]}, max_gen_toks=64)
    assert found["token_ratio"] == [1.0, 0.5]


def test_what_was_recorded_of_no_trial_is_absent():
    recorded = {"completion_tokens": [None], "completion_bpt": [None], "finish_reason": [None]}
    found = trial_signals(["a"], [1], recorded)
    assert set(found) == {"outcome", "has_box", "text_loop", "is_correct"}


def test_a_grade_of_more_than_two_levels_is_no_right_or_wrong():
    found = trial_signals(["a", "b"], [2, 3], {}, binary=False)
    assert found["outcome"] == [2.0, 3.0]
    assert "is_correct" not in found


@pytest.mark.parametrize(
    ("outcomes", "recorded", "error"),
    [
        ([1], {}, ("outcomes", "shape", 1)),
        ([1, 1], {"seed": [1, 2, 3]}, ("seed", "shape", 3)),
    ],
)
def test_columns_of_another_length(outcomes, recorded, error):
    with refused(*error):
        trial_signals(["a", "b"], outcomes, recorded)


@pytest.mark.parametrize(
    ("name", "value"),
    [("is_correct", 7), ("has_box", 0.5), ("verifier_c", 1.5), ("completion_bpt", -0.25)],
)
def test_values_that_a_signal_cannot_have_are_refused(name, value):
    with refused(f"columns['{name}']", "range", value):
        SignalTable.from_questions([{name: [0, None, value]}])


def test_signals_of_somebody_elses_may_have_any_value():
    table = SignalTable.from_questions([{"is_correct": [1], "my_score": [-7]}])
    assert table.columns["my_score"].tolist() == [-7]
