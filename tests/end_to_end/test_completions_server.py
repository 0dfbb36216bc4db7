"""The loopback server must behave like a server that honours seeds, or it proves nothing."""

from __future__ import annotations

import json
import urllib.error
import urllib.request
from pathlib import Path
from typing import Any

import pytest

OPENER = urllib.request.build_opener(urllib.request.ProxyHandler({}))


def post(server: Any, path: str, **body: Any) -> dict[str, Any]:
    request = urllib.request.Request(server.url(path), json.dumps(body).encode("utf-8"))
    with OPENER.open(request, timeout=10) as answer:
        return json.load(answer)


def text(server: Any, prompt: Any, seed: int, temperature: float = 0.6, **more: Any) -> str:
    body = {"prompt": prompt, "seed": seed, "temperature": temperature, "max_tokens": 99, **more}
    return post(server, "completions", **body)["choices"][0]["text"]


def test_text_follows_the_seed(completions_server: Any) -> None:
    first = [text(completions_server, "What is 7 + 5?", seed) for seed in range(20)]
    again = [text(completions_server, "What is 7 + 5?", seed) for seed in range(20)]
    assert first == again
    assert len(set(first)) == 20
    right = sum("\\boxed{12}" in t for t in first)
    assert 4 < right < 18  # of 20 at accuracy .6


def test_temperature_zero_ignores_the_seed(completions_server: Any) -> None:
    assert text(completions_server, "Hi", 1, 0.0) == text(completions_server, "Hi", 2, 0.0)
    assert text(completions_server, "Hi", 1, 0.5) != text(completions_server, "Hi", 1, 0.6)


@pytest.mark.parametrize(
    ("prompt", "choices"), [("a", 1), (["a", "b"], 2), ([1, 2, 3], 1), ([[1, 2], [3]], 2)]
)
def test_every_form_of_a_prompt(completions_server: Any, prompt: Any, choices: int) -> None:
    answer = post(completions_server, "completions", prompt=prompt, seed=1, max_tokens=99)
    assert [choice["index"] for choice in answer["choices"]] == list(range(choices))
    assert len({choice["text"] for choice in answer["choices"]}) == choices


def test_limits(completions_server: Any) -> None:
    whole = text(completions_server, "Hi", 1)
    assert text(completions_server, "Hi", 1, max_tokens=3) == " ".join(whole.split(" ")[:4])
    assert text(completions_server, "Hi", 1, stop=["The answer"]) + "The answer" in whole


def test_chat_and_record(completions_server: Any) -> None:
    messages = [{"role": "user", "content": "What is 9 - 4?"}]
    answer = post(completions_server, "chat/completions", messages=messages, seed=3, max_tokens=99)
    assert "\\boxed{" in answer["choices"][0]["message"]["content"]
    assert [(b["messages"], b["seed"]) for b in completions_server.requests()] == [(messages, 3)]


def test_a_bad_request_is_refused(completions_server: Any) -> None:
    with pytest.raises(urllib.error.HTTPError, match="400") as refused:
        post(completions_server, "completions", seed=1)
    assert "prompt" in refused.value.read().decode("utf-8")
    assert completions_server.requests() == []


def test_it_stops_when_its_input_ends(tmp_path: Path, start_server: Any) -> None:
    with start_server(tmp_path / "requests.jsonl") as server:
        text(server, "Hi", 1)
    with pytest.raises(urllib.error.URLError, match="refused"):
        text(server, "Hi", 1)
