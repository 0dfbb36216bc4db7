from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lm_eval_bayes.stats.comparison.compare import compare
from lm_eval_bayes.stats.comparison.pass_curves import first_turn
from lm_eval_bayes.stats.comparison.single_trial import compare_unpaired
from lm_eval_bayes.stats.outcomes import Outcomes

pytestmark = pytest.mark.slow

CELL = st.integers(0, 12)


@st.composite
def pairs(draw, smallest=1):
    """Counts of two models on the same questions, no question empty."""
    row = st.lists(CELL, min_size=2, max_size=2).filter(any)
    size = draw(st.integers(smallest, 6))
    return [np.array(draw(st.lists(row, min_size=size, max_size=size))) for _ in "ab"]


@given(pairs())
@settings(max_examples=40, deadline=None)
def test_swapping_the_models_turns_everything_round(case):
    a, b = (Outcomes.from_counts(side) for side in case)
    forward = compare(a, b, estimator="bayes", rope=(-0.1, 0.2))
    backward = compare(b, a, estimator="bayes", rope=(-0.2, 0.1))
    assert forward.difference == pytest.approx(-backward.difference, abs=1e-14)
    assert forward.z == pytest.approx(backward.z, rel=1e-12)
    assert forward.p_a_greater == pytest.approx(1 - backward.p_a_greater, abs=1e-6)
    assert forward.p_rope == pytest.approx(backward.p_rope, abs=1e-5)
    assert forward.interval.low == pytest.approx(-backward.interval.high, abs=1e-4)
    turned = {"a": "b", "b": "a", "undecided": "undecided"}
    assert turned[forward.rule_z] == backward.rule_z
    assert turned[forward.rule_intervals] == backward.rule_intervals


@given(pairs(), st.floats(-5, 5), st.floats(0.1, 20))
@settings(max_examples=30, deadline=None)
def test_an_affine_change_of_the_weights(case, shift, scale):
    plain = compare(*(Outcomes.from_counts(side) for side in case), estimator="bayes", rope=0.1)
    weights = [shift, shift + scale]
    moved = compare(
        *(Outcomes.from_counts(side, weights=weights) for side in case),
        estimator="bayes",
        rope=0.1 * scale,
    )
    assert moved.difference == pytest.approx(scale * plain.difference, abs=1e-9)
    assert moved.z == pytest.approx(plain.z, rel=1e-6, abs=1e-6)
    assert moved.p_a_greater == pytest.approx(plain.p_a_greater, abs=1e-5)
    assert moved.p_rope == pytest.approx(plain.p_rope, abs=1e-5)
    assert moved.interval.low == pytest.approx(scale * plain.interval.low, abs=1e-4 * scale)


@given(st.lists(st.booleans(), min_size=1, max_size=40), st.lists(st.booleans(), min_size=1))
@settings(max_examples=30, deadline=None)
def test_unpaired_models_turn_round(first, second):
    a, b = (Outcomes.from_matrix(np.array(side)[:, None]) for side in (first, second))
    forward, backward = compare_unpaired(a, b), compare_unpaired(b, a)
    # each of the two is off by up to 2e-4
    assert forward.p_a_greater == pytest.approx(1 - backward.p_a_greater, abs=4e-4)
    assert np.log(forward.odds_ratio) == pytest.approx(-np.log(backward.odds_ratio), abs=1e-3)
    low, high = forward.odds_ratio_interval.low, forward.odds_ratio_interval.high
    assert low < forward.odds_ratio < high
    assert forward.interval.low < forward.difference < forward.interval.high


@given(st.lists(st.sampled_from([-1, 0, 1]), min_size=1, max_size=12), st.integers(0, 2**32 - 1))
def test_the_turn_of_any_curve_in_the_band_lies_in_the_set(sign, seed):
    signs = np.array(sign)
    ks = np.arange(1, signs.size + 1)
    turn = first_turn(ks, signs)
    rng = np.random.default_rng(seed)
    # any true curve that the band allows
    truth = np.where(signs == 0, rng.choice([-1, 1], signs.size), signs)
    decided = np.flatnonzero(signs)
    if decided.size == 0:
        assert turn is None
        return
    start = decided[0]
    flips = ks[start:][truth[start:] == -signs[start]]
    if turn is None:
        assert flips.size == 0
    elif flips.size:
        assert flips[0] >= turn.low
        assert turn.high is None or flips[0] <= turn.high
    else:
        assert turn.high is None
