"""Convergence@n and prefix scores beside plain loops over scorio and scipy."""

from __future__ import annotations

from fractions import Fraction
from itertools import combinations, pairwise

import numpy as np
import pytest
from scipy import stats

from lm_eval_bayes.stats.convergence import convergence_at_n
from lm_eval_bayes.stats.kendall import kendall_curve, kendall_tau_b
from lm_eval_bayes.stats.prefixes import draw_blocks, prefix_scores

pytestmark = pytest.mark.slow

scorio = pytest.importorskip("scorio.rank", reason="scorio is not installed")
scorio_eval = pytest.importorskip("scorio.eval", reason="scorio is not installed")
compare_rankings = pytest.importorskip("scorio.utils").compare_rankings

# our metric and arguments, and scorio's scores (L,) of a tensor
METRICS = {
    "bayes": ({}, lambda R: scorio.bayes(R, return_scores=True)[1]),
    "avg": ({}, lambda R: scorio.avg(R, return_scores=True)[1]),
    "pass@k": ({"k": 3}, lambda R: scorio.pass_at_k(R, 3, return_scores=True)[1]),
    "pass^k": ({"k": 3}, lambda R: scorio.pass_hat_k(R, 3, return_scores=True)[1]),
    "g-pass": (
        {"k": 4, "tau": 0.5},
        lambda R: scorio.g_pass_at_k_tau(R, 4, 0.5, return_scores=True)[1],
    ),
    "mg-pass": ({"k": 4}, lambda R: scorio.mg_pass_at_k(R, 4, return_scores=True)[1]),
    "naive pass@k": ({"k": 3}, lambda R: (1 - (1 - R.mean(axis=2)) ** 3).mean(axis=1)),
    "naive pass^k": ({"k": 3}, lambda R: (R.mean(axis=2) ** 3).mean(axis=1)),
}


def tensor(seed, shape=(5, 6, 12)):
    rng = np.random.default_rng(seed)
    p = rng.beta(1, 1, (*shape[:2], 1))
    return (rng.random(shape) < p).astype(int)


def resampled(R, scheme, replicates, seed):
    """Yield R as each replicate holds it."""
    questions = np.arange(R.shape[1])
    for block in draw_blocks(scheme, R.shape, replicates, seed):
        for columns in block:
            yield R[:, :, columns[0]] if scheme == "column" else R[:, questions[:, None], columns]


def ranks(scores):
    # rounding, so that float noise does not break a tie
    return stats.rankdata(-np.round(scores, 11), method="min").tolist()


def first_of_the_last(rankings, gold):
    """Return the n from which on rankings[n − 1] is `gold`, None if the last one is not."""
    s = None
    for n in range(len(rankings), 0, -1):
        if rankings[n - 1] != gold:
            break
        s = n
    return s


def by_loop(rankings, gold=None):
    """Return convergence@n of the rankings after 1..N trials, None if it does not converge."""
    if gold is not None:
        return first_of_the_last(rankings, gold)
    s = first_of_the_last(rankings, rankings[-1])
    return None if s == len(rankings) else s


@pytest.mark.parametrize("metric", METRICS)
def test_prefix_scores_are_scorios(metric):
    arguments, score = METRICS[metric]
    k = arguments.get("k", 1)
    for seed in range(3):
        R = tensor(seed)
        ours = prefix_scores(R, metric, **arguments)
        assert np.isnan(ours[:, : k - 1]).all()
        for n in range(k, R.shape[2] + 1):
            np.testing.assert_allclose(ours[:, n - 1], score(R[:, :, :n]), rtol=0, atol=1e-10)


@pytest.mark.parametrize("scheme", ["column", "row"])
@pytest.mark.parametrize("gold", ["all", "replicate"])
@pytest.mark.parametrize("metric", METRICS)
def test_every_replicate_against_a_plain_loop(metric, scheme, gold):
    arguments, score = METRICS[metric]
    k = arguments.get("k", 1)
    R = tensor(11)
    drawing = {"scheme": scheme, "replicates": 30, "seed": 5}
    result = convergence_at_n(R, metric, **arguments, **drawing, gold=gold)
    n_max = R.shape[2]
    by_all = ranks(METRICS["avg"][1](R)) if gold == "all" else None
    when = []
    for drawn in resampled(R, scheme, 30, 5):
        rankings = [ranks(score(drawn[:, :, :n])) if n >= k else None for n in range(1, n_max + 1)]
        when.append(by_loop(rankings, by_all))
    assert result.gold == gold
    assert result.counts.tolist() == [when.count(s) for s in range(1, n_max + 1)]
    converged = [s for s in when if s is not None]
    assert result.not_converged == pytest.approx(1 - len(converged) / 30)
    if not converged:
        assert (result.mean, result.worst) == (None, None)
        return
    assert result.mean == pytest.approx(np.mean(converged))
    assert result.worst.converged_at == max(converged)
    assert result.worst.replicate == when.index(max(converged))


