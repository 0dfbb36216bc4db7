"""The only module that calls Ray: a cluster, and workers as actors in it.

Also what one worker needs of a cluster: CPUs, GPUs, and the nodes that a model is spread over.
"""

from __future__ import annotations

import math
import os
import signal
import threading
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from lm_eval_bayes._util.packages import pip_install_extra
from lm_eval_bayes._util.text import one_line
from lm_eval_bayes._util.validation import check_integer
from lm_eval_bayes.errors import ModelConfigError
from lm_eval_bayes.harness import get_logger
from lm_eval_bayes.harness.models.ray.schedule import WorkerSetup
from lm_eval_bayes.harness.models.ray.worker import TrialWorker

log = get_logger(__name__)


@dataclass(frozen=True)
class WorkerResources:
    """The resources of one worker, beside a CPU for each worker or bundle.

    Attributes
    ----------
    gpus : float
        Its GPUs, in total.
    spread : bool
        Whether they may lie on several nodes: each is a bundle of a placement group, in which
        vLLM starts its own Ray actors.
    arguments : mapping
        Further arguments of the backend that follow from this.
    """

    gpus: float
    spread: bool = False
    arguments: Mapping[str, Any] = field(default_factory=dict)

    def __str__(self) -> str:
        where = " on any nodes" if self.spread else ""
        gpus = f"{self.gpus:g} GPU{'' if self.gpus == 1 else 's'}{where}"
        return f"1 CPU and {gpus}" if self.gpus else "1 CPU"

    def bundles(self) -> list[dict[str, float]]:
        """Return the bundles of a placement group, one per GPU."""
        return [{"GPU": 1.0, "CPU": 1.0} for _ in range(int(self.gpus))]

    def room(self, nodes: Sequence[Mapping[str, float]]) -> int:
        """Return how many workers fit on empty nodes.

        Parameters
        ----------
        nodes : sequence of mapping
            The resources of each node, by Ray's names.

        Examples
        --------
        >>> nodes = [{"CPU": 32.0, "GPU": 8.0}, {"CPU": 32.0, "GPU": 3.0}]
        >>> WorkerResources(gpus=2).room(nodes), WorkerResources(gpus=8, spread=True).room(nodes)
        (5, 1)
        """
        gpus = 1.0 if self.spread else self.gpus
        rooms = [
            min(
                node.get("CPU", 0.0),
                node.get("GPU", 0.0) / gpus if gpus else math.inf,
            )
            for node in nodes
        ]
        places = sum(map(math.floor, rooms))
        return places // int(self.gpus) if self.spread else places


def worker_resources(
    backend: str,
    arguments: Mapping[str, Any],
    gpus_per_worker: float | None,
    nodes: Sequence[Mapping[str, float]],
) -> WorkerResources:
    """Return what a worker of a backend needs.

    A worker of vLLM has `tensor_parallel_size` × `pipeline_parallel_size` GPUs: of one node, where
    some node has as many and `distributed_executor_backend` is not ``ray``, and of several
    otherwise. A worker of `hf` has one, unless its `device` is the CPU. On a cluster without GPUs
    they have none.

    Parameters
    ----------
    backend : str
        The harness's name of the backend.
    arguments : mapping
        Its arguments.
    gpus_per_worker : float or None
        The number of GPUs, in place of what follows from the arguments.
    nodes : sequence of mapping
        The resources of each node, by Ray's names.

    Raises
    ------
    ModelConfigError
        If `gpus_per_worker` is no number of GPUs, or not the number that vLLM uses.

    Examples
    --------
    >>> nodes = [{"CPU": 32.0, "GPU": 8.0}]
    >>> worker_resources("vllm", {"tensor_parallel_size": 4}, None, nodes).gpus
    4.0
    >>> worker_resources("vllm", {"tensor_parallel_size": 16}, None, nodes).spread
    True
    >>> worker_resources("hf", {"device": "cpu"}, None, nodes).gpus
    0.0
    """
    if gpus_per_worker is not None and (
        isinstance(gpus_per_worker, bool)
        or not isinstance(gpus_per_worker, (int, float))
        or not 0 <= gpus_per_worker < math.inf
        or (gpus_per_worker > 1 and gpus_per_worker != int(gpus_per_worker))
    ):
        rule = "be a whole number of at least 0, or a share of one GPU such as 0.5"
        raise ModelConfigError.of("gpus_per_worker", "range", rule, gpus_per_worker)
    most = max((node.get("GPU", 0.0) for node in nodes), default=0.0)
    if backend == "vllm":
        names = ("tensor_parallel_size", "pipeline_parallel_size")
        world = math.prod(check_integer(name, arguments.get(name, 1), 1) for name in names)
        gpus = float(world if most else 0) if gpus_per_worker is None else float(gpus_per_worker)
        if gpus and world > 1 and gpus != world:
            rule = f"be tensor_parallel_size × pipeline_parallel_size = {world}"
            raise ModelConfigError.of("gpus_per_worker", "mismatch", rule, gpus_per_worker)
        wanted = arguments.get("distributed_executor_backend")
        if gpus <= 1 or wanted not in (None, "ray"):
            return WorkerResources(gpus)
        spread = wanted == "ray" or gpus > most
        added = {"distributed_executor_backend": "ray" if spread else "mp"}
        return WorkerResources(gpus, spread, added)
    if gpus_per_worker is not None:
        return WorkerResources(float(gpus_per_worker))
    on_cpu = backend == "biased_coin" or str(arguments.get("device") or "").startswith("cpu")
    return WorkerResources(1.0 if most and not on_cpu else 0.0)


