"""The learned prior of rubrics: its likelihood, its particles and the laws drawn from them."""

from __future__ import annotations

import numpy as np
import pytest
from lm_eval_bayes.stats.distributions.mixtures import (
    DirichletMixtureDistribution,
    _are_nearly_normal,
    _dirichlet_cumulants,
)
from scipy import special, stats

from lm_eval_bayes import Outcomes
from lm_eval_bayes.stats.distributions.independent import mean_table
from lm_eval_bayes.stats.distributions.success_curves import Identity
from lm_eval_bayes.stats.distributions.weighted import weighted_quantiles
from lm_eval_bayes.stats.hierarchical.dirichlet_multinomial import (
    Likelihood,
    learn_particles,
)
from lm_eval_bayes.stats.hierarchical.hbayes_at_n import (
    FEW,
    PRIOR_ALONE,
    category_posterior,
    few_questions_note,
    posterior_note,
)
from lm_eval_bayes.stats.intervals import IntervalSpec


def rubric(theta, trials, seed=0):
    rng = np.random.default_rng(seed)
    return np.array([rng.multinomial(trials, row) for row in theta], dtype=float)


def skewed(questions, trials, categories=5, seed=0):
    alpha = np.append(np.full(categories - 1, 0.2), 2.0)
    return rubric(np.random.default_rng(seed + 1).dirichlet(alpha, questions), trials, seed)


def one_category(questions, trials, categories=4):
    counts = np.zeros((questions, categories))
    counts[:, 1] = trials
    return counts


COUNTS = {
    "ten categories": skewed(3, 128, categories=10),
    "a billion trials": np.array([[1e9, 2.0, 0.0], [0.0, 3e8, 7.0]]),
    "one trial each": skewed(40, 1),
    "one category, one question": one_category(1, 200),
    "two corners": np.tile([[9.0, 0, 0, 0], [0, 0, 9.0, 0]], (20, 1)),
    "fractions": skewed(30, 16) + 0.3 * skewed(30, 4, seed=5),
    "ragged": np.vstack([np.zeros((3, 5)), skewed(5, 1), skewed(5, 7), skewed(2, 300)]),
}


@pytest.mark.parametrize("name", COUNTS)
def test_likelihood_is_the_ratio_of_gammas(name):
    counts = COUNTS[name]
    rng = np.random.default_rng(3)
    share = rng.dirichlet(np.ones(counts.shape[1]), 20)
    strength = np.exp(rng.uniform(-6, 6, 20))
    a = share * strength[:, None]
    expected = np.zeros(20)
    for row in counts:
        expected += special.gammaln(strength) - special.gammaln(strength + row.sum())
        expected += (special.gammaln(a + row) - special.gammaln(a)).sum(axis=1)
    np.testing.assert_allclose(Likelihood(counts).log(share, strength), expected, rtol=1e-7)


@pytest.mark.parametrize("name", COUNTS)
def test_particles_stay_even(name):
    particles = learn_particles(COUNTS[name], seed=0)
    assert particles.ess > 0.8 * particles.weight.size
    assert particles.weight.max() < 0.01
    assert particles.weight.sum() == pytest.approx(1.0)
    np.testing.assert_allclose(particles.share.sum(axis=1), 1.0)
    assert (particles.share > 0.0).all()


@pytest.mark.parametrize("totals", [(0, 0, 25), (3, 50, 7, 0)])
def test_single_trials_leave_the_strength_to_its_prior(totals):
    particles = learn_particles(np.repeat(np.eye(len(totals)), totals, axis=0), seed=1)
    masses = np.array([0.05, 0.25, 0.5, 0.75, 0.95])
    prior_mass = (particles.strength / (20 + particles.strength)) ** 0.7
    found = weighted_quantiles(prior_mass, particles.weight, masses)
    np.testing.assert_allclose(found, masses, atol=0.02)
    parameters = 1.4 / len(totals) + np.array(totals)
    exact = stats.dirichlet(parameters)
    mean = particles.weight @ particles.share
    np.testing.assert_allclose(mean, exact.mean(), atol=0.004)
    sd = np.sqrt(particles.weight @ np.square(particles.share - mean))
    np.testing.assert_allclose(sd, np.sqrt(exact.var()), rtol=0.04)


def test_notes_say_what_a_reader_must_know():
    single = Outcomes.from_counts([[1, 0, 0], [0, 0, 1], [0, 0, 0]])
    assert category_posterior(single, IntervalSpec()).note == PRIOR_ALONE
    population = IntervalSpec(scope="population")
    assert category_posterior(single, population).note == few_questions_note(3, "population")
    earlier = [[0, 1, 0], [0, 0, 1], [0, 0, 1]]
    helped = Outcomes.from_counts(single.counts, prior_counts=earlier, prior_strength=0.5)
    assert category_posterior(helped, IntervalSpec()).note == few_questions_note(3, "benchmark")
    off = Outcomes.from_counts(single.counts, prior_counts=earlier, prior_strength=0)
    assert category_posterior(off, IntervalSpec()).note == PRIOR_ALONE
    assert "399" in posterior_note(single, "benchmark", FEW - 1)


@pytest.mark.parametrize(
    ("a", "b", "n_questions", "is_normal"),
    [(0.6, 9.0, 36, True), (8.0, 0.3, 72, True), (0.6, 9.0, 22, False)],
)
def test_draws_of_a_score_are_those_of_a_mean_of_betas(a, b, n_questions, is_normal):
    """By convolution; the third category is empty, and the expansion is at its limits."""
    counts = np.tile([b, 0.0, a], (n_questions, 1))
    alpha, one = np.array([[1e-12, 1e-12, 1e-12]]), np.ones(1)
    mean, sd = a / (a + b), np.sqrt(a * b / (a + b + 1.0) / n_questions) / (a + b)
    score = DirichletMixtureDistribution(counts, alpha, one, np.array([2.0, 3.0, 4.0]), mean, sd)
    cumulants = _dirichlet_cumulants(counts[:1], np.array([n_questions]), alpha, score.weights)
    assert _are_nearly_normal(cumulants)[0] == is_normal
    drawn = score.draw(400_000 if is_normal else 40_000, np.random.default_rng(1))
    exact = mean_table(np.full(n_questions, a), np.full(n_questions, b), Identity(), mean, sd)
    masses = np.array([0.005, 0.025, 0.2, 0.5, 0.8, 0.975, 0.995])
    off = (np.quantile(drawn, masses) - 2.0 - 2.0 * exact.quantile(masses)) / (2.0 * sd)
    assert np.abs(off).max() < (0.025 if is_normal else 0.06)
