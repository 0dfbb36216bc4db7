"""Trials over an API, against a loopback server that also misbehaves."""

from __future__ import annotations

import asyncio
import json
import logging
import random
import threading
import time
from collections import Counter
from contextlib import asynccontextmanager

import pytest
from lm_eval.api.instance import Instance

pytest.importorskip("aiohttp")
openai_completions = pytest.importorskip("lm_eval.models.openai_completions")

from _support.scripted_server import Act, error, serving, vllm_pages
from _support.trial_requests import trial_request

from lm_eval_bayes._util import retry
from lm_eval_bayes.errors import ModelConfigError, TaskConfigError
from lm_eval_bayes.harness.models.openai import client
from lm_eval_bayes.harness.models.openai.client import concurrently
from lm_eval_bayes.harness.models.openai.request import backend_of
from lm_eval_bayes.harness.models.openai.responses import (
    ServerError,
    TrialsFailedError,
    read_trial,
)
from lm_eval_bayes.harness.models.openai.sampling import OpenAISampling

pytestmark = pytest.mark.filterwarnings("default:.*:DeprecationWarning")

KWARGS = {
    "temperature": 0.6,
    "top_p": 0.95,
    "top_k": 0,
    "min_p": 0.0,
    "until": ["Question:"],
    "max_gen_toks": 64,
    "do_sample": True,
}


class Completions(OpenAISampling, openai_completions.LocalCompletionsAPI):
    pass


class Chat(OpenAISampling, openai_completions.LocalChatCompletion):
    pass


class OfficialChat(OpenAISampling, openai_completions.OpenAIChatCompletion):
    pass


@pytest.fixture(autouse=True)
def impatient(monkeypatch):
    monkeypatch.setattr(retry, "FIRST_PAUSE_S", 0.01)
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    monkeypatch.setenv("OPENAI_API_KEY", "sk-secret-of-the-tests")


def completions(server, concurrent=4, **arguments):
    arguments = {"model": "hash", "tokenizer_backend": None, **arguments}
    return Completions(base_url=server.url(), num_concurrent=concurrent, **arguments)


def chat(server, concurrent=4, cls=Chat, **arguments):
    arguments = {"model": "hash", **arguments}
    return cls(base_url=server.url(chat=True), num_concurrent=concurrent, **arguments)


def orders(prompts=3, trials=2, model=None, **changes):
    kwargs = {k: v for k, v in {**KWARGS, **changes}.items() if v is not ...}
    made = []
    for trial in range(trials):
        for number in range(prompts):
            context = prompt = f"What is {number} + 2?"
            if model is not None:
                context = model.apply_chat_template([{"role": "user", "content": prompt}])
                prompt = context.prompt
            seed = 100 * number + trial
            made.append(trial_request(len(made), context, prompt, trial, seed, kwargs))
    return made


def one_of_each(edit):
    return lambda number, body: Act(edit=edit)


# -- what is sent, and what comes back ---------------------------------------------------------


def test_every_trial_has_its_seed_and_is_measured():
    with serving() as server:
        asked = orders(prompts=5, trials=3)
        got = dict(completions(server).sample(asked))
    assert set(got) == set(asked)
    seeds = {(b["prompt"], b["seed"]) for b in server.requests}
    assert seeds == {(o.prompt, o.seed) for o in asked}
    assert len({s.text for s in got.values()}) == 15
    for sampled in got.values():
        # one word a token, the n-th with the probability 2**-n, the end of the sequence last
        n = len(sampled.text.split()) + 1
        assert sampled.completion_tokens == n
        assert sampled.signals["completion_bpt"] == pytest.approx((n + 1) / 2)
        assert sampled.signals["eos_counted"] is True
        assert sampled.prompt_tokens == 5
        assert (sampled.finish_reason, sampled.stop_reason) == ("stop", None)
        assert 0 <= sampled.queued_s < 1 > sampled.generated_s > 0
        assert 1 <= sampled.concurrency <= 4


def test_the_filters_of_tokens_are_explicit():
    with serving() as server:
        list(completions(server).sample(orders(1, 1, top_p=1.0)))
        list(completions(server).sample(orders(1, 1, top_k=20, min_p=0.05)))
    off, on = server.requests
    assert [off[k] for k in ("temperature", "top_p", "top_k", "min_p")] == [0.6, 1.0, -1, 0.0]
    assert [on[k] for k in ("temperature", "top_p", "top_k", "min_p")] == [0.6, 0.95, 20, 0.05]
    assert off["repetition_penalty"] == 1.0
    assert off["stop"] == ["Question:"]
    assert off["max_tokens"] == 64
    assert "do_sample" not in off


