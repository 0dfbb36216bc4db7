"""Saved runs as the harness writes them, made from numbers.

Of the package only the hash of what was judged is used. A trial is a dictionary with `text`
and `outcome` and what a recording model logs of it; `verdict` is a verifier's (a, b, c), or None.
"""

from __future__ import annotations

import hashlib
import json

from lm_eval_bayes.rubric.verifier_prompt import VerifierInput, after_reasoning
from lm_eval_bayes.runs.verdicts import case_hash

STAMP = "2026-01-31T10-00-00.000000"
TASK = "contest_bayes"
MAX_GEN_TOKS = 64
RECORDED = ("completion_tokens", "prompt_tokens", "finish_reason", "prompt_bpt", "completion_bpt")
VERIFIER = {"kind": "transformers", "name": "judge-3B", "temperature": 1.0}


def question(trials, number=0, problem=None):
    """Return one question with its trials."""
    problem = f"What is {number} + {number}?" if problem is None else problem
    return {"problem": problem, "answer": str(2 * number), "trials": trials}


def write_run(folder, model, questions, task=TASK, verifier=VERIFIER, config=None, stamp=STAMP):
    """Write a run's files; return its folder."""
    folder.mkdir(parents=True)
    limits = {"max_gen_toks": MAX_GEN_TOKS, "temperature": 0.6, "do_sample": True, "until": []}
    configured = {
        "task": task,
        "generation_kwargs": limits,
        "metadata": {"version": 1.0, "bayes": {"n": 8, "weights": [0.0, 1.0]}},
        **(config or {}),
    }
    results = {"model_name": model, "configs": {task: configured}, "results": {}}
    (folder / f"results_{stamp}.json").write_text(json.dumps(results), encoding="utf-8")
    rows = [_row(number, item, limits) for number, item in enumerate(questions)]
    name = f"{task.replace('/', '__')}_{stamp}.jsonl"
    _write_lines(folder / f"samples_{name}", rows)
    judged = [
        {"doc_id": d, "trial": i, "text": _judged(item, t), **_labelled(*t["verdict"])}
        for d, item in enumerate(questions)
        for i, t in enumerate(item["trials"])
        if t.get("verdict") is not None
    ]
    if judged:
        header = {"format": "lm-eval-bayes-verdicts", "version": 1, "samples": f"samples_{name}"}
        header |= {"verifier": verifier, "baseline": [0.0, 0.0, 0.0]}
        _write_lines(folder / f"verdicts_{name}", [header, *judged])
    return folder


def _judged(item, trial):
    answer = after_reasoning(trial["text"])
    return case_hash(VerifierInput(item["problem"], item["answer"], answer))


def _labelled(a, b, c):
    return {"a": a, "b": b, "c": c}


def _row(number, item, limits):
    doc = {"problem": item["problem"], "answer": item["answer"]}
    texts = [trial["text"] for trial in item["trials"]]
    row = {
        "doc_id": number,
        "doc": doc,
        "target": item["answer"],
        "arguments": {"gen_args_0": {"arg_0": item["problem"], "arg_1": limits}},
        "resps": [texts],
        "filtered_resps": [texts],
        "filter": "none",
        "doc_hash": hashlib.sha256(json.dumps(doc, indent=2).encode()).hexdigest(),
        "outcomes": [trial["outcome"] for trial in item["trials"]],
    }
    names = [name for name in RECORDED if any(name in trial for trial in item["trials"])]
    if names:
        row["signals"] = {n: [trial.get(n) for trial in item["trials"]] for n in names}
    return row


def _write_lines(path, rows):
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
