"""Logs of earlier releases of the harness, and compressed ones; see data/make_lm_eval.sh."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pyarrow
import pytest

from lm_eval_bayes.runs.reader import read_runs

DATA = Path(__file__).with_name("data")


def results_of(folder):
    (file,) = folder.glob("results*.json")
    return json.loads(file.read_text())["results"]


def test_an_array_of_samples():
    """0.4.2 names files after the model's arguments, and writes one array into each."""
    saved = read_runs([DATA / "lm_eval_0.4.2"])
    assert saved.models == ("org/name",)
    assert saved.tasks == ("toy_gen", "toy_mc")
    results = results_of(DATA / "lm_eval_0.4.2")
    for run, metric in zip(saved.runs, ("exact_match", "acc"), strict=True):
        assert run.metric == metric
        mean = run.outcomes.counts[:, 1].sum() / run.n_trials
        assert mean == pytest.approx(results[run.task][f"{metric},none"])
    norm = read_runs([DATA / "lm_eval_0.4.2"], task="toy_mc", metric="acc_norm").runs[0]
    assert norm.outcomes.counts[:, 1].mean() == results["toy_mc"]["acc_norm,none"] == 0.5


def test_the_texts_of_an_array_are_found():
    file = DATA / "lm_eval_0.4.2" / "pretrained__org__name_toy_gen.jsonl"

    def grade(texts, target, marker):
        return [(target in text, text) for text in texts]

    (run,) = read_runs([file], regrade=grade).runs
    rows = json.loads(file.read_text())
    assert run.n_trials == 12
    (right,) = (row["resps"][0].count("4") for row in rows if row["target"] == "4")
    assert run.outcomes.counts[1, 1] == right
    for row, texts in zip(rows, run.texts, strict=True):
        assert [[trial.text for trial in texts.read()]] == row["resps"]


def test_a_compressed_folder(tmp_path):
    folder = tmp_path / "run"
    shutil.copytree(DATA / "lm_eval_0.4.9", folder)
    plain = read_runs([folder])
    for file in list(folder.iterdir()):
        with pyarrow.output_stream(f"{file}.zst", compression="zstd") as output:
            output.write(file.read_bytes())
        file.unlink()
    saved = read_runs([folder])
    assert saved.warnings == plain.warnings == ()
    for run, other in zip(saved.runs, plain.runs, strict=True):
        assert (run.model, run.task) == (other.model, other.task)
        assert run.question_ids == other.question_ids
        assert run.outcomes.counts.tolist() == other.outcomes.counts.tolist()
