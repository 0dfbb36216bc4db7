"""What holds of every confidence interval, cluster posterior and confusion score."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from lm_eval_bayes.stats.confusion import confusion_posterior
from lm_eval_bayes.stats.frequentist import (
    clopper_pearson_interval,
    odds_ratio_interval,
    wilson_interval,
)
from lm_eval_bayes.stats.frequentist_means import (
    clt_interval,
    clustered_interval,
    difference_interval,
    t_interval,
)
from lm_eval_bayes.stats.hierarchical.hbayes_at_n import clustered_posterior
from lm_eval_bayes.stats.outcomes import Outcomes

LEVEL = st.floats(0.01, 0.999)
SCORES = st.lists(st.floats(0, 1, width=32), min_size=2, max_size=30)
BINARY = st.lists(st.tuples(st.integers(0, 9), st.integers(0, 9)), min_size=1, max_size=12)
CELLS = st.lists(st.integers(0, 20), min_size=4, max_size=4)


@st.composite
def binomials(draw):
    n = draw(st.integers(1, 400))
    return draw(st.integers(0, n)), n


@given(binomials(), LEVEL)
def test_binomial_intervals_hold_the_share_and_stay_inside(data, level):
    s, n = data
    for method in (wilson_interval, clopper_pearson_interval):
        interval = method(s, n, level)
        assert 0.0 <= interval.low <= s / n + 1e-12
        assert s / n - 1e-12 <= interval.high <= 1.0
        mirror = method(n - s, n, level)
        assert mirror.low == pytest.approx(1 - interval.high, abs=1e-9)
        wider = method(s, n, (1 + level) / 2)
        assert wider.low <= interval.low + 1e-12
        assert interval.high <= wider.high + 1e-12


@given(SCORES, LEVEL, st.randoms(use_true_random=False))
def test_the_order_of_scores_does_not_matter(scores, level, random):
    shuffled = list(scores)
    random.shuffle(shuffled)
    for method in (clt_interval, t_interval):
        first, second = method(scores, level), method(shuffled, level)
        assert first.low == pytest.approx(second.low, abs=1e-9)
        assert first.standard_error == pytest.approx(second.standard_error, abs=1e-9)
        assert 0.0 <= first.low <= first.estimate + 1e-9
        assert first.estimate - 1e-9 <= first.high <= 1.0
    assert t_interval(scores, level).width >= clt_interval(scores, level).width - 1e-12


@given(SCORES, st.data())
def test_names_of_clusters_do_not_matter(scores, data):
    labels = data.draw(st.lists(st.integers(0, 4), min_size=len(scores), max_size=len(scores)))
    assume(len(set(labels)) > 1)
    named = [f"topic {label * 7 % 5}" for label in labels]
    first = clustered_interval(scores, labels)
    assert clustered_interval(scores, named).to_dict() == first.to_dict()
    wide = clustered_interval(scores, labels, small_sample=True)
    assert wide.high >= first.high - 1e-12


@given(SCORES, st.data())
def test_swapping_models_turns_the_difference(scores, data):
    other = data.draw(
        st.lists(st.floats(0, 1, width=32), min_size=len(scores), max_size=len(scores))
    )
    for paired in (True, False):
        there = difference_interval(scores, other, paired=paired)
        back = difference_interval(other, scores, paired=paired)
        assert there.low == pytest.approx(-back.high, abs=1e-9)
        assert -1.0 <= there.low <= there.high <= 1.0
    same = difference_interval(scores, scores)
    assert (same.low, same.high) == (0.0, 0.0)


@given(binomials(), binomials(), LEVEL)
def test_swapping_models_inverts_the_odds_ratio(a, b, level):
    there, back = (odds_ratio_interval(*x, *y, level) for x, y in ((a, b), (b, a)))
    assert np.log(there.low) == pytest.approx(-np.log(back.high), abs=1e-9)
    assert there.low <= there.estimate <= there.high


@settings(max_examples=8)
@given(BINARY.filter(lambda rows: sum(map(sum, rows)) > 0))
def test_wrong_and_right_are_mirrored_in_the_cluster_model(rows):
    posterior = clustered_posterior(Outcomes.from_counts(rows))
    mirror = clustered_posterior(Outcomes.from_counts([row[::-1] for row in rows]))
    assert mirror.mu == pytest.approx(1 - posterior.mu, abs=1e-7)
    assert mirror.sigma == pytest.approx(posterior.sigma, abs=1e-7)
    turned = clustered_posterior(Outcomes.from_counts(rows[::-1]))
    assert turned.mu == pytest.approx(posterior.mu, abs=1e-12)
    interval = posterior.interval()
    assert 0.0 <= interval.low < interval.high <= 1.0
    assert mirror.interval().low == pytest.approx(1 - interval.high, abs=1e-5)


@settings(max_examples=40)
@given(CELLS)
def test_which_class_is_positive_does_not_matter_to_mcc(cells):
    tp, fp, fn, tn = cells
    here = confusion_posterior(cells, "mcc", draws=1000)
    there = confusion_posterior((tn, fn, fp, tp), "mcc", draws=1000)
    assert here.estimate == pytest.approx(there.estimate, nan_ok=True) or here.estimate is None
    # other draws of the same distribution
    spread = np.hypot(here.mc_error, there.mc_error)
    assert abs(here.mu - there.mu) < 6 * spread + 1e-12
