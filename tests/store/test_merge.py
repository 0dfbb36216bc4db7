from __future__ import annotations

import json
import os
import sqlite3
import subprocess
import sys
from contextlib import closing

import pytest
from _support.errors import refused

from lm_eval_bayes.store.errors import (
    StoreDamagedError,
    StoreFileError,
    TrialConflictError,
)
from lm_eval_bayes.store.merge import merge
from lm_eval_bayes.store.trial_store import TrialStore
from lm_eval_bayes.store.verify import verify


@pytest.fixture
def shards(filled):
    """Three slices of one job array; the second overlaps the first, which is the same there."""
    return [
        filled("a.sqlite", trials=range(0, 4)),
        filled("b.sqlite", trials=range(3, 8), created=5.0, generated_s=9.0),
        filled("c.sqlite", trials=range(0, 2), prompts=("three",)),
    ]


def test_shards_become_one_store(shards, path, plainly):
    report = merge(shards, path)
    assert (report.added, report.known, report.n_conflicts) == (8 + 8 + 2, 2, 0)
    assert (report.target, report.sources) == (str(path), tuple(map(str, shards)))
    wanted = {}
    for shard in reversed(shards):
        wanted.update(plainly(shard))
    assert plainly(path) == wanted
    assert verify(path).ok
    with TrialStore.open(path, mode="read") as store:
        info = store.info()
        assert sorted(info.counts.values()) == [2, 8, 8]
        assert (info.prompts, info.prompt_signals, len(info.models)) == (3, 3, 1)
        # Of a trial that two shards hold the first one's measurements are kept.
        key = next(key for key in info.counts if store.prompt(key.prompt) == "one")
        assert store.trials(key)[3].generated_s == 2.25
        assert store.trials(key)[4].generated_s == 9.0
    assert json.loads(json.dumps(report.to_dict()))["conflicts"] == []


def test_merging_again_adds_nothing(shards, path, plainly):
    merge(shards, path)
    before = plainly(path)
    # As a shell writes `merge *.sqlite trials.sqlite`: the target is among the sources.
    report = merge([*shards, path, shards[0]], path)
    assert (report.added, report.known) == (0, 4 * 2 + 5 * 2 + 2)
    assert report.sources == tuple(map(str, shards))
    assert plainly(path) == before


def test_conflicts_are_named_and_nothing_is_merged(shards, filled, path, plainly):
    other = filled("d.sqlite", trials=(2, 9), text="{q} {i} otherwise")
    with refused(None, "mismatch", None, error=TrialConflictError) as caught:
        merge([shards[2], *shards[:2], other], path)
    assert not path.exists()
    assert sorted(os.listdir(path.parent)) == ["a.sqlite", "b.sqlite", "c.sqlite", "d.sqlite"]
    assert {(c.trial, c.what, c.first, c.second) for c in caught.value.conflicts} == {
        (2, "text", str(shards[0]), str(other))
    }
    assert len({c.key for c in caught.value.conflicts}) == 2
    assert str(shards[0]) in str(caught.value)
    assert str(other) in str(caught.value)


def test_conflicts_with_the_target_leave_it_as_it_was(shards, filled, plainly):
    target = filled("target.sqlite", trials=(1,), text="{q} {i} otherwise")
    before = plainly(target)
    with refused(None, "mismatch", None, error=TrialConflictError) as caught:
        merge(shards, target)
    first = str(caught.value.conflicts[0])
    assert f"has one text in {target} and another in {shards[0]}" in first
    assert plainly(target) == before
    with TrialStore.open(target, mode="read") as store:
        assert store.info().prompts == 2
    assert verify(target).ok


def test_many_conflicts_are_summed_up(filled, path, monkeypatch):
    from lm_eval_bayes.store import merge as module

    monkeypatch.setattr(module, "MAX_CONFLICTS", 7)
    parts = [
        filled("a.sqlite", trials=range(20)),
        filled("b.sqlite", trials=range(20), text="{q} {i} otherwise"),
        filled("c.sqlite", trials=range(4), text="{q} {i} once more"),
    ]
    with refused(None, "mismatch", None, error=TrialConflictError) as caught:
        merge(parts, path)
    assert "48 in text, of 2 prompts and 1 model" in str(caught.value)
    assert (len(caught.value.conflicts), caught.value.n_conflicts) == (7, 48)
    assert not path.exists()


