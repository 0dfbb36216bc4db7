"""Writes samples as the harness does."""

from __future__ import annotations

import json

STAMP = "2026-01-31T10-00-00.512000"


def row(doc_id, texts, question=None, gold="42", outcomes=None, **more):
    return {
        "doc_id": doc_id,
        "doc": {"id": f"q{doc_id}", "problem": question or f"Question {doc_id}?", "answer": gold},
        "target": gold,
        "arguments": {"gen_args_0": {"arg_0": f"Solve: Question {doc_id}?", "arg_1": {}}},
        "resps": [list(texts)],
        "filtered_resps": [list(texts)],
        "filter": "none",
        "doc_hash": f"{doc_id:064x}",
        "outcomes": outcomes or [0] * len(texts),
        **more,
    }


def write(folder, rows, task="demo", stamp=STAMP):
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"samples_{task}_{stamp}.jsonl"
    path.write_text("".join(json.dumps(item) + "\n" for item in rows), encoding="utf-8")
    results = {"model_name": folder.name}
    (folder / f"results_{stamp}.json").write_text(json.dumps(results), encoding="utf-8")
    return path


#: Two questions: right, wrong, right again in the same words, no answer, and thoughts.
ROWS = [
    row(0, ["It is 42.", "It is 41.", "<think>43?</think>It is 42.", "I do not know."]),
    row(1, ["Hm, 7", "It is 42.", "It is 42. \n", "no"], gold="7"),
]
