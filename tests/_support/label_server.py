"""A loopback server that scores labels as vLLM and OpenAI do, and misbehaves on request."""

from __future__ import annotations

import math
from contextlib import contextmanager

from _support import scripted_server
from _support.fake_judge import opinion
from _support.scripted_server import Act, error, running

__all__ = ["Act", "error", "serving"]


def likeliest(prompt, top, lead):
    """The likeliest tokens and their log-probabilities, the labels among others."""
    response = opinion(prompt) or (0.3, 0.3, 0.3)
    tokens = {lead + label: 0.9 * p for label, p in zip("ABC", response, strict=True)}
    tokens |= {f"w{i}": 0.1 * 0.5**i for i in range(1, 30)}
    result = sorted(tokens.items(), key=lambda entry: -entry[1])[:top]
    return {token: math.log(p) for token, p in result}


class Server(scripted_server.Server):
    def logged(self, path, body):
        return path, body

    def planned(self, number, path, body):
        return self.script(number, path, body) or self.answer(path, body)

    def answer(self, path, body):
        chat = "messages" in body
        prompt = body["messages"][0]["content"] if chat else body["prompt"]
        if path == "/v1/chat/completions":
            result = likeliest(prompt, body["top_logprobs"], "")
            entries = [{"token": t, "logprob": v, "bytes": []} for t, v in result.items()]
            logprobs = {"content": [{**entries[0], "top_logprobs": entries}]}
        elif path == "/v1/completions":
            logprobs = {"top_logprobs": [likeliest(prompt, body["logprobs"], " ")]}
        else:
            return Act(404, {"error": "no such path"})
        return Act(200, {"choices": [{"logprobs": logprobs, "finish_reason": "length"}]})

    def url(self, path=""):
        return f"http://127.0.0.1:{self.server_address[1]}/v1{path}"

    def prompts(self, path="/v1/chat/completions"):
        return [
            body["messages"][0]["content"] if "messages" in body else body["prompt"]
            for requested, body in self.requests
            if requested == path
        ]


@contextmanager
def serving(script=None, window=None, models=("judge",)):
    cards = [{"id": m, "root": f"org/{m}", "max_model_len": window} for m in models]
    pages = {"/v1/models": {"data": cards}}
    with running(Server(script or (lambda *_: None), pages if models else {})) as server:
        yield server