def test_keeping_the_first(shards, filled, path, plainly):
    other = filled("d.sqlite", trials=(2, 9), text="{q} {i} otherwise")
    report = merge([*shards, other], path, keep_first=True)
    assert (report.added, report.known, report.n_conflicts) == (20, 2, 2)
    assert [conflict.trial for conflict in report.conflicts] == [2, 2]
    texts = {text for _, text in plainly(path).values()}
    assert {"one 2", "two 2", "one 9 otherwise"} <= texts
    assert "one 2 otherwise" not in texts


def test_a_seed_that_differs_is_a_conflict(filled, path):
    with refused(None, "mismatch", None, error=TrialConflictError):
        merge([filled("a.sqlite"), filled("b.sqlite", seed=9)], path)


@pytest.mark.parametrize(
    "damage",
    [
        "UPDATE trials SET text = x'00' WHERE trial = 5 AND prompt = 1",
        "UPDATE prompt_signals SET signals = '{}'",
        "DELETE FROM prompts WHERE id = 1",
        "DELETE FROM versions WHERE id = 1",
    ],
)
def test_a_damaged_source_is_an_error_and_nothing_is_merged(shards, path, damage):
    with closing(sqlite3.connect(shards[1])) as connection:
        connection.execute(damage)
        connection.commit()
    with refused(None, "damaged", None, error=StoreDamagedError):
        merge(shards, path)
    assert not path.exists()


def test_two_weights_under_one_name_are_noted(path, tmp_path, describe, make_trial):
    for name in "abc":
        with TrialStore.open(tmp_path / f"{name}.sqlite") as store:
            model = {"pretrained": "m", "weights": f"sha256:{name}"}
            store.add([make_trial(describe(store, fingerprint=model))])
    report = merge([tmp_path / f"{name}.sqlite" for name in "abc"], path)
    assert report.added == 3
    assert len(report.notes) == 1
    assert "the model m has more than one set of weights" in report.notes[0]


def test_a_store_alone_is_not_merged(shards):
    with refused("target", "duplicate", str(shards[0])):
        merge([shards[0], shards[0]], shards[0])


def test_of_two_aliases_of_one_name_the_first_stays(filled, tmp_path, path):
    """Also where the target has it, and the model that it names is not the source's."""
    sources = [filled("a.sqlite"), filled("b.sqlite")]
    for source, weights in zip(sources, ("sha256:0a", "sha256:0b"), strict=True):
        with TrialStore.open(source) as store:
            model = store.describe_model({"pretrained": "org/model", "weights": weights})
            store.add_alias("model-x", model)
    merge(sources, path)
    merge(sources[1:], path)
    with TrialStore.open(path, mode="read") as store:
        assert store.model(store.aliases()["model-x"])["weights"] == "sha256:0a"
    assert verify(path).ok


def test_a_target_that_appears_meanwhile_is_not_replaced(shards, path, plainly, appears_meanwhile):
    with refused("target", "path", error=StoreFileError):
        merge(shards, path)
    assert {row_id[3] for row_id in plainly(path)} == {0, 1, 2}


def test_what_a_killed_merge_left_is_removed(shards, path):
    """It is of a process that has ended, unless somebody, maybe of a container, writes to it."""
    ended = subprocess.Popen([sys.executable, "-c", ""])
    ended.wait()
    left = [
        path.with_name(f".{path.name}.{pid}-0123456{i}.tmp")
        for i, pid in enumerate((ended.pid, ended.pid, os.getpid()))
    ]
    for file in left:
        with closing(sqlite3.connect(file)) as connection:
            connection.execute("CREATE TABLE t (a)")
    journal = left[0].with_name(f"{left[0].name}-journal")
    journal.touch()
    with closing(sqlite3.connect(left[1], isolation_level=None)) as writer:
        writer.execute("BEGIN IMMEDIATE")
        merge(shards, path)
    assert [file.exists() for file in (*left, journal)] == [False, True, True, False]
