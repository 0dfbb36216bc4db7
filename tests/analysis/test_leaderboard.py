"""Leaderboards against draws from a plain grid, rules by hand, and pairs compared one by one."""

from __future__ import annotations

import json
import math
from functools import cache

import numpy as np
import pytest
from _support import by_hand
from _support.errors import refused
from scipy import stats

from lm_eval_bayes.analysis.comparability import identical_runs
from lm_eval_bayes.analysis.leaderboard import leaderboard, overall_leaderboard
from lm_eval_bayes.runs.task_run import TaskRun
from lm_eval_bayes.stats.comparison.compare import compare
from lm_eval_bayes.stats.intervals import IntervalSpec
from lm_eval_bayes.stats.outcomes import Outcomes
from lm_eval_bayes.stats.ranking.shared_scores import shared_scores

M, N = 20, 8


def build(model, chance, seed, task="aime", m=M, n=N, order=1):
    rng = np.random.default_rng(seed)
    p = np.clip(np.linspace(0.05, 0.95, m) ** (1 / max(chance, 1e-9) - 1), 0, 1)
    matrix = (rng.random((m, n)) < p[:, None]).astype(int)
    ids = [f"q{i}" for i in range(m)]
    return TaskRun.from_trials(model, task, matrix[::order], ids[::order])


@pytest.fixture(scope="module")
def four():
    # one of them keeps its questions the other way round
    return [
        build("a", 0.50, 1),
        build("b", 0.53, 2, order=-1),
        build("c", 0.25, 3),
        build("d", 0.7, 4),
    ]


@pytest.fixture(scope="module")
def board(four):
    return leaderboard(four)


def draws(run, seed):
    wrong, right = run.outcomes.counts.T
    return by_hand.LearnedPrior(right, wrong).draw(20_000, seed).mean(axis=1)


def test_probabilities_are_those_of_draws(four, board):
    drawn = {run.model: draws(run, seed) for seed, run in enumerate(four)}
    stack = np.stack([drawn[model] for model in board.models])
    assert board.models == tuple(sorted(drawn, key=lambda model: -drawn[model].mean()))
    best = np.bincount(stack.argmax(axis=0), minlength=4) / stack.shape[1]
    ranks = (stack[:, None] < stack[None]).sum(axis=1) + 1
    for i, row in enumerate(board.rows):
        assert row.posterior.mu == pytest.approx(stack[i].mean(), abs=0.004)
        low, high = np.quantile(stack[i], [0.025, 0.975])
        assert (row.interval.low, row.interval.high) == pytest.approx((low, high), abs=0.006)
        assert row.p_best == pytest.approx(best[i], abs=0.012)
        assert row.expected_rank == pytest.approx(ranks[i].mean(), abs=0.04)
        for j in range(4):
            above = 0.5 if i == j else (stack[i] > stack[j]).mean()
            assert board.ranking.p_greater[i, j] == pytest.approx(above, abs=0.03)
        held = (ranks[i] >= row.rank_low) & (ranks[i] <= row.rank_high)
        assert held.mean() >= 0.94
        assert (ranks[i] < row.rank_low).mean() < 0.04 > (ranks[i] > row.rank_high).mean()


def test_what_runs_took_stands_beside_them():
    tokens = tuple(np.full(2, 5.0) for _ in range(3))
    run = TaskRun.from_trials(
        "m", "aime", [[0, 1]] * 3, ["x", "y", "z"], measured={"completion_tokens": tokens}
    )
    (row,) = leaderboard([run]).rows
    assert (row.tokens, row.seconds, row.n_range) == (30, None, (2, 2))
    assert (row.rank, row.p_best, row.rank_high) == (1.0, 1.0, 1.0)


def test_population_pairs_questions_whatever_their_order(four):
    board = leaderboard(four, IntervalSpec(scope="population"))
    assert board.ranking.paired
    of = {run.model: run.outcomes for run in four}
    for i, a in enumerate(board.models):
        for j, b in enumerate(board.models[:i]):
            # one pair at a time: the same bootstrap over questions, from other draws
            pair = compare(of[a], of[b], scope="population")
            assert board.ranking.p_greater[i, j] == pytest.approx(pair.p_a_greater, abs=0.02)
            assert board.ranking.z[i, j] == pytest.approx(pair.z, rel=1e-6)


def test_identical_runs_are_named():
    trials = np.random.default_rng(0).integers(0, 2, (20, 4))
    ids = [f"q{i}" for i in range(20)]
    copies = [TaskRun.from_trials(f"copy {i}", "aime", trials, ids) for i in range(4)]
    turned = TaskRun.from_trials("turned", "aime", trials[::-1], ids[::-1])
    other = build("other", 0.5, 3, m=20, n=4)
    board = leaderboard([*copies[:2], other, turned, *copies[2:]])
    assert board.identical == (("copy 0", "copy 1", "turned", "copy 2", "copy 3"),)
    assert sum("copy 0, copy 1" in note for note in board.notes) == 1
    assert len({row.rank for row in board.rows if row.model != "other"}) == 1
    # the same counts in another order are no copy
    swapped = TaskRun.from_trials("swapped", "aime", trials[:, ::-1], ids)
    assert leaderboard([copies[0], swapped]).identical == ()
    # models that solve everything agree by chance
    perfect = [TaskRun.from_trials(name, "aime", np.ones((30, 4), int), range(30)) for name in "ab"]
    assert leaderboard(perfect).identical == ()


