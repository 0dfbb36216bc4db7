r"""The time limit: in threads, in worker processes, after runaways, after kills and forks."""

from __future__ import annotations

import multiprocessing
import os
import signal
import subprocess
import sys
import textwrap
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from _support.paths import REPOSITORY
from _support.waiting import is_alive, wait_until_gone

from lm_eval_bayes.harness.grading import worker_pool
from lm_eval_bayes.harness.grading.equivalence import __file__ as worker_file
from lm_eval_bayes.harness.grading.grade import Grade, grade
from lm_eval_bayes.harness.grading.worker_pool import (
    POOL,
    WorkerError,
    WorkerPool,
    WorkerUnavailable,
)

ROOT = REPOSITORY
# never cheap: these are equal only to something that does mathematics
RIGHT = (r"\boxed{\sqrt{8}}", r"2\sqrt{2}")
WRONG = (r"\boxed{\sqrt{12}}", r"2\sqrt{2}")
RUNAWAY = "9^{9^{9^9}}"

linux_only = pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="needs /proc")


def pids_of(pool: WorkerPool) -> list[int]:
    return [worker.process.pid for worker in pool._workers if worker.process.poll() is None]


def fresh(index: int) -> tuple[str, str]:
    """A right answer that no cache knows yet."""
    return (
        rf"\boxed{{\frac{{{2 * index}}}{{{2 * index + 2}}}}}",
        rf"\frac{{{index}}}{{{index + 1}}}",
    )


def python(*args: str, **kwargs) -> subprocess.Popen:
    return subprocess.Popen(
        [sys.executable, *args],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        **kwargs,
    )


@linux_only
def test_a_time_out_kills_the_process_and_is_remembered(monkeypatch):
    pool = WorkerPool(1)
    job = {"op": "compare", "texts": ["1", RUNAWAY]}
    assert pool.run({"op": "compare", "texts": ["2", "1+1"]}, 30) is True
    (pid,) = pids_of(pool)
    with pytest.raises(WorkerError):
        pool.run(job, 0.5)
    assert not is_alive(pid)
    pool.close()
    with monkeypatch.context() as quick:
        quick.setattr("lm_eval_bayes.harness.grading.grade.TIMEOUT", 0.5)
        first = grade(rf"\boxed{{{RUNAWAY}}}", r"\frac{7}{9}")
        assert first.error == "no result within 0.5 s of CPU time"
        pids = pids_of(POOL)
        assert grade(rf"\boxed{{{RUNAWAY}}}", r"\frac{7}{9}") == first
        assert pids_of(POOL) == pids  # from memory: no process was used up
    assert grade(*WRONG) == Grade(False, r"\sqrt{12}")  # by the next process


@linux_only
def test_a_worker_that_waits_for_a_processor_is_not_out_of_time():
    pool, job = WorkerPool(1), {"op": "compare", "texts": ["2", "1+1"]}
    assert pool.run(job, 30) is True
    (pid,) = pids_of(pool)
    os.kill(pid, signal.SIGSTOP)
    with ThreadPoolExecutor(1) as thread:
        result = thread.submit(pool.run, job, 0.5)
        time.sleep(1.0)
        os.kill(pid, signal.SIGCONT)
        assert result.result() is True
    assert pids_of(pool) == [pid]
    pool.close()


def test_threads_share_the_pool():
    pairs = [fresh(i) for i in range(3, 13)]
    with ThreadPoolExecutor(8) as threads:
        results = list(threads.map(lambda pair: grade(*pair), pairs))
    assert all(f.correct and f.error is None for f in results)
    assert len(pids_of(POOL)) <= 4


@linux_only
@pytest.mark.filterwarnings("ignore:This process .* is multi-threaded:DeprecationWarning")
def test_a_forked_child_gets_its_own_worker():
    assert grade(*fresh(101)).correct
    parent_pids = pids_of(POOL)
    assert parent_pids
    fork = multiprocessing.get_context("fork")
    parent_end, child_end = fork.Pipe()

    def in_the_child():
        child_end.send((pids_of(POOL), grade(*fresh(102)).correct, pids_of(POOL)))

    child = fork.Process(target=in_the_child, daemon=True)
    child.start()
    assert parent_end.poll(600)
    inherited, correct, own = parent_end.recv()
    child.join(600)
    parent_end.close()
    child_end.close()
    assert child.exitcode == 0
    assert (inherited, correct, len(own)) == ([], True, 1)
    assert not set(own) & set(parent_pids)
    wait_until_gone(own)
    assert grade(*fresh(103)).correct
    assert pids_of(POOL) == parent_pids


