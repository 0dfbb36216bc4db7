"""Two kinds of questions in the pass family's learned prior, against plain importance draws.

The model is written down here again: of a question of kind j, p ~ Beta(s_j m_j, s_j (1 - m_j))
with m_j ~ Beta(.7, .7) and s_j/(20 + s_j) ~ Beta(.7, 1); the share of the first kind is uniform.
"""

from __future__ import annotations

import numpy as np
import pytest
from _support.outcomes import binary_outcomes
from lm_eval_bayes.stats.distributions.curve_kinds import CurveKinds
from lm_eval_bayes.stats.distributions.curve_population import distribution_over_nodes
from lm_eval_bayes.stats.distributions.equal_kinds import EqualKindsScore
from lm_eval_bayes.stats.hierarchical.two_kinds import (
    TwoKindsDensity,
    equal_kinds,
    two_kinds,
)
from scipy import special, stats

from lm_eval_bayes import pass_at_k_posterior
from lm_eval_bayes.stats.hierarchical.beta_binomial import (
    OF_CURVES,
    hyper_posterior,
    log_evidence,
)
from lm_eval_bayes.stats.outcomes import distinct_pairs
from lm_eval_bayes.stats.pass_family import several_kinds
from lm_eval_bayes.stats.pass_family.estimators import PassQuantity
from lm_eval_bayes.stats.pass_family.posteriors import pass_posteriors

PROBABLE_KINDS = "lm_eval_bayes.stats.pass_family.posteriors.probable_kinds"
#: Right answers and trials: half of the questions rarely solved, half nearly always; and questions
#: of the first kind that are never solved.
APART = ([0, 1, 1, 2, 0, 1, 2, 3, 8, 7, 8, 8, 6, 8, 7, 8], 8)
NEVER = ([0] * 9 + [3, 4, 5, 6, 4, 5, 3, 4, 5], 8)
QUANTITIES = {
    "pass@8": (PassQuantity("pass@k", 8), lambda p: 1.0 - (1.0 - p) ** 8),
    "pass@4": (PassQuantity("pass@k", 4), lambda p: 1.0 - (1.0 - p) ** 4),
    "pass^8": (PassQuantity("pass^k", 8), lambda p: p**8),
    "g-pass@8": (PassQuantity("g-pass@k", 8, 0.5), lambda p: stats.binom.sf(3, 8, p)),
}


def model_of(correct, n):
    x = np.array(correct, dtype=float)
    pairs = distinct_pairs(x, n - x)
    return pairs, two_kinds(pairs, hyper_posterior(x, n - x, OF_CURVES))


def scores_of(pairs, kinds) -> CurveKinds:
    return CurveKinds(
        x=pairs.first,
        y=pairs.second,
        times=pairs.times.astype(float),
        logit_mean=kinds.logit_mean,
        log_strength=kinds.log_strength,
        share=kinds.share,
        first_kind=kinds.first_kind,
        weight=kinds.weight,
    )


def log_likelihood(c, n, m, s):
    return special.betaln(c + s * m, n - c + s * (1 - m)) - special.betaln(s * m, s * (1 - m))


