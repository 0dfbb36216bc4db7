"""Names of models, copies of files, and texts and verdicts of runs that were merged."""

from __future__ import annotations

import json
import shutil

import numpy as np
import pytest
from _support.errors import refused
from _support.run_files import LATER, TASK, row, seeded, write_run

from lm_eval_bayes.runs.reader import read_runs
from lm_eval_bayes.verifiers.judged_trials import files_to_judge

VERIFIER = {"kind": "transformers", "name": "judge"}


@pytest.mark.parametrize(
    ("results", "name"),
    [
        ({}, "org/model"),
        ({"model_name": "/data/models/checkpoint-500"}, "checkpoint-500"),
        ({"model_name": ""}, "folder"),
        ({"config": [1]}, "org/model"),
    ],
)
def test_names_of_models(tmp_path, results, name):
    write_run(tmp_path / "folder", seeded([0], 1), **{"model_name": "org/model", **results})
    assert read_runs([tmp_path]).models == (name,)


@pytest.mark.parametrize("suffix", [" (1)", "-backup"])
def test_a_copy_of_a_samples_file_is_left_out(tmp_path, suffix):
    samples = write_run(tmp_path, seeded(range(2), 1))
    duplicate = shutil.copy(samples, samples.with_name(f"{samples.stem}{suffix}.jsonl"))
    (run,) = read_runs([tmp_path]).runs
    assert (run.model, run.task, run.n_trials) == ("org/model", TASK, 8)
    assert run.sources == (str(samples),)
    (note,) = run.notes
    assert note.startswith(duplicate.name)


# -- texts and verdicts of merged runs -----------------------------------------------------------


def texts_of(run, question):
    return [trial.text for trial in run.texts[question].read()]


def test_texts_of_merged_runs_are_read_on_demand(tmp_path):
    later = [
        row(q, outcomes=[1, 0], trial=[2, 3], seed=[30 + q, 40 + q], texts=["c", "d"])
        for q in (1, 0)
    ]
    earlier = [
        row(q, outcomes=[0, 0], trial=[1, 0], seed=[10 + q, 20 + q], texts=["b", "a"])
        for q in range(3)
    ]
    write_run(tmp_path / "later", later)
    write_run(tmp_path / "earlier", earlier)
    (run,) = read_runs([tmp_path / "later", tmp_path / "earlier"]).runs
    assert [texts_of(run, q) for q in range(3)] == [list("abcd"), list("abcd"), list("ab")]
    assert [trials.tolist() for trials in run.trials] == [[0, 0, 1, 0], [0, 0, 1, 0], [0, 0]]


def test_a_file_that_changed_since_is_not_read(tmp_path):
    samples = write_run(tmp_path, [row(q, outcomes=[1]) for q in range(2)])
    (run,) = read_runs([samples]).runs
    samples.write_text("x" + samples.read_text())
    with refused("RUN", "damaged"):
        texts_of(run, 1)


def judge(samples, probability):
    """Write verdicts on every trial of a samples file; A has the given probability."""
    (file,) = files_to_judge(read_runs([samples]).runs)
    header = {"format": "lm-eval-bayes-verdicts", "version": 1, "samples": samples.name}
    lines = [{**header, "verifier": VERIFIER, "baseline": [0, 0, 0]}]
    for trial in file.trials:
        a = probability(trial.read().answer)
        about = {"doc_id": trial.doc_id, "trial": trial.trial, "text": trial.text}
        lines.append({**about, "a": a, "b": 1 - a, "c": 0.0})
    path = samples.with_name(samples.name.replace("samples_", "verdicts_"))
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    return path


def number_of(text):
    return int(text.removeprefix("seed ")) / 100


def slices(tmp_path, folders):
    """Write two slices of four trials, with the trials of the second numbered from 4."""
    second = [{**r, "signals": {**r["signals"], "trial": [4, 5, 6, 7]}} for r in seeded([1, 0], 50)]
    return (
        write_run(tmp_path / folders[0], seeded([0, 1], 10)),
        write_run(tmp_path / folders[1], second, stamp=LATER),
    )


@pytest.mark.parametrize("folders", [("a", "b"), ("b", "a"), ("a", "a")])
def test_verdicts_on_slices_reach_their_trials(tmp_path, folders):
    for samples in slices(tmp_path, folders):
        judge(samples, number_of)
    (run,) = read_runs([tmp_path], signals="all").runs
    assert (run.n_trials, run.n_judged, run.verifier) == (16, 16, VERIFIER)
    for question, seeds in enumerate(run.seeds):
        assert seeds == (10, 11, 12, 13, 50, 51, 52, 53)
        assert run.signals["verifier_a"][question].tolist() == [seed / 100 for seed in seeds]


def test_slices_that_two_verifiers_judged_are_refused(tmp_path):
    first, second = slices(tmp_path, ("a", "b"))
    judge(first, number_of)
    path = judge(second, number_of)
    path.write_text(path.read_text().replace('"judge"', '"another"'))
    (run,) = read_runs([tmp_path], signals="all").runs
    with refused("RUN", "mismatch", "judge, another"):
        _ = run.verifier


def test_slices_are_judged_file_by_file(tmp_path):
    first, second = slices(tmp_path, ("a", "b"))
    files = files_to_judge(read_runs([tmp_path]).runs)
    assert [(file.model, file.samples) for file in files] == [
        ("org/model", first),
        ("org/model", second),
    ]
    for file, seed in zip(files, (10, 50), strict=True):
        assert [(t.doc_id, t.trial, t.read().answer) for t in file.trials] == [
            (question, i, f"seed {seed + i}") for question in (0, 1) for i in range(4)
        ]


def test_a_grade_counts_whichever_file_has_it(tmp_path):
    earlier = seeded([0], 10)
    for outcomes, folder in (([None, None, 0, 1], "a"), ([1, None, 0, None], "b")):
        write_run(tmp_path / folder, [{**earlier[0], "outcomes": outcomes}])
    (run,) = read_runs([tmp_path], dedupe=True, signals="all").runs
    assert sorted(zip(run.seeds[0], run.trials[0].tolist(), strict=True)) == [
        (10, 1),
        (12, 0),
        (13, 1),
    ]
    assert run.signal_table.n_trials == 4
    assert np.nansum(run.signal_table.column("is_correct")) == 2