def adjacent(mu, sigma, threshold):
    """Rank as in Table 1, in plain Python."""
    order = sorted(range(len(mu)), key=lambda i: (-round(mu[i], 11), sigma[i]))
    ranks = [1] * len(mu)
    for above, below in pairwise(order):
        z = abs(mu[above] - mu[below]) / np.hypot(sigma[above], sigma[below])
        ranks[below] = ranks[above] + int(z >= threshold)
    return ranks


@pytest.mark.parametrize("weights", [None, [0.0, 0.25, 1.0]])
@pytest.mark.parametrize(("scheme", "gold"), [("column", "all"), ("row", "replicate")])
def test_credible_interval_ties_against_a_plain_loop(scheme, gold, weights):
    rng = np.random.default_rng(8)
    p = np.array([0.2, 0.25, 0.5, 0.55, 0.8])[:, None, None]
    R = (rng.random((5, 12, 14)) < p).astype(int)
    if weights is not None:
        R += (rng.random(R.shape) < p).astype(int)
    when, threshold = [], stats.norm.ppf(0.95)

    def ranks_with_ties(trials):
        pairs = [scorio_eval.bayes(matrix, weights) for matrix in trials]
        return adjacent(*zip(*pairs, strict=True), threshold)

    by_all = ranks_with_ties(R) if gold == "all" else None
    for drawn in resampled(R, scheme, 50, 3):
        when.append(by_loop([ranks_with_ties(drawn[:, :, :n]) for n in range(1, 15)], by_all))
    arguments = {"scheme": scheme, "gold": gold, "weights": weights, "replicates": 50, "seed": 3}
    result = convergence_at_n(R, ties="adjacent", **arguments)
    assert result.counts.tolist() == [when.count(s) for s in range(1, 15)]
    # avg's z is the same number (eq. 20)
    avg = convergence_at_n(R, "avg", ties="adjacent", **arguments)
    assert avg.counts.tolist() == result.counts.tolist()


def test_a_tie_that_floats_break_is_kept():
    # .1 + .2 and .3 + 0 are one score; as floats the first is larger
    weights = [0.0, 0.1, 0.2, 0.3]
    R = np.array([[[1, 2, 0, 3] * 5], [[0, 3, 2, 1] * 5]])
    assert sum([0.1, 0.2]) != 0.3
    gap = np.diff(prefix_scores(R, "avg", weights=weights), axis=0)[0]
    result = convergence_at_n(R, "avg", weights=weights, gold="replicate", replicates=2000, seed=1)
    when = []
    exact = [Fraction(0), Fraction(1, 10), Fraction(2, 10), Fraction(3, 10)]
    for drawn in resampled(R, "column", 2000, 1):
        sums = [np.cumsum([exact[c] for c in model[0]]).tolist() for model in drawn]
        rankings = [(a > b) - (a < b) for a, b in zip(*sums, strict=True)]
        when.append(by_loop(rankings))
    assert gap[1] == pytest.approx(0.0, abs=1e-15)
    assert result.counts.tolist() == [when.count(s) for s in range(1, 21)]


def test_pass_at_k_is_the_mean_over_all_subsets():
    R = tensor(3, (2, 3, 7))
    for metric, all_of in (("pass@k", np.max), ("pass^k", np.min)):
        ours = prefix_scores(R, metric, k=3)
        for n in range(3, 8):
            subsets = [all_of(R[:, :, list(s)], axis=2) for s in combinations(range(n), 3)]
            expected = np.mean(subsets, axis=(0, 2))
            np.testing.assert_allclose(ours[:, n - 1], expected, rtol=0, atol=1e-14)


@pytest.mark.parametrize("scheme", ["column", "row"])
def test_kendall_curve_against_scipy(scheme):
    R = tensor(7)
    gold = R.mean(axis=(1, 2))
    for metric in ("bayes", "pass@k"):
        arguments, score = METRICS[metric]
        k = arguments.get("k", 1)
        curve = kendall_curve(R, gold, metric, **arguments, replicates=20, scheme=scheme, seed=2)
        taus = np.full((20, 12), np.nan)
        for i, drawn in enumerate(resampled(R, scheme, 20, 2)):
            for n in range(k, 13):
                scores = np.round(score(drawn[:, :, :n]), 11)
                taus[i, n - 1] = stats.kendalltau(scores, gold).statistic
        undefined = np.isnan(taus).mean(axis=0)
        np.testing.assert_allclose(curve.undefined, undefined, atol=1e-15)
        assert np.isnan(curve.mean[: k - 1]).all()
        known = taus[:, k - 1 :]
        np.testing.assert_allclose(curve.mean[k - 1 :], np.nanmean(known, axis=0), atol=1e-12)
        np.testing.assert_allclose(curve.sd[k - 1 :], np.nanstd(known, axis=0), atol=1e-7)


def test_kendall_is_scorios():
    rng = np.random.default_rng(5)
    for _ in range(200):
        x, y = rng.integers(0, 6, (2, int(rng.integers(3, 12))))
        if np.ptp(x) and np.ptp(y):
            theirs, _ = compare_rankings(x, y, method="kendall")
            assert float(kendall_tau_b(x, y)) == pytest.approx(theirs, abs=1e-12)