def importance_draws(correct, n, n_draws, rng):
    """Draw the hyperparameters, m_j also around the questions' rates, and weigh them."""
    values, times = np.unique(correct, return_counts=True)
    rate = (values + 0.5) / (n + 1.0)
    a, b = 1.0 + 2.0 * n * rate, 1.0 + 2.0 * n * (1.0 - rate)
    log_weight = np.zeros(n_draws)
    m, s = np.empty((2, n_draws)), np.empty((2, n_draws))
    for kind in (0, 1):
        near = rng.choice(values.size, n_draws, p=times / times.sum())
        wide = rng.random(n_draws) < 0.4
        m[kind] = np.where(wide, rng.beta(0.7, 0.7, n_draws), rng.beta(a[near], b[near]))
        m[kind] = np.clip(m[kind], 1e-12, 1.0 - 1e-12)
        prior = stats.beta.pdf(m[kind], 0.7, 0.7)
        around = (times / times.sum()) @ stats.beta.pdf(m[kind], a[:, None], b[:, None])
        log_weight += np.log(prior / (0.4 * prior + 0.6 * around))
        u = rng.beta(0.7, 1.0, n_draws)
        s[kind] = np.clip(20.0 * u / (1.0 - u), 1e-9, 1e9)
    share = rng.random(n_draws)
    for c, often in zip(values, times, strict=True):
        first, second = (log_likelihood(c, n, m[kind], s[kind]) for kind in (0, 1))
        log_weight += often * np.logaddexp(np.log(share) + first, np.log1p(-share) + second)
    log_mass = special.logsumexp(log_weight) - np.log(n_draws)
    weight = np.exp(log_weight - special.logsumexp(log_weight))
    return m, s, share, weight, log_mass


def draws_of_questions(correct, n, m, s, share, weight, n_draws, rng):
    """Resample the hyperparameters, then draw every question's kind and p."""
    chosen = rng.choice(weight.size, n_draws, p=weight)
    m, s, share = m[:, chosen], s[:, chosen], share[chosen]
    p = np.empty((n_draws, len(correct)))
    for i, c in enumerate(correct):
        first, second = (log_likelihood(c, n, m[kind], s[kind]) for kind in (0, 1))
        is_first = rng.random(n_draws) < special.expit(special.logit(share) + first - second)
        strength = np.where(is_first, s[0], s[1])
        mean = np.where(is_first, m[0], m[1])
        p[:, i] = rng.beta(c + strength * mean, n - c + strength * (1 - mean))
    return p


@pytest.mark.slow
@pytest.mark.parametrize("data", [pytest.param(APART, id="apart"), pytest.param(NEVER, id="never")])
def test_two_kinds_against_plain_importance_draws(data):
    correct, n = data
    pairs, kinds = model_of(correct, n)
    rng = np.random.default_rng(11)
    m, s, share, weight, log_mass = importance_draws(correct, n, 600_000, rng)
    effective = 1.0 / (weight**2).sum()
    assert effective > 3000.0
    assert kinds.ess > 1500.0
    assert kinds.log_mass == pytest.approx(log_mass, abs=0.04 + 4.0 / np.sqrt(effective))
    # one kind, with the priors' constants
    x = np.array(correct, dtype=float)
    one_kind = log_evidence(x, n - x) + np.log(0.7 * 20.0)
    odds = special.expit(log_mass - one_kind)
    assert kinds.probability == pytest.approx(odds, abs=0.02)

    scores = scores_of(pairs, kinds)
    curves = [quantity.curve() for quantity, _ in QUANTITIES.values()]
    p = draws_of_questions(correct, n, m, s, share, weight, 60_000, rng)
    few = scores.thinned(1500)
    for (_, value), curve, moments in zip(
        QUANTITIES.values(), curves, few.moments(curves), strict=True
    ):
        drawn = value(p).mean(axis=1)
        sd = drawn.std()
        assert moments.mu == pytest.approx(drawn.mean(), abs=0.06 * sd)
        assert moments.sigma == pytest.approx(sd, rel=0.05)
        table = few.table(curve, moments)
        for mass in (0.025, 0.5, 0.975):
            # give or take 6% of the sd, and the error of so few effective draws
            end = float(table.quantile(np.array(mass)))
            below, above = (np.mean(drawn <= end + margin * sd) for margin in (-0.06, 0.06))
            assert below - 0.004 <= mass <= above + 0.004

    for name, means in zip(QUANTITIES, scores.population_means(curves), strict=True):
        if name.startswith("g"):
            continue
        kind_of = [s * (1 - m), s * m][name.startswith("pass^")]
        k = QUANTITIES[name][0].k
        power = special.poch(kind_of, k) / special.poch(s, k)
        of_kind = power if name.startswith("pass^") else 1.0 - power
        value = share * of_kind[0] + (1.0 - share) * of_kind[1]
        mean = weight @ value
        sd = np.sqrt(weight @ (value - mean) ** 2)
        population = distribution_over_nodes(means, scores.weight, 1.0, (1,))
        assert population.mean == pytest.approx(mean, abs=0.08 * sd)
        assert population.sd == pytest.approx(sd, rel=0.06)
        for mass in (0.025, 0.975):
            end = population.quantiles(np.array([mass]))[0]
            assert weight @ (value <= end) == pytest.approx(mass, abs=0.007)


