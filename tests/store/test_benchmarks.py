"""The goals of size and speed: pytest -m benchmarks (this file)

100,000 trials of 1,250 questions, each with a text of 1,000 characters (or 250) and signals:
stored in under 30 s, one commit a trial and 64 a commit, and looked up in under 1 s, or, on a
computer too busy for that, in under eight times what SQLite itself needs to read the same rows:
each text is decompressed and compared with its hash.

10,000, 100,000 and 1,000,000 trials, graded, each of 600 characters: information, look-ups, merge,
exports and compaction, each in a process of its own. The processor's time per trial at a size is
less than twice that of the next smaller one, and memory stays below 300 MB.
"""

from __future__ import annotations

import importlib.util
import random
import sqlite3
import time
from collections import defaultdict
from contextlib import closing

import pytest
from _support.paths import REPOSITORY

from lm_eval_bayes.store.trial import Trial, TrialKey
from lm_eval_bayes.store.trial_store import TrialStore

pytest.importorskip("pytest_benchmark", reason="pytest-benchmark is not installed")
pytestmark = pytest.mark.benchmarks

QUESTIONS, TRIALS = 1_250, 80
READ_ALL = "SELECT * FROM trials ORDER BY model, sampling, prompt, trial"
RNG = random.Random(1)
TEXTS = ["".join(RNG.choices("abcdefgh ijkl\n", k=1_000)) for _ in range(100)]


def make_trials(store, length=1_000):
    model = store.describe_model({"pretrained": "some/model"})
    sampling = store.describe_sampling({"temperature": 0.6})
    prompts = store.describe_prompts([f"Question {q}: " + "what? " * 40 for q in range(QUESTIONS)])
    keys = [TrialKey(model=model, prompt=prompt, sampling=sampling) for prompt in prompts]
    return keys, [
        Trial(
            key,
            i,
            TEXTS[(i * 7 + q) % 100][:length],
            seed=i * QUESTIONS + q,
            signals={"bits": 0.123456 * q, "prompt_bits": 0.5, "think_closed": True},
            prompt_tokens=60,
            completion_tokens=300,
            finish_reason="stop",
            stop_reason="\n\n",
            queued_s=0.25,
            generated_s=3.5,
            concurrency=64,
            versions={"vllm": "0.32.0", "torch": "2.13.0"},
        )
        for i in range(TRIALS)
        for q, key in enumerate(keys)
    ]


def make_store(folder, length):
    path = folder / f"{length}.sqlite"
    with TrialStore.open(path) as store:
        keys, trials = make_trials(store, length)
        store.add(trials)
    return path, keys, trials


@pytest.mark.parametrize("batch", [1, 64])
def test_storing_a_hundred_thousand_trials(benchmark, path, batch):
    benchmark.group = "store 100,000 trials"
    with TrialStore.open(path) as store:
        _, trials = make_trials(store)

        def add_all():
            for start in range(0, len(trials), batch):
                store.add(trials[start : start + batch])

        benchmark.pedantic(add_all, rounds=1)
        assert store.info().trials == len(trials)
    assert benchmark.stats.stats.max < 30


def least_time(path):
    times = []
    for _ in range(3):
        with closing(sqlite3.connect(path)) as connection:
            start = time.perf_counter()
            connection.execute(READ_ALL).fetchall()
            times.append(time.perf_counter() - start)
    return min(times)


@pytest.mark.parametrize("length", [250, 1_000])
def test_looking_up_a_hundred_thousand_trials(benchmark, tmp_path, length):
    benchmark.group = "look up 100,000 trials"
    path, keys, trials = make_store(tmp_path, length)
    with TrialStore.open(path, mode="read") as store:
        trials_by_key = benchmark.pedantic(store.trials_of, args=(keys, TRIALS), rounds=5)
    assert sum(map(len, trials_by_key.values())) == len(trials)
    assert trials_by_key[keys[3]][5] == trials[5 * QUESTIONS + 3]
    assert benchmark.stats.stats.min < max(1.0, 8 * least_time(path))


# -- from 10,000 to 1,000,000 trials, by examples/store_sizes.py -----------------------------------

SIZES = (10_000, 100_000, 1_000_000)

#: The most seconds and megabytes at 1,000,000 trials.
GOALS = {
    "look up": (2, 300),
    "info": (5, 300),
    "verify": (None, 300),
    "merge": (None, 300),
    "export": (None, 300),
    "export samples": (None, 300),
    "compact": (None, 300),
}

#: What was measured, by operation and size.
MEASURED = defaultdict(dict)


@pytest.fixture(scope="module")
def store_sizes():
    path = REPOSITORY / "examples" / "store_sizes.py"
    spec = importlib.util.spec_from_file_location("store_sizes", path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="module", params=SIZES)
def graded(request, store_sizes, tmp_path_factory):
    path = tmp_path_factory.mktemp("graded") / f"{request.param}.sqlite"
    store_sizes.fill(path, request.param)
    return path, request.param


@pytest.mark.parametrize("operation", GOALS)
def test_any_number_of_trials(benchmark, store_sizes, graded, operation):
    path, n = graded
    benchmark.group = f"{operation} of a store"
    measured = benchmark.pedantic(store_sizes.measure, args=(operation, path), rounds=1)
    benchmark.extra_info.update(measured)
    MEASURED[operation][n] = measured
    seconds, megabytes = GOALS[operation]
    assert measured["trials"] == n
    assert measured["megabytes"] < megabytes
    assert seconds is None or measured["seconds"] < seconds


@pytest.mark.parametrize("operation", GOALS)
def test_time_is_proportional_to_the_number_of_trials(store_sizes, operation):
    if set(MEASURED[operation]) != set(SIZES):
        pytest.skip("test_any_number_of_trials did not measure all sizes")
    assert store_sizes.superlinear(MEASURED[operation]) < 2
