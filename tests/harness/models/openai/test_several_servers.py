"""Several servers of one model: which gets a request, and what happens to one that fails."""

from __future__ import annotations

import json
import logging
import threading
from collections import Counter
from contextlib import ExitStack

import pytest

pytest.importorskip("aiohttp")
pytest.importorskip("lm_eval.models.openai_completions")

from _support.openai_models import Completions, completions, requests_of
from _support.scripted_server import Act, error, serving, vllm_pages

from lm_eval_bayes.errors import ModelConfigError
from lm_eval_bayes.harness.models.openai.responses import TrialsFailedError

pytestmark = pytest.mark.filterwarnings("default:.*:DeprecationWarning")


def texts_of(model, requests, measure=frozenset()):
    """Sample, check that no trial is lost or doubled, and return the texts by index."""
    model.prepare(requests)
    answers = [(r.index, trial) for r, trial in model.sample(requests, measure)]
    assert Counter(index for index, _ in answers) == Counter(r.index for r in requests)
    return {index: trial.text for index, trial in answers}, [trial for _, trial in answers]


@pytest.fixture
def expected():
    """The texts of one server, which every test has to get from several."""
    with serving() as server:
        return texts_of(completions(server), requests_of(6, 8))[0]


def two(scripts=(None, None), pages=(None, None)):
    stack = ExitStack()
    pairs = zip(scripts, pages, strict=True)
    return stack, [stack.enter_context(serving(*pair)) for pair in pairs]


def host(server):
    return f"127.0.0.1:{server.server_address[1]}"


def sampled(server):
    """The requests of a server that are not the check of seeds."""
    return [body for body in server.requests if body["max_tokens"] != 16]


def test_the_same_trials_from_three_servers_each_with_its_server(expected):
    with ExitStack() as stack:
        servers = [stack.enter_context(serving(lambda n, b: Act(delay_s=0.02))) for _ in range(3)]
        texts, trials = texts_of(completions(servers, 6), requests_of(6, 8))
        assert texts == expected
        assert max(server.most for server in servers) == 2  # six requests run on three servers
    counts = Counter(trial.signals["server"] for trial in trials)
    assert counts == {host(server): len(sampled(server)) for server in servers}
    assert min(counts.values()) >= 10  # of 48


def test_least_outstanding_requests_first(expected):
    """Of four running requests two wait at the slow server; all others go to the fast one."""
    done, waiting = threading.Event(), []

    def fast_script(number, body):
        if number == 39:  # nine of them check the seeds
            waiting.append(len(sampled(slow)))
            done.set()

    def slow_script(number, body):
        if body["max_tokens"] != 16:
            done.wait(30)

    stack, (fast, slow) = two((fast_script, slow_script))
    with stack:
        assert texts_of(completions([fast, slow], 4), requests_of(6, 8))[0] == expected
    assert waiting == [2]
    assert slow.most <= 3


def reviving(other):
    """Return a script of a server that lets another one come back at its twenty-first request."""

    def script(number, body):
        if number == 21:
            other().down.clear()
        return Act(delay_s=0.05)

    return script


def test_a_server_that_is_killed(expected, caplog):
    def script(number, body):
        if number >= 19:  # nine of them check the seeds
            other.down.set()
        return Act(delay_s=0.02)

    stack, (server, other) = two((lambda n, b: Act(delay_s=0.02), script))
    with stack, caplog.at_level(logging.INFO):
        texts, trials = texts_of(completions([server, other], 8), requests_of(6, 8))
    assert texts == expected
    assert 4 <= Counter(t.signals["server"] for t in trials)[host(other)] <= 10
    # once, and again after each answer that was under way at a failure
    n_left_out = caplog.text.count(f"{host(other)} is left out until it answers again")
    assert n_left_out == 1 + caplog.text.count(f"{host(other)} answers again")


def test_a_server_that_comes_back(expected, caplog):
    def script(number, body):
        if number == 6:
            other.down.set()
        return Act(delay_s=0.05)

    stack, (server, other) = two((reviving(lambda: other), script))
    with stack, caplog.at_level(logging.INFO):
        texts, _ = texts_of(completions([server, other], 4), requests_of(6, 8))
        assert texts == expected
        assert len(other.requests) > 15  # with nine that check the seeds
    assert f"{host(other)} answers again" in caplog.text


