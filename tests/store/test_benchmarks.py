"""The goals of size and speed: pytest -m benchmarks (this file)

100,000 trials of 1,250 questions, each with a text of 1,000 characters and signals: stored in under
30 s, one commit a trial and 64 a commit.

10,000, 100,000 and 1,000,000 trials, graded, each of 600 characters: information, look-ups, merge,
exports and compaction, each in a process of its own. The processor's time per trial at a size is
less than twice that of the next smaller one, and memory stays below 300 MB.
"""

from __future__ import annotations

import importlib.util
import random
from collections import defaultdict

import pytest
from _support.paths import REPOSITORY

from lm_eval_bayes.store.trial_store import TrialStore

pytest.importorskip("pytest_benchmark", reason="pytest-benchmark is not installed")
pytestmark = pytest.mark.benchmarks

QUESTIONS, TRIALS = 1_250, 80
RNG = random.Random(1)
TEXTS = ["".join(RNG.choices("abcdefgh ijkl\n", k=1_000)) for _ in range(100)]


@pytest.mark.parametrize("batch", [1, 64])
def test_storing_a_hundred_thousand_trials(benchmark, path, describe, make_trial, batch):
    benchmark.group = "store 100,000 trials"
    with TrialStore.open(path) as store:
        keys = [describe(store, f"Question {q}: " + "what? " * 40) for q in range(QUESTIONS)]
        trials = [
            make_trial(key, i, TEXTS[(i * 7 + q) % 100], seed=i * QUESTIONS + q)
            for i in range(TRIALS)
            for q, key in enumerate(keys)
        ]

        def add_all():
            for start in range(0, len(trials), batch):
                store.add(trials[start : start + batch])

        benchmark.pedantic(add_all, rounds=1)
        assert store.info().trials == len(trials)
    assert benchmark.stats.stats.max < 30


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
