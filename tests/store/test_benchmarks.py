"""The goals of size and speed: pytest -m benchmarks (this file)

100,000 trials of 1,250 questions, each with a text of 1,000 characters (or 250) and signals:
stored in under 30 s, one commit a trial and 64 a commit, and looked up in under 1 s, or, on a
computer too busy for that, in under eight times what SQLite itself needs to read the same rows:
each text is decompressed and compared with its hash.

10,000, 100,000 and 1,000,000 trials, graded, each of 600 characters: information, look-ups, merge
and exports, with the time and the peak memory of a process of its own.
"""

from __future__ import annotations

import json
import random
import sqlite3
import subprocess
import sys
import time
from contextlib import closing

import pytest

from lm_eval_bayes.store.export import export_jsonl
from lm_eval_bayes.store.merge import merge
from lm_eval_bayes.store.outcomes import GradedQuestion, GradedTask, GradedTrial
from lm_eval_bayes.store.trial import Trial, TrialKey
from lm_eval_bayes.store.trial_store import TrialStore
from lm_eval_bayes.store.verify import verify

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


@pytest.fixture(scope="module")
def large(tmp_path_factory):
    return make_store(tmp_path_factory.mktemp("large"), 1_000)


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


def test_storing_as_fast_as_sqlite_can(benchmark, path):
    benchmark.group = "store 100,000 trials"
    with closing(sqlite3.connect(path, isolation_level=None)) as connection:
        connection.execute("PRAGMA journal_mode = WAL")
        connection.execute("PRAGMA synchronous = NORMAL")
        connection.execute(
            "CREATE TABLE trials (question, trial, text, PRIMARY KEY (question, trial))"
        )

        def add_all():
            for i in range(TRIALS):
                for q in range(QUESTIONS):
                    values = (q, i, TEXTS[(i * 7 + q) % 100])
                    connection.execute("INSERT INTO trials VALUES (?, ?, ?)", values)

        benchmark.pedantic(add_all, rounds=1)


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


def test_asking_which_of_them_are_there(benchmark, large):
    benchmark.group = "look up 100,000 trials"
    path, keys, _ = large
    with TrialStore.open(path, mode="read") as store:
        numbers_by_key = benchmark.pedantic(store.numbers_of, args=(keys, TRIALS), rounds=3)
    assert all(numbers == set(range(TRIALS)) for numbers in numbers_by_key.values())


def test_looking_them_up_as_fast_as_sqlite_can(benchmark, large):
    benchmark.group = "look up 100,000 trials"
    path, _, trials = large
    with closing(sqlite3.connect(path)) as connection:
        rows = benchmark.pedantic(lambda: connection.execute(READ_ALL).fetchall(), rounds=3)
    assert len(rows) == len(trials)


@pytest.mark.parametrize("work", ["verify", "export", "merge", "info"])
def test_the_rest(benchmark, large, tmp_path, work):
    benchmark.group = "the whole store"
    path, _, trials = large

    def info():
        with TrialStore.open(path, mode="read") as store:
            return store.info().trials

    does = {
        "verify": lambda: verify(path).trials,
        "export": lambda: export_jsonl(path, tmp_path / "a.jsonl").trials,
        "merge": lambda: merge([path], tmp_path / "b.sqlite").added,
        "info": info,
    }
    assert benchmark.pedantic(does[work], rounds=1) == len(trials)


# -- from 10,000 to 1,000,000 trials ---------------------------------------------------------------

SIZES = (10_000, 100_000, 1_000_000)

WORK = """
import json, resource, sys, time
from pathlib import Path
from lm_eval_bayes.store.export import export_jsonl
from lm_eval_bayes.store.merge import merge
from lm_eval_bayes.store.samples_export import export_samples
from lm_eval_bayes.store.trial import TrialKey
from lm_eval_bayes.store.trial_store import TrialStore
from lm_eval_bayes.store.verify import verify
path, work, folder = sys.argv[1], sys.argv[2], Path(sys.argv[3])
def keys(store):
    with store.file.reading() as connection:
        (pair,) = connection.execute("SELECT m.hash, s.hash FROM models m, samplings s").fetchall()
        prompts = connection.execute("SELECT hash FROM prompts ORDER BY id").fetchall()
    return [TrialKey(pair[0], prompt, pair[1]) for (prompt,) in prompts]
def opened(use):
    with TrialStore.open(path, mode="read") as store:
        return use(store)
does = {
    "info": lambda: opened(lambda store: store.info().trials),
    "numbers": lambda: opened(lambda store: sum(map(len, store.numbers_of(keys(store)).values()))),
    "question": lambda: opened(lambda store: len(store.trials(keys(store)[7]))),
    "verify": lambda: verify(path).trials,
    "merge": lambda: merge([path], folder / "merged.sqlite").added,
    "export": lambda: export_jsonl(path, folder / "a.jsonl").trials,
    "samples": lambda: export_samples(path, folder / "samples").files[0].trials,
}
start = time.perf_counter()
count = does[work]()
seconds = time.perf_counter() - start
peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
print(json.dumps({"count": count, "seconds": seconds, "megabytes": peak}))
"""

#: The most seconds and megabytes at 1,000,000 trials.
GOALS = {
    "info": (5, 300),
    "numbers": (2, 300),
    "question": (2, 300),
    "verify": (None, 300),
    "merge": (None, 300),
    "export": (None, 300),
    "samples": (None, 300),
}


def fill_graded(path, n):
    """Store n trials of n / 80 questions, with grades."""
    with TrialStore.open(path) as store:
        model = store.describe_model({"pretrained": "some/model"})
        sampling = store.describe_sampling({"temperature": 0.6})
        prompts = store.describe_prompts(
            [f"Question {q}: " + "what? " * 20 for q in range(n // 80)]
        )
        for q, prompt in enumerate(prompts):
            key = TrialKey(model=model, prompt=prompt, sampling=sampling)
            trials = [Trial(key, i, TEXTS[(i * 7 + q) % 100][:600], seed=i) for i in range(80)]
            store.add(trials)
            graded = tuple(GradedTrial(key, i, i % 2, "42") for i in range(80))
            question = GradedQuestion(q, f"{q:064x}", graded)
            store.add_outcomes([GradedTask("aime", "1.0", "none", 2, (question,))])


@pytest.fixture(scope="module", params=SIZES)
def graded(request, tmp_path_factory):
    path = tmp_path_factory.mktemp("graded") / f"{request.param}.sqlite"
    fill_graded(path, request.param)
    return path, request.param


@pytest.mark.parametrize("work", GOALS)
def test_any_number_of_trials(benchmark, graded, work, tmp_path):
    path, n = graded
    benchmark.group = f"{work} of a store"
    command = [sys.executable, "-c", WORK, str(path), work, str(tmp_path)]

    def measure():
        done = subprocess.run(command, capture_output=True, text=True, check=True)
        return json.loads(done.stdout)

    measured = benchmark.pedantic(measure, rounds=1)
    benchmark.extra_info.update(measured)
    seconds, megabytes = GOALS[work]
    assert measured["count"] == (80 if work == "question" else n - n % 80)
    assert measured["megabytes"] < megabytes
    assert seconds is None or measured["seconds"] < seconds
