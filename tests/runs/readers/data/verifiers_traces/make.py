"""Make the traces of verifiers in this folder: in an environment with verifiers 0.4.0, run this.

A server on this machine answers instead of a model, by the question and how often it was asked. The
taskset is sums.py beside; its rewards are 0.75 for the answer and 0.25 for one beside it.
"""

import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

HERE = Path(__file__).parent
sys.path.append(str(HERE.parent))
from sums_server import ANSWERS, Server, asked, serve


class Chunks(Server):
    def reply(self, model, answer, turn):
        if answer == "fail":
            self.send(400, "application/json", json.dumps({"error": {"message": "refused"}}))
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
        self.send(200, "text/event-stream", "".join([*events, "data: [DONE]\n\n"]))


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


url = serve(Chunks)
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
        "--client.base-url": url,
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
