"""Servers that refuse settings, fail or do not answer."""

from __future__ import annotations

import threading
import time
from collections import Counter

import pytest
from _support.errors import refused
from _support.openai_models import (
    completions,
    requests_of,
)
from _support.scripted_server import Act, error, serving, vllm_pages

from lm_eval_bayes._util import http
from lm_eval_bayes.harness.models.openai.responses import (
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
        Act(delay_s=1.6),
    ],
)
def test_trying_again_with_the_same_seed(monkeypatch, act):
    """A trial that fails once is tried again; one that always fails is named at the end."""
    monkeypatch.setattr(http, "ALWAYS_BYTES", 200_000)
    requests = requests_of(prompts=4, trials=2)
    bad, unlucky = requests[1], requests[2]
    seen = []

    def script(number, body):
        seen.append(body["seed"])
        if body["seed"] == bad.seed:
            return act
        return act if body["seed"] == unlucky.seed and seen.count(unlucky.seed) == 1 else None

    with serving(script) as server:
        sampling = completions(server, max_retries=2, timeout=0.8).sample(requests)
        got = []
        with refused(None, "failed", None, error=TrialsFailedError) as caught:
            got.extend(iter(sampling.__next__, None))
    assert {o.index for o, _ in got} == {o.index for o in requests} - {bad.index}
    assert [order for order, _ in caught.value.failed] == [bad]
    assert seen.count(unlucky.seed) == 2
    # the server refused while it answered others
    assert 2 <= seen.count(bad.seed) <= (9 if act.status == 429 else 2)
    assert "sk-secret" not in str(caught.value)


def test_retry_after_holds_for_all():
    times = []

    def script(number, body):
        times.append(time.monotonic())
        return error(429, "slow down", Retry_After="0.5") if number == 0 else Act(delay_s=0.1)

    with serving(script) as server:
        assert len(list(completions(server, concurrent=2).sample(requests_of(4, 1)))) == 4
    # two requests were running when the server sent it; none follows within that time
    assert len(times) == 5
    assert times[2] - times[0] >= 0.5


def test_a_rate_limit_is_no_failure_while_others_are_answered():
    """One request of six is answered, until few are left to be answered meanwhile."""
    answered = []

    def script(number, body):
        if number % 6 == 0 or len(answered) >= 12:
            answered.append(number)
            return None
        return error(429, "slow down", Retry_After="0.01")

    with serving(script) as server:
        model = completions(server, concurrent=8, max_retries=4)
        assert len(list(model.sample(requests_of(10, 2)))) == 20
    tries = Counter(b["seed"] for b in server.requests)
    assert max(tries.values()) > 4 + 1


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


def test_no_server(caplog):
    with serving() as server:
        model = completions(server, max_retries=1)
        gone = requests_of(3, 1)
    with refused(None, "failed", None, error=TrialsFailedError):
        list(model.sample(gone))
    with refused(None, "failed", None, error=ServerError):
        model.fingerprint()


@pytest.mark.parametrize("root", ["org/hash", "org/another"])
def test_a_server_that_comes_back_is_asked_for_its_model(root):
    """It goes on with the trials, and gets no request if its model is another one."""

    def restarted():
        time.sleep(0.1)
        server.pages = vllm_pages(root=root)
        server.down.clear()

    def script(number, body):
        if number == 8:
            server.down.set()
            threading.Thread(target=restarted).start()
        return Act(delay_s=0.02)

    requests = requests_of(prompts=10, trials=2)
    with serving(script, vllm_pages()) as server:
        model = completions(server, concurrent=4, max_retries=20)
        assert model.fingerprint()["served"]["root"] == "org/hash"
        sampling = model.sample(requests)
        if root == "org/hash":
            assert Counter(r.index for r, _ in sampling) == Counter(r.index for r in requests)
            return
        with refused(None, "failed", None, error=TrialsFailedError):
            list(sampling)
    assert len(server.requests) <= 12


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
