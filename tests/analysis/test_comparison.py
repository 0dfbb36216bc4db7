"""Two models against draws from a plain grid, the sums of a 2x2 table, and normal laws."""

from __future__ import annotations

import json
import math

import numpy as np
import pytest
from _support import by_hand
from _support.errors import refused
from scipy import stats

from lm_eval_bayes import hbayes_at_n, mean_over_tasks
from lm_eval_bayes.analysis.comparison import compare_runs
from lm_eval_bayes.runs.task_run import TaskRun
from lm_eval_bayes.stats.intervals import IntervalSpec

M = 16


def build(model, seed, lift=0.0, task="aime", n=8, m=M, **more):
    rng = np.random.default_rng(seed)
    p = np.clip(np.linspace(0.0, 0.9, m) + lift, 0.0, 1.0)
    matrix = (rng.random((m, n)) < p[:, None]).astype(int)
    texts = tuple(f"What is {i}?" for i in range(m))
    more = {"questions": texts, **more}
    return TaskRun.from_trials(model, task, matrix, [f"q{i}" for i in range(m)], **more)


@pytest.fixture(scope="module")
def pair():
    return build("new", 1, 0.08), build("old", 2)


def grid(run):
    wrong, right = run.outcomes.counts.T
    return by_hand.LearnedPrior(right, wrong)


@pytest.fixture(scope="module")
def drawn(pair):
    return [grid(run).draw(60_000, seed) for seed, run in enumerate(pair)]


def test_the_difference_is_that_of_draws(pair, drawn):
    (result,) = compare_runs([pair[0]], [pair[1]], rope=0.05).tasks
    difference = drawn[0].mean(axis=1) - drawn[1].mean(axis=1)
    c = result.comparison
    assert c.difference == pytest.approx(difference.mean(), abs=0.1 * c.sd)
    assert c.sd == pytest.approx(difference.std(), rel=0.03)
    low, high = np.quantile(difference, [0.025, 0.975])
    assert (c.interval.low, c.interval.high) == pytest.approx((low, high), abs=0.15 * c.sd)
    assert c.p_a_greater == pytest.approx((difference > 0).mean(), abs=0.01)
    assert c.p_rope == pytest.approx((np.abs(difference) <= 0.05).mean(), abs=0.02)
    assert (result.a.model, result.b.model) == ("new", "old")


def test_the_questions_that_drive_it(pair):
    (result,) = compare_runs([pair[0]], [pair[1]], n_questions=4).tasks
    first, second = (hbayes_at_n(run.outcomes).per_question.mu for run in pair)
    mean = first - second
    largest = np.sort(np.abs(mean))[::-1]
    assert len(result.questions) == 4
    for item, expected in zip(result.questions, largest, strict=False):
        row = int(item.question_id[1:])
        assert abs(item.difference) == pytest.approx(expected, abs=1e-12)
        assert item.difference == pytest.approx(mean[row], abs=1e-12)
        assert item.a == tuple(pair[0].outcomes.counts[row].tolist())
        assert item.text == f"What is {row}?"
    every = compare_runs([pair[0]], [pair[1]], n_questions=M).tasks[0]
    shares = sum(item.difference for item in every.questions) / M
    same = pair[0].outcomes.counts[:, 1] == pair[1].outcomes.counts[:, 1]
    assert len(every.questions) == M - same.sum() < M
    left_out = every.comparison.posterior.per_question.mu[same].sum() / M
    assert shares + left_out == pytest.approx(every.comparison.difference, abs=1e-9)


def test_questions_are_matched_by_id_and_left_out_by_request(pair):
    a, b = pair
    half = TaskRun.from_trials("half", "aime", b.trials[::-2], b.question_ids[::-2])
    with refused("B", "mismatch", "only new has q0, q2, q4 and 5 more"):
        compare_runs([a], [half])
    (result,) = compare_runs([a], [half], align="intersection", n_questions=8).tasks
    assert (result.comparison.n_questions, result.comparison.left_out_a) == (8, 8)
    for item in result.questions:
        row = int(item.question_id[1:])
        assert (item.a, item.b) == (
            tuple(a.outcomes.counts[row].tolist()),
            tuple(b.outcomes.counts[row].tolist()),
        )
        assert item.text == f"What is {row}?"  # which only one side knows
    other = TaskRun.from_trials("other", "aime", [[1]], ["nothing"])
    with refused("B", "empty", 0):
        compare_runs([a], [other], align="intersection")
    item = TaskRun.from_trials("one", "aime", [[1]], ["q3"])
    with refused("B", "empty", 1):
        compare_runs([a], [item], IntervalSpec(scope="population"), align="intersection")


