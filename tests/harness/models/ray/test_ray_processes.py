"""`executor=ray` on a real cluster of processes: the same trials, killed workers, new nodes."""

import importlib.util
import json
import os
import random
import signal
import subprocess
import sys
import threading
import time

import psutil
import pytest
from _support.harness_command import few_tasks
from _support.stored_trials import stored_trials

from lm_eval_bayes.cli.commands.run import StoppingOptions, run
from lm_eval_bayes.errors import ModelConfigError
from lm_eval_bayes.harness.compat import new_instance
from lm_eval_bayes.harness.models.ray.cluster import import_ray
from lm_eval_bayes.harness.models.trials import TrialsLM

# Not part of continuous integration: Ray gives a node 30 seconds to start, and ends the process
# that joined a cluster whose node does not answer in time. Both happen on a busy computer.
pytestmark = [
    pytest.mark.slow,
    pytest.mark.by_hand,
    pytest.mark.skipif(importlib.util.find_spec("ray") is None, reason="needs lm-eval-bayes[ray]"),
]

QUESTIONS = 10
TASK = "demo_arithmetic_bayes"


def instances(trials):
    asked = []
    for number in range(QUESTIONS):
        doc = {"problem": f"What is {number} + 5?", "answer": str(number + 5)}
        arguments = (doc["problem"], {"temperature": 1.0})
        asked += [new_instance(doc, arguments, task="demo", doc_id=number, repeats=trials)] * trials
    return asked


def coin(path, **arguments):
    return TrialsLM(backend="biased_coin", store=str(path), beta="2:3", **arguments)


@pytest.fixture(scope="module")
def cluster():
    """A cluster whose first node has room for two workers; it is the one that runs join."""
    ray = import_ray()
    from ray.cluster_utils import Cluster

    head = {"num_cpus": 2, "object_store_memory": 100 * 2**20, "include_dashboard": False}
    made = None
    for attempt in range(3):  # Ray gives a node 30 seconds to start, too few for a busy machine
        try:
            made = Cluster(initialize_head=True, connect=True, head_node_args=head)
            break
        except Exception:
            if attempt == 2:
                raise
    yield made
    ray.shutdown()
    made.shutdown()


@pytest.fixture
def closed():
    """End the workers of a test's models."""
    models = []
    yield models.append
    for model in models:
        if model._pool is not None:
            model._pool.close(at_once=True)


def worker_pids(model):
    pool = model._pool
    seats = [] if pool is None else pool.seats
    return {seat.number: seat.description.pid for seat in seats if seat.description is not None}


def test_the_trials_are_those_of_one_process(cluster, closed, tmp_path):
    alone = coin(tmp_path / "alone.sqlite")
    lm = coin(tmp_path / "ray.sqlite", executor="ray", workers=2, seconds=0.2)
    closed(lm)
    expected = alone.generate_until(instances(8), disable_tqdm=True)
    assert lm.generate_until(instances(8), disable_tqdm=True) == expected
    pids = set(worker_pids(lm).values())
    assert len(pids) == 2
    assert os.getpid() not in pids
    assert stored_trials(tmp_path / "ray.sqlite") == stored_trials(tmp_path / "alone.sqlite")


def test_twenty_killed_workers_lose_and_double_nothing(cluster, closed, tmp_path):
    """Workers are killed at random moments while they sample, each by SIGKILL."""
    rng = random.Random(20)
    lm = coin(tmp_path / "ray.sqlite", executor="ray", workers=2, seconds=0.03)
    closed(lm)
    trials = 400
    killed, over = [], threading.Event()

    def kill():
        while len(killed) < 20 and not over.wait(0.05 + 0.4 * rng.random()):
            # a worker is killed only after it has returned a trial
            seats = [] if lm._pool is None else [s for s in lm._pool.seats if s.ready]
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


def test_an_error_in_a_workers_constructor_is_one_sentence(cluster, tmp_path):
    """The file is there when the driver reads it, and gone when the workers do."""
    table = tmp_path / "p.txt"
    table.write_text("0.5\n" * QUESTIONS)
    lm = TrialsLM(
        backend="biased_coin",
        store=str(tmp_path / "a.sqlite"),
        file=str(table),
        executor="ray",
        workers=2,
    )
    asked = instances(2)
    lm.notice(asked)
    table.unlink()
    with pytest.raises(ModelConfigError, match=r"^`file` .*p\.txt cannot be read: No such file"):
        lm.generate_until(asked, disable_tqdm=True)
    assert stored_trials(tmp_path / "a.sqlite") == {}


