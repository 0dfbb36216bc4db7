"""A run of the harness without tasks of this package is what it is without this package."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

pytestmark = pytest.mark.slow

QUESTIONS = [
    {"question": f"What is {i} + 1?", "answer": str(i + 1), "choices": ["a", "b"], "gold": i % 2}
    for i in range(4)
]
METRIC = {"aggregation": "mean", "higher_is_better": True}
TASKS = {
    "plain_text": {
        "output_type": "generate_until",
        "doc_to_text": "{{question}}",
        "doc_to_target": "{{answer}}",
        "repeats": 2,
        "filter_list": [
            {"name": name, "filter": [{"function": "regex", "regex_pattern": pattern}]}
            for name, pattern in (("first", r"(\d)"), ("last", r"(\S+)$"))
        ],
        "metric_list": [{"metric": "exact_match", **METRIC}],
    },
    "plain_choice": {
        "output_type": "multiple_choice",
        "doc_to_text": "{{question}}",
        "doc_to_choice": "choices",
        "doc_to_target": "gold",
        "metric_list": [{"metric": "acc", **METRIC}, {"metric": "acc_norm", **METRIC}],
    },
    "plain_perplexity": {
        "output_type": "loglikelihood_rolling",
        "doc_to_text": "",
        "doc_to_target": "{{question}}",
        "metric_list": [{"metric": "word_perplexity"}],
    },
}


def run(folder: Path, output: str, **environment: str) -> tuple[str, dict[str, object]]:
    """Return the printed table, and what the run wrote but for its times."""
    command = [sys.executable, "-m", "lm_eval", "run", "--model", "dummy", "--include_path"]
    command += [str(folder), "--tasks", "plain_group,plain_perplexity", "--log_samples"]
    done = subprocess.run(
        [*command, "--output_path", str(folder / output)],
        env={**os.environ, "HF_HUB_OFFLINE": "1", **environment},
        cwd=folder,
        capture_output=True,
        text=True,
        timeout=1800,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    written: dict[str, object] = {}
    for file in (folder / output).rglob("*.json*"):
        name = file.name.partition("_20")[0]
        text = file.read_text(encoding="utf-8")
        if name == "results":
            content = json.loads(text)
            for key in ("date", "total_evaluation_time_seconds", "start_time", "end_time"):
                content.pop(key, None)
            text = json.dumps(content)
        written[name] = text
    return done.stdout, written


def test_results_and_samples_of_three_tasks_and_a_group_are_the_same(tmp_path):
    data = tmp_path / "questions.jsonl"
    data.write_text("\n".join(map(json.dumps, QUESTIONS)), encoding="utf-8")
    source = {"dataset_path": "json", "dataset_kwargs": {"data_files": str(data)}}
    for name, config in TASKS.items():
        text = yaml.safe_dump({"task": name, "test_split": "train", **source, **config})
        (tmp_path / f"{name}.yaml").write_text(text, encoding="utf-8")
    group = {
        "group": "plain_group",
        "task": ["plain_choice", "plain_text"],
        "aggregate_metric_list": [{"metric": "acc", "weight_by_size": True}],
    }
    (tmp_path / "group.yaml").write_text(yaml.safe_dump(group), encoding="utf-8")
    without = run(tmp_path, "without", LM_EVAL_BAYES_AUTOLOAD="0")
    beside = run(tmp_path, "beside", LM_EVAL_BAYES_AUTOLOAD="1")
    assert set(beside[1]) == {"results", *(f"samples_{name}" for name in TASKS)}
    assert beside == without
