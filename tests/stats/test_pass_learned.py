"""The pass family's posteriors under the learned prior, against draws of the model."""

from __future__ import annotations

import numpy as np
import pytest
from _support.outcomes import binary_outcomes
from _support.weighted_prior import posterior_draws
from scipy import special, stats

from lm_eval_bayes import (
    Outcomes,
    g_pass_at_k_posterior,
    hbayes_at_n,
    mg_pass_at_k_posterior,
    pass_at_k_posterior,
    pass_hat_k_posterior,
)
from lm_eval_bayes.stats.pass_family_estimators import PassQuantity
from lm_eval_bayes.stats.pass_family_posteriors import (
    BEYOND_TRIALS,
    SINGLE_TRIALS,
    family_notes,
    pass_posteriors,
)

MIXED = ([0, 0, 1, 2, 4, 4, 3, 0, 1, 4], 4)
HARD = ([0] * 25 + [1, 1, 2, 1, 4], 4)
SINGLE = ([1], 4)
LONG = ([0, 3, 17, 40, 64, 61, 2, 0, 0, 30, 55, 64], 64)
APART = ([0, 1, 1, 2, 8, 7, 8], 8)
NEVER = ([0, 0, 0, 0, 4, 5, 3], 8)


def draws_of(correct, n):
    """Return the draws of the model for questions with so many right answers of n."""
    right = np.array(correct)
    return posterior_draws(np.stack([n - right, right], axis=1))


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
}


@pytest.mark.parametrize(
    "data", [MIXED, SINGLE, APART, NEVER], ids=["mixed", "one", "apart", "never"]
)
def test_benchmark_and_population_against_weighted_draws(data):
    drawn = draws_of(*data)
    assert drawn.effective > 5_000
    p = drawn.theta[..., 1]
    b, a = np.moveaxis(drawn.mean * drawn.strength[..., None], 2, 0)
    # E (1 - p)^k and E p^k of a Beta, in rising factorials
    of_kinds = {
        "pass@3": 1.0 - special.poch(b, 3) / special.poch(a + b, 3),
        "pass^4": special.poch(a, 4) / special.poch(a + b, 4),
    }
    for name, (posterior_of, curve) in CURVES.items():
        values = curve(p)
        population = posterior_of(binary_outcomes(*data), scope="population")
        benchmark = posterior_of(binary_outcomes(*data))
        assert (population.scope, population.benchmark.scope) == ("population", "benchmark")
        assert population.benchmark.mu == benchmark.mu
        sds = np.maximum(values.std(axis=0), 1e-12)
        off = np.abs(benchmark.per_question.mu - values.mean(axis=0)) / sds
        np.testing.assert_array_less(off, 0.12)
        pairs = [(benchmark, values.mean(axis=1))]
        if name in of_kinds:
            pairs.append((population, (drawn.weight[:, 0] * of_kinds[name]).sum(axis=1)))
        for posterior, scores in pairs:
            sd = scores.std()
            assert posterior.mu == pytest.approx(scores.mean(), abs=0.1 * sd)
            assert posterior.sigma == pytest.approx(sd, rel=0.12)
            interval = posterior.interval()
            # in a state a Beta stands for the score of few questions
            inside = np.mean((scores >= interval.low - 1e-9) & (scores <= interval.high + 1e-9))
            assert inside == pytest.approx(0.95, abs=0.03)


@pytest.mark.parametrize("data", [HARD, LONG], ids=str)
def test_k_of_one_is_hbayes_at_n(data):
    outcomes = binary_outcomes(*data)
    for scope in ("benchmark", "population"):
        expected = hbayes_at_n(outcomes, scope)
        posterior = pass_at_k_posterior(outcomes, 1, scope=scope)
        assert mg_pass_at_k_posterior(outcomes, 1, scope=scope).interval().high == 0.0
        assert (posterior.mu, posterior.sigma) == (expected.mu, expected.sigma)
        assert posterior.interval() == expected.interval()


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


def test_many_members_have_the_posteriors_of_each():
    rng = np.random.default_rng(4)
    outcomes = binary_outcomes(rng.binomial(64, rng.beta(0.4, 0.4, 30)), 64)
    rows = [PassQuantity(name, k) for name in ("pass@k", "mg-pass@k") for k in range(2, 65)]
    (*_, together) = pass_posteriors(outcomes, [*rows, PassQuantity("g-pass@k", 64, 0.5)])
    alone = g_pass_at_k_posterior(outcomes, 64, 0.5)
    assert (together.mu, together.sigma) == pytest.approx((alone.mu, alone.sigma), rel=1e-5)


def test_beyond_twice_the_trials_and_of_single_ones_there_is_a_note():
    outcomes = binary_outcomes(*MIXED)
    assert pass_at_k_posterior(outcomes, 8).note is None
    assert pass_at_k_posterior(outcomes, 9).note == BEYOND_TRIALS.format(k=9, n=4)
    assert pass_at_k_posterior(binary_outcomes([0, 1] * 8, 1), 2).note == SINGLE_TRIALS


def test_notes_of_a_table_name_their_rows():
    members = {f"pass@{k}": PassQuantity("pass@k", k) for k in (1, 2, 4)}
    posteriors = pass_posteriors(binary_outcomes([1, 0] * 15, 1), list(members.values()))
    (note,) = family_notes(dict(zip(members, posteriors, strict=True)))
    assert note == f"pass@2, pass@4: {SINGLE_TRIALS}"


@pytest.mark.parametrize(
    ("data", "k"),
    [
        (([16, 16, 16, 16, 16, 16, 3], 16), 4),
        (([4] * 29 + [1], 4), 4),
        # of an sd below 1e-4
        (([16, 16], 16), 16),
    ],
)
def test_quantiles_of_few_or_skewed_questions_against_draws(data, k):
    (posterior,) = pass_posteriors(binary_outcomes(*data), [PassQuantity("pass@k", k)])
    draws = (1 - (1 - draws_of(*data).theta[..., 1]) ** k).mean(axis=1)
    masses = np.array([0.025, 0.25, 0.5, 0.75, 0.975])
    quantiles = posterior.distribution.quantiles(masses)
    # in a state the score of so few questions is not quite a Beta variable
    margin = 0.3 * posterior.sigma + 1e-7
    assert quantiles == pytest.approx(np.quantile(draws, masses), abs=margin)


def test_of_single_trials_the_score_of_one_trial_is_that_of_hbayes():
    matrix = (np.random.default_rng(4).random((40, 1)) < 0.7).astype(int)
    for clusters in (None, [i % 8 for i in range(40)]):
        outcomes = Outcomes.from_matrix(matrix, weights=[0, 2], clusters=clusters)
        score = hbayes_at_n(Outcomes.from_matrix(matrix))
        one, two = pass_posteriors(outcomes, [PassQuantity("pass@k", k) for k in (1, 2)])
        assert (one.quantity, one.k, one.bounds) == ("pass@k posterior", 1, two.bounds)
        assert (one.mu, one.sigma) == (score.mu, score.sigma)
