"""Grading in processes that can be stopped: formulas in a pool of workers, programs each in one.

A thread cannot be stopped and an alarm works in the main thread only, so the
time limit is that of a process, which is replaced. It is one of CPU time: a
grade does not depend on what else the machine does. Plain subprocesses with a
line of JSON each way are used and not `multiprocessing`: they work from a
daemonic worker, under torchrun, from ``python -`` and after a fork, and no
pickled object of an untrusted computation ever comes back.

A metric such as `code_eval` runs a program in a process with a time limit. It gets one program in
a call, so N programs that reach the limit would take N times as long. The harness itself hands all
N to the metric, which runs four at a time; so do we.
"""

from __future__ import annotations

import atexit
import contextlib
import json
import multiprocessing
import os
import queue
import signal
import subprocess
import sys
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from multiprocessing.connection import Connection, wait
from pathlib import Path
from typing import IO, Any, TypeAlias, cast

from lm_eval_bayes._util.text import error_line
from lm_eval_bayes.errors import LmEvalBayesError, TaskConfigError

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


#: Programs that run at a time, as in `code_eval`.
AT_A_TIME = 4

#: Seconds after which processes are asked whether they have ended.
_PATIENCE_S = 1.0

#: "result" and what grading gave, or "error" and a text.
Reply: TypeAlias = tuple[str, Any]


def reply(grade: Callable[[Any], Any], response: Any) -> Reply:
    """Grade one response.

    Examples
    --------
    >>> reply(int, "7"), reply(int, "x")[0]
    (('result', 7), 'error')
    """
    try:
        return "result", grade(response)
    except LmEvalBayesError:
        raise
    except (Exception, SystemExit) as error:
        return "error", f"{type(error).__name__}: {error}"


def replies(grade: Callable[[Any], Any], responses: Sequence[Any]) -> list[Reply]:
    """Grade the responses to one question, each in a process of its own where they can be forked.

    Parameters
    ----------
    grade : callable
        Takes one response.
    responses : sequence
        The programs.

    Returns
    -------
    list of Reply
        One for each response; a result is as it is read back from JSON.

    Raises
    ------
    TaskConfigError
        Where `grade` raised an error of this package.

    Examples
    --------
    >>> replies(len, ["a", "ab", "abc"])
    [('result', 1), ('result', 2), ('result', 3)]
    """
    if sys.platform != "linux":
        return [reply(grade, response) for response in responses]
    received = _in_processes(grade, responses)
    for kind, value in received:
        if kind == "configuration":
            sentence, rule, argument = value
            raise TaskConfigError(sentence, rule, argument)
    return received


def _in_processes(grade: Callable[[Any], Any], responses: Sequence[Any]) -> list[Reply]:
    """Run a process for each response, a few at a time."""
    context = multiprocessing.get_context("fork")
    received: list[Reply] = [("error", "")] * len(responses)
    waiting = deque(enumerate(responses))
    running: dict[Any, tuple[int, Any]] = {}
    receiver: Any
    try:
        while waiting or running:
            while waiting and len(running) < AT_A_TIME:
                number, response = waiting.popleft()
                receiver, sender = context.Pipe(duplex=False)
                process = context.Process(target=_send_grade, args=(sender, grade, response))
                process.start()
                sender.close()
                running[receiver] = number, process
            ended = [r for r, (_, process) in running.items() if not process.is_alive()]
            for receiver in ended or wait([*running], timeout=_PATIENCE_S):
                number, process = running.pop(receiver)
                try:
                    # a program may have left a process behind, which holds the pipe open
                    kind, value = json.loads(receiver.recv_bytes() if receiver.poll() else b"")
                    received[number] = kind, value
                    process.join()
                except (EOFError, ValueError, TypeError):
                    process.join()
                    message = f"the program ended its process, with exit code {process.exitcode}"
                    received[number] = "error", message
                receiver.close()
    finally:
        for _, process in running.values():
            process.kill()
    return received


def _send_grade(sender: Connection, grade: Callable[[Any], Any], response: Any) -> None:
    """Grade one response; errors become text, which can be sent."""
    try:
        sent = reply(grade, response)
    except LmEvalBayesError as error:
        sent = ("configuration", (str(error), error.rule, error.argument))
    # no pickle: a program may write into the pipe
    sender.send_bytes(json.dumps(sent, default=_plain).encode())


def _plain(value: Any) -> Any:
    """Return a number or an array of numpy as JSON has it, anything else as text."""
    return value.tolist() if hasattr(value, "tolist") else str(value)
