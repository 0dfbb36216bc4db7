from __future__ import annotations

import numpy as np
import pytest
from _support.errors import refusals

from lm_eval_bayes.stats.simulation import mimics_with_means, simulate_outcomes


def test_coins_fall_as_often_as_they_should():
    p = np.array([[0.0, 0.1, 0.5], [0.8, 0.99, 1.0]])
    R = simulate_outcomes(p, 20_000, seed=1)
    assert R.shape == (2, 3, 20_000)
    assert set(np.unique(R)) == {0, 1}
    np.testing.assert_allclose(R.mean(axis=2), p, atol=0.012)
    # trials of a coin are independent: neighbours are uncorrelated
    assert abs(np.corrcoef(R[0, 2, :-1], R[0, 2, 1:])[0, 1]) < 0.03


@pytest.mark.parametrize("strength", [0.5, 2.0, 50.0])
def test_mimics_have_exactly_the_means_asked_for(strength):
    means = [0.02, 0.3642, 0.3642, 0.6080, 0.6213, 0.97]
    for n_questions in (1, 30):
        p = mimics_with_means(means, n_questions, strength=strength)
        np.testing.assert_allclose(p.mean(axis=1), means, rtol=0, atol=1e-12)
        assert (np.diff(p, axis=1) >= 0).all()
        assert p[1].tolist() == p[2].tolist()


test_bad_input = refusals(
    (lambda: simulate_outcomes([[1.2]], 3), "p", "range"),
    (lambda: simulate_outcomes(0.5, 3), "p", "shape"),
    (lambda: mimics_with_means([0.0], 3), "means", "range"),
)
