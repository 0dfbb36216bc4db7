"""A real language model through `--model trials backend=hf`: stored, killed, resumed, extended."""

from __future__ import annotations

import importlib.util
import json
import os
import signal
import sqlite3
import subprocess
import sys
import time
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from _support.paths import REPOSITORY

TASK = "demo_arithmetic_bayes"
QUESTIONS = 16
REPO = REPOSITORY

pytestmark = [
    pytest.mark.slow,
    pytest.mark.by_hand,
    pytest.mark.skipif(
        any(importlib.util.find_spec(name) is None for name in ("torch", "transformers")),
        reason="needs lm-eval[hf] and torch",
    ),
]


def arguments(smollm2: Path, store: Path, trials: int) -> list[str]:
    model_args = f"backend=hf,store={store},pretrained={smollm2},dtype=float32"
    return [
        *("--model", "trials", "--model_args", model_args, "--device", "cpu"),
        *("--batch_size", "8", "--apply_chat_template", "--tasks", TASK),
        *("--metadata", json.dumps({"bayes_n": trials}), "--gen_kwargs", "max_gen_toks=16"),
        *("--limit", str(QUESTIONS)),
    ]


def stored(store: Path) -> int:
    if not store.exists():
        return 0
    try:
        with closing(sqlite3.connect(f"file:{store}?mode=ro", uri=True, timeout=30)) as connection:
            return int(connection.execute("SELECT count(*) FROM trials").fetchone()[0])
    except sqlite3.OperationalError:  # not yet made
        return 0


def killed_run(smollm2: Path, store: Path, trials: int, after: int) -> int:
    """Start a run, kill it when it has stored some trials, and return how many it has."""
    command = [sys.executable, "-m", "lm_eval_bayes", "run", *arguments(smollm2, store, trials)]
    path = os.pathsep.join(filter(None, [str(REPO), os.environ.get("PYTHONPATH")]))
    child = subprocess.Popen(
        command,
        cwd=store.parent,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        env={**os.environ, "PYTHONPATH": path, "HF_HUB_OFFLINE": "1"},
    )
    try:
        deadline = time.monotonic() + 900
        while stored(store) < after:
            assert child.poll() is None, "the run ended before it could be killed"
            assert time.monotonic() < deadline
            time.sleep(0.2)
    finally:
        child.send_signal(signal.SIGKILL)
        child.wait()
    return stored(store)


def trials_of(run: Any) -> list[list[str]]:
    return [sample["resps"][0] for sample in run.samples(TASK)]


def test_a_killed_run_resumes_extends_and_equals_an_uninterrupted_one(
    run_harness: Any, smollm2: Path, tmp_path: Path
) -> None:
    def run(store: Path, trials: int) -> Any:
        done = run_harness(*arguments(smollm2, store, trials), timeout=1500, HF_HUB_OFFLINE="1")
        done.check()
        return done

    kept = killed_run(smollm2, tmp_path / "killed.sqlite", 2, after=10)
    assert 10 <= kept < 2 * QUESTIONS
    resumed = run(tmp_path / "killed.sqlite", 2)
    assert stored(tmp_path / "killed.sqlite") == 2 * QUESTIONS
    extended = run(tmp_path / "killed.sqlite", 3)
    assert [texts[:2] for texts in trials_of(extended)] == trials_of(resumed)

    whole = run(tmp_path / "whole.sqlite", 3)
    assert trials_of(whole) == trials_of(extended)
    assert whole.rows(TASK) == extended.rows(TASK)
    assert "loading the weights" in whole.log

    again = run(tmp_path / "whole.sqlite", 3)
    assert trials_of(again) == trials_of(whole)
    assert "loading the weights" not in again.log
