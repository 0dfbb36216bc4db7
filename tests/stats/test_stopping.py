from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from _support.errors import refusals
from _support.outcomes import binary_outcomes
from scipy import stats

from lm_eval_bayes.stats.hierarchical.hbayes_at_n import hbayes_at_n
from lm_eval_bayes.stats.intervals import IntervalSpec
from lm_eval_bayes.stats.outcomes import Outcomes
from lm_eval_bayes.stats.pass_family_posteriors import pass_at_k_posterior
from lm_eval_bayes.stats.sequential.predictive_draws import (
    PredictiveScore,
    interval_widths,
)
from lm_eval_bayes.stats.sequential.trials_needed import trials_needed
from lm_eval_bayes.stats.uniform_prior import bayes_at_n

ONE = bayes_at_n(binary_outcomes([6], 8))
MANY = bayes_at_n(binary_outcomes([0, 2, 5, 8, 8, 3, 7, 1, 6, 4] * 3, 8))


def test_two_models_by_summing_over_all_predictive_draws():
    a, b = bayes_at_n(binary_outcomes([7], 8)), bayes_at_n(binary_outcomes([4], 8))

    def share(extra):
        x = np.arange(extra + 1)
        (m, v), (m2, v2) = (
            ((one + x) / (10 + extra), (one + x) * (10 + extra - one - x)) for one in (8, 5)
        )
        scale = (10.0 + extra) ** 2 * (11.0 + extra)
        gap = np.abs(m[:, None] - m2) > 1.645 * np.sqrt((v[:, None] + v2) / scale)
        p, p2 = (stats.betabinom(extra, one, 10 - one).pmf(x) for one in (8, 5))
        return p @ gap @ p2

    forecast = trials_needed(a, other=b, z=1.645)
    assert forecast.current == pytest.approx(0.3 / np.sqrt(8 * 2 / 1100 + 5 * 5 / 1100), rel=1e-12)
    for n, wanted in ((forecast.additional, 0.5), (forecast.additional_high, 0.95)):
        assert share(n) > wanted - 0.02
        assert share(n - 1) < wanted + 0.02


def test_many_questions_by_the_formula():
    # σ² is all but sure where there are many questions: Σ (E p(1−p)) / (T + n + 1) / M²
    forecast = trials_needed(MANY, width=0.05)
    b, a = MANY.distribution.nu.T
    room = a * b / ((a + b) * (a + b + 1))  # E p(1 − p)

    def width(extra):
        # of draws whose questions have their own p: E[v] = E p(1−p) (1 − 1/T') / (T' + 1)
        total = 10 + extra
        variance = (room * (extra + 11) / (total * (total + 1))).sum() / 30**2
        return 2 * 1.959964 * np.sqrt(variance)

    assert width(forecast.additional) == pytest.approx(0.05, rel=0.02)
    assert forecast.additional_low < forecast.additional < forecast.additional_high
    assert forecast.additional_high < 1.3 * forecast.additional


def test_what_is_reached_needs_nothing():
    forecast = trials_needed(MANY, width=0.5)
    assert (forecast.additional_low, forecast.additional, forecast.additional_high) == (0, 0, 0)
    assert forecast.probability == 1.0
    assert forecast.total == forecast.trials == 8.0
    far = bayes_at_n(binary_outcomes([8] * 30, 8))
    assert trials_needed(MANY, other=far, z=1.645).additional == 0


def test_what_is_out_of_reach_is_none_and_says_so():
    forecast = trials_needed(MANY, width=0.01, max_trials=50)
    assert forecast.additional is forecast.total is None
    assert forecast.probability == 0.0
    equal = trials_needed(MANY, other=MANY, z=3.0, max_trials=100)
    assert equal.additional is None
    assert 0.0 < equal.probability < 0.5


def test_categories_and_ragged_trials():
    counts = [[3, 2, 3], [1, 1, 2], [0, 0, 6], [4, 0, 0]] * 4
    weights = [0.0, 0.5, 1.0]
    outcomes = Outcomes.from_counts(counts, weights=weights)
    forecast = trials_needed(bayes_at_n(outcomes), width=0.1)
    assert forecast.trials == pytest.approx((8 + 4 + 6 + 4) / 4)
    # the moments of a draw with nothing added are the posterior's own
    mu, sigma = PredictiveScore.of(bayes_at_n(outcomes)).moments(0)
    assert mu == pytest.approx(bayes_at_n(outcomes).mu, abs=1e-12)
    assert sigma == pytest.approx(bayes_at_n(outcomes).sigma, abs=1e-12)
    learned = trials_needed(hbayes_at_n(outcomes), width=0.1)
    assert learned.trials == pytest.approx(5.5)
    # 5 to 8 by seed
    assert learned.additional >= 5