@linux_only
def test_an_idle_worker_that_somebody_killed_is_replaced():
    assert grade(*fresh(111)).correct
    killed = pids_of(POOL)
    for pid in killed:
        os.kill(pid, signal.SIGKILL)
    wait_until_gone(killed)
    assert grade(*fresh(112)) == Grade(True, r"\frac{224}{226}")


@linux_only
@pytest.mark.parametrize("busy", [False, pytest.param(True, marks=pytest.mark.slow)])
def test_no_orphan_outlives_a_killed_parent_nor_reads_its_folder(busy, tmp_path):
    (tmp_path / "sympy.py").write_text("raise SystemExit('shadowed')")
    code = textwrap.dedent(
        f"""
        import sys, threading, time
        sys.path[:] = [path for path in sys.path if path not in ("", {str(tmp_path)!r})]
        from lm_eval_bayes.harness.grading.grade import grade
        from lm_eval_bayes.harness.grading.worker_pool import POOL
        assert grade(*{RIGHT!r}).correct
        assert "lm_eval" not in sys.modules and "sympy" not in sys.modules
        if {busy}:
            job = (r"\\boxed{{{RUNAWAY}}}", r"\\frac{{1}}{{2}}")
            threading.Thread(target=grade, args=job, daemon=True).start()
            time.sleep(0.5)
        print(*(worker.process.pid for worker in POOL._workers), flush=True)
        time.sleep(600)
        """
    )
    parent = python("-c", code, cwd=tmp_path)
    try:
        pids = [int(word) for word in parent.stdout.readline().split()]
    finally:
        parent.kill()
        parent.communicate()
    assert len(pids) == 1
    wait_until_gone(pids)


def test_only_plain_numbers_reach_the_evaluator_of_sympy(tmp_path):
    code = textwrap.dedent(
        """
        import sys, runpy, sympy
        worker = runpy.run_path(sys.argv[1], run_name="worker")
        assert worker["equivalent"]("2", "1+1")
        worker["_restrict_eval"]()
        assert worker["equivalent"](r"\\frac{1}{2}", "0.5")
        assert sympy.Number("1.25") == sympy.Float(1.25)
        assert sympy.sympify("3/4") == sympy.Rational(3, 4)
        for text in ("__import__('os').system('echo x')", "f(x)", "(1).real", "[1]", "lambda: 1"):
            try:
                sympy.sympify(text)
            except Exception as error:
                assert "refused" in str(error), error
            else:
                raise SystemExit(f"evaluated {text}")
        print("fenced")
        """
    )
    child = python("-c", code, str(worker_file), cwd=tmp_path)
    out, err = child.communicate(timeout=600)
    assert out == "fenced\n", err


def test_without_a_process_the_cheap_grades_go_on_and_the_rest_is_an_error(monkeypatch, tmp_path):
    pool = WorkerPool(1)
    monkeypatch.setattr(sys, "executable", str(tmp_path / "no-python"))
    with pytest.raises(WorkerUnavailable):
        pool.run({"op": "extract", "texts": ["1"]}, 1)
    monkeypatch.setattr(worker_pool.subprocess, "Popen", pytest.fail)
    with pytest.raises(WorkerUnavailable):  # not tried again at once
        pool.run({"op": "extract", "texts": ["1"]}, 1)
    monkeypatch.setattr("lm_eval_bayes.harness.grading.grade.POOL", pool)
    assert grade(r"\boxed{12}", 12, kind="aime").correct
    assert grade(r"\boxed{\sqrt{2}}", r"\sqrt 2 + 1").error.endswith("'" + sys.executable + "'")
    assert grade(r"\boxed{\frac{1}{2}}", r"\dfrac{1}{2}") == Grade(True, r"\frac{1}{2}")
    monkeypatch.undo()  # an answer that was not compared is compared now
    assert grade(r"\boxed{\sqrt{2}}", r"\sqrt 2 + 1") == Grade(False, r"\sqrt{2}")


def test_a_worker_that_cannot_import_says_why(monkeypatch, tmp_path):
    broken = tmp_path / "math_verify"
    broken.mkdir()
    (broken / "__init__.py").write_text("raise ImportError('no grammar here')")
    monkeypatch.setattr(sys, "path", [str(tmp_path), *sys.path])
    pool = WorkerPool(1)
    with pytest.raises(WorkerUnavailable, match="no grammar here"):
        pool.run({"op": "extract", "texts": ["1"]}, 30)
    assert pids_of(pool) == []
