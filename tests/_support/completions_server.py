"""A small completions server on the loopback address that honours seeds.

    python tests/end_to_end/completions_server.py --record requests.jsonl

Speaks OpenAI's ``/v1/completions`` and ``/v1/chat/completions``. Its "model" is a hash: the text is
a function of (prompt, seed, temperature) alone, so one seed always gives one text and other seeds
give other texts; at temperature 0 the seed is ignored, as by a greedy decoder. A question such as
"What is 7 + 5?" at the end of the prompt is answered correctly with the chance ``--accuracy``.

Prints its port on the first line, writes every request's JSON to ``--record``, and stops by itself
when its standard input closes or after ``--seconds``. Standard library only; 127.0.0.1 only.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import random
import re
import sys
import threading
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
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


class Handler(BaseHTTPRequestHandler):
    """One request: record it, answer it; say what was wrong with a bad one."""

    protocol_version = "HTTP/1.1"
    server: Server

    def do_POST(self) -> None:
        raw = self.rfile.read(int(self.headers.get("Content-Length", 0)))
        chat = self.path.endswith("/chat/completions")
        if not chat and not self.path.endswith("/completions"):
            self.reply(404, {"error": {"message": f"no such path: {self.path}"}})
            return
        try:
            body = json.loads(raw)
            answer = answer_request(body, chat, self.server.accuracy)
        except (ValueError, TypeError, KeyError, AttributeError) as error:
            message = f"{type(error).__name__}: {error}"
            self.reply(400, {"error": {"message": message}})
            return
        self.server.record(self.path, body)
        self.reply(200, answer)

    def do_GET(self) -> None:
        # the harness looks here for a remote tokenizer
        self.reply(404, {"error": {"message": f"no such path: {self.path}"}})

    def reply(self, status: int, content: dict[str, Any]) -> None:
        payload = json.dumps(content).encode("utf-8")
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(payload)))
        self.end_headers()
        self.wfile.write(payload)

    def log_message(self, format: str, *args: Any) -> None:
        pass  # the record is the log


class Server(ThreadingHTTPServer):
    """The server with its accuracy and its record."""

    daemon_threads = True

    def __init__(self, accuracy: float, record: Path | None) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.accuracy = accuracy
        self._path = record
        self._lock = threading.Lock()
        if record is not None:
            record.write_text("", encoding="utf-8")

    def record(self, path: str, body: dict[str, Any]) -> None:
        if self._path is None:
            return
        with self._lock, self._path.open("a", encoding="utf-8") as file:
            file.write(json.dumps({"path": path, "body": body}) + "\n")


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--accuracy", type=float, default=0.6, help="chance of a right answer")
    parser.add_argument("--record", type=Path, help="file for the requests, one JSON a line")
    parser.add_argument("--seconds", type=float, default=300.0, help="stop after this long")
    args = parser.parse_args(argv)
    with Server(args.accuracy, args.record) as server:
        timer = threading.Timer(args.seconds, server.shutdown)
        timer.daemon = True
        timer.start()
        threading.Thread(target=stop_at_end_of_input, args=(server,), daemon=True).start()
        print(server.server_address[1], flush=True)
        server.serve_forever(poll_interval=0.1)
        timer.cancel()
    return 0


def stop_at_end_of_input(server: Server) -> None:
    sys.stdin.buffer.read()
    server.shutdown()


if __name__ == "__main__":
    raise SystemExit(main())
