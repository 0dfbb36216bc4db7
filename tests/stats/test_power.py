"""The smallest difference that is shown: closed forms, and the power of simulated tests."""

from __future__ import annotations

import numpy as np
import pytest
from _support.errors import refused
from scipy import stats

from lm_eval_bayes import (
    Outcomes,
    detectable_difference,
    size_for_difference,
    variance_components,
)

P = np.linspace(0.3, 0.7, 80)
N = 8


@pytest.fixture(scope="module")
def components():
    right = np.rint(P * 5_000).astype(int)
    counts = np.stack([5_000 - right, right], axis=1)
    return variance_components(Outcomes.from_counts(counts))


def test_closed_forms(components):
    within, between = np.mean(P * (1 - P)), np.var(P, ddof=1)
    z = stats.norm.ppf(0.995) + stats.norm.ppf(0.9)
    for design, variance in {
        "benchmark": within / N,
        "paired": 0.3 * between + within / N,
        "unpaired": between + within / N,
    }.items():
        difference = detectable_difference(
            components, N, design, correlation=0.7, level=0.99, power=0.9
        )
        assert difference == pytest.approx(z * np.sqrt(2 * variance / 80), rel=0.01)


@pytest.mark.parametrize(("design", "correlation"), [("paired", 0.8), ("unpaired", 0.0)])
def test_power_about_the_population(components, design, correlation):
    difference = detectable_difference(components, N, design, correlation=correlation)
    rng = np.random.default_rng(1)
    sd, size = P.std(ddof=1), (4000, P.size)
    # uniform p of the same variance, correlated by taking that of the other model for some
    first = 0.5 + sd * np.sqrt(12) * (rng.random(size) - 0.5)
    other = 0.5 + sd * np.sqrt(12) * (rng.random(size) - 0.5)
    second = np.where(rng.random(size) < correlation, first, other) + difference
    a, b = rng.binomial(N, first) / N, rng.binomial(N, second) / N
    test = stats.ttest_rel if design == "paired" else stats.ttest_ind
    assert np.mean(test(b, a, axis=1).pvalue < 0.05) == pytest.approx(0.8, abs=0.03)


def test_sizes_are_the_reverse(components):
    for design in ("benchmark", "paired", "unpaired"):
        needed = size_for_difference(components, 0.07, design)
        assert needed.enough_questions == (needed.trials is not None)
        if needed.trials is not None:
            assert detectable_difference(components, needed.trials, design) <= 0.07
            if needed.trials > 1:
                assert detectable_difference(components, needed.trials - 1, design) > 0.07
    small = size_for_difference(components, 0.02, "paired")
    # with infinitely many trials B (1 − r) alone is left
    limit = detectable_difference(components, 1e12, "paired")
    assert limit > 0.02
    assert (small.trials, small.enough_questions) == (None, False)
    variance = 0.5 * components.between.mu + components.within.mu / components.trials
    factor = 2 * (stats.norm.ppf(0.975) + stats.norm.ppf(0.8)) ** 2
    assert small.questions == int(np.ceil(factor * variance / 0.02**2))
    assert size_for_difference(components, 0.02).trials is not None


def test_single_trials():
    single = variance_components(Outcomes.from_counts([[0, 1]] * 30 + [[1, 0]] * 20))
    total = single.total.mu
    factor = 2 * (stats.norm.ppf(0.975) + stats.norm.ppf(0.8)) ** 2
    unpaired = detectable_difference(single, 1, "unpaired")
    assert unpaired == pytest.approx(np.sqrt(factor * total / 50))
    assert detectable_difference(single, 1) is None
    assert detectable_difference(single, 2, "unpaired") is None
    assert detectable_difference(single, 1, "paired") is None
    paired = detectable_difference(single, 1, "paired", covariance=0.1)
    assert paired == pytest.approx(np.sqrt(factor * (total - 0.1) / 50))
    needed = size_for_difference(single, 0.05, "paired", covariance=0.1)
    assert (needed.trials, needed.questions) == (None, int(np.ceil(50 * (paired / 0.05) ** 2)))


@pytest.mark.parametrize(
    ("settings", "argument", "rule"),
    [
        ({"design": "both"}, "design", "choice"),
        ({"correlation": 1.5}, "correlation", "range"),
        ({"power": 0.01}, "power", "range"),
        ({"difference": 0.0}, "difference", "range"),
    ],
)
def test_arguments(components, settings, argument, rule):
    with refused(argument, rule):
        size_for_difference(components, **{"difference": 0.1, **settings})
