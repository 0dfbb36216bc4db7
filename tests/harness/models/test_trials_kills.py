"""`--model trials` under kill -9: no committed trial lost, none doubled, the same results."""

from __future__ import annotations

import hashlib
import json
import os
import signal
import sqlite3
import subprocess
import sys
from contextlib import closing

import pytest
from _support.paths import REPOSITORY, SUPPORT

from lm_eval_bayes.store.prune import verify
from lm_eval_bayes.store.trial import unpack
from lm_eval_bayes.store.trial_store import TrialStore

pytestmark = pytest.mark.skipif(os.name != "posix", reason="needs fork and SIGKILL")

SCRIPT = "_support.trials_runs"
PATHS = os.pathsep.join([str(REPOSITORY), str(SUPPORT.parent)])
QUESTIONS, N = 40, 40


def scene(*arguments):
    done = subprocess.run(
        [sys.executable, "-m", SCRIPT, *map(str, arguments)],
        capture_output=True,
        text=True,
        timeout=1800,
        env={**os.environ, "PYTHONPATH": PATHS, "LOGLEVEL": "ERROR"},
    )
    assert done.returncode == 0, done.stderr[-3000:]
    return json.loads(done.stdout.strip().splitlines()[-1])


def stored(path):
    """Return {(prompt, trial): hash of the text} by SQL of our own; each pair stands once."""
    with closing(sqlite3.connect(path)) as connection:
        rows = connection.execute(
            "SELECT prompts.hash, trial, text FROM trials JOIN prompts ON prompts.id = prompt"
        ).fetchall()
        assert connection.execute("PRAGMA integrity_check").fetchall() == [("ok",)]
        hashes = {
            (prompt, trial): hashlib.sha256(unpack(text, {0: b""})).hexdigest()
            for prompt, trial, text in rows
        }
    assert len(hashes) == len(rows)
    return hashes


def graded(path):
    with TrialStore.open(path, mode="read") as store:
        return store.outcomes_of()


def read(path):
    return json.loads(path.read_text(encoding="utf-8"))


@pytest.mark.slow
def test_a_run_that_is_killed_comes_to_the_same_results(tmp_path):
    kills = 50
    report = scene("killed", tmp_path, kills, 1)
    assert len(report["codes"]) == kills
    assert set(report["codes"]) <= {-signal.SIGPROF, 0}
    n_killed = report["codes"].count(-signal.SIGPROF)
    # Kills that cannot hit anything would prove nothing.
    assert n_killed >= kills * 0.5
    assert sum(size > 0 for size in report["sizes"]) >= kills * 0.5
    assert report["ends"] == [0, 0]
    complete, last, again = (
        read(tmp_path / f"{name}.json") for name in ("whole", "killed", "again")
    )
    assert last["rows"] == complete["rows"] == again["rows"]
    assert last["samples"] == complete["samples"] == again["samples"]
    assert again["trials"]["generated"] == 0
    assert again["trials"]["from_store"] == QUESTIONS * N
    # Each line is a trial that a run was told is on file.
    lines = [line.split() for line in (tmp_path / "acknowledged").read_text().splitlines()]
    logged = {(prompt, int(trial)): digest for prompt, trial, digest in lines}
    assert len(logged) == len(lines), "a trial was generated twice though it was on file"
    hashes = stored(tmp_path / "killed.sqlite")
    assert hashes == stored(tmp_path / "whole.sqlite")
    assert len(hashes) == QUESTIONS * N
    assert {trial_id: hashes.get(trial_id) for trial_id in logged} == logged
    # A kill between commit and acknowledgement leaves at most one trial untold.
    assert len(hashes) - len(logged) <= n_killed
    assert graded(tmp_path / "killed.sqlite") == graded(tmp_path / "whole.sqlite")
    assert verify(tmp_path / "killed.sqlite").ok


@pytest.mark.slow
def test_two_runs_on_one_store_at_once(tmp_path):
    assert scene("together", tmp_path, 2) == [0, 0]
    first, second = (read(tmp_path / f"{who}.json") for who in range(2))
    assert first["rows"] == second["rows"]
    assert first["samples"] == second["samples"]
    assert len(stored(tmp_path / "shared.sqlite")) == QUESTIONS * N
    report = verify(tmp_path / "shared.sqlite")
    assert report.ok
    assert report.records["outcomes"] == QUESTIONS * N
