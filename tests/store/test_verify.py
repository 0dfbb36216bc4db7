from __future__ import annotations

import os
import random
import shutil
import sqlite3
from contextlib import closing

import pytest
from _support.errors import refused

from lm_eval_bayes.errors import LmEvalBayesError
from lm_eval_bayes.store import locations as log_module
from lm_eval_bayes.store.errors import StoreDamagedError, StoreFileError
from lm_eval_bayes.store.export import export_jsonl
from lm_eval_bayes.store.prune import MAX_PROBLEMS, verify
from lm_eval_bayes.store.trial_store import TrialStore


def random_text(length):
    return "".join(random.Random(2).choices("abcdefgh ijkl", k=length))


def change(path, *statements):
    with closing(sqlite3.connect(path)) as connection:
        for statement in statements:
            assert connection.execute(statement).rowcount != 0
        connection.commit()


def test_a_sound_store(path, filled):
    filled()
    report = verify(path)
    assert report.ok
    assert report.problems == ()
    counts = {"models": 1, "samplings": 1, "versions": 1, "prompts": 2}
    counts |= {"trials": 6, "prompt_signals": 2, "sources": 0, "outcomes": 0, "clusters": 0}
    assert report.records == counts


CHANGES_OF_A_TRIAL = (
    "text = x'34'",
    "seed = 8",
    "trial = 9",
    "signals = '{}'",
    "finish_reason = CAST(x'ff' AS TEXT)",
    "stop_reason = '5'",
    "completion_tokens = 5",
    "prompt_tokens = 5",
    "generated_s = 2.5",
    "queued_s = 2.5",
    "concurrency = 1",
    "created = created + 1",
    "hash = 'md5:00'",
)


def test_every_change_of_a_trial_by_hand_is_named(path, filled):
    filled(prompts=("one",))
    content = path.read_bytes()
    for changed in CHANGES_OF_A_TRIAL:
        path.write_bytes(content)
        change(path, f"UPDATE trials SET {changed} WHERE trial = 1")
        (problem,) = verify(path).problems
        assert problem.startswith("trial 9" if changed == "trial = 9" else "trial 1"), changed


@pytest.mark.parametrize(
    ("statement", "named"),
    [
        ("UPDATE trials SET versions = 9 WHERE trial = 1", "trial 1"),
        ("UPDATE prompts SET description = x'34' WHERE id = 2", "prompt blake2b"),
        ("UPDATE models SET description = '{}'", "model blake2b"),
        ("UPDATE models SET hash = 'x'", "model x"),
        ("UPDATE samplings SET description = '{}'", "sampling blake2b"),
        ("UPDATE versions SET description = '{}'", "versions blake2b"),
        ("DELETE FROM prompts WHERE id = 2", "prompt None"),
        ("UPDATE prompt_signals SET signals = '{}'", "prompt blake2b"),
        ("UPDATE prompt_signals SET created = x'00'", "prompt blake2b"),
    ],
)
def test_every_other_change_by_hand_is_found(path, filled, statement, named):
    filled()
    change(path, statement)
    report = verify(path)
    assert not report.ok
    assert named in "; ".join(report.problems)


def test_two_prompts_that_were_exchanged(path, filled):
    filled()
    change(
        path,
        "UPDATE trials SET prompt = 9 WHERE prompt = 1",
        "UPDATE trials SET prompt = 1 WHERE prompt = 2",
        "UPDATE trials SET prompt = 2 WHERE prompt = 9",
    )
    assert verify(path).n_problems == 6


def test_problems_are_counted_beyond_those_that_are_named(path, filled):
    filled(trials=range(200), prompts=("one",))
    change(path, "UPDATE trials SET seed = 1000")
    report = verify(path)
    assert (report.n_problems, len(report.problems)) == (200, MAX_PROBLEMS)


@pytest.fixture
def left_log(path, store, key, make_trial, tmp_path):
    """Return a copy of a store with its log, and the log's size after each of twelve commits."""
    copy, sizes = tmp_path / "killed" / path.name, []
    copy.parent.mkdir()
    for i in range(12):
        store.add([make_trial(key, i)])
        sizes.append(path.with_name(f"{path.name}-wal").stat().st_size)
    for suffix in ("", "-wal"):
        shutil.copy(f"{path}{suffix}", f"{copy}{suffix}")
    return copy, sizes


def flip(log, position):
    data = bytearray(log.read_bytes())
    data[position] ^= 1
    log.write_bytes(data)


