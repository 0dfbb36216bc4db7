from __future__ import annotations

import numpy as np
import pytest
from scipy import integrate, optimize, stats

from lm_eval_bayes.core.comparison.difference import (
    DrawnLaw,
    difference_posterior,
    difference_table,
    p_above,
    paired_posterior,
)
from lm_eval_bayes.core.hierarchical import hbayes_at_n
from lm_eval_bayes.core.outcomes import Outcomes
from lm_eval_bayes.core.posterior import bayes_at_n
from lm_eval_bayes.errors import InvalidInputError


def single(wrong, correct):
    return bayes_at_n(Outcomes.from_counts([[wrong, correct]]))


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
    [((1, 3), (2, 1)), ((0, 1), (1, 0)), ((0, 0), (3, 40)), ((5, 90), (9, 86)), ((0, 30), (2, 0))],
)
def test_one_question_against_quadrature(counts):
    (wa, ca), (wb, cb) = counts
    difference = difference_posterior(single(wa, ca), single(wb, cb))
    a, b = stats.beta(1 + ca, 1 + wa), stats.beta(1 + cb, 1 + wb)
    assert p_above(difference, 0.0) == pytest.approx(1 - below(a, b, 0.0), abs=1e-5)
    assert p_above(difference, 0.1) == pytest.approx(1 - below(a, b, 0.1), abs=1e-5)
    interval = difference.interval(0.95)
    for end, mass in ((interval.low, 0.025), (interval.high, 0.975)):
        exact = optimize.brentq(lambda x, m=mass: below(a, b, x) - m, -1, 1, xtol=1e-10)
        assert end == pytest.approx(exact, abs=1e-4)
    assert interval.mc_error is None


def test_two_questions_against_one_by_double_quadrature():
    a = bayes_at_n(Outcomes.from_counts([[1, 2], [3, 0]]))
    b = bayes_at_n(Outcomes.from_counts([[2, 1], [2, 0]]))
    x1, x2 = stats.beta(3, 2), stats.beta(1, 4)
    y1, y2 = stats.beta(2, 3), stats.beta(1, 3)
    nodes, weights = np.polynomial.legendre.leggauss(60)
    u, w = 0.5 * (nodes + 1), 0.5 * weights
    # P(x1 > y1 + y2 − x2), the other three on a product grid
    X2, Y1, Y2 = np.meshgrid(u, u, u, indexing="ij")
    density = x2.pdf(X2) * y1.pdf(Y1) * y2.pdf(Y2) * x1.sf(Y1 + Y2 - X2)
    exact = np.einsum("ijk,i,j,k->", density, w, w, w)
    assert p_above(difference_posterior(a, b), 0.0) == pytest.approx(exact, abs=1e-5)


def test_the_same_posterior_twice_is_a_coin_toss():
    for outcomes in ([[3, 1]], [[3, 1], [0, 4], [2, 2]]):
        posterior = bayes_at_n(Outcomes.from_counts(outcomes))
        difference = difference_posterior(posterior, posterior)
        assert p_above(difference, 0.0) == pytest.approx(0.5, abs=1e-6)
        interval = difference.interval(0.9)
        assert interval.low == pytest.approx(-interval.high, abs=1e-6)


def test_a_table_of_two_normals():
    first, second = stats.norm(3.0, 2.0), stats.norm(-1.0, 1.5)
    table = difference_table(first.ppf, second.ppf, 4.0, 2.5)
    exact = stats.norm(4.0, 2.5)
    x = np.linspace(-5, 13, 200)
    np.testing.assert_allclose(table.cdf(x), exact.cdf(x), rtol=0, atol=2e-6)
    u = np.array([0.001, 0.025, 0.5, 0.975, 0.999])
    np.testing.assert_allclose(table.quantile(u), exact.ppf(u), rtol=0, atol=1e-3)


def test_very_different_widths():
    table = difference_table(stats.norm(0, 1).ppf, stats.norm(0, 1e-5).ppf, 0.0, 1.0)
    x = np.array([-2.0, -0.5, 0.0, 1.0])
    np.testing.assert_allclose(table.cdf(x), stats.norm.cdf(x), rtol=0, atol=2e-6)


def test_points_and_ties():
    flat = Outcomes.from_counts([[1, 3], [0, 2]], weights=[1, 1])
    other = Outcomes.from_counts([[4, 0], [2, 2]], weights=[1, 1])
    tie = difference_posterior(bayes_at_n(flat), bayes_at_n(other))
    assert (tie.mu, tie.sigma) == (0.0, 0.0)
    assert p_above(tie, 0.0) == 0.5
    assert (p_above(tie, -0.1), p_above(tie, 0.1)) == (1.0, 0.0)
    assert (tie.interval().low, tie.interval().high) == (0.0, 0.0)


