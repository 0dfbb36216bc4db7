"""API backends against a loopback server that honours seeds: N trials must be N trials."""

from __future__ import annotations

import importlib.util
import json
from collections import defaultdict
from collections.abc import Iterator
from itertools import chain
from typing import Any

import pytest
from _support.scripted_server import serving

TASK = "demo_arithmetic_bayes"
QUESTIONS, TRIALS = 8, 4

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(
        any(importlib.util.find_spec(name) is None for name in ("aiohttp", "tenacity", "tiktoken")),
        reason="the harness's API models need lm-eval[api]",
    ),
]


def ask(
    run_harness: Any, server: Any, *, concurrent: int, chat: bool = False, seed: int = 1234
) -> Any:
    model_args = (
        f"model=hash,base_url={server.url(chat)},tokenizer_backend=None,max_retries=1,"
        f"num_concurrent={concurrent},seed={seed}"
    )
    return run_harness(
        *("--model", "local-chat-completions" if chat else "local-completions"),
        *("--model_args", model_args, "--tasks", TASK, "--limit", str(QUESTIONS)),
        *("--metadata", json.dumps({"bayes_n": TRIALS})),
        *(["--apply_chat_template"] if chat else []),
    )


def seeds_by_prompt(requests: list[dict[str, Any]]) -> dict[str, list[int]]:
    found = defaultdict(list)
    for body in requests:
        found[json.dumps(body.get("prompt", body.get("messages")))].append(body["seed"])
    return dict(found)


def responses(run: Any) -> list[list[str]]:
    return [sample["resps"][0] for sample in run.samples(TASK)]


@pytest.fixture
def completions_server() -> Iterator[Any]:
    with serving() as server:
        yield server


@pytest.fixture(scope="module")
def one_by_one(run_harness: Any) -> Any:
    """Return a run with one request at a time, and what the server was asked."""
    with serving() as server:
        return ask(run_harness, server, concurrent=1), server.requests


def test_every_trial_has_its_own_seed(one_by_one: Any) -> None:
    _, requests = one_by_one
    assert len(requests) == QUESTIONS * TRIALS
    asked = seeds_by_prompt(requests)
    assert len(asked) == QUESTIONS
    assert {len(seeds) for seeds in asked.values()} == {TRIALS}
    # over all questions: one seed for a whole trial would tie the questions together
    assert len({body["seed"] for body in requests}) == QUESTIONS * TRIALS


def test_the_trials_of_a_question_differ(one_by_one: Any) -> None:
    run, _ = one_by_one
    assert [len(set(texts)) for texts in responses(run)] == [TRIALS] * QUESTIONS
    run.check()
    assert 0 < run.rows(TASK)[f"avg@{TRIALS}"] < 1


def test_sampling_settings_are_sent(one_by_one: Any) -> None:
    run, requests = one_by_one
    asked = run.samples(TASK)[0]["arguments"]["gen_args_0"]["arg_1"]
    assert {body["max_tokens"] for body in requests} == {asked["max_gen_toks"]}
    assert {body["temperature"] for body in requests} == {0.6}
    assert {body["top_p"] for body in requests} == {0.95}
    assert not any(body["stop"] for body in requests)


def test_concurrent_requests_give_the_same_trials(
    one_by_one: Any, run_harness: Any, completions_server: Any
) -> None:
    run = ask(run_harness, completions_server, concurrent=4)
    before, requests = one_by_one
    now = seeds_by_prompt(completions_server.requests)
    # four requests race for the server's record, so their order there is free
    assert {p: sorted(s) for p, s in now.items()} == {
        p: sorted(s) for p, s in seeds_by_prompt(requests).items()
    }
    assert responses(run) == responses(before)
    assert run.rows(TASK) == before.rows(TASK)
    run.check()


def test_another_seed_gives_other_trials(
    one_by_one: Any, run_harness: Any, completions_server: Any
) -> None:
    run = ask(run_harness, completions_server, concurrent=4, seed=99)
    before, requests = one_by_one
    # seed + trial is hashed with the prompt, so far-apart seeds share nothing
    assert not {b["seed"] for b in completions_server.requests} & {b["seed"] for b in requests}
    assert not set(chain(*responses(run))) & set(chain(*responses(before)))


def test_chat_completions(run_harness: Any, completions_server: Any) -> None:
    run = ask(run_harness, completions_server, concurrent=4, chat=True)
    requests = completions_server.requests
    assert all(body["messages"][-1]["role"] == "user" for body in requests)
    assert len({body["seed"] for body in requests}) == QUESTIONS * TRIALS
    assert [len(set(texts)) for texts in responses(run)] == [TRIALS] * QUESTIONS
    run.check()
