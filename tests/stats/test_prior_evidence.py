"""Prior trials whose weight is learned, against quadratures that share nothing with the code."""

from __future__ import annotations

import copy
import json
import pickle
from dataclasses import replace

import numpy as np
import pytest
from _support.errors import refusals
from scipy import special

from lm_eval_bayes import (
    LearnedStrength,
    Outcomes,
    hbayes_at_n,
    learn_prior_strength,
    prior_evidence,
)

COUNTS = [[3, 1], [2, 2], [0, 4], [1, 3], [4, 0], [2, 2]]
OLDER = [[5, 3], [4, 4], [1, 7], [3, 5], [7, 1], [2, 6]]
WRONG = [[1, 7], [4, 4], [8, 0], [7, 1], [0, 8], [6, 2]]
RUBRIC = ([[2, 1, 1], [0, 1, 3], [3, 1, 0]], [[2, 1, 3], [1, 1, 4], [4, 1, 1]])


def uniform_log_factors(counts, older, strengths):
    """Return log p(R | R0, λ) / p(R) of beta-binomials."""
    pairs = zip(np.array(counts), np.array(older), strict=True)
    return sum(
        special.betaln(x + 1 + strengths * x0, y + 1 + strengths * y0)
        - special.betaln(1 + strengths * x0, 1 + strengths * y0)
        - special.betaln(x + 1, y + 1)
        for (y, x), (y0, x0) in pairs
    )


def learned_log_factors(counts, older, strengths):
    """The same under the learned prior: a plain sum over quantiles of the priors of m and s."""
    u = (np.arange(80) + 0.5) / 80
    m = special.betaincinv(0.7, 0.7, u)[:, None]
    t = (u ** (1 / 0.7))[None, :]
    s = 20 * t / (1 - t)

    def log_z(x, y):
        rows = [special.betaln(s * m + a, s * (1 - m) + b) for a, b in zip(x, y, strict=True)]
        prior = special.betaln(s * m, s * (1 - m))
        return special.logsumexp(np.sum(rows, axis=0) - len(x) * prior)

    (y, x), (y0, x0) = np.array(counts, float).T, np.array(older, float).T
    baseline = log_z(x, y) - log_z(0 * x, 0 * y)
    return np.array(
        [log_z(x + k * x0, y + k * y0) - log_z(k * x0, k * y0) - baseline for k in strengths]
    )


def posterior_by_sums(log_factors, n=400):
    """Return E λ and P(λ = 0) of every model by sums over ω and λ, for the factors at n values."""
    strengths = (np.arange(n) + 0.5) / n
    omegas = (np.arange(200) + 0.5) / 200
    prior = [(0.0, 0.5), *((omega, 0.5 / 200) for omega in omegas)]
    total = np.zeros(n)
    mean, unrelated = np.zeros(len(log_factors)), np.zeros(len(log_factors))
    for omega, mass in prior:
        either = omega * np.exp(log_factors) + 1 - omega
        joint = mass * either.prod(axis=0)
        total += joint
        share = omega * np.exp(log_factors) / either
        mean += (joint * share * strengths).sum(axis=1)
        unrelated += (joint * (1 - share)).sum(axis=1)
    return mean / total.sum(), unrelated / total.sum()


@pytest.mark.parametrize("older", [OLDER, WRONG], ids=["agrees", "disagrees"])
def test_the_strength_under_the_uniform_prior_is_that_of_quadrature(older):
    values = uniform_log_factors(COUNTS, older, (np.arange(400) + 0.5) / 400)
    mean, unrelated = posterior_by_sums(values[None])
    outcomes = Outcomes.from_counts(COUNTS, prior_counts=older)
    (strength,) = learn_prior_strength([outcomes], "uniform")
    assert strength.p_unrelated == pytest.approx(unrelated[0], abs=2e-3)
    if older is WRONG:
        assert strength.values == (0.0,)
        assert float(strength) == 0.0
    else:
        assert float(strength) == pytest.approx(mean[0], abs=2e-3)


def test_the_strengths_of_several_models_under_the_learned_prior_are_those_of_quadrature():
    pairs = [(COUNTS, OLDER), (COUNTS[::-1], OLDER), (OLDER, COUNTS)]
    strengths = (np.arange(400) + 0.5) / 400
    coarse = np.linspace(0.0, 1.0, 11)
    values = [np.interp(strengths, coarse, learned_log_factors(*pair, coarse)) for pair in pairs]
    mean, unrelated = posterior_by_sums(np.stack(values))
    models = [Outcomes.from_counts(counts, prior_counts=older) for counts, older in pairs]
    learned = learn_prior_strength(models)
    assert [s.p_unrelated for s in learned] == pytest.approx(unrelated, abs=4e-3)
    used = [strength.values != (0.0,) for strength in learned]
    assert used == (unrelated < 0.8).tolist()
    assert any(used)
    assert np.array(learned)[used] == pytest.approx(mean[used], abs=4e-3)


