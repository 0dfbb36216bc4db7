from __future__ import annotations

import numpy as np
import pytest
from scipy import integrate, optimize, stats

from lm_eval_bayes.stats.comparison.difference import (
    difference_posterior,
    p_above,
)
from lm_eval_bayes.stats.comparison.shared_questions import SharedQuestions
from lm_eval_bayes.stats.hierarchical.hbayes_at_n import hbayes_at_n
from lm_eval_bayes.stats.outcomes import Outcomes
from lm_eval_bayes.stats.uniform_prior import bayes_at_n


def single(wrong, correct):
    return bayes_at_n(Outcomes.from_counts([[wrong, correct]]))


def paired_posterior(a, b):
    return SharedQuestions.of([a, b]).first_difference()


def below(a, b, x):
    """P(A − B <= x) for two Beta distributions, by quadrature."""
    grid = [max(-x, 0.0), min(1.0 - x, 1.0)]
    points = [p for p in grid if 0.0 < p < 1.0]
    inner = integrate.quad(
        lambda y: b.pdf(y) * a.cdf(x + y), 0, 1, points=points or None, epsabs=1e-11, limit=300
    )
    return inner[0]


@pytest.mark.parametrize(
    "counts",
    [((1, 3), (2, 1)), ((0, 0), (3, 40)), ((0, 30), (2, 0))],
)
def test_one_question_against_quadrature(counts):
    (wa, ca), (wb, cb) = counts
    difference = difference_posterior(single(wa, ca), single(wb, cb))
    a, b = stats.beta(1 + ca, 1 + wa), stats.beta(1 + cb, 1 + wb)
    n_draws = difference.distribution.n_draws
    for threshold in (0.0, 0.1):
        share = 1 - below(a, b, threshold)
        error = 4 * np.sqrt(share * (1 - share) / n_draws)
        assert p_above(difference, threshold) == pytest.approx(share, abs=error)
    interval = difference.interval(0.95)
    for end, mass in ((interval.low, 0.025), (interval.high, 0.975)):
        exact = optimize.brentq(lambda x, m=mass: below(a, b, x) - m, -1, 1, xtol=1e-10)
        assert end == pytest.approx(exact, abs=5 * interval.mc_error)
    assert 0.0 < interval.mc_error < 0.05 * difference.sigma


def test_a_certain_score_against_an_uncertain_one():
    point = bayes_at_n(Outcomes.from_counts([[1, 3]], weights=[0.5, 0.5]))
    beta = bayes_at_n(Outcomes.from_counts([[1, 3]]))
    difference = difference_posterior(beta, point)
    error = 4 * np.sqrt(0.25 / difference.distribution.n_draws)
    assert p_above(difference, 0.0) == pytest.approx(stats.beta(4, 2).sf(0.5), abs=error)
    interval = difference.interval(0.95)
    low = stats.beta(4, 2).ppf(0.025) - 0.5
    assert interval.low == pytest.approx(low, abs=5 * interval.mc_error)
    assert difference.bounds == (-0.5, 0.5)


def by_hand(a, b, n_draws, rng):
    """The paired posterior, written out: bootstrap for the questions, normal for the trials."""
    n_questions = len(a.counts)
    averages, noise = [], np.zeros(n_questions)
    for side in (a, b):
        trials = side.counts.sum(axis=1)
        averages.append(side.counts[:, 1] / trials)
        about = hbayes_at_n(side).per_question
        noise += (about.mu * (1 - about.mu) - about.sigma**2) / trials
    d, chance = averages[0] - averages[1], noise.mean() / n_questions
    shares = rng.dirichlet(np.full(n_questions, 1 - 4 / n_questions), n_draws)
    off = shares @ (d - d.mean())
    between = off.var()
    kept = np.sqrt(max(between - chance, 0.0) / max(between, 1e-300))
    return d.mean() + kept * off + np.sqrt(chance) * rng.standard_normal(n_draws)


