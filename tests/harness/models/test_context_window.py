"""The prompt must survive: where the context is known, the generation gives way."""

from __future__ import annotations

import logging

import pytest
from _support.errors import refused

from lm_eval_bayes.errors import TaskConfigError
from lm_eval_bayes.harness.models.generation_settings import (
    context_window,
    fit_generation,
    longest_prompt,
)

PROMPT = "What is 2 + 2?"  # 14 bytes, so at most 16 tokens with start and end


def test_the_window_comes_from_the_model_arguments():
    assert context_window({"max_model_len": 512}).tokens == 512
    assert context_window({"max_length": 512, "base_url": "http://x"}).tokens == 511
    assert context_window({}) is None


@pytest.mark.parametrize(
    ("config", "tokens"),
    [
        ('{"max_position_embeddings": 2048}', 2048),
        ('{"n_ctx": 9, "text_config": {"n_ctx": 32768}}', 32768),
        ('{"n_ctx": "many"}', None),
        ("[]", None),
        ("", None),
    ],
)
def test_the_window_comes_from_a_local_config(tmp_path, config, tokens):
    (tmp_path / "config.json").write_text(config)
    window = context_window({"pretrained": str(tmp_path)})
    assert (window and window.tokens) == tokens


def test_the_length_of_a_prompt_is_bounded_by_its_bytes():
    assert longest_prompt(["ab", "é" * 10], {}) == (22, False)


def test_what_fits_is_left_alone():
    kwargs = {"max_gen_toks": 100}
    assert fit_generation(kwargs, [PROMPT], {"max_length": 116}, "t") == kwargs


def test_the_generation_gives_way_and_says_so(caplog):
    with caplog.at_level(logging.WARNING):
        fitted = fit_generation({"max_gen_toks": 32768}, [PROMPT], {"max_length": 100}, "t")
    assert fitted["max_gen_toks"] == 84
    assert "lowered from 32768 to 84" in caplog.text


def test_a_prompt_that_fills_the_context_is_refused():
    with refused("max_length", "range", 16, error=TaskConfigError):
        fit_generation({"max_gen_toks": 4}, [PROMPT], {"max_length": 16}, "t")


def test_an_unknown_context_is_warned_about_with_the_argument_to_pass(caplog):
    with caplog.at_level(logging.WARNING):
        fit_generation({"max_gen_toks": 32768}, [PROMPT], {"pretrained": "a/b"}, "t")
    assert "max_model_len=" in caplog.text
    caplog.clear()
    with caplog.at_level(logging.WARNING):  # a model without a context, and one that checks it
        fit_generation({"max_gen_toks": 32768}, [PROMPT], {"p": 0.5}, "t")
        fit_generation({"max_gen_toks": 32768}, [PROMPT], {"pretrained": "a/b"}, "t", True)
    assert not caplog.records
