"""The mean over tasks, against draws of its prior weighted by the likelihood."""

import numpy as np
import pytest
from _support.errors import refusals
from _support.weighted_prior import posterior_draws, prior_draws, summary

from lm_eval_bayes import Outcomes, hbayes_at_n, mean_over_tasks
from lm_eval_bayes.stats.hierarchical.hbayes_at_n import NO_TRIALS
from lm_eval_bayes.stats.hierarchical.mean_over_tasks import SINGLE_TRIALS
from lm_eval_bayes.stats.intervals import SCOPES

HARD = [[2, 0]] * 10 + [[1, 1]] * 2
EASY = [[0, 4]] * 5 + [[1, 3]] * 3 + [[3, 1]] * 2
SMALL = [[1, 2], [0, 3]]


def tasks_of(*counts):
    return {f"t{i}": Outcomes.from_counts(c) for i, c in enumerate(counts)}


@pytest.mark.parametrize(
    "counts",
    [([[2, 1]], [[0, 2]], [[1, 1], [1, 0]]), ([[4, 0]] * 3, [[0, 4]] * 2), (HARD[:4], EASY[4:8])],
)
def test_it_is_that_of_weighted_draws(counts):
    tasks = tasks_of(*counts)
    relative = np.arange(1.0, len(counts) + 1.0)
    task = np.repeat(np.arange(len(counts)), [len(rows) for rows in counts])
    drawn = posterior_draws(np.concatenate(counts), task)
    p, mean = drawn.theta[..., 1], drawn.mean[..., 1]
    of_task = {
        "benchmark": np.stack([p[:, task == t].mean(axis=1) for t in range(len(counts))]),
        "population": np.einsum("dtk,dk->td", drawn.weight, mean),
    }
    weights = dict(zip(tasks, relative, strict=True))
    for scope, values in of_task.items():
        expected = summary(relative / relative.sum() @ values)
        own = []
        for seed in range(4):
            posterior = mean_over_tasks(tasks, weights, scope, seed=seed)
            interval = posterior.interval()
            own.append([posterior.mu, posterior.sigma, interval.low, interval.high])
        # Monte Carlo, and a Beta distribution for the score of few questions in a state
        off = np.abs(np.mean(own, axis=0) - expected) / expected[1]
        np.testing.assert_array_less(off, [0.2, 0.12, 0.35, 0.35])


@pytest.mark.parametrize("counts", [HARD, [[0, 0]]])
@pytest.mark.parametrize("scope", SCOPES)
def test_one_task_is_hbayes(counts, scope):
    outcomes = Outcomes.from_counts(counts)
    expected = hbayes_at_n(outcomes, scope)
    posterior = mean_over_tasks({"only": outcomes}, scope=scope)
    assert (posterior.mu, posterior.sigma) == (expected.mu, expected.sigma)
    assert posterior.interval() == expected.interval()
    assert posterior.quantity == "mean of hbayes@N"


def test_weights():
    tasks = tasks_of(HARD, EASY, SMALL)
    by_size = mean_over_tasks(tasks, "size")
    explicit = mean_over_tasks(tasks, {"t2": 2, "t0": 12, "t1": 10})
    assert by_size.mu == explicit.mu
    assert by_size.per_question.mu.size == 24
    equal = mean_over_tasks(tasks)
    # 3 of 24, 33 of 40 and 5 of 6 trials are right
    assert by_size.mu < equal.mu
    assert equal.mu == pytest.approx((3 / 24 + 33 / 40 + 5 / 6) / 3, abs=0.1)


def test_scores_of_other_weights_are_rescaled():
    counts = (HARD, EASY, SMALL)
    plain = mean_over_tasks(tasks_of(*counts))
    scaled = {
        name: Outcomes.from_counts(task.counts, weights=[-1.0, 3.0])
        for name, task in tasks_of(*counts).items()
    }
    wide = mean_over_tasks(scaled)
    assert wide.bounds == (-1.0, 3.0)
    assert wide.mu == pytest.approx(-1 + 4 * plain.mu)
    assert wide.sigma == pytest.approx(4 * plain.sigma)
    assert wide.interval().low == pytest.approx(-1 + 4 * plain.interval().low)
    mixed = mean_over_tasks({**tasks_of(HARD), "x": scaled["t1"], "y": scaled["t2"]})
    assert mixed.bounds == pytest.approx((-2 / 3, 7 / 3))


