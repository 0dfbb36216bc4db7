"""Saved logs of every format, each with a file that tests change, lock or damage."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from _support.tables import write_rows
from lm_eval_bayes.store.outcomes import Cluster, GradedQuestion, GradedTask, GradedTrial
from lm_eval_bayes.store.trial import Trial, TrialKey
from lm_eval_bayes.store.trial_store import TrialStore

#: The keys of the scores of some tools.
_INSPECT = ("scores", "match", "value")
_VERIFIERS = ("traces", 0, "rewards", "right", "score")
_TAU2 = ("reward_info", "reward")
_EVALSCOPE = ("sample_score", "score", "value", "accuracy")
_LIGHTEVAL = ("metric", "avg@n:n=4")
_NEMO = ("symbolic_correct",)

ROWS = [
    {"model": model, "question_id": f"q{i}", "epoch": j, "correct": (i * j + shift) % 3 > 0}
    | {"tokens": 100 * i + j, "cost": 0.25 * j, "subject": f"s{i % 3}", "response": f"so {j}"}
    for shift, model in enumerate(("a-1", "b"))
    for i in range(8)
    for j in range(4)
]


def _table(file):
    write_rows(file, ROWS)


def _dump(file):
    """What `simple_evaluate` returns."""
    rows = [
        {"doc_id": i, "doc": {"q": i}, "target": i, "arguments": [["q", {"until": []}]]}
        | {"resps": [[i % 3]], "filter": "none", "metrics": ["exact_match"], "exact_match": i % 2}
        for i in range(6)
    ]
    results = {"results": {"t": {"alias": "t"}}, "samples": {"t": rows}}
    file.write_text(json.dumps(results | {"config": {"model": "hf", "model_args": "pretrained=m"}}))


def _answers(file):
    """Trials without numbers, two of which have one text."""
    names = ("question", "response", "seconds", "correct")
    rows = (
        *(("a", "it is 7", 1.5, 1), ("a", "it is 7", 2.25, 1), ("a", "it is 8", 1.25, 0)),
        *(("b", "it is 9", 0.5, 0), ("b", "it is 6", 3.5, 1), ("b", "it is 5", 2.5, 0)),
    )
    write_rows(file, [dict(zip(names, row, strict=True)) for row in rows])


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


@dataclass(frozen=True)
class Log:
    """A log of one format, with a file of it that tests change, lock or damage.

    `source` is the folder of saved logs, or a function that writes the file; what is read is the
    file, or with `read` its folder. `rows` are the keys below which the rows of trials are, or a
    function that finds them, and None of a file of settings; `n` is the number of trials in a row,
    `score` the keys of a score in it, `left_out` how many trials are left out, as notes say.
    """

    source: str | Callable[[Path], None]
    pattern: str
    read: str | None = None
    rows: Sequence[str] | Callable[[Any], list[Any]] | None = None
    n: Callable[[Any], int] = lambda row: 1
    score: tuple[str | int, ...] = ()
    left_out: int = 0

    def trial_rows(self, content):
        """Return the rows of the trials in the content of the file."""
        if callable(self.rows):
            return self.rows(content)
        for key in self.rows or ():
            content = content[key]
        return content


def _itself(content):
    return [content]


def _texts(row):
    return len(row["model_response"]["text"])


def _planes(content):
    return [plane for matrix in content["R"] for plane in matrix]


#: By format its logs.
LOGS = {
    "lm-evaluation-harness": [
        Log("lm_eval_0.4.9", "samples_*.jsonl", ".", (), score=("exact_match",)),
        Log("lm_eval_0.4.9", "results_*.json", "."),
        Log("lm_eval_0.4.2", "*_toy_gen.jsonl", ".", (), score=("exact_match",)),
        Log(_dump, "dump.json", None, ("samples", "t"), score=("exact_match",)),
        Log("score/org__name", "samples_prompts_agieval_*.jsonl", ".", ()),
    ],
    "inspect_ai": [
        Log("inspect_ai", f"weak{ending}", None, (rows,), score=_INSPECT, left_out=1)
        for ending, rows in ((".eval", "summaries.json"), (".json", "samples"))
    ],
    "verifiers, traces": [
        Log("verifiers_traces/weak", "traces.jsonl", None, (), score=_VERIFIERS, left_out=1)
    ],
    "SWE-bench": [
        Log("swe_bench", "org__weak-1.5.run_1.json", None, ("submitted_ids",)),
    ],
    "tau2-bench, tau-bench": [
        Log("tau2", "weak.json", None, ("simulations",), score=_TAU2),
        Log("tau2/folder", "results.json", "."),
        Log("tau2/folder", "simulations/*.json", ".", _itself, score=_TAU2),
        Log("tau_bench", "gpt-4o-airline.json", None, (), score=("reward",)),
    ],
    "Harbor, terminal-bench": [
        Log("harbor/letters", "chess__w1abcde/result.json", ".", _itself),
        Log("harbor/letters", "chess__w1abcde/result.json", None, _itself),
        Log("harbor/letters", "result.json", "."),
        Log("terminal_bench/ob1_1", "results.json", ".", ("results",), score=("is_resolved",)),
        Log("terminal_bench/ob1_1", "run_metadata.json", "."),
    ],
    "HELM": [
        Log(
            _helm,
            "per_instance_stats.json",
            None,
            (),
            lambda row: int("perturbation" not in row),
            ("stats", 1, "mean"),
        )
    ],
    "evalscope": [
        Log("evalscope/weak", "reviews/weak/general_mcq_letters.jsonl", ".", (), score=_EVALSCOPE),
        Log("evalscope/weak", "reports/weak/general_mcq.json", "."),
    ],
    "lighteval": [
        Log("lighteval", "details/weak/*/details_sums*.parquet", None, (), _texts, _LIGHTEVAL),
    ],
    "NeMo-Skills": [
        Log(f"nemo_skills/published/eval-results/{folder}", file, ".", (), score=_NEMO)
        for folder, file in (("gpqa", "output-rs0.jsonl"), ("hendrycks_math", "output-rs2.jsonl"))
    ]
    + [Log("nemo_skills/robust/qwen", "gpqa/boxed_2/*/*/output-rs0.jsonl", ".", (), score=_NEMO)],
    "MathArena": [Log("matharena/outputs", "**/weak/1.json.zst", None, ("correct",))],
    "counts": [
        Log(_counts, f"counts{ending}", None, (), lambda row: int(row["n"]), ("c",))
        for ending in (".csv", ".jsonl")
    ],
    "table of trials": [
        Log("matharena", "published.parquet", None, (), score=("correct",)),
        Log(_answers, "answers.jsonl", None, (), score=("correct",)),
        *(
            Log(_table, f"board{ending}", None, (), score=("correct",))
            for ending in (".csv", ".tsv", ".json", ".jsonl", ".csv.gz", ".parquet", ".arrow")
        ),
    ],
    "matrix of outcomes": [
        Log(_matrix, "matrix.csv", None, (), lambda row: len(row) - 1, ("trial_1",)),
        Log(_matrix, "matrix.npz", None, _planes, len),
    ],
    "trial store": [Log(_store, "trials.sqlite", None, ("outcomes",))],
}
#: The folders of saved logs, with a file that is read where the folder is.
SAVED = [
    (log.source, log.pattern)
    for name, logs in LOGS.items()
    for log in logs
    if isinstance(log.source, str) and name != "table of trials"
]
