"""Compressed texts: their format, those of earlier releases, and bytes that no release wrote."""

from __future__ import annotations

import sqlite3
import zlib
from contextlib import closing

import pytest
from _support.errors import refused

from lm_eval_bayes._util.hashing import hash_bytes
from lm_eval_bayes.store import trial
from lm_eval_bayes.store.merge import merge
from lm_eval_bayes.store.prune import verify
from lm_eval_bayes.store.trial import pack, unpack
from lm_eval_bayes.store.trial_store import TrialStore

DICTIONARY = b"So we have the answer"
TEXT = b"So we have the answer 6. " * 6


def test_the_format_stays_readable():
    """Bytes as stores hold them, without and with a dictionary."""
    assert unpack(bytes.fromhex("ff00000bce57284f55c8482c4b55081e6e4c00"), {0: b""}) == (
        b"So we have " * 20
    )
    assert unpack(bytes.fromhex("ff00010bc626a860a6a730a01200"), {1: DICTIONARY}) == TEXT


def test_a_long_text_takes_less_and_is_the_same():
    text = b"".join(b"%d squared is %d. " % (i, i * i) for i in range(500))
    assert len(pack(text)) < 0.4 * len(text)
    assert unpack(pack(text), {0: b""}) == text


BAD = (
    b"\xff",
    b"\xff\x00",
    b"\xff\x00\x00",
    b"\xff\x00\x00\xff\xff",
    b"\xff\x00\x09" + pack(b"a" * 200)[3:],
    pack(b"ab" * 200)[:-1],
    pack(b"ab" * 200) + b"x",
)


def change(path, statement, *values):
    with closing(sqlite3.connect(path)) as connection:
        connection.execute(statement, values)
        connection.commit()


def test_bytes_that_no_release_wrote_are_damage(store, path, key, make_trial):
    store.add([make_trial(key)])
    for stored in BAD:
        assert unpack(stored, {0: b""}) is None
        change(path, "UPDATE trials SET text = ?", stored)
        damaged = []
        assert store.trials_of([key], damaged=damaged) == {key: {}}
        assert damaged == [(key, 0)]
        assert verify(path).n_problems == 1


def test_a_text_that_grows_without_end_is_damage(monkeypatch):
    monkeypatch.setattr(trial, "MAX_BYTES", 1_000)
    assert unpack(pack(b"a" * 1_000), {0: b""}) == b"a" * 1_000
    assert unpack(pack(b"a" * 1_001), {0: b""}) is None


@pytest.mark.parametrize("damaged", ["first", "second"])
def test_dictionaries_of_an_earlier_release_are_read(path, describe, make_trial, damaged):
    """Each is stored twice, and one copy may be damaged."""
    with TrialStore.open(path) as store:
        key = describe(store)
        store.add([make_trial(key, 0, TEXT.decode())])
    change(path, "CREATE TABLE dictionaries (id INTEGER PRIMARY KEY, hash, first, second)")
    row = (hash_bytes(DICTIONARY), DICTIONARY, DICTIONARY)
    change(path, "INSERT INTO dictionaries (hash, first, second) VALUES (?, ?, ?)", *row)
    change(path, f"UPDATE dictionaries SET {damaged} = x'00'")
    deflate = zlib.compressobj(6, zlib.DEFLATED, -15, 9, 0, DICTIONARY)
    change(
        path,
        "UPDATE trials SET text = ?",
        b"\xff\x00\x01" + deflate.compress(TEXT) + deflate.flush(),
    )
    merged = path.with_name("merged.sqlite")
    merge([path], merged)
    for file in (path, merged):
        assert verify(file).ok
        with TrialStore.open(file) as store:
            assert store.trials(key)[0].text == TEXT.decode()
    with TrialStore.open(path) as store, refused("store", "unsupported", str(path)):
        store.prune(trials_from=0, dry_run=False)
    with TrialStore.open(merged) as store:
        assert store.prune(trials_from=0, dry_run=False).trials == 1
