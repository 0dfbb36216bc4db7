"""Which worker samples which trial: in trial order, and the longest first at the end."""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from lm_eval_bayes.errors import LmEvalBayesError, Rule
from lm_eval_bayes.harness.models.interface import TrialRequest
from lm_eval_bayes.store.trial import Trial, TrialKey

#: A request during which so many workers died, the last time alone, ends the run.
DEADLY = 3

#: A request during which two workers died shares its next worker with few others.
_SUSPECT = 2

#: The end of a session, in requests per slot: here those expected to be the longest start first.
_END = 4


class DeadlyRequestError(LmEvalBayesError, RuntimeError):
    """A request that kills every worker that samples it."""

    rule: Rule | None = "failed"


class ExpectedLengths:
    """Expected lengths of trials: the means over earlier trials of the same question.

    A trial's length is the time that it was generated for; without times the number of its
    tokens, and without both that of its characters.
    """

    def __init__(self) -> None:
        self._sums: dict[TrialKey, tuple[float, int]] = {}
        self._all = (0.0, 0)

    def add(self, trial: Trial) -> None:
        """Take a trial into account."""
        if trial.generated_s is not None:
            length = trial.generated_s
        elif trial.completion_tokens is not None:
            length = float(trial.completion_tokens)
        else:
            length = float(len(trial.text))
        total, count = self._sums.get(trial.key, (0.0, 0))
        self._sums[trial.key] = total + length, count + 1
        self._all = self._all[0] + length, self._all[1] + 1

    def of(self, key: TrialKey) -> float:
        """Return the expected length of a trial; the mean of all where its question has none."""
        total, count = self._sums.get(key, self._all)
        return total / count if count else 0.0


@dataclass(eq=False)
class ScheduledRequest:
    """A request and what happened to it.

    Attributes
    ----------
    number : int
        Its number in the schedule, from 0.
    request : TrialRequest
        The request.
    deaths : int
        How many workers died while they had it.
    company : float
        The most requests, itself included, that a worker may have together with it.
    """

    number: int
    request: TrialRequest
    deaths: int = 0
    company: float = math.inf


class Schedule:
    """Gives requests to workers as their slots fall free.

    A worker has as many requests as it has slots, and a few waiting while the queue is long. It
    never has more than its share of what is left: the first of many workers that are still
    loading does not take everything.

    Requests are given in their order, trial 0 of every question before trial 1 of any. At the
    end, when about four per slot are left, those are given first that are expected to be the
    longest.

    Requests of a worker that dies go back to the front. One during which two workers died runs
    with fewer others, then alone, so that a request that kills its workers is found.

    Parameters
    ----------
    requests : iterable of TrialRequest
        Read lazily.
    total : int
        Their number; there may be fewer.
    lengths : ExpectedLengths
        Expected lengths, to which finished trials are added.
    """

    def __init__(
        self,
        requests: Iterable[TrialRequest],
        total: int,
        lengths: ExpectedLengths,
    ) -> None:
        self._source: Iterator[TrialRequest] = iter(requests)
        self._unread = total
        self._lengths = lengths
        self._given = 0
        self._queue: deque[ScheduledRequest] = deque()
        self._ended, self._sorted = False, False
        self._finished = self._finished_at_sort = 0
        self._slots: dict[int, int] = {}
        self._running: dict[int, dict[int, ScheduledRequest]] = {}

    @property
    def waiting(self) -> int:
        """The number of requests that no worker has."""
        return self._unread + len(self._queue)

    @property
    def is_done(self) -> bool:
        """Whether every request is finished or was dropped."""
        return not self.waiting and not any(self._running.values())

    def running(self, worker: int) -> int:
        """Return how many requests a worker has."""
        return len(self._running.get(worker, ()))

    # -- workers -----------------------------------------------------------------------------

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
        DeadlyRequestError
            If the worker died of its only request, as earlier ones did.
        """
        self._slots.pop(worker, None)
        lost = list(self._running.pop(worker, {}).values())
        for scheduled in lost:
            scheduled.deaths += 1
            if scheduled.deaths >= DEADLY and len(lost) == 1:
                raise DeadlyRequestError(
                    f"{_named(scheduled.request)} killed its worker {scheduled.deaths} times, the "
                    f"last time as its only request ({cause}); the finished trials are kept"
                )
            if scheduled.deaths >= _SUSPECT:
                scheduled.company = max(1, len(lost) // 16)
        if self._ended:
            return 0
        self._queue.extendleft(sorted(lost, key=lambda scheduled: -scheduled.number))
        return len(lost)

    # -- requests ----------------------------------------------------------------------------

    def next_for(self, worker: int, sharing: int) -> list[ScheduledRequest]:
        """Return the requests that a worker gets now.

        Parameters
        ----------
        worker : int
            A worker that has joined.
        sharing : int
            The number of workers, at least 1, that share the work.
        """
        room = self._room(worker, sharing)
        if room <= 0:
            return []
        self._read(room, sharing)
        running = self._running[worker]
        given: list[ScheduledRequest] = []
        passed: list[ScheduledRequest] = []
        company = min((scheduled.company for scheduled in running.values()), default=math.inf)
        while self._queue and len(given) < room and len(running) < company:
            scheduled = self._queue.popleft()
            if len(running) < min(company, scheduled.company):
                given.append(scheduled)
                running[scheduled.number] = scheduled
                company = min(company, scheduled.company)
            else:
                passed.append(scheduled)
                self._read(room - len(given), sharing)
        self._queue.extendleft(reversed(passed))
        return given

    def finish(self, worker: int, number: int, trial: Trial) -> TrialRequest | None:
        """Return the request of a finished trial, None if the worker does not have it."""
        scheduled = self._running.get(worker, {}).pop(number, None)
        if scheduled is None:
            return None
        self._lengths.add(trial)
        self._finished += 1
        return scheduled.request

    def end(self) -> None:
        """Give no further request."""
        self._ended, self._unread = True, 0
        self._queue.clear()

    # -- internals ---------------------------------------------------------------------------

    def _room(self, worker: int, sharing: int) -> int:
        slots, running = self._slots[worker], self.running(worker)
        unfinished = self.waiting + sum(map(len, self._running.values()))
        share = math.ceil(unfinished / sharing)
        ahead = max(1, slots // 8) if self.waiting >= sharing * slots else 0
        return min(slots + ahead, share) - running

    def _read(self, count: int, sharing: int) -> None:
        """Read requests, so that `count` wait or none is left; sort the last ones by length."""
        at_end = self.waiting <= _END * sharing * max(self._slots.values())
        while self._unread and (at_end or len(self._queue) < count):
            request = next(self._source, None)
            if request is None:
                self._unread = 0
                break
            self._unread -= 1
            self._queue.append(ScheduledRequest(self._given, request))
            self._given += 1
        new = self._finished - self._finished_at_sort
        if at_end and new > (len(self._queue) // 8 if self._sorted else -1):
            self._sorted = True
            self._finished_at_sort = self._finished
            self._queue = deque(sorted(self._queue, key=self._order))

    def _order(self, scheduled: ScheduledRequest) -> tuple[int, float, int]:
        request = scheduled.request
        return request.trial, -self._lengths.of(request.key), scheduled.number


def _named(request: TrialRequest) -> str:
    instance = request.instance
    task = getattr(instance, "task_name", None)
    question = "a question" if task is None else f"question {instance.doc_id} of task {task}"
    return f"trial {request.trial} of {question}"