def test_a_server_that_comes_back_with_another_model_gets_nothing(expected, caplog):
    def script(number, body):
        if number == 6:
            other.pages = vllm_pages(root="org/another")
            other.down.set()
        return Act(delay_s=0.05)

    pages = (vllm_pages(), vllm_pages())
    stack, (server, other) = two((reviving(lambda: other), script), pages)
    with stack:
        texts, trials = texts_of(completions([server, other], 4), requests_of(6, 8))
    assert texts == expected
    assert Counter(t.signals["server"] for t in trials)[host(other)] <= 6
    assert f"{host(other)} gets no further request" in caplog.text
    assert "root 'org/hash' and 'org/another'" in caplog.text


def test_a_server_that_is_down_at_the_start_takes_part_once_it_is_up(expected):
    stack, (server, other) = two((reviving(lambda: other), None), (vllm_pages(),) * 2)
    with stack:
        other.down.set()
        model = completions([server, other], 4)
        assert model.fingerprint()["served"]["root"] == "org/hash"
        answers = {r.index: t for r, t in model.sample(requests_of(6, 8))}
    assert {index: trial.text for index, trial in answers.items()} == expected
    assert host(other) in {trial.signals["server"] for trial in answers.values()}


@pytest.mark.parametrize(
    "act",
    [
        Act(delay_s=20.0),
        Act(200, b"\x00\xff garbage"),
        Act(200, {"choices": [{"text": 7}, {"text": 8}]}),
        Act(500, {"error": "engine dead"}),
        error(404, "no such model"),
    ],
    ids=["hangs", "garbage", "two choices", "fails", "knows no model"],
)
def test_a_server_that_never_answers_well(act, expected, caplog):
    stack, (server, other) = two((None, lambda number, body: act))
    with stack:
        model = completions([server, other], 4, timeout=1)
        model._seeds_checked = True
        texts, trials = texts_of(model, requests_of(6, 8))
        assert {t.signals["server"] for t in trials} == {host(server)}
        assert len(other.requests) < 20
    assert texts == expected
    assert host(other) in caplog.text


def test_retry_after_of_one_server_leaves_the_other_working(expected):
    def script(number, body):
        busy = number == 5
        return error(429, "slow down", Retry_After="1") if busy else Act(delay_s=0.02)

    stack, (server, other) = two((lambda n, b: Act(delay_s=0.06), script))
    with stack:
        assert texts_of(completions([server, other], 4), requests_of(6, 8))[0] == expected
        asked_at = other.times[5]
        # two at most were on their way when the server asked for a pause
        assert sum(asked_at < t < asked_at + 0.9 for t in other.times) <= 2
        assert sum(asked_at < t for t in server.times) > 10


def test_every_second_answer_is_a_fault(expected):
    def script(number, body):
        return Act(500, {"error": "fault"}) if number % 2 else Act(delay_s=0.01)

    with serving(script) as server:
        model = completions(server, 8, max_retries=30)
        assert texts_of(model, requests_of(6, 8))[0] == expected


def test_all_servers_down_is_one_error_that_names_them():
    stack, servers = two()
    with stack:
        model = completions(servers, 4, max_retries=2)
        for server in servers:
            server.down.set()
        with pytest.raises(TrialsFailedError, match="no server answers") as caught:
            list(model.sample(requests_of(20, 4)))
    for server in servers:
        assert f"{host(server)}: no connection" in str(caught.value)
    assert "were not requested any more" in str(caught.value)
    assert sum(len(server.requests) for server in servers) < 20


def test_different_models_are_refused_before_anything_is_sampled():
    pages = (vllm_pages(root="org/one"), vllm_pages(root="org/two"))
    stack, servers = two(pages=pages)
    with stack:
        model = completions(servers)
        match = r"must serve one model.*root 'org/one' and 'org/two'"
        with pytest.raises(ModelConfigError, match=match):
            model.fingerprint()
        with pytest.raises(ModelConfigError, match=match):
            model.prepare(requests_of(1, 1))
        assert [server.requests for server in servers] == [[], []]


