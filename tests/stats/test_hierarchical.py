"""hbayes@N for two categories, against draws of its prior weighted by the likelihood."""

import numpy as np
import pytest
from _support.errors import refusals
from _support.weighted_prior import posterior_draws, summary
from scipy import stats

from lm_eval_bayes.stats.hierarchical.hbayes_at_n import (
    PRIOR_ALONE,
    few_questions_note,
    hbayes_at_n,
)
from lm_eval_bayes.stats.outcomes import Outcomes
from lm_eval_bayes.stats.uniform_prior import bayes_at_n

RAGGED = [[0, 3], [2, 2], [5, 1], [0, 0], [8, 0]]


@pytest.mark.parametrize("counts", [RAGGED, [[4, 0]] * 3, [[3, 0], [2, 1], [0, 3]]])
def test_both_scopes_are_those_of_the_weighted_prior(counts):
    drawn = posterior_draws(counts)
    scores = {
        "benchmark": drawn.theta[..., 1].mean(axis=1),
        "population": (drawn.weight[:, 0] * drawn.mean[..., 1]).sum(axis=1),
    }
    for scope, values in scores.items():
        posterior = hbayes_at_n(Outcomes.from_counts(counts), scope)
        interval = posterior.interval()
        own = np.array([posterior.mu, posterior.sigma, interval.low, interval.high])
        # Monte Carlo, of the draws and of the states; the end of a long tail is the least certain
        off = np.abs(own - summary(values)) / values.std()
        np.testing.assert_array_less(off, [0.1, 0.1, 0.35, 0.35])
        assert posterior.learned.mean[1] == pytest.approx(
            scores["population"].mean(), abs=0.1 * scores["population"].std()
        )
    per_question = posterior.per_question
    theta = drawn.theta[..., 1]
    sd = theta.std(axis=0)
    np.testing.assert_array_less(np.abs(per_question.mu - theta.mean(axis=0)) / sd, 0.15)
    np.testing.assert_array_less(np.abs(per_question.sigma - sd) / sd, 0.15)


@pytest.mark.parametrize(("right", "n"), [(0, 1), (9, 30), (300, 1000)])
def test_one_trial_a_question_leaves_the_population_a_beta(right, n):
    outcomes = Outcomes.from_counts([[0, 1]] * right + [[1, 0]] * (n - right))
    posterior = hbayes_at_n(outcomes, scope="population")
    # of one kind it is this Beta distribution, and the weights' prior makes two kinds rare
    law = stats.beta(0.7 + right, 0.7 + n - right)
    interval = posterior.interval()
    own = np.array([posterior.mu, posterior.sigma, interval.low, interval.high])
    expected = np.array([law.mean(), law.std(), *law.ppf([0.025, 0.975])])
    np.testing.assert_array_less(np.abs(own - expected) / law.std(), 0.12)
    assert posterior.note == few_questions_note(n)
    assert hbayes_at_n(outcomes).note == PRIOR_ALONE


def test_prior_trials_count_as_trials_worth_their_strength():
    both = hbayes_at_n(Outcomes.from_counts([[3, 1], [2, 4]]))
    split = hbayes_at_n(Outcomes.from_counts([[1, 1], [2, 0]], prior_counts=[[2, 0], [0, 4]]))
    assert (split.mu, split.sigma) == pytest.approx((both.mu, both.sigma), rel=1e-12)
    nothing = Outcomes.from_counts(
        [[1, 1], [2, 0]], prior_counts=[[2, 0], [0, 4]], prior_strength=0
    )
    alone = hbayes_at_n(Outcomes.from_counts([[1, 1], [2, 0]]))
    assert hbayes_at_n(nothing).mu == pytest.approx(alone.mu, rel=1e-12)
    fraction = Outcomes.from_counts(
        [[1, 1], [2, 0]], prior_counts=[[2, 0], [0, 4]], prior_strength=0.3
    )
    score = posterior_draws([[1 + 0.6, 1], [2, 1.2]]).theta[..., 1].mean(axis=1)
    assert hbayes_at_n(fraction).mu == pytest.approx(score.mean(), abs=0.1 * score.std())


