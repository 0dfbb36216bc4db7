"""The noise of a board: numbers by hand on the published outcomes of 19 models, and simulated."""

from __future__ import annotations

import csv
from itertools import combinations

import numpy as np
import pytest
from _support.errors import refused

from lm_eval_bayes.analysis.noise import (
    NoiseSettings,
    task_noise,
)
from lm_eval_bayes.runs.reader import read_runs
from lm_eval_bayes.runs.task_run import TaskRun

AIME = "data/outcomes/matharena_aime_2025_II.csv"


@pytest.fixture(scope="module")
def aime(shared):
    """The outcomes by model, (15, 4), read without the package."""
    with open(shared / AIME, newline="", encoding="utf-8") as file:
        head, *rows = list(csv.reader(file))
    numbers = np.array([[int(cell) for cell in row[1:]] for row in rows])
    return {name: column.reshape(15, 4) for name, column in zip(head[1:], numbers.T, strict=True)}


@pytest.fixture(scope="module")
def board(shared):
    return task_noise(read_runs([shared / AIME]).runs)


def test_the_published_board_by_hand(aime, board):
    assert (len(board.models), board.n_questions) == (19, 15)
    for model in board.models:
        R, components = aime[model.model], model.components
        mean = R.mean(axis=1)
        assert components.score == pytest.approx(R.mean())
        assert components.flipped == np.mean((mean > 0) & (mean < 1))
        msw = R.var(axis=1, ddof=1).mean()
        # the posterior is no farther from the estimate than its interval is wide
        assert components.within.low <= msw <= components.within.high or msw == 0


def test_the_correlation_is_that_of_all_pairs(aime, board):
    means = np.stack([R.mean(axis=1) for R in aime.values()])
    pairs = list(combinations(range(19), 2))
    covariance = np.mean([np.cov(means[i], means[j])[0, 1] for i, j in pairs])
    assert board.covariance == pytest.approx(covariance)
    between = np.array([model.components.between.mu for model in board.models])
    root = np.mean([np.sqrt(between[i] * between[j]) for i, j in pairs])
    assert board.correlation == pytest.approx(covariance / root)
    assert board.correlation_source == "models"
    assert 0.5 < board.correlation < 1.0


def simulated(seed, n=4, m=60, models=3, noise=0.1):
    rng = np.random.default_rng(seed)
    common = rng.beta(1, 1, m)
    ids = [f"q{i}" for i in range(m)]
    runs = []
    for number in range(models):
        p = np.clip(common + rng.normal(0, noise, m), 0.01, 0.99)
        R = (rng.random((m, n)) < p[:, None]).astype(int)
        runs.append(TaskRun.from_trials(f"m{number}", "t", R, ids))
    return runs


def test_single_trials_of_several_models_have_a_paired_difference():
    noise = task_noise(simulated(4, n=1, m=200))
    assert noise.correlation_source == "single trials"
    for model in noise.models:
        assert len(model.runs) == 1
        assert model.single.is_bound
        assert model.single.detectable["benchmark"] is None
        detectable = model.single.detectable
        # V = T (1 − r), the variance of a difference of single trials, over 2
        ratio = (detectable["paired"] / detectable["unpaired"]) ** 2
        assert ratio == pytest.approx(1 - noise.correlation)
    # of p uniform with nearly no other variance, 1/12 of 1/4
    assert noise.correlation == pytest.approx(1 / 3, abs=0.12)


def test_settings():
    (run,) = simulated(1, models=1)
    noise = task_noise([run], NoiseSettings(difference=0.05, power=0.9))
    assert (noise.correlation, noise.correlation_source) == (0.5, "assumed")
    designs = [needed.design for needed in noise.models[0].needed]
    assert designs == ["benchmark", "paired", "unpaired"]
    for argument, value in (("level", 1.0), ("power", 0.0), ("difference", -1.0)):
        with refused(argument, "range", value):
            NoiseSettings(**{argument: value})
    with refused("difference", "range", 3.4):
        task_noise([run], NoiseSettings(difference=3.4))


def test_unequal_numbers_of_trials_and_questions():
    ids = ["a", "b", "c", "d"]
    run = TaskRun.from_trials("A", "t", [[1, 0], [1], [0, 0, 1], [1, 1]], ids)
    (model,) = task_noise([run]).models
    assert model.components.trials_range == (1, 3)
    assert model.full.trials == pytest.approx(4 / (0.5 + 1 + 1 / 3 + 0.5))
    with refused("RUN", "empty", "1 of A"):
        task_noise([TaskRun.from_trials("A", "t", [[1, 0]], ["a"])])


def test_scores():
    rng = np.random.default_rng(0)
    scores = rng.beta(8, 2, size=(20, 3))
    run = TaskRun.from_scores("A", "t", list(scores), [f"q{i}" for i in range(20)])
    (model,) = task_noise([run]).models
    assert model.components.flip is None
    sd = np.sqrt(scores.var(axis=1, ddof=1).mean() / 20)
    assert model.single.standard_error == pytest.approx(sd, rel=0.25)


@pytest.mark.parametrize(
    ("right", "flips", "icc"),
    [
        # tasks with 0 to 4 of 4 passes, from the published pass^1 to pass^4 of gpt-4o
        ([14, 12, 10, 4, 10], 0.52, 0.405),  # airline: .420 .273 .220 .200
        ([22, 18, 9, 22, 44], 0.43, 0.530),  # retail: .604 .491 .430 .383
    ],
)
def test_numbers_published_for_tau_bench(right, flips, icc):
    """sierra-research/tau-bench issue 57: tasks that flip, and ICC(1), of 50 and 115 tasks."""
    passes = np.repeat(np.arange(5), right)
    trials = [[1] * c + [0] * (4 - c) for c in passes]
    ids = [f"q{i}" for i in range(passes.size)]
    run = TaskRun.from_trials("gpt-4o", "tau", trials, ids)
    (model,) = task_noise([run]).models
    components = model.components
    assert components.flipped == pytest.approx(flips, abs=0.006)
    # one-way analysis of variance: MSW, and (MSB − MSW)/N
    within = np.var(trials, axis=1, ddof=1).mean()
    between = np.mean(trials, axis=1).var(ddof=1) - within / 4
    assert between / (within + between) == pytest.approx(icc, abs=6e-4)
    assert components.icc.low < icc < components.icc.high
    # pass^1 − pass^2 is an unbiased estimate of the mean of p (1 − p)
    assert within == pytest.approx(np.mean(passes / 4) - np.mean(passes * (passes - 1) / 12))
    # so two single runs must differ by 1.96 √2 sqrt(within/M), to a task
    apart = 1.96 * np.sqrt(2 * within / passes.size)
    assert model.single.distance == pytest.approx(apart, abs=1.5 / passes.size)