@pytest.mark.parametrize(
    ("given", "addresses"),
    [
        ("http://a:1/v1/completions", ["a:1"]),
        ("http://a:1/v1/completions;http://b:2/v1/completions", ["a:1", "b:2"]),
        ("http://a:1/v1/completions; http://b:2/v1/completions;", ["a:1", "b:2"]),
        (["http://a:1/v1/completions", "https://b/v1/completions"], ["a:1", "b"]),
    ],
)
def test_base_url_takes_a_text_or_a_list(given, addresses):
    model = Completions(base_url=given, model="m", tokenizer_backend=None)
    assert [url.split("/")[2] for url in model._urls] == addresses
    endpoint = model._fingerprint()["endpoint"]
    assert endpoint == "; ".join(f"{address}/v1/completions" for address in addresses)


def test_the_harness_is_given_a_server_that_is_up(expected):
    """It asks that one for a tokenizer, and would choose another tokenizer if it were down."""
    with serving() as gone:
        closed = gone.url()
    with serving() as server:
        urls = [closed, server.url()]
        model = Completions(base_url=urls, model="hash", tokenizer_backend=None, num_concurrent=4)
        assert model.base_url == server.url()
        assert texts_of(model, requests_of(6, 8))[0] == expected


@pytest.mark.parametrize(
    ("given", "match"),
    [
        ("http://a:1/v1;http://a:1/v1", "name every server once; got a:1/v1 2 times"),
        ("http://a:1/v1;b:2/v1", "be the address of a server"),
        ("http://a:1/v1;http://me:hidden@b:2/v1", "no user name or password"),
        ("http://a:1/v1;;http://me:hidden@b:2/v1", r"; between them; part 2 of 3 is empty"),
        ("http://a:1/v1; ;http://b:2/v1", r"part 2 of 3 is empty"),
        (";http://a:1/v1", r"part 1 of 2 is empty"),
        ("http://a:1/v1;;", r"part 2 of 2 is empty"),
        (["http://a:1/v1", ""], r"part 2 of 2 is empty"),
        (["http://a:1/v1", 8000], r"part 2 of 2 is no address"),
    ],
)
def test_base_url_is_checked(given, match):
    with pytest.raises(ModelConfigError, match=match) as caught:
        Completions(base_url=given, model="m", tokenizer_backend=None)
    assert "hidden" not in str(caught.value)


def test_the_key_of_the_second_address_is_not_logged(caplog):
    def script(number, body):
        return error(500, "the address with sk-hidden-in-the-address broke me")

    stack, servers = two((script, script))
    with stack, caplog.at_level(logging.DEBUG):
        urls = [servers[0].url(), f"{servers[1].url()}?key=sk-hidden-in-the-address"]
        model = Completions(base_url=urls, model="m", tokenizer_backend=None, max_retries=1)
        with pytest.raises(TrialsFailedError, match=r"\*\*\* broke me") as caught:
            list(model.sample(requests_of(2, 1)))
    ours = [r.getMessage() for r in caplog.records if r.name.startswith("lm_eval.bayes")]
    assert "sk-hidden" not in " ".join([*ours, str(caught.value), json.dumps(model._fingerprint())])


@pytest.mark.parametrize("repeats", [True, False])
def test_a_server_that_repeats_itself_is_named(repeats, caplog):
    def same(answer):
        answer["choices"][0]["text"] = "it is 2"

    def other(number, body):
        return Act(edit=lambda a: a["choices"][0].update(text=f"it is {number}"))

    stack, servers = two((lambda n, b: Act(edit=same) if repeats else other(n, b), other))
    with stack:
        list(completions(servers, 4, seeds="ignored").sample(requests_of(2, 16)))
    named = f"{host(servers[0])} repeats itself and other servers do not" in caplog.text
    assert named == repeats
    assert f"{host(servers[1])} repeats" not in caplog.text
