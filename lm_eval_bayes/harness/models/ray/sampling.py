"""The driver of `executor=ray`: it owns store, seeds and queue, and loads no weights."""

from __future__ import annotations

import itertools
import os
import time
from collections.abc import Iterator, Mapping, Sequence, Set
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, TypeAlias

from lm_eval_bayes._util.text import format_duration, join_words, one_line, plural
from lm_eval_bayes._util.validation import check_integer
from lm_eval_bayes.errors import LmEvalBayesError, ModelConfigError
from lm_eval_bayes.harness import get_logger
from lm_eval_bayes.harness.models.interface import RequestStream, SamplingMixin, TrialRequest
from lm_eval_bayes.harness.models.ray.cluster import (
    RayCluster,
    WorkerDiedError,
    WorkerResources,
    import_ray,
    worker_resources,
)
from lm_eval_bayes.harness.models.ray.schedule import (
    Schedule,
    WorkerDescription,
    WorkerFailedError,
    WorkerRequest,
    WorkerSetup,
    question_of,
)
from lm_eval_bayes.runs.model_arguments import keyed
from lm_eval_bayes.store.trial import Trial

log = get_logger(__name__)

#: A worker that dies so often in a row without returning a trial ends the run.
DEATHS_IN_A_ROW = 5

#: Seconds between looks at the stream's end.
_TICK_S = 0.1

#: A worker answers at least every second. Seconds after which one that does not counts as dead.
_HANGS_S = 600.0

