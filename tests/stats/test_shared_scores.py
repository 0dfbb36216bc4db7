"""Scores under a shared prior, against enumeration of the same model and simulated boards."""

from __future__ import annotations

from dataclasses import replace
from itertools import combinations, product

import numpy as np
import pytest
from _support.errors import refusals
from scipy import special, stats

from lm_eval_bayes.stats.bayes_at_n import bayes_at_n
from lm_eval_bayes.stats.hierarchical.hbayes_at_n import hbayes_at_n
from lm_eval_bayes.stats.outcomes import Outcomes
from lm_eval_bayes.stats.ranking.rank import rank
from lm_eval_bayes.stats.ranking.shared_prior import FAILS_NEAR_ENDS
from lm_eval_bayes.stats.ranking.shared_scores import shared_scores
from lm_eval_bayes.stats.ranking.simultaneous import PairedErrors

BASE = bayes_at_n(Outcomes.from_counts([[3, 5], [6, 2]]))


def board(mus, sigmas):
    return {
        f"m{i}": replace(BASE, mu=mu, sigma=sigma)
        for i, (mu, sigma) in enumerate(zip(mus, sigmas, strict=True))
    }


def enumerate_outliers(logit, errors, scale):
    """Return weights, means and covariances of the logits given τ and each model's prior sd.

    Every combination of the sds 0, 3, 9, 27 and 81 `scale`, with m integrated out.
    """
    n_models = len(logit)
    sds, shares = scale * np.array([0, 3, 9, 27, 81]), np.array([0.7, *[0.075] * 4])
    which = np.array(list(product(range(5), repeat=n_models)))
    tau = scale * np.exp(np.linspace(np.log(0.001), np.log(2_000.0), 150))
    prior = np.diff(
        np.arctan(np.sqrt(tau[1:] * tau[:-1]) / (2 * scale)), prepend=0, append=np.pi / 2
    )
    variance = tau[:, None, None] ** 2 + sds[which] ** 2
    inverse = np.linalg.inv(errors + variance[..., None] * np.eye(n_models))
    precision = inverse.sum(axis=(-2, -1))
    centre = (inverse.sum(axis=-1) * logit).sum(axis=-1) / precision
    off = logit - centre[..., None]
    fit = np.einsum("...i,...ij,...j->...", off, inverse, off)
    log = 0.5 * (np.linalg.slogdet(inverse)[1] - np.log(precision) - fit)
    weight = special.softmax(log + np.log(prior)[:, None] + np.log(shares[which]).sum(axis=-1))
    gain = variance[..., None] * inverse
    mean = centre[..., None] + np.einsum("...ij,...j->...i", gain, off)
    rest = 1 - gain.sum(axis=-1)
    covariance = variance[..., None] * np.eye(n_models) - gain * variance[..., None, :]
    covariance += rest[..., None] * rest[..., None, :] / precision[..., None, None]
    return tau, weight, mean, covariance


def check(result, tau, weight, mean, covariance):
    node, share = np.polynomial.hermite_e.hermegauss(20)
    share = share / share.sum()
    keep = weight > 1e-9
    of_tau = weight.sum(axis=1)
    weight, mean, covariance = weight[keep], mean[keep], covariance[keep]
    for i in range(len(result.models)):
        sd = np.sqrt(covariance[:, i, i])
        score = special.expit(mean[:, i, None] + sd[:, None] * node)
        expected = weight @ score @ share
        assert result.mu[i] == pytest.approx(expected, abs=0.0005)
        spread = np.sqrt(weight @ (score - expected) ** 2 @ share)
        assert result.sigma[i] == pytest.approx(spread, rel=0.01)
        for end, mass in ((result.low[i], 0.025), (result.high[i], 0.975)):
            below = weight @ stats.norm.cdf((special.logit(end) - mean[:, i]) / sd)
            assert below == pytest.approx(mass, abs=0.001)
        for j in set(range(len(result.models))) - {i}:
            variance = covariance[:, i, i] + covariance[:, j, j] - 2 * covariance[:, i, j]
            z = (mean[:, i] - mean[:, j]) / np.sqrt(variance)
            assert result.p_greater[i, j] == pytest.approx(weight @ stats.norm.cdf(z), abs=0.003)
    for value, mass in ((result.tau_low, 0.025), (result.tau, 0.5), (result.tau_high, 0.975)):
        below = np.interp(value, tau, np.cumsum(of_tau) - 0.5 * of_tau)
        assert below == pytest.approx(mass, abs=0.01)


