"""Make the traces of verifiers in this folder: in an environment with verifiers 0.4.0, run this.

A server on this machine answers instead of a model, by the question and how often it was asked. The
taskset is sums.py beside; its rewards are 0.75 for the answer and 0.25 for one beside it.
"""

import json
import os
import re
import subprocess
import tempfile
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

HERE = Path(__file__).parent
#: By model and question, the answers of four rollouts; "fail" is an error of the server.
ANSWERS = {
    "org/weak": ["2 2 3 2", "5 4 5 5", "6 6 fail 7", "8 8 8 8"],
    "org/strong": ["2 2 2 2", "4 4 5 4", "6 6 6 6", "9 8 8 8"],
}
asked: dict[tuple[str, str], int] = {}


class Server(BaseHTTPRequestHandler):
    def do_POST(self):
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        model, text = body["model"], body["messages"][-1]["content"]
        number = int(re.search(r"(\d) \+", str(text))[1]) - 1
        turn = asked.get((model, str(text)), 0)
        answer = ANSWERS[model][number].split()[turn]
        asked[model, str(text)] = turn + 1
        if answer == "fail":
            self.answer(400, "application/json", json.dumps({"error": {"message": "refused"}}))
            return
        base = {"id": "c", "object": "chat.completion.chunk", "created": 0, "model": model}
        message = {"role": "assistant", "content": answer}
        usage = {"prompt_tokens": 5, "completion_tokens": 1, "total_tokens": 6}
        chunks = [
            {**base, "choices": [{"index": 0, "delta": message, "finish_reason": None}]},
            {**base, "choices": [{"index": 0, "delta": {}, "finish_reason": "stop"}]},
            {**base, "choices": [], "usage": usage},
        ]
        events = [f"data: {json.dumps(chunk)}\n\n" for chunk in chunks]
        self.answer(200, "text/event-stream", "".join([*events, "data: [DONE]\n\n"]))

    def answer(self, status, kind, text):
        self.send_response(status)
        self.send_header("Content-Type", kind)
        self.end_headers()
        self.wfile.write(text.encode())

    def log_message(self, *args):
        pass


def strip(line):
    """Leave out tokens, calls, and what tells of the machine."""
    episode = json.loads(line)
    for trace in episode["traces"]:
        for key in ("calls", "errors", "tools"):
            trace[key] = []
        kept = ("parent", "message", "sampled")
        trace["nodes"] = [{k: node[k] for k in kept if k in node} for node in trace["nodes"]]
        trace["agent"].pop("runtime", None)
        trace["agent"]["config"].pop("client", None)
    episode["errors"] = []
    return json.dumps(episode) + "\n"


server = ThreadingHTTPServer(("127.0.0.1", 0), Server)
threading.Thread(target=server.serve_forever, daemon=True).start()
work = Path(tempfile.mkdtemp())
environment = {**os.environ, "PYTHONPATH": str(HERE), "NO_KEY": "x"}
for model in ANSWERS:
    asked.clear()
    options = {
        "-m": model,
        "-r": 4,
        "-c": 2,
        "-o": work / "out",
        "--env.agent.harness.id": "null",
        "--env.agent.runtime.type": "subprocess",
        "--client.base-url": f"http://127.0.0.1:{server.server_port}/v1",
        "--client.api-key-var": "NO_KEY",
        "--sampling.temperature": 0.7,
        "--push": False,
    }
    words = [str(word) for option in options.items() for word in option]
    subprocess.run(["vf-eval", "sums", *words], env=environment, cwd=work, check=True)
for file in sorted((work / "out").glob("*/traces.jsonl")):
    name = file.parent.name.split("--")[2]
    target = HERE / name / "traces.jsonl"
    target.parent.mkdir(exist_ok=True)
    target.write_text("".join(map(strip, file.read_text().splitlines())))
