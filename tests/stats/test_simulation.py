from __future__ import annotations

import numpy as np
import pytest
from _support.errors import refusals
from scipy import stats

from lm_eval_bayes.stats.simulation import (
    beta_mimics,
    expected_z,
    mimics_with_means,
    prior_study,
    simulate_outcomes,
    trials_until_z,
    update_mimics,
)


def test_coins_fall_as_often_as_they_should():
    p = np.array([[0.0, 0.1, 0.5], [0.8, 0.99, 1.0]])
    R = simulate_outcomes(p, 20_000, seed=1)
    assert R.shape == (2, 3, 20_000)
    assert set(np.unique(R)) == {0, 1}
    np.testing.assert_allclose(R.mean(axis=2), p, atol=0.012)
    # trials of a coin are independent: neighbours are uncorrelated
    assert abs(np.corrcoef(R[0, 2, :-1], R[0, 2, 1:])[0, 1]) < 0.03


def test_beta_mimics_have_their_moments():
    i = np.arange(1, 9)
    p = beta_mimics(i + 3, 12 - i, 50_000, seed=3)
    for row, a, b in zip(p, i + 3, 12 - i, strict=True):
        assert stats.kstest(row, stats.beta(a, b).cdf).pvalue > 1e-4
    # the true scores of Fig. 2 run from 4/15 to 11/15 in steps of 1/15
    np.testing.assert_allclose(p.mean(axis=1), (i + 3) / 15, atol=0.003)


@pytest.mark.parametrize("strength", [0.5, 2.0, 50.0])
def test_mimics_have_exactly_the_means_asked_for(strength):
    means = [0.02, 0.3642, 0.3642, 0.6080, 0.6213, 0.97]
    for n_questions in (1, 30):
        p = mimics_with_means(means, n_questions, strength=strength)
        np.testing.assert_allclose(p.mean(axis=1), means, rtol=0, atol=1e-12)
        assert (np.diff(p, axis=1) >= 0).all()
        assert p[1].tolist() == p[2].tolist()


def test_updates_are_drawn_from_betas_with_both_parameters_moved_by_one():
    new = update_mimics([4.0, 9.0], [6.0, 3.0], 40, versions=2000, seed=2)
    assert new.shape == (2000, 2, 40)
    for model, (a, b) in enumerate(((4, 6), (9, 3))):
        betas = [stats.beta(a + x, b + y) for x in (-1, 1) for y in (-1, 1)]
        mixture = lambda p, betas=betas: np.mean([beta.cdf(p) for beta in betas], axis=0)  # noqa: E731
        assert stats.kstest(new[:, model, 0], mixture).pvalue > 1e-4
        # the shift is shared by the questions: the variance of the versions' scores
        between = np.var([beta.mean() for beta in betas])
        within = np.mean([beta.var() for beta in betas]) / 40
        assert new[:, model].mean(axis=1).var() == pytest.approx(between + within, rel=0.1)
    # and not by the models
    scores = new.mean(axis=2)
    assert abs(np.corrcoef(scores.T)[0, 1]) < 0.08


def test_expected_z_is_what_simulated_trials_give():
    p, other = beta_mimics([4, 6], [6, 4], 12, seed=5)
    for n in (1, 7, 40):
        moments = []
        for coins in (p, other):
            draws = np.random.default_rng(n).binomial(n, coins, (20_000, 12))
            mu = ((draws + 1) / (n + 2)).mean()
            v = (draws + 1) * (n - draws + 1) / ((n + 2) ** 2 * (n + 3))
            moments.append((mu, v.sum(axis=1).mean() / 12**2))
        (a, va), (b, vb) = moments
        assert float(expected_z(p, other, n)) == pytest.approx(abs(a - b) / np.sqrt(va + vb), 0.01)


def test_trials_until_z_is_the_first_that_reaches():
    p, other = mimics_with_means([0.6080, 0.6213], 30)
    for z in (1.645, 1.96):
        n = trials_until_z(p, other, z)
        assert float(expected_z(p, other, n - 1)) < z <= float(expected_z(p, other, n))
    # [Hariri 2026, §3.1]: this pair is not told apart at N = 80; about three times that is needed
    assert float(expected_z(p, other, 80)) < 1.645
    assert 2.5 < trials_until_z(p, other, 1.96) / 80 < 3.5
    # for large N, N grows with z²
    ratio = trials_until_z(p, other, 1.96) / trials_until_z(p, other, 1.645)
    assert ratio == pytest.approx((1.96 / 1.645) ** 2, rel=0.02)
    assert trials_until_z(p, p, 1.0) is None
    assert trials_until_z(p, p, 0.0) == 1


@pytest.fixture(scope="module")
def study():
    return prior_study(replicates=2000, seed=11)


def test_fig_2_agreement_of_old_and_new(study):
    # [Hariri 2026, Fig. 2a]: mean τ .88 and about 86% of rankings changed, over 50,000 updates
    assert study.tau_update == pytest.approx(0.88, abs=0.008)
    assert study.changed == pytest.approx(0.86, abs=0.02)
    assert study.means == (0.3021, 0.3166, 0.4144, 0.4985, 0.5351, 0.5759, 0.6679, 0.7487)


def test_fig_2_prior_trials_help_while_there_are_few_trials_and_hurt_later(study):
    gain = (study.tau - study.tau[0]) / study.error
    rows = {
        d: dict(zip(study.n_trials, row, strict=True))
        for d, row in zip(study.n_prior, gain, strict=True)
    }
    assert min(rows[d][n] for d in (1, 2, 4) for n in (1, 2)) > 4
    assert max(rows[d][n] for d in (8, 16) for n in (16, 32)) < -4


P = [[0.2, 0.5]]


test_bad_input = refusals(
    (lambda: simulate_outcomes([[1.2]], 3), "p", "range"),
    (lambda: simulate_outcomes(0.5, 3), "p", "shape"),
    (lambda: beta_mimics([[1]], [1], 3), "a", "shape"),
    (lambda: beta_mimics([1, 2], [1], 3), "b", "shape"),
    (lambda: beta_mimics([1.0], [np.inf], 3), "b", "range"),
    (lambda: mimics_with_means([0.0], 3), "means", "range"),
    (lambda: update_mimics([1.0], [2], 3), "a", "range"),
    (lambda: expected_z(P, P[0], 3), "p", "shape"),
    (lambda: expected_z(P[0], P[0], 2.5), "n_trials", "range"),
    (lambda: trials_until_z(P[0], P[0], -1), "z", "range"),
    (lambda: prior_study((1, 2)), "n_prior", "range"),
    (lambda: prior_study(means=[0.5]), "means", "range"),
)