def test_pass_curves_are_the_estimators_in_scope_population(pair):
    population = IntervalSpec(scope="population")
    (result,) = compare_runs([pair[0]], [pair[1]], population, ks=[1, 2, 4, 8]).tasks
    curves = result.curves
    assert curves.ks.tolist() == [1, 2, 4, 8]
    for side, run in ((curves.a, pair[0]), (curves.b, pair[1])):
        for k, value in zip((1, 2, 4, 8), side, strict=True):
            rows = [by_hand.g_pass_at_k(row.tolist(), k) for row in run.trials]
            assert value == pytest.approx(np.mean(rows))
    beyond = compare_runs([pair[0]], [pair[1]], ks=[1, 20]).tasks[0].curves
    assert beyond.ks.tolist() == [1, 20]
    assert "k = 20" in beyond.note
    with refused("k", "range", 20):
        compare_runs([pair[0]], [pair[1]], population, ks=[20])


def test_pass_curves_need_right_and_wrong():
    a = TaskRun.from_trials("a", "x", [[0, 2]], ["q"], weights=(0, 0.5, 1))
    b = TaskRun.from_trials("b", "x", [[1, 1]], ["q"], weights=(0, 0.5, 1))
    (result,) = compare_runs([a], [b]).tasks
    assert result.comparison.mc_error > 0
    # one trial in each end against two in the middle: the same mean by symmetry
    assert result.comparison.p_a_greater == pytest.approx(0.5, abs=0.02)
    with refused("k", "unsupported", "3 categories"):
        compare_runs([a], [b], ks=[1])
    c, d = (TaskRun.from_trials(name, "x", [[0, 1], []], ["q", "r"]) for name in "cd")
    with refused("k", "unsupported", "0 trials"):
        compare_runs([c], [d], ks=[1])


# -- several tasks -------------------------------------------------------------------------------


@pytest.mark.parametrize("scope", ["benchmark", "population"])
def test_the_mean_of_the_tasks(scope):
    a = [build("a", 1, 0.05, "x"), build("a", 2, 0.1, "y", m=30), build("a", 3, task="only a")]
    b = [build("b", 5, task="only b"), build("b", 6, 0.0, "y", m=30), build("b", 7, 0.0, "x")]
    result = compare_runs(a, b, IntervalSpec(scope=scope), rope=0.02)
    assert [item.task for item in result.tasks] == ["x", "y"]
    assert (result.only_a, result.only_b) == (("only a",), ("only b",))
    parts = [item.comparison for item in result.tasks]
    overall = result.overall
    mean = (parts[0].difference + parts[1].difference) / 2
    sd = math.hypot(parts[0].sd, parts[1].sd) / 2
    if scope == "benchmark":
        # the tasks of either model share a prior
        first, second = (
            mean_over_tasks(
                {task: run.outcomes for task in "xy" for run in side if run.task == task}
            )
            for side in (a, b)
        )
        mean, sd = first.mu - second.mu, math.hypot(first.sigma, second.sigma)
        assert sd == pytest.approx(math.hypot(parts[0].sd, parts[1].sd) / 2, rel=0.02)
    assert (overall.posterior.mu, overall.posterior.sigma) == pytest.approx((mean, sd), abs=1e-9)
    assert overall.z == pytest.approx(abs(mean) / sd)
    normal = stats.norm(mean, sd)
    assert overall.p_a_greater == pytest.approx(normal.sf(0.0), abs=0.01)
    assert overall.p_rope == pytest.approx(normal.cdf(0.02) - normal.cdf(-0.02), abs=0.015)
    ends = overall.interval
    assert (ends.low, ends.high) == pytest.approx(normal.ppf([0.025, 0.975]), abs=0.01)
    assert ends.scope == scope
    assert result.summary.p_a_greater == overall.p_a_greater
    assert overall.mc_error > 0.0
    json.dumps(result.to_dict(), allow_nan=False)


def test_certain_and_equal_models():
    # two categories of one score: everything scores 1
    sure = [TaskRun.from_trials("s", t, [[0]], ["q"], weights=(1.0, 1.0)) for t in "xy"]
    result = compare_runs(sure, sure, rope=0.0)
    assert (result.overall.z, result.summary.p_a_greater, result.overall.p_rope) == (0.0, 0.5, 1.0)
    assert result.overall.rule_z == "undecided"
    assert result.tasks[0].questions == ()


def test_what_is_refused(pair):
    a, _ = pair
    with refused("B", "mismatch", "hmmt"):
        compare_runs([a], [build("b", 1, task="hmmt")])
    rubric = TaskRun.from_trials("r", "aime", [[2]], ["q0"], weights=(0, 0.5, 1))
    with refused("B", "mismatch", "[0.0, 0.5, 1.0] for r"):
        compare_runs([a], [rubric])


def test_questions_with_the_same_observed_scores_are_not_listed():
    ids = [f"q{i}" for i in range(6)]
    rows = [[0, 0], [1, 1], [1, 0], [1, 1], [0, 1], [0, 0]]
    a = TaskRun.from_trials("a", "t", rows, ids)
    b = TaskRun.from_trials("b", "t", [row * 4 for row in rows[:5]] + [[1] * 8], ids)
    (task,) = compare_runs([a], [b]).tasks
    assert np.abs(task.comparison.posterior.per_question.mu[0]) > 0.0
    assert [question.question_id for question in task.questions] == ["q5"]
