"""The setting of every trial: a column of a table, else the run that its file is of."""

from __future__ import annotations

import csv
from collections import Counter

import numpy as np
import pytest
from _support.errors import refused
from _support.run_files import row, write_run
from _support.tables import write_rows

from lm_eval_bayes.runs.reader import read_runs

DAYS = ("day1", "day2", "day3", "day4")


def table(path, n_trials=2, first=0, questions=("p", "q"), right=0, **columns):
    """Write a table of a model "m" in which every other trial of a question is right."""
    rows = [
        {"model": "m", "id": id, "trial": first + i, "correct": (i + at + right) % 2, **columns}
        for at, id in enumerate(questions)
        for i in range(n_trials)
    ]
    path.parent.mkdir(exist_ok=True)
    return write_rows(path, rows)


def right_by_setting(run):
    """Return how many trials of a run are right and how many there are, by setting."""
    counts = {label: Counter() for label in run.settings}
    for of_question, outcomes in zip(run.setting, run.trials, strict=True):
        for code, outcome in zip(of_question.tolist(), outcomes.tolist(), strict=True):
            counts[run.settings[code]][outcome] += 1
    return {label: (of[1], sum(of.values())) for label, of in counts.items()}


def counted(rows, setting):
    """Count rows of a table by hand."""
    labels = [setting or line["setting"] for line in rows]
    right = Counter(s for s, line in zip(labels, rows, strict=True) if line["correct"] == "1")
    return {label: (right[label], n) for label, n in Counter(labels).items()}


def test_four_files_and_their_column_are_the_same_four_settings(shared):
    by_hand, cases = {}, shared / "cases" / "settings"
    for day in DAYS:
        with (cases / f"{day}.csv").open(encoding="utf-8") as file:
            by_hand |= counted(list(csv.DictReader(file)), day)
    with (cases / "col.csv").open(encoding="utf-8") as file:
        assert counted(list(csv.DictReader(file)), None) == by_hand
    for paths in ([cases / f"{day}.csv" for day in DAYS], cases / "col.csv"):
        (run,) = read_runs(paths).runs
        assert run.settings == DAYS
        assert right_by_setting(run) == by_hand


@pytest.mark.parametrize("name", ["runs.csv", "runs.jsonl", "runs.json", "runs.parquet"])
def test_a_trial_is_identified_by_its_setting_too(tmp_path, name):
    outcomes = {"day10": [1, 1], "day2": [0, 1], "day1": [0, 0]}
    rows = [
        {"model": "m", "id": "q", "trial": i, "correct": outcome, "setting": label}
        for label, of_setting in outcomes.items()
        for i, outcome in enumerate(of_setting)
    ]
    (run,) = read_runs(write_rows(tmp_path / name, rows)).runs
    assert run.settings == ("day1", "day2", "day10")
    assert right_by_setting(run) == {"day1": (0, 2), "day2": (1, 2), "day10": (2, 2)}
    again = write_rows(tmp_path / f"again-{name}", [*rows, {**rows[0], "correct": 0}])
    with refused("RUN", "duplicate"):
        read_runs(again)


def test_one_setting_is_none(tmp_path):
    (run,) = read_runs(table(tmp_path / "a.csv")).runs
    assert (run.settings, run.setting) == ((), None)
    (run,) = read_runs(table(tmp_path / "b.csv", setting="only")).runs
    assert (run.settings, run.setting) == ((), None)


def test_rows_without_a_label_are_of_their_run(tmp_path):
    table(tmp_path / "a.csv", setting="greedy")
    table(tmp_path / "b.csv", 3, right=1)
    (run,) = read_runs([tmp_path / "a.csv", tmp_path / "b.csv"]).runs
    assert right_by_setting(run) == {"b": (3, 6), "greedy": (2, 4)}


def test_labels_are_the_parts_of_the_paths_that_differ(tmp_path):
    folders = [tmp_path / name for name in ("t0.6", "t0.7")]
    paths = [table(f / "trials.csv.gz", 2 + n, right=n) for n, f in enumerate(folders)]
    (run,) = read_runs(paths).runs
    assert right_by_setting(run) == {"t0.6": (2, 4), "t0.7": (3, 6)}


def test_files_that_continue_a_run_are_of_one_setting(tmp_path):
    first = table(tmp_path / "a.csv", 2)
    (run,) = read_runs([first, table(tmp_path / "b.csv", 3, first=2)]).runs
    assert (run.n_trials, run.settings) == (10, ())
    (run,) = read_runs([first, table(tmp_path / "c.csv", 2, questions="rs")]).runs
    assert (run.n_questions, run.settings) == (4, ())
    elsewhere = table(tmp_path / "later" / "b.csv", 3, first=2)
    (run,) = read_runs([first, elsewhere]).runs
    assert [n for _, n in right_by_setting(run).values()] == [4, 6]


def test_folders_of_logs_are_settings_and_their_ungraded_trials_are_in_none(tmp_path):
    seeds = {"a": [1, 2, 3], "b": [11, 12, 13]}
    for folder, of_folder in seeds.items():
        outcomes = [1, 0, None] if folder == "a" else [1, 1, 0]
        lines = [row(0, outcomes=outcomes, trial=[0, 1, 2], seed=of_folder)]
        write_run(tmp_path / folder, lines)
    (run,) = read_runs([tmp_path / "a", tmp_path / "b"]).runs
    assert run.settings == ("a", "b")
    by_seed = dict(zip(run.seeds[0], np.asarray(run.setting[0]).tolist(), strict=True))
    assert by_seed == {1: 0, 2: 0, 11: 1, 12: 1, 13: 1}


def test_seeds_in_files_of_one_folder_are_trials_of_one_run(tmp_path):
    """NeMo-Skills writes a file per random seed, whose number is that of the trial."""
    for run in ("one", "two"):
        folder = tmp_path / run / "eval-results" / "aime25"
        folder.mkdir(parents=True)
        for seed in range(3):
            right = [seed == 1, run == "two"]
            lines = [
                {"problem": text, "generation": f"{run} {seed}", "symbolic_correct": is_right}
                for text, is_right in zip("pq", right, strict=True)
            ]
            write_rows(folder / f"output-rs{seed}.jsonl", lines)
    (run,) = read_runs([tmp_path / "one", tmp_path / "two"], models={str(tmp_path): "m"}).runs
    assert right_by_setting(run) == {"one": (1, 6), "two": (4, 6)}
