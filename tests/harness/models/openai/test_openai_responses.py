"""Responses of a loopback server, read as trials with their signals."""

from __future__ import annotations

import pytest
from _support.errors import refused
from _support.openai_models import (
    KWARGS,
    OfficialChat,
    chat,
    completions,
    edit_every,
    requests_of,
)
from _support.scripted_server import serving, vllm_pages
from _support.trial_requests import trial_request

from lm_eval_bayes.errors import TaskConfigError
from lm_eval_bayes.harness.models.openai.client import (
    read_trial,
)
from lm_eval_bayes.harness.models.openai.request import backend_of
from lm_eval_bayes.store.trial import encode

pytestmark = pytest.mark.filterwarnings("default:.*:DeprecationWarning")


def test_every_trial_has_its_seed_and_is_measured():
    with serving() as server:
        requests = requests_of(prompts=5, trials=3)
        got = dict(completions(server).sample(requests))
    assert set(got) == set(requests)
    seeds = {(b["prompt"], b["seed"]) for b in server.requests}
    assert seeds == {(o.prompt, o.seed) for o in requests}
    assert len({s.text for s in got.values()}) == 15
    for sampled in got.values():
        # one word a token, the n-th with the probability 2**-n, the end of the sequence last
        n = len(sampled.text.split()) + 1
        assert sampled.completion_tokens == n
        assert sampled.signals["completion_bpt"] == pytest.approx((n + 1) / 2)
        assert sampled.prompt_tokens == 5
        assert (sampled.finish_reason, sampled.stop_reason) == ("stop", None)
        assert 0 <= sampled.queued_s < 1 > sampled.generated_s > 0
        assert 1 <= sampled.concurrency <= 4


def test_the_filters_of_tokens_are_explicit():
    with serving() as server:
        list(completions(server).sample(requests_of(1, 1, top_p=1.0)))
        list(completions(server).sample(requests_of(1, 1, top_k=20, min_p=0.05)))
    off, on = server.requests
    assert [off[k] for k in ("temperature", "top_p", "top_k", "min_p")] == [0.6, 1.0, -1, 0.0]
    assert [on[k] for k in ("temperature", "top_p", "top_k", "min_p")] == [0.6, 0.95, 20, 0.05]
    assert off["repetition_penalty"] == 1.0
    assert off["stop"] == ["Question:"]
    assert off["max_tokens"] == 64
    assert "do_sample" not in off


def test_prompts_are_measured_once():
    requests = requests_of(prompts=3, trials=3)
    prompts = {o.prompt for o in requests}
    with serving() as server:
        model = completions(server)
        got = list(model.sample(requests, frozenset(list(prompts)[:2])))
    bits = [(o.prompt, s.signals["prompt_bpt"]) for o, s in got if "prompt_bpt" in s.signals]
    assert sorted(prompt for prompt, _ in bits) == sorted(list(prompts)[:2])
    assert [value for _, value in bits] == pytest.approx([3.0, 3.0])
    assert sum(bool(b.get("echo")) for b in server.requests) == 2
    assert model.cannot_record == ()


def test_vllms_chat_measures_prompts():
    def edit(answer):
        answer["prompt_logprobs"] = [None, {"5": {"logprob": -1.3862943611198906, "rank": 2}}]

    with serving(edit_every(edit), vllm_pages()) as server:
        model = chat(server)
        requests = requests_of(1, 1, model)
        ((_, sampled),) = model.sample(requests, frozenset({requests[0].prompt}))
    assert sampled.signals["prompt_bpt"] == pytest.approx(2.0)
    assert sampled.signals["completion_bpt"] == pytest.approx((sampled.completion_tokens + 1) / 2)
    assert server.requests[1]["seed"] == requests[0].seed
    assert server.requests[0]["prompt_logprobs"] == 0
    assert "prompt_logprobs" not in server.requests[1]


def test_only_vllms_chat_is_asked_to_measure_prompts():
    with serving() as server:
        model = chat(server)
        requests = requests_of(1, 1, model)
        ((_, sampled),) = model.sample(requests, frozenset({requests[0].prompt}))
    assert model.cannot_record == ("prompt_bpt",)
    assert "prompt_bpt" not in sampled.signals
    assert len(server.requests) == 1


