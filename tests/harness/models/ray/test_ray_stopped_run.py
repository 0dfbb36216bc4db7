"""Runs with `executor=ray` that are stopped by a signal: nothing is left running, and they go on.

Each starts a cluster of its own.
"""

import importlib.util
import json
import os
import signal
import subprocess
import sys
import time

import psutil
import pytest
from _support.stored_trials import stored_trials
from _support.waiting import wait_until

# by themselves, as in test_ray_processes.py
pytestmark = [
    pytest.mark.slow,
    pytest.mark.ray,
    pytest.mark.skipif(importlib.util.find_spec("ray") is None, reason="needs lm-eval-bayes[ray]"),
]

TASK = "demo_arithmetic_bayes"
TRIALS = 20
QUESTIONS = 40


def command(store, *words):
    model_args = f"backend=biased_coin,beta=2:3,store={store}"
    return [
        *(sys.executable, "-m", "lm_eval_bayes", "run", "--model", "trials"),
        *("--model_args", ",".join((model_args, *words)), "--tasks", TASK),
        *("--metadata", json.dumps({"bayes_n": TRIALS})),
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


@pytest.fixture
def marked(tmp_path):
    """Return an environment for a run, and end what runs in it after the test."""
    yield {**os.environ, "RAY_ADDRESS": "local", "TEST_OF_RAY": str(tmp_path)}
    for process in leftovers(str(tmp_path)):
        process.kill()


def interruptible():
    """Handle Ctrl-C as usual, although what a script starts in the background ignores it."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)


def finish(store, environment, *words):
    done = subprocess.run(
        command(store, *words),
        env=environment,
        cwd=store.parent,
        capture_output=True,
        text=True,
        timeout=1800,
    )
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize(
    "signum", [signal.SIGINT, signal.SIGTERM, signal.SIGKILL], ids=lambda signum: signum.name
)
def test_a_run_that_is_stopped_leaves_no_process_and_is_resumed(tmp_path, marked, signum):
    store, marker = tmp_path / "ray.sqlite", marked["TEST_OF_RAY"]
    output = tmp_path / "log"
    with output.open("w") as file:
        child = subprocess.Popen(
            command(store, "executor=ray", "workers=2", "seconds=0.5"),
            env=marked,
            cwd=tmp_path,
            stdout=file,
            stderr=subprocess.STDOUT,
            preexec_fn=interruptible,
        )
    try:
        deadline = time.monotonic() + 1500
        while not (store.exists() and len(stored_trials(store)) >= 10):
            assert child.poll() is None, output.read_text()
            assert time.monotonic() < deadline, output.read_text()
            time.sleep(0.5)
        assert len(leftovers(marker)) >= 4  # the run, two workers, and Ray's own
        child.send_signal(signum)
        child.wait(timeout=600)
    finally:
        child.kill()
        child.wait()
    log = output.read_text()
    print(log[-3000:])
    assert child.returncode in (-signum, 128 + signum)
    if signum == signal.SIGINT:
        assert "stopped; stored: " in log
    wait_until(lambda: not leftovers(marker))
    kept = stored_trials(store)
    assert 10 <= len(kept) < TRIALS * QUESTIONS
    finish(store, marked, "executor=ray", "workers=2")
    assert leftovers(marker) == []
    complete = stored_trials(store)
    assert len(complete) == TRIALS * QUESTIONS
    assert {identity: complete[identity] for identity in kept} == kept
    alone = tmp_path / "alone.sqlite"
    finish(alone, marked)
    assert stored_trials(alone) == complete