def test_a_certain_score_against_an_uncertain_one():
    point = bayes_at_n(Outcomes.from_counts([[1, 3]], weights=[0.5, 0.5]))
    beta = bayes_at_n(Outcomes.from_counts([[1, 3]]))
    difference = difference_posterior(beta, point)
    assert p_above(difference, 0.0) == pytest.approx(stats.beta(4, 2).sf(0.5), abs=1e-5)
    interval = difference.interval(0.95)
    assert interval.low == pytest.approx(stats.beta(4, 2).ppf(0.025) - 0.5, abs=1e-4)
    assert difference.bounds == (-0.5, 0.5)


def test_the_learned_prior_against_its_own_draws():
    rng = np.random.default_rng(3)
    a, b = (
        hbayes_at_n(Outcomes.from_matrix(rng.binomial(1, rng.beta(1, 2, (12, 1)), (12, 5))))
        for _ in "ab"
    )
    difference = difference_posterior(a, b)
    drawn = (a.law.draw_questions(100_000, rng) - b.law.draw_questions(100_000, rng)).mean(axis=1)
    assert p_above(difference, 0.0) == pytest.approx((drawn > 0).mean(), abs=0.008)
    low, high = np.quantile(drawn, [0.025, 0.975])
    interval = difference.interval(0.95)
    assert interval.low == pytest.approx(low, abs=0.06 * difference.sigma)
    assert interval.high == pytest.approx(high, abs=0.06 * difference.sigma)
    questions = difference.law.draw_questions(20_000, rng)
    assert questions.shape == (20_000, 12)
    error = difference.per_question.sigma / np.sqrt(20_000)
    assert np.all(np.abs(questions.mean(axis=0) - difference.per_question.mu) < 5 * error)


def test_more_than_two_categories_are_drawn():
    a = bayes_at_n(Outcomes.from_matrix([[0, 1, 2], [2, 2, 2]], weights=[0, 0.4, 1]))
    b = bayes_at_n(Outcomes.from_matrix([[0, 1, 0], [1, 2, 2]], weights=[0, 0.4, 1]))
    difference = difference_posterior(a, b)
    rng = np.random.default_rng(0)
    sample = difference.law.draw(200_000, rng)
    assert sample.mean() == pytest.approx(a.mu - b.mu, abs=0.003)
    assert sample.std() == pytest.approx(np.hypot(a.sigma, b.sigma), rel=0.01)
    assert difference.law.draw_questions(7, rng).shape == (7, 2)
    with pytest.raises(InvalidInputError, match="`sample` must be given"):
        p_above(difference, 0.0)
    assert 0 < p_above(difference, 0.0, sample) < 1


def test_the_bayesian_bootstrap_has_the_moments_that_are_said_of_it():
    rng = np.random.default_rng(1)
    counts = rng.integers(0, 5, (2, 9, 2))
    a, b = (bayes_at_n(Outcomes.from_counts(side)) for side in counts)
    posterior = paired_posterior(a, b)
    # by hand, nothing of ours in it
    n = 400_000
    p = [rng.beta(side[:, 1] + 1, side[:, 0] + 1, (n, 9)) for side in counts]
    shares = rng.dirichlet(np.full(9, 1 - 4 / 9), n)
    drawn = (shares * (p[0] - p[1])).sum(axis=1)
    assert posterior.mu == pytest.approx(drawn.mean(), abs=5 * drawn.std() / np.sqrt(n))
    assert posterior.sigma == pytest.approx(drawn.std(), rel=0.006)
    ours = posterior.law.draw(100_000, np.random.default_rng(7))
    np.testing.assert_allclose(
        np.quantile(ours, [0.025, 0.5, 0.975]),
        np.quantile(drawn, [0.025, 0.5, 0.975]),
        rtol=0,
        atol=0.03 * posterior.sigma,
    )
    assert posterior.scope == "population"
    with pytest.raises(InvalidInputError, match="draw single questions"):
        posterior.law.draw_questions(3, rng)


def test_a_kept_sample_is_not_drawn_again():
    sample = np.array([1.0, 2.0, 3.0])
    law = DrawnLaw(sample)
    rng = np.random.default_rng(0)
    assert law.draw(3, rng) is sample
    assert set(law.draw(50, rng)) == {1.0, 2.0, 3.0}
    with pytest.raises(InvalidInputError, match="draw single questions"):
        law.draw_questions(3, rng)


def test_what_is_refused():
    one, two = single(1, 1), bayes_at_n(Outcomes.from_counts([[1, 1], [0, 3]]))
    with pytest.raises(InvalidInputError, match="as many questions as `a`"):
        difference_posterior(two, one)
    population = hbayes_at_n(Outcomes.from_counts([[1, 1], [0, 3]]), scope="population")
    with pytest.raises(InvalidInputError, match='`b` must be of scope "benchmark"'):
        difference_posterior(two, population)
    with pytest.raises(InvalidInputError, match="at least two questions"):
        paired_posterior(one, one)
