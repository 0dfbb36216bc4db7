"""Servers that refuse settings, fail or do not answer."""

from __future__ import annotations

import socket
import threading
import time
from collections import Counter
from types import SimpleNamespace

import pytest
from _support.errors import refused
from _support.openai_models import (
    completions,
    requests_of,
)
from _support.scripted_server import Act, error, serving, vllm_pages

from lm_eval_bayes._util import http
from lm_eval_bayes.harness.models.openai.client import (
    ServerError,
    TrialsFailedError,
)

pytestmark = pytest.mark.filterwarnings("default:.*:DeprecationWarning")


def test_with_no_logprobs_beside_the_token():
    def script(number, body):
        if body.get("logprobs") == 1:
            return error(400, "Requested sample logprobs of 1 are more than max allowed: 0")
        return None

    with serving(script) as server:
        got = list(completions(server).sample(requests_of(2, 2)))
    assert all("completion_bpt" in s.signals for _, s in got)


def test_a_filter_that_is_off_may_be_left_out(caplog):
    def script(number, body):
        if "min_p" in body:
            loc = {"type": "extra_forbidden", "loc": ["body", "min_p"], "input": body}
            return Act(422, {"detail": [{**loc, "msg": "Extra inputs are not permitted"}]})
        return None

    with serving(script) as server:
        assert len(list(completions(server).sample(requests_of(4, 2)))) == 8
    assert "top_k" in server.requests[-1]
    assert caplog.text.count("the server refuses `min_p`") == 1


def test_a_filter_that_is_wanted_may_not_be_left_out():
    def script(number, body):
        return error(400, "Unrecognized request argument supplied: min_p")

    with serving(script) as server:
        sampling = completions(server).sample(requests_of(1, 1, min_p=0.1))
        with refused(None, "failed", None, error=TrialsFailedError):
            list(sampling)
    assert len(server.requests) == 1


@pytest.mark.parametrize(
    "act",
    [
        Act(500, {"error": {"message": "engine dead"}}),
        Act(429, {"error": "slow down"}, {"Retry-After": "0"}),
        Act(drop=True),
        Act(cut=20),
        Act(200, b'{"choices": [{"te'),
        Act(200, {"error": {"message": "upstream", "code": 502}}),
        Act(200, b"[" * 100_000),
        Act(200, b" " * 200_001),
        Act(200, b""),
        Act(edit=lambda a: a["choices"][0].update(text=None)),
        Act(200, {"choices": []}),
        Act(edit=lambda a: a["choices"][0].update(finish_reason="abort")),
    ],
)
def test_trying_again_with_the_same_seed(monkeypatch, act):
    """A trial that fails once is tried again; one that always fails is named at the end."""
    monkeypatch.setattr(http, "ALWAYS_BYTES", 200_000)
    monkeypatch.setattr(http, "FIRST_PAUSE_S", 0.01)
    requests = requests_of(prompts=4, trials=2)
    bad, unlucky = requests[1], requests[2]
    seen, got, others = [], [], threading.Event()

    def script(number, body):
        seen.append(body["seed"])
        if body["seed"] == bad.seed:
            assert seen.count(bad.seed) == 1 or others.wait(60)
            return act
        return act if body["seed"] == unlucky.seed and seen.count(unlucky.seed) == 1 else None

    failed = refused(None, "failed", None, error=TrialsFailedError)
    with serving(script) as server, failed as caught:
        for order, _ in completions(server, max_retries=2).sample(requests):
            got.append(order.index)
            if len(got) == len(requests) - 1:
                others.set()
    assert set(got) == {o.index for o in requests} - {bad.index}
    assert [order for order, _ in caught.value.failed] == [bad]
    assert seen.count(unlucky.seed) == 2
    # a busy server is given up after three pauses without an answer
    assert 2 <= seen.count(bad.seed) <= (5 if act.status == 429 else 2)
    assert "sk-secret" not in str(caught.value)


def test_retry_after_holds_for_all(monkeypatch):
    """Of two requests that are sent at first, one is answered after the client read the other's."""
    times, paused = [], threading.Event()
    monkeypatch.setattr(http.log, "log", lambda *arguments: paused.set())

    def script(number, body):
        times.append(time.monotonic())
        if number == 0:
            return error(429, "slow down", Retry_After="0.5")
        assert paused.wait(60)
        return None

    with serving(script) as server:
        assert len(list(completions(server, concurrent=2).sample(requests_of(4, 1)))) == 4
    assert len(times) == 5
    assert sorted(times)[2] - min(times) >= 0.5


