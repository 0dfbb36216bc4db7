"""The driver of `executor=ray`: it owns store, seeds and queue, and loads no weights."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from typing import Any

from lm_eval_bayes._util.text import join_words
from lm_eval_bayes._util.validation import check_integer
from lm_eval_bayes.errors import ModelConfigError
from lm_eval_bayes.harness.models.interface import RequestStream, SamplingMixin, TrialRequest
from lm_eval_bayes.harness.models.ray.cluster import RayCluster, import_ray, worker_resources
from lm_eval_bayes.harness.models.ray.pool import Pool, Session
from lm_eval_bayes.harness.models.ray.schedule import WorkerFailedError, WorkerSetup
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
