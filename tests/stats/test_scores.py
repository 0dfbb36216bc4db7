"""Scores between two bounds: their dispersion and the posterior of their mean."""

from __future__ import annotations

import numpy as np
import pytest
from _support.errors import refusals
from _support.weighted_prior import posterior_draws
from scipy import stats

from lm_eval_bayes import Outcomes, ScoreOutcomes, avg_at_n, hbayes_at_n
from lm_eval_bayes.stats.hierarchical.hbayes_at_n import SINGLE_SCORES

F1 = [[0.9, 0.8, 0.85], [0.2, 0.3, 0.1], [0.6, 0.5, 0.7]]


@pytest.mark.parametrize("scope", ["benchmark", "population"])
def test_zeros_and_ones_have_the_posterior_of_hbayes(scope):
    trials = [[1, 1, 0, 1], [0, 0, 0, 1], [0, 0, 0, 0], [1, 1, 1, 1], [0, 1, 0, 1]]
    scores = ScoreOutcomes.from_scores(trials)
    assert scores.dispersion == pytest.approx(1.0, abs=1e-12)
    posterior, expected = (
        hbayes_at_n(scores, scope),
        hbayes_at_n(Outcomes.from_matrix(trials), scope),
    )
    ends = [(p.mu, p.sigma, p.interval().low, p.interval().high) for p in (posterior, expected)]
    assert ends[0] == pytest.approx(ends[1], abs=1e-6)
    assert posterior.n_trials == 4
    assert posterior.trials_range == (4, 4)


def test_the_dispersion_is_the_share_of_the_largest_variance():
    # scores around p have the variance p (1 - p) / (1 + k) where they come from Beta(kp, k(1 - p))
    rng = np.random.default_rng(5)
    p = rng.beta(2, 3, 2000)
    scores = stats.beta.rvs(4 * p[:, None], 4 * (1 - p[:, None]), size=(2000, 3), random_state=rng)
    assert ScoreOutcomes.from_scores(scores).dispersion == pytest.approx(1 / 5, rel=0.03)


def test_scores_count_as_quasi_trials():
    scores = ScoreOutcomes.from_scores([[0.5, 0.7], [0.4, 0.1]])
    trials = scores.n_trials / scores.dispersion
    right = scores.means * trials
    drawn = posterior_draws(np.stack([trials - right, right], axis=1)).theta[..., 1].mean(axis=1)
    posterior = hbayes_at_n(scores)
    assert posterior.mu == pytest.approx(drawn.mean(), abs=0.1 * drawn.std())
    assert posterior.sigma == pytest.approx(drawn.std(), rel=0.1)


def test_bounds_move_the_posterior():
    plain, moved = (
        ScoreOutcomes.from_scores(F1),
        ScoreOutcomes.from_scores([[10 * x - 3 for x in row] for row in F1], (-3.0, 7.0)),
    )
    a, b = hbayes_at_n(plain), hbayes_at_n(moved)
    # the counts differ by rounding, and with them a step of a chain now and then
    assert (b.mu, b.sigma) == pytest.approx((10 * a.mu - 3, 10 * a.sigma), rel=0.02)
    assert b.interval().low == pytest.approx(10 * a.interval().low - 3, abs=0.05 * b.sigma)
    assert avg_at_n(moved).value == pytest.approx(10 * np.mean(F1) - 3)
    within = np.var(F1, axis=1, ddof=1).mean()
    assert avg_at_n(plain).sigma == pytest.approx(np.sqrt(within / 9))


def test_equal_scores_and_single_trials():
    equal = ScoreOutcomes.from_scores([[0.5] * 4] * 10)
    assert 0 < equal.dispersion < 0.02
    single = hbayes_at_n(ScoreOutcomes.from_scores([[0.5]] * 10))
    assert SINGLE_SCORES in str(single.note)
    assert single.sigma > 5 * hbayes_at_n(equal).sigma


test_bad_scores_are_refused = refusals(
    (lambda: ScoreOutcomes.from_scores([[0.5, 1.2]], (0, 1)), "scores", "range"),
    (lambda: ScoreOutcomes.from_scores([[0.5, float("nan")]], (0, 1)), "scores", "range"),
    (lambda: ScoreOutcomes.from_scores([[[0.5]]], (0, 1)), "scores", "range"),
    (lambda: ScoreOutcomes.from_scores([], (0, 1)), "scores", "empty"),
    (lambda: ScoreOutcomes.from_scores([[0.5]], (1, 0)), "bounds", "range"),
)
