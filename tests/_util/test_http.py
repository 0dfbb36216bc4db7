"""The HTTP client: what it bounds, what it waits for, and what it sends to whom."""

from __future__ import annotations

import gzip
import logging
import time

import pytest
from _support.scripted_server import Act, error, serving

from lm_eval_bayes._util import http
from lm_eval_bayes._util.http import Client, RequestFailed

pytest.importorskip("aiohttp")


@pytest.fixture(autouse=True)
def short_pauses(monkeypatch):
    monkeypatch.setattr(http, "FIRST_PAUSE_S", 0.01)
    monkeypatch.setattr(http, "LONGEST_PAUSE_S", 0.05)


def asked(server, n=1, concurrency=1, **settings):
    """Send requests; return the texts of the answers."""
    client = Client(server.url(), {"Authorization": "Bearer sk-secret-key"}, **settings)

    async def ask(number):
        answer = await client.ask(lambda: {"prompt": "?", "max_tokens": 4}, lambda body: body)
        return answer.value["choices"][0]["text"]

    return list(client.results(range(n), ask, concurrency))


@pytest.mark.parametrize("compressed", [False, True], ids=["plain", "gzip"])
def test_a_body_is_bounded_also_decompressed(monkeypatch, compressed):
    monkeypatch.setattr(http, "ALWAYS_BYTES", 2**20)
    raw = b'{"choices": [{"text": "' + b"a" * 2**21 + b'"}]}'
    headers = {"Content-Encoding": "gzip"} if compressed else {}
    act = Act(200, gzip.compress(raw) if compressed else raw, headers)
    with serving(lambda number, body: act) as server:
        with pytest.raises(RequestFailed) as caught:
            asked(server, attempts=1)
        assert "1,048,576 bytes" in str(caught.value)
        monkeypatch.setattr(http, "ALWAYS_BYTES", 2**22)
        assert asked(server) == ["a" * 2**21]


def test_an_eternal_429_ends_and_its_retry_after_is_shown(monkeypatch, caplog):
    monkeypatch.setattr(http, "_WARNED_S", 0.1)
    busy = error(429, "slow down", Retry_After="0.1")
    began = time.monotonic()
    with serving(lambda number, body: busy) as server, pytest.raises(RequestFailed) as caught:
        asked(server, n=20, concurrency=4, attempts=5)
    # five pauses, of which four were waited for; at most four requests before each
    assert time.monotonic() - began >= 4 * 0.1
    assert len(server.requests) <= 4 * 5
    assert "Retry-After: 0.1 s" in str(caught.value)
    warned = [r for r in caplog.records if r.levelno == logging.WARNING]
    assert warned
    assert all("Retry-After: 0.1 s" in record.getMessage() for record in warned)


def test_a_request_without_an_answer_in_time_is_sent_again():
    def script(number, body):
        if number == 0:
            server.leaving.wait(60)

    with serving(script) as server:
        (text,) = asked(server, timeout_s=1.0, attempts=20)
    assert text
    assert len(server.requests) >= 2


def test_the_longest_pause_that_a_server_may_ask_for_is_ten_minutes():
    assert http._pause_s(1, 86_400.0) == 600.0
    assert http._pause_s(1, 7.0) == 7.0


def test_a_redirect_is_refused_and_the_key_goes_nowhere():
    with serving() as other:
        act = Act(307, {}, {"Location": other.url()})
        with serving(lambda number, body: act) as server, pytest.raises(RequestFailed) as caught:
            asked(server)
    assert (caught.value.status, caught.value.fatal) == (307, True)
    assert other.requests == []


def test_the_text_of_a_server_is_no_command_to_a_runner_of_jobs():
    hostile = "::error::x ##[add-mask]y ##vso[task.x]z \x1b[31mred \u202e"
    act = error(400, hostile)
    with serving(lambda number, body: act) as server, pytest.raises(RequestFailed) as caught:
        asked(server)
    shown = str(caught.value)
    assert "add-mask" in shown
    for command in ("##[", "##vso[", "\x1b", "\u202e"):
        assert command not in shown
    assert not shown.lstrip().startswith("::")


def test_a_proxy_is_not_asked_for_this_computer(monkeypatch):
    for name in ("http_proxy", "HTTP_PROXY", "all_proxy"):
        monkeypatch.setenv(name, "http://127.0.0.1:9")
    for name in ("no_proxy", "NO_PROXY"):
        monkeypatch.delenv(name, raising=False)
    with serving() as server:
        assert len(asked(server)) == 1
    assert http._proxy("http://example.org/v1") == "http://127.0.0.1:9"
    monkeypatch.setenv("no_proxy", "example.org")
    assert http._proxy("http://example.org/v1") is None
