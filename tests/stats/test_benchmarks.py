"""Timings beside scorio, in one run: pytest -m benchmarks tests/stats/test_benchmarks.py"""

from __future__ import annotations

import time

import numpy as np
import pytest

from lm_eval_bayes import (
    Outcomes,
    bayes_at_n,
    g_pass_at_k,
    hbayes_at_n,
    maj_at_k,
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


@pytest.mark.parametrize("method", ["exact", "hdi"])
@pytest.mark.parametrize("shape", [(30, 16), (30, 128), (500, 16)])
def test_exact_intervals(benchmark, method, shape):
    benchmark.group = "intervals"
    posterior = bayes_at_n(Outcomes.from_matrix(matrix(*shape)))
    interval = benchmark(posterior.interval, 0.95, method)
    assert interval.low < posterior.mu < interval.high


@pytest.mark.parametrize("who", ["hbayes", "bayes", "scorio"])
@pytest.mark.parametrize("shape", [(30, 80), (10_000, 64)], ids=["30x80", "10000x64"])
def test_the_learned_prior_with_its_exact_interval(benchmark, shape, who):
    """The price of learning the prior, beside the closed forms that do not."""
    benchmark.group = f"posterior and interval {shape[0]}x{shape[1]}"
    R = matrix(*shape)

    def interval():
        if who == "scorio":
            return scorio.bayes_ci(R)[2:]
        outcomes = Outcomes.from_matrix(R)
        found = (hbayes_at_n if who == "hbayes" else bayes_at_n)(outcomes).interval(0.95, "exact")
        return found.low, found.high

    low, high = benchmark(interval)
    assert low < R.mean() < high


def test_majority_vote_of_thirty_questions(benchmark):
    benchmark.group = "maj@8"
    rng = np.random.default_rng(4)
    answers = [[int(a) for a in rng.zipf(1.7, 80) % 20] for _ in range(30)]
    correct = [[a == 1 for a in row] for row in answers]
    estimate = benchmark(maj_at_k, answers, correct, 8)
    assert 0 < estimate.value < 1


def test_a_rubric_of_thirty_questions_takes_less_than_200_ms():
    rng = np.random.default_rng(6)
    outcomes = Outcomes.from_counts(rng.multinomial(4, (0.9, 0.02, 0.02, 0.02, 0.04), 30))
    seconds = []
    for _ in range(5):
        start = time.process_time()
        hbayes_at_n(outcomes).interval()
        seconds.append(time.process_time() - start)
    assert min(seconds) < 0.2, seconds
