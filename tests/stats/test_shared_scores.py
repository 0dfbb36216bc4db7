"""Scores under a shared prior: boards, ends of the range, and scope "population"."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from _support.errors import refusals
from scipy import special

from lm_eval_bayes.stats.hierarchical.hbayes_at_n import hbayes_at_n
from lm_eval_bayes.stats.outcomes import Outcomes
from lm_eval_bayes.stats.ranking.rank import rank
from lm_eval_bayes.stats.ranking.shared_scores import SURE_NEAR_ENDS, shared_scores
from lm_eval_bayes.stats.uniform_prior import bayes_at_n


def board(right, n, scope="benchmark", weights=None):
    """Posteriors of models by their right answers of n trials, (L, M)."""
    return {
        f"m{i}": hbayes_at_n(
            Outcomes.from_counts(np.stack([n - row, row], axis=1), weights=weights), scope
        )
        for i, row in enumerate(np.asarray(right))
    }


def answers(seed, means, n=8, m=30):
    """Right answers of models whose questions have p ~ Beta(4 mean, 4 (1 − mean)), and p."""
    rng = np.random.default_rng(seed)
    p = np.stack([rng.beta(4 * mean, 4 * (1 - mean), m) for mean in means])
    return rng.binomial(n, p), p


def test_a_model_that_is_always_right_is_not_pulled_to_the_others():
    right, _ = answers(1, [0.5] * 7)
    shared = shared_scores(board([[8] * 30, *right], 8))
    assert shared.mu[0] > 0.997
    assert shared.low[0] > 0.98
    wrong = shared_scores(board([[0] * 30, *right], 8))
    assert wrong.high[0] < 0.02


def test_equal_models_are_shrunk_and_models_far_apart_are_not():
    right, _ = answers(2, [0.5] * 6)
    equal = shared_scores(board(right, 8))
    assert np.ptp(equal.mu) < 0.75 * np.ptp(equal.unshared_mu)
    right, _ = answers(2, [0.15, 0.3, 0.5, 0.7, 0.85, 0.93], n=16)
    apart = shared_scores(board(right, 16))
    assert apart.mu == pytest.approx(apart.unshared_mu, abs=0.01)
    assert equal.tau_low < equal.tau < equal.tau_high < apart.tau_high
    assert equal.note == SURE_NEAR_ENDS


@pytest.mark.parametrize("scope", ["benchmark", "population"])
def test_order_and_range_do_not_matter(scope):
    right, _ = answers(3, [0.6, 0.5, 0.5, 0.4], n=4, m=20)
    unit = shared_scores(board(right, 4, scope))
    scaled = shared_scores(dict(reversed(board(right, 4, scope, [-2, 8]).items())))
    assert scaled.models == unit.models[::-1]
    assert scaled.mu[::-1] == pytest.approx(-2 + 10 * unit.mu, abs=0.05)
    assert scaled.p_greater[::-1, ::-1] == pytest.approx(unit.p_greater, abs=0.03)
    assert scaled.tau == pytest.approx(unit.tau, rel=0.1)
    assert unit.to_dict()["models"][0]["model"] == "m0"


def test_paired_models_keep_the_paired_comparison():
    right, _ = answers(5, [0.6, 0.5, 0.52, 0.4], n=4)
    posteriors = board(right, 4, "population")
    flat = rank(posteriors)
    scores = shared_scores({model: posteriors[model] for model in flat.models})
    assert np.array_equal(scores.p_greater, flat.p_greater)
    same = dict.fromkeys("ab", posteriors["m0"])
    assert shared_scores(same).p_greater[0, 1] == pytest.approx(0.5, abs=0.02)


def test_certain_scores_are_left_alone():
    certain = replace(board([[4, 4]], 8)["m0"], sigma=0.0)
    shared = shared_scores({"a": replace(certain, mu=0.25), "b": replace(certain, mu=0.75)})
    assert (shared.tau, shared.mu.tolist(), shared.note) == (None, [0.25, 0.75], None)
    assert shared.p_greater.tolist() == [[0.5, 0.0], [1.0, 0.5]]


@pytest.mark.slow
@pytest.mark.parametrize("centre", [0.5, 0.93, 0.97])
@pytest.mark.parametrize("scope", ["benchmark", "population"])
def test_coverage_of_the_winner_and_of_all_models(centre, scope):
    """Boards of 8 models whose logits have sd .4; standard errors 3 and 1.5 points."""
    rng = np.random.default_rng(round(100 * centre))
    winner, all_models = [], []
    for run in range(60):
        means = special.expit(special.logit(centre) + 0.4 * rng.standard_normal(8))
        right, p = answers([run, round(100 * centre)], means)
        truth = means if scope == "population" else p.mean(axis=1)
        shared = shared_scores(board(right, 8, scope))
        holds = (shared.low <= truth) & (truth <= shared.high)
        winner.append(holds[np.argmax(shared.unshared_mu)])
        all_models.append(holds.mean())
    assert np.mean(winner) >= 0.86
    assert np.mean(all_models) >= 0.90


TWO = board([[4, 4, 2], [5, 6, 2]], 8)


test_bad_arguments = refusals(
    (lambda: shared_scores(TWO, level=1.0), "level", "range"),
    (lambda: shared_scores(TWO, seed=-1), "seed", "range"),
    (lambda: shared_scores({"only": TWO["m0"]}), "posteriors", "empty"),
    (
        lambda: shared_scores(dict.fromkeys("ab", bayes_at_n(Outcomes.from_counts([[3, 5]])))),
        "posteriors",
        "unsupported",
    ),
)
