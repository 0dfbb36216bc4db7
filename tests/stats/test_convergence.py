from __future__ import annotations

import json

import numpy as np
import pytest
from _support.errors import refusals

from lm_eval_bayes import (
    Outcomes,
    avg_at_n,
    bayes_at_n,
    g_pass_at_k,
    mg_pass_at_k,
    pass_at_k,
    pass_hat_k,
)
from lm_eval_bayes.stats import naive_pass_at_k, naive_pass_hat_k
from lm_eval_bayes.stats.convergence import convergence_at_n
from lm_eval_bayes.stats.prefixes import prefix_scores
from lm_eval_bayes.stats.ranking.rank import rank


def coins(means, questions=10, trials=20, seed=0):
    rng = np.random.default_rng(seed)
    return (rng.random((len(means), questions, trials)) < np.array(means)[:, None, None]) * 1


ESTIMATORS = {
    "bayes": (None, lambda outcomes: bayes_at_n(outcomes).mu),
    "avg": (None, lambda outcomes: avg_at_n(outcomes).value),
    "pass@k": (4, lambda outcomes: pass_at_k(outcomes, 4).value),
    "pass^k": (4, lambda outcomes: pass_hat_k(outcomes, 4).value),
    "naive pass@k": (4, lambda outcomes: naive_pass_at_k(outcomes, 4).value),
    "naive pass^k": (4, lambda outcomes: naive_pass_hat_k(outcomes, 4).value),
    "g-pass": (5, lambda outcomes: g_pass_at_k(outcomes, 5, 0.6).value),
    "mg-pass": (5, lambda outcomes: mg_pass_at_k(outcomes, 5).value),
}


@pytest.mark.parametrize("metric", ESTIMATORS)
def test_prefix_scores_are_the_estimators(metric):
    k, estimator = ESTIMATORS[metric]
    R = coins([0.05, 0.5, 0.9])
    tau = 0.6 if metric == "g-pass" else None
    scores = prefix_scores(R, metric, k=k, tau=tau)
    for n in range(k or 1, 21):
        expected = [estimator(Outcomes.from_matrix(one[:, :n])) for one in R]
        np.testing.assert_allclose(scores[:, n - 1], expected, rtol=0, atol=1e-13)
    with pytest.raises(ValueError, match="read-only"):
        scores[0] = 0


def test_by_hand():
    # One question: model 0 is right from the second trial on, model 1 on the first only. Every
    # order of the columns 0, 1, 2: column 0 favours model 1, the other two model 0.
    R = [[[0, 1, 1]], [[1, 0, 0]]]
    result = convergence_at_n(R, "avg", gold="replicate", replicates=20_000, seed=3)
    # Of three draws: all alike (prob 8/27 + 1/27) converge at 1; 0-and-two-others decide by
    # the lead after each: +, -: with a = {1, 2} (prob 2/3), b = {0} (1/3) the sequences are
    # aab (4/27): leads 1, 2, 1 -> 1; aba (4/27): 1, 0, 1 -> not; baa (4/27): not;
    # abb (2/27): not; bab (2/27): not; bba (2/27): -1, -2, -1 -> 1.
    assert result.pmf[0] == pytest.approx((9 + 4 + 2) / 27, abs=0.012)
    assert result.pmf[1] == 0.0
    assert result.not_converged == pytest.approx(12 / 27, abs=0.012)
    assert result.mean == 1.0
    # All three columns put model 0 first. aaa and aab are there from the first draw on; aba and
    # baa after the third; bbb, abb, bab and bba end with model 1 first.
    to_all = convergence_at_n(R, "avg", replicates=20_000, seed=3)
    assert to_all.pmf == pytest.approx([12 / 27, 0.0, 8 / 27], abs=0.012)
    assert to_all.not_converged == pytest.approx(7 / 27, abs=0.012)


def test_where_no_replicate_converges():
    # Pass@4 of four trials is defined at N alone, so no prefix can agree with it
    R = coins([0.4, 0.6], trials=4)
    result = convergence_at_n(R, "pass@k", k=4, gold="replicate", replicates=50)
    assert result.not_converged == 1.0
    assert result.mean is None
    assert result.worst is None
    assert json.loads(json.dumps(result.to_dict()))["worst"] is None


