"""Timings beside scorio, in one run: pytest -m benchmarks tests/stats/test_benchmarks.py"""

from __future__ import annotations

import numpy as np
import pytest

from lm_eval_bayes import (
    Outcomes,
    bayes_at_n,
    g_pass_at_k,
    hbayes_at_n,
    mean_over_tasks,
    mg_pass_at_k,
    pass_at_k,
    pass_at_k_posterior,
)

scorio = pytest.importorskip("scorio.eval", reason="scorio is not installed")
pytest.importorskip("pytest_benchmark", reason="pytest-benchmark is not installed")
pytestmark = pytest.mark.benchmarks


def matrix(questions, trials):
    rng = np.random.default_rng(1)
    return rng.binomial(1, rng.beta(0.5, 0.5, (questions, 1)), (questions, trials))


CONTEST, LARGE = matrix(30, 16), matrix(2_000, 64)
# name: ours and scorio's, each from a raw matrix
PAIRS = {
    "bayes": (
        lambda R: bayes_at_n(Outcomes.from_matrix(R)).mu,
        lambda R: scorio.bayes(R)[0],
    ),
    "pass@8": (
        lambda R: pass_at_k(Outcomes.from_matrix(R), 8).value,
        lambda R: scorio.pass_at_k(R, 8),
    ),
    "g-pass@8": (
        lambda R: g_pass_at_k(Outcomes.from_matrix(R), 8, 0.5).value,
        lambda R: scorio.g_pass_at_k_tau(R, 8, 0.5),
    ),
    "mg-pass@8": (
        lambda R: mg_pass_at_k(Outcomes.from_matrix(R), 8).value,
        lambda R: scorio.mg_pass_at_k(R, 8),
    ),
    "pass@8 posterior": (
        lambda R: pass_at_k_posterior(Outcomes.from_matrix(R), 8).mu,
        lambda R: scorio.pass_at_k_ci(R, 8)[0],
    ),
}


@pytest.mark.parametrize("who", ["ours", "scorio"])
@pytest.mark.parametrize("R", [CONTEST, LARGE], ids=["30x16", "2000x64"])
@pytest.mark.parametrize("name", PAIRS)
def test_beside_scorio(benchmark, name, R, who):
    benchmark.group = f"{name} {R.shape[0]}x{R.shape[1]}"
    ours, theirs = PAIRS[name]
    value = benchmark(ours if who == "ours" else theirs, R)
    assert value == pytest.approx(theirs(R), abs=1e-10)


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
