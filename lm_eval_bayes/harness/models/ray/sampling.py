"""The driver of `executor=ray`: it owns store, seeds and queue, and loads no weights."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from lm_eval_bayes.errors import ModelConfigError
from lm_eval_bayes.harness.models.interface import RequestStream, SamplingMixin, TrialRequest
from lm_eval_bayes.harness.models.ray.cluster import RayCluster, import_ray
from lm_eval_bayes.harness.models.ray.messages import WorkerFailedError, WorkerSetup
from lm_eval_bayes.harness.models.ray.pool import Pool, Session
from lm_eval_bayes.harness.models.ray.resources import worker_resources
from lm_eval_bayes.harness.models.ray.schedule import ExpectedLengths
from lm_eval_bayes.store.trial import Trial

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
        :func:`~lm_eval_bayes.harness.models.ray.resources.worker_resources`.
    """

    samples_elsewhere = True

    def __init__(
        self, *args: Any, workers: Any = None, gpus_per_worker: Any = None, **kwargs: Any
    ) -> None:
        if isinstance(workers, bool) or not isinstance(workers, int) or workers < 1:
            rule = "be a positive whole number, such as workers=8"
            raise ModelConfigError.of("workers", "range", rule, workers)
        if int(os.environ.get("WORLD_SIZE", "1") or 1) > 1:
            sentence = (
                "executor=ray must be started as one process, which starts its workers; got "
                f"{os.environ['WORLD_SIZE']} ranks"
            )
            raise ModelConfigError(sentence, "conflict", "WORLD_SIZE", os.environ["WORLD_SIZE"])
        if int(kwargs.get("data_parallel_size") or 1) > 1:
            raise ModelConfigError(
                "executor=ray takes no `data_parallel_size`: each of its workers is one engine; "
                f"got {kwargs['data_parallel_size']!r}",
                "conflict",
                "data_parallel_size",
                kwargs["data_parallel_size"],
            )
        import_ray()
        self._workers, self._gpus_per_worker = workers, gpus_per_worker
        worker_resources(self.backend_name, kwargs, gpus_per_worker, ())
        self._worker_arguments = dict(kwargs)
        self._pool: Pool | None = None
        self._lengths = ExpectedLengths()
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
            sentence = (
                f"executor=ray is for backend={', '.join(BACKENDS)}; got {backend!r} (a server is "
                "asked by one process, with num_concurrent=)"
            )
            raise ModelConfigError(sentence, "choice", "backend", backend)

    def sample(
        self, requests: RequestStream, measure: frozenset[str]
    ) -> Iterator[tuple[TrialRequest, Trial]]:
        """Yield each trial as a worker returns it.

        Parameters
        ----------
        requests : RequestStream
            Given to the workers in this order, at the end those expected to be the longest first.
        measure : frozenset of str
            Prompts that are measured with the first trial of each.

        Raises
        ------
        ModelConfigError
            If a worker cannot build the backend, or has another model.
        WorkerFailedError
            If workers cannot start, or one dies again and again.
        DeadlyRequestError
            If a request kills every worker that samples it.
        """
        if not len(requests):
            return
        if self._pool is None:
            self._pool = self._new_pool()
        session = Session(self._pool, requests, measure, self._lengths)
        try:
            yield from session.trials()
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

    def learn_lengths(self, trials: Iterable[Trial]) -> None:
        """Take stored trials into account for the expected lengths of others."""
        for trial in trials:
            self._lengths.add(trial)

    # -- what would load the weights here --------------------------------------------------------

    def load(self) -> None:
        """Raise: only the workers load weights."""
        raise WorkerFailedError("with executor=ray only the workers load weights")

    def loglikelihood(self, requests: Sequence[Any], disable_tqdm: bool = False) -> Any:
        """Raise: the workers generate text, and have no likelihoods."""
        task = requests[0].task_name if requests else None
        sentence = (
            f"executor=ray only generates text, and task {task} asks for log-likelihoods; use a "
            "task with `output_type: generate_until`, or leave executor= out"
        )
        raise ModelConfigError(sentence, "unsupported", "output_type", task)

    loglikelihood_rolling = loglikelihood
