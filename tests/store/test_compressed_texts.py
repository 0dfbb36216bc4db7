"""Compressed texts: their size, their format, their dictionary."""

from __future__ import annotations

import random
import sqlite3
from contextlib import closing
from dataclasses import replace

import pytest
from _support.errors import refused

from lm_eval_bayes.store import compact, texts
from lm_eval_bayes.store.errors import StoreDamagedError
from lm_eval_bayes.store.merge import merge
from lm_eval_bayes.store.texts import DICTIONARY_BYTES, SAMPLES, TextCodec, compress
from lm_eval_bayes.store.trial_store import TrialStore
from lm_eval_bayes.store.verify import verify

PHRASES = """Let me think about this step by step.|So the total number of ways is|Wait, let me check
that again.|Since the two events are independent, we multiply|Therefore the remainder is|We need to
find all integers n such that|Substituting this back into the equation gives|By symmetry, we may
assume that|Hmm, that does not look right.|The answer must be between 0 and 999.|Simplifying, we
get|Now consider the case where|The final answer is""".replace("\n", " ").split("|")


def reasoning(rng, length=2_000):
    """Return a text of the kind that models write: phrases that recur, and numbers that do not."""
    parts, size = [], 0
    while size < length:
        part = f"{rng.choice(PHRASES)} {rng.randrange(1000)} + {rng.random():.4f}x. "
        parts.append(part)
        size += len(part)
    return "".join(parts)


@pytest.fixture
def many(store, describe, make_trial):
    rng = random.Random(1)
    keys = [describe(store, f"Question {q}") for q in range(20)]
    trials = [make_trial(key, i, reasoning(rng), seed=i) for i in range(10) for key in keys]
    for start in range(0, len(trials), 20):
        store.add(trials[start : start + 20])
    return trials


def check(store, trials):
    stored = store.trials_of({trial.key for trial in trials})
    assert all(stored[trial.key][trial.trial] == trial for trial in trials)


def rows(path, statement):
    with closing(sqlite3.connect(path)) as connection:
        return connection.execute(statement).fetchall()


def test_texts_take_a_third_and_are_the_same(path, store, many):
    check(store, many)
    stored = sum(len(text) for (text,) in rows(path, "SELECT text FROM trials"))
    assert stored < 0.35 * sum(len(trial.text) for trial in many)
    ((size, copies),) = rows(path, "SELECT length(first), first = second FROM dictionaries")
    assert (size, copies) == (DICTIONARY_BYTES, 1)
    assert verify(path).ok


def test_compacting_makes_another_dictionary_and_changes_no_text(path, store, many):
    report = store.compact()
    check(store, many)
    assert (report.trials, report.damaged) == (200, 0)
    assert report.text_bytes == sum(len(trial.text) for trial in many)
    assert report.stored_bytes < 0.35 * report.text_bytes
    assert report.after == path.stat().st_size
    again = store.compact()
    assert again.stored_bytes == pytest.approx(report.stored_bytes, rel=0.05)
    assert len(rows(path, "SELECT id FROM dictionaries")) == 1
    assert verify(path).ok


def test_the_format_stays_readable(path, store):
    """Bytes as stores hold them."""
    with store.file.writing():
        codec = store.file.texts
        assert (
            codec.unpack(bytes.fromhex("ff00000bce57284f55c8482c4b55081e6e4c00"))
            == b"So we have " * 20
        )
        codec.add_dictionary(b"So we have the answer")
        packed = bytes.fromhex("ff00010bc626a860a6a730a01200")
        assert codec.unpack(packed) == b"So we have the answer 6. " * 6


@pytest.mark.parametrize(
    "stored",
    [
        b"\xff",
        b"\xff\x00",
        b"\xff\x00\x00",
        b"\xff\x00\x00\xff\xff",
        b"\xff\x00\x09" + compress(b"a" * 200)[3:],
        compress(b"ab" * 200)[:-1],
        compress(b"ab" * 200) + b"x",
    ],
)
def test_bytes_that_no_release_wrote(store, path, key, make_trial, stored):
    assert store.file.texts.unpack(stored) is None
    store.add([make_trial(key)])
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("UPDATE trials SET text = ?", (stored,))
        connection.commit()
    damaged = []
    assert store.trials_of([key], damaged=damaged) == {key: {}}
    assert damaged == [(key, 0)]
    assert verify(path).n_problems == 1
    assert store.compact().damaged == 1


def test_a_text_that_grows_without_end_is_damage(store, monkeypatch):
    monkeypatch.setattr(texts, "MAX_BYTES", 1_000)
    assert store.file.texts.unpack(compress(b"a" * 1_000)) == b"a" * 1_000
    assert store.file.texts.unpack(compress(b"a" * 1_001)) is None


@pytest.mark.parametrize("copy", ["first", "second"])
def test_one_damaged_copy_of_the_dictionary_harms_no_text(path, store, many, copy):
    store.close()
    with closing(sqlite3.connect(path)) as connection:
        connection.execute(f"UPDATE dictionaries SET {copy} = x'00'")
        connection.commit()
    report = verify(path)
    assert report.problems == ("a copy of the dictionary 1 of texts does not match its hash",)
    with TrialStore.open(path) as opened:
        check(opened, many)
        opened.compact()
        check(opened, many)
    assert verify(path).ok


def test_two_damaged_copies_are_named(path, store, many, make_trial):
    store.close()
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("UPDATE dictionaries SET first = x'00', second = x'01'")
        connection.commit()
    with TrialStore.open(path) as opened:
        for use in (
            lambda: opened.trials(many[0].key),
            lambda: opened.add([make_trial(many[0].key, 99)]),
            opened.compact,
        ):
            with refused(None, "damaged", None, error=StoreDamagedError):
                use()
    assert not verify(path).ok


def test_a_dictionary_that_is_rolled_back_is_forgotten(path, store, key, make_trial):
    rng = random.Random(2)
    trials = [make_trial(key, i, reasoning(rng)) for i in range(SAMPLES + 5)]
    with refused("prompt", "choice", "blake2b-128:00"):
        store.add([*trials, make_trial(replace(key, prompt="blake2b-128:00"))])
    assert rows(path, "SELECT id FROM dictionaries") == []
    with TrialStore.open(path) as other:
        other.add([make_trial(key, 200 + i, reasoning(rng, 800)) for i in range(SAMPLES)])
    assert len(rows(path, "SELECT id FROM dictionaries")) == 1
    store.add(trials)
    check(store, trials)
    assert verify(path).ok


def test_another_process_compacts_while_a_store_is_open(path, store, many, key, make_trial):
    check(store, many[:1])
    with TrialStore.open(path) as other:
        other.compact()
    new = make_trial(key, 50, reasoning(random.Random(8)))
    store.add([new])
    check(store, [*many, new])
    assert verify(path).ok


def test_a_merge_compresses_with_a_dictionary_of_its_own(path, store, many, tmp_path):
    target = tmp_path / "merged.sqlite"
    assert merge([path], target).added == len(many)
    with TrialStore.open(target, mode="read") as merged:
        check(merged, many)
    assert target.stat().st_size < 1.1 * path.stat().st_size + store.info().log_bytes
    assert verify(target).ok


def test_compacting_nothing(store, path):
    report = store.compact()
    assert (report.trials, report.stored_bytes) == (0, 0)
    assert verify(path).ok


def test_a_text_that_cannot_be_read_back_changes_nothing(path, store, many, monkeypatch):
    monkeypatch.setattr(TextCodec, "pack", lambda self, text: text[:-1])
    with pytest.raises(RuntimeError):
        compact.compact_store(store.file)
    monkeypatch.undo()
    check(store, many)
