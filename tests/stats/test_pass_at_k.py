from __future__ import annotations

from decimal import Decimal
from fractions import Fraction
from itertools import combinations
from math import comb, pi, sqrt

import numpy as np
import pytest
from _support.errors import refused

from lm_eval_bayes import (
    Outcomes,
    avg_at_n,
    g_pass_at_k,
    g_pass_at_k_posterior,
    mg_pass_at_k,
    pass_at_k,
    pass_hat_k,
)
from lm_eval_bayes._util.validation import successes_needed
from lm_eval_bayes.stats import naive_pass_at_k, naive_pass_hat_k

ESTIMATORS = [
    pass_at_k,
    pass_hat_k,
    mg_pass_at_k,
    naive_pass_at_k,
    naive_pass_hat_k,
    lambda outcomes, k: g_pass_at_k(outcomes, k, 0.5),
]
RAGGED = Outcomes.from_counts([[1, 3], [4, 4]])
TAUS = ["0", "0.01", "0.25", "0.28", "0.33", "0.5", "0.55", "0.6", "0.75", "0.9", "1"]


def ceiling(tau: str, k: int) -> int:
    """max(1, ⌈τk⌉) in whole numbers, τ as it is written."""
    exact = Fraction(tau) * k
    return max(1, -(-exact.numerator // exact.denominator))


def one(n: int, c: int) -> Outcomes:
    return Outcomes.from_counts([[n - c, c]])


@pytest.mark.parametrize("n", [1, 2, 5, 8])
def test_every_subset_of_every_small_bank(n):
    for c in range(n + 1):
        bank = [1] * c + [0] * (n - c)
        outcomes = one(n, c)
        for k in range(1, n + 1):
            sums = [sum(subset) for subset in combinations(bank, k)]

            def share(needed, sums=sums):
                return sum(s >= needed for s in sums) / len(sums)

            assert pass_at_k(outcomes, k).value == pytest.approx(share(1), abs=1e-14)
            assert pass_hat_k(outcomes, k).value == pytest.approx(share(k), abs=1e-14)
            half = -(-k // 2)
            mg = 2 / k * sum(share(i) for i in range(half + 1, k + 1))
            assert mg_pass_at_k(outcomes, k).value == pytest.approx(mg, abs=1e-14)
            for tau in TAUS:
                expected = share(ceiling(tau, k))
                assert g_pass_at_k(outcomes, k, float(tau)).value == pytest.approx(
                    expected, abs=1e-14
                )


@pytest.mark.parametrize(("tau", "k", "needed"), [(0.28, 25, 7), (0.55, 100, 55)])
def test_the_ceiling_does_not_see_float_noise(tau, k, needed):
    assert tau * k > needed  # what a plain ceil would stumble over
    assert successes_needed(tau, k) == needed
    assert successes_needed(Fraction(str(tau)), k) == needed
    assert successes_needed(Decimal(str(tau)), k) == needed
    assert successes_needed(np.float64(tau), k) == needed
    assert successes_needed(np.float32(tau), k) == needed
    n, c = 3 * k, k
    expected = Fraction(
        sum(comb(c, j) * comb(n - c, k - j) for j in range(needed, k + 1)), comb(n, k)
    )
    assert g_pass_at_k(one(n, c), k, tau).value == pytest.approx(float(expected), abs=1e-13)


def test_the_ceiling_on_a_grid_of_decimals_and_ratios():
    for k in range(1, 130):
        for hundredths in range(101):
            tau = f"{hundredths / 100:.2f}"
            assert successes_needed(float(tau), k) == ceiling(tau, k)
        for j in range(1, k + 1):
            assert successes_needed(j / k, k) == j
        for j in range(1, k):
            assert successes_needed(float(np.nextafter(j / k, 2)), k) == j + 1


def test_a_million_trials_against_whole_number_arithmetic():
    n, k = 10**6, 5 * 10**5
    for c in (1, 2, 3, 40):
        # C(n−c, k)/C(n, k) as a product of c exact fractions
        none = Fraction(1)
        every = Fraction(1)
        for i in range(c):
            none *= Fraction(n - k - i, n - i)
            every *= Fraction(k - i, n - i)
        assert pass_at_k(one(n, c), k).value == pytest.approx(float(1 - none), abs=1e-12)
        # Pass^k with n − c correct: all k trials avoid the c wrong ones
        assert pass_hat_k(one(n, n - c), k).value == pytest.approx(float(none), rel=1e-9)
        # G-Pass at the level where all c correct trials must be drawn
        assert g_pass_at_k(one(n, c), k, Fraction(c, k)).value == pytest.approx(
            float(every), rel=1e-9
        )


def test_the_bulk_of_a_million_trials():
    n = 10**6
    k = c = n // 2
    # Hypergeometric(10⁶, 5·10⁵, 5·10⁵) is symmetric about 250,000, so
    # P(J >= 250,000) = (1 + P(J = 250,000))/2. The middle term is C(2m, m)² / C(4m, 2m) with
    # m = 250,000, and C(2m, m) = 4^m/sqrt(πm) · (1 − 1/(8m) + 1/(128m²) + O(m⁻³)).
    m = n // 4

    def series(m):
        return 1 - 1 / (8 * m) + 1 / (128 * m * m)

    middle = sqrt(2 / (pi * m)) * series(m) ** 2 / series(2 * m)
    assert g_pass_at_k(one(n, c), k, 0.5).value == pytest.approx((1 + middle) / 2, abs=1e-11)
    assert pass_at_k(one(n, c), k).value == 1.0
    assert pass_hat_k(one(n, c), k).value == 0.0
    assert pass_at_k(one(n, 1), 1).value == pytest.approx(1e-6, rel=1e-9)


def test_naive_estimators_and_k_of_one():
    outcomes = Outcomes.from_counts([[1, 3], [6, 2]])
    assert naive_pass_at_k(outcomes, 3).value == pytest.approx(
        np.mean([1 - 0.25**3, 1 - 0.75**3]), abs=1e-15
    )
    assert naive_pass_hat_k(outcomes, 3).value == pytest.approx(np.mean([0.75**3, 0.25**3]))
    average = avg_at_n(outcomes).value
    for estimator in (pass_at_k, pass_hat_k, naive_pass_at_k):
        assert estimator(outcomes, 1).value == pytest.approx(average, abs=1e-15)
    assert mg_pass_at_k(outcomes, 1).value == 0.0


def test_questions_are_averaged_and_kept_in_order():
    outcomes = Outcomes.from_counts([[0, 4], [2, 4], [3, 0], [2, 4]])
    estimate = pass_at_k(outcomes, 2)
    assert estimate.per_question == pytest.approx([1, 1 - 1 / 15, 0, 1 - 1 / 15])
    assert estimate.value == pytest.approx(estimate.per_question.mean())
    assert (estimate.quantity, estimate.k) == ("pass@k", 2)
    assert g_pass_at_k(outcomes, 2, Fraction(1, 2)).to_dict()["tau"] == 0.5


@pytest.mark.parametrize("estimator", ESTIMATORS)
@pytest.mark.parametrize(
    ("outcomes", "k", "argument", "rule"),
    [
        (RAGGED, 5, "k", "range"),
        (RAGGED, True, "k", "range"),
        (Outcomes.from_matrix([[0, 1, 2]], weights=[0, 0.5, 1]), 1, "outcomes", "unsupported"),
        (Outcomes.from_matrix([[0, 1]], weights=[1, 0]), 1, "outcomes", "range"),
        (Outcomes.from_counts([[1, 3], [0, 0]]), 1, "outcomes", "empty"),
    ],
)
def test_what_is_refused(estimator, outcomes, k, argument, rule):
    with refused(argument, rule):
        estimator(outcomes, k)
    assert 0 <= estimator(RAGGED, 4).value <= 1


@pytest.mark.parametrize("tau", [-0.1, np.nan, "0.5", Fraction(3, 2)])
def test_tau_out_of_range(tau):
    for estimate in (g_pass_at_k, g_pass_at_k_posterior):
        with refused("tau", "range"):
            estimate(RAGGED, 3, tau)
