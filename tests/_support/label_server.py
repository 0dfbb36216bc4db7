"""A loopback server that scores labels as vLLM and OpenAI do, and misbehaves on request."""

from __future__ import annotations

import json
import math
import threading
import time
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from _support.fake_judge import opinion


@dataclass
class Act:
    """What the server does in place of answering."""

    status: int = 200
    content: Any = None  # JSON, or bytes
    headers: dict[str, str] = field(default_factory=dict)
    delay_s: float = 0.0
    drop: bool = False
    short: int = 0  # so many bytes less than promised


def complaint(status, message, **headers):
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    return Act(status, {"error": {"message": message}}, named)


def likeliest(prompt, top, lead):
    """The likeliest tokens and their log-probabilities, the labels among others."""
    response = opinion(prompt) or (0.3, 0.3, 0.3)
    tokens = {lead + label: 0.9 * p for label, p in zip("ABC", response, strict=True)}
    tokens |= {f"w{i}": 0.1 * 0.5**i for i in range(1, 30)}
    result = sorted(tokens.items(), key=lambda entry: -entry[1])[:top]
    return {token: math.log(p) for token, p in result}


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_GET(self):
        page = self.server.pages.get(self.path)
        self.send(Act(200 if page is not None else 404, page or {}))

    def do_POST(self):
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        server = self.server
        with server.lock:
            number = len(server.requests)
            server.requests.append((self.path, body))
            server.keys.append(self.headers.get("Authorization"))
            server.now += 1
            server.most = max(server.most, server.now)
        try:
            act = server.script(number, self.path, body) or self.answer(body)
            if act.delay_s:
                server.leaving.wait(act.delay_s)
        finally:
            # before the answer is sent: behind it the next request may come first
            with server.lock:
                server.now -= 1
        try:
            self.send(act)
        except (BrokenPipeError, ConnectionResetError):
            self.close_connection = True

    def answer(self, body):
        server, chat = self.server, "messages" in body
        prompt = body["messages"][0]["content"] if chat else body["prompt"]
        if self.path == "/tokenize":
            if server.window is None:
                return Act(404, {})
            return Act(200, {"count": len(prompt.split()), "max_model_len": server.window})
        if self.path == "/v1/chat/completions":
            result = likeliest(prompt, body["top_logprobs"], "")
            entries = [{"token": t, "logprob": v, "bytes": []} for t, v in result.items()]
            logprobs = {"content": [{**entries[0], "top_logprobs": entries}]}
        elif self.path == "/v1/completions":
            logprobs = {"top_logprobs": [likeliest(prompt, body["logprobs"], " ")]}
        else:
            return Act(404, {"error": "no such path"})
        return Act(200, {"choices": [{"logprobs": logprobs, "finish_reason": "length"}]})

    def send(self, act):
        if act.drop:
            self.close_connection = True
            return
        raw = act.content
        raw = raw if isinstance(raw, bytes) else json.dumps(raw).encode()
        self.send_response(act.status)
        for name, value in act.headers.items():
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(raw)))
        self.end_headers()
        self.wfile.write(raw[: len(raw) - act.short])
        if act.short:
            self.close_connection = True

    def log_message(self, *args):
        pass


class Server(ThreadingHTTPServer):
    daemon_threads = True
    block_on_close = False
    request_queue_size = 64

    def __init__(self, script, pages, window):
        super().__init__(("127.0.0.1", 0), Handler)
        self.script, self.pages, self.window = script, pages, window
        self.requests, self.keys, self.now, self.most = [], [], 0, 0
        self.lock, self.leaving = threading.Lock(), threading.Event()

    def url(self, path=""):
        return f"http://127.0.0.1:{self.server_address[1]}/v1{path}"

    def prompts(self, path="/v1/chat/completions"):
        return [
            body["messages"][0]["content"] if "messages" in body else body["prompt"]
            for requested, body in self.requests
            if requested == path
        ]

    def handle_error(self, request, client_address):
        pass  # a client that hangs up is what some tests want


@contextmanager
def serving(script=None, window=None, models=("judge",)):
    pages = {"/v1/models": {"data": [{"id": m, "root": f"org/{m}"} for m in models]}}
    server = Server(script or (lambda *_: None), pages if models else {}, window)
    thread = threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True)
    thread.start()
    try:
        yield server
    finally:
        server.leaving.set()
        server.shutdown()
        server.server_close()
        thread.join()


def wait_until(condition, seconds=5.0):
    end = time.monotonic() + seconds
    while not condition() and time.monotonic() < end:
        time.sleep(0.01)
    return condition()
