"""Make the results of verifiers in this folder: in an environment with verifiers 0.1.14, run this.

A server on this machine answers instead of a model, by the question and how often it was asked.
What the tool itself computed is in the `metadata.json` files: `avg_reward`, `pass_at_k`.
"""

import asyncio
import json
import shutil
import sys
import tempfile
from pathlib import Path

import verifiers as vf
from datasets import Dataset
from verifiers.types import ClientConfig

HERE = Path(__file__).parent
sys.path.append(str(HERE.parent))
from sums_server import ANSWERS, Server, asked, serve


class Completions(Server):
    def reply(self, model, answer, turn):
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
        self.send(400 if answer == "fail" else 200, "application/json", json.dumps(content))


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


url = serve(Completions)
for model in ANSWERS:
    made(model, "sums", vf.Rubric(funcs=[right, near], weights=[1.0, 0.0]), url)
made("org/weak", "near-sums", vf.Rubric(funcs=[right, near], weights=[0.75, 0.25]), url)
