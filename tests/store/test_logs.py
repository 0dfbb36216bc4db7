"""The write-ahead log: copies of stores in use, copies that lack it, file systems without one."""

from __future__ import annotations

import logging
import shutil
import subprocess
import sys

import pytest
from _support.errors import refused
from _support.paths import REPOSITORY

from lm_eval_bayes.store import file, locations
from lm_eval_bayes.store.errors import StoreBusyError, StoreFileError
from lm_eval_bayes.store.merge import merge
from lm_eval_bayes.store.prune import verify
from lm_eval_bayes.store.trial_store import TrialStore


def journal(path):
    """Return the journal mode of a file's header: 1 for a rollback journal, 2 for a log."""
    return path.read_bytes()[18]


def test_a_store_in_use_is_copied_whole(path, store, key, make_trial, tmp_path):
    store.add([make_trial(key, i) for i in range(5)])
    assert merge([path], tmp_path / "copy.sqlite").added == 5
    assert journal(tmp_path / "copy.sqlite") == 1
    assert sorted(p.name for p in tmp_path.glob("*copy*")) == ["copy.sqlite"]
    assert verify(tmp_path / "copy.sqlite").ok
    assert store.add([make_trial(key, 5)]) == 1


def test_a_copy_without_its_log_is_told_from_a_whole_one(path, store, key, make_trial, caplog):
    store.add([make_trial(key, i) for i in range(3)])
    store.file.vacuum()  # which empties the log
    store.add([make_trial(key, i) for i in range(3, 6)])
    copy, whole = path.with_name("copy.sqlite"), path.with_name("whole.sqlite")
    shutil.copy(path, copy)
    for suffix in ("", "-wal"):
        shutil.copy(f"{path}{suffix}", f"{whole}{suffix}")
    assert verify(whole).ok
    for _ in range(2):
        report = verify(copy)
        assert report.ok
        assert "copied while it was in use" in report.notes[0]
        assert "(copy.sqlite-wal): its latest trials may be missing" in report.notes[0]
    assert verify(whole).notes == ()
    assert not [record for record in caplog.records if record.levelno >= logging.WARNING]
    with TrialStore.open(copy) as opened:  # a run goes on, and samples what is missing
        opened.describe_prompts(["another"])
    assert verify(copy).notes == ()


@pytest.mark.parametrize("is_killed", [False, True])
def test_a_store_that_its_process_did_not_close_is_whole(path, filled, is_killed):
    """Of one that was killed, the first reader folds the log in."""
    filled()
    script = (
        "import os, sys\n"
        "from lm_eval_bayes.store.trial_store import TrialStore\n"
        "store = TrialStore.open(sys.argv[1]); store.describe_prompts(['new'])\n"
        + ("os._exit(9)" if is_killed else "")
    )
    command = [sys.executable, "-c", script, str(path)]
    ended = subprocess.run(command, cwd=REPOSITORY, check=False, timeout=600)
    assert ended.returncode == (9 if is_killed else 0)
    assert path.with_name(f"{path.name}-wal").exists() == is_killed
    for _ in range(2):
        assert verify(path).ok
    assert journal(path) == 1


# -- network file systems --------------------------------------------------------------------------


@pytest.fixture
def network(tmp_path, monkeypatch):
    """Make the folder of the test appear as one on NFS."""
    table = tmp_path / "mounts"
    table.write_text(f"server:/ {tmp_path} nfs4 rw 0 0\n")
    monkeypatch.setattr(locations, "MOUNTS", str(table))


def test_on_a_network_one_process_writes_without_a_log(path, describe, make_trial, network, caplog):
    with TrialStore.open(path) as store:
        assert "is on a network file system (nfs4)" in caplog.text
        key = describe(store)
        store.add([make_trial(key, i) for i in range(3)])
        assert journal(path) == 1
        assert {p.name for p in path.parent.glob(f"{path.name}*")} <= {
            path.name,
            f"{path.name}-journal",
        }
        with refused(None, "failed", None, error=StoreBusyError):
            TrialStore.open(path, wait_s=0.1)
    assert verify(path).ok
    with TrialStore.open(path) as store:
        assert list(store.trials(key)) == [0, 1, 2]


def test_a_store_with_a_log_is_taken_to_a_network(path, store, key, make_trial, network):
    store.add([make_trial(key, 0)])
    for suffix in ("", "-wal"):
        shutil.copy(f"{path}{suffix}", f"{path}2{suffix}")
    with TrialStore.open(f"{path}2") as moved:
        assert moved.add([make_trial(key, 1)]) == 1
    assert sorted(p.name for p in path.parent.glob(f"{path.name}2*")) == [f"{path.name}2"]
    assert verify(f"{path}2").records["trials"] == 2


def test_a_file_system_without_shared_memory(path, key, store, make_trial, monkeypatch):
    """Whatever the table of mounts says, one process uses the store alone there."""
    store.add([make_trial(key, 0)])
    store.close()
    open_with = file._open_with

    def without_memory(path, wait_s, *, exclusive):
        if not exclusive:
            raise StoreFileError("disk I/O error")
        return open_with(path, wait_s, exclusive=True)

    monkeypatch.setattr(file, "_open_with", without_memory)
    with TrialStore.open(path) as alone:
        assert alone.add([make_trial(key, 1)]) == 1
        assert journal(path) == 1
    assert verify(path).records["trials"] == 2


def test_the_log_is_emptied_every_few_hundred_commits(path, store, key, make_trial):
    sizes = []
    for i in range(450):
        store.add([make_trial(key, i)])
        sizes.append(store.info().log_bytes if i % 50 == 49 else 0)
    assert max(sizes[199], sizes[399]) < 100_000
    assert 0 < sizes[349] < 2_000_000
