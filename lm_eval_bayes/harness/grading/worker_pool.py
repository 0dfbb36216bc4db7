"""Processes that compare formulas and can be stopped: a small pool of `equivalence` workers.

A thread cannot be stopped and an alarm works in the main thread only, so the
time limit is that of a process, which is replaced. It is one of CPU time: a
grade does not depend on what else the machine does. Plain subprocesses with a
line of JSON each way are used and not `multiprocessing`: they work from a
daemonic worker, under torchrun, from ``python -`` and after a fork, and no
pickled object of an untrusted computation ever comes back.
"""

from __future__ import annotations

import atexit
import contextlib
import json
import os
import queue
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import IO, Any, cast

from lm_eval_bayes._util.text import error_line

_WORKER_FILE = Path(__file__).with_name("equivalence.py")
# -I keeps the working directory and user settings out; the parent's own path comes as line one.
_BOOT = (
    "import sys, json, runpy; boot = json.loads(sys.stdin.readline()); "
    "sys.path[:] = boot['path']; runpy.run_path(boot['file'], run_name='__main__')"
)
#: Seconds a worker may take to import math-verify, or to reply, on a busy machine.
WAIT_LIMIT = 300.0
#: Seconds during which a failed start is not tried again.
START_PAUSE = 30.0
#: How a worker ends that has used up the CPU time of its job; Windows has no such signal.
_OUT_OF_TIME = -getattr(signal, "SIGPROF", 27)


class WorkerError(Exception):
    """A job got no reply; the message says why, in one line."""


class WorkerDied(WorkerError):
    """The process ended before it replied."""


class WorkerUnavailable(Exception):
    """No process could be started; the next attempt may do better."""


class _Worker:
    """One process, and the thread that reads its replies."""

    def __init__(self) -> None:
        self.process = subprocess.Popen(
            [sys.executable, "-I", "-c", _BOOT],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            bufsize=0,  # plain file descriptors: no buffer and no lock survives a fork half-used
            env={**os.environ, "LM_EVAL_BAYES_AUTOLOAD": "0"},
        )
        self.replies: queue.SimpleQueue[bytes | None] = queue.SimpleQueue()
        self.reader = threading.Thread(target=self._read, daemon=True, name="answer-grader")
        try:
            self.reader.start()
            path = [os.path.abspath(entry) for entry in sys.path]
            ready = self.request({"path": path, "file": str(_WORKER_FILE)})
            if not ready.get("ready"):
                raise WorkerUnavailable(f"the grading process cannot start: {ready.get('fatal')}")
        except BaseException:
            self.stop()
            raise

    def _read(self) -> None:
        with contextlib.suppress(OSError, ValueError):
            for line in cast("IO[bytes]", self.process.stdout):
                self.replies.put(line)
        self.replies.put(None)

    def request(self, message: dict[str, Any]) -> dict[str, Any]:
        stdin = cast("IO[bytes]", self.process.stdin)
        data = memoryview(json.dumps(message).encode("ascii") + b"\n")
        try:
            while data:
                data = data[stdin.write(data) :]
            line = self.replies.get(timeout=WAIT_LIMIT)
        except queue.Empty:
            raise WorkerError(f"no result within {WAIT_LIMIT:g} s") from None
        except OSError:
            raise WorkerDied("the grading process ended before it replied") from None
        if line is None:
            self.stop()
            if self.process.returncode == _OUT_OF_TIME:
                raise WorkerError(f"no result within {message['limit']:g} s of CPU time")
            raise WorkerDied("the grading process ended before it replied")
        return cast("dict[str, Any]", json.loads(line))

    def stop(self) -> None:
        self.process.kill()
        self.process.wait()
        if self.reader.is_alive():
            self.reader.join(timeout=1.0)
        for pipe in (self.process.stdin, self.process.stdout):
            if pipe is not None:
                with contextlib.suppress(OSError):
                    pipe.close()

    def detach(self) -> None:
        """In a forked child: close this copy of the parent's pipes and leave the worker running."""
        for pipe in (self.process.stdin, self.process.stdout):
            if pipe is not None:
                pipe.close()  # or the worker would outlive the parent, waiting for this copy
        self.process.returncode = 0  # it is not this process's child: nothing to wait for


class WorkerPool:
    """Up to `size` workers, started when first needed, killed when too slow.

    Parameters
    ----------
    size : int
        The most processes at once; threads beyond that wait for their turn.
    """

    def __init__(self, size: int) -> None:
        self._size = size
        self._reset()
        atexit.register(self.close)
        if hasattr(os, "register_at_fork"):
            os.register_at_fork(after_in_child=self._after_fork)

    def _reset(self) -> None:
        #: A worker per job at a time, None where none has been started; the last used is first.
        self._slots: queue.LifoQueue[_Worker | None] = queue.LifoQueue()
        for _ in range(self._size):
            self._slots.put(None)
        self._workers: set[_Worker] = set()
        self._failed: tuple[float, str] | None = None

    def _after_fork(self) -> None:
        for worker in self._workers:
            worker.detach()
        self._reset()

    def _living(self, worker: _Worker | None) -> _Worker:
        """Return the worker if it lives, else a new one."""
        if worker is not None and worker.process.poll() is None:
            return worker
        if worker is not None:
            worker.stop()
            self._workers.discard(worker)
        failed = self._failed
        if failed and time.monotonic() - failed[0] < START_PAUSE:
            raise WorkerUnavailable(failed[1])
        try:
            worker = _Worker()
        except (OSError, RuntimeError, WorkerError, WorkerUnavailable) as error:
            self._failed = (time.monotonic(), error_line(error))
            raise WorkerUnavailable(error_line(error)) from error
        self._failed = None
        self._workers.add(worker)
        return worker

    def run(self, job: dict[str, Any], limit: float) -> Any:
        """Return the value that a worker gives for one job.

        Parameters
        ----------
        job : dict
            ``op`` and ``texts``, as `equivalence` reads them.
        limit : float
            Seconds of CPU time.

        Raises
        ------
        WorkerError
            When there is none; a worker that did not reply is gone, the next job gets a new one.
        WorkerUnavailable
            When no worker could be started.
        """
        message = {**job, "limit": limit}
        worker = self._slots.get()
        try:
            worker = self._living(worker)
            try:
                reply = worker.request(message)
            except WorkerDied:  # perhaps it was idle and killed: once more, with a new one
                worker.stop()
                worker = self._living(worker)
                reply = worker.request(message)
        except BaseException:  # a time-out, or Ctrl-C in mid-job
            if worker is not None:
                worker.stop()
            raise
        finally:
            self._slots.put(worker)
        if "error" in reply:
            raise WorkerError(reply["error"])
        return reply["value"]

    def close(self) -> None:
        """Stop every worker; a later job starts a new one."""
        workers, self._workers = self._workers, set()
        for worker in workers:
            worker.stop()


#: The pool that every grade of this process shares.
POOL = WorkerPool(min(4, os.cpu_count() or 1))
