"""`compare`, `rank`, `plan --apart` and the report's table of pairs: one rule for every pair."""

from __future__ import annotations

from dataclasses import replace
from itertools import combinations

import numpy as np
import pytest
from scipy import special

from lm_eval_bayes.analysis.comparison import compare_runs
from lm_eval_bayes.analysis.gate import gate_checks
from lm_eval_bayes.analysis.leaderboard import leaderboard, overall_leaderboard
from lm_eval_bayes.analysis.plan import plan_separation
from lm_eval_bayes.analysis.report_data import report_data
from lm_eval_bayes.report.page.tables import score_table
from lm_eval_bayes.runs.reader import read_runs
from lm_eval_bayes.runs.task_run import SavedRuns, TaskRun
from lm_eval_bayes.stats.distributions.base import Distribution
from lm_eval_bayes.stats.intervals import IntervalSpec
from lm_eval_bayes.stats.ranking.rank import rank
from lm_eval_bayes.stats.sequential.decision import DecisionReached
from lm_eval_bayes.stats.uniform_prior import bayes_at_n

BENCHMARK, POPULATION = IntervalSpec(), IntervalSpec(scope="population")


def board(seed, lifts, m=15, n=4, task="aime"):
    """Models whose logits are those of the questions plus a lift, N(0, 1.5²)."""
    rng = np.random.default_rng(seed)
    p = special.expit(rng.normal(0.0, 1.5, m) + np.array(lifts)[:, None])
    trials = (rng.random((len(lifts), m, n)) < p[..., None]).astype(int)
    ids = [f"q{i}" for i in range(m)]
    return [TaskRun.from_trials(f"m{i}", task, each, ids) for i, each in enumerate(trials)]


def pairs_of(models, separated):
    """The pairs of a matrix of which model is better than which."""
    return {frozenset((models[i], models[j])) for i, j in np.argwhere(separated).tolist()}


def distinguishable(runs, spec):
    """The pairs that are distinguishable by rank and by plan, which agree."""
    ranking = leaderboard(runs, spec).ranking
    by_rank = pairs_of(ranking.models, ranking.simultaneous.separated)
    plan = plan_separation(runs, spec, max_trials=4)
    planned = {frozenset(line.models) for line in plan.lines}
    pairs = {frozenset(pair) for pair in combinations(ranking.models, 2)}
    assert pairs - planned == by_rank
    assert {frozenset(pair) for pair in plan.distinguishable} == by_rank
    assert by_rank == pairs_of(ranking.models, ranking.distinguishable)
    assert not any(line.reached for line in plan.lines)
    return by_rank


@pytest.mark.parametrize(("spec", "n"), [(BENCHMARK, 4), (POPULATION, 1)])
def test_two_models(spec, n):
    answers = []
    for seed in (0, 3, 7):
        runs = board(seed, [0.0, 0.35 * seed], n=n)
        (task,) = compare_runs(*([run] for run in runs), spec).tasks
        assert task.distinguishable == bool(distinguishable(runs, spec))
        c = task.comparison
        better = {"A is better than B:": "a", "B is better than A:": "b"}.get(task.verdict[:19])
        assert (better is not None) == task.distinguishable
        if better is not None:
            assert c.interval.low > 0.0 if better == "a" else c.interval.high < 0.0
        answers.append(task.distinguishable)
    assert 0 < sum(answers) < 3


@pytest.mark.parametrize("spec", [BENCHMARK, POPULATION], ids=lambda spec: spec.scope)
def test_several_models(spec):
    runs = board(3, [1.6, 0.8, 0.0, -0.6])
    separated = distinguishable(runs, spec)
    assert 0 < len(separated) < 6
    (panel,) = report_data(SavedRuns(tuple(runs)), replace(spec, method="normal")).panels
    rows = score_table(panel.scores).rows
    apart = {(i, int(j)) for i, row in enumerate(rows) for j in row.apart.split()}
    models = panel.board.models
    assert {frozenset((models[i], models[j])) for i, j in apart} == separated


