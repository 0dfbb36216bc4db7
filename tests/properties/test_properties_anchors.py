"""What holds of every placement among anchors."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from lm_eval_bayes.stats.anchor_capability import BETWEEN, capability_intervals
from lm_eval_bayes.stats.anchor_matrix import (
    AnchorMatrix,
    ordering_violations,
)
from lm_eval_bayes.stats.independence import query_independence
from lm_eval_bayes.stats.outcomes import Outcomes

settings.register_profile("anchors", max_examples=20, deadline=None)
PROFILE = settings.get_profile("anchors")
PROBABILITY = st.floats(0, 1, width=32)
WAY = st.sampled_from(BETWEEN)


@st.composite
def cases(draw):
    """Anchors, and a model's outcomes on their queries."""
    n_anchors, n_queries = draw(st.integers(1, 5)), draw(st.integers(1, 8))
    table = draw(hnp.arrays(float, (n_anchors, n_queries), elements=PROBABILITY))
    counts = draw(hnp.arrays(np.int64, (n_queries, 2), elements=st.integers(0, 6)))
    counts[draw(st.integers(0, n_queries - 1)), 1] += 1
    return AnchorMatrix.from_probabilities(table), Outcomes.from_counts(counts)


@PROFILE
@given(cases(), WAY, st.floats(0.001, 0.4))
def test_a_posterior_sums_to_one(case, between, epsilon):
    anchors, outcomes = case
    posterior = capability_intervals(anchors, outcomes, epsilon, between=between)
    assert posterior.probability.size == anchors.n_anchors + 1 == len(posterior.labels)
    assert posterior.probability.sum() == pytest.approx(1.0, abs=1e-12)
    assert (posterior.probability >= 0).all()
    above = [posterior.p_above(name) for name in posterior.anchors]
    assert above == sorted(above, reverse=True)
    first, last = posterior.interval(0.9)
    assert posterior.probability[first : last + 1].sum() >= 0.9 - 1e-12


@PROFILE
@given(cases(), WAY, st.randoms(use_true_random=False))
def test_the_order_of_queries_does_not_matter(case, between, random):
    anchors, outcomes = case
    order = list(range(anchors.n_queries))
    random.shuffle(order)
    shuffled = AnchorMatrix(anchors.probabilities[:, order], anchors.names)
    first = capability_intervals(anchors, outcomes, between=between)
    second = capability_intervals(shuffled, outcomes.take(order), between=between)
    assert first.probability == pytest.approx(second.probability, abs=1e-9)


@PROFILE
@given(cases(), WAY)
def test_failing_for_solving_turns_the_row_of_intervals(case, between):
    anchors, outcomes = case
    turned = AnchorMatrix(1.0 - anchors.probabilities[::-1], anchors.names[::-1])
    mirror = capability_intervals(
        turned, Outcomes.from_counts(outcomes.counts[:, ::-1]), between=between
    )
    posterior = capability_intervals(anchors, outcomes, between=between)
    assert mirror.probability == pytest.approx(posterior.probability[::-1], abs=1e-9)


@PROFILE
@given(cases(), WAY, st.integers(0, 7))
def test_solving_more_places_no_lower_where_the_order_holds(case, between, query):
    anchors, outcomes = case
    ordered = AnchorMatrix(np.sort(anchors.probabilities, axis=0), anchors.names)
    assert ordering_violations(ordered).violations == ()
    if between == "query" and outcomes.n_trials.max() > 1:
        # an average of two binomials need not rise, one of two Bernoullis does
        outcomes = Outcomes.from_matrix((outcomes.counts[:, 1:] > 0).astype(int))
    query %= ordered.n_queries
    more = outcomes.counts.copy()
    more[query] = more[query].sum() * np.array([0, 1])
    before = capability_intervals(ordered, outcomes, between=between)
    after = capability_intervals(ordered, Outcomes.from_counts(more), between=between)
    for name in ordered.names:
        assert after.p_above(name) >= before.p_above(name) - 1e-9


@PROFILE
@given(cases())
def test_queries_without_trials_say_nothing(case):
    anchors, outcomes = case
    counts = np.vstack([outcomes.counts, [[0, 0]]])
    table = np.hstack([anchors.probabilities, np.full((anchors.n_anchors, 1), 0.3)])
    wider = AnchorMatrix(table, anchors.names)
    first = capability_intervals(anchors, outcomes)
    second = capability_intervals(wider, Outcomes.from_counts(counts))
    assert first.probability == pytest.approx(second.probability, abs=1e-12)
    assert first.n_queries == second.n_queries


@settings(max_examples=25, deadline=None)
@given(
    hnp.arrays(
        np.int64, st.tuples(st.integers(2, 6), st.integers(2, 6)), elements=st.integers(0, 1)
    )
)
def test_one_query_asked_twice_is_the_extreme(R):
    check = query_independence(np.vstack([R, R]), permutations=100)
    alone = query_independence(R, permutations=100)
    assert 0 < check.p_value <= 1
    if alone.variance_ratio is not None:
        # the totals double, so their variance is fourfold, and the expected one twofold
        assert check.variance_ratio == pytest.approx(2 * alone.variance_ratio)
