from __future__ import annotations

import json
import os
import sqlite3
from contextlib import closing

import pytest
from _support.errors import refused

from lm_eval_bayes.store.errors import (
    StoreDamagedError,
    StoreFileError,
    TrialConflictError,
)
from lm_eval_bayes.store.merge import merge
from lm_eval_bayes.store.prune import verify
from lm_eval_bayes.store.trial_store import TrialStore


@pytest.fixture
def shards(filled):
    """Three slices of one job array; the second overlaps the first, which is the same there."""
    return [
        filled("a.sqlite", trials=range(0, 4)),
        filled("b.sqlite", trials=range(3, 8), created=5.0, generated_s=9.0),
        filled("c.sqlite", trials=range(0, 2), prompts=("three",)),
    ]


def test_shards_become_one_store(shards, path, plainly, keys_of):
    report = merge(shards, path)
    assert (report.added, report.known, report.n_conflicts) == (8 + 8 + 2, 2, 0)
    assert report.target == str(path)
    wanted = {}
    for shard in reversed(shards):
        wanted.update(plainly(shard))
    assert plainly(path) == wanted
    assert verify(path).ok
    with TrialStore.open(path, mode="read") as store:
        info = store.info()
        keys = keys_of(store)
        assert sorted(keys.values()) == [2, 8, 8]
        assert (info.prompts, info.prompt_signals, len(info.models)) == (3, 3, 1)
        # Of a trial that two shards hold the first one's measurements are kept.
        key = next(key for key in keys if store.prompt(key.prompt) == "one")
        assert store.trials(key)[3].generated_s == 2.25
        assert store.trials(key)[4].generated_s == 9.0
    assert json.loads(json.dumps(report.to_dict()))["conflicts"] == []


def test_merging_again_adds_nothing(shards, path, plainly):
    merge(shards, path)
    before = plainly(path)
    # As a shell writes `merge *.sqlite trials.sqlite`: the target is among the sources.
    report = merge([*shards, path, shards[0]], path)
    assert (report.added, report.known) == (0, 4 * 2 + 5 * 2 + 2)
    assert plainly(path) == before


def test_conflicts_are_named_and_nothing_is_merged(shards, filled, path, plainly):
    other = filled("d.sqlite", trials=(2, 9), text="{q} {i} otherwise")
    with refused(None, "mismatch", None, error=TrialConflictError) as caught:
        merge([shards[2], *shards[:2], other], path)
    assert not path.exists()
    assert sorted(os.listdir(path.parent)) == ["a.sqlite", "b.sqlite", "c.sqlite", "d.sqlite"]
    assert (len(set(caught.value.conflicts)), caught.value.n_conflicts) == (2, 2)
    for conflict in caught.value.conflicts:
        assert conflict.startswith("trial 2 of prompt ")
        assert conflict.endswith(f"has another text in {other}")


def test_conflicts_with_the_target_leave_it_as_it_was(shards, filled, plainly):
    target = filled("target.sqlite", trials=(1,), text="{q} {i} otherwise")
    before = plainly(target)
    with refused(None, "mismatch", None, error=TrialConflictError):
        merge(shards, target)
    assert plainly(target) == before
    with TrialStore.open(target, mode="read") as store:
        assert store.info().prompts == 2
    assert verify(target).ok


def test_conflicts_are_counted_beyond_those_that_are_listed(filled, path, monkeypatch):
    from lm_eval_bayes.store import merge as module

    monkeypatch.setattr(module, "MAX_CONFLICTS", 7)
    parts = [
        filled("a.sqlite", trials=range(20)),
        filled("b.sqlite", trials=range(20), text="{q} {i} otherwise"),
        filled("c.sqlite", trials=range(4), text="{q} {i} once more"),
    ]
    with refused(None, "mismatch", None, error=TrialConflictError) as caught:
        merge(parts, path)
    assert (len(caught.value.conflicts), caught.value.n_conflicts) == (7, 48)
    assert not path.exists()


def test_keeping_the_first(shards, filled, path, plainly):
    other = filled("d.sqlite", trials=(2, 9), text="{q} {i} otherwise")
    report = merge([*shards, other], path, keep_first=True)
    assert (report.added, report.known, report.n_conflicts) == (20, 2, 2)
    assert all(conflict.startswith("trial 2 ") for conflict in report.conflicts)
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


def test_a_store_alone_is_not_merged(shards):
    with refused("target", "duplicate", str(shards[0])):
        merge([shards[0], shards[0]], shards[0])


def test_a_target_that_appears_meanwhile_is_not_replaced(shards, path, plainly, appears_meanwhile):
    with refused("target", "path", error=StoreFileError):
        merge(shards, path)
    assert {row_id[3] for row_id in plainly(path)} == {0, 1, 2}
