"""Flipped bits: no wrong text, seed, signal or grade is ever read; what is damaged is named."""

from __future__ import annotations

import random
import shutil
import sqlite3
from contextlib import closing
from dataclasses import replace

import pytest
from _support.errors import refused

from lm_eval_bayes.errors import LmEvalBayesError
from lm_eval_bayes.runs.reader import read_runs
from lm_eval_bayes.store.errors import StoreDamagedError
from lm_eval_bayes.store.export import export_jsonl
from lm_eval_bayes.store.merge import merge
from lm_eval_bayes.store.outcomes import Cluster, GradedQuestion, GradedTask, GradedTrial
from lm_eval_bayes.store.prune import verify
from lm_eval_bayes.store.samples_export import export_samples
from lm_eval_bayes.store.trial_store import TrialStore

LETTERS = "abcdefghijklmnopqrstuvwxyz     0123456789+-=().\n"


def long_text(rng):
    return "".join(rng.choices(LETTERS, k=1_500))


@pytest.fixture
def keys(path, describe, make_trial):
    """Return the keys of a store with grades."""
    rng = random.Random(3)
    with TrialStore.open(path) as store:
        keys = [describe(store, f"Question {q}") for q in range(4)]
        trials = [make_trial(key, i, long_text(rng), seed=i) for key in keys for i in range(10)]
        store.add(trials)
        store.add_outcomes([graded(keys)])
    return keys


def graded(keys):
    questions = tuple(
        GradedQuestion(q, f"{q:02}", tuple(GradedTrial(key, i, i % 2, str(i)) for i in range(10)))
        for q, key in enumerate(keys)
    )
    return GradedTask("aime", "1.0", "none", 2, questions)


def index_page(path, table):
    """Return the offset of the only page of the index of a table."""
    with closing(sqlite3.connect(path)) as connection:
        statement = "SELECT rootpage FROM sqlite_master WHERE type = 'index' AND tbl_name = ?"
        (root,) = connection.execute(statement, (table,)).fetchone()
    return (root - 1) * 4096


def count_outcomes(path, *task):
    with TrialStore.open(path, mode="read") as store:
        (graded,) = store.outcomes_of(*task)
    return sum(len(question.trials) for question in graded.questions)


def count_trials(path):
    with TrialStore.open(path, mode="read") as store:
        return store.info().trials


def count_exported(path):
    report = export_jsonl(path, path.with_name("a.jsonl"), overwrite=True)
    return None if report.damaged else report.trials


def count_samples(path):
    (entry,) = export_samples(path, path.with_name("samples"), overwrite=True).files
    return entry.trials


def count_merged(path):
    path.with_name("merged.sqlite").unlink(missing_ok=True)
    return merge([path], path.with_name("merged.sqlite")).added


def count_in_run(path):
    return sum(run.n_trials for run in read_runs([path]).runs)


READS = {
    "outcomes": count_outcomes,
    "one task": lambda path: count_outcomes(path, "aime"),
    "info": count_trials,
    "export": count_exported,
    "samples": count_samples,
    "merge": count_merged,
    "run": count_in_run,
}
OPENS = {
    **READS,
    "merge into it": lambda path: merge([path.with_name("other.sqlite")], path),
    "write": TrialStore.open,
}


@pytest.mark.parametrize("where", ["index", "store", "log"])
def test_a_flipped_bit_loses_no_trial_without_a_word(path, tmp_path, describe, make_trial, where):
    """Every read gives all trials, or an error, or counts what is damaged."""
    whole, copy = tmp_path / "whole" / path.name, tmp_path / "copy" / path.name
    for folder in (whole.parent, copy.parent):
        folder.mkdir()
    with TrialStore.open(path) as store:
        keys = [describe(store, f"Question {q}") for q in range(4)]
        for i in range(10):
            store.add([make_trial(key, i, f"{key.prompt} {i}", seed=i) for key in keys])
        store.add_outcomes([graded(keys)])
        if where != "log":
            store.close()
        for suffix in ("", "-wal") if where == "log" else ("",):
            shutil.copy(f"{path}{suffix}", f"{whole}{suffix}")
    content = (whole if where != "log" else whole.with_name(f"{path.name}-wal")).read_bytes()
    pages = [index_page(path, "trials"), index_page(path, "outcomes")]
    spans = (
        [range(page, page + 4096) for page in pages] if where == "index" else [range(len(content))]
    )
    used = [i for span in spans for i in span if content[i]]
    rng, n_errors = random.Random(5), 0
    for read in READS.values():
        for _ in range(8):
            data = bytearray(content)
            data[rng.choice(used)] ^= 1 << rng.randrange(8)
            for file in copy.parent.glob(f"{path.name}*"):
                file.unlink()
            for suffix in ("", "-wal") if where == "log" else ("",):
                shutil.copy(f"{whole}{suffix}", f"{copy}{suffix}")
            (copy if where != "log" else copy.with_name(f"{path.name}-wal")).write_bytes(data)
            try:
                assert read(copy) in (40, None)
            except LmEvalBayesError:
                n_errors += 1
    assert n_errors > 20


@pytest.mark.parametrize("table", ["trials", "outcomes"])
@pytest.mark.parametrize("read", OPENS.values(), ids=OPENS)
def test_rows_that_an_index_hides_are_an_error(path, keys, table, read):
    """The number of entries in the header of the index's page, 40, becomes 32."""
    shutil.copy(path, path.with_name("other.sqlite"))
    data = bytearray(path.read_bytes())
    page = index_page(path, table)
    assert data[page : page + 5] == bytes([10, 0, 0, 0, 40])
    data[page + 4] ^= 8
    path.write_bytes(data)
    with refused(None, "damaged", error=StoreDamagedError) as caught:
        read(path)
    assert str(path) in str(caught.value)


def test_a_damaged_cluster_is_named_and_stored_again(path, keys):
    task = graded(keys)
    clustered = tuple(replace(q, cluster=Cluster("contest", "AIME I")) for q in task.questions)
    with TrialStore.open(path) as store:
        store.add_outcomes([replace(task, questions=clustered)])
        change(path, "UPDATE clusters SET label = x'41494d45204b' WHERE question = 2")
        with refused(None, "damaged", None, error=StoreDamagedError):
            store.outcomes_of()
        store.add_outcomes([replace(task, questions=clustered)])
        (read,) = store.outcomes_of()
    assert {q.cluster.label for q in read.questions} == {"AIME I"}


def change(path, statement):
    with closing(sqlite3.connect(path)) as connection:
        connection.execute(statement)
        connection.commit()


def test_a_damaged_grade_is_named_and_graded_again(path, keys):
    change(path, "UPDATE outcomes SET graded = graded + 1 WHERE trial = 3 AND question = 2")
    with TrialStore.open(path) as store:
        with refused(None, "damaged", None, error=StoreDamagedError):
            store.outcomes_of()
        store.add_outcomes([graded(keys)])
        assert store.outcomes_of() == (graded(keys),)
    assert verify(path).ok
