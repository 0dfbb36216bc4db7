"""The workers of a run, and the thread that gives them requests and collects their trials."""

from __future__ import annotations

import queue
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, TypeAlias

from lm_eval_bayes._util.text import format_duration, plural
from lm_eval_bayes.errors import ModelConfigError
from lm_eval_bayes.harness import get_logger
from lm_eval_bayes.harness.models.interface import RequestStream, TrialRequest
from lm_eval_bayes.harness.models.ray.cluster import RayCluster, WorkerDiedError
from lm_eval_bayes.harness.models.ray.messages import (
    Failure,
    Taken,
    WorkerDescription,
    WorkerFailedError,
    WorkerRequest,
    WorkerSetup,
    question_of,
)
from lm_eval_bayes.harness.models.ray.resources import WorkerResources
from lm_eval_bayes.harness.models.ray.schedule import ExpectedLengths, Schedule, ScheduledRequest
from lm_eval_bayes.runs.model_arguments import keyed
from lm_eval_bayes.store.trial import Trial

log = get_logger(__name__)

#: A worker that dies so often in a row without returning a trial ends the run.
DEATHS_IN_A_ROW = 5

#: Seconds between looks at the stream's end, and between those at the nodes of the cluster.
_TICK_S, _NODES_S = 0.1, 5.0

#: Seconds after which a run that has no worker yet says what it waits for.
_SAY_AFTER_S = 30.0

#: A worker answers at least every 30 seconds. Seconds after which one that does not counts as dead.
_HANGS_S = 600.0

Sampled: TypeAlias = tuple[TrialRequest, Trial]


@dataclass(eq=False)
class Seat:
    """The place of one worker, which is started again when it dies.

    Attributes
    ----------
    number : int
        Its number, from 0.
    worker : object
        The cluster's handle of the worker.
    description : WorkerDescription or None
        What the worker is, once it has loaded the model.
    ready : bool
        Whether it takes requests of the present session.
    calls : dict
        What is waited for: the method called, by the reference of its result.
    deaths : int
        How often in a row it died without returning a trial.
    worked : bool
        Whether a worker here ever loaded the model.
    silent_s : float
        For how many seconds it has not answered the call that takes its trials.
    """

    number: int
    worker: Any = None
    description: WorkerDescription | None = None
    ready: bool = False
    calls: dict[Any, str] = field(default_factory=dict)
    deaths: int = 0
    worked: bool = False
    silent_s: float = 0.0

    @property
    def name(self) -> str:
        """Its name in messages."""
        host = "" if self.description is None else f" on {self.description.host}"
        return f"worker {self.number + 1}{host}"


class Pool:
    """Workers that stay from one session to the next, so that models are loaded once.

    Parameters
    ----------
    cluster : RayCluster
        Where they run.
    setup : WorkerSetup
        What each builds.
    resources : WorkerResources
        What each needs.
    workers : int
        The most workers.
    fingerprint : mapping
        The fingerprint that their models must have.
    """

    def __init__(
        self,
        cluster: RayCluster,
        setup: WorkerSetup,
        resources: WorkerResources,
        workers: int,
        fingerprint: Mapping[str, Any],
    ) -> None:
        self.cluster, self.workers, self.resources = cluster, workers, resources
        self._setup, self._fingerprint = setup, fingerprint
        self.seats: list[Seat] = []
        self._sessions = 0
        if not resources.room(cluster.nodes()):
            problem = f"a worker needs {resources}, and no node has as much"
            if cluster.started:
                raise ModelConfigError(
                    f"executor=ray: {problem}", "range", "gpus_per_worker", resources
                )
            log.warning("%s at present; waiting for one that has", problem)

    def fill(self, trials: int) -> None:
        """Start workers, as many as there are trials at most."""
        while len(self.seats) < min(self.workers, trials):
            seat = Seat(len(self.seats))
            self.seats.append(seat)
            self.start(seat)

    def start(self, seat: Seat) -> None:
        """Start a worker; it begins as soon as the cluster has room for it."""
        seat.worker = self.cluster.start(self._setup, self.resources)
        seat.description, seat.ready = None, False
        seat.calls = {self.cluster.call(seat.worker, "describe"): "describe"}

    def next_session(self) -> int:
        """Return the number of a new session."""
        self._sessions += 1
        return self._sessions

    def check_model(self, seat: Seat, description: WorkerDescription) -> None:
        """Check that a worker has the driver's model.

        Raises
        ------
        ModelConfigError
            If it has another one, as where a path holds other weights on its node.
        """
        ours, theirs = keyed(self._fingerprint)[0], keyed(description.fingerprint)[0]
        names = sorted(n for n in ours.keys() | theirs.keys() if ours.get(n) != theirs.get(n))
        if names:
            differences = "; ".join(f"{n} {theirs.get(n)!r}, not {ours.get(n)!r}" for n in names)
            sentence = (
                f"worker {seat.number + 1} on {description.host} has another model than this "
                f"process: {differences}"
            )
            raise ModelConfigError(sentence, "mismatch", names[0], theirs.get(names[0]))

    def close(self) -> None:
        """End all workers; the kernel ends their engines with them."""
        for seat in self.seats:
            self.cluster.kill(seat.worker)
        self.seats = []
        self.cluster.close()


