"""The winner's score as a row of `shared_scores`, and against simulated boards."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from scipy import special

from lm_eval_bayes.errors import InvalidInputError
from lm_eval_bayes.stats.bayes_at_n import bayes_at_n
from lm_eval_bayes.stats.hierarchical.hbayes_at_n import hbayes_at_n
from lm_eval_bayes.stats.outcomes import Outcomes
from lm_eval_bayes.stats.ranking.shared_scores import shared_scores
from lm_eval_bayes.stats.ranking.winner import winners_score

BASE = bayes_at_n(Outcomes.from_counts([[3, 5], [6, 2]]))


def board(mus, sigmas):
    return {
        f"m{i}": replace(BASE, mu=mu, sigma=sigma)
        for i, (mu, sigma) in enumerate(zip(mus, sigmas, strict=True))
    }


def test_it_is_the_leaders_score_under_the_shared_prior():
    """`test_shared_scores` compares these numbers with an enumeration."""
    posteriors = board([0.55, 0.62, 0.50, 0.58], [0.04, 0.05, 0.03, 0.04])
    own = np.array([0.03, 0.04, 0.02, 0.03]) ** 2
    for own_variance in (None, own):
        result = winners_score(posteriors, 0.9, own_variance=own_variance)
        shared = shared_scores(posteriors, 0.9, own_variance=own_variance)
        assert (result.model, result.n_models, result.unadjusted_mu) == ("m1", 4, 0.62)
        assert (result.mu, result.sigma) == (shared.mu[1], shared.sigma[1])
        assert (result.interval.low, result.interval.high) == (shared.low[1], shared.high[1])


def test_models_far_apart_are_hardly_shrunk_and_equal_ones_are():
    far = winners_score(board([0.8, 0.5, 0.2], [0.02] * 3))
    assert far.mu == pytest.approx(0.8, abs=0.005)
    above_equal_ones = winners_score(board([0.8] + [0.5] * 11, [0.02] * 12))
    assert above_equal_ones.mu == pytest.approx(0.8, abs=0.01)
    near = winners_score(board([0.53, 0.50, 0.51, 0.49, 0.47, 0.50], [0.04] * 6))
    assert 0.50 < near.mu < 0.515
    assert near.unadjusted_mu == 0.53


def test_certain_scores_are_left_alone():
    weights = {"weights": [1.0, 1.0]}
    certain = bayes_at_n(Outcomes.from_counts([[3, 5]], **weights))
    result = winners_score({"a": certain, "b": certain})
    assert (result.mu, result.interval.low, result.interval.high) == (1.0, 1.0, 1.0)


def test_scores_on_another_range():
    counts = {"a": [[2, 6], [3, 5]], "b": [[4, 4], [4, 4]], "c": [[5, 3], [3, 5]]}
    unit = winners_score({m: hbayes_at_n(Outcomes.from_counts(c)) for m, c in counts.items()})
    scaled = winners_score(
        {m: hbayes_at_n(Outcomes.from_counts(c, weights=[-2, 8])) for m, c in counts.items()}
    )
    assert scaled.mu == pytest.approx(-2 + 10 * unit.mu, abs=1e-6)
    assert scaled.interval.high == pytest.approx(-2 + 10 * unit.interval.high, abs=1e-6)


@pytest.mark.slow
def test_the_winners_curse_on_simulated_boards():
    """Twelve models with sd .25 of their logits, normal errors of .4: shrinkage holds the level."""
    rng = np.random.default_rng(1)
    held, unadjusted, bias, own_bias = [], [], [], []
    for _ in range(300):
        truth = rng.normal(0.3, 0.25, 12)
        logit = truth + 0.4 * rng.standard_normal(12)
        mu = special.expit(logit)
        result = winners_score(board(mu, 0.4 * mu * (1 - mu)))
        score = special.expit(truth[int(result.model[1:])])
        held.append(result.interval.low <= score <= result.interval.high)
        best = logit.max()
        unadjusted.append(special.expit(best - 0.784) <= score <= special.expit(best + 0.784))
        bias.append(result.mu - score)
        own_bias.append(result.unadjusted_mu - score)
    assert 0.92 <= np.mean(held) <= 0.99
    assert np.mean(unadjusted) < 0.90
    assert np.mean(own_bias) > 0.08
    assert abs(np.mean(bias)) < 0.6 * np.mean(own_bias)


def test_bad_arguments():
    with pytest.raises(InvalidInputError, match="`level` must"):
        winners_score(board([0.5, 0.6], [0.1, 0.1]), level=1.0)
    with pytest.raises(InvalidInputError, match="`own_variance` must be non-negative"):
        winners_score(board([0.5, 0.6], [0.1, 0.1]), own_variance=[-1.0, 1.0])
    with pytest.raises(InvalidInputError, match="`posteriors` must be a mapping"):
        winners_score({})
    with pytest.raises(InvalidInputError, match="`posteriors` must be of at least two models"):
        winners_score({"only": BASE})
