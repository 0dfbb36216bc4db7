"""What is checked before the first request is sent, and what a server truncates."""

from __future__ import annotations

import logging

import pytest

pytest.importorskip("aiohttp")
openai_completions = pytest.importorskip("lm_eval.models.openai_completions")

from _support.openai_models import (
    KWARGS,
    Completions,
    chat,
    completions,
    edit_every,
    requests_of,
    tokenized,
)
from _support.scripted_server import serving, vllm_pages
from _support.trial_requests import trial_request

from lm_eval_bayes.errors import ModelConfigError, TaskConfigError
from lm_eval_bayes.harness.instances import new_instance
from lm_eval_bayes.harness.models.openai import retrying

pytestmark = pytest.mark.filterwarnings("default:.*:DeprecationWarning")


def test_room_for_prompt_and_completion():
    with serving() as server:
        model = tokenized(server)
        with pytest.raises(TaskConfigError, match=r"5 tokens and max_gen_toks is 4096.* 2047"):
            model.sample(requests_of(2, 1, max_gen_toks=4096))
        assert server.requests == []
        ((_, sampled),) = model.sample(requests_of(1, 1, max_gen_toks=2042))
        assert server.requests[0]["prompt"] == [[4, 2, 1, 1, 2]]
        assert server.requests[0]["stop"] == ["Question:", "</s>"]
        assert sampled.signals["prompt_truncated"] is False
        with pytest.raises(TaskConfigError, match="max_gen_toks is 2043"):
            model.sample(requests_of(1, 1, max_gen_toks=2043))
        # with the true length, or none of the client's business, it goes
        list(tokenized(server, max_length=9000).sample(requests_of(1, 1, max_gen_toks=4096)))
        list(completions(server).sample(requests_of(1, 1, max_gen_toks=4096)))


def test_the_servers_own_room():
    with serving(pages=vllm_pages(length=4096)) as server:
        list(tokenized(server).sample(requests_of(1, 1, max_gen_toks=4091)))
        with pytest.raises(TaskConfigError, match="is 4096 tokens"):
            tokenized(server).sample(requests_of(1, 1, max_gen_toks=4092))
        with pytest.raises(TaskConfigError, match="max_gen_toks is 5000"):
            completions(server).sample(requests_of(1, 1, max_gen_toks=5000))
        with pytest.raises(TaskConfigError, match="is 99 tokens"):
            tokenized(server, max_length=100).sample(requests_of(1, 1, max_gen_toks=95))


def test_a_server_that_cuts_prompts(caplog):
    def edit(answer):
        answer["usage"]["prompt_tokens"] = 2

    with serving(edit_every(edit)) as server:
        ((_, sampled),) = tokenized(server).sample(requests_of(1, 1))
    assert sampled.signals["prompt_truncated"] is True
    assert "than were sent (2 of 5)" in caplog.text


def test_a_server_with_a_limit_of_its_own(caplog):
    def edit(answer):
        answer["choices"][0]["finish_reason"] = "length"

    with serving(edit_every(edit)) as server:
        list(completions(server).sample(requests_of(1, 1)))
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
            completions(server).sample(requests_of(1, 1, **changes))
        assert server.requests == []


def sample_from(url):
    Completions(model="m", base_url=url, tokenizer_backend=None).sample(requests_of(1, 1))


def test_arguments_that_cannot_be():
    with serving() as server:
        with pytest.raises(ModelConfigError, match=r"`batch_size` must be 1.*got 8"):
            completions(server, batch_size=8).sample(requests_of(1, 1))
        with pytest.raises(TaskConfigError, match="needs --apply_chat_template"):
            chat(server).sample(requests_of(1, 1))
        with pytest.raises(TaskConfigError, match="cannot send a chat's messages"):
            completions(server).sample(requests_of(1, 1, chat(server)))
        with pytest.raises(TaskConfigError, match=r"`timeout` must be a number.*got 0"):
            completions(server, timeout=0).sample(requests_of(1, 1))
        for url, why in (
            (None, "address of a server.*got None"),
            ("ftp://here/v1", "address of a server.*got something else"),
            ("http://me:password@here/v1/completions", "no user name or password"),
            ("http://a:1/v1;http://me:password@b:2/v1", "name one server.*got 'several'"),
            ("http://a:1/v1 http://b:2/v1", "name one server"),
            ("http://a:1/v1,http://b:2/v1", "name one server"),
            (["http://a:1/v1", "http://b:2/v1"], "name one server"),
        ):
            with pytest.raises(ModelConfigError, match=why) as caught:
                sample_from(url)
            assert "me:password" not in str(caught.value)


def test_images_are_refused():
    request = new_instance({}, ("What is this?", {}, {"visual": []}))
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
            assert len(list(model.sample(requests_of(2, 1)))) == 2
        assert server.most == 1
    assert caplog.text.count("num_concurrent is 1") == 1


def test_time_for_long_answers(caplog, monkeypatch):
    endpoints = []
    original = retrying.RetryingClient.__init__

    def spy(self, endpoint, session, **settings):
        endpoints.append(endpoint)
        original(self, endpoint, session, **settings)

    monkeypatch.setattr(retrying.RetryingClient, "__init__", spy)
    with caplog.at_level(logging.INFO), serving() as server:
        list(completions(server).sample(requests_of(1, 1, max_gen_toks=32768)))
        assert "allowed 6854 s" in caplog.text
        list(completions(server, timeout=300).sample(requests_of(1, 1, max_gen_toks=32768)))
    assert [endpoint.timeout_s for endpoint in endpoints] == [pytest.approx(6853.6), 300]
    assert "more than 109 tokens per second" in caplog.text
