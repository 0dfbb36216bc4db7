from __future__ import annotations

import numpy as np
import pytest
from _support.errors import refusals, refused
from scipy import special, stats

from lm_eval_bayes.stats.comparison.single_trial import (
    bivariate_normal_cdf,
    compare_paired,
    compare_unpaired,
)
from lm_eval_bayes.stats.outcomes import Outcomes
from lm_eval_bayes.stats.uniform_prior import single_trial_posterior


def table(both, only_a, only_b, neither):
    a = [1] * (both + only_a) + [0] * (only_b + neither)
    b = [1] * both + [0] * only_a + [1] * only_b + [0] * neither
    return (Outcomes.from_matrix(np.array(side)[:, None]) for side in (a, b))


def test_the_bivariate_normal_is_scipys():
    rng = np.random.default_rng(0)
    h, k = rng.normal(size=(2, 120)) * 2
    rho = np.tanh(rng.normal(size=120) * 1.5)
    h[:6], k[:6] = [0, 0, 0.3, -0.3, 0, 1e-9], [1, -1, 0, 0, 0, -1e-9]
    exact = [
        stats.multivariate_normal.cdf([x, y], cov=[[1, r], [r, 1]], abseps=1e-12, releps=1e-12)
        for x, y, r in zip(h, k, rho, strict=True)
    ]
    ours = bivariate_normal_cdf(h, k, rho, np.sqrt((1 - rho) * (1 + rho)))
    np.testing.assert_allclose(ours, exact, rtol=0, atol=1e-13)


def closed_form(a1, b1, a2, b2):
    """P(θ1 > θ2) for independent Beta(a1, b1), Beta(a2, b2) with whole parameters."""
    i = np.arange(a1)
    terms = special.betaln(a2 + i, b1 + b2) - np.log(b1 + i)
    terms += -special.betaln(1 + i, b1) - special.betaln(a2, b2)
    return np.exp(terms).sum()


@pytest.mark.parametrize("rights", [(0, 1, 1, 1), (480, 1000, 300, 700)])
def test_unpaired_against_the_closed_form(rights):
    right_a, n_a, right_b, n_b = rights
    a = Outcomes.from_matrix(np.repeat([1, 0], [right_a, n_a - right_a])[:, None])
    b = Outcomes.from_matrix(np.repeat([1, 0], [right_b, n_b - right_b])[:, None])
    result = compare_unpaired(a, b)
    parameters = (1 + right_a, 1 + n_a - right_a, 1 + right_b, 1 + n_b - right_b)
    assert result.p_a_greater == pytest.approx(closed_form(*parameters), abs=2e-4)
    x, y = stats.beta(*parameters[:2]), stats.beta(*parameters[2:])
    assert result.difference == pytest.approx(x.mean() - y.mean(), abs=1e-6)
    assert result.sd == pytest.approx(np.hypot(x.std(), y.std()), rel=1e-3)
    rng = np.random.default_rng(0)
    p, q = x.rvs(400_000, random_state=rng), y.rvs(400_000, random_state=rng)
    ends = np.quantile(p - q, [0.025, 0.975])
    assert result.interval.low == pytest.approx(ends[0], abs=0.02 * result.sd)
    assert result.interval.high == pytest.approx(ends[1], abs=0.02 * result.sd)
    log_odds = special.logit(p) - special.logit(q)
    ours = np.log([result.odds_ratio_interval.low, result.odds_ratio,
                   result.odds_ratio_interval.high])  # fmt: skip
    np.testing.assert_allclose(
        ours, np.quantile(log_odds, [0.025, 0.5, 0.975]), rtol=0, atol=0.02 * log_odds.std()
    )
    assert (result.ess, result.seed, result.interval.scope) == (None, None, "population")