def test_categories_of_equal_weight_merge():
    plain = hbayes_at_n(Outcomes.from_counts([[3, 1], [2, 4]]))
    merged = hbayes_at_n(Outcomes.from_counts([[1, 2, 1], [0, 2, 4]], weights=[0, 0, 1]))
    assert merged.mu == pytest.approx(plain.mu)
    level = hbayes_at_n(Outcomes.from_counts([[3, 1], [2, 4]], weights=[0.5, 0.5]))
    assert (level.mu, level.sigma, level.interval().width) == (0.5, 0.0, 0.0)


@pytest.mark.parametrize("counts", [[[0, 0]], [[10**6, 1]] * 2 + [[1, 10**6]], [[1, 0]] * 2000])
def test_extremes_keep_their_intervals_in_order(counts):
    for scope in ("benchmark", "population"):
        posterior = hbayes_at_n(Outcomes.from_counts(counts), scope=scope)
        for method in ("normal", "beta", "exact"):
            interval = posterior.interval(method=method)
            assert 0 <= interval.low <= interval.high <= 1
        assert posterior.interval().low <= posterior.mu <= posterior.interval().high
    assert bayes_at_n(Outcomes.from_counts(counts)).mu == pytest.approx(posterior.mu, abs=0.5)


test_bad_arguments_are_named = refusals(
    (lambda: hbayes_at_n(Outcomes.from_counts(RAGGED), scope="world"), "scope", "choice"),
    (lambda: hbayes_at_n(Outcomes.from_counts(RAGGED), level=1.0), "level", "range"),
    (lambda: hbayes_at_n(Outcomes.from_counts(RAGGED), interval="wald"), "interval", "choice"),
)


@pytest.mark.parametrize(
    "counts",
    [
        [[17, 15], [29, 3], [2, 30], [0, 32], [32, 0]],
        [[0, 1], [1, 0], [0, 1], [1, 0], [0, 1]],
    ],
    ids=["many trials", "one trial each"],
)
def test_the_learned_strength_is_that_of_the_weighted_prior(counts):
    learned = hbayes_at_n(Outcomes.from_counts(counts)).learned
    drawn = posterior_draws(counts)
    weight, mean = drawn.weight[:, 0], drawn.mean[..., 1]
    # the variance of p over the questions, as of Beta(s m, s (1 - m))
    centre = (weight * mean).sum(axis=1)
    variance = (weight * mean * (1 - mean) / (drawn.strength + 1)).sum(axis=1)
    variance += (weight * (mean - centre[:, None]) ** 2).sum(axis=1)
    # the infinite ones are equal
    strength = np.sort(np.minimum(centre * (1 - centre) / variance - 1, 4e5))
    first, last = (
        np.searchsorted(strength, min(learned.strength, 4e5), side) / strength.size
        for side in ("left", "right")
    )
    assert first - 0.05 < 0.5 < last + 0.05


def test_few_questions_have_a_note():
    assert hbayes_at_n(Outcomes.from_counts([[3, 1]] * 9)).note == few_questions_note(9)
    assert few_questions_note(9) is not None
    assert hbayes_at_n(Outcomes.from_counts([[3, 1]] * 10)).note is None


def test_earlier_trials_are_further_ones_where_they_count():
    counts, earlier = [[1, 0, 0], [0, 0, 1], [0, 0, 0]], [[0, 1, 0], [0, 0, 1], [0, 0, 1]]
    for strength, note in ((0, PRIOR_ALONE), (0.5, few_questions_note(3))):
        outcomes = Outcomes.from_counts(counts, prior_counts=earlier, prior_strength=strength)
        assert hbayes_at_n(outcomes).note == note
        assert hbayes_at_n(outcomes, "population").note == few_questions_note(3)
