"""The pass family's posteriors under the learned prior, against roads of their own.

The hyperprior is written down here again: m ~ Beta(.7, .7) and s/(20 + s) ~ Beta(.7, 1).
"""

from __future__ import annotations

from collections import Counter

import numpy as np
import pytest
from _support.outcomes import binary_outcomes
from scipy import special, stats

from lm_eval_bayes import (
    Outcomes,
    g_pass_at_k_posterior,
    hbayes_at_n,
    mg_pass_at_k_posterior,
    pass_at_k_posterior,
    pass_hat_k_posterior,
    strict_majority_at_k_posterior,
)
from lm_eval_bayes.stats.hierarchical.beta_binomial import (
    HyperGrid,
    equal_probability,
    histogram_discrepancy,
    hyper_posterior,
)
from lm_eval_bayes.stats.pass_family.estimators import PassQuantity
from lm_eval_bayes.stats.pass_family.posteriors import family_notes, pass_posteriors, table_method

#: What decides on the model of two kinds of questions.
PROBABLE_KINDS = "lm_eval_bayes.stats.pass_family.posteriors.probable_kinds"


MIXED = ([0, 0, 1, 2, 4, 4, 3, 0, 1, 4], 4)
HARD = ([0] * 25 + [1, 1, 2, 1, 4], 4)
SINGLE = ([1], 4)
LONG = ([0, 3, 17, 40, 64, 61, 2, 0, 0, 30, 55, 64], 64)


def hyperprior_draws(correct, n, n_draws, rng, scale=20.0):
    """Draw (m, s) from the hyperprior, and compute the logarithm of their likelihood."""
    m = np.clip(rng.beta(0.7, 0.7, n_draws), 1e-12, 1.0 - 1e-12)
    u = rng.beta(0.7, 1.0, n_draws)
    s = np.clip(scale * u / (1.0 - u), 1e-9, 1e9)
    log_likelihood = -len(correct) * special.betaln(s * m, s * (1 - m))
    for c, times in Counter(correct).items():
        log_likelihood += times * special.betaln(c + s * m, n - c + s * (1 - m))
    return m, s, log_likelihood


