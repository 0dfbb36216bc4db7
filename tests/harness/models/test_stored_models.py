"""The same model is the same model: under another path, commit or name."""

from __future__ import annotations

import json
import socket
import sqlite3
from contextlib import closing

import pytest
from _support.errors import refused

from lm_eval_bayes._util.hashing import model_hash
from lm_eval_bayes.harness.models.trial_sink import StoreSink, what_is_stored
from lm_eval_bayes.runs.model_arguments import keyed
from lm_eval_bayes.store.errors import OtherWeightsError
from lm_eval_bayes.store.prune import verify
from lm_eval_bayes.store.trial import Trial, TrialKey
from lm_eval_bayes.store.trial_store import TrialStore

MODEL = {
    "backend": "vllm",
    "pretrained": "org/model",
    "revision": "main",
    "commit": "hub:" + "a" * 40,
    "weights": "sha256:0a",
    "settings": "blake2b-128:05",
    "dtype": "bfloat16",
    "tokenizer": None,
    "tokenizer_revision": None,
    "tokenizer_files": "sha256:0b",
    "chat_template": "blake2b-128:0c",
}
COPY = {**MODEL, "pretrained": "/mnt/scratch/copy", "revision": None, "commit": None}
COPY |= {"tokenizer": "/mnt/scratch/tokenizer"}


def sources_in(path):
    """Return the recorded sources of all models, with the hash of each."""
    with closing(sqlite3.connect(path)) as connection:
        rows = connection.execute(
            "SELECT models.hash, s.description FROM sources AS s JOIN models ON id = model "
            "ORDER BY s.created"
        )
        return [(digest, json.loads(source)) for digest, source in rows]


def describe(path, fingerprint, n=0, temperature=0.6):
    """Describe a model as a run does, add trials, and return its hash."""
    sink = StoreSink.open(str(path), 0, fingerprint)
    digest = sink.describe_model(fingerprint)
    if n:
        sampling = sink.store.describe_sampling({"temperature": temperature, "top_p": 1.0})
        key = TrialKey(digest, sink.store.describe_prompts(["What is 6 times 7?"])[0], sampling)
        for i in range(n):
            sink.add(Trial(key, i, str(i)))
    sink.store.close()
    return digest


def test_a_copy_in_another_folder_is_the_same_model(path):
    digest = describe(path, MODEL)
    assert describe(path, COPY) == digest == model_hash(keyed(MODEL)[0])
    host = socket.gethostname()
    assert sources_in(path) == [
        (digest, {k: MODEL[k] for k in ("pretrained", "revision", "commit")} | {"host": host}),
        (digest, {k: COPY[k] for k in ("pretrained", "tokenizer")} | {"host": host}),
    ]
    with TrialStore.open(path, mode="read") as store:
        assert store.model(digest)["pretrained"] == "org/model"
        assert store.info().models[digest]["pretrained"] == "org/model"
    assert verify(path).ok


@pytest.mark.parametrize(
    "changed",
    [
        {"weights": "sha256:ff", "pretrained": "other"},
        {"dtype": "float16"},
        {"quantization": "fp8"},
        {"tokenizer_files": "sha256:ff"},
        {"chat_template": None},
        {"settings": "blake2b-128:ff"},
    ],
)
def test_what_changes_the_distribution_is_another_model(path, changed):
    assert describe(path, {**COPY, **changed}) != describe(path, MODEL)


def test_other_weights_under_the_same_path_are_refused(path):
    describe(path, COPY)
    with refused(None, "mismatch", None, error=OtherWeightsError):
        describe(path, {**COPY, "weights": "sha256:0d"})


def test_weights_that_only_a_commit_tells_are_kept_apart_by_name(path):
    identity = "hub:" + "a" * 40
    commit = {**MODEL, "weights": identity, "tokenizer_files": identity}
    assert describe(path, commit) != describe(path, {**commit, "pretrained": "/mnt/other"})


def test_what_a_store_has_in_place_of_the_trials(path):
    describe(path, MODEL, n=4, temperature=0.7)
    digest = describe(path, {**COPY, "dtype": "float16"}, n=3)
    describe(path, {**MODEL, "weights": None, "dtype": "float32"}, n=1)
    describe(path, {**MODEL, "weights": "sha256:99", "pretrained": "stranger"}, n=1)
    with TrialStore.open(path) as store:
        (asked,) = [s for s in store.info().samplings if store.sampling(s)["temperature"] == 0.6]
        own = describe(path, COPY)
        of_settings, of_weights, of_name = what_is_stored(store, own, [asked])
        of_prompts = what_is_stored(store, digest, [asked])[0]
    for note, names in (
        (of_settings, ("4 trials", "temperature 0.7", "0.6")),
        (of_weights, ("3 trials", "dtype float16", "bfloat16")),
        (of_name, ("1 trial", "dtype float32", "weights None", "sha256:0a")),
        (of_prompts, ("3 trials", "prompts")),
    ):
        assert all(name in note for name in names), note


@pytest.fixture
def path(tmp_path):
    return tmp_path / "trials.sqlite"