#: Without these Ray would warn of a change of defaults in a later release, and send statistics of
#: its use.
_ENVIRONMENT = {
    "RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO": "0",
    "RAY_USAGE_STATS_ENABLED": "0",
}

#: Where Ray keeps the token of this user's clusters.
_TOKEN = Path("~/.ray/auth_token").expanduser()

#: The memory of a local cluster for objects; trials are much smaller.
_OBJECT_STORE_BYTES = 128 * 2**20

#: More than the calls of a worker that run at the same time.
_THREADS = 8

#: Before Ray's reason for the death of an actor.
_DEAD = "The actor is dead because "


class WorkerDiedError(Exception):
    """The process of a worker is gone."""


def import_ray() -> Any:
    """Return the package.

    Raises
    ------
    ModelConfigError
        If it is not installed.
    """
    for name, value in _ENVIRONMENT.items():
        os.environ.setdefault(name, value)
    try:
        import ray
    except ImportError as error:
        sentence = f"executor=ray needs the package ray: {pip_install_extra('ray')}"
        raise ModelConfigError(sentence, "not-installed", "ray") from error
    return ray


def _send_token(ray: Any) -> None:
    """Send the token of this user's clusters, if there is one, from this process.

    `ray start` asks for it. `ray.init` of 2.60 sends it to a cluster that it starts or finds by
    itself, but to the one of an address only with this variable.
    """
    if _TOKEN.is_file() and "RAY_AUTH_MODE" not in os.environ:
        os.environ["RAY_AUTH_MODE"] = "token"
        ray._raylet.Config.initialize("")  # it has read the variable when it was imported


