"""Files of runs as the harness writes them, made from a few numbers.

Of the package nothing is used. A question is a dictionary of the trials' columns: `outcomes`,
and what else is logged of them (`answers`, `seed`, `texts`, `completion_tokens`, …).
"""

from __future__ import annotations

import hashlib
import json

STAMP = "2026-01-31T10-00-00.000000"
LATER = "2026-02-01T10-00-00.000000"
TASK = "sums_bayes"
SENT = {"do_sample": True, "temperature": 0.6, "top_p": 0.95, "until": [], "max_gen_toks": 64}
SIGNALS = ("trial", "seed", "completion_tokens", "prompt_tokens", "generated_s", "concurrency")


def sha(text):
    return hashlib.sha256(text.encode()).hexdigest()


def row(number, filter="none", sent=SENT, prompt=None, doc=None, **columns):
    """One logged question; without `outcomes` it is one of a task that is not ours."""
    doc = {"problem": f"{number} + {number}?", "answer": str(2 * number)} if doc is None else doc
    prompt = f"Q: {number} + {number}?" if prompt is None else prompt
    outcomes = columns.pop("outcomes", None)
    default = ["?"] if outcomes is None else [f"text {i} of {number}" for i in range(len(outcomes))]
    texts = columns.pop("texts", default)
    line = {
        "doc_id": number,
        "doc": doc,
        "target": str(2 * number),
        "arguments": {"gen_args_0": {"arg_0": prompt, "arg_1": sent}},
        "resps": [texts],
        "filtered_resps": [texts] if outcomes is not None else texts[:1],
        "filter": filter,
        "doc_hash": sha(json.dumps(doc, indent=2)),
        "prompt_hash": sha(prompt),
    }
    if outcomes is None:
        return {**line, "metrics": list(columns), **columns}
    signals = {name: columns.pop(name) for name in SIGNALS if name in columns}
    line |= {"outcomes": outcomes, **columns}
    return {**line, "signals": signals} if signals else line


def write_run(folder, rows, stamp=STAMP, task=TASK, model="org/model", **changes):
    """Write the two files of a run; return the samples' path."""
    folder.mkdir(parents=True, exist_ok=True)
    configs = {task: {"task": task, "metadata": {"version": 1.0, "bayes": {"weights": [0, 1]}}}}
    results = {
        "model_name": model,
        "config": {"model": "vllm", "model_args": {"pretrained": model, **changes.pop("args", {})}},
        "configs": configs,
        "versions": {task: changes.pop("version", 1.0)},
        "total_evaluation_time_seconds": "2.5",
        "date": 1769853600.25,
        "lm_eval_version": "0.4.13",
        "transformers_version": "N/A",
        **changes,
    }
    (folder / f"results_{stamp}.json").write_text(json.dumps(results), encoding="utf-8")
    samples = folder / f"samples_{task.replace('/', '__')}_{stamp}.jsonl"
    samples.write_text("".join(json.dumps(item) + "\n" for item in rows), encoding="utf-8")
    return samples


def seeded(numbers, first_seed, n=4, outcome=1):
    """Questions whose trials have the seeds first_seed, first_seed + 1, …."""
    return [
        row(
            number,
            outcomes=[outcome] * n,
            seed=[first_seed + i for i in range(n)],
            trial=list(range(n)),
            texts=[f"seed {first_seed + i}" for i in range(n)],
        )
        for number in numbers
    ]
