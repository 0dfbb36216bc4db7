"""The prompt must survive: where the context is known, the generation gives way."""

from __future__ import annotations

import json
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


def test_the_window_comes_from_a_local_config(tmp_path):
    (tmp_path / "config.json").write_text(json.dumps({"max_position_embeddings": 2048}))
    window = context_window({"pretrained": str(tmp_path)})
    assert window.tokens == 2048
    assert "config.json" in window.source


def test_a_nested_text_config_comes_first(tmp_path):
    config = {"max_position_embeddings": 1200, "text_config": {"max_position_embeddings": 32768}}
    (tmp_path / "config.json").write_text(json.dumps(config))
    assert context_window({"pretrained": str(tmp_path)}).tokens == 32768


@pytest.mark.parametrize("text", ["", "not json", "[]", '{"n_ctx": "many"}'])
def test_a_config_that_says_nothing_is_unknown(tmp_path, text):
    (tmp_path / "config.json").write_text(text)
    assert context_window({"pretrained": str(tmp_path)}) is None


def test_the_length_of_a_prompt_is_bounded_by_its_bytes():
    assert longest_prompt(["ab", "é" * 10], {}) == (22, False)


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
    assert "max_length=" in caplog.text


def test_a_model_without_a_context_is_not_warned_about(caplog):
    with caplog.at_level(logging.WARNING):
        fit_generation({"max_gen_toks": 32768}, [PROMPT], {"p": 0.5}, "t")
    assert not caplog.records
