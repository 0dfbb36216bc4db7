"""The memory of resuming a store: pytest -m benchmarks (this file)

10,000 and 100,000 trials of 2,000 characters are read from a store and graded, each in a process of
its own. Its peak memory grows by less than half of what the texts take.
"""

import json
import os
import subprocess
import sys

import pytest
from _support.paths import REPOSITORY

pytest.importorskip("pytest_benchmark", reason="pytest-benchmark is not installed")
pytestmark = pytest.mark.benchmarks

SIZES = (10_000, 100_000)
CHARACTERS = 2_000

WORK = r"""
import json, random, resource, sys, time
import datasets
from _support import toy
from lm_eval_bayes.harness.models.trials import TrialsLM
from lm_eval_bayes.harness.task.repeated_sampling import RepeatedSamplingTask
store, n, characters, log_samples = sys.argv[1], *map(int, sys.argv[2:])
rows = [{"question": f"{i} + 1 =", "answer": str(i + 1)} for i in range(n // 80)]
config = toy.toy_config(
    custom_dataset=lambda **_: {"test": datasets.Dataset.from_list(rows)},
    repeats=80,
    filter_list=[{"name": "last", "filter": [
        {"function": "regex", "regex_pattern": r"is (\d+)", "group_select": -1}]}],
    metadata={"version": 1.0, "bayes_k": [1]},
)
words = random.Random(1).choices("so we have then x = 2 hence the sum".split(), k=4096)
def respond(self, question, trial, prepared):
    start = hash((question.doc_id, trial)) % 3000
    text = " ".join(words[start:start + characters // 2])[:characters]
    return f"{text} {trial} is {prepared[0] if trial % 2 else 0}"
model = TrialsLM(backend="biased_coin", store=store, p=0.5)
type(model).respond = respond
start = time.perf_counter()
results = toy.evaluate(model, RepeatedSamplingTask(config=config), log_samples=bool(log_samples))
seconds = time.perf_counter() - start
print(json.dumps({
    "seconds": seconds,
    "megabytes": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024,
    "from_store": model.get_model_info()["trials"]["from_store"],
    "score": results["results"]["toy"]["avg@80,last"],
}))
"""


def measured(store, n, log_samples=False):
    command = [sys.executable, "-c", WORK]
    done = subprocess.run(
        [*command, str(store), str(n), str(CHARACTERS), str(int(log_samples))],
        env={**os.environ, "PYTHONPATH": str(REPOSITORY / "tests"), "PYTHONHASHSEED": "0"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-2000:]
    return json.loads(done.stdout.splitlines()[-1])


@pytest.mark.parametrize("log_samples", [False, True])
def test_the_memory_of_a_resumed_run_does_not_grow_with_the_texts(benchmark, tmp_path, log_samples):
    benchmark.group = "memory of a resumed run"
    stores = {n: tmp_path / f"{n}.sqlite" for n in SIZES}
    for n, store in stores.items():
        assert measured(store, n)["from_store"] == 0
    found = {}

    def resume():
        for n, store in stores.items():
            found[n] = measured(store, n, log_samples)

    benchmark.pedantic(resume, rounds=1)
    for n, figures in found.items():
        assert figures["from_store"] == n
        assert figures["score"] == 0.5
        benchmark.extra_info.update({f"{n} {name}": value for name, value in figures.items()})
    few, many = SIZES
    growth = found[many]["megabytes"] - found[few]["megabytes"]
    assert growth < 0.5 * (many - few) * CHARACTERS / 2**20
