"""Trials through vLLM's engine, with an engine that is none."""

from __future__ import annotations

import heapq
import json
import logging
import math
import time
from types import SimpleNamespace

import pytest
from _support import fake_vllm
from _support.errors import refused
from _support.fake_vllm import EOS, KWARGS, LLM, EngineArgs, FakeTrials, answer
from _support.trial_requests import stream_of, trial_request

from lm_eval_bayes.errors import ModelConfigError, TaskConfigError
from lm_eval_bayes.harness.models.vllm.engine import EngineFailedError, EngineOutput
from lm_eval_bayes.harness.models.vllm.sampling import prompt_bits, times

NOTHING: frozenset[str] = frozenset()


@pytest.fixture(autouse=True)
def vllm(monkeypatch):
    fake_vllm.install(monkeypatch)


@pytest.fixture
def folder(tmp_path):
    model = tmp_path / "model"
    model.mkdir()
    (model / "model.safetensors").write_bytes(b"weights")
    return str(model)


def make(folder, **arguments):
    return FakeTrials(pretrained=folder, **arguments)


def orders(prompts=("one two three", "four five"), trials=6, **kwargs):
    settings = {**KWARGS, **kwargs}
    requests = []
    for trial in range(trials):
        for prompt in prompts:
            seed = 100 * trial + len(prompt)
            requests.append(trial_request(len(requests), prompt, prompt, trial, seed, settings))
    return requests


def engine_of(lm):
    return lm.model.llm_engine


def sampled(lm, requests, measure=NOTHING):
    return {order.index: got for order, got in lm.sample(stream_of(requests), measure)}


# -- the engine's places ---------------------------------------------------------------------


def test_every_order_is_answered_once_with_its_own_seed(folder):
    lm = make(folder)
    requests = orders()
    got = sampled(lm, requests)
    assert {index: s.text for index, s in got.items()} == {
        o.index: answer(o.seed)[0] for o in requests
    }
    seeds = [params.seed for _, params in engine_of(lm).started]
    assert seeds == [order.seed for order in requests]  # started in the order that was asked for


def test_places_are_taken_again_at_once(folder):
    lm = make(folder, max_num_seqs=3)
    requests = orders(trials=10)
    sampled(lm, requests)
    # Each request goes to whichever of the three places is free first, and none waits for others.
    free = [0, 0, 0]
    for order in requests:
        heapq.heapreplace(free, free[0] + answer(order.seed)[1])
    assert engine_of(lm).steps == max(free)
    assert max(engine_of(lm).busy) == 3
    assert engine_of(lm).most == 4  # one waits for a place


def test_an_eighth_more_than_the_places_is_handed_over(folder):
    lm = make(folder, max_num_seqs=16)
    sampled(lm, orders(trials=20))
    assert engine_of(lm).most == 18


def test_closing_early_takes_requests_back(folder):
    lm = make(folder, max_num_seqs=4)
    stream = lm.sample(stream_of(orders()), NOTHING)
    next(stream)
    under_way = list(engine_of(lm).running)
    stream.close()
    assert engine_of(lm).aborted == under_way
    assert len(under_way) >= 3
    assert len(sampled(lm, orders())) == 12  # and the engine goes on


def test_a_dead_engine_is_said(folder):
    lm = make(folder)
    lm.model.built().llm_engine.fail_at = 2
    with refused(None, "failed", None, error=EngineFailedError):
        sampled(lm, orders())
    assert lm.weights_loaded is False
    assert len(sampled(lm, orders())) == 12  # by another engine


@pytest.mark.parametrize("reason", ["abort", "error"])
def test_a_request_that_was_given_up_is_no_trial(folder, reason):
    lm = make(folder)
    lm.model.built().llm_engine.finish_reason = reason
    with refused(None, "failed", None, error=EngineFailedError):
        sampled(lm, orders())


# -- settings ----------------------------------------------------------------------------------


def test_settings_of_a_request(folder):
    lm = make(folder)
    sampled(lm, orders(trials=1))
    params = engine_of(lm).started[0][1].settings
    assert [params[name] for name in ("temperature", "top_p", "top_k")] == [0.7, 0.9, -1]
    assert params["stop"] == ["\n\n", EOS]
    assert (params["max_tokens"], params["logprobs"]) == (8, 0)
    assert (params["flat_logprobs"], params["output_kind"]) == (True, "final")
    assert "prompt_logprobs" not in params
    assert "do_sample" not in params


