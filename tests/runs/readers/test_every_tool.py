"""Rules that hold for the logs of every tool, each in one table."""

from __future__ import annotations

import shutil

import pytest
from _support.errors import refused
from _support.tool_logs import DATA

from lm_eval_bayes.runs.reader import read_runs

MCQ = "general_mcq_letters"
NEMO = "nemo_skills/published/eval-results"


@pytest.mark.parametrize(
    ("log", "query", "texts"),
    [
        ("evalscope/strong", {}, ("1 trial ", "Rouge-L-R", "bleu-1")),
        ("terminal_bench/chaterm_1", {}, ("22 trials ended with agent_timeout", "11 trials")),
        ("harbor/letters", {}, ("2 trials", "ApiConnectionError, no result", "1 of 33 ")),
        ("inspect_ai/weak.eval", {}, ("match, closeness, style/short", "1 trial ")),
        ("lighteval/details/strong", {"task": "sums|0"}, ("avg@n:n=4", "pass@k")),
        ("matharena/outputs/aime/aime_2025/open", {}, ("1 trial without a score",)),
        ("swe_bench/org__weak-1.5.run_2.json", {}, ("1 trial ",)),
        ("tau2/strong.json", {}, ("1 trial ", "max_steps")),
        ("verifiers_traces/weak", {}, ("1 trial ",)),
    ],
)
def test_errors_and_choices_are_noted(log, query, texts):
    saved = read_runs([DATA / log], **query)
    notes = [*saved.warnings, *(note for run in saved.runs for note in run.notes)]
    assert all(any(text in note for note in notes) for text in texts), notes


LOGS = (
    f"evalscope/weak/reviews/weak/{MCQ}.jsonl",
    "harbor/letters",
    "inspect_ai/weak.eval",
    "lighteval",
    "matharena/outputs/aime/aime_2025/open/weak",
    f"{NEMO}/gpqa",
    "swe_bench/org__strong.run_1.json",
    "tau2/strong.json",
    "verifiers_traces/weak",
)


@pytest.mark.parametrize("log", LOGS)
def test_a_metric_that_a_log_lacks_is_refused(log):
    with refused("metric", "choice", "speed"):
        read_runs([DATA / log], metric="speed")


@pytest.mark.parametrize("log", LOGS)
def test_a_field_that_a_log_lacks_names_no_clusters(log):
    with refused("cluster", "choice"):
        read_runs([DATA / log], cluster="absent")


@pytest.mark.parametrize("log", LOGS)
def test_a_copy_is_no_further_trials(tmp_path, log):
    source, copy = DATA / log, tmp_path / log
    copy.parent.mkdir(parents=True, exist_ok=True)
    (shutil.copytree if source.is_dir() else shutil.copy)(source, copy)
    with refused("RUN", "duplicate"):
        read_runs([source, copy])
    n_trials = [run.n_trials for run in read_runs([source]).runs]
    assert [run.n_trials for run in read_runs([source, copy], dedupe=True).runs] == n_trials


@pytest.mark.parametrize(
    ("folder", "name"),
    [
        ("evalscope/weak/reviews/weak", f"{MCQ}.jsonl"),
        ("terminal_bench/ob1_1", "results.json"),
        ("lighteval/details/weak", "."),
        ("matharena/outputs/aime/aime_2025/open/weak", "1.json.zst"),
        (f"{NEMO}/gpqa", "output-rs0.jsonl"),
    ],
)
def test_relative_paths_are_read(monkeypatch, folder, name):
    expected = [
        [(run.model, run.task, run.n_trials) for run in read_runs([path]).runs]
        for path in (DATA / folder / name, DATA / folder)
    ]
    monkeypatch.chdir(DATA / folder)
    for path, runs in zip((name, "."), expected, strict=True):
        assert [(run.model, run.task, run.n_trials) for run in read_runs([path]).runs] == runs