def test_orders_are_begun_in_order_and_topped_up_without_a_barrier():
    # the first request is slow: the others must not wait for it
    def script(number, body):
        return Act(delay_s=1.5 if body["seed"] == 0 else 0.05)

    asked = orders(prompts=10, trials=4)
    with serving(script) as server:
        got = [order for order, _ in completions(server, concurrent=4).sample(asked)]
        assert server.most == 4
    assert got[-1].seed == 0
    begun = [b["seed"] for b in server.requests]
    wanted = [o.seed for o in asked]
    # four are under way at a time, so none arrives more than a few places from its own
    assert max(abs(begun.index(seed) - i) for i, seed in enumerate(wanted)) <= 4


def test_texts_do_not_depend_on_company():
    asked = orders(prompts=4, trials=4)
    shuffled = random.Random(1).sample(asked, len(asked))
    with serving() as server:
        texts = [
            {o.index: s.text for o, s in completions(server, n).sample(some)}
            for n, some in ((1, asked), (16, asked), (16, shuffled))
        ]
    assert texts[0] == texts[1] == texts[2]


@pytest.mark.parametrize(
    ("tokens", "counted", "found"),
    [
        ([" a", " b", "<eos>"], 3, True),
        ([" a", " b", "<eos>"], 2, False),
        ([" a", " b"], 3, True),
        ([" a", " b"], 2, False),
    ],
)
def test_whether_the_end_is_counted(tokens, counted, found):
    logprobs = {"tokens": tokens, "token_logprobs": [-1.0] * len(tokens)}
    choice = {"text": " a b", "finish_reason": "stop", "stop_reason": None, "logprobs": logprobs}
    usage = {"prompt_tokens": 1, "completion_tokens": counted}
    answer = read_trial(
        trial_request(0, "?", "?", 0, 1, KWARGS), {"choices": [choice], "usage": usage}, chat=False
    )
    assert answer.signals["eos_counted"] is found
    assert answer.signals["completion_bpt"] == pytest.approx(1.4426950408889634)
    del choice["stop_reason"]  # then nobody says what ended it
    answer = read_trial(
        trial_request(0, "?", "?", 0, 1, KWARGS), {"choices": [choice], "usage": usage}, chat=False
    )
    assert "eos_counted" not in answer.signals


def test_prompts_are_measured_once():
    asked = orders(prompts=3, trials=3)
    prompts = {o.prompt for o in asked}
    with serving() as server:
        model = completions(server)
        got = list(model.sample(asked, frozenset(list(prompts)[:2])))
    bits = [(o.prompt, s.signals["prompt_bpt"]) for o, s in got if "prompt_bpt" in s.signals]
    assert sorted(prompt for prompt, _ in bits) == sorted(list(prompts)[:2])
    assert [value for _, value in bits] == pytest.approx([3.0, 3.0])
    assert sum(bool(b.get("echo")) for b in server.requests) == 2
    assert model.cannot_record == ()


def test_a_chat():
    with serving(pages=vllm_pages()) as server:
        model = chat(server)
        asked = orders(2, 2, model)
        got = dict(model.sample(asked, frozenset()))
    assert all(b["logprobs"] is True and "prompt" not in b for b in server.requests)
    assert {b["seed"] for b in server.requests} == {o.seed for o in asked}
    for sampled in got.values():
        n = sampled.completion_tokens
        assert sampled.signals["completion_bpt"] == pytest.approx((n + 1) / 2)
    assert backend_of(model) == "local-chat-completions"


def test_vllms_chat_measures_prompts():
    def edit(answer):
        answer["prompt_logprobs"] = [None, {"5": {"logprob": -1.3862943611198906, "rank": 2}}]

    with serving(one_of_each(edit), vllm_pages()) as server:
        model = chat(server)
        asked = orders(1, 1, model)
        ((_, sampled),) = model.sample(asked, frozenset({asked[0].prompt}))
    assert sampled.signals["prompt_bpt"] == pytest.approx(2.0)
    assert server.requests[0]["prompt_logprobs"] == 0
    assert "prompt_logprobs" not in server.requests[1]