def draws_by_importance(correct, n, n_draws, rng, scale=20.0):
    """Resample (m, s) of the hyperprior by their likelihood, then draw every p."""
    m, s, log_likelihood = hyperprior_draws(correct, n, n_draws, rng, scale)
    weight = np.exp(log_likelihood - log_likelihood.max())
    chosen = rng.choice(n_draws, n_draws // 4, p=weight / weight.sum())
    a, b = (s * m)[chosen], (s * (1 - m))[chosen]
    p = np.stack([rng.beta(c + a, n - c + b) for c in correct], axis=1)
    effective = weight.sum() ** 2 / (weight**2).sum()
    return p, a, b, min(effective, chosen.size)


CURVES = {
    "pass@3": (lambda o, **kw: pass_at_k_posterior(o, 3, **kw), lambda p: 1 - (1 - p) ** 3),
    "pass^4": (lambda o, **kw: pass_hat_k_posterior(o, 4, **kw), lambda p: p**4),
    "g-pass@8_.5": (
        lambda o, **kw: g_pass_at_k_posterior(o, 8, 0.5, **kw),
        lambda p: stats.binom.sf(3, 8, p),
    ),
    "mg-pass@5": (
        lambda o, **kw: mg_pass_at_k_posterior(o, 5, **kw),
        lambda p: 0.4 * (stats.binom.sf(3, 5, p) + stats.binom.sf(4, 5, p)),
    ),
    "strict-maj@5": (
        lambda o, **kw: strict_majority_at_k_posterior(o, 5, **kw),
        lambda p: stats.binom.sf(2, 5, p),
    ),
}


@pytest.fixture
def one_kind(monkeypatch):
    """The model of one kind of questions, without that of two, whose tests have their own file."""
    monkeypatch.setattr(PROBABLE_KINDS, lambda pairs, grid: None)


def mass_between(scores, ends, margin):
    low, high = ends
    return np.mean((scores >= low - margin) & (scores <= high + margin))


@pytest.mark.usefixtures("one_kind")
@pytest.mark.parametrize("data", [MIXED, SINGLE], ids=["mixed", "one"])
def test_benchmark_and_population_against_draws_by_importance(data):
    correct, n = data
    p, a, b, effective = draws_by_importance(correct, n, 60_000, np.random.default_rng(1))
    error = 5.0 / np.sqrt(effective)
    # E q^k and E p^k of a Beta, in rising factorials
    of_population = {
        "pass@3": 1.0 - special.poch(b, 3) / special.poch(a + b, 3),
        "pass^4": special.poch(a, 4) / special.poch(a + b, 4),
    }
    for name, (posterior_of, curve) in CURVES.items():
        benchmark = posterior_of(binary_outcomes(correct, n))
        assert benchmark.per_question.mu == pytest.approx(curve(p).mean(axis=0), abs=error)
        pairs = [(benchmark, curve(p).mean(axis=1))]
        if name in of_population:
            population = posterior_of(binary_outcomes(correct, n), scope="population")
            assert (population.scope, population.benchmark.scope) == ("population", "benchmark")
            pairs.append((population, of_population[name]))
        for posterior, scores in pairs:
            sd = scores.std()
            assert posterior.mu == pytest.approx(scores.mean(), abs=error * sd)
            kurtosis = np.mean((scores - scores.mean()) ** 4) / sd**4
            assert posterior.sigma == pytest.approx(sd, rel=0.5 * error * np.sqrt(kurtosis))
            for level in (0.5, 0.95):
                masses = np.array([0.5 - level / 2, 0.5 + level / 2])
                ends = posterior.distribution.quantiles(masses)
                # give or take 2% of the sd at either end
                narrower, wider = (mass_between(scores, ends, x * sd) for x in (-0.02, 0.02))
                assert narrower - 0.5 * error <= level <= wider + 0.5 * error


@pytest.mark.parametrize("data", [HARD, LONG], ids=str)
def test_k_of_one_is_hbayes_at_n(data):
    outcomes = binary_outcomes(*data)
    for scope in ("benchmark", "population"):
        expected = hbayes_at_n(outcomes, scope)
        posterior = pass_at_k_posterior(outcomes, 1, scope=scope)
        assert mg_pass_at_k_posterior(outcomes, 1, scope=scope).interval().high == 0.0
        assert posterior.mu == pytest.approx(expected.mu, abs=2e-5)
        assert posterior.sigma == pytest.approx(expected.sigma, rel=2e-3)
        assert posterior.learned.strength == pytest.approx(expected.learned.strength, rel=1e-2)
        for level in (0.5, 0.95):
            interval, wanted = posterior.interval(level), expected.interval(level)
            assert interval.low == pytest.approx(wanted.low, abs=0.03 * expected.sigma)
            assert interval.high == pytest.approx(wanted.high, abs=0.03 * expected.sigma)


#: As of questions that are all equally hard.
ALIKE = ([2, 1, 3, 2, 2, 4, 2, 1, 2, 3, 3, 2, 1, 0, 2, 3, 2, 2, 1, 3], 4)


@pytest.mark.parametrize("data", [ALIKE, ([0] * 20, 4)], ids=["alike", "none"])
def test_the_probability_of_equal_questions_against_draws_of_the_hyperprior(data):
    correct, n = data
    x = np.array(correct, dtype=float)
    *_, log_likelihood = hyperprior_draws(correct, n, 200_000, np.random.default_rng(7))
    differ = special.logsumexp(log_likelihood) - np.log(log_likelihood.size)
    equal = special.betaln(x.sum() + 0.7, (n - x).sum() + 0.7) - special.betaln(0.7, 0.7)
    expected = special.expit(equal - differ)
    assert equal_probability(x, n - x, hyper_posterior(x, n - x)) == pytest.approx(
        expected, abs=0.01
    )


@pytest.mark.usefixtures("one_kind")
@pytest.mark.parametrize("scope", ["benchmark", "population"])
def test_an_interval_allows_for_questions_that_are_alike(scope):
    x = np.array(ALIKE[0])
    a, b = x.sum() + 0.7, (4 - x).sum() + 0.7
    posterior = pass_at_k_posterior(binary_outcomes(*ALIKE), 4, scope=scope)
    own = posterior.distribution.quantiles(np.array([0.05, 0.95]))
    alike = 1.0 - stats.beta.ppf([0.95, 0.05], b, a) ** 4
    interval = posterior.interval(0.9)
    assert interval.low == pytest.approx(min(own[0], alike[0]), abs=1e-9)
    assert interval.high == pytest.approx(max(own[1], alike[1]), abs=1e-9)
    assert interval.high > own[1]
    # where the questions differ, and at k = 1, it is that of the learned prior
    for data, k in ((MIXED, 4), (ALIKE, 1)):
        posterior = pass_at_k_posterior(binary_outcomes(*data), k, scope=scope)
        own = posterior.distribution.quantiles(np.array([0.025, 0.975]))
        assert posterior.interval().low == pytest.approx(own[0], abs=1e-12)
        assert posterior.interval().high == pytest.approx(own[1], abs=1e-12)


CLUSTERS = "abbcccdade"


@pytest.mark.parametrize("n", [4, 1])
def test_a_population_of_clusters_against_draws_by_importance(n):
    correct = np.minimum(MIXED[0], n)
    outcomes = binary_outcomes(correct, n, clusters=list(CLUSTERS))
    rng = np.random.default_rng(6)
    n_draws = 50_000
    theta = np.clip(rng.beta(0.7, 0.7, n_draws), 1e-12, 1.0 - 1e-12)
    u, v = rng.beta(1.0, 0.7, n_draws), rng.beta(0.7, 1.0, n_draws)
    d, s = np.clip(3.0 * u / (1.0 - u), 1e-9, 1e9), np.clip(20.0 * v / (1.0 - v), 1e-9, 1e9)
    log_weight = np.zeros(n_draws)
    for label in sorted(set(CLUSTERS)):
        p = np.clip(rng.beta(d * theta, d * (1 - theta)), 1e-12, 1 - 1e-12)
        for c in correct[[each == label for each in CLUSTERS]]:
            log_weight += special.betaln(c + s * p, n - c + s * (1 - p))
            log_weight -= special.betaln(s * p, s * (1 - p))
    weight = np.exp(log_weight - log_weight.max())
    weight /= weight.sum()
    # E (1 − q)² and E q², a Beta of a Beta
    error = 5.0 * np.sqrt((weight**2).sum())
    fails, solves = (
        (s * x * (d * x + 1.0) / (d + 1.0) + x) / (s + 1.0) for x in (1.0 - theta, theta)
    )
    members = [PassQuantity(name, k) for name, k in (("pass@k", 1), ("pass@k", 2), ("pass^k", 2))]
    posteriors = pass_posteriors(outcomes, members, scope="population")
    for posterior, scores in zip(posteriors, (theta, 1.0 - fails, solves), strict=True):
        sd = np.sqrt(weight @ (scores - weight @ scores) ** 2)
        assert posterior.mu == pytest.approx(weight @ scores, abs=error * sd)
        assert posterior.sigma == pytest.approx(sd, rel=2.0 * error)
        for level in (0.5, 0.95):
            interval = posterior.interval(level)
            inside = weight @ ((scores >= interval.low) & (scores <= interval.high))
            assert inside == pytest.approx(level, abs=0.5 * error + 0.005)
    clusters = posteriors[1].clusters
    assert clusters.n_clusters == 5
    assert weight[d <= clusters.strength].sum() == pytest.approx(0.5, abs=0.5 * error + 0.01)
    if n > 1:
        assert weight[s <= clusters.within].sum() == pytest.approx(0.5, abs=0.5 * error + 0.01)
    assert (posteriors[1].note is None) == (n > 1)


def test_prior_trials_count_by_their_weight():
    plain = Outcomes.from_counts([[3, 2], [4, 1], [0, 5]])
    split = Outcomes.from_counts([[1, 1], [2, 0], [0, 3]], prior_counts=[[2, 1], [2, 1], [0, 2]])
    assert pass_at_k_posterior(split, 4).mu == pytest.approx(pass_at_k_posterior(plain, 4).mu)


def test_a_pair_of_pseudo_counts():
    # p ~ Beta(1 + .5, 2 + 3): E p² = (1.5 · 2.5) / (6.5 · 7.5)
    posterior = pass_hat_k_posterior(Outcomes.from_counts([[2, 1]]), 2, (0.5, 3.0))
    assert posterior.mu == pytest.approx(1.5 * 2.5 / (6.5 * 7.5), rel=1e-12)
    assert posterior.prior == (0.5, 3.0)
    assert pass_hat_k_posterior(Outcomes.from_counts([[2, 1]]), 2, (1, 1)).prior == 1.0


def test_many_members_have_the_posteriors_of_each():
    rng = np.random.default_rng(4)
    outcomes = binary_outcomes(rng.binomial(64, rng.beta(0.4, 0.4, 30)), 64)
    rows = [PassQuantity(name, k) for name in ("pass@k", "mg-pass@k") for k in range(2, 65)]
    together = pass_posteriors(outcomes, [*rows, PassQuantity("g-pass@k", 64, 0.5)])[-1]
    alone = g_pass_at_k_posterior(outcomes, 64, 0.5)
    assert (together.mu, together.sigma) == pytest.approx((alone.mu, alone.sigma), rel=1e-5)
    assert table_method("hdi", 65) == table_method("exact", 65) == "beta"
    assert table_method("exact", 64) == "exact"


@pytest.mark.usefixtures("one_kind")
def test_mostly_extreme_questions_have_a_note():
    mostly_never = binary_outcomes([0] * 24 + [1, 2, 4, 4, 3, 2], 4)
    for scope in ("benchmark", "population"):
        assert "93%" in pass_hat_k_posterior(mostly_never, 2, scope=scope).note
        assert pass_at_k_posterior(mostly_never, 1, scope=scope).note is None
    mostly_always = binary_outcomes([4] * 24 + [3, 2, 0, 0, 1, 2], 4)
    assert pass_at_k_posterior(mostly_always, 4).note is not None
    # questions that may be alike, and those that differ more evenly, have none
    for correct in ([4] * 28 + [3, 3], [0] * 30, MIXED[0]):
        assert pass_at_k_posterior(binary_outcomes(correct, 4), 2).note is None


@pytest.mark.usefixtures("one_kind")
def test_mostly_extreme_questions_allow_for_a_wider_spread():
    correct = [0] * 24 + [1, 2, 4, 4, 3, 2]
    members = [PassQuantity("pass@k", 1), PassQuantity("pass^k", 2)]
    first, second = pass_posteriors(binary_outcomes(correct, 4), members, scope="population")
    # a second prior, s / (2 + s) ~ Beta(.7, 1)
    p, a, b, effective = draws_by_importance(correct, 4, 200_000, np.random.default_rng(5), 2.0)
    assert effective > 1_000
    of_population = a * (a + 1.0) / ((a + b) * (a + b + 1.0))
    for posterior, scores in (
        (second, of_population),
        (second.benchmark, (p**2).mean(axis=1)),
    ):
        own = posterior.distribution.quantiles(np.array([0.025, 0.975]))
        low, high = np.quantile(scores, [0.025, 0.975])
        interval = posterior.interval()
        assert interval.low == pytest.approx(min(low, own[0]), abs=0.05 * scores.std())
        assert interval.high == pytest.approx(max(high, own[1]), abs=0.15 * scores.std())
        assert interval.high > own[1]
    # not that of k = 1, nor where there are many trials
    assert not hasattr(first.distribution, "other")
    many = binary_outcomes([0] * 24 + [3, 6, 12, 12, 9, 6], 12)
    assert not hasattr(pass_at_k_posterior(many, 2).distribution, "other")


@pytest.mark.usefixtures("one_kind")
def test_questions_of_two_kinds_have_a_note():
    two_kinds = binary_outcomes(
        [0] * 13 + [1, 2] + [11, 12, 12, 12, 12, 13, 13, 13, 13, 14, 14, 14], 16
    )
    assert "several kinds" in pass_hat_k_posterior(two_kinds, 16).note
    assert pass_hat_k_posterior(two_kinds, 1).note is None
    # quantiles of one Beta distribution
    p = stats.beta.ppf((np.arange(30) + 0.5) / 30, 0.5, 0.7)
    assert pass_hat_k_posterior(binary_outcomes(np.rint(16 * p).astype(int), 16), 16).note is None


def test_beyond_the_trials_the_note_has_the_measured_coverage():
    note = pass_at_k_posterior(binary_outcomes(*MIXED), 32).note
    assert "N = 4" in note
    assert "98%" in note


def test_notes_of_a_table_name_their_rows():
    members = {f"pass@{k}": PassQuantity("pass@k", k) for k in (1, 2, 4)}
    posteriors = pass_posteriors(binary_outcomes([4] * 25 + [1] * 5, 4), list(members.values()))
    (note,) = family_notes(dict(zip(members, posteriors, strict=True)))
    assert note.startswith("pass@2, pass@4: ")


@pytest.mark.parametrize(
    ("data", "k"),
    [
        (([16, 16, 16, 16, 16, 16, 3], 16), 4),
        (([4] * 29 + [1], 4), 4),
        # of an sd below 1e-4 the transform that few questions take elsewhere ended in NaN
        (([16, 16], 16), 16),
    ],
)
def test_quantiles_of_few_or_skewed_questions_against_draws(data, k):
    (posterior,) = pass_posteriors(binary_outcomes(*data), [PassQuantity("pass@k", k)])
    p, *_ = draws_by_importance(*data, 200_000, np.random.default_rng(8))
    draws = (1 - (1 - p) ** k).mean(axis=1)
    masses = np.array([0.025, 0.25, 0.5, 0.75, 0.975])
    quantiles = posterior.distribution.quantiles(masses)
    assert quantiles == pytest.approx(np.quantile(draws, masses), abs=0.06 * posterior.sigma + 1e-7)


def test_of_single_trials_the_score_of_one_trial_is_that_of_hbayes():
    matrix = (np.random.default_rng(4).random((40, 1)) < 0.7).astype(int)
    for clusters in (None, [i % 8 for i in range(40)]):
        outcomes = Outcomes.from_matrix(matrix, weights=[0, 2], clusters=clusters)
        score = hbayes_at_n(Outcomes.from_matrix(matrix))
        one, two = pass_posteriors(outcomes, [PassQuantity("pass@k", k) for k in (1, 2)])
        (alone,) = pass_posteriors(outcomes, [PassQuantity("pass@k", 1)])
        assert (alone.quantity, alone.k, alone.note) == (one.quantity, 1, one.note)
        assert (alone.mu, alone.sigma) == (score.mu, score.sigma)
        assert (alone.mu, alone.sigma) == pytest.approx((one.mu, one.sigma), rel=1e-4)
        assert alone.interval().low == pytest.approx(one.interval().low, abs=2e-3)
        assert alone.bounds == one.bounds == two.bounds


def test_the_discrepancy_of_a_histogram_against_one_strength():
    x = np.array([0, 0, 1, 3, 4, 4, 2, 1, 0, 4], dtype=float)
    point = np.zeros((1, 1))
    grid = HyperGrid(point, point, np.ones((2, 1, 1)), np.ones((1, 1)), 0.0)
    # m = 1/2 and s = 1: the arcsine distribution
    expected = 10.0 * stats.betabinom.pmf(np.arange(5), 4, 0.5, 0.5)
    observed = np.bincount(x.astype(int), minlength=5)
    statistic = ((observed - expected) ** 2 / np.maximum(expected, 0.5)).sum()
    assert histogram_discrepancy(x, 4.0 - x, grid) == pytest.approx(statistic, rel=1e-9)
    assert histogram_discrepancy(x, 5.0 - np.minimum(x, 3.0), grid) == 0.0
