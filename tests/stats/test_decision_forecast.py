"""The forecast of a decision, against paths of trials that are analysed one by one."""

from __future__ import annotations

import numpy as np
import pytest
from _support.errors import refused

from lm_eval_bayes.stats.bayes_at_n import bayes_at_n
from lm_eval_bayes.stats.hierarchical.hbayes_at_n import hbayes_at_n
from lm_eval_bayes.stats.outcomes import Outcomes
from lm_eval_bayes.stats.sequential.decision import DecisionReached
from lm_eval_bayes.stats.sequential.decision_forecast import trials_to_decision

RIGHT = {
    "a": np.array([3, 7, 5, 8, 1, 6, 8, 4, 2, 7]),
    "b": np.array([2, 6, 5, 8, 0, 5, 8, 3, 2, 6]),
}
N = 8


def counts(right, n):
    return np.stack([n - right, right], axis=1)


def posteriors(estimator=bayes_at_n):
    return [estimator(Outcomes.from_counts(counts(right, N))) for right in RIGHT.values()]


@pytest.mark.slow
@pytest.mark.parametrize("correction", ["none", "pocock", "anytime"])
def test_it_agrees_with_paths_that_are_analysed_by_the_rule(correction):
    rule = DecisionReached(0.95, correction=correction, analyses=range(8, 73, 8))
    forecast = trials_to_decision(*posteriors(), rule)
    rng = np.random.default_rng(7)
    first = []
    for _ in range(200):
        right = {name: each.copy() for name, each in RIGHT.items()}
        p = {name: rng.beta(1 + each, 1 + N - each) for name, each in RIGHT.items()}
        n, stop = N, False
        while n < 72 and not stop:
            n += 8
            for name in right:
                right[name] += rng.binomial(8, p[name])
            each = {m: bayes_at_n(Outcomes.from_counts(counts(r, n))) for m, r in right.items()}
            stop = rule.evaluate(n, each).stop
        first.append(n - N if stop else np.inf)
    share = np.mean(np.isfinite(first))
    # two binomial shares, of 200 and 1,000 draws: 3.5 sd
    assert forecast.probability == pytest.approx(share, abs=3.5 * np.sqrt(0.25 / 200 + 0.25 / 1000))
    middle = np.inf if forecast.additional is None else forecast.additional
    reached = np.mean(np.array(first) <= middle)
    below = np.mean(np.array(first) < middle)
    assert below - 0.13 < 0.5 < reached + 0.13
    assert (forecast.trials, forecast.max_trials) == (8, 64)


def test_a_decision_that_is_reached_needs_no_more_trials():
    rule = DecisionReached(0.55, analyses=(4, 8, 16))
    forecast = trials_to_decision(*posteriors(hbayes_at_n), rule)
    assert (forecast.additional, forecast.additional_high, forecast.target) == (
        0,
        0,
        rule.threshold(8),
    )


def test_rules_that_cannot_be_forecast():
    with refused("rule", "range"):
        trials_to_decision(*posteriors(hbayes_at_n), DecisionReached(analyses=(4, 8)))
    population = [
        hbayes_at_n(Outcomes.from_counts(counts(each, N)), "population") for each in RIGHT.values()
    ]
    with refused("posterior", "unsupported"):
        trials_to_decision(*population, DecisionReached(analyses=(16,)))