@pytest.mark.parametrize(("scheme", "ties"), [("column", "none"), ("row", "adjacent")])
def test_the_worst_trajectory_is_what_its_columns_say(scheme, ties):
    R = coins([0.3, 0.35, 0.6, 0.62], questions=8, trials=10)
    result = convergence_at_n(R, replicates=700, scheme=scheme, gold="replicate", ties=ties, seed=9)
    worst = result.worst
    if scheme == "column":
        drawn = R[:, :, worst.columns]
    else:
        drawn = R[:, np.arange(8)[:, None], worst.columns]
    np.testing.assert_allclose(worst.scores, prefix_scores(drawn), rtol=0, atol=1e-14)
    for n in range(1, 11):
        models = {str(i): bayes_at_n(Outcomes.from_matrix(drawn[i, :, :n])) for i in range(4)}
        board = rank(models, ties, draws=1000)
        assert [board.rank_of(str(i)) for i in range(4)] == worst.ranks[:, n - 1].tolist()
    settled = (worst.ranks == worst.ranks[:, -1:]).all(axis=0)
    assert settled[worst.converged_at - 1 :].all()
    assert not settled[worst.converged_at - 2]
    assert worst.converged_at == 1 + np.flatnonzero(result.counts)[-1]
    facts = json.loads(json.dumps(result.to_dict(), allow_nan=False))
    assert facts["worst"]["converged_at"] == worst.converged_at
    assert facts["worst"]["ranks"] == worst.ranks.tolist()


def test_more_replicates_go_on_where_fewer_stopped():
    R = coins([0.4, 0.5, 0.6])
    many, few = (convergence_at_n(R, replicates=n, seed=4) for n in (600, 512))
    assert (many.counts - few.counts).min() >= 0


def test_large_k_still_ranks():
    R = coins([0.3, 0.6], trials=140)
    scores = prefix_scores(R, "g-pass", k=70, tau=0.5)
    expected = g_pass_at_k(Outcomes.from_matrix(R[0]), 70, 0.5).value
    assert scores[0, -1] == pytest.approx(expected, abs=1e-12)
    result = convergence_at_n(R, "g-pass", k=70, tau=0.5, replicates=50)
    assert result.counts[:69].sum() == 0
    assert result.mean > 69


def test_more_trials_than_a_byte_counts():
    R = np.zeros((2, 1, 300), dtype=int)
    R[1] = 1
    assert prefix_scores(R, "pass^k", k=2)[:, -1].tolist() == [0.0, 1.0]


def test_a_rubric_without_a_common_unit():
    weights = np.array([0.0, 1 / np.sqrt(2), 1.0])
    rng = np.random.default_rng(2)
    R = rng.integers(0, 3, (2, 6, 9))
    # the same answers in another order of questions: equal scores at N, whatever the rounding
    R = np.stack([R[0], R[0][::-1]])
    result = convergence_at_n(R, weights=weights, replicates=200)
    assert result.pmf[0] == 1.0


R = coins([0.3, 0.6])


test_bad_input = refusals(
    (lambda: convergence_at_n(R, "maj@k"), "metric", "choice"),
    (lambda: convergence_at_n(R, "pass@k", k=21), "k", "range"),
    (lambda: convergence_at_n(R, k=3), "k", "conflict"),
    (lambda: convergence_at_n(R, tau=0.5), "tau", "conflict"),
    (lambda: convergence_at_n(R, "g-pass", k=3), "tau", "range"),
    (lambda: convergence_at_n(R, "pass@k", k=3, weights=[0, 1]), "weights", "conflict"),
    (lambda: convergence_at_n(R, scheme="cell"), "scheme", "choice"),
    (lambda: convergence_at_n(R, ties="leader"), "ties", "choice"),
    (lambda: convergence_at_n(R, "pass@k", k=2, ties="adjacent"), "ties", "unsupported"),
    (lambda: convergence_at_n(R[0]), "R", "shape"),
    (lambda: convergence_at_n(R[:1]), "R", "empty"),
)