def test_a_task_without_trials_is_predicted_from_the_others():
    tasks = tasks_of([[1, 9]] * 20, [[1, 9]] * 20, [[2, 8]] * 20, [[0, 0]] * 5)
    posterior = mean_over_tasks(tasks, {"t0": 1e-9, "t1": 1e-9, "t2": 1e-9, "t3": 1.0})
    assert 0.75 < posterior.mu < 0.9
    assert posterior.note == "Predicted from the other tasks, without trials: t3."
    nothing = mean_over_tasks(tasks_of([[0, 0]], [[0, 0]] * 2), scope="population")
    assert nothing.note == NO_TRIALS
    assert nothing.mu == pytest.approx(0.5, abs=0.02)
    weight, mean, _ = prior_draws(2, 2)
    m = np.einsum("dtk,dk->dt", weight, mean[..., 1]).mean(axis=1)
    assert nothing.sigma == pytest.approx(m.std(), rel=0.05)


def test_notes_and_numbers_of_trials():
    single = [[1, 0], [0, 1], [0, 1]]
    tasks = tasks_of(single, single)
    assert mean_over_tasks(tasks).note == SINGLE_TRIALS
    assert mean_over_tasks(tasks).sigma == mean_over_tasks(tasks, scope="population").sigma
    population = mean_over_tasks(
        {**tasks, "more": Outcomes.from_counts([[2, 2]])}, scope="population"
    )
    assert population.note is None
    assert population.trials_range == (1, 4)
    assert population.n_trials == pytest.approx(10 / 7)
    assert population.scope == "population"
    assert population.benchmark.note == SINGLE_TRIALS


def rubric_tasks(n_tasks, mean=(0.3, 0.3, 0.3, 0.3, 3.0)):
    rng = np.random.default_rng(4)
    tasks = {}
    for i in range(n_tasks):
        shares = rng.dirichlet(mean, 30)
        tasks[f"r{i}"] = Outcomes.from_counts([rng.multinomial(4, share) for share in shares])
    return tasks


def test_tasks_of_more_than_two_weights_share_their_kinds():
    tasks = rubric_tasks(3)
    average = np.mean([(t.counts @ t.weights).sum() / t.counts.sum() for t in tasks.values()])
    for scope in SCOPES:
        own = [hbayes_at_n(task, scope) for task in tasks.values()]
        deviation = np.sqrt(sum(post.sigma**2 for post in own)) / len(own)
        posterior = mean_over_tasks(tasks, scope=scope)
        assert posterior.note is None
        # tasks that share kinds tell more of them
        assert 0.7 * deviation < posterior.sigma < 1.1 * deviation
        assert abs(posterior.mu - average) < 0.7 * deviation


def test_large_tasks():
    rng = np.random.default_rng(2)
    rights = rng.binomial(2000, 0.998, 8)
    tasks = tasks_of(*(np.array([[1, 0]] * (2000 - r) + [[0, 1]] * r) for r in rights))
    posterior = mean_over_tasks(tasks, scope="population")
    rate = rights.mean() / 2000
    assert posterior.mu == pytest.approx(rate, abs=0.3 * np.sqrt(rate * (1 - rate) / 16000))
    assert posterior.sigma == pytest.approx(np.sqrt(rate * (1 - rate) / 16000), rel=0.1)


test_bad_arguments = refusals(
    (lambda: mean_over_tasks({}), "tasks", "empty"),
    (lambda: mean_over_tasks({"a": [[1, 0]]}), "tasks['a']", "type"),
    (lambda: mean_over_tasks(tasks_of(SMALL, HARD), weights="both"), "weights", "choice"),
    (lambda: mean_over_tasks(tasks_of(SMALL, HARD), weights={"t0": 1.0}), "weights", "range"),
    (lambda: mean_over_tasks(tasks_of(SMALL, HARD), scope="all"), "scope", "choice"),
)
