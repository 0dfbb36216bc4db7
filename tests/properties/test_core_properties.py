from __future__ import annotations

from fractions import Fraction
from math import comb

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from lm_eval_bayes import (
    Outcomes,
    avg_at_n,
    bayes_at_n,
    g_pass_at_k,
    g_pass_at_k_posterior,
    mg_pass_at_k,
    pass_at_k,
    pass_at_k_posterior,
    pass_hat_k,
    pass_hat_k_posterior,
)
from lm_eval_bayes.stats import naive_pass_at_k, naive_pass_hat_k
from lm_eval_bayes.stats.intervals import METHODS

WEIGHT = st.floats(-100, 100, allow_nan=False, width=32)


@st.composite
def matrices(draw, max_category=4):
    """An outcome matrix with its weights."""
    top = draw(st.integers(1, max_category))
    shape = (draw(st.integers(1, 8)), draw(st.integers(1, 12)))
    R = draw(hnp.arrays(np.int64, shape, elements=st.integers(0, top)))
    weights = draw(st.lists(WEIGHT, min_size=top + 1, max_size=top + 1))
    return R, weights


@st.composite
def counts(draw, columns=2):
    """Ragged counts, no question empty."""
    rows = draw(st.lists(st.lists(st.integers(0, 40), min_size=columns, max_size=columns)
                         .filter(any), min_size=1, max_size=6))  # fmt: skip
    return np.array(rows)


@given(matrices())
def test_eq_19_bayes_is_an_affine_function_of_avg(case):
    R, weights = case
    outcomes = Outcomes.from_matrix(R, weights=weights)
    n = R.shape[1]
    total = len(weights) + n  # T = 1 + C + N
    mean_score = np.mean(np.asarray(weights)[R])
    expected = np.sum(weights) / total + n / total * mean_score
    assert bayes_at_n(outcomes).mu == pytest.approx(expected, rel=1e-11, abs=1e-11)
    assert avg_at_n(outcomes).value == pytest.approx(mean_score, rel=1e-11, abs=1e-11)


@given(matrices())
def test_eq_20_the_two_sigmas_differ_by_a_factor(case):
    R, weights = case
    outcomes = Outcomes.from_matrix(R, weights=weights)
    n = R.shape[1]
    factor = (len(weights) + n) / n
    sigma = bayes_at_n(outcomes).sigma
    assert avg_at_n(outcomes).sigma == pytest.approx(factor * sigma, rel=1e-12)


@given(matrices(), st.randoms(use_true_random=False))
def test_neither_the_order_of_trials_nor_of_questions_matters(case, random):
    R, weights = case
    seed = random.randrange(2**32)
    rng = np.random.default_rng(seed)
    mixed = rng.permuted(R, axis=1)[rng.permutation(R.shape[0])]
    first = bayes_at_n(Outcomes.from_matrix(R, weights=weights))
    second = bayes_at_n(Outcomes.from_matrix(mixed, weights=weights))
    assert second.mu == pytest.approx(first.mu, rel=1e-12, abs=1e-12)
    assert second.sigma == pytest.approx(first.sigma, rel=1e-12, abs=1e-14)


@given(matrices(), st.floats(-5, 5), st.floats(-50, 50))
def test_an_affine_change_of_weights_is_one_of_the_score(case, slope, shift):
    R, weights = case
    plain = bayes_at_n(Outcomes.from_matrix(R, weights=weights))
    changed = bayes_at_n(Outcomes.from_matrix(R, weights=slope * np.array(weights) + shift))
    assert changed.mu == pytest.approx(slope * plain.mu + shift, rel=1e-9, abs=1e-9)
    assert changed.sigma == pytest.approx(abs(slope) * plain.sigma, rel=1e-7, abs=1e-9)