def test_content_may_be_missing(caplog):
    def edit(answer):
        choice = answer["choices"][0]
        choice["message"] = {"role": "assistant", "content": None, "reasoning": "Hm, so"}
        choice["finish_reason"] = "length"

    with serving(edit_every(edit)) as server:
        model = chat(server)
        got = [s for _, s in model.sample(requests_of(3, 1, model))]
    assert [s.text for s in got] == [""] * 3
    assert got[0].finish_reason == "length"
    assert got[0].signals["content_missing"] is True
    assert got[0].signals["reasoning_content"] == "Hm, so"
    assert got[0].signals["think_closed"] is False
    assert model.finished_text("", KWARGS, got[0].signals) == ""
    assert caplog.text.count("an answer without content") == 1


def test_a_filtered_text_may_be_missing():
    def edit(answer):
        answer["choices"][0].update(text=None, finish_reason="content_filter")

    with serving(edit_every(edit)) as server:
        ((_, trial),) = completions(server).sample(requests_of(1, 1))
    assert (trial.text, trial.finish_reason) == ("", "content_filter")
    assert trial.signals["content_missing"] is True


def test_thoughts_are_cut_on_reading():
    def edit(answer):
        answer["choices"][0]["message"]["content"] = "<think>ABC</think>\n D E"

    with serving(edit_every(edit)) as server:
        model = chat(server, think_end_token="</think>")
        ((order, sampled),) = model.sample(requests_of(1, 1, model))
    assert sampled.text == "<think>ABC</think>\n D E"
    assert sampled.signals["think_closed"] is True
    assert model.finished_text(sampled.text, order.kwargs, sampled.signals) == "D E"


def test_a_fifth_stop_cuts_on_reading(caplog):
    until = ["one", "two", "three", "four", "five", "six"]
    with serving() as server:
        model = chat(server)
        list(model.sample(requests_of(1, 1, model, until=until)))
        list(model.sample(requests_of(1, 1, model, until=until)))
    assert server.requests[0]["stop"] == until[:4] == model.stops_sent({**KWARGS, "until": until})
    raw = "0 six 0 five 0"
    assert model.finished_text(raw, {**KWARGS, "until": until}, {}) == "0 "
    assert caplog.text.count("'five' and 'six' cut it") == 1


def test_the_official_server_gets_only_what_it_knows():
    with serving() as server:
        model = chat(server, cls=OfficialChat, model="gpt-4o")
        list(model.sample(requests_of(1, 1, model, until=[])))
        with refused("top_k", "unsupported", 20, error=TaskConfigError):
            model.sample(requests_of(1, 1, model, top_k=20))
    wanted = {"messages", "model", "max_completion_tokens", "temperature", "top_p", "seed"}
    assert set(server.requests[0]) == wanted | {"logprobs"}
    assert server.keys == ["Bearer sk-secret-of-the-tests"]
    assert backend_of(model) == "openai-chat-completions"


def test_a_temperature_that_the_harness_changes():
    with serving() as server:
        model = chat(server, cls=OfficialChat, model="gpt-5-mini")
        with refused("temperature", "unsupported", 0.6, error=TaskConfigError):
            model.sample(requests_of(1, 1, model))
        list(model.sample(requests_of(1, 1, model, temperature=1.0)))
    assert "stop" not in server.requests[0]
    assert model.finished_text("a Question: b", KWARGS, {}) == "a "


def test_numbers_that_are_none_are_left_out():
    """A store takes no such numbers; an answer is not lost for one."""
    choice = {"index": 0, "text": "42", "finish_reason": ["stop"], "stop_reason": 2**70}
    usage = {"prompt_tokens": -1, "completion_tokens": 2**70}
    body = {"choices": [choice], "usage": usage}
    trial = read_trial(trial_request(0, "?", "?", 0, 1, KWARGS), body, chat=False)
    encode(trial)
    assert trial.text == "42"
    assert trial.finish_reason == "['stop']"
    numbers = ("stop_reason", "prompt_tokens", "completion_tokens")
    assert [getattr(trial, name) for name in numbers] == [None] * 3
