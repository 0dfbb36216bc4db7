"""The only module that calls Ray: a cluster, and workers as actors in it."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from lm_eval_bayes._util.packages import pip_install_extra
from lm_eval_bayes._util.text import one_line
from lm_eval_bayes.errors import ModelConfigError
from lm_eval_bayes.harness import get_logger
from lm_eval_bayes.harness.models.ray.messages import WorkerSetup
from lm_eval_bayes.harness.models.ray.resources import WorkerResources
from lm_eval_bayes.harness.models.ray.worker import TrialWorker

log = get_logger(__name__)

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