def test_a_worker_that_no_node_has_room_for_waits_for_one_and_new_nodes_join(
    cluster, closed, tmp_path
):
    lm = coin(tmp_path / "ray.sqlite", executor="ray", workers=3, seconds=0.1)
    closed(lm)
    seen, nodes = [], []
    requests = lm.trial_requests(instances(200))
    for count, _ in enumerate(lm.sampled(requests, True), start=1):
        if count == 5:
            nodes.append(cluster.add_node(num_cpus=1, object_store_memory=100 * 2**20))
        seen.append(len(worker_pids(lm)))
    assert seen[4] <= 2
    assert seen[-1] == 3
    assert len(stored_trials(tmp_path / "ray.sqlite")) == 200 * QUESTIONS
    lm._pool.close(at_once=True)
    # a node that leaves takes its worker with it
    again = coin(tmp_path / "again.sqlite", executor="ray", workers=3, seconds=0.1)
    closed(again)
    requests = again.trial_requests(instances(60))
    for count, _ in enumerate(again.sampled(requests, True), start=1):
        if len(worker_pids(again)) == 3 and nodes:
            assert count < 60 * QUESTIONS
            cluster.remove_node(nodes.pop())
    assert not nodes
    assert len(stored_trials(tmp_path / "again.sqlite")) == 60 * QUESTIONS


def test_run_stops_by_its_rule_with_the_trials_of_one_process(cluster, tmp_path):
    def scores(name, *model_args):
        arguments = ",".join(("beta=2:3", *model_args))
        with few_tasks():
            code = run(
                [
                    *("--model", "biased_coin", "--model_args", arguments, "--tasks", TASK),
                    *("--output_path", str(tmp_path / name), "--log_samples"),
                ],
                StoppingOptions(store=str(tmp_path / f"{name}.sqlite"), width=0.1),
            )
        assert code == 0
        (path,) = (tmp_path / name).rglob("results_*.json")
        return json.loads(path.read_text())["results"][TASK]

    alone = scores("alone")
    with_ray = scores("ray", "executor=ray", "workers=2")
    assert with_ray == alone
    # what was running when the rule held may be stored as well
    by_one, by_ray = (stored_trials(tmp_path / f"{n}.sqlite") for n in ("alone", "ray"))
    assert by_one.items() <= by_ray.items()


# -- a cluster of the run's own ------------------------------------------------------------------


def command(store, *words):
    model_args = f"backend=biased_coin,beta=2:3,store={store},executor=ray,workers=2"
    return [
        *(sys.executable, "-m", "lm_eval_bayes", "run", "--model", "trials"),
        *("--model_args", ",".join((model_args, *words)), "--tasks", TASK),
        *("--metadata", json.dumps({"bayes_n": 100})),
    ]


def leftovers(marker):
    """Return the running processes that have a variable of their environment."""
    running = []
    for process in psutil.process_iter():
        try:
            if process.environ().get("TEST_OF_RAY") == marker:
                running.append(process)
        except psutil.Error:
            continue
    return [p for p in running if p.status() != psutil.STATUS_ZOMBIE]


@pytest.mark.parametrize("signum", [signal.SIGINT, signal.SIGTERM, signal.SIGKILL])
def test_a_run_that_is_stopped_leaves_no_process_and_is_resumed(tmp_path, signum):
    store, marker = tmp_path / "ray.sqlite", f"{tmp_path}"
    environment = {**os.environ, "RAY_ADDRESS": "local", "TEST_OF_RAY": marker}
    output = tmp_path / "log"
    with output.open("w") as file:
        child = subprocess.Popen(
            command(store, "seconds=0.2"),
            env=environment,
            cwd=tmp_path,
            stdout=file,
            stderr=subprocess.STDOUT,
        )
    try:
        deadline = time.monotonic() + 300
        while not (store.exists() and len(stored_trials(store)) >= 10):
            assert child.poll() is None, output.read_text()
            assert time.monotonic() < deadline
            time.sleep(0.5)
        assert len(leftovers(marker)) >= 4  # the run, two workers, and Ray's own
        child.send_signal(signum)
        child.wait(timeout=120)
    finally:
        child.kill()
        child.wait()
    log = output.read_text()
    print(log[-3000:])
    assert child.returncode != 0
    if signum == signal.SIGINT:
        assert "stopped; stored: " in log
        assert "Traceback" not in log
    deadline = time.monotonic() + 60
    while leftovers(marker) and time.monotonic() < deadline:
        time.sleep(0.2)
    assert leftovers(marker) == []
    kept = stored_trials(store)
    assert 10 <= len(kept) < 4000
    if signum == signal.SIGKILL:
        done = subprocess.run(
            command(store),
            env=environment,
            cwd=tmp_path,
            capture_output=True,
            text=True,
            timeout=300,
        )
        assert done.returncode == 0, done.stderr
        complete = stored_trials(store)
        assert len(complete) == 4000
        assert {identity: complete[identity] for identity in kept} == kept
        assert leftovers(marker) == []
