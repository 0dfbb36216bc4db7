"""Variance within and between questions: closed forms, simulation."""

from __future__ import annotations

import numpy as np
import pytest
from _support.errors import refusals
from _support.outcomes import binary_outcomes

from lm_eval_bayes import Outcomes, ScoreOutcomes, variance_components
from lm_eval_bayes.stats.variance import (
    IN_CLUSTERS,
    SINGLE_TRIALS,
    correlation_interval,
    covariance_of_questions,
)


def binomial(n, right, **more):
    return binary_outcomes(right, n, **more)


def test_many_trials_leave_no_doubt():
    p = np.array([0.1, 0.35, 0.5, 0.6, 0.9, 0.95])
    components = variance_components(binomial(20_000, (20_000 * p).astype(int)))
    within, between = np.mean(p * (1 - p)), np.var(p, ddof=1)
    assert components.within.mu == pytest.approx(within, rel=0.01)
    assert components.between.mu == pytest.approx(between, rel=0.01)
    assert components.icc.mu == pytest.approx(between / (within + between), rel=0.01)
    assert components.flip.mu == pytest.approx(np.mean(2 * p * (1 - p)), rel=0.01)
    for trials in (1, 16):
        sd = np.sqrt(within / (6 * trials))
        assert components.standard_error(trials) == pytest.approx(sd, rel=0.01)
        assert components.mean_distance(trials) == pytest.approx(2 * sd / np.sqrt(np.pi), rel=0.01)
        population = np.sqrt((between + within / trials) / 6)
        assert components.population_standard_error(trials) == pytest.approx(population, rel=0.01)
        # scores differ by multiples of 1/(M N)
        step = 1 / (6 * trials)
        smooth = 1.96 * np.sqrt(2) * sd
        distance = components.distance(trials)
        assert distance / step == pytest.approx(round(distance / step))
        assert -step / 2 <= distance - smooth <= step / 2 * 1.001


def test_the_distance_of_other_trials_has_no_steps():
    p = np.array([0.1, 0.35, 0.5, 0.6, 0.9, 0.95])
    components = variance_components(binomial(20_000, (20_000 * p).astype(int)))
    sd = np.sqrt(np.mean(p * (1 - p)) / (6 * 2.5))
    assert components.distance(2.5) == pytest.approx(1.95996 * np.sqrt(2) * sd, rel=0.01)
    # the median of the absolute value of a normal variable is .6745 sd
    assert components.distance(2.5, 0.5) == pytest.approx(0.6745 * np.sqrt(2) * sd, rel=0.01)


@pytest.mark.parametrize("right", [0, 4])
@pytest.mark.parametrize("m", [2, 100])
def test_all_right_or_all_wrong(right, m):
    components = variance_components(binomial(4, [right] * m))
    assert components.flipped == 0.0
    for summary in (components.within, components.between, components.icc, components.flip):
        assert 0.0 <= summary.low <= summary.mu <= summary.high < 1.0
    # a question that flips in 1% of trials is not excluded by 4 m equal ones: (1 − .01)^(4m) > .01
    assert components.flip.high > 0.3 / m
    assert 0.0 < components.standard_error(1) < 0.5
    assert 0.0 <= components.distance(1) <= 1.0


def test_one_trial_per_question_gives_bounds():
    components = variance_components(binomial(1, [1] * 12 + [0] * 8))
    assert components.within is None
    assert components.icc is None
    assert components.flipped is None
    assert components.note == SINGLE_TRIALS
    assert not components.separable
    assert components.total.mu == pytest.approx(0.24, abs=0.02)  # .6 · .4
    assert components.standard_error(1) == pytest.approx(np.sqrt(components.total.mu / 20))
    assert components.population_standard_error(1) == pytest.approx(np.sqrt(0.24 / 20), rel=0.05)
    assert components.population_standard_error(2) is None
    # all of the variance within questions is the most that is possible
    assert components.distance(1) >= 1.96 * np.sqrt(2 * 0.24 / 20) - 0.025


def test_questions_without_trials():
    components = variance_components(Outcomes.from_counts([[1, 3], [0, 0], [2, 2], [4, 0]]))
    assert components.trials_range == (0, 4)
    assert components.trials == 4.0
    assert components.score == pytest.approx((0.75 + 0.5 + 0.0) / 3)
    assert components.flipped == pytest.approx(2 / 3)


