"""A hub on loopback that knows one model, remembers what it was sent, and fails where told."""

from __future__ import annotations

import base64
import hashlib
import json
import threading
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import parse_qs, unquote, urlsplit

TOKEN = "hf_loopback"
MODEL = "org/model"


def sha1(text):
    """Return what identifies a file's content."""
    return hashlib.sha1(text.encode()).hexdigest()


class Hub:
    """What the hub has, what it answers, and what it was asked."""

    def __init__(self):
        self.requests = []
        self.failing = {}  # part of a path -> (status, body)
        self.open_pull_requests = []
        self.files = set()
        self.contents = {}  # revision -> path -> text
        self.commits = []

    def answer(self, method, url, headers, body):
        parts = urlsplit(url)
        self.requests.append((method, url))
        for path, (status, text) in self.failing.items():
            if path in parts.path:
                return status, text, {}
        if headers.get("authorization") != f"Bearer {TOKEN}":
            return 401, '{"error": "Invalid credentials in Authorization header"}', {}
        if parts.path == "/api/whoami-v2":
            return 200, json.dumps({"name": "someone", "type": "user", "orgs": []}), {}
        if parts.path == f"/api/models/{MODEL}/discussions":
            result = [
                {
                    "num": number,
                    "title": title,
                    "status": "open",
                    "isPullRequest": True,
                    "createdAt": "2026-01-31T10:00:00.000Z",
                    "author": {"name": "someone"},
                    "repo": {"name": MODEL, "type": "model"},
                }
                for number, title in enumerate(self.open_pull_requests, 7)
            ]
            body = {"discussions": result, "count": len(result), "start": 0}
            return 200, json.dumps(body), {}
        path = unquote(parts.path)
        for revision, texts in self.contents.items():
            if path == f"/api/models/{MODEL}/tree/{revision}/.eval_results":
                files = [
                    {"type": "file", "path": name, "size": len(text), "oid": sha1(text)}
                    for name, text in texts.items()
                ]
                return 200, json.dumps(files), {}
            name = path.removeprefix(f"/{MODEL}/resolve/{revision}/")
            if name in texts:
                text = texts[name]
                about = {"ETag": f'"{sha1(text)}"', "X-Repo-Commit": "0" * 40}
                return 200, text, about
        if path.startswith(f"/api/models/{MODEL}/tree/"):
            return 404, "", {"X-Error-Code": "EntryNotFound"}
        if parts.path.startswith(f"/{MODEL}/resolve/main/"):
            name = parts.path.removeprefix(f"/{MODEL}/resolve/main/").replace("%2F", "/")
            if name in self.files:
                about = {"ETag": '"1"', "X-Repo-Commit": "0" * 40, "X-Linked-Size": "1"}
                return 200, "", about
            return 404, "", {"X-Error-Code": "EntryNotFound"}
        if parts.path == f"/api/models/{MODEL}/preupload/main":
            files = [
                {"path": file["path"], "uploadMode": "regular", "shouldIgnore": False}
                for file in json.loads(body)["files"]
            ]
            return 200, json.dumps({"files": files}), {}
        if parts.path == f"/api/models/{MODEL}/commit/main":
            lines = [json.loads(line) for line in body.decode().splitlines()]
            self.commits.append((parse_qs(parts.query), lines))
            local = f"http://{headers['host']}/{MODEL}"
            about = {
                "commitUrl": f"{local}/commit/{'1' * 40}",
                "commitOid": "1" * 40,
                "pullRequestUrl": f"{local}/discussions/7",
            }
            return 200, json.dumps(about), {}
        return 404, '{"error": "Repository not found"}', {"X-Error-Code": "RepoNotFound"}

    def files_sent(self):
        """Return the files of the last commit, by path."""
        return {
            line["value"]["path"]: base64.b64decode(line["value"]["content"]).decode()
            for line in self.commits[-1][1]
            if line["key"] == "file"
        }


@contextmanager
def serving():
    """Serve a hub; give the hub and its address."""
    hub = Hub()

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def handle_any(self):
            body = self._body()
            headers = {name.lower(): value for name, value in self.headers.items()}
            status, text, more = hub.answer(self.command, self.path, headers, body)
            content = text.encode()
            self.send_response(status)
            for name, value in more.items():
                self.send_header(name, value)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(content)))
            self.end_headers()
            if self.command != "HEAD":
                self.wfile.write(content)

        do_GET = do_HEAD = do_POST = handle_any

        def _body(self):
            if self.headers.get("Transfer-Encoding", "").lower() != "chunked":
                return self.rfile.read(int(self.headers.get("Content-Length") or 0))
            body = b""
            while size := int(self.rfile.readline(), 16):
                body += self.rfile.read(size)
                self.rfile.readline()
            self.rfile.readline()
            return body

        def log_message(self, *args):
            """Say nothing."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    thread = threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True)
    thread.start()
    try:
        yield hub, f"http://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
