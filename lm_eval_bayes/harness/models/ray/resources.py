"""What one worker needs of a cluster: CPUs, GPUs, and the nodes that a model is spread over."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from lm_eval_bayes._util.validation import check_integer
from lm_eval_bayes.errors import ModelConfigError


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
        each = 1.0 if self.spread else self.gpus
        rooms = [
            min(node.get("CPU", 0.0), node.get("GPU", 0.0) / each if each else math.inf)
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
