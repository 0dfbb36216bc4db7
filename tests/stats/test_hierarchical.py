"""hbayes@N for two categories, against quadrature, draws and closed forms of its own model."""

from functools import cache

import numpy as np
import pytest
from _support.errors import refusals
from scipy import special, stats

from lm_eval_bayes.stats.bayes_at_n import bayes_at_n
from lm_eval_bayes.stats.distributions.base import beta_cdf
from lm_eval_bayes.stats.hierarchical.hbayes_at_n import (
    PRIOR_ALONE,
    few_questions_note,
    hbayes_at_n,
)
from lm_eval_bayes.stats.outcomes import Outcomes

RAGGED = [[0, 3], [2, 2], [5, 1], [0, 0], [8, 0]]


def strength_quantile(u):
    """That of the prior of s: s/(20 + s) ~ Beta(.7, 1), whose distribution function is x^.7."""
    return 20 / (u ** (-1 / 0.7) - 1)


@cache
def gauss_jacobi():
    """Nodes of m and of s and their weights, with both priors in the weights of the rule."""
    x, in_m = special.roots_jacobi(300, -0.3, -0.3)
    z, in_t = special.roots_jacobi(300, 0.0, -0.3)
    return (1 + x) / 2, 20 * (1 + z[:, None]) / (1 - z[:, None]), np.outer(in_t, in_m)


def posterior_nodes(counts):
    """Return m, s and their posterior masses, straight from the definitions."""
    m, s, weight = gauss_jacobi()
    log = sum(
        special.betaln(right + s * m, wrong + s * (1 - m)) - special.betaln(s * m, s * (1 - m))
        for wrong, right in np.asarray(counts, dtype=float)
    )
    density = weight * np.exp(log - log.max())
    return m, s, density / density.sum()


def expectation(counts, of):
    m, s, mass = posterior_nodes(counts)
    return (mass * of(m, s)).sum()


def moments_by_quadrature(counts):
    wrong, right = np.asarray(counts, dtype=float).T
    n = wrong + right

    def first(m, s):
        return np.mean([(r + s * m) / (k + s) for r, k in zip(right, n, strict=True)], axis=0)

    def second(m, s):
        p = [(r + s * m) / (k + s) for r, k in zip(right, n, strict=True)]
        variances = [q * (1 - q) / (k + s + 1) for q, k in zip(p, n, strict=True)]
        return np.sum(variances, axis=0) / n.size**2 + first(m, s) ** 2

    mu = expectation(counts, first)
    return mu, np.sqrt(expectation(counts, second) - mu**2)


@pytest.mark.parametrize("counts", [RAGGED, [[4, 0]] * 3])
def test_moments_are_those_of_gauss_jacobi_quadrature(counts):
    posterior = hbayes_at_n(Outcomes.from_counts(counts))
    assert (posterior.mu, posterior.sigma) == pytest.approx(moments_by_quadrature(counts), rel=2e-5)
    population = hbayes_at_n(Outcomes.from_counts(counts), scope="population")
    mean = expectation(counts, lambda m, s: m)
    sd = np.sqrt(expectation(counts, lambda m, s: (m - mean) ** 2))
    assert (population.mu, population.sigma) == pytest.approx((mean, sd), rel=2e-5)
    assert population.learned.mean == pytest.approx([1 - mean, mean], rel=2e-5)


def draws_of_the_model(counts, n, seed):
    """Draw (m, s) by rejection from the prior, then every p_α: the slow way, with no grid."""
    rng = np.random.default_rng(seed)
    wrong, right = np.asarray(counts, dtype=float).T
    m, s = rng.beta(0.7, 0.7, n), strength_quantile(rng.random(n))
    a, b = s * m, s * (1 - m)
    log = sum(
        special.betaln(r + a, w + b) - special.betaln(a, b)
        for w, r in zip(wrong, right, strict=True)
    )
    kept = np.log(rng.random(n)) < log - log.max()
    a, b = a[kept, None] + right, b[kept, None] + wrong
    return rng.beta(a, b).mean(axis=1), m[kept]


def test_quantiles_are_those_of_draws_by_rejection():
    counts = [[3, 0], [2, 1], [0, 3]]
    score, mean = draws_of_the_model(counts, 300_000, seed=1)
    assert score.size > 5_000
    outcomes = Outcomes.from_counts(counts)
    for scope, drawn in (("benchmark", score), ("population", mean)):
        posterior = hbayes_at_n(outcomes, scope=scope)
        levels = np.array([0.025, 0.25, 0.5, 0.75, 0.975])
        ours = posterior.distribution.table.quantile(levels)
        # the binomial spread of the number of draws below, and the 1e-3 that is promised
        error = 4.0 * np.sqrt(levels * (1 - levels) / drawn.size)
        low, high = np.quantile(drawn, levels - error), np.quantile(drawn, levels + error)
        assert np.all((low - 1e-3 < ours) & (ours < high + 1e-3)), (scope, low, ours, high)


@pytest.mark.parametrize("error", [1e-8, 1e-4])
@pytest.mark.parametrize("a", [1e-4, 2.5, 400.0])
def test_a_beta_is_a_gamma_no_further_from_it_than_was_asked(a, error):
    b = np.append(np.geomspace(max(a, 3.0), 1e4 * max(a, 3.0), 60), 1e12)
    x = special.betaincinv(a, b[:, None], np.linspace(0.0, 1.0, 401))
    x = np.maximum(x, 1e-300)
    found = beta_cdf(np.full(b.size, a), b, x, error)
    assert np.abs(found - special.betainc(a, b[:, None], x)).max() < error
    assert np.all(beta_cdf(np.full(b.size, a), b, np.zeros((1, 1)), error) == 0.0)


