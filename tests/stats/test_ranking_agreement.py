from __future__ import annotations

import numpy as np
import pytest
from _support.errors import refusals
from scipy import stats

from lm_eval_bayes.stats.bayes_at_n import bayes_at_n
from lm_eval_bayes.stats.outcomes import Outcomes
from lm_eval_bayes.stats.ranking.agreement import compare_rankings
from lm_eval_bayes.stats.ranking.rank import rank


def test_the_coefficients_by_hand():
    rng = np.random.default_rng(0)
    for _ in range(20):
        x, y = (rng.permutation(7) + 1 for _ in range(2))
        a, b = ({f"m{i}": int(v) for i, v in enumerate(ranks)} for ranks in (x, y))
        shuffled = dict(sorted(b.items(), key=lambda _: rng.random()))
        result = compare_rankings(a, shuffled)
        assert result.tau_b == pytest.approx(stats.kendalltau(x, y).statistic)
        assert result.spearman == pytest.approx(1 - 6 * ((x - y) ** 2).sum() / (7 * 48))
        assert result.largest_displacement == np.abs(x - y).max()


def test_ties_and_rankings():
    right = {"a": [7, 8], "b": [6, 8], "c": [1, 2]}
    posteriors = {
        name: bayes_at_n(Outcomes.from_counts([[8 - c, c] for c in row]))
        for name, row in right.items()
    }
    tied, plain = rank(posteriors), rank(posteriors, "none")
    result = compare_rankings(tied, plain)
    assert (tied.ranks.tolist(), plain.ranks.tolist()) == ([1, 1, 2], [1, 2, 3])
    assert result.tau_b == pytest.approx(stats.kendalltau([1, 1, 2], [1, 2, 3]).statistic)
    assert result.spearman == pytest.approx(stats.pearsonr([1.5, 1.5, 3], [1, 2, 3]).statistic)
    assert result.largest_displacement == 1.0
    same = compare_rankings(plain, plain)
    assert same.tau_b == 1.0
    all_tied = compare_rankings({"a": 1, "b": 1}, {"a": 1, "b": 2})
    assert (all_tied.tau_b, all_tied.spearman) == (None, None)


test_bad_rankings = refusals(
    (lambda: compare_rankings({"x": 1, "y": 2}, {"x": 1, "z": 2}), "b", "mismatch"),
    (lambda: compare_rankings({"x": 1}, {"x": 1}), "a", "empty"),
    (lambda: compare_rankings({"x": 1, "y": float("nan")}, {"x": 1, "y": 2}), "a", "type"),
    (lambda: compare_rankings({"x": 1, "y": 2}, {"x": "first", "y": 2}), "b", "type"),
)
