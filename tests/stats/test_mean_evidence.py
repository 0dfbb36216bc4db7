"""Another benchmark as prior of the common mean, against quadratures apart from the code."""

from __future__ import annotations

import numpy as np
import pytest
from _support.errors import refusals
from scipy import special, stats

from lm_eval_bayes import (
    LearnedStrength,
    Outcomes,
    hbayes_at_n,
    mean_evidence,
    mean_pseudo_trials,
)

COUNTS = [[3, 1], [2, 2], [0, 4], [1, 3], [4, 0], [2, 2], [3, 1], [4, 0]]
ALIKE = [[4, 2], [3, 3], [1, 5], [2, 4], [5, 1]] * 6
EASY = [[0, 4]] * 60
RUBRIC = [[2, 1, 1], [0, 1, 3], [3, 1, 0], [1, 1, 2]]


def prior_nodes(a, b):
    """Return m, s and the log prior mass on a grid: m ~ Beta(.7 + a, .7 + b), s as in the code."""
    logit, log_s = np.linspace(-16, 16, 301)[:, None], np.linspace(-16, 18, 151)[None, :]
    m, s = special.expit(logit), np.exp(log_s)
    log_mass = (0.7 + a) * np.log(m) + (0.7 + b) * special.log_expit(-logit)
    log_mass = log_mass + 0.7 * log_s - 1.7 * np.log(20 + s)
    return m, s, log_mass - special.logsumexp(log_mass)


def log_likelihood(m, s, counts):
    rows = [special.betaln(s * m + x, s * (1 - m) + y) for y, x in counts]
    return np.sum(rows, axis=0) - len(counts) * special.betaln(s * m, s * (1 - m))


@pytest.mark.parametrize("pseudo", [(6.5, 3), (0, 90)])
def test_the_posterior_is_that_of_quadrature(pseudo):
    wrong, right = pseudo
    m, s, log_mass = prior_nodes(right, wrong)
    weight = special.softmax(log_mass + log_likelihood(m, s, COUNTS))
    posterior = hbayes_at_n(Outcomes.from_counts(COUNTS), "population", mean_counts=pseudo)
    mean = (weight * m).sum()
    assert posterior.mu == pytest.approx(mean, abs=1e-6)
    assert posterior.sigma == pytest.approx(np.sqrt((weight * (m - mean) ** 2).sum()), rel=1e-4)
    questions = [(weight * (s * m + x) / (s + 4)).sum() for _, x in COUNTS]
    assert posterior.per_question.mu == pytest.approx(questions, abs=1e-5)
    assert posterior.benchmark.mu == pytest.approx(np.mean(questions), abs=1e-5)


def test_with_single_trials_the_counts_add_up():
    single = Outcomes.from_counts([[1, 0]] * 7 + [[0, 1]] * 3)
    other = Outcomes.from_counts([[1, 0]] * 25 + [[0, 1]] * 15)
    pseudo = mean_pseudo_trials(other)
    assert pseudo == pytest.approx([25, 15], abs=1e-3)
    evidence = mean_evidence(single, other, 0.5, "population")
    interval = evidence.posterior.interval()
    exact = stats.beta(0.7 + 3 + 7.5, 0.7 + 7 + 12.5).ppf([0.025, 0.975])
    assert (interval.low, interval.high) == pytest.approx(exact, abs=2e-4)
    assert evidence.without.mu == hbayes_at_n(single, "population").mu


def test_a_rubric_has_the_posterior_of_prior_draws():
    pseudo = np.array([2.0, 5.0, 1.0])
    rng = np.random.default_rng(2)
    m = rng.dirichlet(1.4 / 3 + pseudo, 150_000)
    t = rng.beta(0.7, 1.0, m.shape[0])
    alpha = (20 * t / (1 - t))[:, None] * m
    total, unit = alpha.sum(axis=1), np.array([0.0, 0.5, 1.0])
    log_weight, score = np.zeros(len(m)), np.zeros(len(m))
    for row in RUBRIC:
        log_weight += (special.gammaln(alpha + row) - special.gammaln(alpha)).sum(axis=1)
        log_weight += special.gammaln(total) - special.gammaln(total + 4)
        score += (alpha + row) @ unit / (total + 4) / len(RUBRIC)
    weight = special.softmax(log_weight)
    posterior = hbayes_at_n(Outcomes.from_counts(RUBRIC), mean_counts=pseudo)
    assert posterior.mu == pytest.approx(weight @ score, abs=3e-3)
    assert posterior.learned.mean == pytest.approx(weight @ m, abs=6e-3)


@pytest.mark.parametrize("other", [ALIKE, EASY], ids=["alike", "easy"])
def test_the_weight_is_that_of_quadrature(other):
    outcomes, other = Outcomes.from_counts(COUNTS), Outcomes.from_counts(other)
    evidence = mean_evidence(outcomes, other, "auto")
    wrong, right = evidence.pseudo_trials
    largest = min(1.0, mean_pseudo_trials(outcomes).sum() / (wrong + right))
    strengths = largest * (np.arange(10) + 0.5) / 10
    factors = []
    for value in (0.0, *strengths):
        m, s, log_mass = prior_nodes(value * right, value * wrong)
        factors.append(np.exp(log_mass + log_likelihood(m, s, COUNTS)).sum())
    related = np.array(factors[1:])
    unrelated = factors[0] / (factors[0] + related.mean())
    assert evidence.p_unrelated == pytest.approx(unrelated, abs=1e-3)
    assert evidence.left_out == (unrelated >= 0.8) == (other.n_questions == len(EASY))
    if evidence.left_out:
        assert evidence.posterior.interval() == evidence.without.interval()
    else:
        mean = (1 - unrelated) * (related @ strengths) / related.sum()
        assert float(evidence.strength) == pytest.approx(mean, rel=5e-3)


def test_the_posterior_is_the_average_over_the_weight():
    outcomes, other = Outcomes.from_counts(COUNTS), Outcomes.from_counts(ALIKE)
    evidence = mean_evidence(outcomes, other, "auto", scope="population")
    strength = evidence.strength
    assert isinstance(strength, LearnedStrength)
    parts = [
        hbayes_at_n(outcomes, "population", mean_counts=value * evidence.pseudo_trials)
        for value in strength.values
    ]
    weight = np.array(strength.weights)
    assert evidence.posterior.mu == pytest.approx(weight @ [part.mu for part in parts], abs=1e-4)
    benchmark = weight @ [part.benchmark.mu for part in parts]
    assert evidence.posterior.benchmark.mu == pytest.approx(benchmark, abs=1e-4)
    assert evidence.posterior.sigma < evidence.without.sigma


CLUSTERED = Outcomes.from_counts(COUNTS, clusters=list("aabbccdd"))
GRADED = Outcomes.from_counts(RUBRIC)


test_bad_arguments_are_refused = refusals(
    (lambda: hbayes_at_n(CLUSTERED, mean_counts=[1, 2, 3]), "mean_counts", "shape"),
    (lambda: hbayes_at_n(CLUSTERED, mean_counts=[1, -2]), "mean_counts", "range"),
    (lambda: hbayes_at_n(CLUSTERED, "population", mean_counts=[1, 2]), "mean_counts", "conflict"),
    (lambda: mean_evidence(CLUSTERED, COUNTS, 1.0), "other", "type"),
    (lambda: mean_evidence(CLUSTERED, GRADED, 1.0), "other", "mismatch"),
    (lambda: mean_evidence(CLUSTERED, CLUSTERED, 1.5), "prior_strength", "range"),
)
