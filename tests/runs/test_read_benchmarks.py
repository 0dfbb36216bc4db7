"""Speed and memory of reading samples: pytest -m benchmarks (this file)

The goal is 10,000 questions with 64 trials, about 1 GB, in under 60 s and 1.5 GiB. Here it is a
fifteenth of that, beside what Python's own json needs to parse the same lines.
"""

from __future__ import annotations

import json
import random
import subprocess
import sys
import time

import pytest

from lm_eval_bayes.runs.reader import read_runs

pytest.importorskip("pytest_benchmark", reason="pytest-benchmark is not installed")
from _support.run_files import row, write_run

pytestmark = pytest.mark.benchmarks

QUESTIONS, TRIALS = 660, 64

MEASURE = """
import json, resource, sys, time
from lm_eval_bayes.runs.reader import read_runs
start, before = time.monotonic(), resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
(run,) = read_runs([sys.argv[1]]).runs
grown = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before
print(json.dumps([run.n_trials, time.monotonic() - start, grown]))
"""


@pytest.fixture(scope="module")
def samples(tmp_path_factory):
    rng = random.Random(1)
    words = ["We", "begin", "\n\n", "simplifying", "\\frac{1}{2}", "the", '"expression"', "so"]
    texts = [" ".join(rng.choices(words, k=130)) for _ in range(100)]
    rows = (
        row(
            number,
            outcomes=[rng.randrange(2) for _ in range(TRIALS)],
            answers=[str(rng.randrange(9)) for _ in range(TRIALS)],
            texts=rng.choices(texts, k=TRIALS),
            trial=list(range(TRIALS)),
            seed=[rng.randrange(2**31) for _ in range(TRIALS)],
            completion_tokens=[300] * TRIALS,
            prompt_tokens=[17] * TRIALS,
            generated_s=[rng.random() for _ in range(TRIALS)],
            concurrency=[3] * TRIALS,
        )
        for number in range(QUESTIONS)
    )
    return write_run(tmp_path_factory.mktemp("large"), rows)


def test_samples_are_read_about_as_fast_as_json_is_parsed(samples, benchmark):
    saved = benchmark.pedantic(lambda: read_runs([samples]), rounds=3)
    assert saved.runs[0].n_trials == QUESTIONS * TRIALS
    start = time.monotonic()
    with samples.open(encoding="utf-8") as lines:
        assert sum(len(json.loads(line)["outcomes"]) for line in lines) == QUESTIONS * TRIALS
    parsing = time.monotonic() - start
    # a gigabyte in a minute, or on a busy computer less than four times what the parsing takes
    goal = 60 * samples.stat().st_size / 1e9
    assert benchmark.stats.stats.min < max(goal, 4 * parsing)


def test_a_line_is_held_and_not_the_file(samples):
    done = subprocess.run(
        [sys.executable, "-c", MEASURE, str(samples)], capture_output=True, text=True, check=True
    )
    n_trials, _, grown = json.loads(done.stdout)
    assert n_trials == QUESTIONS * TRIALS
    unit = 1 if sys.platform == "darwin" else 1024
    # 250 bytes a trial: its grade, seed, number and text's hash, its answer and what was measured
    assert grown * unit < 250 * n_trials + 20e6
    assert grown * unit < samples.stat().st_size / 2