@pytest.mark.slow
@pytest.mark.parametrize("spec", [BENCHMARK, POPULATION], ids=lambda spec: spec.scope)
def test_eight_boards(spec):
    """Plan as rank of three models; compare as rank of every two."""
    answers = []
    for seed in range(8):
        runs = board(seed, [1.0, 0.4, 0.0], n=1 + seed % 4)
        distinguishable(runs, spec)
        for a, b in combinations(runs, 2):
            (task,) = compare_runs([a], [b], spec).tasks
            ranking = leaderboard([b, a], spec).ranking
            assert task.distinguishable == ranking.distinguishable[0, 1]
            answers.append(task.distinguishable)
    assert 3 < sum(answers) < 20


def test_two_hundred_boards(monkeypatch):
    """Every command's answer on boards of three models, with bayes@N for the speed of it."""
    fits = {}  # a model's draws are the same ones everywhere

    def plain(outcomes, *args, **kwargs):
        return fits.setdefault(outcomes.counts.tobytes(), bayes_at_n(outcomes))

    monkeypatch.setattr(Distribution, "n_draws", 1_000)
    monkeypatch.setattr("lm_eval_bayes.stats.ranking.simultaneous._MAX_DRAWS", 4_000)
    monkeypatch.setattr("lm_eval_bayes.analysis.plan.hbayes_at_n", plain)
    monkeypatch.setattr(
        "lm_eval_bayes.stats.comparison.compare.FITS", {"hbayes": plain, "bayes": plain}
    )
    answers = []
    for seed in range(200):
        runs = board(seed, [1.0, 0.4, 0.0], m=12, n=8)
        posteriors = {run.model: plain(run.outcomes) for run in runs}
        three = rank(posteriors, draws=1000)
        plan = plan_separation(runs, max_trials=1)
        by_rank = pairs_of(three.models, three.simultaneous.separated)
        assert {frozenset(pair) for pair in plan.distinguishable} == by_rank
        a, b = runs[seed % 3], runs[(seed + 1) % 3]
        pair = {run.model: posteriors[run.model] for run in (a, b)}
        separated = bool(rank(pair, draws=1000).distinguishable[0, 1])
        comparison = compare_runs([a], [b])
        (task,), (check,) = comparison.tasks, gate_checks(comparison, margin=0.0)
        assert task.distinguishable == separated
        assert (check.outcome == "failed") == (separated and task.comparison.difference < 0.0)
        assert DecisionReached().evaluate(8, pair).stop == separated
        answers.append(separated)
    assert 40 < sum(answers) < 160


@pytest.mark.parametrize("spec", [BENCHMARK, POPULATION], ids=lambda spec: spec.scope)
def test_two_models_on_the_mean_of_two_tasks(spec):
    for seed in (1, 7):
        tasks = [board(2 * seed + i, [0.0, 0.15 * seed], task=f"t{i}") for i in range(2)]
        overall = compare_runs(*zip(*tasks, strict=True), spec).overall
        ranking = overall_leaderboard([leaderboard(runs, spec) for runs in tasks]).ranking
        assert overall.distinguishable == bool(ranking.simultaneous.separated.any())


def test_a_probability_of_95_percent_is_no_verdict():
    """20 of 40 and 28 of 40: z = 1.83 by normal proportions, one-sided .966, two-sided .067."""
    trials = [[[1, 0]] * 20, [[1, 0]] * 12 + [[1, 1]] * 8]
    runs = [
        TaskRun.from_trials(name, "t", each, [f"q{i}" for i in range(20)])
        for name, each in zip("ab", trials, strict=True)
    ]
    (task,) = compare_runs([runs[0]], [runs[1]]).tasks
    c = task.comparison
    assert 0.95 < 1.0 - c.p_a_greater < 0.975
    assert c.interval.low < 0.0 < c.interval.high
    assert not task.distinguishable
    assert task.verdict.startswith("Undecided: ")
    assert leaderboard(runs).ranking.ranks.tolist() == [1.0, 1.0]
    assert plan_separation(runs).distinguishable == ()


def test_the_nineteen_models_of_aime(shared):
    """107 to 109 of the 171 pairs by `rank`, by seed; 141 have a z above 1.645."""
    path = shared / "data" / "outcomes" / "matharena_aime_2025_II.csv"
    runs = read_runs(path).runs
    assert leaderboard(runs).ranking.simultaneous.separated.sum() in range(107, 110)