@pytest.mark.parametrize("counts", [(3, 2, 1, 2), (5, 0, 0, 4)])
def test_paired_against_quadrature(counts):
    nodes, weights = np.polynomial.legendre.leggauss(24)
    u, w = 0.5 * (nodes + 1), 0.5 * weights
    theta_a, theta_b = (x.ravel() for x in np.meshgrid(u, u, indexing="ij"))
    density = np.zeros(theta_a.size)
    for rho_hat, share in zip(u, w, strict=True):
        rho = 2 * rho_hat - 1
        corner = stats.multivariate_normal.cdf(
            np.column_stack([stats.norm.ppf(1 - theta_a), stats.norm.ppf(1 - theta_b)]),
            cov=[[1, rho], [rho, 1]],
        )
        only_a, only_b = 1 - theta_b - corner, 1 - theta_a - corner
        cells = np.maximum([theta_a - only_a, only_a, only_b, corner], 1e-300)
        likelihood = np.exp(special.xlogy(np.array(counts)[:, None], cells).sum(axis=0))
        density += share * stats.beta.pdf(rho_hat, 4, 2) * likelihood
    density *= np.outer(w, w).ravel()
    density /= density.sum()
    mean = density @ (theta_a - theta_b)
    result = compare_paired(*table(*counts))
    error = result.sd / np.sqrt(result.ess)
    assert result.difference == pytest.approx(mean, abs=5 * error + 2e-4)
    assert result.theta_a == pytest.approx(density @ theta_a, abs=5 * error + 2e-4)
    spread = np.sqrt(density @ (theta_a - theta_b - mean) ** 2)
    assert result.sd == pytest.approx(spread, rel=0.01)
    assert result.table == counts


@pytest.mark.parametrize("counts", [(5000, 100, 50, 3000), (0, 5000, 5000, 0)])
def test_many_questions_and_empty_cells_still_leave_draws(counts):
    result = compare_paired(*table(*counts), draws=20_000)
    assert result.ess > 10_000
    n = sum(counts)
    naive = (counts[1] - counts[2]) / n
    assert result.difference == pytest.approx(naive, abs=6 / n + 3 * result.sd)
    assert result.interval.low <= result.difference <= result.interval.high


def test_the_errors_that_are_reported_are_those_that_occur():
    sides = list(table(6, 6, 2, 8))
    runs = [compare_paired(*sides, seed=seed, draws=4000) for seed in range(25)]
    p = np.array([run.p_a_greater for run in runs])
    assert p.std(ddof=1) == pytest.approx(np.mean([run.mc_error for run in runs]), rel=0.4)
    lows = np.array([run.interval.low for run in runs])
    assert lows.std(ddof=1) < 2 * np.mean([run.interval.mc_error for run in runs])


def test_ids_pair_the_questions():
    a = Outcomes.from_matrix([[1], [0], [1]], question_ids=["x", "y", "z"])
    b = Outcomes.from_matrix([[0], [1]], question_ids=["z", "x"])
    result = compare_paired(a, b, align="intersection", draws=1000)
    assert result.table == (1, 1, 0, 0)
    with refused("b", "mismatch", "only in a: 'y'"):
        compare_paired(a, b)


ONE = Outcomes.from_matrix([[1], [0]])
TWICE = Outcomes.from_matrix([[1, 0], [0, 0]])
GRADED = Outcomes.from_matrix([[2], [0]], weights=[0, 1, 2])
WITH_PRIOR = Outcomes.from_matrix([[1], [0]], R0=[[1], [1]])


test_what_is_refused = refusals(
    (lambda: compare_paired(ONE, TWICE), "b", "unsupported"),
    (lambda: compare_unpaired(WITH_PRIOR, ONE), "a", "unsupported"),
    (lambda: compare_unpaired(GRADED, GRADED), "outcomes", "unsupported"),
    (lambda: compare_unpaired(ONE, GRADED), "b", "mismatch"),
    (lambda: compare_paired(ONE, ONE, correlation_prior=(1, 0)), "correlation_prior", "range"),
    (lambda: compare_paired(ONE, ONE, draws=10), "draws", "range"),
    (lambda: single_trial_posterior(TWICE), "outcomes", "unsupported"),
)
