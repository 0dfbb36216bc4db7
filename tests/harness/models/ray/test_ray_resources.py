"""What a worker asks a cluster for."""

import pytest
from _support.errors import refused

from lm_eval_bayes.errors import InvalidInputError, ModelConfigError
from lm_eval_bayes.harness.models.ray.cluster import WorkerResources, worker_resources

CPU = [{"CPU": 4.0}]
EIGHT = [{"CPU": 64.0, "GPU": 8.0}, {"CPU": 64.0, "GPU": 8.0}]


@pytest.mark.parametrize(
    ("backend", "arguments", "gpus", "executor"),
    [
        ("biased_coin", {}, 0, None),
        ("hf", {}, 1, None),
        ("vllm", {}, 1, None),
        ("vllm", {"tensor_parallel_size": 4}, 4, "mp"),
        ("vllm", {"tensor_parallel_size": 8, "pipeline_parallel_size": 2}, 16, "ray"),
        ("vllm", {"tensor_parallel_size": 2, "distributed_executor_backend": "ray"}, 2, "ray"),
        ("vllm", {"tensor_parallel_size": 2, "distributed_executor_backend": "mp"}, 2, None),
    ],
)
def test_gpus_follow_from_the_arguments(backend, arguments, gpus, executor):
    resources = worker_resources(backend, arguments, None, EIGHT)
    added = {} if executor is None else {"distributed_executor_backend": executor}
    assert (resources.gpus, resources.arguments) == (gpus, added)
    assert resources.spread is (executor == "ray")


def test_a_spread_worker_has_a_bundle_per_gpu():
    resources = worker_resources("vllm", {"tensor_parallel_size": 16}, None, EIGHT)
    assert resources.bundles() == [{"GPU": 1.0, "CPU": 1.0}] * 16
    assert resources.room(EIGHT) == 1
    assert str(resources) == "1 CPU and 16 GPUs on any nodes"


def test_how_many_workers_fit():
    assert WorkerResources(gpus=0).room(CPU) == 4
    assert WorkerResources(gpus=1).room([*EIGHT, *CPU]) == 16
    assert WorkerResources(gpus=3).room(EIGHT) == 4
    assert WorkerResources(gpus=0.5).room(EIGHT) == 32
    assert WorkerResources(gpus=1).room(CPU) == 0


def test_the_number_may_be_given():
    assert worker_resources("hf", {"parallelize": True}, 4, CPU).gpus == 4.0
    assert worker_resources("vllm", {"tensor_parallel_size": 4}, 4, CPU).spread
    assert worker_resources("vllm", {"tensor_parallel_size": 4}, 0, EIGHT).gpus == 0.0


@pytest.mark.parametrize(
    ("arguments", "gpus_per_worker", "broken"),
    [
        ({}, -1, ("gpus_per_worker", "range", -1)),
        ({}, 1.5, ("gpus_per_worker", "range", 1.5)),
        ({}, float("nan"), ("gpus_per_worker", "range")),
        ({"tensor_parallel_size": 4}, 2, ("gpus_per_worker", "mismatch", 2)),
        ({"tensor_parallel_size": "8"}, None, ("tensor_parallel_size", "range", "8")),
    ],
)
def test_resources_that_cannot_be(arguments, gpus_per_worker, broken):
    with refused(*broken, error=(ModelConfigError, InvalidInputError)):
        worker_resources("vllm", arguments, gpus_per_worker, EIGHT)
