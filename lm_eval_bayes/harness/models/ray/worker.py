"""A worker: one engine in a process of its own, fed with requests one by one.

It is an ordinary class, of which Ray makes an actor whose methods run in threads. Its constructor
runs in the main thread, so that the processes of an engine end with the worker.
"""

from __future__ import annotations

import os
import platform
import threading
from collections import deque
from collections.abc import Sequence
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

from lm_eval_bayes.harness.models.backends import canonical_name, sampling_mixin, stock_class
from lm_eval_bayes.harness.models.interface import RequestStream, SamplingMixin, TrialRequest
from lm_eval_bayes.harness.models.ray.schedule import WorkerDescription, WorkerRequest, WorkerSetup
from lm_eval_bayes.store.trial import Trial

#: Seconds after which a worker that has finished nothing answers all the same.
PATIENCE_S = 1.0


class TrialWorker:
    """Builds a backend and samples trials with it.

    A session is one call of the driver's `sample`: its questions are sent once, its requests as
    slots fall free.

    Parameters
    ----------
    setup : WorkerSetup
        The backend and its arguments.
    """

    def __init__(self, setup: WorkerSetup) -> None:
        self._session: Session | None = None
        self._thread: threading.Thread | None = None
        self._problem: Exception | None = None
        try:
            if Path(setup.folder).is_dir():
                os.chdir(setup.folder)
            self._model: Any = build(setup)
            # before the weights are loaded, as the driver determines it
            fingerprint = self._model.fingerprint()
            self._versions = dict(self._model.versions())
            self._model.load()
            self._description = WorkerDescription(
                platform.node(), os.getpid(), max(1, int(self._model.slots)), fingerprint
            )
        except Exception as error:  # raised here, it would reach the driver as text alone
            self._problem = error

    def describe(self) -> WorkerDescription:
        """Return what the worker is, or raise the exception for which it is none."""
        if self._problem is not None:
            raise self._problem
        return self._description

    def sample(
        self,
        session: int,
        requests: Sequence[WorkerRequest],
        questions: Sequence[TrialRequest] | None = None,
    ) -> list[tuple[int, Trial]]:
        """Take further requests, and return the trials that are finished by their numbers.

        Waits for the first one, but not long.

        Parameters
        ----------
        session : int
            The number of the session; a late call of an earlier one is ignored.
        requests : sequence of WorkerRequest
            What is to be sampled too.
        questions : sequence of TrialRequest, optional
            Those of the session, with its first call: it begins once the one before has ended.

        Raises
        ------
        Exception
            That of the backend, once the trials that were finished before it are returned.
        """
        if questions is not None:
            if self._session is not None and self._thread is not None:
                self._session.cancel()
                self._thread.join()
            self._session = Session(session, questions)
            self._thread = threading.Thread(target=self._run, args=(self._session,), daemon=True)
            self._thread.start()
        current = self._session
        if current is None or current.number != session:
            return []
        return current.exchange(requests, PATIENCE_S)

    def cancel(self, session: int) -> None:
        """End a session; what is running is cancelled."""
        if self._session is not None and self._session.number == session:
            self._session.cancel()

    def _run(self, session: Session) -> None:
        try:
            while session.wait_for_requests():
                session.measured.clear()
                with closing(self._model.sample(session, session.measured)) as sampled:
                    for request, trial in sampled:
                        session.add(request.index, replace(trial, versions=self._versions))
                        if session.is_over:
                            break
        except Exception as error:
            session.fail(error)


def build(setup: WorkerSetup) -> SamplingMixin:
    """Return the backend of a worker: its sampling mixin before the harness's class."""
    stock = stock_class(setup.backend)
    name = canonical_name(setup.backend)
    members = {"backend_name": name}
    kind = type(f"Worker{stock.__name__}", (sampling_mixin(name), stock), members)
    model: SamplingMixin = kind(**setup.arguments)
    model.given_arguments = dict(setup.arguments)
    return model


class Session(RequestStream):
    """The requests that a worker has, as a stream, and the trials that it has finished.

    Methods may be called from any thread.

    Attributes
    ----------
    measured : set of str
        Prompts of the requests that were taken and measure it.
    """

    def __init__(self, number: int, questions: Sequence[TrialRequest]) -> None:
        super().__init__(questions, 0, iter(()))
        self.number = number
        self.measured: set[str] = set()
        self._changed = threading.Condition()
        self._waiting: deque[WorkerRequest] = deque()
        self._finished: list[tuple[int, Trial]] = []
        self._failure: Exception | None = None
        self._is_cancelled = False

    @property
    def is_over(self) -> bool:
        """Whether running requests are to be cancelled."""
        return self._is_cancelled

    # -- for the driver ------------------------------------------------------------------------

    def exchange(
        self, requests: Sequence[WorkerRequest], patience_s: float
    ) -> list[tuple[int, Trial]]:
        """Add requests, and return the finished trials; wait for the first one."""
        with self._changed:
            self._waiting.extend(requests)
            self._changed.notify_all()
            self._changed.wait_for(
                lambda: self._finished or self._failure or self._is_cancelled, patience_s
            )
            finished, self._finished = self._finished, []
            if self._failure is not None and not finished:
                raise self._failure
            return finished

    def cancel(self) -> None:
        """End the session."""
        with self._changed:
            self._is_cancelled = True
            self._changed.notify_all()

    # -- for the thread that samples -------------------------------------------------------------

    def wait_for_requests(self) -> bool:
        """Wait for a request; return False once the session is over."""
        with self._changed:
            self._changed.wait_for(lambda: self._waiting or self._is_cancelled)
            return not self._is_cancelled

    def __next__(self) -> TrialRequest:
        """Return the next request; None where none waits at present."""
        with self._changed:
            if self._is_cancelled:
                raise StopIteration
            if not self._waiting:
                return None  # type: ignore[return-value]
            request = self._waiting.popleft()
        question = self.questions[request.question]
        if request.measures:
            self.measured.add(question.prompt)
        return replace(question, index=request.number, trial=request.trial, seed=request.seed)

    def add(self, number: int, trial: Trial) -> None:
        """Add a finished trial."""
        with self._changed:
            self._finished.append((number, trial))
            self._changed.notify_all()

    def fail(self, failure: Exception) -> None:
        """Record why no further trial is sampled."""
        with self._changed:
            self._failure = failure
            self._changed.notify_all()
