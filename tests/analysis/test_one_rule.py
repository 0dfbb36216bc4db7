"""`compare`, `rank`, `plan --apart` and the report's table of pairs: one rule for every pair."""

from __future__ import annotations

import json
from dataclasses import replace
from itertools import combinations

import numpy as np
import pytest
from _support.command_line import answer, called
from scipy import special

from lm_eval_bayes.analysis.comparison import compare_runs
from lm_eval_bayes.analysis.gate import gate_checks
from lm_eval_bayes.analysis.leaderboard import leaderboard, overall_leaderboard
from lm_eval_bayes.analysis.plan import plan_separation
from lm_eval_bayes.analysis.report_data import report_data
from lm_eval_bayes.harness.adaptive.stopping import Goal
from lm_eval_bayes.report.page.tables import score_table
from lm_eval_bayes.runs.reader import read_runs
from lm_eval_bayes.runs.task_run import SavedRuns, TaskRun
from lm_eval_bayes.stats.distributions import Distribution
from lm_eval_bayes.stats.hierarchical.hbayes_at_n import hbayes_at_n
from lm_eval_bayes.stats.intervals import IntervalSpec

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
        if task.distinguishable:
            assert not task.comparison.interval.low <= 0.0 <= task.comparison.interval.high
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


def simulated(seed):
    """Runs of 2 to 6 models by task, some equal, some copies, some with their questions turned."""
    rng = np.random.default_rng(seed)
    n_models, m = int(rng.choice([2, 2, 2, 3, 3, 4, 5, 6])), int(rng.integers(5, 61))
    n, n_tasks = int(rng.choice([1, 2, 4, 8, 16])), 2 if seed % 10 == 0 else 1
    lifts = rng.choice([0.0, 0.5, 1.0, 2.0, 4.0], n_models)
    tasks = []
    for task in range(n_tasks):
        p = special.expit(rng.normal(0.0, 1.5, m) + lifts[:, None])
        trials = (rng.random((n_models, m, n)) < p[..., None]).astype(int)
        if seed % 7 == 0:
            trials[-1] = trials[0]
        orders = [rng.permutation(m) if seed % 3 == 0 else np.arange(m) for _ in lifts]
        tasks.append(
            [
                TaskRun.from_trials(f"m{i}", f"t{task}", each[order], [f"q{j}" for j in order])
                for i, (each, order) in enumerate(zip(trials, orders, strict=True))
            ]
        )
    return tasks, n


@pytest.fixture
def quick(monkeypatch):
    """Fit every outcome matrix once, and draw less: the same draws everywhere."""
    monkeypatch.setattr(Distribution, "n_draws", 1_000)
    for name in ("_MIN_DRAWS", "_MAX_DRAWS"):
        monkeypatch.setattr(f"lm_eval_bayes.stats.ranking.simultaneous.{name}", 1_000)
    for name in ("DRAWS", "_FEWEST"):
        monkeypatch.setattr(f"lm_eval_bayes.stats.ranking.shared_scores.{name}", 500)
    fits = {}

    def fit(outcomes, *args, **kwargs):
        key = outcomes.counts.tobytes(), outcomes.question_ids, args, *sorted(kwargs.items())
        if key not in fits:
            fits[key] = hbayes_at_n(outcomes, *args, **kwargs)
        return fits[key]

    for module in (
        *("stats.hierarchical.hbayes_at_n", "stats.comparison.compare"),
        "harness.adaptive.stopping",
    ):
        monkeypatch.setattr(f"lm_eval_bayes.{module}.hbayes_at_n", fit)
    return fits


def by_rank(runs_by_task, spec):
    """The distinguishable pairs of models, the better first, of a task or of the mean of tasks."""
    boards = [leaderboard(runs, spec) for runs in runs_by_task]
    board = boards[0] if len(boards) == 1 else overall_leaderboard(boards)
    separated = board.ranking.simultaneous.separated
    return {(board.models[i], board.models[j]) for i, j in np.argwhere(separated).tolist()}


