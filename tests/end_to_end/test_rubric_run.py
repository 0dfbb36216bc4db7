"""A real model's trials in the categories of every schema, those of a verifier last.

What the harness's table says is computed again: the categories by `tests/rubric/fake_runs.py`,
which uses nothing of the package, and the paper's posterior by its closed form.
"""

from __future__ import annotations

import importlib.util
import json
import math
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from _support.fake_runs import category_of, cuts_of

TASK, N = "demo_arithmetic_rubric", 4

#: Every schema without a verifier: its weights, as the README and the issue's table give them.
WEIGHTS = {
    "exact_match": (0, 0, 1),
    "format_aware": (0, 0, 1 / 3, 2 / 3, 1),
    "conf_calibrated": (0, 0.2, 0, 0.6, 0.8, 1),
    "ood_robustness": (0, 0.1, 0, 1, 0.8),
    "strict_compliance": (0, 0, 1),
    "conf_wrong_penalty": (0, 0, 0.25, 1),
    "format_confidence": (0, 0, 0.2, 0.1, 0.6, 0.7, 0.9, 1),
    "length_robust": (0, 0, 1),
    "efficiency_adjusted": (0, 0.1, 0.05, 0, 1, 0.9, 0.75),
    "concision_high_conf": (0, 0, 0.6, 0.75, 0.9, 1),
}

#: The two that a verifier gives.
VERIFIER_WEIGHTS = {"verifier_only": (0, 0, 0.1, 1), "verifier_probe": (0, 0.3, 0, 0.7, 1)}

#: A closed box with something in it, perhaps with braces in it.
BOX = re.compile(r"\\(?:boxed|fbox)\s*\{\s*[^{}\s](?:[^{}]|\{[^{}]*\})*\}")

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(importlib.util.find_spec("vllm") is None, reason="needs vLLM"),
]


def trials_of(sample: dict[str, Any]) -> list[dict[str, float | None]]:
    """Read one question's trials from what was logged and from the texts themselves."""
    signals, texts = sample["signals"], sample["resps"][0]
    return [
        {
            "is_correct": sample["outcomes"][i],
            "has_box": int(BOX.search(text) is not None),
            "token_ratio": signals["completion_tokens"][i] / 32,
            "repeated_pattern": int(signals["finish_reason"][i] != "stop"),
            "prompt_bpt": signals["prompt_bpt"][i],
            "completion_bpt": signals["completion_bpt"][i],
            "verifier_a": None,
            "verifier_b": None,
            "verifier_c": None,
        }
        for i, text in enumerate(texts)
    ]


def closed_form(counts: list[list[int]], weights: tuple[float, ...]) -> tuple[float, float]:
    """Bayes@N with its sd [Hariri 2026, Alg. 1], from the Dirichlet's first two moments."""
    means, variances = [], []
    for row in counts:
        alpha = [1 + count for count in row]
        total = sum(alpha)
        mean = sum(a * w for a, w in zip(alpha, weights, strict=True)) / total
        square = sum(a * w * w for a, w in zip(alpha, weights, strict=True)) / total
        means.append(mean)
        variances.append((square - mean**2) / (total + 1))
    return sum(means) / len(means), math.sqrt(sum(variances)) / len(means)


def counted(
    schema: str, questions: list[list[dict[str, float | None]]], cuts: Any, n_categories: int
) -> list[list[int]]:
    """Count every question's trials in every category."""
    counts = [[0] * n_categories for _ in questions]
    for row, trials in zip(counts, questions, strict=True):
        for trial in trials:
            row[category_of(schema, trial, cuts)] += 1
    return counts


def command_line(*arguments: str) -> str:
    """Run `lm-eval-bayes`, and return what it printed."""
    done = subprocess.run(
        [sys.executable, "-m", "lm_eval_bayes.cli.main", *arguments[0].split(), *arguments[1:]],
        capture_output=True,
        encoding="utf-8",
        timeout=1800,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def counted_again(folder: Path, thresholds: str) -> dict[str, list[int]]:
    """Return the trials in every category, as `lm-eval-bayes study rubric` counts saved files."""
    printed = command_line("study rubric", str(folder), "--json")
    assert thresholds in printed
    schemata = json.loads(printed)["tasks"][0]["schemata"]
    categories = {row["name"]: row["scores"][0]["categories"] for row in schemata}
    assert all(row.pop("missing") == 0 for row in categories.values())
    return {name: list(row.values()) for name, row in categories.items()}


def test_every_schema(run_harness: Any, smollm2: Path, tmp_path: Path) -> None:
    model_args = (
        f"backend=vllm,store={tmp_path / 'trials.sqlite'},pretrained={smollm2},dtype=bfloat16,"
        "enforce_eager=True,max_model_len=1024"
    )
    run = run_harness(
        *("--model", "trials", "--model_args", model_args, "--batch_size", "auto"),
        *("--tasks", TASK, "--limit", "8", "--apply_chat_template"),
        *("--metadata", json.dumps({"bayes_n": N, "rubric_prior": "bayes"})),
        *("--gen_kwargs", "max_gen_toks=32"),
        timeout=1800,
        **{"VLLM_CPU_KVCACHE_SPACE": "2", "HF_HUB_OFFLINE": "1"},
    )
    rows, samples = run.rows(TASK), run.samples(TASK)
    questions = [trials_of(sample) for sample in samples]
    cuts = cuts_of([trial for trials in questions for trial in trials])
    assert None not in cuts.values() or rows["avg@4"] in (0.0, 1.0)
    for schema, weights in WEIGHTS.items():
        mean, sd = closed_form(counted(schema, questions, cuts, len(weights)), weights)
        assert rows[f"rubric_{schema}@{N}"] == pytest.approx(mean, abs=1e-9), schema
        assert rows[f"rubric_{schema}@{N}_stderr"] == pytest.approx(sd, abs=1e-9), schema
    assert rows["rubric_missing"] == 0

    # classified again from the samples alone, without a model
    again = counted_again(run.folder, rows["rubric_thresholds"])
    assert set(again) == set(WEIGHTS)
    for schema, weights in WEIGHTS.items():
        counts = counted(schema, questions, cuts, len(weights))
        assert again[schema] == [sum(column) for column in zip(*counts, strict=True)], schema

    # judged by a verifier (far too small to be right), and classified with its verdicts
    command_line("study verify", str(run.folder), "--verifier", str(smollm2))
    (verdicts,) = run.folder.rglob("verdicts_*.jsonl")
    _, *lines = map(json.loads, verdicts.read_text(encoding="utf-8").splitlines())
    verdict_of = {(line["doc_id"], line["trial"]): line for line in lines}
    for sample, trials in zip(samples, questions, strict=True):
        for i, trial in enumerate(trials):
            line = verdict_of[sample["doc_id"], i]
            trial |= {f"verifier_{label}": line[label] for label in "abc"}
    again = counted_again(run.folder, rows["rubric_thresholds"])
    assert set(again) == {*WEIGHTS, *VERIFIER_WEIGHTS}
    for schema, weights in (WEIGHTS | VERIFIER_WEIGHTS).items():
        counts = counted(schema, questions, cuts, len(weights))
        assert again[schema] == [sum(column) for column in zip(*counts, strict=True)], schema