def test_independent_models_against_all_combinations_of_outliers():
    mu, sigma = np.array([0.55, 0.66, 0.50, 0.58]), np.array([0.04, 0.05, 0.03, 0.04])
    sd = sigma / (mu * (1 - mu))
    exact = enumerate_outliers(special.logit(mu), np.diag(sd**2), np.sqrt((sd**2).mean()))
    check(shared_scores(board(mu, sigma)), *exact)


def test_models_with_common_errors_against_all_combinations_of_outliers():
    mu, sigma = np.array([0.55, 0.62, 0.50]), np.array([0.06, 0.07, 0.06])
    own = np.array([0.03, 0.04, 0.035]) ** 2  # variances without what the models share
    slope = 1 / (mu * (1 - mu))
    common = (sigma**2 * slope**2 - own * slope**2).mean()
    result = shared_scores(board(mu, sigma), own_variance=own)
    errors = np.diag(own * slope**2) + common
    exact = enumerate_outliers(special.logit(mu), errors, np.sqrt((own * slope**2).mean()))
    check(result, *exact)


def test_own_variances_are_those_of_the_questions_differences():
    """Unbiased: a factor of all models, times the sampling variances."""
    rng = np.random.default_rng(2)
    average, noise = rng.uniform(size=(4, 25)), rng.uniform(0.001, 0.002, (4, 25))
    chance = noise.mean(axis=1) / 25
    # without a direction of their mean differences all pairs count
    level = average - average.mean(axis=1, keepdims=True)
    pairs = combinations(range(4), 2)
    between = sum((level[i] - level[j]).var(ddof=1) / 25 for i, j in pairs)
    own = PairedErrors(level, noise).own_variance
    assert own == pytest.approx(chance * between / (3 * chance.sum()), rel=1e-12)
    assert PairedErrors(average[[0, 0]], noise[:2]).own_variance == pytest.approx(chance[:2])


def test_questions_that_separate_all_models_alike_put_none_above_another():
    """A stretch of all differences by questions counts by its sd over .4, squared, up to 1."""
    ability, chance = np.array([-0.3, -0.1, 0.1, 0.3]), np.full((4, 25), 1e-4)
    basis = np.linalg.qr(np.vander(np.linspace(-1, 1, 25), 4, increasing=True))[0].T * 5
    stretch, others = basis[1], 0.1 * np.outer([1, -1, -1, 1], basis[2])
    for sd in (0.2, 1.0, 4.0):  # of the mean of 25 questions
        average = ability[:, None] * (1 + sd * np.sqrt(24) * stretch) + others
        along, rest = (sd * np.linalg.norm(ability)) ** 2, (others**2).sum() / (25 * 24)
        part = min(sd**2 / 0.16, 1.0)
        expected = (part * along + (1 - part) * rest / 2 + rest) / 3
        own = PairedErrors(average, chance).own_variance
        assert own == pytest.approx(np.full(4, expected), rel=1e-9)


@pytest.mark.parametrize(("scope", "n"), [("benchmark", 1), ("population", 4)])
def test_order_and_range_do_not_matter(scope, n):
    rng = np.random.default_rng(3)
    p = special.expit(rng.normal(0, 1.5, 20) + np.array([[0.5], [0.0], [0.1], [-0.6]]))
    right = rng.binomial(n, p)
    counts = {f"m{i}": np.stack([n - row, row], axis=1) for i, row in enumerate(right)}
    unit = shared_scores(
        {m: hbayes_at_n(Outcomes.from_counts(c), scope) for m, c in counts.items()}
    )
    scaled = shared_scores(
        {
            m: hbayes_at_n(Outcomes.from_counts(c, weights=[-2, 8]), scope)
            for m, c in reversed(counts.items())
        }
    )
    assert scaled.models == unit.models[::-1]
    assert scaled.mu[::-1] == pytest.approx(-2 + 10 * unit.mu, abs=1e-6)
    assert scaled.p_greater[::-1, ::-1] == pytest.approx(unit.p_greater, abs=1e-6)
    assert scaled.tau == pytest.approx(unit.tau, rel=1e-6)
    assert unit.to_dict()["models"][0]["model"] == "m0"