def test_a_posterior_is_the_average_over_one_kind_and_two(monkeypatch):
    outcomes = binary_outcomes(*APART)
    pairs, kinds = model_of(*APART)
    assert kinds.probability > 0.8
    quantities = [quantity for quantity, _ in QUANTITIES.values()]
    averages = pass_posteriors(outcomes, quantities, scope="population")
    monkeypatch.setattr(PROBABLE_KINDS, lambda pairs, grid: None)
    ones = pass_posteriors(outcomes, quantities, scope="population")
    curves = [quantity.curve() for quantity in quantities]
    moments = scores_of(pairs, kinds).moments(curves)
    for average, one, of_two in zip(averages, ones, moments, strict=True):
        probability = kinds.probability
        benchmark = average.benchmark
        mu = (1.0 - probability) * one.benchmark.mu + probability * of_two.mu
        assert benchmark.mu == pytest.approx(mu, abs=0.05 * of_two.sigma)
        variance = (1.0 - probability) * (one.benchmark.sigma**2 + (one.benchmark.mu - mu) ** 2)
        variance += probability * (of_two.sigma**2 + (of_two.mu - mu) ** 2)
        assert benchmark.sigma == pytest.approx(np.sqrt(variance), rel=0.03)
        assert average.sigma > benchmark.sigma
        assert "several kinds" not in (average.note or "")
        interval = benchmark.interval()
        assert interval.low < benchmark.mu < interval.high
        drawn = benchmark.distribution.draw(20_000, np.random.default_rng(3))
        assert drawn.mean() == pytest.approx(benchmark.mu, abs=0.03 * benchmark.sigma)
        assert drawn.std() == pytest.approx(benchmark.sigma, rel=0.03)


@pytest.mark.parametrize(
    ("correct", "n"),
    [
        pytest.param([4, 5, 6, 5, 3, 6, 4, 5, 7, 5, 4, 6], 8, id="alike"),
        pytest.param([0, 0, 0, 8, 8, 8, 8], 8, id="seven questions"),
        pytest.param([0, 1] * 8, 1, id="single trials"),
    ],
)
def test_where_two_kinds_are_not_considered(correct, n):
    x = np.array(correct, dtype=float)
    pairs = distinct_pairs(x, n - x)
    assert several_kinds.probable_kinds(pairs, hyper_posterior(x, n - x, OF_CURVES)) is None


def test_too_small_an_effective_sample_size_is_said(monkeypatch):
    outcomes = binary_outcomes(*APART)
    monkeypatch.setattr(several_kinds, "_LEAST_ESS", 1e9)
    posterior = pass_at_k_posterior(outcomes, 8)
    assert "sample size" in posterior.note
    monkeypatch.setattr(PROBABLE_KINDS, lambda pairs, grid: None)
    assert pass_at_k_posterior(outcomes, 8).mu == posterior.mu


