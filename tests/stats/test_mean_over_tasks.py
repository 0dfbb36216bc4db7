"""The mean over tasks, against importance sampling, quadrature and limits of its own model."""

import numpy as np
import pytest
from _support.errors import refusals
from scipy import special, stats

from lm_eval_bayes import Outcomes, hbayes_at_n, mean_over_tasks
from lm_eval_bayes.stats.hierarchical.hbayes_at_n import NO_TRIALS, PRIOR_ALONE
from lm_eval_bayes.stats.hierarchical.mean_over_tasks import (
    BY_MOMENTS,
)
from lm_eval_bayes.stats.intervals import SCOPES

MASSES = np.array([0.025, 0.25, 0.5, 0.75, 0.975])
HARD = [[2, 0]] * 10 + [[1, 1]] * 2
EASY = [[0, 4]] * 5 + [[1, 3]] * 3 + [[3, 1]] * 2
SMALL = [[1, 2], [0, 3]]


def tasks_of(*counts):
    return {f"t{i}": Outcomes.from_counts(c) for i, c in enumerate(counts)}


def normal_score(m, rest):
    """Φ⁻¹(F(m)) for m ~ Beta(.7, .7), from whichever end is nearer."""
    lower = special.ndtri(stats.beta.cdf(m, 0.7, 0.7))
    return np.where(m < 0.5, lower, -special.ndtri(stats.beta.cdf(rest, 0.7, 0.7)))


def strength_quantile(u):
    """That of the prior of s: s/(20 + s) ~ Beta(.7, 1)."""
    return 20 / (u ** (-1 / 0.7) - 1)


def by_importance(tasks, weights, n_draws, seed):
    """Draw everything from the prior but m, which is drawn near its task's mean; then weight.

    Returns the draws of the two scopes' means and their weights, straight from the definitions.
    """
    rng = np.random.default_rng(seed)
    rho, g = rng.random(n_draws), rng.standard_normal(n_draws)
    rho_s, g_s = rng.random(n_draws), rng.standard_normal(n_draws)
    log_weight = np.zeros(n_draws)
    means = {scope: np.zeros(n_draws) for scope in SCOPES}
    for outcomes, weight in zip(tasks.values(), weights, strict=True):
        wrong, right = outcomes.counts.T.astype(float)
        a, b = 0.7 + 0.4 * right.sum(), 0.7 + 0.4 * wrong.sum()
        m = rng.beta(a, b, n_draws)
        own = rng.standard_normal(n_draws)
        s = strength_quantile(special.ndtr(np.sqrt(rho_s) * g_s + np.sqrt(1 - rho_s) * own))
        z = normal_score(m, 1 - m)
        log_weight += stats.norm.logpdf(z, np.sqrt(rho) * g, np.sqrt(1 - rho))
        log_weight += stats.beta.logpdf(m, 0.7, 0.7) - stats.norm.logpdf(z)
        log_weight -= stats.beta.logpdf(m, a, b)
        sm, rest = s * m, s * (1 - m)
        mean = np.zeros(n_draws)
        for x, y in zip(right, wrong, strict=True):
            log_weight += special.betaln(x + sm, y + rest) - special.betaln(sm, rest)
            mean += rng.beta(x + sm, y + rest)
        means["benchmark"] += weight * mean / right.size
        means["population"] += weight * m
    share = np.exp(log_weight - log_weight.max())
    return means, share / share.sum()


def weighted_quantiles(values, weight, masses):
    order = np.argsort(values)
    return np.interp(masses, np.cumsum(weight[order]), values[order])


def test_it_agrees_with_importance_sampling():
    tasks = tasks_of([[2, 1]], [[0, 2]], [[1, 1], [1, 0]])
    means, weight = by_importance(tasks, (0.2, 0.6, 0.2), 150_000, seed=7)
    assert 1 / (weight**2).sum() > 4_000
    error = np.sqrt((weight**2).sum())
    for scope in SCOPES:
        posterior = mean_over_tasks(tasks, {"t0": 1.0, "t1": 3.0, "t2": 1.0}, scope)
        mu = weight @ means[scope]
        sd = np.sqrt(weight @ (means[scope] - mu) ** 2)
        assert abs(posterior.mu - mu) < 4 * error * sd
        assert posterior.sigma == pytest.approx(sd, rel=4 * error)
        expected = weighted_quantiles(means[scope], weight, MASSES)
        assert posterior.distribution.quantiles(MASSES) == pytest.approx(expected, abs=0.05 * sd)


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
    assert nothing.mu == pytest.approx(0.5)
    rng = np.random.default_rng(1)
    rho = rng.random(100_000)
    shared, own = rng.standard_normal(rho.size), rng.standard_normal((2, rho.size))
    z = np.sqrt(rho) * shared + np.sqrt(1 - rho) * own
    m = special.betaincinv(0.7, 0.7, special.ndtr(z)).mean(axis=0)
    assert nothing.sigma == pytest.approx(m.std(), rel=0.01)


def test_notes_and_numbers_of_trials():
    single = [[1, 0], [0, 1], [0, 1]]
    tasks = tasks_of(single, single)
    assert mean_over_tasks(tasks).note == PRIOR_ALONE
    population = mean_over_tasks(
        {**tasks, "more": Outcomes.from_counts([[2, 2]])}, scope="population"
    )
    assert population.note is None
    assert population.trials_range == (1, 4)
    assert population.n_trials == pytest.approx(10 / 7)
    assert population.scope == "population"
    assert population.benchmark is None


def rubric_tasks(n_tasks, mean=(0.3, 0.3, 0.3, 0.3, 3.0)):
    rng = np.random.default_rng(4)
    tasks = {}
    for i in range(n_tasks):
        shares = rng.dirichlet(mean, 30)
        tasks[f"r{i}"] = Outcomes.from_counts([rng.multinomial(4, share) for share in shares])
    return tasks


def test_tasks_of_more_than_two_weights_enter_by_moments():
    tasks = rubric_tasks(3)
    average = np.mean([(t.counts @ t.weights).sum() / t.counts.sum() for t in tasks.values()])
    for scope in SCOPES:
        own = [hbayes_at_n(task, scope) for task in tasks.values()]
        deviation = np.sqrt(sum(post.sigma**2 for post in own)) / len(own)
        posterior = mean_over_tasks(tasks, scope=scope)
        assert posterior.note == f"{BY_MOMENTS} {', '.join(tasks)}."
        assert posterior.sigma == pytest.approx(deviation, rel=0.1)
        alone = np.mean([post.mu for post in own])
        # closer to the trials' own mean than with a prior for every task by itself
        assert abs(posterior.mu - average) < abs(alone - average)
        assert abs(posterior.mu - average) < 0.7 * deviation
        assert posterior.ess == min(post.ess for post in own)


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