@pytest.mark.parametrize("shift", [0, 2])
def test_the_paired_posterior_against_one_by_hand(shift):
    rng = np.random.default_rng(1)
    right = rng.integers(0, 7, 9)
    others = np.clip(right + shift * rng.integers(-1, 3, 9), 0, 8)
    a, b = (Outcomes.from_counts(np.stack([8 - x, x], axis=1)) for x in (right, others))
    posterior = paired_posterior(hbayes_at_n(a), hbayes_at_n(b))
    drawn = by_hand(a, b, 160_000, rng)
    assert posterior.mu == pytest.approx(drawn.mean(), abs=5 * drawn.std() / 400)
    assert posterior.sigma == pytest.approx(drawn.std(), rel=0.006)
    ours = posterior.distribution.draw(60_000, np.random.default_rng(7))
    np.testing.assert_allclose(
        np.quantile(ours, [0.025, 0.5, 0.975]),
        np.quantile(drawn, [0.025, 0.5, 0.975]),
        rtol=0,
        atol=0.03 * posterior.sigma,
    )
    assert posterior.scope == "population"


@pytest.mark.parametrize(("trials", "alike"), [(1, True), (4, True), (64, True), (4, False)])
@pytest.mark.slow
def test_paired_intervals_hold_as_often_as_they_say(trials, alike):
    # also where the models find the same questions hard, whatever the number of trials
    rng = np.random.default_rng(trials)
    held, widths, t_widths = 0, 0.0, 0.0
    for _ in range(200):
        p = rng.random((2, 30))
        p[1] = p[0] if alike else p[1]
        right = rng.binomial(trials, p)
        a, b = (Outcomes.from_counts(np.stack([trials - x, x], axis=1)) for x in right)
        posterior = paired_posterior(hbayes_at_n(a), hbayes_at_n(b))
        drawn = posterior.distribution.draw(4000, rng)
        low, high = np.quantile(drawn, [0.025, 0.975])
        held += low <= 0.0 <= high
        widths += high - low
        d = (right[0] - right[1]) / trials
        t_widths += 2 * stats.t.ppf(0.975, 29) * d.std(ddof=1) / np.sqrt(30)
    # 200 runs of 95% have an sd of 1.5 points
    assert 0.905 <= held / 200 <= 0.99
    # what Student's paired t makes of the same differences
    assert 0.95 < widths / t_widths < 1.1


def test_one_odd_trial_decides_nothing():
    counts = np.array([[0, 8]] * 30)
    odd = counts.copy()
    odd[3] = [1, 7]
    perfect, other = (hbayes_at_n(Outcomes.from_counts(each)) for each in (counts, odd))
    for posterior, least in (
        (paired_posterior(perfect, other), 0.02),
        (paired_posterior(perfect, perfect), 0.3),
    ):
        drawn = posterior.distribution.draw(20_000, np.random.default_rng(0))
        assert posterior.sigma > 0.0
        assert (drawn < 0.0).mean() > least


@pytest.mark.parametrize(
    "counts",
    [
        ([[5, 3], [1, 7], [4, 4], [6, 2]], [[2, 6], [3, 5], [0, 8], [4, 4]]),
        ([[0, 8], [4, 4], [8, 0]], [[8, 0], [0, 8], [4, 4]]),
        ([[5, 3], [1, 7]], [[5, 3], [1, 7]]),
    ],
    ids=["others", "turned", "alike"],
)
@pytest.mark.parametrize("fit", [bayes_at_n, hbayes_at_n])
def test_both_orders_are_mirror_images(fit, counts):
    a, b = (fit(Outcomes.from_counts(each)) for each in counts)
    posteriors = [(difference_posterior(a, b), difference_posterior(b, a))]
    if fit is hbayes_at_n:
        posteriors.append((paired_posterior(a, b), paired_posterior(b, a)))
    for forth, back in posteriors:
        assert (forth.mu, forth.sigma) == (-back.mu, back.sigma)
        for method in ("exact", "normal", "beta"):
            first, second = forth.interval(method=method), back.interval(method=method)
            assert (first.low, first.high) == pytest.approx((-second.high, -second.low), abs=1e-12)
        assert p_above(forth, 0.0) == pytest.approx(1.0 - p_above(back, 0.0), abs=1e-12)