@pytest.mark.parametrize("offset", [0, 5, 8, 16, 24 + 4095])
def test_commits_behind_a_damaged_frame_of_the_log_are_counted(left_log, offset):
    """The frame is the first of the fifth commit, of two pages: it and seven more are lost."""
    path, sizes = left_log
    log = path.with_name(f"{path.name}-wal")
    assert sizes[4] - sizes[3] == 2 * (24 + 4096)
    flip(log, sizes[3] + offset)
    damaged = log.read_bytes()
    report = verify(path)
    assert (report.ok, report.n_problems) == (False, 1)
    assert str(log) in report.problems[0]
    assert "8 commits" in report.problems[0]
    assert log.read_bytes() == damaged


@pytest.mark.parametrize("position", [0, 9, 18, 30])
def test_a_damaged_header_of_the_log_is_a_problem(left_log, position):
    path, _ = left_log
    flip(path.with_name(f"{path.name}-wal"), position)
    assert verify(path).n_problems == 1


@pytest.mark.parametrize("cut", [1, 4096 + 24])
def test_a_frame_that_a_kill_cut_off_is_no_damage(left_log, cut):
    path, sizes = left_log
    os.truncate(f"{path}-wal", sizes[-1] - cut)
    report = verify(path)
    assert (report.ok, report.records["trials"]) == (True, 11)


def test_frames_of_an_earlier_use_of_the_log_are_no_damage(path, store, key, make_trial, tmp_path):
    copy = tmp_path / "killed" / path.name
    copy.parent.mkdir()
    store.add([make_trial(key, i, random_text(4_000)) for i in range(60)])
    connection = store.file.connection()
    assert connection.execute("PRAGMA wal_checkpoint(RESTART)").fetchone()[0] == 0
    # the pages of a transaction that is rolled back go to the log if the cache is full
    connection.execute("PRAGMA cache_size = 5")
    with store.file.writing(commit=False):
        connection.execute("UPDATE trials SET seed = 1")
    store.add([make_trial(key, 60)])
    for suffix in ("", "-wal"):
        shutil.copy(f"{path}{suffix}", f"{copy}{suffix}")
    log = copy.with_name(f"{path.name}-wal").read_bytes()
    headers = [log[i : i + 24] for i in range(32, len(log), 24 + 4096)]
    assert len({header[8:16] for header in headers}) == 2
    assert sum(header[8:16] == log[16:24] for header in headers) > 10
    report = verify(copy)
    assert (report.ok, report.records["trials"]) == (True, 61)


def test_a_log_that_is_being_written_is_no_damage(path, filled, monkeypatch):
    """The second time that it is read, more frames are intact."""
    filled()
    reads = iter([(3, 2), (9, 1)])
    monkeypatch.setattr(log_module, "read_log", lambda log: next(reads))
    assert verify(path).ok
    assert not list(reads)


def test_a_log_that_cannot_be_read_is_an_error(path, filled):
    filled()
    path.with_name(f"{path.name}-wal").mkdir()
    with refused("store", "failed", error=StoreFileError):
        verify(path)


def test_random_flips_are_found_or_change_nothing(path, filled, tmp_path):
    """Whatever byte flips: the store is refused, or a problem named, or the content the same."""
    filled(trials=range(16), text="{q} {i} " + random_text(6_000))
    target = tmp_path / "a.jsonl"
    export_jsonl(path, target)
    exported, content = target.read_bytes(), path.read_bytes()
    rng = random.Random(4)
    n_detected = 0
    for _ in range(40):
        data = bytearray(content)
        data[rng.randrange(len(data))] ^= 1 << rng.randrange(8)
        path.write_bytes(data)
        try:
            if not verify(path).ok:
                n_detected += 1
                continue
        except LmEvalBayesError:
            n_detected += 1
            continue
        export_jsonl(path, target, overwrite=True)
        assert target.read_bytes() == exported
    assert n_detected > 15


def test_a_run_goes_on_without_commits_behind_the_damage(left_log, caplog, key):
    path, sizes = left_log
    flip(path.with_name(f"{path.name}-wal"), sizes[3] + 100)
    with refused(None, "damaged", None, error=StoreDamagedError):
        TrialStore.open(path, mode="read")
    with TrialStore.open(path) as store:
        assert store.numbers_of([key]) == {key: {0, 1, 2, 3}}
    assert "at least 8 commits" in caplog.text
    assert verify(path).ok
