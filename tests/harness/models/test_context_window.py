"""The prompt must survive: where the context is known, the generation gives way."""

from __future__ import annotations

import logging
from types import SimpleNamespace

from _support.errors import refused

from lm_eval_bayes.errors import TaskConfigError
from lm_eval_bayes.harness.models.generation_settings import (
    context_window,
    fit_generation,
    longest_prompt,
)

PROMPT = "What is 2 + 2?"  # 14 bytes, so at most 16 tokens with start and end
SERVER = SimpleNamespace(base_url="http://x", tokenizer=None, max_length=2047)


def local(max_length, tokenizer=None):
    return SimpleNamespace(tokenizer=tokenizer, max_length=max_length)


def letters(text):
    """A tokenizer with a token for a letter and one for the start."""
    return SimpleNamespace(input_ids=[0, *map(ord, text)])


def test_the_window_is_that_of_the_model_and_of_a_server_the_one_that_is_given():
    assert context_window(local(512), {"max_length": 9}) == 512
    assert context_window(SERVER, {"max_length": 512}) == 511
    assert context_window(SERVER, {}) is None
    assert context_window(SimpleNamespace(), {"max_length": 512}) == 512
    assert context_window(None, {}) is None


def test_the_length_of_a_prompt_is_counted_or_bounded_by_its_bytes():
    assert longest_prompt(["ab", "é" * 10], None) == (22, False)
    assert longest_prompt(["ab", "é" * 10], letters) == (12, True)
    assert longest_prompt(["ab", "é" * 10], lambda text: None) == (22, False)


def test_what_fits_is_left_alone():
    kwargs = {"max_gen_toks": 100}
    assert fit_generation(kwargs, [PROMPT], {}, "t", local(116)) == kwargs


def test_the_generation_gives_way_and_says_so(caplog):
    with caplog.at_level(logging.WARNING):
        fitted = fit_generation({"max_gen_toks": 32768}, [PROMPT], {}, "t", local(100))
    assert fitted["max_gen_toks"] == 84
    assert "lowered from 32768 to 84" in caplog.text


def test_a_prompt_that_fills_the_context_is_refused():
    with refused("max_length", "range", 16, error=TaskConfigError):
        fit_generation({"max_gen_toks": 4}, [PROMPT], {}, "t", local(16))


def test_an_unknown_context_is_warned_about_with_the_argument_to_pass(caplog):
    with caplog.at_level(logging.WARNING):
        fit_generation({"max_gen_toks": 32768}, [PROMPT], {"model": "a/b"}, "t", SERVER)
    assert "max_length=" in caplog.text
    caplog.clear()
    with caplog.at_level(logging.WARNING):  # a model without a context, and one that checks it
        fit_generation({"max_gen_toks": 32768}, [PROMPT], {"p": 0.5}, "t", SimpleNamespace())
        checks = SimpleNamespace(base_url="http://x", checks_context=True)
        fit_generation({"max_gen_toks": 32768}, [PROMPT], {}, "t", checks)
    assert not caplog.records
