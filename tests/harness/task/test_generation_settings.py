"""Generation settings: what is refused, what is made explicit, whose length wins."""

from __future__ import annotations

import pytest

from lm_eval_bayes.errors import TaskConfigError
from lm_eval_bayes.harness.models.generation_settings import (
    checked_generation_kwargs,
    one_length_key,
)

GOOD = {"do_sample": True, "temperature": 0.6, "top_p": 0.95, "until": []}


def test_good_settings_pass_unchanged():
    assert checked_generation_kwargs(GOOD, 16, "t") == GOOD


def test_top_p_and_until_are_made_explicit():
    checked = checked_generation_kwargs({"do_sample": True, "temperature": 1}, 2, "t")
    assert checked == {"do_sample": True, "temperature": 1, "top_p": 1.0, "until": []}


def test_one_trial_may_be_greedy():
    assert checked_generation_kwargs({"temperature": 0.0}, 1, "t")["temperature"] == 0.0


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"do_sample": False}, r"task t asks every question N=4 .*`do_sample` must be true"),
        ({"do_sample": None}, r"`do_sample` must be true; got None"),
        ({"temperature": 0}, r"`temperature` must be above 0 and finite; got 0"),
        ({"temperature": -1}, r"`temperature` must be above 0 and finite; got -1"),
        ({"temperature": None}, r"`temperature` must be a number above 0; got None"),
        ({"temperature": float("inf")}, r"above 0 and finite; got inf"),
        ({"top_k": 1}, r"`top_k` must leave more than one token; got 1"),
        ({"top_p": 0}, r"`top_p` must be in \(0, 1\]; got 0 .*all N answers"),
        ({"top_p": "x"}, r"`top_p` must be in \(0, 1\]; got 'x'"),
        ({"min_p": 1.0}, r"`min_p` must be in \[0, 1\); got 1.0"),
        ({"seed": 7}, r"`seed` must be left out .* got 7 .*one answer N times"),
    ],
)
def test_settings_that_repeat_one_answer_are_refused(change, message):
    with pytest.raises(TaskConfigError, match=message):
        checked_generation_kwargs({**GOOD, **change}, 4, "t")


def test_a_length_from_the_command_line_wins_over_the_yaml():
    yaml = {"max_gen_toks": 32768}
    assert one_length_key({"max_gen_toks": 32768, "max_new_tokens": 64}, yaml) == {
        "max_gen_toks": 64
    }
    assert one_length_key({"max_gen_toks": 64}, yaml) == {"max_gen_toks": 64}
    assert one_length_key({"max_tokens": 9}, {"max_tokens": 9}) == {"max_gen_toks": 9}
    assert one_length_key({}, {}) == {}


@pytest.mark.parametrize("length", [0, -5, "64", True, 1.5])
def test_a_bad_length_is_refused(length):
    with pytest.raises(TaskConfigError, match=r"`max_new_tokens` must be a whole number"):
        one_length_key({"max_new_tokens": length}, {})
