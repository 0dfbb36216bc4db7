"""What is checked before the first request is sent, and what a server truncates."""

from __future__ import annotations

import pytest
from _support.errors import refused
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
from lm_eval_bayes.harness.evaluation import new_instance

pytestmark = pytest.mark.filterwarnings("default:.*:DeprecationWarning")


def test_room_for_prompt_and_completion():
    with serving() as server:
        model = tokenized(server)
        with refused("max_gen_toks", "range", 4096, error=TaskConfigError):
            model.sample(requests_of(2, 1, max_gen_toks=4096))
        assert server.requests == []
        ((_, sampled),) = model.sample(requests_of(1, 1, max_gen_toks=2042))
        assert server.requests[0]["prompt"] == [[4, 2, 1, 1, 2]]
        assert server.requests[0]["stop"] == ["Question:", "</s>"]
        assert sampled.signals["prompt_truncated"] is False
        with refused("max_gen_toks", "range", 2043, error=TaskConfigError):
            model.sample(requests_of(1, 1, max_gen_toks=2043))
        # with the true length, or none of the client's business, it goes
        list(tokenized(server, max_length=9000).sample(requests_of(1, 1, max_gen_toks=4096)))
        list(completions(server).sample(requests_of(1, 1, max_gen_toks=4096)))


def test_the_servers_own_room():
    with serving(pages=vllm_pages(length=4096)) as server:
        list(tokenized(server).sample(requests_of(1, 1, max_gen_toks=4091)))
        with refused("max_gen_toks", "range", 4092, error=TaskConfigError):
            tokenized(server).sample(requests_of(1, 1, max_gen_toks=4092))
        with refused("max_gen_toks", "range", 5000, error=TaskConfigError):
            completions(server).sample(requests_of(1, 1, max_gen_toks=5000))


def test_a_server_that_cuts_prompts(caplog):
    def edit(answer):
        answer["usage"]["prompt_tokens"] = 2

    with serving(edit_every(edit)) as server:
        ((_, sampled),) = tokenized(server).sample(requests_of(1, 1))
    assert sampled.signals["prompt_truncated"] is True
    assert "it read 2 of 5" in caplog.text


def test_a_server_with_a_limit_of_its_own(caplog):
    def edit(answer):
        answer["choices"][0]["finish_reason"] = "length"

    with serving(edit_every(edit)) as server:
        list(completions(server).sample(requests_of(1, 1)))
    assert "of max_gen_toks=64" in caplog.text


def test_arguments_that_cannot_be():
    with serving() as server:
        with refused("n", "conflict", 4, error=TaskConfigError):
            completions(server).sample(requests_of(1, 1, n=4))
        with refused("batch_size", "conflict", 8, error=ModelConfigError):
            completions(server, batch_size=8).sample(requests_of(1, 1))
        with refused("seeds", "choice", 7, error=ModelConfigError):
            completions(server, seeds=7)
        with refused("timeout", "range", 0):
            completions(server, timeout=0).sample(requests_of(1, 1))


@pytest.mark.parametrize(
    ("url", "rule"),
    [
        ("http://me:password@here/v1/completions", "secret"),
        ("http://a:1/v1;http://me:password@b:2/v1", "format"),
        (["http://a:1/v1", "http://b:2/v1"], "format"),
    ],
)
def test_addresses_that_are_none_of_one_server(url, rule):
    with refused("base_url", rule, error=ModelConfigError) as caught:
        Completions(model="m", base_url=url, tokenizer_backend=None).sample(requests_of(1, 1))
    assert "me:password" not in str(caught.value)


def test_prompts_that_cannot_be():
    pictured = new_instance({}, ("What is this?", {}, {"visual": []}))
    with serving() as server:
        with refused("prompt", "type", "What is 0 + 2?", error=TaskConfigError):
            chat(server).sample(requests_of(1, 1))
        with refused("prompt", "type", error=TaskConfigError):
            completions(server).sample(requests_of(1, 1, chat(server)))
        with refused("prompt", "unsupported", error=TaskConfigError):
            completions(server).sample([trial_request(0, "?", "?", 0, 1, KWARGS, pictured)])
        with refused("prompt", "empty", "", error=TaskConfigError):
            completions(server).sample([trial_request(0, "", "", 0, 1, KWARGS)])
        assert list(completions(server).sample([])) == []
