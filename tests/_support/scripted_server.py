"""A loopback server that honours seeds, and misbehaves on request.

A script is a function of (number of the request, its JSON) that returns None for an ordinary
answer, or what else is to happen: an `Act`.
"""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from _support.completions import answer_request


@dataclass
class Act:
    """What the server does in place of answering, or with its answer."""

    status: int = 200
    content: Any = None  # JSON, or bytes; None for the ordinary answer
    headers: dict[str, str] = field(default_factory=dict)
    delay_s: float = 0.0
    drop: bool = False  # close the connection without a word
    cut: int | None = None  # end the answer there, as in a slice, and promise all
    edit: Callable[[dict[str, Any]], None] | None = None  # of the ordinary answer


Script = Callable[[int, dict[str, Any]], Act | None]


def error(status: int, message: str, **headers: str) -> Act:
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    return Act(status, {"error": {"message": message, "type": "x"}}, named)


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: Server

    def do_GET(self) -> None:
        if self.server.down.is_set():
            self.close_connection = True
            self.server.found_down()
            return
        page = self.server.pages.get(self.path)
        content = page if isinstance(page, bytes) else json.dumps(page or {}).encode()
        self.send(200 if page is not None else 404, content)

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        server = self.server
        with server.lock:
            number = len(server.requests)
            server.requests.append(server.logged(self.path, body))
            server.keys.append(self.headers.get("Authorization", ""))
            server.now += 1
            server.most = max(server.most, server.now)
        try:
            act = Act(drop=True)
            if not server.down.is_set():
                act = server.planned(number, self.path, body) or Act()
            if act.delay_s:
                server.leaving.wait(act.delay_s)
        finally:
            # before the answer is sent: behind it the next request may come first
            with server.lock:
                server.now -= 1
        if act.drop or server.down.is_set():
            self.close_connection = True
            return
        content = act.content
        if content is None:
            content = ordinary(body, self.path.endswith("/chat/completions"))
            if act.edit is not None:
                act.edit(content)
        raw = content if isinstance(content, bytes) else json.dumps(content).encode()
        try:
            self.send(act.status, raw, act.headers, act.cut)
        except (BrokenPipeError, ConnectionResetError):
            self.close_connection = True  # the client has gone

    def send(
        self, status: int, raw: bytes, headers: dict[str, str] | None = None, cut: int | None = None
    ) -> None:
        self.send_response(status)
        for name, value in {"Content-Type": "application/json", **(headers or {})}.items():
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(raw)))
        self.end_headers()
        self.wfile.write(raw if cut is None else raw[:cut])
        if cut is not None:
            self.close_connection = True

    def log_message(self, format: str, *args: Any) -> None:
        pass


def ordinary(body: dict[str, Any], chat: bool) -> dict[str, Any]:
    """Answer; a word is a token, and the n-th of a text has the probability 2**-n."""
    answer = answer_request(body, chat, 0.6)
    (choice,) = answer["choices"]
    text = choice["message"]["content"] if chat else choice["text"]
    words = [" " + word for word in text.split()]
    ended = choice["finish_reason"] == "stop"
    tokens = [*words, "<eos>"] if ended else words
    values = [-0.6931471805599453 * (1 + n) for n in range(len(tokens))]
    if chat and body.get("logprobs") is True:
        entries = [{"token": t, "logprob": v} for t, v in zip(tokens, values, strict=True)]
        choice["logprobs"] = {"content": entries}
    elif not chat and isinstance(body.get("logprobs"), int):
        if body.get("echo"):
            prompt = str(body["prompt"]).split()
            tokens = [*prompt, *tokens]
            values = [None, *[-0.6931471805599453 * 3] * (len(prompt) - 1), *values]
        choice["logprobs"] = {"tokens": tokens, "token_logprobs": values}
    choice["stop_reason"] = None
    prompts = body.get("prompt", "")
    prompt = prompts if isinstance(prompts, str) else str(prompts[0])
    if isinstance(prompts, list) and prompts and isinstance(prompts[0], list):
        count = len(prompts[0])
    else:
        count = len(prompt.split())
    answer["usage"] = {"prompt_tokens": count, "completion_tokens": len(words) + ended}
    return answer


class Server(ThreadingHTTPServer):
    daemon_threads = True
    block_on_close = False
    request_queue_size = 256

    def __init__(self, script: Script, pages: dict[str, Any]) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.script, self.pages = script, pages
        self.lock, self.leaving = threading.Lock(), threading.Event()
        self.down = threading.Event()  # as if killed: every connection is closed without a word
        self.found_down: Callable[[], None] = lambda: None  # called where a page was asked for then
        self.requests: list[Any] = []
        self.keys: list[str] = []
        self.now = self.most = 0

    def logged(self, path: str, body: dict[str, Any]) -> Any:
        """Return what `requests` notes of a request."""
        return body

    def planned(self, number: int, path: str, body: dict[str, Any]) -> Act | None:
        return self.script(number, body)

    def url(self, chat: bool = False) -> str:
        path = "chat/completions" if chat else "completions"
        return f"http://127.0.0.1:{self.server_address[1]}/v1/{path}"

    def handle_error(self, request: Any, client_address: Any) -> None:
        pass  # a client that hangs up is what some tests want


@contextmanager
def serving(script: Script | None = None, pages: dict[str, Any] | None = None) -> Iterator[Server]:
    with running(Server(script or (lambda number, body: None), pages or {})) as server:
        yield server


@contextmanager
def running(server: Server) -> Iterator[Server]:
    """Serve in a thread until the block ends."""
    thread = threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True)
    thread.start()
    try:
        yield server
    finally:
        server.leaving.set()
        server.shutdown()
        server.server_close()
        thread.join()


def vllm_pages(name: str = "hash", length: int = 4096, root: str = "org/hash") -> dict[str, Any]:
    """Return what vLLM says of itself."""
    card = {"id": name, "object": "model", "created": int(time.time()), "owned_by": "vllm"}
    card |= {"root": root, "parent": None, "max_model_len": length, "permission": [{"id": "p"}]}
    return {"/v1/models": {"object": "list", "data": [card]}, "/version": {"version": "0.32.0"}}