def test_a_rate_limit_is_no_failure_while_others_are_answered(monkeypatch):
    """One request is refused six times; after each, and before the next, another is answered."""
    monkeypatch.setattr(http, "FIRST_PAUSE_S", 0.01)
    requests = requests_of(10, 2)
    refusals, answers = threading.Semaphore(0), threading.Semaphore(1)

    def script(number, body):
        if body["seed"] != requests[0].seed:
            assert refusals.acquire(timeout=60)
            return None
        assert answers.acquire(timeout=60)
        is_last = seeds().count(body["seed"]) > 6
        refusals.release(len(requests) if is_last else 1)
        return None if is_last else error(429, "slow down", Retry_After="0.01")

    def seeds():
        return [body["seed"] for body in server.requests]

    with serving(script) as server:
        for _ in completions(server, concurrent=8, max_retries=4).sample(requests):
            answers.release()
    assert Counter(seeds()) == {r.seed: 7 if r is requests[0] else 1 for r in requests}


@pytest.mark.parametrize(
    "act",
    [
        error(401, "Incorrect API key provided: sk-secret-of-the-tests"),
        error(404, "The model `hash` does not exist."),
        Act(429, {"error": {"message": "pay", "code": "insufficient_quota"}}),
    ],
    ids=["key", "model", "quota"],
)
def test_where_there_is_no_hope_nothing_more_is_asked(act):
    with serving(lambda number, body: act) as server:
        sampling = completions(server, concurrent=2).sample(requests_of(50, 2))
        with refused(None, "failed", None, error=TrialsFailedError) as caught:
            list(sampling)
    assert len(server.requests) <= 4
    assert "sk-secret" not in str(caught.value)


def test_a_server_that_dies_is_given_up():
    def script(number, body):
        return Act(drop=True) if number >= 20 else None

    with serving(script) as server:
        sampling = completions(server, concurrent=4, max_retries=2).sample(requests_of(100, 2))
        got = []
        with refused(None, "failed", None, error=TrialsFailedError):
            got.extend(iter(sampling.__next__, None))
    assert len(got) == 20
    assert len(server.requests) < 60


def test_no_server():
    with socket.socket() as bound:  # and not listening: no other process gets the port
        bound.bind(("127.0.0.1", 0))
        url = f"http://127.0.0.1:{bound.getsockname()[1]}/v1/completions"
        model = completions(SimpleNamespace(url=lambda: url), max_retries=1)
        with refused(None, "failed", None, error=TrialsFailedError):
            list(model.sample(requests_of(3, 1)))
        with refused(None, "failed", None, error=ServerError):
            model.fingerprint()


@pytest.mark.parametrize("root", ["org/hash", "org/another"])
def test_a_server_that_comes_back_is_asked_for_its_model(monkeypatch, root):
    """It goes on with the trials, and gets no request if its model is another one.

    Except those that were sent before the client found it down, at most by its three other workers.
    """

    def restarted():
        known.append(len(server.requests))
        server.pages = vllm_pages(root=root)
        server.down.clear()

    def script(number, body):
        if number == 8:
            server.down.set()

    monkeypatch.setattr(http, "FIRST_PAUSE_S", 0.01)
    requests, known = requests_of(prompts=10, trials=10), []
    with serving(script, vllm_pages()) as server:
        server.found_down = restarted
        model = completions(server, concurrent=4, max_retries=20)
        assert model.fingerprint()["served"]["root"] == "org/hash"
        sampling = model.sample(requests)
        if root == "org/hash":
            assert Counter(r.index for r, _ in sampling) == Counter(r.index for r in requests)
        else:
            with refused(None, "failed", None, error=TrialsFailedError):
                list(sampling)
            assert len(server.requests) <= known[0] + 3
        assert len(known) == 1


def test_a_proxy_with_one_server_that_ended_costs_no_trial(monkeypatch):
    """Three of four requests fail at once for a third of the time that all attempts take."""
    monkeypatch.setattr(http, "LONGEST_PAUSE_S", 0.6)  # ten attempts take 2.4 s
    began = time.monotonic()

    def script(number, body):
        if time.monotonic() - began < 0.7 and number % 4:
            return Act(500, {"error": {"message": "engine dead"}})
        return Act(delay_s=0.05)

    with serving(script) as server:
        answers = list(completions(server, 12).sample(requests_of(20, 2)))
    assert len(answers) == 40