#: The most characters of an exception's message that are shown.
_LONGEST = 400

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
    call : object
        The reference of the result that is waited for, or None.
    loading : bool
        Whether the worker has not said yet what it is.
    description : WorkerDescription or None
        What the last worker here that has loaded the model is.
    session : int
        The session that the worker has begun.
    deaths : int
        How often in a row it died without returning a trial.
    silent_s : float
        For how many seconds the worker has not answered a call for trials.
    """

    number: int
    worker: Any = None
    call: Any = None
    loading: bool = True
    description: WorkerDescription | None = None
    session: int = 0
    deaths: int = 0
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
        self.sessions = itertools.count(1)
        if not resources.room(cluster.nodes()):
            if cluster.started:
                rule = "be no more than a node of this computer's Ray cluster has"
                raise ModelConfigError.of("gpus_per_worker", "range", rule, str(resources))
            log.warning("no node has %s at present; waiting for one that has", resources)

    def fill(self, trials: int) -> None:
        """Start workers, as many as there are trials at most."""
        for number in range(len(self.seats), min(self.workers, trials)):
            self.seats.append(Seat(number))
            self.start(self.seats[-1])
            log.info("worker %d loads the model as soon as it has %s", number + 1, self.resources)

    def start(self, seat: Seat) -> None:
        """Start a worker; it begins as soon as the cluster has room for it."""
        seat.worker = self.cluster.start(self._setup, self.resources)
        seat.loading, seat.silent_s = True, 0.0
        seat.call = self.cluster.call(seat.worker, "describe")

    def check_model(self, seat: Seat, description: WorkerDescription) -> None:
        """Check that a worker has the driver's model.

        Raises
        ------
        ModelConfigError
            If it has another one, as where a path holds other weights on its node.
        """
        ours, theirs = keyed(self._fingerprint)[0], keyed(description.fingerprint)[0]
        for name in sorted(ours.keys() | theirs.keys()):
            if ours.get(name) != theirs.get(name):
                rule = (
                    f"be on {description.host}, where worker {seat.number + 1} loaded the model, "
                    f"what it is in this process, {ours.get(name)!r}"
                )
                raise ModelConfigError.of(name, "mismatch", rule, theirs.get(name))

    def close(self) -> None:
        """End all workers; the kernel ends their engines with them."""
        for seat in self.seats:
            self.cluster.kill(seat.worker)
        self.seats = []
        self.cluster.close()


class Session:
    """One call of `sample`: gives requests to the workers of a pool and collects their trials.

    A worker has one call at a time, which takes requests along and returns finished trials.

    Parameters
    ----------
    pool : Pool
        The workers.
    requests : RequestStream
        The requests.
    measure : set of str
        Prompts that are measured with the first trial of each.
    """

    def __init__(self, pool: Pool, requests: RequestStream, measure: Set[str]) -> None:
        self._pool, self._cluster, self._requests = pool, pool.cluster, requests
        self._number = next(pool.sessions)
        self._schedule = Schedule(requests)
        self._looked = time.monotonic()
        self._to_measure = set(measure)
        self._measuring: set[int] = set()
        questions = {_question_id(r): question_of(r) for r in reversed(requests.questions)}
        self._positions = {id: position for position, id in enumerate(questions)}
        self._questions = self._cluster.shared(list(questions.values()))

    def trials(self) -> Iterator[Sampled]:
        """Yield each trial as it arrives; closing the iterator cancels what is running."""
        try:
            self._pool.fill(len(self._requests))
            for seat in self._pool.seats:
                if seat.description is not None and not seat.loading:
                    seat.call = None  # of the session before
                    self._schedule.join(seat.number, seat.description.slots)
            self._count_workers()
            while not self._schedule.is_done and not self._requests.is_over:
                self._give()
                calls = {seat.call: seat for seat in self._pool.seats if seat.call is not None}
                for call in self._cluster.wait(list(calls), _TICK_S):
                    yield from self._answered(calls[call])
                self._replace_hanging()
                if self._requests.ended:
                    self._schedule.end()
        finally:
            for seat in self._pool.seats:
                if not seat.loading:
                    # the cluster may be gone, which may be why this is called
                    with suppress(Exception):
                        self._cluster.call(seat.worker, "cancel", self._number)

    def _count_workers(self) -> None:
        """Count the workers that share the work: those with a model, and those with room."""
        seats = self._pool.seats
        room = self._pool.resources.room(self._cluster.nodes())
        self._sharing = max(1, sum(not s.loading for s in seats), min(len(seats), room))

    def _give(self) -> None:
        """Call every worker that waits for requests or has some."""
        idle = [seat for seat in self._pool.seats if seat.call is None]
        for seat in sorted(idle, key=lambda seat: self._schedule.running(seat.number)):
            given = self._schedule.next_for(seat.number, self._sharing)
            if self._schedule.running(seat.number):
                requests = [self._message(number, request) for number, request in given.items()]
                questions = None if seat.session == self._number else self._questions
                seat.session = self._number
                seat.call = self._cluster.call(
                    seat.worker, "sample", self._number, requests, questions
                )

    def _message(self, number: int, request: TrialRequest) -> WorkerRequest:
        if request.prompt in self._to_measure:
            self._to_measure.remove(request.prompt)
            self._measuring.add(number)
        position = self._positions[_question_id(request)]
        measures = number in self._measuring
        return WorkerRequest(number, position, request.trial, request.seed, measures)

    def _answered(self, seat: Seat) -> Iterator[Sampled]:
        """Handle the answer of a worker, and yield the trials that came with it."""
        call, seat.call, seat.silent_s = seat.call, None, 0.0
        try:
            answer = self._cluster.result(call)
        except Exception as error:
            self._failed(seat, error)
            return
        if seat.loading:
            self._pool.check_model(seat, answer)
            seat.description, seat.loading, seat.session = answer, False, 0
            ready = sum(not seat.loading for seat in self._pool.seats)
            log.info("%s is ready (%d of %d)", seat.name, ready, len(self._pool.seats))
            self._schedule.join(seat.number, answer.slots)
            self._count_workers()
            return
        finished = [(self._schedule.finish(seat.number, number), trial) for number, trial in answer]
        if finished:
            seat.deaths = 0
        self._give()  # so that the worker is busy while the caller stores them
        for request, trial in finished:
            if request is not None:
                yield request, trial

    def _replace_hanging(self) -> None:
        """Replace workers that do not answer."""
        now = time.monotonic()
        # at most a second for each look, since this process may have been stopped as well
        elapsed, self._looked = min(now - self._looked, 1.0), now
        for seat in self._pool.seats:
            seat.silent_s += 0.0 if seat.loading or seat.call is None else elapsed
            if seat.silent_s >= _HANGS_S:
                self._failed(seat, WorkerDiedError(f"no answer for {format_duration(_HANGS_S)}"))

    def _failed(self, seat: Seat, error: Exception) -> None:
        """Put the requests of a worker back, and start another one in its place.

        Raises
        ------
        LmEvalBayesError
            If it would fail again: an error of an argument or setting, or of the first loading.
        WorkerFailedError
            If it failed too often.
        """
        if isinstance(error, LmEvalBayesError) and isinstance(error, ValueError):
            raise error
        cause = str(error) if isinstance(error, WorkerDiedError) else repr(error)
        cause = one_line(cause, _LONGEST)
        if seat.description is None and not isinstance(error, WorkerDiedError):
            raise WorkerFailedError(f"{seat.name} cannot load the model: {cause}") from error
        self._cluster.kill(seat.worker)
        returned = self._schedule.leave(seat.number, cause)
        seat.deaths += 1
        if seat.deaths >= DEATHS_IN_A_ROW:
            raise WorkerFailedError(
                f"{seat.name} died {seat.deaths} times in a row without returning a trial "
                f"({cause}); finished trials are kept: start again to continue"
            ) from error
        log.warning(
            "%s died (%s); %s to the queue, and another worker is started",
            *(seat.name, cause, plural(returned, "request goes back", "requests go back")),
        )
        self._pool.start(seat)
        self._count_workers()


def _question_id(request: TrialRequest) -> object:
    return id(request.instance), request.key, request.prompt


#: The backends that workers can build.
BACKENDS = ("vllm", "hf", "biased_coin")


class RaySampling(SamplingMixin):
    """A sampling mixin before that of a backend: workers of a Ray cluster sample.

    Each worker is an actor with an engine of its own. Keys, seeds and order of the trials are those
    of a run of one process. A worker that dies gives its trials back and is started again; workers
    without room start when nodes join.

    Parameters
    ----------
    workers : int
        The most workers.
    gpus_per_worker : float, optional
        The GPUs of a worker, where these do not follow from the backend's arguments, see
        :func:`~lm_eval_bayes.harness.models.ray.cluster.worker_resources`.
    """

    samples_elsewhere = True

    def __init__(
        self, *args: Any, workers: Any = None, gpus_per_worker: Any = None, **kwargs: Any
    ) -> None:
        self._workers = check_integer("workers", workers, 1)
        ranks = os.environ.get("WORLD_SIZE") or "1"
        if int(ranks) > 1:
            rule = "be 1, as executor=ray starts its workers itself"
            raise ModelConfigError.of("WORLD_SIZE", "conflict", rule, ranks)
        import_ray()
        self._gpus_per_worker = gpus_per_worker
        worker_resources(self.backend_name, kwargs, gpus_per_worker, ())
        self._worker_arguments = dict(kwargs)
        self._pool: Pool | None = None
        super().__init__(*args, **kwargs)

    @staticmethod
    def check_backend(backend: str) -> None:
        """Check that workers can build a backend.

        Raises
        ------
        ModelConfigError
            If they cannot.
        """
        if backend not in BACKENDS:
            rule = f"be {join_words(BACKENDS, 'or')} with executor=ray"
            raise ModelConfigError.of("backend", "choice", rule, backend)

    def sample(
        self, requests: RequestStream, measure: frozenset[str]
    ) -> Iterator[tuple[TrialRequest, Trial]]:
        """Yield each trial as a worker returns it.

        Parameters
        ----------
        requests : RequestStream
            Given to the workers in this order.
        measure : frozenset of str
            Prompts that are measured with the first trial of each.

        Raises
        ------
        ModelConfigError
            If a worker cannot build the backend, or has another model.
        WorkerFailedError
            If workers cannot start, or die again and again.
        """
        if not len(requests):
            return
        if self._pool is None:
            self._pool = self._new_pool()
        try:
            yield from Session(self._pool, requests, measure).trials()
        except GeneratorExit:
            raise
        except BaseException:
            self._pool.close()
            self._pool = None
            raise

    def _new_pool(self) -> Pool:
        cluster = RayCluster(self._workers)
        resources = worker_resources(
            self.backend_name, self._worker_arguments, self._gpus_per_worker, cluster.nodes()
        )
        arguments = {**self._worker_arguments, **resources.arguments}
        setup = WorkerSetup(self.backend_name, arguments, os.getcwd())
        return Pool(cluster, setup, resources, self._workers, self.fingerprint())

    # -- what would load the weights here --------------------------------------------------------

    def load(self) -> None:
        """Raise: only the workers load weights."""
        raise WorkerFailedError("with executor=ray only the workers load weights")

    def loglikelihood(self, requests: Sequence[Any], disable_tqdm: bool = False) -> Any:
        """Raise: the workers generate text, and have no likelihoods."""
        rule = "be generate_until with executor=ray, whose workers only generate text"
        raise ModelConfigError.of("output_type", "unsupported", rule, "loglikelihood")

    loglikelihood_rolling = loglikelihood