@pytest.mark.parametrize(("right", "n"), [(0, 1), (9, 30), (300, 1000)])
def test_one_trial_a_question_leaves_the_population_a_beta(right, n):
    outcomes = Outcomes.from_counts([[0, 1]] * right + [[1, 0]] * (n - right))
    posterior = hbayes_at_n(outcomes, scope="population")
    law = stats.beta(0.7 + right, 0.7 + n - right)
    assert (posterior.mu, posterior.sigma) == pytest.approx((law.mean(), law.std()), abs=1e-9)
    interval = posterior.interval()
    assert (interval.low, interval.high) == pytest.approx(law.ppf([0.025, 0.975]), abs=1e-6)
    assert posterior.note == few_questions_note(n, "population")
    assert (posterior.note is None) == (n >= 10)
    assert hbayes_at_n(outcomes).note == PRIOR_ALONE


def test_prior_trials_count_as_trials_worth_their_strength():
    both = hbayes_at_n(Outcomes.from_counts([[3, 1], [2, 4]]))
    split = hbayes_at_n(Outcomes.from_counts([[1, 1], [2, 0]], prior_counts=[[2, 0], [0, 4]]))
    assert (split.mu, split.sigma) == pytest.approx((both.mu, both.sigma), rel=1e-12)
    nothing = Outcomes.from_counts(
        [[1, 1], [2, 0]], prior_counts=[[2, 0], [0, 4]], prior_strength=0
    )
    alone = hbayes_at_n(Outcomes.from_counts([[1, 1], [2, 0]]))
    assert hbayes_at_n(nothing).mu == pytest.approx(alone.mu, rel=1e-12)
    # fractional counts go another way through the code
    fraction = Outcomes.from_counts(
        [[1, 1], [2, 0]], prior_counts=[[2, 0], [0, 4]], prior_strength=0.3
    )
    fractional = [[1 + 0.6, 1], [2, 1.2]]
    assert hbayes_at_n(fraction).mu == pytest.approx(moments_by_quadrature(fractional)[0], rel=2e-5)


def test_categories_of_equal_weight_merge():
    plain = hbayes_at_n(Outcomes.from_counts([[3, 1], [2, 4]]))
    merged = hbayes_at_n(Outcomes.from_counts([[1, 2, 1], [0, 2, 4]], weights=[0, 0, 1]))
    assert merged.mu == pytest.approx(plain.mu)
    level = hbayes_at_n(Outcomes.from_counts([[3, 1], [2, 4]], weights=[0.5, 0.5]))
    assert (level.mu, level.sigma, level.interval().width) == (0.5, 0.0, 0.0)


@pytest.mark.parametrize("counts", [[[0, 0]], [[10**6, 1]] * 2 + [[1, 10**6]], [[1, 0]] * 2000])
def test_extremes_keep_their_intervals_in_order(counts):
    for scope in ("benchmark", "population"):
        posterior = hbayes_at_n(Outcomes.from_counts(counts), scope=scope)
        for method in ("normal", "beta", "exact", "hdi"):
            interval = posterior.interval(method=method)
            assert 0 <= interval.low <= interval.high <= 1
        assert posterior.interval().low <= posterior.mu <= posterior.interval().high
    assert bayes_at_n(Outcomes.from_counts(counts)).mu == pytest.approx(posterior.mu, abs=0.5)


test_bad_arguments_are_named = refusals(
    (lambda: hbayes_at_n(Outcomes.from_counts(RAGGED), scope="world"), "scope", "choice"),
    (lambda: hbayes_at_n(Outcomes.from_counts(RAGGED), level=1.0), "level", "range"),
    (lambda: hbayes_at_n(Outcomes.from_counts(RAGGED), interval="wald"), "interval", "choice"),
)


@pytest.mark.parametrize(
    "counts",
    [
        [[34, 30], [59, 5], [4, 60], [0, 64], [64, 0]],
        [[0, 1], [1, 0], [0, 1], [1, 0], [0, 1]],
    ],
    ids=["many trials", "one trial each"],
)
def test_the_range_of_the_learned_strength_is_that_of_quadrature(counts):
    learned = hbayes_at_n(Outcomes.from_counts(counts)).learned
    ends = (learned.strength_low, learned.strength, learned.strength_high)
    _, s, mass = posterior_nodes(counts)
    of_strength = mass.sum(axis=1)
    below = np.interp(ends, s.ravel(), np.cumsum(of_strength) - 0.5 * of_strength)
    assert below == pytest.approx([0.025, 0.5, 0.975], abs=0.003)


def test_few_questions_carry_the_coverage_of_simulations():
    for m, held in ((1, 69), (4, 87), (9, 92)):
        posterior = hbayes_at_n(Outcomes.from_counts([[3, 1]] * m))
        assert f"as few as {held}%" in posterior.note
    assert hbayes_at_n(Outcomes.from_counts([[3, 1]] * 10)).note is None


@pytest.mark.parametrize(
    ("right", "rare"),
    [
        ([0] * 24 + [1, 1, 4, 4, 3, 4], True),
        ([0] * 13 + [1, 1, 4, 4, 3, 4], False),  # too many are solved at times
        ([0] * 24 + [1, 1, 1, 1, 1, 3], False),  # the often solved one holds less than half
        ([0] * 30, False),
    ],
)
def test_a_population_that_rests_on_few_questions_has_a_note(right, rare):
    right = np.array(right)
    for answers, counts in (
        ("right", np.stack([4 - right, right], 1)),
        ("wrong", np.stack([right, 4 - right], 1)),
    ):
        outcomes = Outcomes.from_counts(counts)
        note = hbayes_at_n(outcomes, "population").note
        assert (note is not None) == rare
        assert not rare or answers in note
        assert hbayes_at_n(outcomes).note is None
