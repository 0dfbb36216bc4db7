"""Maps in threads: their order, and what an interruption cancels."""

from __future__ import annotations

import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing

import pytest

from lm_eval_bayes._util import threads

#: Summarises runs of every kind, and prints what threads other than the main one import.
IMPORTS_OF_A_REPORT = """
import importlib.abc, sys, threading
import numpy as np
from lm_eval_bayes.analysis.report_data import report_data
from lm_eval_bayes.runs.task_run import SavedRuns, TaskRun

class Recorder(importlib.abc.MetaPathFinder):
    def find_spec(self, name, path=None, target=None):
        if threading.current_thread() is not threading.main_thread():
            imported.append(name)

imported = []
sys.meta_path.insert(0, Recorder())
rng = np.random.default_rng(0)
trials = {
    "one_trial": rng.binomial(1, 0.5, (30, 1)),
    "two_kinds": np.repeat([[1] * 4, [0] * 4], 10, axis=0),
    "wrong": np.zeros((20, 4), dtype=int),
    "binary": rng.binomial(1, 0.3, (30, 8)),
    "graded": rng.integers(0, 3, (20, 4)),
}
runs = []
for task, of_task in trials.items():
    ids = [f"{task}-{question}" for question in range(len(of_task))]
    weights = (0.0, 0.5, 1.0) if task == "graded" else (0.0, 1.0)
    runs.append(TaskRun.from_trials("m", task, list(of_task), ids, weights))
data = report_data(SavedRuns(tuple(runs)))
print(len(data.panels), imported)
"""


def test_results_are_in_the_order_of_the_items():
    assert list(threads.map_in_threads(lambda n: n * n, range(50), 4)) == [n * n for n in range(50)]


def test_a_closed_map_waits_for_running_calls_only(monkeypatch):
    begun, cancelled, called = threading.Event(), threading.Event(), []

    class Pool(ThreadPoolExecutor):
        def shutdown(self, wait=True, *, cancel_futures=False):
            super().shutdown(wait=False, cancel_futures=cancel_futures)
            cancelled.set()
            super().shutdown(wait=wait)

    def call(n):
        called.append(n)
        if n == 1:
            begun.set()
            assert cancelled.wait(60)

    monkeypatch.setattr(threads, "ThreadPoolExecutor", Pool)
    with closing(threads.map_in_threads(call, range(100), 1)) as results:
        assert next(results) is None
        assert begun.wait(60)
    assert called == [0, 1]


@pytest.mark.slow
def test_threads_of_a_report_import_nothing():
    """Ctrl-C during an import in a thread may hang: its lock may never be released."""
    ran = subprocess.run(
        [sys.executable, "-c", IMPORTS_OF_A_REPORT], capture_output=True, text=True, timeout=120
    )
    assert (ran.stdout.strip(), ran.returncode) == ("5 []", 0), ran.stderr