@given(matrices(), st.floats(1e-3, 10), st.floats(0, 3))
def test_mu_lies_among_the_weights(case, prior, strength):
    R, weights = case
    outcomes = Outcomes.from_matrix(R, weights=weights, R0=R[:, :1], prior_strength=strength)
    posterior = bayes_at_n(outcomes, prior)
    assert min(weights) <= posterior.mu <= max(weights)
    assert (posterior.per_question.mu >= min(weights)).all()
    assert (posterior.per_question.mu <= max(weights)).all()
    # no distribution on [a, b] has a larger sd than (b − a)/2
    assert 0 <= posterior.sigma <= (max(weights) - min(weights)) / 2
    assert min(weights) <= avg_at_n(outcomes).value <= max(weights)


@given(counts(), st.data())
def test_the_pass_family_s_order(rows, data):
    outcomes = Outcomes.from_counts(rows)
    k = data.draw(st.integers(1, int(rows.sum(axis=1).min())))
    tau = data.draw(st.floats(0, 1))
    lower, higher = sorted([tau, data.draw(st.floats(0, 1))])
    once, all_of = pass_at_k(outcomes, k).value, pass_hat_k(outcomes, k).value
    assert -1e-12 <= all_of <= mg_pass_at_k(outcomes, k).value + 1 / k + 1e-12
    assert all_of - 1e-12 <= g_pass_at_k(outcomes, k, higher).value
    assert g_pass_at_k(outcomes, k, higher).value <= g_pass_at_k(outcomes, k, lower).value + 1e-12
    assert g_pass_at_k(outcomes, k, lower).value <= once + 1e-12
    majority = g_pass_at_k(outcomes, k, Fraction(k // 2 + 1, k)).value
    assert mg_pass_at_k(outcomes, k).value <= majority + 1e-12
    # the plug-in estimators are biased as their docstrings say
    assert naive_pass_at_k(outcomes, k).value <= once + 1e-12
    assert naive_pass_hat_k(outcomes, k).value >= all_of - 1e-12
    if k > 1:
        assert pass_at_k(outcomes, k - 1).value <= once + 1e-12
        assert pass_hat_k(outcomes, k - 1).value >= all_of - 1e-12


@settings(max_examples=25)
@given(counts(), st.data())
def test_wrong_and_right_change_places(rows, data):
    k = data.draw(st.integers(1, int(rows.sum(axis=1).min())))
    turned = Outcomes.from_counts(rows[:, ::-1])
    outcomes = Outcomes.from_counts(rows)
    assert pass_at_k(outcomes, k).value == pytest.approx(1 - pass_hat_k(turned, k).value, abs=1e-12)
    assert pass_at_k_posterior(outcomes, k, "uniform").mu == pytest.approx(
        1 - pass_hat_k_posterior(turned, k, "uniform").mu, abs=1e-12
    )
    assert pass_at_k_posterior(outcomes, k, "uniform").sigma == pytest.approx(
        pass_hat_k_posterior(turned, k, "uniform").sigma, abs=1e-7
    )


@given(st.integers(2, 12), st.data())
def test_pass_at_k_has_the_mean_of_its_latent_quantity(n, data):
    """Averaged over c ~ Binomial(n, p), Pass@k is 1 − (1 − p)^k without bias [Chen 2021]."""
    k = data.draw(st.integers(1, n))
    p = data.draw(st.floats(0.01, 0.99))
    mean = sum(
        comb(n, c)
        * p**c
        * (1 - p) ** (n - c)
        * pass_at_k(Outcomes.from_counts([[n - c, c]]), k).value
        for c in range(n + 1)
    )
    assert mean == pytest.approx(1 - (1 - p) ** k, abs=1e-11)


@settings(max_examples=25, deadline=None)
@given(counts(), st.floats(0.05, 0.99), st.sampled_from(METHODS), st.integers(1, 40))
def test_intervals_lie_within_the_range_and_nest(rows, level, method, k):
    outcomes = Outcomes.from_counts(rows)
    for posterior in (bayes_at_n(outcomes), g_pass_at_k_posterior(outcomes, k, 0.5, "uniform")):
        inner = posterior.interval(level / 2, method)
        outer = posterior.interval(level, method)
        assert 0 <= outer.low <= outer.high <= 1
        assert inner.width <= outer.width + 1e-6
        assert outer.low <= inner.low + 1e-9
        assert inner.high <= outer.high + 1e-9