def test_only_vllms_chat_is_asked_to_measure_prompts():
    with serving() as server:
        model = chat(server)
        asked = orders(1, 1, model)
        ((_, sampled),) = model.sample(asked, frozenset({asked[0].prompt}))
    assert model.cannot_record == ("prompt_bpt",)
    assert "prompt_bpt" not in sampled.signals
    assert len(server.requests) == 1


def test_times_of_the_server_are_preferred():
    def edit(answer):
        times = {"queue_time_ms": 2000.0, "time_to_first_token_ms": 500.0}
        answer["metrics"] = {**times, "generation_time_ms": 1000.0}

    with serving(one_of_each(edit)) as server:
        ((_, sampled),) = completions(server).sample(orders(1, 1))
    assert sampled.generated_s == 1.5
    assert 2.0 <= sampled.queued_s < 2.5


# -- servers that refuse -----------------------------------------------------------------------


def test_without_logprobs(caplog):
    def script(number, body):
        if "logprobs" in body:
            return error(400, "logprobs are disabled on this server")
        return None

    with serving(script) as server:
        model = completions(server, concurrent=8)
        got = list(model.sample(orders(6, 2)))
        assert len(got) == 12
        before = len(server.requests)
        list(model.sample(orders(2, 1)))
        assert len(server.requests) == before + 2  # it has learnt
    assert not any("completion_bpt" in s.signals for _, s in got)
    said = [r for r in caplog.records if "completion_bpt is not recorded" in r.getMessage()]
    assert len(said) == 1


def test_with_no_logprobs_beside_the_token():
    def script(number, body):
        if body.get("logprobs") == 1:
            return error(
                400, "Requested sample logprobs of 1, which is greater than max allowed: 0"
            )
        return None

    with serving(script) as server:
        got = list(completions(server).sample(orders(2, 2)))
    assert all("completion_bpt" in s.signals for _, s in got)


def test_silence_about_logprobs_is_said_once(caplog):
    def edit(answer):
        answer["choices"][0].pop("logprobs")

    with serving(one_of_each(edit)) as server:
        assert len(list(completions(server).sample(orders(4, 2)))) == 8
    said = [r for r in caplog.records if "completion_bpt is not recorded" in r.getMessage()]
    assert len(said) == 1


def test_a_filter_that_is_off_may_be_left_out(caplog):
    def script(number, body):
        if "min_p" in body:
            loc = {"type": "extra_forbidden", "loc": ["body", "min_p"], "input": body}
            return Act(422, {"detail": [{**loc, "msg": "Extra inputs are not permitted"}]})
        return None

    with serving(script) as server:
        assert len(list(completions(server).sample(orders(4, 2)))) == 8
    assert "top_k" in server.requests[-1]
    assert caplog.text.count("the server does not know `min_p`") == 1


def test_a_filter_that_is_wanted_may_not_be_left_out():
    def script(number, body):
        return error(400, "Unrecognized request argument supplied: min_p")

    with serving(script) as server:
        sampling = completions(server).sample(orders(1, 1, min_p=0.1))
        with pytest.raises(TrialsFailedError, match=r"Unrecognized request argument.*min_p"):
            list(sampling)
    assert len(server.requests) == 1


