"""Which worker samples which trial: in trial order, each worker with its share of what is left.

Also the plain records that the driver and the workers send each other.
"""

from __future__ import annotations

import math
from collections import Counter, deque
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

from lm_eval_bayes.errors import LmEvalBayesError, Rule
from lm_eval_bayes.harness.evaluation import RepeatedInstance, new_instance, setting_of
from lm_eval_bayes.harness.models.interface import RequestStream, TrialRequest


class WorkerFailedError(LmEvalBayesError, RuntimeError):
    """Workers cannot start, or die again and again."""

    rule: Rule | None = "failed"


@dataclass(frozen=True)
class WorkerSetup:
    """What a worker needs to build its engine.

    Attributes
    ----------
    backend : str
        The harness's name of the backend.
    arguments : mapping
        The arguments of the backend's class.
    folder : str
        The driver's working folder, which relative paths among the arguments start from.
    """

    backend: str
    arguments: Mapping[str, Any] = field(repr=False)
    folder: str


def question_of(request: TrialRequest) -> TrialRequest:
    """Return what the trials of a request's question share, without the task's own objects."""
    instance = request.instance
    plain = new_instance(
        getattr(instance, "doc", None),
        (request.context, request.kwargs),
        task=str(getattr(instance, "task_name", "")),
        doc_id=int(getattr(instance, "doc_id", 0) or 0),
        kind=partial(RepeatedInstance, setting=setting_of(instance)),
    )
    return replace(request, instance=plain, kwargs=dict(request.kwargs))


@dataclass(frozen=True)
class WorkerRequest:
    """One trial that a worker is to sample.

    Attributes
    ----------
    number : int
        The number of the request in the session.
    question : int
        The position of its question.
    trial, seed : int
        The trial's number and its seed.
    measures : bool
        Whether the prompt is measured with it.
    """

    number: int
    question: int
    trial: int
    seed: int
    measures: bool


@dataclass(frozen=True)
class WorkerDescription:
    """What a worker that has loaded its model says of itself.

    Attributes
    ----------
    host : str
        The name of its computer.
    pid : int
        Its process id.
    slots : int
        How many trials it samples at once.
    fingerprint : mapping
        The fingerprint of its model.
    """

    host: str
    pid: int
    slots: int
    fingerprint: Mapping[str, Any] = field(repr=False)


#: A request during which so many workers died ends the run.
DEADLY = 5


class Schedule:
    """Gives requests to workers as their slots fall free.

    A worker has as many requests as it has slots, and a few waiting while the queue is long. It
    never has more than its share of what is left: the first of many workers that are still
    loading does not take everything.

    Requests are given in their order, trial 0 of every question before trial 1 of any. Those of a
    worker that dies are given first.

    Parameters
    ----------
    requests : RequestStream
        Read lazily; there may be fewer than its length.
    """

    def __init__(self, requests: RequestStream) -> None:
        self._requests, self._unread = enumerate(requests), len(requests)
        self._returned: deque[tuple[int, TrialRequest]] = deque()
        self._deaths: Counter[int] = Counter()
        self._ended = False
        self._slots: dict[int, int] = {}
        self._running: dict[int, dict[int, TrialRequest]] = {}

    @property
    def waiting(self) -> int:
        """The number of requests that no worker has."""
        return self._unread + len(self._returned)

    @property
    def is_done(self) -> bool:
        """Whether every request is finished or was dropped."""
        return not self.waiting and not any(self._running.values())

    def running(self, worker: int) -> int:
        """Return how many requests a worker has."""
        return len(self._running.get(worker, ()))

    def join(self, worker: int, slots: int) -> None:
        """Add a worker that samples so many trials at once."""
        self._slots[worker], self._running[worker] = slots, {}

    def leave(self, worker: int, cause: str = "") -> int:
        """Remove a worker that died; return how many requests go back to the queue.

        Parameters
        ----------
        worker : int
            The worker; one that has not joined has no requests.
        cause : str
            Why it died, for the error.

        Raises
        ------
        WorkerFailedError
            If workers died of one of its requests again and again.
        """
        lost = self._running.pop(worker, {})
        self._deaths.update(lost.keys())
        deadly = [request for number, request in lost.items() if self._deaths[number] >= DEADLY]
        if deadly:
            instance = deadly[0].instance
            raise WorkerFailedError(
                f"{DEADLY} workers died with trial {deadly[0].trial} of question {instance.doc_id} "
                f"of task {instance.task_name}, and {len(lost) - 1} others beside it the last time "
                f"({cause}); the finished trials are kept"
            )
        if self._ended:
            return 0
        self._returned.extendleft(reversed(lost.items()))
        return len(lost)

    def next_for(self, worker: int, sharing: int) -> dict[int, TrialRequest]:
        """Return the requests that a worker gets now, by their numbers.

        Parameters
        ----------
        worker : int
            A worker that has joined.
        sharing : int
            The number of workers, at least 1, that share the work.
        """
        slots, running = self._slots[worker], self._running[worker]
        unfinished = self.waiting + sum(map(len, self._running.values()))
        ahead = max(1, slots // 8) if self.waiting >= sharing * slots else 0
        room = min(slots + ahead, math.ceil(unfinished / sharing)) - len(running)
        given: dict[int, TrialRequest] = {}
        while len(given) < room and self.waiting:
            if self._returned:
                number, request = self._returned.popleft()
            elif (numbered := next(self._requests, None)) is not None:
                number, request = numbered
                self._unread -= 1
            else:
                self._unread = 0
                break
            given[number] = request
        running |= given
        return given

    def finish(self, worker: int, number: int) -> TrialRequest | None:
        """Return the request of a finished trial, None if the worker does not have it."""
        return self._running.get(worker, {}).pop(number, None)

    def end(self) -> None:
        """Give no further request."""
        self._ended, self._unread = True, 0
        self._returned.clear()
