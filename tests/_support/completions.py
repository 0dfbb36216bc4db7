"""The answers of a small completions server that honours seeds.

Answers OpenAI's ``/v1/completions`` and ``/v1/chat/completions``. Its "model" is a hash: the text
is a function of (prompt, seed, temperature) alone, so one seed always gives one text and other
seeds give other texts; at temperature 0 the seed is ignored, as by a greedy decoder. A question
such as "What is 7 + 5?" at the end of the prompt is answered correctly with a given chance.
"""

from __future__ import annotations

import hashlib
import json
import random
import re
from collections.abc import Callable
from typing import Any

OPENINGS = ("Let me think step by step.", "First, write the problem down.", "We compute.")
FILLERS = ("Adding the parts,", "Then,", "Checking once more,", "So,", "In the end,", "Next,")
SUM = re.compile(r"(\d+)\s*(\+|-|times|divided by)\s*(\d+)\s*\?")
OPERATIONS: dict[str, Callable[[int, int], int]] = {
    "+": lambda a, b: a + b,
    "-": lambda a, b: a - b,
    "times": lambda a, b: a * b,
    "divided by": lambda a, b: a // max(b, 1),
}


def write_answer(prompt: str, seed: int, temperature: float, accuracy: float) -> str:
    """Compose the whole text that the "model" gives: a pure function of its arguments.

    >>> write_answer("What is 7 + 5?", 1, 0.6, 1.0).endswith(r"$\\boxed{12}$.")
    True
    >>> write_answer("Hello", 1, 0.6, 0.5) == write_answer("Hello", 2, 0.6, 0.5)
    False
    >>> write_answer("Hello", 1, 0.0, 0.5) == write_answer("Hello", 2, 0.0, 0.5)
    True
    """
    seed = seed if temperature > 0 else 0
    key = json.dumps([prompt, seed, temperature]).encode("utf-8")
    rng = random.Random(hashlib.sha256(key).digest())
    result = SUM.findall(prompt)
    # what this model would answer where it understands nothing depends on the prompt only
    usual = int.from_bytes(hashlib.sha256(prompt.encode("utf-8")).digest()[:2], "big") % 1000
    if result:
        left, sign, right = result[-1]
        usual = OPERATIONS[sign](int(left), int(right))
    answer = usual if rng.random() < accuracy else usual + rng.choice((-10, -1, 1, 2, 10))
    steps = " ".join(f"{rng.choice(FILLERS)} I get {rng.randrange(100)}." for _ in range(2))
    # the mark makes two texts with other seeds differ in every case
    mark = f"(attempt {rng.getrandbits(48):012x})"
    return f" {rng.choice(OPENINGS)} {mark} {steps} The answer is $\\boxed{{{answer}}}$."


def cut(text: str, max_tokens: int, stop: list[str]) -> tuple[str, str, int]:
    """Return the text up to the limits, why it ended, and its length; a word is a token."""
    reason = "stop"
    ends = [text.index(s) for s in stop if s and s in text]
    if ends:
        text = text[: min(ends)]
    words = re.findall(r"\s*\S+", text)
    if len(words) > max_tokens:
        text, reason = "".join(words[:max_tokens]), "length"
    return text, reason, min(len(words), max_tokens)


def prompts_of(body: dict[str, Any], chat: bool) -> list[str]:
    """Read the prompt in any of the forms that the API allows, as one text for each completion."""
    if chat:
        return [json.dumps(body["messages"], sort_keys=True)]
    prompt = body["prompt"]
    if isinstance(prompt, str):
        return [prompt]
    if all(isinstance(part, int) for part in prompt):
        return [" ".join(map(str, prompt))]
    return [p if isinstance(p, str) else " ".join(map(str, p)) for p in prompt]


def answer_request(body: dict[str, Any], chat: bool, accuracy: float) -> dict[str, Any]:
    """Build the response to one request."""
    stop = body.get("stop") or []
    stop = [stop] if isinstance(stop, str) else list(stop)
    temperature = float(body.get("temperature", 1.0))
    seed = body.get("seed")
    if seed is None:  # a real server draws afresh
        seed = random.SystemRandom().getrandbits(31)
    limit = int(body.get("max_tokens") or body.get("max_completion_tokens") or 16)
    choices: list[dict[str, Any]] = []
    spent = 0
    for prompt in prompts_of(body, chat):
        for extra in range(int(body.get("n") or 1)):
            text = write_answer(prompt, int(seed) + extra, temperature, accuracy)
            text, reason, used = cut(text, limit, stop)
            spent += used
            content = (
                {"message": {"role": "assistant", "content": text}} if chat else {"text": text}
            )
            choices.append({"index": len(choices), "finish_reason": reason, **content})
    return {
        "id": "cmpl-loopback",
        "object": "chat.completion" if chat else "text_completion",
        "model": body.get("model", "hash"),
        "choices": choices,
        "usage": {"completion_tokens": spent},
    }