def test_equal_weights_have_no_variance():
    components = variance_components(binomial(4, [1, 2, 3], weights=[1.0, 1.0]))
    assert components.total.mu == 0.0
    assert components.icc.mu == 0.0
    assert components.distance(1) == 0.0


def test_rubrics():
    rng = np.random.default_rng(5)
    weights = np.array([0.0, 0.25, 1.0])
    theta = rng.dirichlet([1.0, 1.0, 1.0], size=20)
    counts = np.stack([rng.multinomial(4000, row) for row in theta])
    components = variance_components(Outcomes.from_counts(counts, weights=weights))
    mean = theta @ weights
    within, between = np.mean(theta @ weights**2 - mean**2), np.var(mean, ddof=1)
    assert components.within.mu == pytest.approx(within, rel=0.03)
    assert components.between.mu == pytest.approx(between, rel=0.03)
    assert components.flip.mu == pytest.approx(np.mean(1 - (theta**2).sum(axis=1)), rel=0.03)
    assert components.step is None


def test_scores():
    rng = np.random.default_rng(8)
    centre = rng.uniform(0.3, 0.7, 25)
    scores = [rng.normal(c, 0.05, 400).clip(0, 1) for c in centre]
    components = variance_components(ScoreOutcomes.from_scores(scores))
    assert components.within.mu == pytest.approx(0.05**2, rel=0.05)
    assert components.between.mu == pytest.approx(np.var(centre, ddof=1), rel=0.05)
    assert components.flip is None
    assert components.flipped is None
    wide = ScoreOutcomes.from_scores([10 * row for row in scores], bounds=(0.0, 10.0))
    assert variance_components(wide).within.mu == pytest.approx(100 * components.within.mu)


def test_clusters_have_a_note():
    right = np.tile([0, 4, 2, 3], 6)
    clustered = binomial(4, right, clusters=list("aabb") * 6)
    assert variance_components(clustered).note == IN_CLUSTERS
    apart = binomial(4, right, clusters=[str(i) for i in range(24)])
    assert variance_components(apart).note is None


def test_the_covariance_of_two_models_is_that_of_their_questions():
    a, b = binomial(4, [0, 1, 2, 4]), binomial(2, [0, 0, 2, 2])
    expected = np.cov([0, 0.25, 0.5, 1], [0, 0, 1, 1])[0, 1]
    assert covariance_of_questions([a, b]) == pytest.approx(expected)
    assert covariance_of_questions([a]) is None


def correlated(m, n, rng, rho=0.6):
    """Two models whose p_α have about this correlation: a share rho of the questions is common."""
    first, other = rng.beta(1.0, 1.0, (2, m))
    second = np.where(rng.random(m) < rho, first, other)
    return [binomial(n, rng.binomial(n, p)) for p in (first, second)]


def test_the_interval_of_the_correlation_is_narrower_with_more_questions():
    few = correlation_interval(correlated(20, 8, np.random.default_rng(5)), 0.95)
    many = correlation_interval(correlated(500, 8, np.random.default_rng(5)), 0.95)
    assert few[0] < 0.6 < few[1]
    assert many[0] < 0.6 < many[1]
    assert many[1] - many[0] < 0.25 < few[1] - few[0]
    wide, narrow = (
        correlation_interval(correlated(20, 8, np.random.default_rng(5)), level)
        for level in (0.95, 0.5)
    )
    assert wide == few
    assert wide[0] < narrow[0] < narrow[1] < wide[1]


def test_an_interval_of_the_correlation_needs_models_and_questions():
    rng = np.random.default_rng(6)
    assert correlation_interval(correlated(20, 4, rng)[:1], 0.95) is None
    assert correlation_interval(correlated(2, 4, rng), 0.95) is None
    assert correlation_interval([binomial(4, [2, 2, 2, 2])] * 2, 0.95) is None
    single = correlation_interval(correlated(300, 1, rng), 0.95, single=True)
    assert -1.0 <= single[0] < 1 / 3 * 0.6 < single[1] < 0.5


TWO = binomial(4, [2, 3])


test_arguments = refusals(
    (lambda: variance_components(binomial(4, [2])), "outcomes", "empty"),
    (lambda: variance_components(Outcomes.from_counts([[0, 0]] * 2)), "outcomes", "empty"),
    (lambda: variance_components(TWO, level=1.0), "level", "range"),
    (lambda: variance_components(TWO).distance(0), "trials", "range"),
    (lambda: variance_components(TWO).distance(1, 1.0), "share", "range"),
)