@pytest.mark.parametrize("categories", [2, 3])
def test_predictive_draws_of_a_learned_prior_are_what_hbayes_would_say(categories):
    rng = np.random.default_rng(6)
    theta = rng.dirichlet(np.full(categories, 0.6), 25)
    counts = rng.multinomial(6, theta)
    weights = np.linspace(0, 1, categories)
    now = hbayes_at_n(Outcomes.from_counts(counts, weights=weights))
    predictive = PredictiveScore.of(now)
    assert predictive.worth == pytest.approx(6.0, rel=0.1)
    later = []
    for truth in now.distribution.draw_categories(20, rng).theta:
        more = counts + rng.multinomial(18, truth)
        later.append(hbayes_at_n(Outcomes.from_counts(more, weights=weights)))
    mu, sigma = predictive.moments(18)
    assert sigma.mean() == pytest.approx(np.mean([each.sigma for each in later]), rel=0.05)
    # 20 means: their sd is known to a sixth
    assert mu.std() == pytest.approx(np.std([each.mu for each in later]), rel=0.4)


def test_in_population_scope_the_questions_set_a_limit():
    rng = np.random.default_rng(4)
    p = rng.beta(1.0, 1.0, 40)
    outcomes = binary_outcomes(rng.binomial(8, p), 8)
    posterior = hbayes_at_n(outcomes, scope="population")
    now = posterior.interval().width
    forecast = trials_needed(posterior, width=0.1)
    assert forecast.additional is forecast.additional_high is None
    # uniform p on 40 questions: sd of their mean is sqrt(1/12/40)
    assert forecast.limit == pytest.approx(2 * 1.96 * np.sqrt(1 / 12 / 40), rel=0.2)
    assert forecast.limit < now
    assert not forecast.reachable
    reachable = trials_needed(posterior, width=0.5 * (now + forecast.limit))
    assert 1 < reachable.additional < 100
    # further trials of questions from the posterior bring hbayes itself about there
    wanted, n = reachable.target, reachable.additional
    truths = posterior.benchmark.distribution.draw_categories(12, rng).theta[..., 1]
    widths = [
        hbayes_at_n(
            binary_outcomes(outcomes.counts[:, 1] + rng.binomial(n, truth), 8 + n), "population"
        )
        .interval()
        .width
        for truth in truths
    ]
    # the forecast takes questions of one kind
    assert np.mean(widths) == pytest.approx(wanted, rel=0.15)


def test_normal_widths():
    normal = trials_needed(replace(MANY, method="normal"), width=0.05)
    assert normal.current == pytest.approx(2 * 1.959964 * MANY.sigma, rel=1e-6)
    spec = IntervalSpec(method="normal")
    wide = interval_widths(np.array([0.99, 0.5]), np.array([0.1, 0.1]), (0.0, 1.0), spec)
    assert wide == pytest.approx([0.01 + 0.195996, 0.391993], abs=1e-6)


test_bad_arguments = refusals(
    (lambda: trials_needed(MANY), "width", "conflict"),
    (lambda: trials_needed(MANY, width=0.1, z=2.0, other=MANY), "width", "conflict"),
    (lambda: trials_needed(MANY, z=2.0), "other", "conflict"),
    (lambda: trials_needed(MANY, width=0.0), "width", "range"),
    (lambda: trials_needed(MANY, z=1.0, other=ONE), "posteriors", "mismatch"),
    (lambda: trials_needed(binary_outcomes([6], 8), width=0.1), "posterior", "type"),
    (lambda: trials_needed(MANY, z=1.0, other=binary_outcomes([6], 8)), "other", "type"),
)


PASS = pass_at_k_posterior(binary_outcomes([3, 5], 8), 4)
UNTRIED = hbayes_at_n(Outcomes.from_counts([[0, 0]] * 10), scope="population")
FEW = hbayes_at_n(Outcomes.from_counts([[3, 5]] * 9), scope="population")


test_posteriors_that_cannot_be_forecast = refusals(
    (lambda: trials_needed(PASS, width=0.1), "posterior", "unsupported"),
    (lambda: trials_needed(UNTRIED, width=0.1), "posterior", "empty"),
    (lambda: trials_needed(FEW, width=0.1), "posterior", "range"),
)
