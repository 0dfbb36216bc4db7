"""API backends against a loopback server that honours seeds: N trials must be N trials."""

from __future__ import annotations

import importlib.util
import json
from collections import defaultdict
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


def ask(run_harness: Any, server: Any, *, concurrent: int, chat: bool = False) -> Any:
    model_args = (
        f"model=hash,base_url={server.url(chat)},tokenizer_backend=None,max_retries=1,"
        f"num_concurrent={concurrent}"
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


def test_concurrent_requests_give_the_same_trials(run_harness: Any) -> None:
    with serving() as server:
        before, requests = ask(run_harness, server, concurrent=1), server.requests
    with serving() as server:
        run, now = ask(run_harness, server, concurrent=4), seeds_by_prompt(server.requests)
    asked = seeds_by_prompt(requests)
    assert {len(seeds) for seeds in asked.values()} == {TRIALS}
    # over all questions: one seed for a whole trial would tie the questions together
    assert len({body["seed"] for body in requests}) == QUESTIONS * TRIALS
    # four requests race for the server's record, so their order there is free
    assert {p: sorted(s) for p, s in now.items()} == {p: sorted(s) for p, s in asked.items()}
    assert responses(run) == responses(before)
    assert [len(set(texts)) for texts in responses(run)] == [TRIALS] * QUESTIONS
    assert run.rows(TASK) == before.rows(TASK)
    run.check()


def test_chat_completions(run_harness: Any) -> None:
    with serving() as server:
        run, requests = ask(run_harness, server, concurrent=4, chat=True), server.requests
    assert all(body["messages"][-1]["role"] == "user" for body in requests)
    assert len({body["seed"] for body in requests}) == QUESTIONS * TRIALS
    assert [len(set(texts)) for texts in responses(run)] == [TRIALS] * QUESTIONS
    run.check()
