from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from _support.errors import refusals, refused
from _support.outcomes import binary_outcomes
from scipy import stats

from lm_eval_bayes import (
    Outcomes,
    bayes_at_n,
    g_pass_at_k_posterior,
    hbayes_at_n,
    mg_pass_at_k_posterior,
    pass_at_k_posterior,
    pass_hat_k_posterior,
)
from lm_eval_bayes.stats.intervals import METHODS, IntervalSpec, beta_ends

ORACLE = Path(__file__).parents[1] / "oracles" / "exact_quantiles.json"
CASES = json.loads(ORACLE.read_text())["cases"]


def ends(posterior, level=0.95, method="exact", **more):
    interval = posterior.interval(level, method, **more)
    return interval.low, interval.high


@pytest.mark.parametrize("case", CASES, ids=lambda c: f"M{len(c['correct'])}-N{c['trials']}")
def test_exact_against_ten_million_draws(case):
    correct = np.array(case["correct"])
    posterior = bayes_at_n(binary_outcomes(correct, case["trials"]), case["pseudo"])
    assert posterior.mu == pytest.approx(case["mean"], abs=3e-4)
    assert posterior.sigma == pytest.approx(case["sd"], rel=2e-3)
    for level, drawn in case["intervals"].items():
        assert ends(posterior, float(level)) == pytest.approx(drawn, abs=0.05 * posterior.sigma)


def test_four_right_of_four():
    # Beta(5, 1) has the distribution function x⁵
    posterior = bayes_at_n(Outcomes.from_matrix([[1, 1, 1, 1]]))
    assert ends(posterior) == pytest.approx((0.025**0.2, 0.975**0.2), abs=1e-12)
    assert posterior.interval() == posterior.interval(0.95, "exact")
    assert ends(posterior, method="beta") == pytest.approx((0.025**0.2, 0.975**0.2), abs=1e-9)


def test_one_question_is_nearly_the_beta_quantile():
    chance = pass_at_k_posterior(Outcomes.from_counts([[5, 12]]), 3, "uniform")
    expected = 1 - (1 - stats.beta(13, 6).ppf([0.05, 0.95])) ** 3
    # the Beta distribution with its mean and sd
    assert ends(chance, 0.9) == pytest.approx(tuple(expected), abs=0.05 * chance.sigma)


def test_two_uniform_questions_make_a_triangle():
    # the mean of two uniforms: F(x) = 2x² up to one half
    posterior = bayes_at_n(Outcomes.from_counts([[0, 0], [0, 0]]))
    low = np.sqrt(0.025 / 2)
    assert ends(posterior) == pytest.approx((low, 1 - low), abs=0.05 * posterior.sigma)


LATENT = {
    "pass^64": lambda o: pass_hat_k_posterior(o, 64, "uniform"),
    "g-pass": lambda o: g_pass_at_k_posterior(o, 16, 0.5, "jeffreys"),
    "mg-pass": lambda o: mg_pass_at_k_posterior(o, 7, "uniform"),
}


def curve_values(name, p):
    match name:
        case "pass^64":
            return p**64
        case "g-pass":
            return stats.binom.sf(7, 16, p)
    return 2 / 7 * sum(stats.binom.sf(i - 1, 7, p) for i in range(5, 8))


@pytest.mark.parametrize("name", LATENT)
@pytest.mark.parametrize("n_questions", [2, 12])
def test_pass_family_against_draws(name, n_questions):
    rng = np.random.default_rng([17, n_questions])
    correct = rng.binomial(6, rng.beta(0.6, 0.6, n_questions))
    posterior = LATENT[name](binary_outcomes(correct, 6))
    pseudo = posterior.prior
    draws = 60_000
    means = np.zeros(draws)
    for c in correct:
        means += curve_values(name, rng.beta(c + pseudo, 6 - c + pseudo, draws)) / n_questions
    assert posterior.mu == pytest.approx(means.mean(), abs=5 * posterior.sigma / np.sqrt(draws))
    # the Beta distribution with the mean and the sd; of two questions it differs more
    drawn = np.quantile(means, [0.025, 0.975])
    margin = (0.25 if n_questions == 12 else 0.5) * posterior.sigma
    assert ends(posterior, 0.95) == pytest.approx(tuple(drawn), abs=margin)


@pytest.mark.parametrize("method", METHODS)
def test_every_method_stays_within_the_possible_scores(method):
    for counts in ([[0, 9]] * 3, [[9, 0]] * 3, [[0, 0]], [[4, 4], [0, 1]]):
        posterior = LATENT["mg-pass"](Outcomes.from_counts(counts))
        low, high = ends(posterior, 0.99, method)
        assert posterior.bounds[0] <= low <= high <= posterior.bounds[1]
        assert posterior.bounds[0] <= posterior.mu <= posterior.bounds[1]


