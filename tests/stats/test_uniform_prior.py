from __future__ import annotations

import math

import numpy as np
import pytest
from _support.errors import refusals, refused
from scipy import stats

from lm_eval_bayes import Outcomes, avg_at_n, bayes_at_n, pass_at_k

R = [[0, 1, 2, 2, 1], [1, 1, 0, 2, 2]]
W = [0, 0.5, 1]


@pytest.mark.parametrize(
    ("R0", "mu", "sigma"),
    [
        (None, 0.562500, 0.091998),
        ([[2], [1]], 0.583333, 0.085165),
        ([[0, 2], [1, 2]], 0.575000, 0.084275),
    ],
)
def test_the_paper_s_check_values(R0, mu, sigma):
    posterior = bayes_at_n(Outcomes.from_matrix(R, weights=W, R0=R0))
    assert round(posterior.mu, 6) == mu
    assert round(posterior.sigma, 6) == sigma


@pytest.mark.parametrize(
    ("prior", "pseudo"), [("uniform", 1.0), ("jeffreys", 0.5), (0.2, 0.2), (3, 3.0)]
)
def test_each_question_is_a_beta_posterior(prior, pseudo):
    counts = np.array([[3, 1], [0, 6], [0, 0]])
    prior_counts = np.array([[1, 0], [2, 2], [0, 3]])
    outcomes = Outcomes.from_counts(counts, prior_counts=prior_counts, prior_strength=0.5)
    posterior = bayes_at_n(outcomes, prior)
    for row, (n, n0) in enumerate(zip(counts, prior_counts, strict=True)):
        b, a = n + pseudo + 0.5 * n0
        expected = stats.beta(a, b)
        assert posterior.per_question.mu[row] == pytest.approx(expected.mean(), abs=1e-12)
        assert posterior.per_question.sigma[row] == pytest.approx(expected.std(), abs=1e-12)
    assert posterior.prior == pseudo
    assert posterior.mu == pytest.approx(posterior.per_question.mu.mean(), abs=1e-15)
    expected = np.sqrt((posterior.per_question.sigma**2).sum()) / 3
    assert posterior.sigma == pytest.approx(expected, rel=1e-14)


def test_equal_weights_have_no_spread():
    posterior = bayes_at_n(Outcomes.from_counts([[3, 1], [0, 9]], weights=[0.1, 0.1]))
    assert posterior.mu == 0.1
    assert posterior.sigma == 0.0
    for method in ("normal", "beta", "exact"):
        interval = posterior.interval(0.9, method)
        assert (interval.low, interval.high) == (0.1, 0.1)


def test_avg_at_n_of_equal_and_ragged_trials():
    equal = avg_at_n(Outcomes.from_matrix(R, weights=W))
    assert equal.value == pytest.approx(0.6, abs=1e-15)
    # eq. 20: T/N = 8/5 times the check value, which is printed to six digits
    assert equal.sigma == pytest.approx(8 / 5 * 0.091998, abs=1e-6)
    assert equal.per_question.tolist() == pytest.approx([0.6, 0.6])

    ragged = avg_at_n(Outcomes.from_counts([[1, 1], [0, 8]]))
    first = 4 / 2 * stats.beta(2, 2).std()
    second = 10 / 8 * stats.beta(9, 1).std()
    assert ragged.value == pytest.approx(0.75)
    assert ragged.sigma == pytest.approx(np.hypot(first, second) / 2, rel=1e-12)


def test_avg_at_n_leaves_the_prior_trials_out():
    with_prior = avg_at_n(Outcomes.from_matrix(R, weights=W, R0=[[2], [1]]))
    assert with_prior.sigma == avg_at_n(Outcomes.from_matrix(R, weights=W)).sigma


def test_avg_at_n_needs_trials_and_bayes_at_n_does_not():
    outcomes = Outcomes.from_counts([[1, 1], [0, 0]])
    with refused("outcomes", "empty"):
        avg_at_n(outcomes)
    assert bayes_at_n(outcomes).per_question.mu.tolist() == [0.5, 0.5]


def test_the_interval_of_avg_at_n_is_normal_and_clipped():
    # [Hariri 2026, eq. 20] at one question: 3 of 4 right, σ_avg = (6/4) sqrt((4/6)(2/6)/7)
    estimate = avg_at_n(Outcomes.from_matrix([[1, 1, 0, 1]]))
    sigma = 1.5 * math.sqrt(8 / 36 / 7)
    interval = estimate.interval(0.5)
    assert interval.low == pytest.approx(0.75 - 0.6744897501960817 * sigma, rel=1e-12)
    assert interval.high == pytest.approx(0.75 + 0.6744897501960817 * sigma, rel=1e-12)
    assert (interval.level, interval.method, interval.scope) == (0.5, "normal", "benchmark")
    assert estimate.interval().high == 1.0
    # on the scale of the weights
    graded = avg_at_n(Outcomes.from_matrix(R, weights=[-1, 0, 1]))
    assert graded.interval(0.9).low == pytest.approx(
        graded.value - 1.6448536269514722 * graded.sigma, rel=1e-12
    )
    assert avg_at_n(Outcomes.from_matrix([[0, 0]], weights=[-1, 1])).interval().low == -1.0


def test_vast_and_tiny_weights_keep_their_digits():
    small = bayes_at_n(Outcomes.from_matrix(R, weights=[0, 5e-151, 1e-150]))
    vast = bayes_at_n(Outcomes.from_matrix(R, weights=[0, 5e149, 1e150]))
    assert small.mu == pytest.approx(0.5625e-150, rel=1e-14)
    assert vast.sigma / vast.mu == pytest.approx(small.sigma / small.mu, rel=1e-13)


ONE = Outcomes.from_matrix([[1, 1, 0, 1]])


test_bad_arguments = refusals(
    (lambda: bayes_at_n(ONE, 0), "prior", "range"),
    (lambda: bayes_at_n(ONE, np.nan), "prior", "range"),
    (lambda: bayes_at_n(ONE, "flat"), "prior", "range"),
    (lambda: pass_at_k(ONE, 2).interval(), "sigma", "unsupported"),
    (lambda: avg_at_n(ONE).interval(1.0), "level", "range"),
)