class RayCluster:
    """A running cluster, or one that is started on this computer and ends with this process.

    The environment variable ``RAY_ADDRESS`` names a cluster, or is ``local`` for one of its own.
    Without it a cluster that runs on this computer is joined.

    Parameters
    ----------
    workers : int
        A cluster that is started has at least so many CPUs, of Ray's count.

    Raises
    ------
    ModelConfigError
        If Ray is not installed, or the cluster of ``RAY_ADDRESS`` cannot be joined.

    Attributes
    ----------
    started : bool
        Whether it was started here.
    """

    def __init__(self, workers: int) -> None:
        self._ray = import_ray()
        self.started = False
        self._groups: dict[Any, Any] = {}
        if self._ray.is_initialized():
            return
        main = threading.current_thread() is threading.main_thread()
        handler = signal.getsignal(signal.SIGTERM)
        try:
            self._connect(workers)
        finally:
            if main and handler is not None:  # Ray has replaced it
                signal.signal(signal.SIGTERM, handler)

    def _connect(self, workers: int) -> None:
        address = os.environ.get("RAY_ADDRESS") or "auto"
        if address not in ("auto", "local"):
            _send_token(self._ray)
        if address != "local":
            try:
                self._ray.init(address=address, logging_level="warning")
                at = self._ray.get_runtime_context().gcs_address
                log.info("joined the Ray cluster at %s", at)
                return
            except (ConnectionError, RuntimeError, ValueError) as error:
                # RuntimeError: another release of Ray or Python
                if address != "auto" or not isinstance(error, ConnectionError):
                    rule = f"name a Ray cluster that can be joined ({one_line(error)}), or be local"
                    raise ModelConfigError.of("RAY_ADDRESS", "failed", rule, address) from error
        self._ray.init(
            address="local",
            num_cpus=max(workers, os.cpu_count() or 1),
            include_dashboard=False,
            object_store_memory=_OBJECT_STORE_BYTES,
            logging_level="warning",
        )
        self.started = True
        log.info("started Ray on this computer")

    def nodes(self) -> list[dict[str, float]]:
        """Return the resources of every node that is alive, by Ray's names."""
        return [dict(node["Resources"]) for node in self._ray.nodes() if node["Alive"]]

    # -- workers -------------------------------------------------------------------------------

    def start(self, setup: WorkerSetup, resources: WorkerResources) -> Any:
        """Start a worker as soon as there is room for it; return its handle."""
        options: dict[str, Any] = {
            "num_cpus": 1,
            "num_gpus": resources.gpus,
            "max_concurrency": _THREADS,
            "max_restarts": 0,
        }
        group = None
        if resources.spread:
            from ray.util.placement_group import placement_group
            from ray.util.scheduling_strategies import PlacementGroupSchedulingStrategy

            group = placement_group(resources.bundles(), strategy="PACK")
            options["num_gpus"] = 0
            options["scheduling_strategy"] = PlacementGroupSchedulingStrategy(
                group, placement_group_bundle_index=0, placement_group_capture_child_tasks=True
            )
        elif not resources.gpus:
            options["scheduling_strategy"] = "SPREAD"
        actor = self._ray.remote(TrialWorker).options(**options).remote(setup)
        self._groups[actor] = group
        return actor

    def call(self, worker: Any, method: str, *arguments: Any) -> Any:
        """Call a method of a worker; return a reference to its result."""
        return getattr(worker, method).remote(*arguments)

    def shared(self, value: Any) -> Any:
        """Return a reference to a value that several workers are sent."""
        return self._ray.put(value)

    def wait(self, references: Sequence[Any], timeout_s: float) -> list[Any]:
        """Return the references whose results are there; wait for the first one."""
        ready, _ = self._ray.wait(list(references), num_returns=1, timeout=timeout_s)
        if ready:
            ready, _ = self._ray.wait(list(references), num_returns=len(references), timeout=0)
        return list(ready)

    def result(self, reference: Any) -> Any:
        """Return the result of a call.

        Raises
        ------
        WorkerDiedError
            If the worker's process is gone, or could not be started.
        Exception
            What the method raised.
        """
        try:
            return self._ray.get(reference)
        except self._ray.exceptions.RayTaskError as error:
            raise error.cause from error
        except self._ray.exceptions.RayError as error:
            text = f"{error!r}\n{error}"
            lines = [line.strip() for line in text.splitlines() if line.strip()]
            # of a start that failed, the last line is the exception
            reason = next((line for line in lines if line.startswith(_DEAD)), lines[-1])
            cause = reason.removeprefix(_DEAD).partition(" Worker exit type")[0].rstrip(".")
            raise WorkerDiedError(cause) from error

    def kill(self, worker: Any) -> None:
        """End a worker's process, if it is running, and free its place."""
        group = self._groups.pop(worker, None)
        with suppress(Exception):  # it may be dead, or the cluster gone
            self._ray.kill(worker, no_restart=True)
        if group is not None:
            from ray.util.placement_group import remove_placement_group

            with suppress(Exception):
                remove_placement_group(group)

    def close(self) -> None:
        """End what was started here."""
        if self.started and self._ray.is_initialized():
            self._ray.shutdown()