def test_copies_of_counts_are_found_without_trials():
    counts = np.random.default_rng(1).binomial(64, 0.5, 12)
    ids = [f"q{i}" for i in range(12)]
    outcomes = Outcomes.from_counts(np.stack([64 - counts, counts], axis=1), question_ids=ids)
    runs = [TaskRun(name, "aime", (), outcomes) for name in "ab"]
    assert identical_runs(runs) == (("a", "b"),)


@pytest.mark.parametrize("scope", ["benchmark", "population"])
def test_scores_under_the_shared_prior(four, scope):
    board = leaderboard(four, IntervalSpec(level=0.9, scope=scope))
    expected = shared_scores({row.model: row.posterior for row in board.rows}, 0.9)
    assert board.shared.models == board.models
    assert board.shared.p_greater == pytest.approx(expected.p_greater, abs=1e-12)
    assert board.to_dict()["shared"]["models"][0]["mu"] == pytest.approx(expected.mu[0], abs=1e-12)
    assert leaderboard(four[:1]).shared is None
    _, result = boards(scope)
    overall = overall_leaderboard(result)
    own = [row.mu for row in overall.rows]
    assert overall.shared.unshared_mu.tolist() == own
    assert np.ptp(overall.shared.mu) < np.ptp(own)


# -- what is refused -----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("rule", "came", "others"),
    [
        ("empty", "none", None),
        ("duplicate", "a, a", [("a", "x", "q", 2)]),
        ("mismatch", "x, y", [("b", "y", "q", 2)]),
        ("mismatch", "only a has q; only b has r", [("b", "x", "r", 2)]),
        ("mismatch", "[0.0, 0.5, 1.0] for b", [("b", "x", "q", 3)]),
    ],
)
def test_runs_that_cannot_be_ranked(rule, came, others):
    specified = [] if others is None else [("a", "x", "q", 2), *others]
    runs = [
        TaskRun.from_trials(model, task, [[1]], [question], weights=np.linspace(0, 1, categories))
        for model, task, question, categories in specified
    ]
    with refused("RUN", rule, came):
        leaderboard(runs)


# -- several tasks -------------------------------------------------------------------------------


@cache
def boards(scope):
    tasks = [
        [build(model, chance, seed + 10 * t, f"t{t}", m=12 + 4 * t) for model, chance, seed in who]
        for t, who in enumerate(
            [
                [("a", 0.5, 1), ("b", 0.55, 2), ("c", 0.3, 3)],
                [("c", 0.3, 4), ("a", 0.5, 5), ("b", 0.55, 6)],
                [("a", 0.5, 7), ("c", 0.4, 8), ("b", 0.5, 9)],
            ]
        )
    ]
    return tasks, [leaderboard(runs, IntervalSpec(scope=scope)) for runs in tasks]


def test_the_mean_over_tasks_counts_each_the_same():
    tasks, result = boards("benchmark")
    overall = overall_leaderboard(result)
    assert (overall.task, overall.tasks, overall.n_questions) == (
        "mean of 3 tasks",
        ("t0", "t1", "t2"),
        12 + 16 + 20,
    )
    drawn = {
        model: np.mean(
            [
                draws(run, seed=17 * t + ord(model))
                for t, runs in enumerate(tasks)
                for run in runs
                if run.model == model
            ],
            axis=0,
        )
        for model in "abc"
    }
    for i, row in enumerate(overall.rows):
        sample = drawn[row.model]
        assert row.posterior.mu == pytest.approx(sample.mean(), abs=0.002)
        assert row.posterior.sigma == pytest.approx(sample.std(), rel=0.03)
        low, high = np.quantile(sample, [0.025, 0.975])
        assert (row.interval.low, row.interval.high) == pytest.approx((low, high), abs=0.003)
        for j, other in enumerate(overall.rows):
            if i != j:
                above = (sample > drawn[other.model]).mean()
                assert overall.ranking.p_greater[i, j] == pytest.approx(above, abs=0.03)
        assert (row.tokens, row.n_range) == (None, None)
    json.dumps(overall.to_dict(), allow_nan=False)


def test_the_mean_over_tasks_pairs_questions_in_scope_population():
    tasks, result = boards("population")
    overall = overall_leaderboard(result)
    assert overall.ranking.paired
    assert overall.ranking.scope == "population"
    for i, a in enumerate(overall.models):
        for j, b in enumerate(overall.models[:i]):
            pairs = []
            for runs in tasks:
                of = {run.model: run.outcomes for run in runs}
                pairs.append(compare(of[a], of[b], scope="population"))
            mean = np.mean([pair.difference for pair in pairs])
            sd = math.sqrt(sum(pair.sd**2 for pair in pairs)) / 3
            # the models are ordered by their own means, the pairs by what was observed
            if (mean > 0) == (i < j):
                assert overall.ranking.z[i, j] == pytest.approx(abs(mean) / sd, rel=1e-6)
            # a mean over tasks and questions is all but normal
            assert overall.ranking.p_greater[i, j] == pytest.approx(
                stats.norm.cdf(mean / sd), abs=0.03
            )
