"""Make the results of verifiers in this folder: in an environment with verifiers 0.1.14, run this.

A server on this machine answers instead of a model, by the question and how often it was asked.
What the tool itself computed is in the `metadata.json` files: `avg_reward`, `pass_at_k`.
"""

import asyncio
import json
import re
import shutil
import tempfile
import threading
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path

import verifiers as vf
from datasets import Dataset
from verifiers.types import ClientConfig

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
        number = int(re.search(r"(\d) \+", text)[1]) - 1
        turn = asked.get((model, text), 0)
        answer = ANSWERS[model][number].split()[turn]
        asked[model, text] = turn + 1
        message = {"role": "assistant", "content": answer}
        content = {
            "id": "chat",
            "object": "chat.completion",
            "created": 0,
            "model": model,
            "choices": [{"index": 0, "message": message, "finish_reason": "stop"}],
            "usage": {"prompt_tokens": 5, "completion_tokens": 1 + turn, "total_tokens": 6 + turn},
        }
        if answer == "fail":
            content = {"error": {"message": "the prompt is refused", "code": "invalid"}}
        raw = json.dumps(content).encode()
        self.send_response(400 if answer == "fail" else 200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(raw)))
        self.end_headers()
        self.wfile.write(raw)

    def log_message(self, *args):
        pass


def right(completion, answer, **kwargs):
    return float(completion[-1]["content"] == answer)


def near(completion, answer, **kwargs):
    return float(abs(int(completion[-1]["content"]) - int(answer)) < 2)


def made(model, env_id, rubric, url):
    rows = [
        {
            "question": f"{n} + {n} = ?",
            "answer": str(2 * n),
            "info": {"part": "I" if n < 3 else "II"},
        }
        for n in range(1, 5)
    ]
    env = vf.SingleTurnEnv(eval_dataset=Dataset.from_list(rows), rubric=rubric, env_id=env_id)
    folder = Path(tempfile.mkdtemp()) / "results"
    asked.clear()
    asyncio.run(
        env.evaluate(
            ClientConfig(api_key_var="NO_KEY", api_base_url=url, max_retries=0),
            model,
            sampling_args={"temperature": 0.7, "max_tokens": 16},
            rollouts_per_example=4,
            max_concurrent=1,
            results_path=folder,
            save_results=True,
        )
    )
    target = HERE / f"{env_id}--{model.replace('/', '--')}" / "run1"
    shutil.rmtree(target, ignore_errors=True)
    shutil.copytree(folder, target)
    file = target / "metadata.json"
    metadata = json.loads(file.read_text())
    metadata |= {"path_to_save": "results", "base_url": "http://localhost/v1"}
    file.write_text(json.dumps(metadata, indent=2))


server = HTTPServer(("127.0.0.1", 0), Server)
threading.Thread(target=server.serve_forever, daemon=True).start()
url = f"http://127.0.0.1:{server.server_port}/v1"
for model in ANSWERS:
    made(model, "sums", vf.Rubric(funcs=[right, near], weights=[1.0, 0.0]), url)
made("org/weak", "near-sums", vf.Rubric(funcs=[right, near], weights=[0.75, 0.25]), url)
