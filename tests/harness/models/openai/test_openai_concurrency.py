"""Concurrent requests: their order, and how they end early."""

from __future__ import annotations

import asyncio
import threading
import time

import pytest
from _support.openai_models import completions, requests_of
from _support.scripted_server import Act, serving

from lm_eval_bayes.harness.models.interface import RequestStream
from lm_eval_bayes.harness.models.openai import client
from lm_eval_bayes.harness.models.openai.responses import TrialsFailedError

pytestmark = pytest.mark.filterwarnings("default:.*:DeprecationWarning")


def test_orders_are_begun_in_order_and_topped_up_without_a_barrier():
    requests = requests_of(prompts=8, trials=3)
    others = threading.Event()

    def script(number, body):
        if number == len(requests) - 1:
            others.set()
        elif body["seed"] == 0:  # the first request, for which the others must not wait
            others.wait(30)
        return Act(delay_s=0.02)

    with serving(script) as server:
        got = [order for order, _ in completions(server, concurrent=4).sample(requests)]
        assert server.most == 4
    assert requests[0] in got[-4:]
    begun = [b["seed"] for b in server.requests]
    wanted = [o.seed for o in requests]
    # four are under way at a time, so none arrives more than a few places from its own
    assert max(abs(begun.index(seed) - i) for i, seed in enumerate(wanted)) <= 4


def stream_of(requests):
    return RequestStream(requests[:4], len(requests), iter(requests))


def test_an_ended_stream_yields_what_ends_in_time_and_cancels_the_rest():
    def script(number, body):
        # trial 0 of the four questions, which are asked in this order
        return Act(delay_s={0: 0.0, 100: 0.1, 200: 0.1, 300: 30.0}.get(body["seed"], 0.0))

    requests = requests_of(prompts=4, trials=8)
    stream = stream_of(requests)
    with serving(script) as server:
        sampling = completions(server, concurrent=3).sample(stream)
        got = [next(sampling)[0]]
        stream.end(5.0)
        stream.deadline = time.monotonic() + 1.0
        got += [request for request, _ in sampling]
        assert stream.given == len(server.requests) < len(requests)
    assert {request.index for request in got} >= {0, 1, 2}
    assert 3 not in {request.index for request in got}


def test_a_failed_trial_of_a_stream_ends_it_after_the_trials_of_its_number():
    def script(number, body):
        failing = body["seed"] == 100  # trial 0 of the second question
        return Act(400, {"error": {"message": "no"}}) if failing else Act(delay_s=0.02)

    requests = requests_of(prompts=4, trials=40)
    got = []
    with serving(script) as server:
        sampling = completions(server, concurrent=2).sample(stream_of(requests))
        with pytest.raises(TrialsFailedError) as caught:
            got.extend((request.trial, request.prompt) for request, _ in sampling)
    assert [request.trial for request, _ in caught.value.failed] == [0]
    assert {(0, f"What is {i} + 2?") for i in (0, 2, 3)} <= set(got)
    assert len(got) < 10


def test_closing_early_cancels_what_is_running():
    def script(number, body):
        return Act(delay_s=0.0 if number < 2 else 30.0)

    with serving(script) as server:
        sampling = completions(server, concurrent=4).sample(requests_of(20, 2))
        next(sampling)
        began = time.monotonic()
        sampling.close()
        assert time.monotonic() - began < 3
        assert not [t for t in threading.enumerate() if t.name == "lm-eval-bayes-requests"]
        server.leaving.set()
        server.wait_until_idle()
        assert len(server.requests) <= 8


def test_an_exception_that_is_no_failure_ends_the_run(monkeypatch):
    monkeypatch.setattr(client, "read_trial", lambda *arguments, **more: 1 / 0)
    began = time.monotonic()
    with serving(lambda number, body: Act(delay_s=30.0 * (number > 0))) as server:
        with pytest.raises(ZeroDivisionError):
            list(completions(server).sample(requests_of(9, 1)))
        assert time.monotonic() - began < 5


def test_a_loop_of_the_caller_is_not_disturbed():
    async def notebook(server):
        return len(list(completions(server).sample(requests_of(3, 1))))

    with serving() as server:
        assert asyncio.run(notebook(server)) == 3
