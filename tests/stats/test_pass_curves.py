from __future__ import annotations

import numpy as np
import pytest
from _support.errors import refusals

from lm_eval_bayes.stats.comparison.pass_curves import (
    Turn,
    compare_pass_curves,
    first_turn,
)
from lm_eval_bayes.stats.hierarchical.hbayes_at_n import hbayes_at_n
from lm_eval_bayes.stats.outcomes import Outcomes
from lm_eval_bayes.stats.pass_family_estimators import PassQuantity, pass_at_k
from lm_eval_bayes.stats.pass_family_posteriors import pass_posteriors

A = Outcomes.from_counts([[2, 6], [8, 0], [7, 1], [0, 8], [3, 5]])
B = Outcomes.from_counts([[6, 4], [5, 3], [6, 2], [1, 9], [4, 4]])


def test_the_curves_are_those_of_pass_at_k():
    result = compare_pass_curves(A, B, scope="population")
    assert result.ks.tolist() == list(range(1, 9))
    for k, a, b in zip(result.ks.tolist(), result.a, result.b, strict=True):
        assert a == pytest.approx(pass_at_k(A, k).value, abs=1e-13)
        assert b == pytest.approx(pass_at_k(B, k).value, abs=1e-13)
    np.testing.assert_allclose(result.difference, result.a - result.b, rtol=0, atol=1e-14)


def test_latent_curves_are_the_posteriors():
    ks = [1, 2, 5, 17, 40]
    result = compare_pass_curves(A, B, ks, seed=3)
    posteriors = [
        pass_posteriors(side, [PassQuantity("pass@k", k) for k in ks], seed=3) for side in (A, B)
    ]
    a, b = (np.array([p.mu for p in side]) for side in posteriors)
    assert (result.a.tolist(), result.b.tolist()) == (a.tolist(), b.tolist())
    assert (a[0], b[0]) == tuple(hbayes_at_n(side, seed=3).mu for side in (A, B))
    assert result.difference.tolist() == (a - b).tolist()
    sds = [[p.sigma for p in side] for side in posteriors]
    assert result.sd == pytest.approx(np.hypot(*sds), rel=1e-12)


def test_the_credible_band_holds_whole_curves():
    result = compare_pass_curves(A, B, range(1, 31), level=0.8)
    rng = np.random.default_rng(99)
    drawn = [hbayes_at_n(side).distribution.draw_categories(20_000, rng) for side in (A, B)]
    p = [side.theta[..., 1] for side in drawn]
    ks = np.arange(1, 31)
    curves = [1 - ((1 - side)[:, :, None] ** ks).mean(axis=1) for side in p]
    drawn = curves[0] - curves[1]
    inside = ((drawn >= result.low) & (drawn <= result.high)).all(axis=1).mean()
    assert inside == pytest.approx(0.8, abs=0.025)
    # a band for each k by itself is narrower
    assert result.critical > 1.05 * 1.2816


def test_the_confidence_band_holds_whole_curves():
    rng = np.random.default_rng(4)
    ks = [1, 2, 4, 8]

    def curves(p):
        return np.array([1 - (1 - p) ** k for k in ks])

    def questions(n):
        common = rng.normal(size=n)
        return [1 / (1 + np.exp(1 - common - 0.6 * rng.normal(size=n))) for _ in "ab"]

    everything = questions(400_000)
    truth = (curves(everything[0]) - curves(everything[1])).mean(axis=1)
    held = 0
    for seed in range(150):
        a, b = (Outcomes.from_matrix(rng.binomial(1, p[:, None], (80, 8))) for p in questions(80))
        band = compare_pass_curves(a, b, ks, scope="population", draws=500, seed=seed)
        held += bool(np.all((band.low <= truth) & (truth <= band.high)))
    assert held >= 0.88 * 150


@pytest.mark.parametrize(
    ("sign", "turn"),
    [
        ([1, 1, 0, 0, -1, -1], Turn("gain to loss", 3, 5)),
        ([0, -1, 0, 1, 1, 1], Turn("loss to gain", 3, 4)),
        ([1, -1, 1, -1, 0, 0], Turn("gain to loss", 2, 2)),
        ([1, 1, 0, 1, 0, 1], Turn("gain to loss", 3, None)),
        ([0, 0, 1, 1, 1, 1], None),
        ([0] * 6, None),
    ],
)
def test_where_the_sign_turns(sign, turn):
    assert first_turn(np.arange(1, 7), np.array(sign)) == turn


def test_ids_pair_the_questions():
    a = Outcomes.from_counts(A.counts, question_ids=list("vwxyz"))
    b = Outcomes.from_counts(B.counts[::-1], question_ids=list("zyxwv"))
    plain = compare_pass_curves(A, B, scope="population")
    named = compare_pass_curves(a, b, scope="population")
    np.testing.assert_array_equal(named.low, plain.low)


GRADED = Outcomes.from_counts([[1, 2, 3]])
UNTRIED = Outcomes.from_counts([[0, 0], [1, 2]])
ONE = Outcomes.from_counts([[1, 2]])


test_arguments_that_are_refused = refusals(
    (lambda: compare_pass_curves(A, B, ks=[]), "ks", "range"),
    (lambda: compare_pass_curves(A, B, ks=[1, 1]), "ks", "range"),
    (lambda: compare_pass_curves(A, B, ks=[1, 9], scope="population"), "ks", "range"),
    (lambda: compare_pass_curves(A, B, scope="all"), "scope", "choice"),
    (lambda: compare_pass_curves(A, B, draws=10), "draws", "range"),
    (lambda: compare_pass_curves(GRADED, GRADED), "outcomes", "unsupported"),
    (lambda: compare_pass_curves(UNTRIED, UNTRIED), "outcomes", "empty"),
    (lambda: compare_pass_curves(ONE, ONE, scope="population"), "a", "empty"),
)
