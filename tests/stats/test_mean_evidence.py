"""Another benchmark as prior of the common mean, against draws of the prior apart from the code."""

from __future__ import annotations

import numpy as np
import pytest
from _support.errors import refusals
from scipy import special, stats

from lm_eval_bayes import Outcomes, hbayes_at_n, mean_evidence, mean_pseudo_trials

COUNTS = [[3, 1], [2, 2], [0, 4], [1, 3], [4, 0], [2, 2], [3, 1], [4, 0]]
RUBRIC = [[2, 1, 1], [0, 1, 3], [3, 1, 0], [1, 1, 2]]


@pytest.mark.parametrize("pseudo", [(6.5, 3), (2, 8)])
def test_the_posterior_is_that_of_draws_of_the_prior(pseudo):
    wrong, right = pseudo
    rng = np.random.default_rng(1)
    size = (2, 400_000)
    w = rng.beta(0.075, 0.075, size[1])
    w = np.stack([w, 1 - w])
    m = rng.beta(0.7 + right, 0.7 + wrong, size)
    t = rng.beta(0.7, 1.0, size)
    s = np.where(rng.random(size) < 0.25, 1e6, np.clip(20 * t / (1 - t), 0.1, 600))
    a, b = np.maximum(s * m, 1e-9), np.maximum(s * (1 - m), 1e-9)
    likelihood, score = np.ones(size[1]), np.zeros(size[1])
    for y, x in COUNTS:
        of_kind = w * np.exp(special.betaln(a + x, b + y) - special.betaln(a, b))
        total = of_kind.sum(axis=0)
        likelihood *= total
        score += (of_kind * (a + x) / (a + b + x + y)).sum(axis=0) / total / len(COUNTS)
    weight = likelihood / likelihood.sum()
    mean = weight @ (w * m).sum(axis=0)
    posterior = hbayes_at_n(Outcomes.from_counts(COUNTS), "population", mean_counts=pseudo)
    assert posterior.mu == pytest.approx(mean, abs=0.08 * posterior.sigma)
    sd = np.sqrt(weight @ ((w * m).sum(axis=0) - mean) ** 2)
    assert posterior.sigma == pytest.approx(sd, rel=0.08)
    assert posterior.benchmark.mu == pytest.approx(weight @ score, abs=0.004)


def test_with_single_trials_the_counts_add_up():
    single = Outcomes.from_counts([[1, 0]] * 7 + [[0, 1]] * 3)
    other = Outcomes.from_counts([[1, 0]] * 25 + [[0, 1]] * 15)
    pseudo = mean_pseudo_trials(other)
    assert pseudo == pytest.approx([25, 15], rel=0.05)
    interval = mean_evidence(single, other, 0.5, "population").interval()
    exact = stats.beta(0.7 + 3 + 7.5, 0.7 + 7 + 12.5).ppf([0.025, 0.975])
    assert (interval.low, interval.high) == pytest.approx(exact, abs=0.01)
    without = mean_evidence(single, other, 0.0, "population")
    assert without.mu == hbayes_at_n(single, "population").mu


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
    assert posterior.mu == pytest.approx(weight @ score, abs=5e-3)
    assert posterior.learned.mean == pytest.approx(weight @ m, abs=0.01)


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