class Session:
    """One call of `sample`: gives requests to the workers of a pool and collects their trials.

    A thread does so, so that workers are kept busy while the caller stores and grades.

    Parameters
    ----------
    pool : Pool
        The workers.
    requests : RequestStream
        The requests.
    measure : frozenset of str
        Prompts that are measured with the first trial of each.
    lengths : ExpectedLengths
        Expected lengths of trials.
    """

    def __init__(
        self,
        pool: Pool,
        requests: RequestStream,
        measure: frozenset[str],
        lengths: ExpectedLengths,
    ) -> None:
        self._pool, self._cluster = pool, pool.cluster
        self._requests = requests
        self._number = pool.next_session()
        self._schedule = Schedule(requests, len(requests), lengths)
        self._to_measure = set(measure)
        self._measuring: set[int] = set()
        questions = {_question_id(r): question_of(r) for r in reversed(requests.questions)}
        self._positions = {id: position for position, id in enumerate(questions)}
        self._questions = self._cluster.shared(list(questions.values()))
        self._out: queue.SimpleQueue[Sampled | BaseException | None] = queue.SimpleQueue()
        self._closed = threading.Event()
        self._thread = threading.Thread(target=self._run, name="ray-session", daemon=True)
        self._began = self._looked = self._listened = time.monotonic()
        self._room = 0
        self._said = False

    def trials(self) -> Iterator[Sampled]:
        """Yield each trial as it arrives; closing the iterator cancels what is running."""
        self._thread.start()
        try:
            while (item := self._out.get()) is not None:
                if isinstance(item, BaseException):
                    raise item
                yield item
        finally:
            self._closed.set()
            self._thread.join(timeout=5.0)

    # -- the thread ----------------------------------------------------------------------------

    def _run(self) -> None:
        problem: BaseException | None = None
        try:
            self._pool.fill(self._schedule.waiting)
            for seat in self._pool.seats:
                if seat.description is not None:
                    seat.calls.clear()  # of the session before
                    self._begin(seat)
            while not self._schedule.is_done and not self._is_over():
                self._give()
                self._collect()
        except BaseException as error:
            problem = error
        finally:
            self._cancel()
            if problem is not None:
                self._out.put(problem)
            self._out.put(None)

    def _is_over(self) -> bool:
        if self._closed.is_set():
            return True
        if self._requests.ended:
            self._schedule.end()
        return self._requests.is_over

    def _give(self) -> None:
        ready = [seat for seat in self._pool.seats if seat.ready]
        sharing = max(1, len(ready), min(len(self._pool.seats), self._fitting()))
        for seat in sorted(ready, key=lambda seat: self._schedule.running(seat.number)):
            requests = self._schedule.next_for(seat.number, sharing)
            if requests:
                messages = [self._message(scheduled) for scheduled in requests]
                self._call(seat, "give", self._number, messages)

    def _fitting(self) -> int:
        """Return how many workers the nodes have room for, if nothing else runs on them."""
        now = time.monotonic()
        if not self._room or now - self._looked > _NODES_S:
            self._looked, self._room = now, self._pool.resources.room(self._cluster.nodes())
        return self._room

    def _message(self, scheduled: ScheduledRequest) -> WorkerRequest:
        request = scheduled.request
        if request.prompt in self._to_measure:
            self._to_measure.remove(request.prompt)
            self._measuring.add(scheduled.number)
        return WorkerRequest(
            scheduled.number,
            self._positions[_question_id(request)],
            request.trial,
            request.seed,
            scheduled.number in self._measuring,
        )

    def _collect(self) -> None:
        """Wait for answers of workers, and handle those that are there."""
        calls = {call: seat for seat in self._pool.seats for call in seat.calls}
        for call in self._cluster.wait(list(calls), _TICK_S):
            seat = calls[call]
            method = seat.calls.pop(call, None)
            if method is None:
                continue  # of a worker that has died meanwhile
            try:
                answer = self._cluster.result(call)
            except WorkerDiedError as error:
                self._died(seat, str(error))
                continue
            if method == "describe":
                self._described(seat, answer)
            elif method == "begin":
                self._begun(seat)
            elif method == "take":
                self._taken(seat, answer)
        self._say_what_is_waited_for()
        self._find_hanging()

    def _find_hanging(self) -> None:
        """Replace workers that do not answer."""
        now = time.monotonic()
        # at most a second for each look, since this process may have been stopped as well
        elapsed, self._listened = min(now - self._listened, 1.0), now
        for seat in self._pool.seats:
            seat.silent_s += elapsed if "take" in seat.calls.values() else 0.0
            if seat.silent_s >= _HANGS_S:
                self._died(seat, f"no answer for {format_duration(_HANGS_S)}")

    def _say_what_is_waited_for(self) -> None:
        if self._said or any(seat.description is not None for seat in self._pool.seats):
            return
        if time.monotonic() - self._began > _SAY_AFTER_S:
            self._said = True
            log.info(
                "no worker is ready yet: each waits for %s, or loads the model",
                self._pool.resources,
            )

    def _described(self, seat: Seat, answer: WorkerDescription | Failure) -> None:
        if isinstance(answer, Failure):
            log.debug("%s", answer.details)
            if answer.fatal or not seat.worked:
                raise answer.error(f"{seat.name} cannot load the model")
            self._died(seat, str(answer))
            return
        self._pool.check_model(seat, answer)
        seat.description, seat.worked = answer, True
        ready = sum(seat.description is not None for seat in self._pool.seats)
        log.info("%s is ready (%d of %d)", seat.name, ready, len(self._pool.seats))
        self._begin(seat)

    def _begin(self, seat: Seat) -> None:
        seat.ready = False
        self._call(seat, "begin", self._number, self._questions)

    def _begun(self, seat: Seat) -> None:
        assert seat.description is not None
        seat.ready, seat.silent_s = True, 0.0
        self._schedule.join(seat.number, seat.description.slots)
        self._call(seat, "take", self._number)

    def _taken(self, seat: Seat, answer: Taken) -> None:
        seat.silent_s = 0.0
        for number, trial in answer.trials:
            request = self._schedule.finish(seat.number, number, trial)
            if request is not None:
                seat.deaths = 0
                self._out.put((request, trial))
        failure = answer.failure
        if failure is None:
            self._call(seat, "take", self._number)
            return
        log.debug("%s", failure.details)
        if failure.fatal:
            raise failure.error(seat.name)
        self._died(seat, str(failure))

    def _died(self, seat: Seat, cause: str) -> None:
        """Put the requests of a worker back, and start another one in its place."""
        self._cluster.kill(seat.worker)
        seat.calls, seat.ready = {}, False
        returned = self._schedule.leave(seat.number, cause)
        seat.deaths += 1
        if seat.deaths >= DEATHS_IN_A_ROW:
            raise WorkerFailedError(
                f"{seat.name} died {seat.deaths} times in a row without returning a trial "
                f"({cause}); finished trials are kept: start again to continue"
            )
        log.warning(
            "%s died (%s); %s to the queue, and another worker is started",
            *(seat.name, cause, plural(returned, "request goes back", "requests go back")),
        )
        self._pool.start(seat)

    def _call(self, seat: Seat, method: str, *arguments: Any) -> None:
        seat.calls[self._cluster.call(seat.worker, method, *arguments)] = method

    def _cancel(self) -> None:
        """End the session in every worker; a worker that still loads goes on."""
        for seat in self._pool.seats:
            seat.ready = False
            if seat.description is not None:
                # the cluster may be gone, which may be why this is called
                with suppress(Exception):
                    self._cluster.call(seat.worker, "cancel", self._number)


def _question_id(request: TrialRequest) -> object:
    return id(request.instance), request.key, request.prompt
