"""Processes that write stores and are killed: the scenes of tests/store/test_processes.py.

Run as `python -m _support.writers SCENE ARGUMENTS`. The package is imported once and the writers
are forked, so that a kill costs milliseconds. Every trial that a writer has committed is appended
to a file, one line per trial.
"""

from __future__ import annotations

import itertools
import json
import os
import random
import signal
import sys
import time
from pathlib import Path

from _support.forked_processes import fork, run_together, wait_for
from lm_eval_bayes.store.prune import verify
from lm_eval_bayes.store.trial import Trial, TrialKey
from lm_eval_bayes.store.trial_store import TrialStore

PROMPT = "How many?"


def text_of(number):
    """A text that tells which trial it is, of a length that tells too."""
    return f"{number} " + chr(97 + number % 26) * (number * 7919 % 6000)


def key_in(store):
    return TrialKey(
        model=store.describe_model({"pretrained": "some/model"}),
        prompt=store.describe_prompts([PROMPT])[0],
        sampling=store.describe_sampling({"temperature": 1}),
    )


def trial(key, number, **changes):
    return Trial(key, number, text_of(number), seed=number, signals={"n": number}, **changes)


def write_forever(path, record, seed):
    rng = random.Random(seed)
    with TrialStore.open(path) as store:
        key = key_in(store)
        number = max(store.numbers_of([key])[key], default=-1) + 1
        while True:
            batch = range(number, number + rng.randint(1, 3))
            store.add([trial(key, i) for i in batch])
            os.write(record, "".join(f"{i}\n" for i in batch).encode())
            number = batch.stop


def killed(path, record, kills, seed):
    """One writer after the other, each killed at a random moment, opening included."""
    rng = random.Random(int(seed))
    descriptor = os.open(record, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    codes = []
    for i in range(int(kills)):
        size = os.fstat(descriptor).st_size
        child = fork(lambda i=i: write_forever(path, descriptor, i))
        # Every other one gets as far as a commit, however slow the computer is.
        while i % 2 and os.fstat(descriptor).st_size == size:
            time.sleep(0.001)
        time.sleep(rng.choice([0.002, 0.02, 0.1]) * rng.random())
        os.kill(child, signal.SIGKILL)
        codes += wait_for([child])
    print(json.dumps(codes))


def created(folder, kills, seed):
    """Writers that are killed while the store comes into being."""
    rng = random.Random(int(seed))
    outcome = []
    for i in range(int(kills)):
        path = Path(folder) / f"{i}.sqlite"
        child = fork(lambda path=path: TrialStore.open(path).close())
        time.sleep(0.012 * rng.random())
        os.kill(child, signal.SIGKILL)
        wait_for([child])
        existing = path.exists()
        sound = verify(path).ok if existing else None
        with TrialStore.open(path) as store:
            store.add([trial(key_in(store), 0)])
        outcome.append([existing, sound, verify(path).records["trials"]])
    print(json.dumps(outcome))


def together(path, writers, trials, shared):
    """Writers that begin at one moment, with no store yet.

    Each writes trials of its own, and some that all of them write.
    """
    n, k, own = int(writers), int(shared), int(trials)

    def write(writer):
        with TrialStore.open(path) as store:
            key = key_in(store)
            new = 0
            for i in range(k):
                new += store.add([trial(key, i)])
            for i in range(k + writer, k + n * own, n):
                new += store.add([trial(key, i, concurrency=writer)])
        assert own <= new <= own + k

    run_together(n, write)


def until(path, writers, end):
    """Writers that add trials until a file exists."""
    n = int(writers)

    def write(writer):
        with TrialStore.open(path) as store:
            key = key_in(store)
            for i in itertools.count(writer, n):
                if os.path.exists(end):
                    break
                store.add([trial(key, i)])

    run_together(n, write)


if __name__ == "__main__":
    scenes = {"killed": killed, "created": created, "together": together, "until": until}
    scenes[sys.argv[1]](*sys.argv[2:])
