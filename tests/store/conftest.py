"""Stores for the tests, and a way to read them that does not go through the package."""

from __future__ import annotations

import sqlite3
import zlib
from contextlib import closing

import pytest

from lm_eval_bayes.store import file
from lm_eval_bayes.store.trial import Trial, TrialKey
from lm_eval_bayes.store.trial_store import TrialStore

PROMPT = "What is 6 times 7?"
FINGERPRINT = {"backend": "vllm", "pretrained": "some/model", "weights": "sha256:aa"}
SAMPLING = {"temperature": 0.6, "top_p": 0.95, "until": ["\n\n"]}


def describe_key(store, prompt=PROMPT, fingerprint=FINGERPRINT, sampling=SAMPLING):
    return TrialKey(
        model=store.describe_model(fingerprint),
        prompt=store.describe_prompts([prompt])[0],
        sampling=store.describe_sampling(sampling),
    )


def full_trial(key, trial=0, text="It is 42.", **changes):
    fields = {
        "seed": 7,
        "signals": {"bits": 1.25, "closed": True, "tokens": [1, 2]},
        "prompt_tokens": 9,
        "completion_tokens": 4,
        "finish_reason": "stop",
        "stop_reason": "\n\n",
        "queued_s": 0.5,
        "generated_s": 2.25,
        "concurrency": 64,
        "versions": {"vllm": "0.32.0", "torch": "2.13.0"},
        "created": 1_790_000_000.5,
    }
    return Trial(key, trial, text, **{**fields, **changes})


def plain_text(stored):
    return stored if stored[:1] != b"\xff" else zlib.decompress(stored[3:], -15)


def read_plainly(path):
    """Return {(model, prompt, sampling, trial): (seed, text)} by SQL of our own."""
    with closing(sqlite3.connect(path)) as connection:
        rows = connection.execute(
            "SELECT models.hash, prompts.hash, samplings.hash, trial, seed, text FROM trials "
            "JOIN models ON models.id = model JOIN prompts ON prompts.id = prompt "
            "JOIN samplings ON samplings.id = sampling"
        ).fetchall()
        assert connection.execute("PRAGMA integrity_check").fetchall() == [("ok",)]
    trials = {
        tuple(row[:4]): (row[4], plain_text(row[5]).decode("utf-8", "surrogatepass"))
        for row in rows
    }
    assert len(trials) == len(rows)
    return trials


@pytest.fixture
def path(tmp_path):
    return tmp_path / "trials.sqlite"


@pytest.fixture
def store(path):
    with TrialStore.open(path) as store:
        yield store


@pytest.fixture
def key(store):
    return describe_key(store)


def keys_in(store):
    """Return the keys of trials by SQL of our own, with their number of trials."""
    with store.file.reading() as connection:
        rows = connection.execute(
            "SELECT m.hash, p.hash, s.hash, count(*) FROM trials JOIN models AS m ON m.id = model "
            "JOIN prompts AS p ON p.id = prompt JOIN samplings AS s ON s.id = sampling "
            "GROUP BY model, prompt, sampling"
        ).fetchall()
    return {TrialKey(*row[:3]): row[3] for row in rows}


@pytest.fixture
def keys_of():
    return keys_in


@pytest.fixture
def describe():
    return describe_key


@pytest.fixture
def make_trial():
    return full_trial


@pytest.fixture
def plainly():
    return read_plainly


@pytest.fixture
def filled(tmp_path):
    """Return a function that makes a closed store of the given trials and returns its path."""

    def make(
        name="trials.sqlite",
        trials=(0, 1, 2),
        prompts=("one", "two"),
        text="{q} {i}",
        seed=0,
        **more,
    ):
        path = tmp_path / name
        with TrialStore.open(path) as store:
            for prompt in prompts:
                key = describe_key(store, prompt)
                store.add(
                    [
                        full_trial(key, i, text.format(q=prompt, i=i), seed=seed + i, **more)
                        for i in trials
                    ]
                )
                store.add_prompt_signals(key.model, key.prompt, {"bits": 0.5})
        return path

    return make


@pytest.fixture
def appears_meanwhile(monkeypatch, filled):
    """Let another process create a store just before this one puts its own there."""
    publish = file.publish

    def publish_too_late(temporary, target):
        monkeypatch.setattr(file, "publish", publish)
        filled(target.name)
        return publish(temporary, target)

    monkeypatch.setattr(file, "publish", publish_too_late)