def test_counts_that_are_not_whole_have_the_same_density():
    x = np.array([0.0, 3.0, 7.0, 300.0])
    pairs = distinct_pairs(x, np.array([8.0, 5.0, 1.0, 20.0]))
    density = TwoKindsDensity(pairs)
    points = np.array([[-2.0, 1.0, 1.5, 3.0, 0.3], [0.0, -5.0, 2.0, 12.0, -2.0]])
    m, s = special.expit(points[:, [0, 2]]).T, np.exp(points[:, [1, 3]]).T
    share = special.expit(points[:, 4])
    expected = np.log(share) + np.log1p(-share)
    for kind in (0, 1):
        expected += stats.beta.logpdf(m[kind], 0.7, 0.7) + np.log(m[kind] * (1 - m[kind]))
        u = s[kind] / (20.0 + s[kind])
        expected += stats.beta.logpdf(u, 0.7, 1.0) + np.log(u * (1.0 - u))
    for c, wrong in zip(pairs.first, pairs.second, strict=True):
        first, second = (log_likelihood(c, c + wrong, m[kind], s[kind]) for kind in (0, 1))
        expected += np.logaddexp(np.log(share) + first, np.log1p(-share) + second)
    assert density.log_density(points) == pytest.approx(expected, rel=1e-9)
    # the sums of factors of whole numbers, and those of parts of one nearby
    few = distinct_pairs(x[:3], np.array([8.0, 5.0, 1.0]))
    near = distinct_pairs(x[:3] + 1e-9, np.array([8.0, 5.0, 1.0]))
    whole = TwoKindsDensity(few).log_density(points)
    assert TwoKindsDensity(near).log_density(points) == pytest.approx(whole, abs=1e-5)
    exchanged = density.relabelled(points)
    assert density.log_density(exchanged) == pytest.approx(density.log_density(points), rel=1e-12)


def test_equal_questions_within_a_kind_against_a_grid():
    correct, n = APART
    pairs, kinds = model_of(correct, n)
    equal = equal_kinds(pairs, kinds)
    # logit p_1 < logit p_2, in which every point counts twice
    axis = np.linspace(-7.0, 7.0, 101)
    share = (np.arange(30) + 0.5) / 30
    first, second, w = (v.ravel() for v in np.meshgrid(axis, axis, share, indexing="ij"))
    p, q = special.expit(first), special.expit(second)
    log_mass = stats.beta.logpdf(p, 0.7, 0.7) + np.log(p * (1 - p))
    log_mass += stats.beta.logpdf(q, 0.7, 0.7) + np.log(q * (1 - q))
    for c in correct:
        log_mass += np.log(w * p**c * (1 - p) ** (n - c) + (1 - w) * q**c * (1 - q) ** (n - c))
    log_cell = 2.0 * np.log(axis[1] - axis[0]) - np.log(30)
    expected = special.expit(special.logsumexp(log_mass) + log_cell - kinds.log_mass)
    assert equal.probability == pytest.approx(expected, abs=0.02)
    weight = special.softmax(log_mass)
    value = w * (1 - (1 - p) ** 8) + (1 - w) * (1 - (1 - q) ** 8)
    score = EqualKindsScore(
        pairs.times.astype(float), equal.logit_p, equal.share, equal.first_kind, equal.weight
    )
    curve = PassQuantity("pass@k", 8).curve()
    population = score.of_population(curve)
    mean = weight @ value
    sd = np.sqrt(weight @ (value - mean) ** 2)
    assert population.mean == pytest.approx(mean, abs=0.05 * sd)
    assert population.sd == pytest.approx(sd, rel=0.05)
    # an interval of these questions reaches as far as theirs
    posterior = pass_at_k_posterior(binary_outcomes(correct, n), 8)
    ends = score.of_questions(curve).quantiles(np.array([0.025, 0.975]))
    own = posterior.distribution.quantiles(np.array([0.025, 0.975]))
    interval = posterior.interval()
    assert interval.low == pytest.approx(min(ends[0], own[0]), abs=1e-12)
    assert interval.high == pytest.approx(max(ends[1], own[1]), abs=1e-12)
    assert posterior.distribution.quantiles(np.array([0.5]))[0] == pytest.approx(
        posterior.distribution.interval_quantiles(np.array([0.5]))[0], abs=1e-12
    )
