from __future__ import annotations

import numpy as np
import pytest
from _support.errors import refusals
from scipy import stats

from lm_eval_bayes.stats.kendall import kendall_curve, kendall_tau_b


def test_random_cases_with_ties_equal_scipy():
    rng = np.random.default_rng(20251110)
    for _ in range(300):
        size = int(rng.integers(2, 25))
        x = rng.integers(0, int(rng.integers(1, 12)), size)
        y = rng.integers(0, int(rng.integers(1, 12)), size) * rng.choice([0.1, 1.0, -3.0])
        expected = stats.kendalltau(x, y).statistic
        assert float(kendall_tau_b(x, y)) == pytest.approx(expected, abs=1e-12, nan_ok=True)


@pytest.mark.parametrize(
    ("x", "ranks"),
    [
        ([1.0, np.inf, np.inf, -np.inf], [2, 3, 3, 1]),
        (np.array([0, 255, 1, 1], dtype=np.uint8), [1, 3, 2, 2]),
        ([np.iinfo(np.int64).min, 0, 0, np.iinfo(np.int64).max], [1, 2, 2, 3]),
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


R = np.zeros((3, 4, 6), dtype=int)


test_bad_input = refusals(
    (lambda: kendall_tau_b(1, 2), "x", "empty"),
    (lambda: kendall_tau_b([1, 2], [1, 2, 3]), "y", "shape"),
    (lambda: kendall_curve(R, [1, 2]), "gold", "range"),
    (lambda: kendall_curve(R, [1, 1, 1]), "gold", "range"),
    (lambda: kendall_curve(R, [1, 2, 3], scheme="cell"), "scheme", "choice"),
    (lambda: kendall_tau_b(np.zeros((2, 3)), np.zeros((4, 3))), "y", "shape"),
    (lambda: kendall_curve(R, [1, 2, np.nan]), "gold", "range"),
)