@pytest.mark.slow
def test_two_hundred_boards(quick):
    """The answers of every command, in the scope that is asked for.

    That of `run --decide` is at one look that of the others, and at one of several, which are
    corrected for, never "distinguishable" where theirs is not.
    """
    answers, stops = [], []
    for seed in range(200):
        quick.clear()
        tasks, n = simulated(seed)
        spec = POPULATION if seed % 2 else BENCHMARK
        for runs in tasks:
            plan = plan_separation(runs, spec, max_trials=1)
            assert {*plan.distinguishable} == by_rank([runs], spec)
        sides = (0, -1) if seed % 4 < 2 else (1, 0)
        a, b = ([runs[side] for runs in tasks] for side in sides)
        better = by_rank(list(zip(a, b, strict=True)), spec)
        comparison = compare_runs(a, b, spec)
        pair = comparison.overall or comparison.tasks[0]
        assert pair.distinguishable == bool(better)
        (check,) = gate_checks(comparison, margin=0.0)
        outcomes = {(a[0].model, b[0].model): "passed", (b[0].model, a[0].model): "failed"}
        assert check.outcome == (outcomes[better.pop()] if better else "not known yet")
        answers.append(pair.distinguishable)
        if len(tasks) > 1 or spec is POPULATION or n < 4:
            continue
        for n_looks in (1, 4):
            goal = Goal(baseline={"t0": b[0]}, batch_trials=n, max_trials=n * n_looks)
            analysis = goal.analyze(a[0], n)
            assert analysis.distinguishable == pair.distinguishable
            assert analysis.reached <= pair.distinguishable
            assert n_looks > 1 or analysis.reached == pair.distinguishable
            stops.append(analysis.reached)
    assert 40 < sum(answers) < 160
    assert 20 < sum(stops) < len(stops) - 20


BOARDS = range(0, 30, 3)


@pytest.mark.slow
def test_ten_boards_by_their_commands(tmp_path):
    """`rank`, `plan`, `compare` and `report` with --json, and `gate`, of the first two models."""
    answers = []
    for seed in BOARDS:
        ((*runs,), *_), _ = simulated(seed)
        path = tmp_path / f"{seed}.csv"
        lines = [
            f"{run.model},{question},{trial},{outcome}"
            for run in runs
            for question, trials in zip(run.question_ids, run.trials, strict=True)
            for trial, outcome in enumerate(trials.tolist())
        ]
        path.write_text("\n".join(["model,question,trial,score", *lines]) + "\n")
        scope = ("--scope", "population" if seed % 2 else "benchmark")
        (board,) = answer("rank", path, *scope)["leaderboards"]
        models = [place["model"] for place in board["places"]]
        ranked = pairs_of(models, board["simultaneous"]["separated"])
        (plan,) = answer("plan", path, *scope, "--max-trials", "1")["separation"]
        assert {frozenset(pair) for pair in plan["distinguishable"]} == ranked
        page = ("report", path, *scope, "-o", tmp_path / "page.html", "--no-texts")
        (board,) = answer(*page)["leaderboards"]
        assert pairs_of(board["models"], board["distinguishable"]) == ranked
        pair = ("-a", "m0", "-b", "m1")
        (task,) = answer("compare", path, *pair, *scope)["tasks"]
        known = json.loads(called("gate", path, *pair, *scope, "--json")[1])["outcome"]
        assert task["distinguishable"] == (known != "not known yet")
        if len(models) == 2:
            assert task["distinguishable"] == bool(ranked)
        answers.append(len(ranked))
    assert sum(answers) > 0


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
    assert leaderboard(runs).ranking.ranks.tolist() == [1.0, 1.0]
    assert plan_separation(runs).distinguishable == ()


def test_the_nineteen_models_of_aime(shared):
    """107 to 109 of the 171 pairs by `rank`, by seed; 141 have a z above 1.645."""
    path = shared / "data" / "outcomes" / "matharena_aime_2025_II.csv"
    runs = read_runs(path).runs
    assert leaderboard(runs).ranking.simultaneous.separated.sum() in range(107, 110)
