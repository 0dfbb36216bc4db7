"""Stores of earlier releases: the trials of every model in them are found again."""

from __future__ import annotations

import json
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

pytest.importorskip("lm_eval", reason="the harness is not installed")

from _support.earlier_stores import MODELS, PROMPTS, TRIALS, sample

from lm_eval_bayes.store.trial_store import TrialStore

SCRIPT = Path(__file__).parent / "earlier_stores" / "0_1_0.sql"
ALL = len(PROMPTS) * TRIALS


def written(path):
    """Write the store of an earlier release."""
    with closing(sqlite3.connect(path)) as connection:
        connection.executescript(SCRIPT.read_text(encoding="utf-8"))
    return path


@pytest.fixture
def store(tmp_path):
    return written(tmp_path / "trials.sqlite")


@pytest.mark.parametrize("name", MODELS)
def test_the_trials_of_a_model_are_found(store, name):
    counted = sample(store, name)
    assert (counted["generated"], counted["from_store"]) == (0, ALL)
    with TrialStore.open(store, mode="read") as opened:
        assert counted["model_key"] in opened.models()
        assert len(opened.models()) == len(MODELS)


@pytest.mark.parametrize("name", ["coin", "unknown arguments"])
def test_they_are_found_by_another_rank_too(store, name):
    store.rename(store.with_name("trials.rank1.sqlite"))
    counted = sample(store, name)
    assert (counted["generated"], counted["from_store"]) == (0, ALL)


@pytest.mark.parametrize(
    ("name", "changed"),
    [
        ("named with arguments", {"api_key": "sk-1"}),
        ("named with arguments", {"batch_size": 8, "max_retries": 9}),
        ("known here, unknown to it", {"tensor_parallel_size": 8}),
        ("at an address", {"base_url": "http://me:pw@10.0.0.1:8000/v1?key=sk-1"}),
        ("unknown arguments", {"hf_token": "sk-1"}),
    ],
)
def test_keys_and_speed_change_nothing(store, name, changed):
    counted = sample(store, name, **changed)
    assert (counted["generated"], counted["from_store"]) == (0, ALL)


@pytest.mark.parametrize(
    ("name", "changed"),
    [
        ("named with arguments", {"dtype": "float16"}),
        ("at an address", {"base_url": "http://10.0.0.2:8000/v1"}),
        ("unknown arguments", {"n_experts": 16}),
        ("unknown arguments", {"options": {"depth": [1, 2]}}),
        ("nameless", {"variant": "b"}),
    ],
)
def test_what_changes_the_model_is_another_one(store, name, changed):
    counted = sample(store, name, **changed)
    assert (counted["generated"], counted["from_store"]) == (ALL, 0)


def test_two_models_of_an_earlier_store_that_are_one_now(store):
    """One that was run with two degrees of parallelism: the trials described first count."""
    with closing(sqlite3.connect(store)) as connection:
        (first,) = connection.execute("SELECT description FROM models WHERE id = 5").fetchone()
    fingerprint = json.loads(first)
    fingerprint["arguments"]["tensor_parallel_size"] = 4
    with TrialStore.open(store) as opened:
        opened.describe_model(fingerprint)
    counted = sample(store, "known here, unknown to it", tensor_parallel_size=4)
    assert (counted["generated"], counted["from_store"]) == (0, ALL)
