"""A judge on an OpenAI-compatible server, over the loopback device only."""

from __future__ import annotations

import contextlib
import math
import socket
import threading

import pytest
from _support.errors import refused
from _support.fake_judge import opinion
from _support.label_server import Act, error, serving

from lm_eval_bayes._util import http
from lm_eval_bayes.rubric.verifier_prompt import VerifierInput, fitted_prompt, verifier_prompt
from lm_eval_bayes.verifiers.judge import Unjudged, VerifierError, baseline_scores
from lm_eval_bayes.verifiers.server_judge import ServerJudge

CASES = [
    VerifierInput(f"Question {i}?", "42", f"{'Step. ' * i}It is {40 + i % 4}.") for i in range(12)
]
PROMPTS = [verifier_prompt(case) for case in CASES]
KEY = "sk-very-secret-key"


@pytest.fixture(autouse=True)
def pauses(monkeypatch):
    """The pauses between attempts, a hundredth of which is made."""
    pause_s, listed = http._pause_s, []

    def noted(*arguments):
        listed.append(pause_s(*arguments))
        return listed[-1] / 100

    monkeypatch.setattr(http, "_pause_s", noted)
    return listed


def judge_of(server, path="", key=None, timeout_s=300.0, attempts=4, **settings):
    judge = ServerJudge("judge", server.url(path), key, **settings)
    judge._client.timeout_s, judge._client.attempts = timeout_s, attempts
    return judge


def only_labels(act):
    """Apply a script to the requests that ask for labels, after the first."""
    seen = []

    def script(number, path, body):
        if not path.endswith("/completions"):
            return None
        seen.append(number)
        return act(len(seen) - 2, body) if len(seen) > 1 else None

    return script


def listing(*tokens):
    """The answer of a server that lists these tokens with their log-probabilities."""
    entries = [{"token": token, "logprob": value} for token, value in tokens]
    return Act(200, {"choices": [{"logprobs": {"content": [{"top_logprobs": entries}]}}]})


# -- what it asks and reads --------------------------------------------------------------------


@pytest.mark.parametrize("path", ["", "/completions"])
def test_scores_are_the_log_probabilities_of_the_labels(path):
    with serving() as server:
        judge = judge_of(server, path)
        assert baseline_scores(judge) == pytest.approx(
            [math.log(0.9 * p) for p in (0.5, 0.25, 0.25)]
        )
        for prompt, scores in zip(PROMPTS, judge.scores(PROMPTS), strict=True):
            assert scores == pytest.approx([math.log(0.9 * p) for p in opinion(prompt)])
        requested, body = server.requests[-1]
    wanted = {"model": "judge", "max_tokens": 1, "temperature": 0}
    if path == "/completions":
        assert requested == "/v1/completions"
        assert body.pop("prompt").removesuffix("\n\nLabel:") in PROMPTS
        assert body == {**wanted, "logprobs": 20}
    else:
        assert requested == "/v1/chat/completions"
        (message,) = body.pop("messages")
        assert message["role"] == "user"
        assert message["content"] in PROMPTS
        assert body == {**wanted, "logprobs": True, "top_logprobs": 20}


def test_several_requests_are_under_way_and_answers_find_their_prompts():
    four = threading.Barrier(4)

    def script(number, body):
        four.wait(60)

    with serving(only_labels(script)) as server:
        scores = judge_of(server, batch_size=4).scores(PROMPTS)
        assert server.most == 4
    assert scores == [
        pytest.approx([math.log(0.9 * p) for p in opinion(prompt)]) for prompt in PROMPTS
    ]


def test_the_fingerprint_names_the_model_and_not_the_port():
    with serving() as server, serving() as other:
        first, second = judge_of(server), judge_of(other)
        assert first.fingerprint == second.fingerprint
        about = [first.fingerprint[key] for key in ("kind", "name", "root")]
        assert about == ["server", "judge", "org/judge"]
        assert judge_of(server, "/completions").fingerprint != first.fingerprint


def test_a_label_that_is_not_listed_gets_the_last_listed_score():
    few = listing(("B", -0.1), ("x", -7.5), ("y", -9999.0), ("z", math.nan))
    with serving(only_labels(lambda n, body: few)) as server:
        assert judge_of(server).scores(PROMPTS[:1]) == [(-7.5, -0.1, -7.5)]


def test_without_any_label_a_prompt_is_unjudged():
    thinks = listing(("<think>", -0.01))
    with serving(only_labels(lambda n, body: thinks if n == 1 else None)) as server:
        results = judge_of(server, batch_size=1).scores(PROMPTS[:3])
    assert results[1] == Unjudged("no label is among the 20 likeliest tokens")
    assert not any(isinstance(result, Unjudged) for result in (results[0], results[2]))


def test_a_server_that_lists_fewer_tokens_is_asked_for_fewer():
    def script(number, path, body):
        return error(400, "at most 5") if body.get("logprobs", 0) > 5 else None

    with serving(script) as server:
        judge = judge_of(server, "/completions")
        judge.scores(PROMPTS[:2])
        assert [body.get("logprobs") for _, body in server.requests[-3:]] == [5, 5, 5]
    assert judge.fingerprint["top"] == 5


# -- lengths -----------------------------------------------------------------------------------


