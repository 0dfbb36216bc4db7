from __future__ import annotations

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from lm_eval_bayes import Outcomes, hbayes_at_n

pytestmark = pytest.mark.slow

SCOPES = st.sampled_from(["benchmark", "population"])
FEW = settings(max_examples=15, deadline=None)


@st.composite
def rubrics(draw, max_questions=8, max_count=12):
    """Ragged counts of 3 to 6 categories, and weights between -5 and 5."""
    categories = draw(st.integers(3, 6))
    row = st.lists(st.integers(0, max_count), min_size=categories, max_size=categories)
    counts = draw(st.lists(row, min_size=1, max_size=max_questions))
    weight = st.floats(-5, 5, allow_nan=False, width=32)
    weights = draw(st.lists(weight, min_size=categories, max_size=categories))
    return np.array(counts), np.array(weights)


def posterior_of(counts, weights, scope="benchmark"):
    return hbayes_at_n(Outcomes.from_counts(counts, weights=weights), scope)


@given(rubrics(), SCOPES)
@FEW
def test_numbers_stay_inside_the_scores(rubric, scope):
    counts, weights = rubric
    posterior = posterior_of(counts, weights, scope)
    low, high = weights.min(), weights.max()
    assert low <= posterior.mu <= high
    assert 0.0 <= posterior.sigma <= 0.5 * (high - low) + 1e-12
    assert ((low <= posterior.per_question.mu) & (posterior.per_question.mu <= high)).all()
    assert np.isfinite(posterior.per_question.sigma).all()
    interval = posterior.interval()
    assert low <= interval.low <= interval.high <= high


@given(rubrics(), SCOPES, st.randoms(use_true_random=False))
@FEW
def test_order_of_questions_changes_nothing(rubric, scope, random):
    counts, weights = rubric
    order = list(range(len(counts)))
    random.shuffle(order)
    one, other = posterior_of(counts, weights, scope), posterior_of(counts[order], weights, scope)
    assert (one.mu, one.sigma, one.ess) == (other.mu, other.sigma, other.ess)
    np.testing.assert_array_equal(one.per_question.mu[order], other.per_question.mu)
    np.testing.assert_array_equal(one.per_question.sigma[order], other.per_question.sigma)
    assert one.interval() == other.interval()


@given(rubrics(), SCOPES, st.floats(0.01, 100), st.floats(-10, 10))
@FEW
def test_affine_weights_map_affinely(rubric, scope, factor, shift):
    counts, weights = rubric
    mapped = factor * weights + shift
    # categories of equal weight are merged: rounding must not make two weights equal
    assume(np.unique(mapped).size == np.unique(weights).size)
    one, other = posterior_of(counts, weights, scope), posterior_of(counts, mapped, scope)
    slack = 1e-9 * (1.0 + abs(factor) * np.abs(weights).max() + abs(shift))
    np.testing.assert_allclose(other.mu, factor * one.mu + shift, atol=slack)
    np.testing.assert_allclose(other.sigma, abs(factor) * one.sigma, atol=slack)
    expected = factor * one.per_question.mu + shift
    np.testing.assert_allclose(other.per_question.mu, expected, atol=slack)
    assert other.ess == pytest.approx(one.ess, rel=1e-9)


@given(rubrics(), SCOPES, st.randoms(use_true_random=False))
@FEW
def test_a_category_split_into_two_of_its_weight_changes_nothing(rubric, scope, random):
    counts, weights = rubric
    parts = np.array([random.randint(0, int(count)) for count in counts[:, 0]])
    split = np.column_stack([counts[:, 0] - parts, counts[:, 1:], parts])
    one = posterior_of(counts, weights, scope)
    other = posterior_of(split, np.append(weights, weights[0]), scope)
    assert (one.mu, one.sigma, one.ess) == (other.mu, other.sigma, other.ess)
    assert one.interval() == other.interval()


@given(rubrics(), st.integers(2, 5))
@FEW
def test_more_of_the_same_narrows_every_question(rubric, times):
    counts, weights = rubric
    one, more = posterior_of(counts, weights), posterior_of(times * counts, weights)
    # on average over questions; a question of no trials learns from the others alone
    tried = counts.sum(axis=1) > 0
    before, after = one.per_question.sigma[tried], more.per_question.sigma[tried]
    assert np.square(after).sum() <= 1.1 * np.square(before).sum() + 1e-12
