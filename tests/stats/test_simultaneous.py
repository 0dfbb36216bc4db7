"""Simultaneous comparisons against scipy's distributions, plain draws and rules by hand."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from _support.outcomes import binary_outcomes
from scipy import special, stats

from lm_eval_bayes.stats.comparison.difference import cluster_values
from lm_eval_bayes.stats.hierarchical.hbayes_at_n import hbayes_at_n
from lm_eval_bayes.stats.ranking.rank import rank
from lm_eval_bayes.stats.ranking.simultaneous import (
    compare_simultaneously,
    independent_errors,
    pair_errors,
    paired_errors,
)
from lm_eval_bayes.stats.tie_rules import separation_levels
from lm_eval_bayes.stats.uniform_prior import bayes_at_n


@pytest.mark.parametrize(("n_models", "confidence"), [(2, 0.95), (20, 0.5)])
def test_equal_sds_have_the_studentized_range(n_models, confidence):
    errors = independent_errors(np.zeros(n_models), np.full(n_models, 0.03))
    result = compare_simultaneously([errors], n_models, confidence, seed=1)
    expected = stats.studentized_range.ppf(confidence, n_models, np.inf) / np.sqrt(2)
    assert result.critical_value == pytest.approx(expected, rel=0.02)
    assert not result.separated.any()
    assert (result.rank_low.tolist(), result.rank_high.tolist()) == (
        [1.0] * n_models,
        [float(n_models)] * n_models,
    )


def test_uncertain_sds_raise_the_critical_value():
    """Two models, each variance known up to a factor min(χ²/6, 1); their mean by quadrature."""
    errors = independent_errors(np.zeros(2), np.full(2, 0.03), 6.0)
    result = compare_simultaneously([errors], 2, 0.95, seed=1)
    factor = np.minimum(stats.chi2.ppf((np.arange(400) + 0.5) / 400, 6) / 6, 1.0)
    sd = np.sqrt((factor[:, None] + factor) / 2)
    beyond = 2 * stats.norm.sf(result.critical_value * sd).mean()
    assert beyond == pytest.approx(0.05, abs=0.003)


def test_the_critical_value_of_paired_models_against_simulated_tables():
    """The largest |z| of tables of normal scores with the same covariance."""
    rng = np.random.default_rng(3)
    n_models, n_questions = 5, 15
    mixing = rng.normal(size=(n_models, n_models))
    average = mixing @ rng.normal(size=(n_models, n_questions))
    errors = paired_errors(average, np.zeros_like(average))
    result = compare_simultaneously([errors], n_models, 0.9, seed=4)
    root = np.linalg.cholesky(np.cov(average))
    tables = root @ rng.normal(size=(8000, n_models, n_questions))
    largest = np.zeros(8000)
    for i, j in itertools.combinations(range(n_models), 2):
        t = stats.ttest_1samp(tables[:, i] - tables[:, j], 0.0, axis=1).statistic
        largest = np.maximum(largest, np.abs(t))
    scale = np.sqrt((n_questions - 1) / (n_questions * (1 - 4 / n_questions) + 1))
    assert result.critical_value * scale == pytest.approx(np.quantile(largest, 0.9), rel=0.03)


def test_later_steps_have_smaller_critical_values():
    # left after the first step: the wrong directions of five pairs, both of the last one
    scores = np.random.default_rng(1).standard_normal((200_000, 4)) / np.sqrt(2)
    apart = [scores[:, j] - scores[:, i] for i, j in itertools.combinations(range(4), 2)]
    first = np.quantile(np.abs(apart).max(axis=0), 0.95)
    second = np.quantile(np.max([*apart, -apart[-1]], axis=0), 0.95)
    assert second < first - 0.15
    gap = 0.5 * (first + second) * 0.01 * np.sqrt(2)
    mu = np.array([0.9, 0.7, 0.5, 0.5 - gap])
    errors = independent_errors(mu, np.full(4, 0.01))
    result = compare_simultaneously([errors], 4, 0.95, seed=0)
    assert abs(result.z[2, 3]) < result.critical_value == pytest.approx(first, abs=0.05)
    assert result.separated[2, 3]


def test_levels_by_hand():
    better = np.zeros((5, 5), dtype=bool)
    better[0, [2, 3]] = better[2, 3] = True
    assert separation_levels(better).tolist() == [0, 0, 1, 2, 0]


def test_the_mean_of_tasks_is_that_of_its_parts():
    rng = np.random.default_rng(6)
    sigma = rng.uniform(0.01, 0.05, (3, 4))
    mu = rng.random((3, 4))
    tasks = [independent_errors(*each) for each in zip(mu, sigma, strict=True)]
    joint = independent_errors(
        mu.mean(axis=0),
        np.sqrt((sigma**2).sum(axis=0)) / 3,
    )
    of_tasks = compare_simultaneously(tasks, 4, 0.95, seed=7)
    of_mean = compare_simultaneously([joint], 4, 0.95, seed=8)
    np.testing.assert_allclose(of_tasks.z, of_mean.z)
    assert of_tasks.critical_value == pytest.approx(of_mean.critical_value, rel=0.03)


def test_one_model_and_equal_models():
    alone = rank({"only": bayes_at_n(binary_outcomes([3, 1], 4))})
    assert (alone.ranks.tolist(), alone.simultaneous.critical_value) == ([1.0], 0.0)
    assert (alone.rank_low.tolist(), alone.rank_high.tolist()) == ([1.0], [1.0])
    for scope in ("benchmark", "population"):
        for n in (1, 4):
            copies = {
                f"m{i}": hbayes_at_n(binary_outcomes([1, 0, 1, 1], n), scope) for i in range(5)
            }
            assert rank(copies).ranks.tolist() == [1.0] * 5


def test_one_trial_per_question_is_paired_in_both_scopes():
    rng = np.random.default_rng(10)
    p = special.expit(rng.normal(0.0, 3.0, 40))
    right = [rng.binomial(1, p) for _ in range(3)]
    for scope in ("benchmark", "population"):
        ranking = rank(
            {f"m{i}": hbayes_at_n(binary_outcomes(x, 1), scope) for i, x in enumerate(right)}
        )
        rows = [right[int(name[1])] for name in ranking.models]
        for i, j in itertools.combinations(range(3), 2):
            off = rows[i] - rows[j]
            sd = np.sqrt((off**2).mean() / (40 * (1 - 4 / 40) + 1))
            assert ranking.simultaneous.z[i, j] == pytest.approx(off.mean() / sd, abs=1e-9)


@pytest.mark.parametrize("scope", ["benchmark", "population"])
@pytest.mark.parametrize("m", [2, 3, 5])
def test_few_questions_on_which_two_models_differ_do_not_separate_them(scope, m):
    right = {"a": [1] * m, "b": [0] * m}
    ranking = rank({name: hbayes_at_n(binary_outcomes(x, 1), scope) for name, x in right.items()})
    assert ranking.ranks.tolist() == [1.0, 1.0]
    assert ranking.simultaneous.critical_value == pytest.approx(1.96, abs=0.05)


def test_only_pairs_with_few_trials_are_paired():
    rng = np.random.default_rng(11)
    many = [hbayes_at_n(binary_outcomes(rng.binomial(16, 0.5, 10), 16)) for _ in range(2)]
    once = hbayes_at_n(binary_outcomes(rng.binomial(1, 0.5, 10), 1))
    errors = pair_errors([*many, once])
    assert errors.variance[0] == pytest.approx(many[0].sigma ** 2 + many[1].sigma ** 2)
    drawn = errors.draw(20_000, np.random.default_rng(0))
    assert drawn.error.var(axis=1)[0] == pytest.approx(errors.variance[0], rel=0.05)
    off = many[0].question_means.average - once.question_means.average
    assert errors.variance[1] == pytest.approx((off**2).mean() / (10 * 0.6 + 1))
    # a posterior under the uniform prior has no means of questions to pair
    uniform = [bayes_at_n(binary_outcomes([1, 0, 1], 1)), bayes_at_n(binary_outcomes([0, 0, 1], 1))]
    sigma = [posterior.sigma for posterior in uniform]
    assert pair_errors(uniform).variance == pytest.approx([np.hypot(*sigma) ** 2])


def test_sets_of_ranks_hold_the_separations_and_are_plain():
    rng = np.random.default_rng(12)
    runs = {f"m{i}": binary_outcomes(rng.binomial(16, 0.3 + 0.06 * i, 60), 16) for i in range(7)}
    ranking = rank({name: hbayes_at_n(run) for name, run in runs.items()})
    better = ranking.simultaneous.separated
    for i in range(7):
        assert ranking.rank_low[i] == 1 + sum(better[j, i] for j in range(7))
        assert ranking.rank_high[i] == 7 - sum(better[i, j] for j in range(7))
    assert np.all(ranking.ranks <= ranking.rank_low)
    assert 1 < np.unique(ranking.ranks).size < 7
    assert ranking.to_dict()["simultaneous"]["separated"] == better.tolist()


@pytest.mark.slow
def test_joint_sets_hold_all_ranks():
    """Normal scores of known sd: every statement holds as often as it says."""
    rng = np.random.default_rng(13)
    truth = np.repeat([0.5, 0.47, 0.40], 2) + 1e-6 * np.arange(6)
    true_ranks = (truth[:, None] < truth).sum(axis=1) + 1.0
    sigma = np.array([0.02, 0.01, 0.03, 0.02, 0.01, 0.02])
    joint = []
    for seed in range(300):
        errors = independent_errors(rng.normal(truth, sigma), sigma)
        result = compare_simultaneously([errors], 6, 0.9, seed)
        joint.append(np.all((result.rank_low <= true_ranks) & (true_ranks <= result.rank_high)))
    assert np.mean(joint) >= 0.9 - 2 * 0.018


@pytest.mark.slow
def test_models_whose_clusters_differ_are_rarely_separated():
    """Equal in the population: six models with effects of their own on ten clusters of three."""
    rng = np.random.default_rng(12)
    index = np.repeat(np.arange(10), 3)
    separated = {True: 0, False: 0}
    for run in range(200):
        effect = rng.normal(0.0, 1.0, 10) + rng.normal(0.0, 0.7, (6, 10))
        average = rng.binomial(4, special.expit(effect[:, index])) / 4
        p = (4 * average + 0.6) / 5.2
        for clustered in separated:
            values = cluster_values(average, p * (1 - p) / 4, index if clustered else None)
            errors = paired_errors(*values, clustered=clustered)
            separated[clustered] += compare_simultaneously([errors], 6, 0.95, run).separated.any()
    # P(more than 19 of 200 | 5%) is .3%
    assert separated[True] <= 19
    assert separated[False] > 24
