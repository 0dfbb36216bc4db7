"""What must hold for hbayes@N whatever the trials, for two categories."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lm_eval_bayes import Outcomes, hbayes_at_n

pytestmark = pytest.mark.slow

SCOPES = st.sampled_from(["benchmark", "population"])
ROWS = st.lists(st.tuples(st.integers(0, 12), st.integers(0, 12)), min_size=1, max_size=9)


def ends(posterior):
    interval = posterior.interval(0.9, "exact")
    return [posterior.mu, posterior.sigma, interval.low, interval.high]


@settings(max_examples=25, deadline=None)
@given(ROWS, SCOPES, st.randoms(use_true_random=False))
def test_the_order_of_questions_does_not_matter(rows, scope, random):
    shuffled = list(range(len(rows)))
    random.shuffle(shuffled)
    one = hbayes_at_n(Outcomes.from_counts(rows), scope)
    other = hbayes_at_n(Outcomes.from_counts([rows[i] for i in shuffled]), scope)
    assert ends(other) == pytest.approx(ends(one), rel=1e-9, abs=1e-12)
    assert other.per_question.mu == pytest.approx(one.per_question.mu[shuffled], rel=1e-9)


@settings(max_examples=25, deadline=None)
@given(ROWS, SCOPES)
def test_right_and_wrong_are_mirror_images(rows, scope):
    one = hbayes_at_n(Outcomes.from_counts(rows), scope)
    other = hbayes_at_n(Outcomes.from_counts([row[::-1] for row in rows]), scope)
    mu, sigma, low, high = ends(other)
    # other states: Monte Carlo
    assert [1 - mu, sigma] == pytest.approx(ends(one)[:2], abs=0.25 * sigma)
    assert [1 - high, 1 - low] == pytest.approx(ends(one)[2:], abs=0.5 * sigma)


@settings(max_examples=25, deadline=None)
@given(ROWS, SCOPES, st.floats(-50, 50), st.floats(0.01, 50))
def test_weights_are_affine(rows, scope, low, span):
    plain = ends(hbayes_at_n(Outcomes.from_counts(rows), scope))
    scaled = ends(hbayes_at_n(Outcomes.from_counts(rows, weights=[low, low + span]), scope))
    expected = [
        low + span * plain[0],
        span * plain[1],
        low + span * plain[2],
        low + span * plain[3],
    ]
    assert scaled == pytest.approx(expected, rel=1e-9, abs=1e-9)


@settings(max_examples=40, deadline=None)
@given(ROWS, SCOPES)
def test_scores_stay_possible_and_ordered(rows, scope):
    posterior = hbayes_at_n(Outcomes.from_counts(rows), scope)
    mu, sigma, low, high = ends(posterior)
    assert 0 <= low < high <= 1
    assert 0 < mu < 1
    assert sigma < 0.5
    # every question is pulled towards what the others say, so it stays between its own share
    # of right answers and the rest of the interval [0, 1]
    assert np.all((posterior.per_question.mu > 0) & (posterior.per_question.mu < 1))
