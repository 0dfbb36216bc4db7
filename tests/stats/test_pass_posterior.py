from __future__ import annotations

from fractions import Fraction
from math import comb

import numpy as np
import pytest
from _support.errors import refused

from lm_eval_bayes import (
    Outcomes,
    g_pass_at_k_posterior,
    mg_pass_at_k_posterior,
    pass_at_k_posterior,
    pass_hat_k_posterior,
)

POSTERIORS = [
    pass_at_k_posterior,
    pass_hat_k_posterior,
    mg_pass_at_k_posterior,
    lambda outcomes, k, prior="uniform": g_pass_at_k_posterior(outcomes, k, 0.4, prior),
]


def rising(x, n) -> Fraction:
    out = Fraction(1)
    for i in range(n):
        out *= x + i
    return out


def power_moment(a, b, i, j) -> Fraction:
    """E p^i q^j for p ~ Beta(a, b), in exact fractions."""
    return rising(a, i) * rising(b, j) / rising(a + b, i + j)


def exact_moments(a, b, k, credit):
    """Mean and variance of Σ_j credit_j C(k, j) p^j q^(k−j), in exact fractions."""
    mean = sum(credit[j] * comb(k, j) * power_moment(a, b, j, k - j) for j in range(k + 1))
    square = sum(
        credit[i] * credit[j] * comb(k, i) * comb(k, j) * power_moment(a, b, i + j, 2 * k - i - j)
        for i in range(k + 1)
        for j in range(k + 1)
    )
    return mean, square - mean**2


def credits(k):
    half = -(-k // 2)
    needed = max(1, -(-2 * k // 5))
    return [
        [Fraction(j >= 1) for j in range(k + 1)],
        [Fraction(j >= k) for j in range(k + 1)],
        [Fraction(2 * max(j - half, 0), k) for j in range(k + 1)],
        [Fraction(j >= needed) for j in range(k + 1)],
    ]


@pytest.mark.parametrize("k", [1, 3, 8, pytest.param(25, marks=pytest.mark.slow)])
@pytest.mark.parametrize(("wrong", "correct"), [(4, 0), (3, 7), (200, 56)])
def test_moments_are_exact_fractions(k, wrong, correct):
    outcomes = Outcomes.from_counts([[wrong, correct]])
    for prior, pseudo in (("uniform", Fraction(1)), ("jeffreys", Fraction(1, 2))):
        for posterior_of, credit in zip(POSTERIORS, credits(k), strict=True):
            posterior = posterior_of(outcomes, k, prior)
            mean, variance = exact_moments(correct + pseudo, wrong + pseudo, k, credit)
            assert posterior.mu == pytest.approx(float(mean), rel=1e-11, abs=1e-15)
            assert posterior.sigma**2 == pytest.approx(float(variance), rel=1e-7, abs=1e-25)


def test_a_million_trials_and_half_as_many_to_pass():
    n, k = 10**6, 5 * 10**5
    a, b = 3, n - 1  # two right of n
    posterior = pass_at_k_posterior(Outcomes.from_counts([[n - 2, 2]]), k, "uniform")

    def none(power):  # E (1 − p)^power with a = 3 is a product of three fractions
        return float(np.prod([Fraction(b + i, b + power + i) for i in range(a)]))

    assert posterior.mu == pytest.approx(1 - none(k), abs=2e-9)
    assert posterior.sigma**2 == pytest.approx(none(2 * k) - none(k) ** 2, abs=2e-9)
    # and a posterior so narrow that p^k is a matter of the sixth digit of p
    narrow = pass_hat_k_posterior(Outcomes.from_counts([[2, n - 2]]), k, "uniform")
    assert narrow.mu == pytest.approx(none(k), abs=2e-9)


def test_priors_with_nearly_all_mass_at_the_ends():
    outcomes = Outcomes.from_counts([[0, 0], [3, 0], [0, 3]])
    prior = 1e-6
    exact = Fraction(prior)
    for k in (1, 4, 16):
        credit = [Fraction(j >= 1) for j in range(k + 1)]
        posterior = pass_at_k_posterior(outcomes, k, prior)
        for row, (a, b) in enumerate([(0, 0), (0, 3), (3, 0)]):
            mean, variance = exact_moments(a + exact, b + exact, k, credit)
            assert posterior.per_question.mu[row] == pytest.approx(float(mean), rel=1e-10)
            assert posterior.per_question.sigma[row] ** 2 == pytest.approx(
                float(variance), rel=1e-8
            )


def test_both_ends_of_tau_and_the_benchmark_s_spread():
    outcomes = Outcomes.from_counts([[1, 3], [6, 2], [0, 0]])
    low = g_pass_at_k_posterior(outcomes, 6, 0, "uniform")
    high = g_pass_at_k_posterior(outcomes, 6, 1, "uniform")
    assert low.mu == pass_at_k_posterior(outcomes, 6, "uniform").mu
    assert high.mu == pass_hat_k_posterior(outcomes, 6, "uniform").mu
    assert (low.tau, low.k, low.scope) == (0.0, 6, "benchmark")
    spread = np.sqrt((low.per_question.sigma**2).sum()) / 3
    assert low.sigma == pytest.approx(spread, rel=1e-14)


BINARY = Outcomes.from_matrix([[0, 1]])
RUBRIC = Outcomes.from_matrix([[0, 1]], weights=[0, 1, 2])


@pytest.mark.parametrize("posterior_of", POSTERIORS)
@pytest.mark.parametrize(
    ("outcomes", "k", "prior", "argument", "rule"),
    [
        (BINARY, 1.5, "uniform", "k", "range"),
        (RUBRIC, 2, "uniform", "outcomes", "unsupported"),
        (BINARY, 2, "haldane", "prior", "range"),
        (BINARY, 2, (1.0, 0.0), "prior", "range"),
    ],
)
def test_what_is_refused(posterior_of, outcomes, k, prior, argument, rule):
    with refused(argument, rule):
        posterior_of(outcomes, k, prior)


def test_a_fixed_prior_has_no_population():
    with refused("scope", "unsupported", "population"):
        pass_at_k_posterior(BINARY, 2, "uniform", "population")
