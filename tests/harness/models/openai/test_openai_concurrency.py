"""Concurrent requests: their order, and how they end early."""

from __future__ import annotations

import asyncio
import threading

import pytest
from _support.openai_models import completions, requests_of
from _support.scripted_server import Act, serving

from lm_eval_bayes.harness.models.interface import RequestStream
from lm_eval_bayes.harness.models.openai import client
from lm_eval_bayes.harness.models.openai.client import TrialsFailedError

pytestmark = pytest.mark.filterwarnings("default:.*:DeprecationWarning")


def run_threads():
    return [t for t in threading.enumerate() if t.name == "lm-eval-bayes-requests"]


def test_orders_are_begun_in_order_and_topped_up_without_a_barrier():
    requests = requests_of(prompts=8, trials=3)
    first_four, others = threading.Barrier(4), threading.Event()

    def script(number, body):
        if number < 4:
            first_four.wait(60)
        if number == len(requests) - 1:
            others.set()
        elif body["seed"] == requests[0].seed:  # for which the others must not wait
            assert others.wait(60)

    with serving(script) as server:
        got = [order for order, _ in completions(server, concurrent=4).sample(requests)]
        assert server.most == 4
    assert requests[0] in got[-4:]
    begun, wanted = [b["seed"] for b in server.requests], [o.seed for o in requests]
    assert sorted(begun[:4]) == sorted(wanted[:4])
    assert sorted(begun) == sorted(wanted)
    with serving() as server:
        list(completions(server, concurrent=1).sample(requests))
    assert [b["seed"] for b in server.requests] == wanted


def stream_of(requests):
    return RequestStream(requests[:4], len(requests), iter(requests))


def test_an_ended_stream_yields_what_ends_in_time_and_cancels_the_rest():
    last, ended = threading.Event(), threading.Event()

    def script(number, body):
        # trial 0 of the four questions, which are asked in this order
        if body["seed"] in (100, 200):
            assert ended.wait(60)
        elif body["seed"] == 300:
            last.set()
            server.leaving.wait(60)

    requests = requests_of(prompts=4, trials=8)
    stream = stream_of(requests)
    with serving(script) as server:
        got = []
        for request, _ in completions(server, concurrent=3).sample(stream):
            got.append(request.index)
            if len(got) == 1:
                assert last.wait(60)
                stream.end(60.0)
                ended.set()
            if len(got) == 3:
                stream.end(0.0)
        assert stream.given == len(server.requests) == 4
    assert sorted(got) == [0, 1, 2]


def test_a_failed_trial_of_a_stream_ends_it_after_the_trials_of_its_number():
    def script(number, body):
        failing = body["seed"] == 100  # trial 0 of the second question
        return Act(400, {"error": {"message": "no"}}) if failing else Act(delay_s=0.02)

    requests = requests_of(prompts=4, trials=400)
    got = []
    with serving(script) as server:
        sampling = completions(server, concurrent=2).sample(stream_of(requests))
        with pytest.raises(TrialsFailedError) as caught:
            got.extend((request.trial, request.prompt) for request, _ in sampling)
    assert [request.trial for request, _ in caught.value.failed] == [0]
    assert {(0, f"What is {i} + 2?") for i in (0, 2, 3)} <= set(got)
    assert len(got) < len(requests) / 2


def test_closing_early_cancels_what_is_running():
    def script(number, body):
        if number >= 2:
            server.leaving.wait(60)

    with serving(script) as server:
        sampling = completions(server, concurrent=4).sample(requests_of(20, 2))
        next(sampling)
        sampling.close()
        assert not run_threads()
        assert len(server.requests) <= 6


def test_an_exception_that_is_no_failure_ends_the_run(monkeypatch):
    monkeypatch.setattr(client, "read_trial", lambda *arguments, **more: 1 / 0)

    late = []

    def script(number, body):
        if number > 0 and not server.leaving.wait(60):
            late.append(number)

    with serving(script) as server:
        with pytest.raises(ZeroDivisionError):
            list(completions(server).sample(requests_of(9, 1)))
        assert not run_threads()
        assert not late


def test_a_loop_of_the_caller_is_not_disturbed():
    async def notebook(server):
        return len(list(completions(server).sample(requests_of(3, 1))))

    with serving() as server:
        assert asyncio.run(notebook(server)) == 3
