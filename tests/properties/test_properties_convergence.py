from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from scipy import stats

from lm_eval_bayes.stats.convergence import convergence_at_n
from lm_eval_bayes.stats.kendall import kendall_curve, kendall_tau_b
from lm_eval_bayes.stats.prefixes import prefix_scores

SCORES = st.integers(-4, 4)
METRICS = {
    "bayes": {},
    "avg": {},
    "pass@k": {"k": 2},
    "pass^k": {"k": 2},
    "naive pass@k": {"k": 2},
    "naive pass^k": {"k": 2},
    "g-pass": {"k": 3, "tau": 0.5},
    "mg-pass": {"k": 3},
}


@st.composite
def tensors(draw, top=1):
    """Outcomes of a few models on a few questions."""
    shape = (draw(st.integers(2, 4)), draw(st.integers(1, 4)), draw(st.integers(3, 7)))
    return draw(hnp.arrays(np.int64, shape, elements=st.integers(0, top)))


@st.composite
def rankings(draw):
    size = draw(st.integers(2, 9))
    return [draw(hnp.arrays(np.int64, size, elements=SCORES)) for _ in range(2)]


@given(rankings())
def test_tau_b_is_symmetric_odd_and_scipys(pair):
    x, y = pair
    tau = float(kendall_tau_b(x, y))
    assert tau == pytest.approx(stats.kendalltau(x, y).statistic, abs=1e-12, nan_ok=True)
    assert float(kendall_tau_b(y, x)) == pytest.approx(tau, nan_ok=True)
    assert float(kendall_tau_b(-x, y)) == pytest.approx(-tau, nan_ok=True)
    assert float(kendall_tau_b(3 * x - 1, y)) == pytest.approx(tau, nan_ok=True)


@settings(deadline=None, max_examples=30)
@given(tensors(), st.sampled_from(sorted(METRICS)), st.sampled_from(["column", "row"]))
def test_models_and_questions_have_no_order(R, metric, scheme):
    arguments = {**METRICS[metric], "replicates": 20, "scheme": scheme, "seed": 2}
    counts = convergence_at_n(R, metric, **arguments).counts.tolist()
    assert counts == convergence_at_n(R[::-1], metric, **arguments).counts.tolist()
    if scheme == "column":  # the row scheme draws question by question
        assert counts == convergence_at_n(R[:, ::-1], metric, **arguments).counts.tolist()


@settings(deadline=None, max_examples=30)
@given(tensors(top=2), st.sampled_from([(0.1, 7.0), (-3.0, 0.25), (1 / 3, 1.0)]))
def test_a_rising_change_of_the_weights_changes_no_ranking(R, change):
    shift, factor = change
    weights = np.array([0.0, 0.3, 1.0])
    for ties in ("none", "adjacent"):
        first, second = (
            convergence_at_n(R, weights=w, ties=ties, replicates=20).counts.tolist()
            for w in (weights, shift + factor * weights)
        )
        assert first == second


@settings(deadline=None, max_examples=30)
@given(tensors(), st.sampled_from(sorted(METRICS)))
def test_scores_stay_within_bounds_and_pass_at_k_rises_with_k(R, metric):
    scores = prefix_scores(R, metric, **METRICS[metric])
    known = scores[~np.isnan(scores)]
    assert ((known >= 0) & (known <= 1)).all()
    n = R.shape[2]
    rising = [prefix_scores(R, "pass@k", k=k)[:, -1] for k in range(1, n + 1)]
    assert (np.diff(rising, axis=0) >= -1e-12).all()
    falling = [prefix_scores(R, "pass^k", k=k)[:, -1] for k in range(1, n + 1)]
    assert (np.diff(falling, axis=0) <= 1e-12).all()


@settings(deadline=None, max_examples=30)
@given(tensors(), st.sampled_from(sorted(METRICS)))
def test_what_is_counted_adds_up(R, metric):
    result = convergence_at_n(R, metric, **METRICS[metric], replicates=30)
    assert result.counts.sum() / 30 == pytest.approx(1 - result.not_converged)
    assert (np.diff(result.cdf) >= 0).all()
    assert (result.worst is None) == (result.counts.sum() == 0)
    gold = np.arange(R.shape[0])
    curve = kendall_curve(R, gold, metric, **METRICS[metric], replicates=30)
    known = ~np.isnan(curve.mean)
    assert (np.abs(curve.mean[known]) <= 1 + 1e-12).all()
    assert (curve.undefined[~known] == 1).all()