def test_a_prompt_is_measured_once(folder):
    lm = make(folder)
    requests = orders(trials=3)
    got = sampled(lm, requests, frozenset({"one two three"}))
    measured = [p for _, p in engine_of(lm).started if getattr(p, "prompt_logprobs", None) == 0]
    assert [p.seed for p in measured] == [requests[0].seed]
    assert measured[0].skip_reading_prefix_cache is True
    assert got[0].signals["prompt_bpt"] == pytest.approx(0.5 / math.log(2))
    assert all("prompt_bpt" not in got[index].signals for index in range(1, 6))


def test_a_thinking_model_gets_the_end_alone(folder):
    lm = make(folder, think_end_token="</think>")
    got = sampled(lm, orders(trials=1))
    assert engine_of(lm).started[0][1].stop == [EOS]
    assert lm.stops_sent(KWARGS) == [EOS]
    assert got[0].signals["think_closed"] is False
    raw = "a\n\nb</think> 42\n\nQ: more"
    assert lm.finished_text(raw, KWARGS, {}) == "42"


def test_a_closed_think_block_is_seen(folder, monkeypatch):
    monkeypatch.setattr(fake_vllm, "answer", lambda seed: ("hm</think>1", 1, [-0.5]))
    got = sampled(make(folder, think_end_token="</think>"), orders(trials=1))
    assert got[0].signals["think_closed"] is True


def test_finished_text_cuts_at_stops(folder):
    lm = make(folder)
    assert lm.finished_text("42\n\nQ: more", KWARGS, {}) == "42"
    assert lm.finished_text(f"42{EOS}", KWARGS, {}) == "42"
    assert lm.stops_sent(KWARGS) == ["\n\n", EOS]
    assert KWARGS["until"] == ["\n\n"]
    assert not LLM.built  # all of it without the engine


def test_a_prompt_is_cut_as_the_harness_cuts_it(folder):
    lm = make(folder, max_model_len=12)
    long = "a bb ccc dddd eeeee ffffff"
    got = sampled(lm, orders(prompts=(long, "a bb"), trials=2), frozenset({long, "a bb"}))
    assert engine_of(lm).started[0][0] == [3, 4, 5, 6]  # 12 - 8 tokens, from the left
    assert [got[i].signals["prompt_truncated"] for i in range(4)] == [True, False, True, False]
    assert got[0].prompt_tokens == 4
    # The bits of a cut prompt are not the prompt's.
    assert "prompt_bpt" not in got[0].signals
    assert "prompt_bpt" in got[1].signals


@pytest.mark.parametrize(
    ("setting", "broken"),
    [
        ({"beams": 3}, ("generation_kwargs", "unsupported")),
        ({"temperature": -1.0}, ("generation_kwargs", "unsupported")),
        ({"n": 2}, ("n", "conflict", 2)),
        ({"max_gen_toks": 64}, ("max_gen_toks", "range", 64)),
    ],
)
def test_settings_that_vllm_refuses(folder, setting, broken):
    with refused(*broken, error=TaskConfigError):
        sampled(make(folder), orders(**setting))
    assert not LLM.built


def test_generation_config_is_not_applied_and_that_is_said_once(folder, caplog):
    EngineArgs.config = {"repetition_penalty": 1.1, "temperature": 0.6, "eos_token_id": [2, 7]}
    lm = make(folder)
    for _ in range(2):
        sampled(lm, orders(trials=1))
    (message,) = [m for m in caplog.messages if "generation_config.json" in m]
    assert "repetition_penalty=1.1, which" in message
    assert "temperature" not in message
    assert lm.fingerprint()["end_tokens"] == [2, 7]
    # what the task gives is applied
    sampled(lm, orders(trials=1, repetition_penalty=1.2))
    assert engine_of(lm).started[-1][1].repetition_penalty == pytest.approx(1.2)


# -- measures ------------------------------------------------------------------------------------


def test_prompt_bits_are_the_mean_over_the_tokens_after_the_first():
    half = -math.log(2) / 2
    # two entries of a second token, whose first one is the prompt's own
    flat = SimpleNamespace(logprobs=[half, -0.1, 3 * half], start_indices=[0, 0, 2])
    assert prompt_bits(flat) == pytest.approx(1.0)
    assert prompt_bits(SimpleNamespace(logprobs=[], start_indices=[0])) is None


