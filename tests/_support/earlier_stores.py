"""Models whose trials an earlier release stored, and how they are asked.

`python earlier_stores.py TARGET.sql`, run once with that release and `tests` on PYTHONPATH, wrote
`tests/harness/models/earlier_stores/*.sql`. A file that is there is never written again: stores
like it are in the world.
"""

from __future__ import annotations

import sqlite3
import sys
import tempfile
from contextlib import closing
from pathlib import Path
from typing import Any

from _support.harness_command import gateway
from _support.scripted_server import serving, vllm_pages
from lm_eval_bayes.harness.instances import new_instance
from lm_eval_bayes.harness.models.trials import TrialsLM

PROMPTS = ("What is 7 + 5?", "What is 9 - 3?")
TRIALS = 2

#: Arguments by name; of the last, `base_url` is added. None holds a secret.
MODELS: dict[str, dict[str, Any]] = {
    "coin": {"backend": "biased_coin", "beta": "2:3", "seed": 1234},
    "coin with arguments": {"backend": "biased_coin", "p": 0.25, "seed": 7, "boxed": 0.5},
    "named": {"backend": "gateway", "pretrained": "org/named"},
    "named with arguments": {
        **{"backend": "gateway", "pretrained": "org/arguments", "dtype": "bfloat16"},
        **{"revision": "main", "load_in_4bit": True, "max_length": 4096, "batch_size": 4},
    },
    "known here, unknown to it": {
        **{"backend": "gateway", "pretrained": "org/speed", "tensor_parallel_size": 2},
        **{"gpu_memory_utilization": 0.9, "max_retries": 3, "device": "cpu"},
    },
    "unknown arguments": {
        **{"backend": "gateway", "model": "org/unknown", "n_experts": 8, "mode": "strict"},
        "options": {"depth": [1, 2], "style": "plain"},
    },
    "at an address": {"backend": "gateway", "base_url": "http://10.0.0.1:8000/v1"},
    "nameless": {"backend": "gateway", "variant": "a"},
    "server": {
        **{"backend": "local-completions", "model": "hash", "endpoint": "box"},
        **{"tokenizer_backend": None, "tokenized_requests": False, "num_concurrent": 4},
    },
}


def sample(store: Path, name: str, **changed: Any) -> dict[str, Any]:
    """Ask a model for its trials on a store; return what it says of them."""
    with (
        gateway(lambda prompt, trial: f"The answer is \\boxed{{{trial}}}."),
        serving(pages=vllm_pages()) as server,
    ):
        arguments = {**MODELS[name], **changed}
        if name == "server":
            arguments["base_url"] = server.url()
        lm = TrialsLM(store=str(store), **arguments)
        settings = {"temperature": 0.6, "max_gen_toks": 32, "until": []}
        requests = []
        for number, prompt in enumerate(PROMPTS):
            doc = {"problem": prompt, "answer": "12"}
            request = new_instance(doc, (prompt, settings), task="sums", doc_id=number)
            request.repeats = TRIALS
            requests += [request] * TRIALS
        lm.generate_until(requests, disable_tqdm=True)
        counted: dict[str, Any] = lm.get_model_info()["trials"]
        lm.trial_store.close()
    return counted


def write(target: Path) -> None:
    if target.exists():
        raise SystemExit(f"{target} is there already")
    with tempfile.TemporaryDirectory() as folder:
        store = Path(folder) / "a.sqlite"
        for name in MODELS:
            sample(store, name)
        with closing(sqlite3.connect(store)) as connection:
            lines = list(connection.iterdump())
            ids = [
                f"PRAGMA {name} = {connection.execute(f'PRAGMA {name}').fetchone()[0]};"
                for name in ("application_id", "user_version")
            ]
    target.write_text("\n".join([*ids, *lines]) + "\n", encoding="utf-8")


if __name__ == "__main__":
    write(Path(sys.argv[1]))
