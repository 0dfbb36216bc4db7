from __future__ import annotations

import json

import numpy as np
import pytest
from scipy import stats

from lm_eval_bayes.errors import InvalidInputError
from lm_eval_bayes.stats.convergence.kendall import kendall_curve, kendall_tau_b


def test_a_thousand_random_cases_with_ties_equal_scipy():
    rng = np.random.default_rng(20251110)
    for _ in range(1000):
        size = int(rng.integers(2, 25))
        x = rng.integers(0, int(rng.integers(1, 12)), size)
        y = rng.integers(0, int(rng.integers(1, 12)), size) * rng.choice([0.1, 1.0, -3.0])
        expected = stats.kendalltau(x, y).statistic
        assert float(kendall_tau_b(x, y)) == pytest.approx(expected, abs=1e-12, nan_ok=True)


def test_many_rankings_at_once():
    rng = np.random.default_rng(3)
    x, y = rng.integers(0, 5, (4, 1, 9)), rng.random((3, 9))
    taus = kendall_tau_b(x, y)
    assert taus.shape == (4, 3)
    for i in range(4):
        for j in range(3):
            expected = stats.kendalltau(x[i, 0], y[j]).statistic
            assert taus[i, j] == pytest.approx(expected, abs=1e-12)


def test_equal_rankings_agree_exactly():
    rng = np.random.default_rng(6)
    for size in range(2, 40):
        x = rng.permutation(size)
        assert kendall_tau_b(x, x) == 1.0
        assert kendall_tau_b(x, -x) == -1.0


@pytest.mark.parametrize(
    ("x", "ranks"),
    [
        ([1.0, np.inf, np.inf, -np.inf], [2, 3, 3, 1]),
        (np.array([0, 255, 1, 1], dtype=np.uint8), [1, 3, 2, 2]),
        ([np.iinfo(np.int64).min, 0, 0, np.iinfo(np.int64).max], [1, 2, 2, 3]),
        ([True, False, True, True], [2, 1, 2, 2]),
    ],
)
def test_no_overflow(x, ranks):
    y = [1, 2, 3, 4]
    expected = stats.kendalltau(ranks, y).statistic
    assert float(kendall_tau_b(x, y)) == pytest.approx(expected, abs=1e-12)


@pytest.mark.parametrize("x", [[1, 1, 1], [1, np.nan, 2]])
def test_undefined_is_nan(x):
    assert np.isnan(kendall_tau_b(x, [1, 2, 3]))
    assert np.isnan(kendall_tau_b([1, 2, 3], x))


def test_a_curve_becomes_json_and_cannot_be_written_to():
    R = np.random.default_rng(0).integers(0, 2, (3, 4, 6))
    curve = kendall_curve(R, [1, 2, 3], "pass@k", k=2, replicates=10)
    facts = json.loads(json.dumps(curve.to_dict(), allow_nan=False))
    assert facts["mean"][0] is None
    assert facts["undefined"][0] == 1.0
    assert len(facts["sd"]) == 6
    with pytest.raises(ValueError, match="read-only"):
        curve.mean[0] = 1.0


R = np.zeros((3, 4, 6), dtype=int)


@pytest.mark.parametrize(
    ("call", "match"),
    [
        (lambda: kendall_tau_b(1, 2), r"`x` must hold the scores of at least two models"),
        (lambda: kendall_tau_b([1], [2]), r"`x` must hold the scores of at least two models"),
        (lambda: kendall_tau_b([1, 2], [1, 2, 3]), r"`y` must have as many models as x \(2\)"),
        (
            lambda: kendall_tau_b(np.zeros((2, 3)), np.zeros((4, 3))),
            r"`y` must broadcast with x of shape \(2, 3\)",
        ),
        (lambda: kendall_tau_b(["a", "b"], [1, 2]), r"`x` must be a rectangular array"),
        (lambda: kendall_curve(R, [1, 2]), r"`gold` must be 3 finite scores"),
        (lambda: kendall_curve(R, [1, 2, np.nan]), r"`gold` must be 3 finite scores"),
        (lambda: kendall_curve(R, [1, 1, 1]), r"`gold` must not be the same for all models"),
        (lambda: kendall_curve(R[:1], [1]), r"`R` must hold at least 2 models"),
        (lambda: kendall_curve(R, [1, 2, 3], scheme="cell"), r'`scheme` must be "column" or'),
        (lambda: kendall_curve(R, [1, 2, 3], replicates=0), r"`replicates` must be an integer"),
        (lambda: kendall_curve(R, [1, 2, 3], seed=-1), r"`seed` must be an integer"),
    ],
)
def test_bad_input(call, match):
    with pytest.raises(InvalidInputError, match=match):
        call()