def test_identical_runs_in_scope_population_are_level():
    outcomes = Outcomes.from_counts([[0, 1], [1, 0], [0, 1], [0, 1]])
    posterior = hbayes_at_n(outcomes, "population")
    shared = shared_scores({"a": posterior, "b": posterior})
    assert shared.p_greater.tolist() == [[0.5, 0.5], [0.5, 0.5]]


def test_certain_scores_are_left_alone():
    shared = shared_scores(board([0.25, 0.75], [0.0, 0.0]))
    assert (shared.tau, shared.mu.tolist()) == (None, [0.25, 0.75])
    assert shared.p_greater.tolist() == [[0.5, 0.0], [1.0, 0.5]]


@pytest.mark.slow
def test_claims_are_right_where_the_model_is():
    """Twelve models with sd .3 of their logits and normal errors of .3."""
    rng = np.random.default_rng(5)
    claimed, right, flat = [], [], []
    first, second = np.triu_indices(12, 1)
    for _ in range(150):
        truth = rng.normal(0.2, 0.3, 12)
        logit = truth + 0.3 * rng.standard_normal(12)
        mu = special.expit(logit)
        p = shared_scores(board(mu, 0.3 * mu * (1 - mu))).p_greater[first, second]
        better = truth[first] > truth[second]
        side = np.maximum(p, 1 - p)
        inside = (side >= 0.85) & (side < 0.99)
        claimed.extend(side[inside])
        right.extend((better == (p > 0.5))[inside])
        z = np.abs(logit[first] - logit[second]) / (0.3 * np.sqrt(2))
        inside = (z > stats.norm.ppf(0.85)) & (z < stats.norm.ppf(0.99))
        flat.extend((better == (logit[first] > logit[second]))[inside] - stats.norm.cdf(z[inside]))
    assert np.mean(right) == pytest.approx(np.mean(claimed), abs=0.03)
    assert np.mean(flat) < -0.05


def test_ranks_under_the_shared_prior():
    """`rank` draws from the posterior whose probabilities `shared_scores` computes."""
    rng = np.random.default_rng(4)
    p = special.expit(rng.normal(0, 1.5, 20) + np.array([[0.9], [0.0], [0.1], [-0.3]]))
    counts = {f"m{i}": np.stack([4 - row, row], axis=1) for i, row in enumerate(rng.binomial(4, p))}
    posteriors = {m: hbayes_at_n(Outcomes.from_counts(c), "population") for m, c in counts.items()}
    flat, shared = (rank(posteriors, prior=prior) for prior in ("flat", "shared"))
    assert (flat.prior, shared.prior, shared.to_dict()["prior"]) == ("flat", "shared", "shared")
    assert FAILS_NEAR_ENDS in shared.note
    assert FAILS_NEAR_ENDS not in (flat.note or "")
    expected = shared_scores({model: posteriors[model] for model in shared.models}).p_greater
    assert shared.p_greater == pytest.approx(expected, abs=0.015)
    assert np.abs(flat.p_greater - expected).max() > 0.03
    for name in ("models", "ranks", "mu", "sigma", "rank_low", "rank_high"):
        assert np.array_equal(getattr(flat, name), getattr(shared, name))
    assert shared_scores(posteriors).note == FAILS_NEAR_ENDS
    assert rank({"only": BASE}, prior="shared").p_best.tolist() == [1.0]


TWO = board([0.5, 0.6], [0.1, 0.1])


test_bad_arguments = refusals(
    (lambda: shared_scores(TWO, level=1.0), "level", "range"),
    (lambda: shared_scores({"only": BASE}), "posteriors", "empty"),
    (lambda: shared_scores(TWO, own_variance=np.ones(3)), "own_variance", "shape"),
    (lambda: shared_scores(TWO, own_variance=[0.01, -0.01]), "own_variance", "range"),
    (lambda: rank(TWO, prior="learned"), "prior", "choice"),
)


def test_own_variances_of_single_trials_fit_those_of_the_pairs():
    average = np.random.default_rng(2).uniform(size=(5, 25))
    errors = PairedErrors(average, np.zeros((5, 25)))
    first, second = np.triu_indices(5, 1)
    design = np.zeros((10, 5))
    design[np.arange(10), first] = design[np.arange(10), second] = 1.0
    fitted = np.linalg.lstsq(design, errors.variance, rcond=None)[0]
    assert errors.own_variance == pytest.approx(fitted, rel=1e-9)
