"""Timings that the docs state: pytest -m benchmarks tests/stats/test_benchmarks.py"""

from __future__ import annotations

import numpy as np
import pytest

from lm_eval_bayes import Outcomes, hbayes_at_n, mean_over_tasks

pytest.importorskip("pytest_benchmark", reason="pytest-benchmark is not installed")
pytestmark = pytest.mark.benchmarks


def test_a_rubric_of_thirty_questions_takes_less_than_200_ms(benchmark):
    rng = np.random.default_rng(6)
    outcomes = Outcomes.from_counts(rng.multinomial(4, (0.9, 0.02, 0.02, 0.02, 0.04), 30))
    interval = benchmark(lambda: hbayes_at_n(outcomes).interval())
    assert interval.low < interval.high
    assert benchmark.stats.stats.min < 0.2


def test_57_tasks_of_250_questions_take_less_than_two_seconds(benchmark):
    rng = np.random.default_rng(5)
    tasks = {}
    for i, mean in enumerate(rng.beta(34, 6, 57)):
        right = rng.binomial(1, rng.beta(4 * mean, 4 * (1 - mean), 250))
        tasks[f"t{i}"] = Outcomes.from_counts(np.stack([1 - right, right], axis=1))
    interval = benchmark(lambda: mean_over_tasks(tasks).interval())
    assert interval.low < interval.high
    assert benchmark.stats.stats.min < 2.0