@pytest.mark.slow
def test_the_marginal_likelihood_of_categories_is_that_of_prior_draws():
    counts, older = RUBRIC
    rng = np.random.default_rng(3)
    m = rng.dirichlet(np.full(3, 1.4 / 3), 100_000)
    t = rng.beta(0.7, 1.0, m.shape[0])
    alpha = np.maximum((20 * t / (1 - t))[:, None] * m, 1e-300)

    def log_z(rows):
        total = np.zeros(len(alpha))
        for row in np.asarray(rows, float):
            total += (special.gammaln(alpha + row) - special.gammaln(alpha)).sum(axis=1)
            both = alpha.sum(axis=1)
            total -= special.gammaln(both + row.sum()) - special.gammaln(both)
        return special.logsumexp(total) - np.log(len(alpha))

    outcomes = Outcomes.from_counts(counts, prior_counts=older)
    (strength,) = learn_prior_strength([outcomes])
    nodes = np.array(strength.values[1:])
    whole = np.array(older)
    factors = [
        log_z(np.array(counts) + k * whole) - log_z(k * whole) - log_z(counts) for k in nodes
    ]
    expected = np.interp((np.arange(400) + 0.5) / 400, nodes, factors)
    mean, unrelated = posterior_by_sums(expected[None])
    assert strength.p_unrelated == pytest.approx(unrelated[0], abs=0.01)
    assert float(strength) == pytest.approx(mean[0], abs=0.01)


def test_the_posterior_is_the_average_over_the_strength():
    outcomes = Outcomes.from_counts(COUNTS, prior_counts=OLDER)
    evidence = prior_evidence(outcomes, "auto", scope="population")
    strength = evidence.strength
    parts = [
        hbayes_at_n(replace(outcomes, prior_strength=value), "population")
        for value in strength.values
    ]
    weight = np.array(strength.weights)
    mu = weight @ [part.mu for part in parts]
    square = weight @ [part.sigma**2 + part.mu**2 for part in parts]
    assert evidence.posterior.mu == pytest.approx(mu, abs=1e-4)
    assert evidence.posterior.sigma == pytest.approx(np.sqrt(square - mu**2), rel=3e-3)
    questions = weight @ np.stack([part.per_question.mu for part in parts])
    assert evidence.posterior.per_question.mu == pytest.approx(questions, abs=1e-3)
    interval = evidence.posterior.interval(0.9)
    for end, mass in ((interval.low, 0.05), (interval.high, 0.95)):
        below = weight @ [float(part.distribution.cdf(np.array([end]))[0]) for part in parts]
        assert below == pytest.approx(mass, abs=2e-3)
    rng = np.random.default_rng(0)
    drawn = evidence.posterior.distribution.draw(20_000, rng)
    assert drawn.mean() == pytest.approx(mu, abs=4 * np.sqrt((square - mu**2) / 20_000))
    assert evidence.without.mu == hbayes_at_n(Outcomes.from_counts(COUNTS), "population").mu


def test_a_prior_that_disagrees_changes_nothing():
    outcomes = Outcomes.from_counts(COUNTS * 3, prior_counts=WRONG * 3)
    evidence = prior_evidence(outcomes, "auto")
    assert evidence.left_out
    assert evidence.p_unrelated > 0.9
    assert evidence.posterior.mu == evidence.without.mu
    assert evidence.posterior.interval() == evidence.without.interval()


def test_models_without_prior_trials_have_no_influence():
    informed = Outcomes.from_counts(COUNTS, prior_counts=OLDER)
    alone = learn_prior_strength([informed])[0]
    bare, beside = learn_prior_strength([Outcomes.from_counts(COUNTS), informed])
    assert float(bare) == 0.0
    assert bare.p_unrelated == 1.0
    assert beside.weights == alone.weights


def test_a_strength_that_is_given_stays():
    outcomes = Outcomes.from_counts(COUNTS, prior_counts=OLDER, prior_strength=0.25)
    for unlearned in (prior_evidence(outcomes), prior_evidence(outcomes, None)):
        assert unlearned.posterior.mu == hbayes_at_n(outcomes).mu
    assert prior_evidence(replace(outcomes, prior_strength=1.0)).strength == 1.0
    evidence = prior_evidence(outcomes, 0.5)
    assert evidence.posterior.mu == hbayes_at_n(replace(outcomes, prior_strength=0.5)).mu
    assert evidence.p_unrelated is None


def test_a_learned_strength_survives_copies_and_json():
    strength = LearnedStrength([0.0, 0.5], [0.2, 0.8], 0.2)
    for other in (copy.deepcopy(strength), pickle.loads(pickle.dumps(strength))):
        assert (other.values, other.weights, other.p_unrelated) == ((0.0, 0.5), (0.2, 0.8), 0.2)
    outcomes = Outcomes.from_counts(COUNTS, prior_counts=OLDER, prior_strength=strength)
    assert isinstance(outcomes.take([2, 0]).prior_strength, LearnedStrength)
    plain = json.loads(json.dumps(prior_evidence(outcomes, None).to_dict()))
    assert plain["strength"] == 0.4


BOTH = Outcomes.from_counts(COUNTS, prior_counts=OLDER)


test_bad_arguments_are_refused = refusals(
    (lambda: prior_evidence(BOTH, 1.5), "prior_strength", "range"),
    (lambda: prior_evidence(BOTH, prior="flat"), "prior", "range"),
    (lambda: prior_evidence(BOTH, prior="uniform", scope="population"), "scope", "unsupported"),
    (lambda: learn_prior_strength([]), "models", "empty"),
    (lambda: learn_prior_strength([COUNTS]), "models[0]", "type"),
)
