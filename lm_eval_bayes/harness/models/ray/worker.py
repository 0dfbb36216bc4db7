"""A worker: one engine in a process of its own, fed with requests one by one.

It is an ordinary class, of which Ray makes an actor whose methods run in threads. Its constructor
runs in the main thread, so that the processes of an engine end with the worker.
"""

from __future__ import annotations

import os
import platform
import threading
from collections import deque
from collections.abc import Iterator, Sequence
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

from lm_eval_bayes.errors import LmEvalBayesError
from lm_eval_bayes.harness import get_logger
from lm_eval_bayes.harness.models.backends import canonical_name, sampling_mixin, stock_class
from lm_eval_bayes.harness.models.interface import RequestStream, SamplingMixin, TrialRequest
from lm_eval_bayes.harness.models.ray.messages import (
    Failure,
    Taken,
    WorkerDescription,
    WorkerRequest,
    WorkerSetup,
)
from lm_eval_bayes.store.trial import Trial

log = get_logger(__name__)

#: Seconds after which a worker that has finished nothing answers all the same.
PATIENCE_S = 30.0


class TrialWorker:
    """Builds a backend and samples trials with it.

    A session is one call of the driver's `sample`: its questions are sent once, its requests as
    slots fall free. No method raises an exception of the backend: it is sent as a
    :class:`~lm_eval_bayes.harness.models.ray.messages.Failure`.

    Parameters
    ----------
    setup : WorkerSetup
        The backend and its arguments.
    """

    def __init__(self, setup: WorkerSetup) -> None:
        self._model: Any = None
        self._session: Session | None = None
        self._thread: threading.Thread | None = None
        try:
            if Path(setup.folder).is_dir():
                os.chdir(setup.folder)
            self._model = build(setup)
            # before the weights are loaded, as the driver determines it
            fingerprint = self._model.fingerprint()
            self._versions = dict(self._model.versions())
            self._model.load()
            self._answer: WorkerDescription | Failure = WorkerDescription(
                platform.node(), os.getpid(), max(1, int(self._model.slots)), fingerprint
            )
        except Exception as error:
            self._answer = Failure.of(error, is_configuration(error))

    def describe(self) -> WorkerDescription | Failure:
        """Return what the worker is, or why it is none."""
        return self._answer

    def begin(self, session: int, questions: Sequence[TrialRequest]) -> None:
        """Begin a session, once the one before has ended."""
        if self._session is not None:
            self._session.cancel()
        if self._thread is not None:
            self._thread.join()
        self._session = Session(session, questions)
        self._thread = threading.Thread(target=self._sample, args=(self._session,), daemon=True)
        self._thread.start()

    def give(self, session: int, requests: Sequence[WorkerRequest]) -> None:
        """Add requests to a session."""
        current = self._session
        if current is not None and current.number == session:
            current.give(requests)

    def take(self, session: int) -> Taken:
        """Wait for finished trials of a session, and return them."""
        current = self._session
        if current is None or current.number != session:
            return Taken(())
        return current.take(PATIENCE_S)

    def cancel(self, session: int) -> None:
        """End a session; what is running is cancelled."""
        current = self._session
        if current is not None and current.number == session:
            current.cancel()

    def _sample(self, session: Session) -> None:
        try:
            while session.wait_for_requests():
                for request, trial in session.sampled_by(self._model):
                    session.add(request.index, replace(trial, versions=self._versions))
                    if session.is_over:
                        break
        except Exception as error:
            if session.is_over:
                log.debug("an error in a session that is over", exc_info=True)
            else:
                session.fail(Failure.of(error, is_configuration(error)))


def is_configuration(error: Exception) -> bool:
    """Return whether an error would come again in every worker: one of an argument or setting."""
    return isinstance(error, LmEvalBayesError) and isinstance(error, ValueError)


def build(setup: WorkerSetup) -> SamplingMixin:
    """Return the backend of a worker: its sampling mixin before the harness's class."""
    stock = stock_class(setup.backend)
    name = canonical_name(setup.backend)
    members = {"backend_name": name}
    kind = type(f"Worker{stock.__name__}", (sampling_mixin(name), stock), members)
    model: SamplingMixin = kind(**setup.arguments)
    model.given_arguments = dict(setup.arguments)
    return model


class Session:
    """The requests that a worker has, and the trials that it has finished.

    Methods may be called from any thread.
    """

    def __init__(self, number: int, questions: Sequence[TrialRequest]) -> None:
        self.number = number
        self.questions = questions
        self._changed = threading.Condition()
        self._requests: deque[WorkerRequest] = deque()
        self._finished: list[tuple[int, Trial]] = []
        self._failure: Failure | None = None
        self.is_over = False  # nothing more is to be sampled
        #: Prompts of the requests that were taken and measure it.
        self.measured: set[str] = set()

    # -- for the driver ------------------------------------------------------------------------

    def give(self, requests: Sequence[WorkerRequest]) -> None:
        """Add requests."""
        with self._changed:
            self._requests.extend(requests)
            self._changed.notify_all()

    def take(self, patience_s: float) -> Taken:
        """Return the finished trials; wait for the first one, a failure or the end."""
        with self._changed:
            self._changed.wait_for(
                lambda: self._finished or self._failure or self.is_over, timeout=patience_s
            )
            finished, self._finished = self._finished, []
            return Taken(finished, self._failure)

    def cancel(self) -> None:
        """End the session."""
        with self._changed:
            self.is_over = True
            self._requests.clear()
            self._changed.notify_all()

    # -- for the thread that samples -------------------------------------------------------------

    def wait_for_requests(self) -> bool:
        """Wait for a request; return False once the session is over."""
        with self._changed:
            self._changed.wait_for(lambda: self._requests or self.is_over)
            return not self.is_over

    def next_requests(self, count: int) -> list[TrialRequest]:
        """Return at most `count` waiting requests; their prompts to be measured are noted."""
        with self._changed:
            count = min(count, len(self._requests))
            requests = [self._requests.popleft() for _ in range(count)]
        self.measured |= {self.questions[r.question].prompt for r in requests if r.measures}
        return [
            replace(self.questions[r.question], index=r.number, trial=r.trial, seed=r.seed)
            for r in requests
        ]

    def sampled_by(self, model: Any) -> Iterator[tuple[TrialRequest, Trial]]:
        """Yield trials of waiting requests."""
        self.measured.clear()
        with closing(model.sample(WaitingRequests(self), self.measured)) as sampled:
            yield from sampled

    def add(self, number: int, trial: Trial) -> None:
        """Add a finished trial."""
        with self._changed:
            self._finished.append((number, trial))
            self._changed.notify_all()

    def fail(self, failure: Failure) -> None:
        """Record why no further trial is sampled."""
        with self._changed:
            self._failure = failure
            self._changed.notify_all()


class WaitingRequests(RequestStream):
    """The waiting requests of a session, with None where none waits at present."""

    def __init__(self, session: Session) -> None:
        super().__init__(session.questions, 0, iter(()))
        self._session = session

    @property
    def is_over(self) -> bool:
        """Whether running requests are to be cancelled."""
        return self._session.is_over

    def __next__(self) -> TrialRequest:
        if self._session.is_over:
            raise StopIteration
        request = next(iter(self._session.next_requests(1)), None)
        return request  # type: ignore[return-value]
