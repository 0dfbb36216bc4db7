from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lm_eval_bayes.stats.outcomes import Outcomes
from lm_eval_bayes.stats.ranking.rank import rank
from lm_eval_bayes.stats.tie_rules import TIE_RULES
from lm_eval_bayes.stats.uniform_prior import bayes_at_n

pytestmark = pytest.mark.slow

# a small fixed set of sizes keeps the laws cheap; the counts are what varies
COUNTS = st.lists(
    st.lists(st.integers(0, 9), min_size=3, max_size=3), min_size=1, max_size=6
)  # successes of 9 trials on 3 questions
DRAWS = 1000


def posteriors(successes, names=None, weights=(0.0, 1.0)):
    names = [f"m{i}" for i in range(len(successes))] if names is None else names
    return {
        name: bayes_at_n(Outcomes.from_counts([[9 - x, x] for x in row], weights=weights))
        for name, row in zip(names, successes, strict=True)
    }


RULES = st.sampled_from(TIE_RULES)


@pytest.mark.slow
@settings(deadline=None, max_examples=40)
@given(COUNTS, RULES, st.randoms(use_true_random=False))
def test_relabelled_and_reordered_models_keep_their_ranks(successes, ties, random):
    order = list(range(len(successes)))
    random.shuffle(order)
    first = rank(posteriors(successes), ties, draws=DRAWS)
    names = [f"renamed {i}" for i in order]
    other = rank(posteriors([successes[i] for i in order], names), ties, draws=DRAWS)
    for i in order:
        assert first.rank_of(f"m{i}") == other.rank_of(f"renamed {i}")


@settings(deadline=None, max_examples=40)
@given(COUNTS, RULES)
def test_ranks_never_fall_and_probabilities_add_up(successes, ties):
    ranking = rank(posteriors(successes), ties, draws=DRAWS)
    size = len(successes)
    if ties != "simultaneous":  # a wide posterior may be separated from none
        assert np.all(np.diff(ranking.ranks) >= 0)
    assert np.all(np.diff(ranking.mu) <= 1e-12)
    assert 1 <= ranking.ranks.min() <= ranking.ranks.max() <= size
    assert ranking.rank_distribution.sum(axis=0) == pytest.approx(np.ones(size))
    assert ranking.rank_distribution.sum(axis=1) == pytest.approx(np.ones(size))
    assert ranking.p_greater + ranking.p_greater.T == pytest.approx(np.ones((size, size)))
    # one of the two is above the other in every draw: E[rank] = 1 + Σ P(other > own)
    above = ranking.p_greater.sum(axis=0) - 0.5
    assert ranking.expected_rank == pytest.approx(1.0 + above)


@settings(deadline=None, max_examples=30)
@given(COUNTS, RULES, st.floats(0.01, 50), st.floats(-20, 20))
def test_rising_affine_weights_change_no_rank(successes, ties, scale, shift):
    plain = rank(posteriors(successes), ties, draws=DRAWS)
    stretched = rank(posteriors(successes, weights=(shift, shift + scale)), ties, draws=DRAWS)
    for model in plain.models:
        assert plain.rank_of(model) == stretched.rank_of(model)
    assert stretched.p_best == pytest.approx(plain.p_best, abs=6 / DRAWS**0.5)
