"""Generation settings: what is refused, what is made explicit, whose length wins."""

from __future__ import annotations

import pytest

from lm_eval_bayes.errors import TaskConfigError
from lm_eval_bayes.harness.models.generation_settings import (
    checked_generation_kwargs,
    one_length_key,
)

GOOD = {"do_sample": True, "temperature": 0.6, "top_p": 0.95, "until": []}


def test_top_p_and_until_are_made_explicit():
    checked = checked_generation_kwargs({"do_sample": True, "temperature": 1}, 2, "t")
    assert checked == {"do_sample": True, "temperature": 1, "top_p": 1.0, "until": []}


def test_one_trial_may_be_greedy():
    assert checked_generation_kwargs({"temperature": 0.0}, 1, "t")["temperature"] == 0.0


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("do_sample", False),
        ("temperature", 0),
        ("temperature", None),
        ("temperature", float("inf")),
        ("top_k", 1),
        ("top_p", 0),
        ("min_p", 1.0),
        ("seed", 7),
    ],
)
def test_settings_that_repeat_one_answer_are_refused(name, value):
    with pytest.raises(TaskConfigError) as caught:
        checked_generation_kwargs({**GOOD, name: value}, 4, "t")
    assert f"`{name}`" in str(caught.value)


def test_a_length_from_the_command_line_wins_over_the_yaml():
    yaml = {"max_gen_toks": 32768}
    assert one_length_key({"max_gen_toks": 32768, "max_new_tokens": 64}, yaml) == {
        "max_gen_toks": 64
    }
    assert one_length_key({"max_gen_toks": 64}, yaml) == {"max_gen_toks": 64}
    assert one_length_key({"max_tokens": 9}, {"max_tokens": 9}) == {"max_gen_toks": 9}
    assert one_length_key({}, {}) == {}


@pytest.mark.parametrize("length", [0, "64", True])
def test_a_bad_length_is_refused(length):
    with pytest.raises(TaskConfigError) as caught:
        one_length_key({"max_new_tokens": length}, {})
    assert "`max_new_tokens`" in str(caught.value)
