"""`executor=ray` on a real cluster of processes: the same trials, killed workers, new nodes."""

import importlib.util
import os
import random
import signal
import threading
import time

import pytest
from _support.stored_trials import stored_trials
from _support.trial_requests import sums

from lm_eval_bayes.harness.models.ray.cluster import import_ray
from lm_eval_bayes.harness.models.trials import TrialsLM

# Ray gives a node 30 seconds to start, and ends the process that joined a cluster whose node does
# not answer in time. Both happen on a busy computer, so that these tests run by themselves.
pytestmark = [
    pytest.mark.slow,
    pytest.mark.ray,
    pytest.mark.skipif(importlib.util.find_spec("ray") is None, reason="needs lm-eval-bayes[ray]"),
]

QUESTIONS = 10


def instances(trials):
    return sums(trials, QUESTIONS)


def coin(path, **arguments):
    return TrialsLM(backend="biased_coin", store=str(path), beta="2:3", **arguments)


@pytest.fixture(scope="module")
def cluster():
    """A cluster whose first node has room for two workers; it is the one that runs join."""
    ray = import_ray()
    from ray.cluster_utils import Cluster

    for attempt in range(3):
        cluster = Cluster()
        try:
            cluster.add_node(num_cpus=2, object_store_memory=100 * 2**20, include_dashboard=False)
            cluster.connect()
            break
        except Exception:
            ray.shutdown()
            cluster.shutdown()
            if attempt == 2:
                raise
    yield cluster
    ray.shutdown()
    cluster.shutdown()


@pytest.fixture
def closed():
    """End the workers of a test's models."""
    models = []
    yield models.append
    for model in models:
        if model._pool is not None:
            model._pool.close()


def worker_pids(model):
    pool = model._pool
    seats = [] if pool is None else pool.seats
    return {seat.number: seat.description.pid for seat in seats if not seat.loading}


def test_twenty_killed_workers_lose_and_double_nothing(cluster, closed, tmp_path):
    """Workers are killed at random moments while they sample, each by SIGKILL."""
    rng = random.Random(20)
    lm = coin(tmp_path / "ray.sqlite", executor="ray", workers=2, seconds=0.03)
    closed(lm)
    trials = 150
    killed, over = [], threading.Event()

    def kill():
        while len(killed) < 20 and not over.wait(0.05 + 0.4 * rng.random()):
            # one of several that die in a row without returning a trial ends the run
            seats = [] if lm._pool is None else lm._pool.seats
            seats = [seat for seat in seats if not seat.loading and not seat.deaths]
            pids = [s.description.pid for s in seats if s.description.pid not in killed]
            if pids:
                time.sleep(0.3 * rng.random())
                pid = rng.choice(pids)
                killed.append(pid)
                os.kill(pid, signal.SIGKILL)

    killer = threading.Thread(target=kill)
    killer.start()
    try:
        texts = lm.generate_until(instances(trials), disable_tqdm=True)
    finally:
        over.set()
        killer.join()
    assert len(killed) == 20
    alone = coin(tmp_path / "alone.sqlite")
    assert texts == alone.generate_until(instances(trials), disable_tqdm=True)
    # stored_trials fails where a trial is stored twice
    assert stored_trials(tmp_path / "ray.sqlite") == stored_trials(tmp_path / "alone.sqlite")
    assert lm.get_model_info()["trials"]["generated"] == trials * QUESTIONS


def test_a_worker_that_no_node_has_room_for_waits_for_one_and_new_nodes_join(
    cluster, closed, tmp_path
):
    lm = coin(tmp_path / "ray.sqlite", executor="ray", workers=3, seconds=0.2)
    closed(lm)
    joined, workers = None, []
    arrivals = lm.streamed_trials(instances(1)).sample([60] * QUESTIONS)
    for came, _ in enumerate(arrivals, start=1):
        workers.append(len(worker_pids(lm)))
        if came == 5:
            joined = cluster.add_node(num_cpus=1, object_store_memory=100 * 2**20)
        if workers[-1] == 3 and max(workers[:-1]) == 2:
            cluster.remove_node(joined)  # takes its worker with it
    assert max(workers[:5]) <= 2
    assert max(workers) == 3
    assert workers[-1] == 2
    alone = coin(tmp_path / "alone.sqlite")
    alone.generate_until(instances(60), disable_tqdm=True)
    assert stored_trials(tmp_path / "ray.sqlite") == stored_trials(tmp_path / "alone.sqlite")