# -- servers that fail -------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("act", "why"),
    [
        (Act(500, {"error": {"message": "engine dead"}}), "HTTP 500: engine dead"),
        (Act(503, b"<html><title>Bad gateway</title></html>"), "HTTP 503 with a web page.*Bad gat"),
        (Act(429, {"error": "slow down"}, {"Retry-After": "0"}), "HTTP 429: slow down"),
        (Act(drop=True), "no connection"),
        (Act(cut=20), "the answer is incomplete"),
        (Act(200, b'{"choices": [{"te'), "JSON breaks off after 17 bytes"),
        (Act(200, b"<!doctype html><title>Log in</title>"), "web page came.*Log in.*base_url"),
        (Act(200, {"error": {"message": "upstream", "code": 502}}), "an error inside: upstream"),
        (Act(200, {"choices": []}), "0 choices instead of one"),
        (Act(200, {"object": "nothing"}), "no list of choices"),
        (Act(edit=lambda a: a["choices"][0].update(finish_reason="abort")), "aborted the answer"),
        (Act(delay_s=3.0), "no answer within 1 s"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_trying_again_with_the_same_seed(act, why):
    """A trial that fails once is tried again; one that always fails is named at the end."""
    asked = orders(prompts=4, trials=2)
    bad, unlucky = asked[1], asked[2]
    seen = []

    def script(number, body):
        seen.append(body["seed"])
        if body["seed"] == bad.seed:
            return act
        return act if body["seed"] == unlucky.seed and seen.count(unlucky.seed) == 1 else None

    with serving(script) as server:
        sampling = completions(server, max_retries=2, timeout=1).sample(asked)
        got = []
        with pytest.raises(TrialsFailedError, match=why) as caught:
            got.extend(iter(sampling.__next__, None))
    assert {o.index for o, _ in got} == {o.index for o in asked} - {bad.index}
    assert [order for order, _ in caught.value.failed] == [bad]
    assert "trial 0 of 'What is 1 + 2?'" in str(caught.value)
    assert "7 answers came" in str(caught.value)
    assert seen.count(unlucky.seed) == 2
    # the server that asked for patience had it while it answered others
    assert 2 <= seen.count(bad.seed) <= (9 if act.status == 429 else 2)
    assert "sk-secret" not in str(caught.value)


def test_retry_after_holds_for_all():
    began = time.monotonic()
    times = []

    def script(number, body):
        times.append(time.monotonic() - began)
        return error(429, "slow down", Retry_After="1") if number == 0 else Act(delay_s=0.3)

    with serving(script) as server:
        assert len(list(completions(server, concurrent=2).sample(orders(4, 1)))) == 4
    # two were under way when the server asked; nobody asked again within its second
    assert len(times) == 5
    assert times[1] < 0.5
    assert times[2] - times[0] >= 1


def test_a_rate_limit_is_no_failure_while_others_are_answered():
    """One request of six is answered, until few are left to be answered meanwhile."""
    answered = []

    def script(number, body):
        if number % 6 == 0 or len(answered) >= 24:
            answered.append(number)
            return None
        return error(429, "slow down", Retry_After="0.01")

    with serving(script) as server:
        model = completions(server, concurrent=16, max_retries=4)
        assert len(list(model.sample(orders(20, 2)))) == 40
    refused = Counter(b["seed"] for b in server.requests)
    assert max(refused.values()) > 4 + 1


def test_a_bad_request_is_not_repeated():
    def script(number, body):
        return error(400, "maximum context length is 8") if "1 + 2" in body["prompt"] else None

    with serving(script) as server, pytest.raises(TrialsFailedError, match="maximum context") as e:
        list(completions(server).sample(orders(3, 2)))
    assert len(server.requests) == 6
    assert len(e.value.failed) == 2


@pytest.mark.parametrize(
    ("act", "why"),
    [
        (
            error(401, "Incorrect API key provided: sk-secret-of-the-tests"),
            "does not accept the key",
        ),
        (error(404, "The model `hash` does not exist."), "knows no such path or model"),
        (Act(429, {"error": {"message": "pay", "code": "insufficient_quota"}}), "429: pay"),
    ],
    ids=["key", "model", "quota"],
)
def test_where_there_is_no_hope_nothing_more_is_asked(act, why):
    with serving(lambda number, body: act) as server:
        sampling = completions(server, concurrent=2).sample(orders(50, 2))
        with pytest.raises(TrialsFailedError, match=why) as caught:
            list(sampling)
    assert len(server.requests) <= 4
    assert "were not requested any more" in str(caught.value)
    assert "sk-secret" not in str(caught.value)


def test_a_server_that_dies_is_given_up():
    def script(number, body):
        return Act(drop=True) if number >= 20 else None

    with serving(script) as server:
        sampling = completions(server, concurrent=4, max_retries=2).sample(orders(100, 2))
        got = []
        with pytest.raises(TrialsFailedError, match=r"of 200 requests.*not requested any more"):
            got.extend(iter(sampling.__next__, None))
    assert len(got) == 20
    assert len(server.requests) < 60


def test_no_server(caplog):
    with serving() as server:
        model = completions(server, max_retries=1)
        gone = orders(3, 1)
    with pytest.raises(TrialsFailedError, match=r"127\.0\.0\.1:\d+/v1/completions did not answer"):
        list(model.sample(gone))
    with pytest.raises(ServerError, match="does not answer"):
        model.fingerprint()


# -- leaving early -----------------------------------------------------------------------------


def test_closing_early_cancels_what_is_running():
    def script(number, body):
        return Act(delay_s=0.0 if number < 2 else 30.0)

    with serving(script) as server:
        sampling = completions(server, concurrent=4).sample(orders(20, 2))
        next(sampling)
        began = time.monotonic()
        sampling.close()
        assert time.monotonic() - began < 3
        assert not [t for t in threading.enumerate() if t.name == "lm-eval-bayes-requests"]
        server.leaving.set()
        server.wait_until_idle()
        assert len(server.requests) <= 8


def test_an_error_of_the_caller_leaves_no_thread():
    def interrupted(sampling):
        for _ in sampling:
            raise KeyboardInterrupt

    with serving() as server, pytest.raises(KeyboardInterrupt):
        interrupted(completions(server).sample(orders(20, 2)))
    deadline = time.monotonic() + 5
    names = {"lm-eval-bayes-requests"}
    while names & {t.name for t in threading.enumerate()} and time.monotonic() < deadline:
        time.sleep(0.01)
    assert not names & {t.name for t in threading.enumerate()}


def test_an_error_of_one_job_cancels_the_others():
    cancelled = []

    @asynccontextmanager
    async def opened():
        async def do(job):
            if job == 0:
                await asyncio.sleep(0.05)
                raise ZeroDivisionError("a bug")
            try:
                await asyncio.sleep(60)
            except asyncio.CancelledError:
                cancelled.append(job)
                raise

        yield do

    began = time.monotonic()
    with pytest.raises(ZeroDivisionError, match="a bug"):
        list(concurrently(range(9), opened, 3))
    assert time.monotonic() - began < 5
    assert cancelled == [1, 2]


def test_a_loop_of_the_caller_is_not_disturbed():
    async def notebook(server):
        return len(list(completions(server).sample(orders(3, 1))))

    with serving() as server:
        assert asyncio.run(notebook(server)) == 3


# -- chats: content, thoughts, stops -------------------------------------------------------------


def test_content_may_be_missing(caplog):
    def edit(answer):
        choice = answer["choices"][0]
        choice["message"] = {"role": "assistant", "content": None, "reasoning": "Hm, so"}
        choice["finish_reason"] = "length"

    with serving(one_of_each(edit)) as server:
        model = chat(server)
        got = [s for _, s in model.sample(orders(3, 1, model))]
    assert [s.text for s in got] == [""] * 3
    assert got[0].finish_reason == "length"
    assert got[0].signals["content_missing"] is True
    assert got[0].signals["reasoning_content"] == "Hm, so"
    assert got[0].signals["think_closed"] is False
    assert model.finished_text("", KWARGS, got[0].signals) == ""
    assert caplog.text.count("an answer without content") == 1


def test_thoughts_are_cut_on_reading():
    def edit(answer):
        answer["choices"][0]["message"]["content"] = "<think>ABC</think>\n D E"

    with serving(one_of_each(edit)) as server:
        model = chat(server, think_end_token="</think>")
        ((order, sampled),) = model.sample(orders(1, 1, model))
    assert sampled.text == "<think>ABC</think>\n D E"
    assert sampled.signals["think_closed"] is True
    assert model.finished_text(sampled.text, order.kwargs, sampled.signals) == "D E"


def test_a_fifth_stop_cuts_on_reading(caplog):
    until = ["one", "two", "three", "four", "five", "six"]
    with serving() as server:
        model = chat(server)
        list(model.sample(orders(1, 1, model, until=until)))
        list(model.sample(orders(1, 1, model, until=until)))
    assert server.requests[0]["stop"] == until[:4] == model.stops_sent({**KWARGS, "until": until})
    raw = "0 six 0 five 0"
    assert model.finished_text(raw, {**KWARGS, "until": until}, {}) == "0 "
    assert model.finished_text(raw, KWARGS, {}) == raw
    assert caplog.text.count("'five', 'six' cut the answers afterwards") == 1


def test_completions_get_all_stops_and_nothing_is_cut():
    until = ["one", "two", "three", "four", "five"]
    with serving() as server:
        model = completions(server, eos_string="</s>")
        list(model.sample(orders(1, 1, until=until)))
    assert server.requests[0]["stop"] == [*until, "</s>"]
    assert model.stops_sent({**KWARGS, "until": until}) == [*until, "</s>"]
    assert until == ["one", "two", "three", "four", "five"]
    assert model.finished_text("a five </think> b", {**KWARGS, "until": until}, {}) == (
        "a five </think> b"
    )


def test_the_official_server_gets_only_what_it_knows():
    with serving() as server:
        model = chat(server, cls=OfficialChat, model="gpt-4o")
        list(model.sample(orders(1, 1, model, until=[])))
        with pytest.raises(TaskConfigError, match=r"`top_k` must be off for openai-chat-comp.*20"):
            model.sample(orders(1, 1, model, top_k=20))
        with pytest.raises(TaskConfigError, match="`min_p` must be off"):
            model.sample(orders(1, 1, model, min_p=0.1))
    wanted = {"messages", "model", "max_completion_tokens", "temperature", "top_p", "seed"}
    assert set(server.requests[0]) == wanted | {"logprobs"}
    assert server.keys == ["Bearer sk-secret-of-the-tests"]
    assert backend_of(model) == "openai-chat-completions"


def test_a_temperature_that_the_harness_changes():
    with serving() as server:
        model = chat(server, cls=OfficialChat, model="gpt-5-mini")
        with pytest.raises(TaskConfigError, match=r"`temperature` must be 1 .*got 0\.6"):
            model.sample(orders(1, 1, model))
        list(model.sample(orders(1, 1, model, temperature=1.0)))
    assert "stop" not in server.requests[0]
    assert model.finished_text("a Question: b", KWARGS, {}) == "a "


# -- refused before anything is sent -------------------------------------------------------------


class Words:
    """A tokenizer: a word is a token."""

    eos_token, eos_token_id, bos_token_id = "</s>", 0, None

    def __call__(self, texts, **kwargs):
        ids = [[len(word) for word in text.split()] for text in texts]
        return type("Encoding", (), {"input_ids": ids})


def tokenized(server, **arguments):
    model = completions(server, **arguments)
    model.tokenizer, model.tokenizer_backend = Words(), "huggingface"
    model.tokenized_requests = True
    return model


def test_room_for_prompt_and_completion():
    with serving() as server:
        model = tokenized(server)
        with pytest.raises(TaskConfigError, match=r"5 tokens and max_gen_toks is 4096.* 2047"):
            model.sample(orders(2, 1, max_gen_toks=4096))
        assert server.requests == []
        ((_, sampled),) = model.sample(orders(1, 1, max_gen_toks=2042))
        assert server.requests[0]["prompt"] == [[4, 2, 1, 1, 2]]
        assert server.requests[0]["stop"] == ["Question:", "</s>"]
        assert sampled.signals["prompt_truncated"] is False
        with pytest.raises(TaskConfigError, match="max_gen_toks is 2043"):
            model.sample(orders(1, 1, max_gen_toks=2043))
        # with the true length, or none of the client's business, it goes
        list(tokenized(server, max_length=9000).sample(orders(1, 1, max_gen_toks=4096)))
        list(completions(server).sample(orders(1, 1, max_gen_toks=4096)))


def test_the_servers_own_room():
    with serving(pages=vllm_pages(length=4096)) as server:
        list(tokenized(server).sample(orders(1, 1, max_gen_toks=4091)))
        with pytest.raises(TaskConfigError, match="is 4096 tokens"):
            tokenized(server).sample(orders(1, 1, max_gen_toks=4092))
        with pytest.raises(TaskConfigError, match="max_gen_toks is 5000"):
            completions(server).sample(orders(1, 1, max_gen_toks=5000))
        with pytest.raises(TaskConfigError, match="is 99 tokens"):
            tokenized(server, max_length=100).sample(orders(1, 1, max_gen_toks=95))


def test_a_server_that_cuts_prompts(caplog):
    def edit(answer):
        answer["usage"]["prompt_tokens"] = 2

    with serving(one_of_each(edit)) as server:
        ((_, sampled),) = tokenized(server).sample(orders(1, 1))
    assert sampled.signals["prompt_truncated"] is True
    assert "than were sent (2 of 5)" in caplog.text


def test_a_server_with_a_limit_of_its_own(caplog):
    def edit(answer):
        answer["choices"][0]["finish_reason"] = "length"

    with serving(one_of_each(edit)) as server:
        list(completions(server).sample(orders(1, 1)))
    assert "tokens of max_gen_toks=64: its own limit is lower" in caplog.text


@pytest.mark.parametrize(
    ("changes", "why"),
    [
        ({"n": 4}, "`n` must be left out.*got 4"),
        ({"logprobs": 5}, "`logprobs` must be left out"),
        ({"stream": True}, "`stream` must be left out"),
        ({"seed": 7}, "`seed` must be left out"),
        ({"temperature": ...}, "`temperature` must be a number.*got None"),
        ({"temperature": True}, "`temperature` must be a number.*got True"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_settings_that_cannot_be(changes, why):
    with serving() as server:
        with pytest.raises(TaskConfigError, match=why):
            completions(server).sample(orders(1, 1, **changes))
        assert server.requests == []


def test_arguments_that_cannot_be():
    with serving() as server:
        with pytest.raises(ModelConfigError, match=r"`batch_size` must be 1.*got 8"):
            completions(server, batch_size=8).sample(orders(1, 1))
        with pytest.raises(TaskConfigError, match="needs --apply_chat_template"):
            chat(server).sample(orders(1, 1))
        with pytest.raises(TaskConfigError, match="cannot send a chat's messages"):
            completions(server).sample(orders(1, 1, chat(server)))
        with pytest.raises(TaskConfigError, match=r"`timeout` must be a number.*got 0"):
            completions(server, timeout=0).sample(orders(1, 1))
        for url, why in (
            (None, "address of a server.*got None"),
            ("ftp://here/v1", "address of a server.*got something else"),
            ("http://me:password@here/v1/completions", "no user name or password"),
        ):
            model = Completions(model="m", base_url=url, tokenizer_backend=None)
            with pytest.raises(ModelConfigError, match=why) as caught:
                model.sample(orders(1, 1))
            assert "me:password" not in str(caught.value)


def test_images_are_refused():
    request = Instance("generate_until", {}, ("What is this?", {}, {"visual": []}), 0)
    with serving() as server:
        order = trial_request(0, "What is this?", "What is this?", 0, 1, KWARGS, request)
        with pytest.raises(TaskConfigError, match="must be text"):
            completions(server).sample([order])


def test_empty_prompts_are_refused():
    with serving() as server:
        order = trial_request(0, "", "", 0, 1, KWARGS)
        with pytest.raises(TaskConfigError, match="`prompt` must hold text"):
            completions(server).sample([order])
    assert list(completions(server).sample([])) == []


def test_one_at_a_time_is_advised_against_once(caplog):
    with serving() as server:
        model = completions(server, concurrent=1)
        for _ in range(2):
            assert len(list(model.sample(orders(2, 1)))) == 2
        assert server.most == 1
    assert caplog.text.count("num_concurrent is 1") == 1


def test_time_for_long_answers(caplog, monkeypatch):
    endpoints = []
    original = client.Connection.__init__

    def spy(self, endpoint, concurrency):
        endpoints.append(endpoint)
        original(self, endpoint, concurrency)

    monkeypatch.setattr(client.Connection, "__init__", spy)
    with caplog.at_level(logging.INFO), serving() as server:
        list(completions(server).sample(orders(1, 1, max_gen_toks=32768)))
        assert "allowed 6854 s" in caplog.text
        list(completions(server, timeout=300).sample(orders(1, 1, max_gen_toks=32768)))
    assert [endpoint.timeout_s for endpoint in endpoints] == [pytest.approx(6853.6), 300]
    assert "more than 109 tokens per second" in caplog.text


# -- the identity of a server --------------------------------------------------------------------


def test_the_fingerprint_holds_no_secret_and_nothing_of_speed():
    with serving(pages=vllm_pages()) as server:
        prints = []
        for concurrent, timeout in ((4, 300), (64, 9000)):
            model = completions(server, concurrent, timeout=timeout, auth_token="sk-other-secret")
            model.base_url += "?key=sk-third-secret"
            prints.append(model.fingerprint())
        versions = model.versions()
    assert prints[0] == prints[1]
    assert "secret" not in json.dumps(prints)
    assert prints[0] == {
        "backend": "local-completions",
        "pretrained": "hash",
        "endpoint": f"127.0.0.1:{server.server_address[1]}/v1/completions",
        "chat": False,
        "tokenized_requests": False,
        "served": {
            "id": "hash",
            "root": "org/hash",
            "max_model_len": 4096,
            "owned_by": "vllm",
        },
    }
    assert versions["server"] == "0.32.0"
    assert set(versions) == {"server", "lm_eval", "aiohttp"}


def test_another_model_under_the_same_name_is_another_fingerprint():
    prints = []
    for root in ("org/one", "org/two"):
        with serving(pages=vllm_pages(root=root)) as server:
            prints.append(completions(server, endpoint="cluster").fingerprint())
    assert [p["served"].pop("root") for p in prints] == ["org/one", "org/two"]
    assert prints[0] == prints[1]
    assert prints[0]["endpoint"] == "cluster"


def test_a_server_that_is_down_is_found_in_a_store():
    with serving(pages=vllm_pages()) as server:
        model = completions(server)
        known = [model.fingerprint(), chat(server).fingerprint()]
    down = completions(server)
    assert down.fingerprint_among(known) == known[0]
    assert down.fingerprint_among(known[1:]) is None


def test_the_tokenizer_is_part_of_it_where_it_is_used():
    with serving() as server:
        found = tokenized(server, revision="abc").fingerprint()
        assert (found["tokenizer"], found["tokenizer_revision"]) == ("hash", "abc")
        assert found["tokenizer_backend"] == "huggingface"
        assert found["add_bos_token"] is False


def test_nothing_secret_is_logged(caplog):
    def script(number, body):
        return error(500, "the header Bearer sk-secret-of-the-tests broke me")

    with caplog.at_level(logging.DEBUG), serving(script) as server:
        sampling = completions(server, max_retries=2).sample(orders(1, 1))
        with pytest.raises(TrialsFailedError, match=r"Bearer \*\*\* broke me") as caught:
            list(sampling)
    ours = [r.getMessage() for r in caplog.records if r.name.startswith("lm_eval.bayes")]
    assert ours
    assert "sk-secret" not in " ".join(ours)
    assert "sk-secret" not in repr(caught.value.failed)


def test_only_the_harnesss_backends():
    class Other(OpenAISampling, openai_completions.TemplateAPI):
        _create_payload = parse_logprobs = parse_generations = None

    with pytest.raises(ModelConfigError, match=r"`backend` must be one of local-chat-comp.*Other"):
        backend_of(Other(base_url="http://127.0.0.1:1/v1", tokenizer_backend=None))


# -- with a store around it ----------------------------------------------------------------------


def recorded(server, store, task_changes=None, **arguments):
    pytest.importorskip("datasets")
    from _support.toy import evaluate, toy_config

    from lm_eval_bayes.harness.models.trials import TrialsLM
    from lm_eval_bayes.harness.task.repeated_sampling import RepeatedSamplingTask

    model = TrialsLM.create_from_arg_obj(
        {
            **{"backend": "local-completions", "store": str(store), "model": "hash"},
            **{"base_url": server.url(), "tokenizer_backend": None, "num_concurrent": 4},
            **arguments,
        }
    )
    config = toy_config(**(task_changes or {}))
    try:
        result = evaluate(model, RepeatedSamplingTask(config=config), log_samples=True)
    finally:
        model.trial_store.close()
    return [sample["resps"][0] for sample in result["samples"]["toy"]]


@pytest.mark.filterwarnings("default")
def test_what_came_before_a_failure_is_not_asked_again(tmp_path):
    store = tmp_path / "trials.sqlite"
    with serving() as server:
        whole = recorded(server, tmp_path / "whole.sqlite")
        assert len(server.requests) == 12 + 3  # the prompts are measured, too
        assert len({b["seed"] for b in server.requests if not b.get("echo")}) == 12
        server.script = lambda number, body: error(500, "full") if number >= 20 else None
        with pytest.raises(TrialsFailedError, match="12 requests"):
            recorded(server, store, max_retries=1)
        server.script = lambda number, body: None
        before = len(server.requests)
        texts = recorded(server, store)
        assert 0 < len(server.requests) - before < 15
        before = len(server.requests)
        assert recorded(server, store) == texts == whole
        more = recorded(server, store, {"repeats": 6})
        assert len(server.requests) == before + 6
        assert [some[:4] for some in more] == texts
