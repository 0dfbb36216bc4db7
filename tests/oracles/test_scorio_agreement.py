"""A hundred random cases of every estimand that scorio has too."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest

from lm_eval_bayes import (
    Outcomes,
    avg_at_n,
    bayes_at_n,
    g_pass_at_k,
    g_pass_at_k_posterior,
    mg_pass_at_k,
    mg_pass_at_k_posterior,
    pass_at_k,
    pass_at_k_posterior,
    pass_hat_k,
    pass_hat_k_posterior,
)

scorio = pytest.importorskip("scorio.eval", reason="scorio is not installed")

CASES = 100
TOLERANCE = 1e-10


def cases(categories=None):
    """Yield a generator, R, and scorio's random sizes in between."""
    rng = np.random.default_rng(20251104)
    for _ in range(CASES):
        size = (int(rng.integers(1, 40)), int(rng.integers(1, 33)))
        if categories is None:
            yield rng, rng.binomial(1, rng.beta(0.5, 0.5, (size[0], 1)), size)
        else:
            yield rng, rng.integers(0, int(rng.integers(2, categories + 1)), size)


def close(ours, theirs):
    assert ours == pytest.approx(theirs, rel=0, abs=TOLERANCE)


def test_bayes_binary():
    for rng, R in cases():
        R0 = rng.integers(0, 2, (R.shape[0], int(rng.integers(1, 9))))
        for prior in (None, R0):
            posterior = bayes_at_n(Outcomes.from_matrix(R, R0=prior))
            mu, sigma, low, high = scorio.bayes_ci(R, R0=prior, bounds=(0.0, 1.0))
            interval = posterior.interval(0.95, "normal")
            close(posterior.mu, mu)
            close(posterior.sigma, sigma)
            close(interval.low, low)
            close(interval.high, high)


def test_bayes_categorical():
    for rng, R in cases(categories=6):
        weights = rng.normal(size=6)
        R0 = rng.integers(0, 6, (R.shape[0], int(rng.integers(1, 9))))
        for prior in (None, R0):
            posterior = bayes_at_n(Outcomes.from_matrix(R, weights=weights, R0=prior))
            mu, sigma = scorio.bayes(R, weights, prior)
            close(posterior.mu, mu)
            close(posterior.sigma, sigma)


def test_avg():
    for rng, R in cases(categories=5):
        weights = rng.normal(size=5)
        estimate = avg_at_n(Outcomes.from_matrix(R, weights=weights))
        value, sigma = scorio.avg(R, weights)
        close(estimate.value, value)
        close(estimate.sigma, sigma)
    for _, R in cases():
        estimate = avg_at_n(Outcomes.from_matrix(R))
        value, sigma = scorio.avg(R)
        close(estimate.value, value)
        close(estimate.sigma, sigma)


def test_pass_family():
    for rng, R in cases():
        outcomes = Outcomes.from_matrix(R)
        k = int(rng.integers(1, R.shape[1] + 1))
        tau = float(rng.choice([rng.uniform(), int(rng.integers(0, k + 1)) / k]))
        close(pass_at_k(outcomes, k).value, scorio.pass_at_k(R, k))
        close(pass_hat_k(outcomes, k).value, scorio.pass_hat_k(R, k))
        close(g_pass_at_k(outcomes, k, tau).value, scorio.g_pass_at_k_tau(R, k, tau))
        close(mg_pass_at_k(outcomes, k).value, scorio.mg_pass_at_k(R, k))
        # what scorio calls maj@k looks at correctness only
        close(g_pass_at_k(outcomes, k, Fraction(k // 2 + 1, k)).value, scorio.maj_at_k(R, k))


@pytest.mark.slow
def test_pass_family_posteriors():
    for rng, R in cases():
        outcomes = Outcomes.from_matrix(R)
        k = int(rng.integers(1, R.shape[1] + 1))
        tau = float(rng.uniform())
        pseudo = float(rng.choice([1.0, 0.5]))
        prior = {"alpha0": pseudo, "beta0": pseudo}
        pairs = [
            (pass_at_k_posterior(outcomes, k, pseudo), scorio.pass_at_k_ci(R, k, **prior)),
            (pass_hat_k_posterior(outcomes, k, pseudo), scorio.pass_hat_k_ci(R, k, **prior)),
            (
                g_pass_at_k_posterior(outcomes, k, tau, pseudo),
                scorio.g_pass_at_k_tau_ci(R, k, tau, **prior),
            ),
            (mg_pass_at_k_posterior(outcomes, k, pseudo), scorio.mg_pass_at_k_ci(R, k, **prior)),
            (
                g_pass_at_k_posterior(outcomes, k, Fraction(k // 2 + 1, k), pseudo),
                scorio.maj_at_k_ci(R, k, **prior),
            ),
        ]
        for posterior, (mu, sigma, low, high) in pairs:
            close(posterior.mu, mu)
            close(posterior.sigma, sigma)
            if posterior.bounds == (0.0, 1.0):  # mG-Pass at odd k has a lower top
                interval = posterior.interval(0.95, "normal")
                close(interval.low, low)
                close(interval.high, high)
