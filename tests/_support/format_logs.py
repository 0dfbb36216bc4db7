"""Saved logs of every format, each with a file that tests change, lock or damage."""

from __future__ import annotations

import json

import numpy as np

from _support.tables import write_rows
from lm_eval_bayes.store.outcomes import GradedQuestion, GradedTask, GradedTrial
from lm_eval_bayes.store.questions import Cluster
from lm_eval_bayes.store.trial import Trial, TrialKey
from lm_eval_bayes.store.trial_store import TrialStore

ROWS = [
    {"model": model, "question_id": f"q{i}", "epoch": j, "correct": (i * j + shift) % 3 > 0}
    | {"tokens": 100 * i + j, "cost": 0.25 * j, "subject": f"s{i % 3}", "response": f"so {j}"}
    for shift, model in enumerate(("a-1", "b"))
    for i in range(8)
    for j in range(4)
]


def _table(file):
    write_rows(file, ROWS)


def _counts(file):
    rows = [{"id": f"q{i}", "model": "ab"[i % 2], "c": i % 5, "n": 4} for i in range(12)]
    write_rows(file, rows)


def _matrix(file):
    R = np.random.default_rng(1).integers(0, 2, (2, 6, 4))
    if file.suffix == ".npz":
        ids, models = [f"q{i}" for i in range(6)], ["a", "b"]
        np.savez(file, R=R, models=models, question_ids=ids, weights=[0.0, 1.0], task="t")
    else:
        lines = ["id,trial_1,trial_2,trial_3,trial_4"]
        lines += [f"q{i},{','.join(map(str, row))}" for i, row in enumerate(R[0].tolist())]
        file.write_text("\n".join(lines) + "\n")


def _store(file):
    with TrialStore.open(file) as store:
        key = TrialKey(
            model=store.describe_model({"backend": "vllm", "pretrained": "org/model"}),
            prompt=store.describe_prompts(["What is 6 times 7?"])[0],
            sampling=store.describe_sampling({"temperature": 0.6}),
        )
        store.add(Trial(key, i, f"It is {i}.", seed=i, created=1000.0) for i in range(4))
        store.add_prompt_signals(key.model, key.prompt, {"bits": 0.5})
        graded = tuple(GradedTrial(key, i, i % 2, str(i)) for i in range(4))
        question = GradedQuestion(0, "aa", graded, Cluster("contest", "AIME I"))
        store.add_outcomes([GradedTask("aime", "1.0", "none", 2, (question,))])


def helm_rows(right):
    """Return the statistics of HELM: whether instances are right, in every train trial."""

    def row(id, trial, value, **more):
        stats = {"num_output_tokens": 7, "exact_match": value, "quasi_exact_match": 1.0}
        stats = [
            {"name": {"name": name, "split": "test"}, "count": 1, "sum": mean, "mean": mean}
            for name, mean in stats.items()
        ]
        return {"instance_id": id, "train_trial_index": trial, "stats": stats} | more

    rows = [row(id, i, float(v)) for id, values in right.items() for i, v in enumerate(values)]
    return [*rows, *(row(id, 0, 0.0, perturbation={"name": "robustness"}) for id in right)]


def _helm(file):
    file.write_text(json.dumps(helm_rows({"id1": [1, 0], "id2": [1, 1], "id3": [0, 0]})))


#: By format the folder of its saved logs with a file to change, or a function that writes one.
LOGS = {
    "lm-evaluation-harness": [
        ("lm_eval_0.4.9", "samples_*.jsonl", "."),
        ("lm_eval_0.4.9", "results_*.json", "."),
        ("lm_eval_0.4.2", "*_toy_gen.jsonl", "."),
    ],
    "inspect_ai": [("inspect_ai", "weak.eval", None), ("inspect_ai", "weak.json", None)],
    "verifiers, traces": [("verifiers_traces/weak", "traces.jsonl", None)],
    "SWE-bench": [
        ("swe_bench", "org__weak-1.5.run_1.json", None),
        ("swe_bench/logs", "**/django__django-1/report.json", "."),
    ],
    "tau2-bench, tau-bench": [
        ("tau2", "weak.json", None),
        ("tau2/folder", "results.json", "."),
        ("tau2/folder", "simulations/*.json", "."),
        ("tau_bench", "gpt-4o-airline.json", None),
    ],
    "Harbor, terminal-bench": [
        ("harbor/letters", "chess__w0abcde/result.json", "."),
        ("harbor/letters", "chess__w0abcde/result.json", None),
        ("terminal_bench/ob1_1", "results.json", "."),
        ("terminal_bench/ob1_1", "run_metadata.json", "."),
    ],
    "HELM": [(_helm, "per_instance_stats.json", None)],
    "evalscope": [
        ("evalscope/weak", "reviews/weak/general_mcq_letters.jsonl", "."),
        ("evalscope/weak", "predictions/weak/general_mcq_letters.jsonl", "."),
        ("evalscope/weak", "reports/weak/general_mcq.json", "."),
    ],
    "lighteval": [("lighteval", "details/weak/*/details_sums*.parquet", None)],
    "NeMo-Skills": [("nemo_skills", "**/output-rs*.jsonl", None)],
    "MathArena": [("matharena/outputs", "**/weak/1.json.zst", None)],
    "counts": [(_counts, "counts.csv", None), (_counts, "counts.jsonl", None)],
    "table of trials": [
        ("matharena", "published.parquet", None),
        *(
            (_table, f"board{ending}", None)
            for ending in (".csv", ".tsv", ".json", ".jsonl", ".csv.gz", ".parquet", ".arrow")
        ),
    ],
    "matrix of outcomes": [(_matrix, "matrix.csv", None), (_matrix, "matrix.npz", None)],
    "trial store": [(_store, "trials.sqlite", None)],
}
#: The folders of saved logs, with a file that is read where the folder is.
SAVED = [
    (source, pattern)
    for name, logs in LOGS.items()
    for source, pattern, _ in logs
    if isinstance(source, str) and name != "table of trials" and pattern != "*.jsonl"
]