def test_weights_of_two_values_are_merged():
    weights = [3.0, -1.0, -1.0]
    merged = bayes_at_n(Outcomes.from_counts([[2, 4, 1]], weights=weights))
    assert (merged.interval().mc_error, merged.interval().seed) == (None, None)
    expected = -1 + 4 * stats.beta(3, 7).ppf([0.025, 0.975])
    assert ends(merged) == pytest.approx(tuple(expected), abs=1e-12)


def test_three_weights_are_drawn_with_seed_and_error():
    outcomes = Outcomes.from_counts([[2, 4, 1], [0, 1, 5]], weights=[-1, 0.5, 2])
    posterior = bayes_at_n(outcomes)
    rng = np.random.default_rng(99)
    draws = np.mean(
        [rng.dirichlet(nu, 500_000) @ [-1, 0.5, 2] for nu in ([3, 5, 2], [1, 2, 6])], axis=0
    )
    interval = posterior.interval(0.95, "exact")
    assert interval.seed == 0
    assert 0 < interval.mc_error < 0.01
    assert (interval.low, interval.high) == pytest.approx(
        tuple(np.quantile(draws, [0.025, 0.975])), abs=5 * interval.mc_error
    )


def test_the_reported_error_is_the_scatter_of_the_ends():
    counts, weights = [[2, 4, 1], [0, 1, 5]], [-1, 0.5, 2]
    outcomes = Outcomes.from_counts(counts, weights=weights)
    runs = [hbayes_at_n(outcomes, seed=s).interval(0.9) for s in range(30)]
    scatter = max(np.std([r.low for r in runs]), np.std([r.high for r in runs]))
    assert np.median([r.mc_error for r in runs]) == pytest.approx(scatter, rel=0.5)


def test_beta_matches_the_moments_on_the_range_of_the_weights():
    outcomes = Outcomes.from_counts([[3, 1, 9]], weights=[-2, 0, 4])
    posterior = bayes_at_n(outcomes)
    low, high = ends(posterior, 0.9, "beta")
    mean, variance = (posterior.mu + 2) / 6, (posterior.sigma / 6) ** 2
    t = mean * (1 - mean) / variance - 1
    expected = -2 + 6 * stats.beta(mean * t, (1 - mean) * t).ppf([0.05, 0.95])
    assert (low, high) == pytest.approx(tuple(expected), abs=1e-10)


def test_beta_with_too_much_and_too_little_spread():
    # as much variance as two atoms have: the quantiles are the atoms
    assert beta_ends(0.5, 0.5, (0.0, 1.0), 0.95) == (0.0, 1.0)
    assert beta_ends(0.01, 0.4, (0.0, 2.0), 0.95) == (0.0, 0.0)
    assert beta_ends(1.99, 0.4, (0.0, 2.0), 0.95) == (2.0, 2.0)
    low, high = beta_ends(0.3, 1e-9, (0.0, 1.0), 0.95)
    assert (low, high) == pytest.approx((0.3 - 1.96e-9, 0.3 + 1.96e-9), abs=1e-11)


def test_priors_at_the_ends_and_a_million_trials():
    tiny = bayes_at_n(Outcomes.from_counts([[0, 3], [5, 0], [0, 0]]), 1e-4)
    low, high = ends(tiny)
    # the first two are all but certain, the third is 0 or 1 with even odds
    assert (low, high) == pytest.approx((1 / 3, 2 / 3), abs=5e-3)
    n = 10**6
    narrow = bayes_at_n(Outcomes.from_counts([[n // 2, n // 2], [n // 4, 3 * n // 4]]))
    assert ends(narrow) == pytest.approx(ends(narrow, method="normal"), abs=0.05 * narrow.sigma)


def test_an_interval_spec_names_the_argument_interval():
    with refused("interval", "choice", "wald"):
        IntervalSpec.of(0.9, "population", "wald")
    spec = IntervalSpec.of(0.9, "population", "beta", 3)
    assert spec == IntervalSpec(level=0.9, scope="population", method="beta", seed=3)


FOUR = bayes_at_n(Outcomes.from_matrix([[1, 1, 1, 1]]))


test_bad_arguments = refusals(
    (lambda: FOUR.interval(1), "level", "range"),
    (lambda: FOUR.interval(np.nan), "level", "range"),
    (lambda: FOUR.interval("0.95"), "level", "range"),
    (lambda: FOUR.interval(method="EXACT"), "method", "choice"),
    (lambda: IntervalSpec(scope="world"), "scope", "choice"),
)