def test_times_come_from_the_engines_clock():
    now = time.monotonic()
    metrics = SimpleNamespace(scheduled_ts=now + 2, last_token_ts=now + 5)
    output, empty = SimpleNamespace(metrics=metrics), SimpleNamespace()
    assert times(EngineOutput(None, output, now, now + 5.1, 3)) == pytest.approx((2.0, 3.0))
    assert times(EngineOutput(None, empty, now, now + 4, 3)) == (None, pytest.approx(4.0))
    # another computer's clock says nothing here
    metrics = SimpleNamespace(scheduled_ts=now - 900, last_token_ts=now - 890)
    elsewhere = SimpleNamespace(metrics=metrics)
    assert times(EngineOutput(None, elsewhere, now, now + 4, 3)) == (None, pytest.approx(4.0))


def test_tokens_and_reasons(folder):
    requests = orders(trials=2)
    got = sampled(make(folder), requests)
    for order in requests:
        _, _, logprobs = answer(order.seed)
        trial = got[order.index]
        assert trial.completion_tokens == len(logprobs)
        assert trial.prompt_tokens == len(order.prompt.split())
        assert trial.finish_reason == "stop"
        expected = -sum(logprobs) / len(logprobs) / math.log(2)
        assert trial.signals["completion_bpt"] == pytest.approx(expected)


# -- laziness ----------------------------------------------------------------------------------


def test_nothing_is_built_before_it_is_used(folder):
    lm = make(folder, max_model_len=32)
    assert lm.max_length == 32
    assert lm.config_seen.max_model_len == 32
    lm.fingerprint()
    lm.versions()
    assert not LLM.built
    assert lm.weights_loaded is False
    sampled(lm, orders(trials=1))
    sampled(lm, orders(trials=1))
    assert len(LLM.built) == 1
    assert lm.weights_loaded is True


def test_without_a_configuration_it_is_refused(folder):
    EngineArgs.broken = True
    with refused("pretrained", "unsupported", error=ModelConfigError):
        make(folder)
    assert not LLM.built


def test_an_unknown_harness_is_refused(folder, monkeypatch):
    monkeypatch.setattr(fake_vllm, "LLM", None)
    with refused("lm_eval", "unsupported", error=ModelConfigError):
        make(folder)


def test_ranks_start_together(folder, monkeypatch):
    monkeypatch.setenv("WORLD_SIZE", "2")
    make(folder)
    assert len(LLM.built) == 1


# -- arguments ---------------------------------------------------------------------------------


def test_processed_logprobs_are_refused(folder):
    with refused("logprobs_mode", "unsupported", "processed_logprobs", error=ModelConfigError):
        make(folder, logprobs_mode="processed_logprobs")


def test_a_cpu_computes_prompts_whole(folder, monkeypatch, caplog):
    caplog.set_level(logging.DEBUG, logger="lm_eval")  # a run of the harness sets its level
    fake_vllm.install(monkeypatch, cpu=True)
    assert make(folder).model_args["enable_chunked_prefill"] is False
    assert "enable_chunked_prefill=False" in caplog.text
    assert make(folder, enable_chunked_prefill=True).model_args["enable_chunked_prefill"] is True
    fake_vllm.install(monkeypatch)
    assert "enable_chunked_prefill" not in make(folder).model_args


def test_the_fingerprint_tells_what_changes_the_distribution(folder):
    base = make(folder, dtype="float32").fingerprint()
    assert base["backend"] == "vllm"
    assert base["dtype"] == "float32"
    assert base["weights"].startswith("sha256:")
    assert base["max_length"] == 64
    assert json.loads(json.dumps(make(folder, load_format=object).fingerprint()))
    speed = {"tensor_parallel_size": 2, "max_num_seqs": 7, "seed": 5, "batch_size": "auto"}
    assert make(folder, dtype="float32", **speed).fingerprint() == base
    for other in (
        {"dtype": "bfloat16"},
        {"max_model_len": 32},
        {"hf_overrides": {"rope_scaling": {"factor": 2.0}}},
        {"truncation_side": "right"},
        {"lora_local_path": folder},
        {"tokenizer": "another"},
    ):
        assert make(folder, **{"dtype": "float32", **other}).fingerprint() != base


def test_data_parallel_engines_of_the_harness_are_refused(folder):
    with refused("data_parallel_size", "conflict", 2, error=ModelConfigError):
        make(folder, data_parallel_size=2)


def test_an_older_vllm_is_refused_before_anything_is_read(monkeypatch):
    sampling = "lm_eval_bayes.harness.models.vllm.sampling.version_of"
    monkeypatch.setattr(sampling, lambda name: "0.26.1")
    with refused("vllm", "unsupported", None, error=ModelConfigError):
        make("no/such/folder")