def test_lengths_are_bytes_and_the_limit_the_servers_context():
    """No token is shorter than a byte, so a prompt that fits in bytes fits in tokens."""
    long = VerifierInput("q", "42", "wörd " * 3000 + "It is 42.")
    with serving(window=2600) as server:
        judge = judge_of(server)
        assert (judge.unit, judge.limit, judge.length("né")) == ("bytes", 2600 - 64, 3)
        prompt = fitted_prompt(long, judge.length, judge.limit, judge.unit)
        assert 2500 <= len(prompt.encode()) <= 2536
        assert prompt.count("It is 42.") == 1
        assert judge_of(server, max_length=4000).limit == 4000
    with serving() as server:
        assert judge_of(server).limit is None


def test_a_prompt_that_the_server_finds_too_long_is_unjudged():
    refusal = error(400, "maximum context length is 10")
    with serving(only_labels(lambda n, body: refusal if n == 0 else None)) as server:
        results = judge_of(server, batch_size=1).scores(PROMPTS[:2])
    assert results[0] == Unjudged("HTTP 400: maximum context length is 10 x")
    assert not isinstance(results[1], Unjudged)


# -- trouble -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "trouble",
    [
        error(500, "oops"),
        Act(drop=True),
        Act(200, {"choices": []}, cut=-3),
        Act(200, b"<html>not yet</html>"),
    ],
)
def test_trouble_that_passes_is_waited_for(trouble, pauses):
    with serving(only_labels(lambda n, body: trouble if n < 2 else None)) as server:
        (scores,) = judge_of(server).scores(PROMPTS[:1])
    assert scores == pytest.approx([math.log(0.9 * p) for p in opinion(PROMPTS[0])])
    # of the request, and of the server, which answered nothing meanwhile
    assert [0.375 <= pause <= 0.625 for pause in pauses[:2]] == [True, True]
    assert [0.75 <= pause <= 1.25 for pause in pauses[2:]] == [True, True]


def test_a_server_may_say_how_long_to_wait(pauses):
    trouble = error(429, "slow down", Retry_After="7")
    with serving(only_labels(lambda n, body: trouble if n == 0 else None)) as server:
        judge_of(server).scores(PROMPTS[:1])
    assert pauses[0] == 7.0


@pytest.mark.parametrize(
    ("trouble", "rule", "value"),
    [
        (error(500, "oops"), "failed", 500),
        (Act(200, b"[" * 100_000), "failed", None),
        (Act(401, {"error": f"bad {KEY}"}), "failed", 401),
        (Act(302, {}, {"Location": "http://127.0.0.1:9/"}), "failed", 302),
        (error(429, "insufficient_quota"), "failed", 429),
        (Act(200, [1]), "unsupported", None),
        (Act(200, {"choices": [{"logprobs": None}]}), "unsupported", None),
    ],
)
def test_trouble_that_does_not_pass_is_one_sentence(trouble, rule, value):
    with serving(only_labels(lambda n, body: trouble)) as server:
        judge = judge_of(server, key=KEY)
        with refused("--base-url", rule, value, error=VerifierError) as caught:
            judge.scores(PROMPTS[:3])
        assert set(server.keys) == {f"Bearer {KEY}"}
    assert KEY not in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_silent_server_is_given_up():
    with serving(only_labels(lambda n, body: server.leaving.wait(60) and None)) as server:
        judge = judge_of(server, timeout_s=0.05)
        with refused("--base-url", "failed", None, error=VerifierError):
            judge.scores(PROMPTS[:1])


def test_an_answer_in_drops_is_given_up():
    """A byte now and then keeps a socket's own time-out from ever coming."""
    drops = []
    with serving() as server, socket.create_server(("127.0.0.1", 0)) as listener:

        def drip():
            connection, _ = listener.accept()
            with connection:
                connection.recv(65536)
                connection.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 1000\r\n\r\n")
                with contextlib.suppress(OSError):
                    while not server.leaving.wait(0.05):
                        connection.sendall(b" ")
                        drops.append(" ")

        threading.Thread(target=drip, daemon=True).start()
        judge = judge_of(server, timeout_s=0.3, attempts=1)
        judge._client.url = f"http://127.0.0.1:{listener.getsockname()[1]}/v1"
        with refused("--base-url", "failed", None, error=VerifierError):
            judge.scores(PROMPTS[:1])
    assert len(drops) < 500  # which take 25 s


def test_a_judge_that_is_not_there_or_gives_no_labels():
    def thinks(number, path, body):
        return listing(("<think>", 0.0)) if path.endswith("/completions") else None

    with serving(models=("other", "third")) as other, serving(thinks) as thinking:
        with refused("verifier", "choice", "judge", error=VerifierError):
            judge_of(other)
        with refused("verifier", "unsupported", "judge", error=VerifierError):
            judge_of(thinking)


def test_a_server_that_comes_back_with_another_model_judges_nothing():
    def script(number, body):
        server.pages = {"/v1/models": {"data": [{"id": "judge", "root": "org/another"}]}}
        return Act(drop=True)

    with serving(only_labels(script)) as server:
        judge = judge_of(server)
        with refused("--base-url", "failed", None, error=VerifierError):
            judge.scores(PROMPTS[:1])
        assert len(server.requests) == 2  # that which finds the labels, and the dropped one


def test_proxies_are_not_asked_for_this_machine(monkeypatch):
    for name in ("http_proxy", "HTTP_PROXY", "all_proxy"):
        monkeypatch.setenv(name, "http://127.0.0.1:9")
    monkeypatch.delenv("no_proxy", raising=False)
    monkeypatch.delenv("NO_PROXY", raising=False)
    with serving() as server:
        judge_of(server)
