"""The independent learned prior against closed forms, quadrature and brute force."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest
from scipy import integrate, special, stats

pytestmark = pytest.mark.slow

Weighted = tuple[np.ndarray, np.ndarray]


@pytest.fixture(scope="module")
def prior() -> Iterator[ModuleType]:
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(str(Path(__file__).resolve().parent))
        patch.delitem(sys.modules, "independent_learned_prior", raising=False)
        yield importlib.import_module("independent_learned_prior")


def by_brute_force(counts: Any, weights: Any, seed: int, draws: int = 120_000) -> list[Weighted]:
    """Draw the hyperparameters from their prior; return both scores with their likelihoods."""
    rng = np.random.default_rng(seed)
    counts, unit = np.asarray(counts, float), np.asarray(weights)
    m = rng.dirichlet(np.full(unit.size, 1.4 / unit.size), draws)
    u = rng.beta(0.7, 1.0, draws)
    alpha = np.maximum(m * (20 * u / (1 - u))[:, None], 1e-300)
    log = np.zeros(draws)
    score = np.zeros(draws)
    for row in counts:
        nu = alpha + row
        log += special.gammaln(nu).sum(1) - special.gammaln(alpha).sum(1)
        log += special.gammaln(alpha.sum(1)) - special.gammaln(nu.sum(1))
        gamma = rng.standard_gamma(nu)
        total = gamma.sum(1)
        score += np.where(total > 0, gamma @ unit / np.where(total > 0, total, 1), m @ unit)
    likelihood = np.exp(log - log.max())
    return [(score / len(counts), likelihood), (m @ unit, likelihood)]


def compare_with_draws(found: Any, drawn: Weighted, tolerance: float) -> None:
    """Compare a score's moments and ends with weighted draws; the tolerance is in sigma."""
    values, weight = drawn[0], drawn[1] / drawn[1].sum()
    assert 1 / np.square(weight).sum() > 4000
    mu = weight @ values
    sigma = np.sqrt(weight @ np.square(values - mu))
    assert found.mu == pytest.approx(mu, abs=tolerance * sigma)
    assert found.sigma == pytest.approx(sigma, rel=tolerance)
    order = np.argsort(values)
    ends = np.interp([0.05, 0.95], np.cumsum(weight[order]), values[order])
    # an end of a 90% interval is known about twice as badly as the mean
    assert found.ends("exact", 0.9) == pytest.approx(ends, abs=2 * tolerance * sigma)


@pytest.mark.parametrize(("right", "wrong"), [(9, 31), (0, 6), (1, 0)])
def test_the_population_of_single_trials_is_a_beta(
    prior: ModuleType, right: int, wrong: int
) -> None:
    found = prior.learned([[0, 1]] * right + [[1, 0]] * wrong, (0.0, 1.0))
    law = stats.beta(0.7 + right, 0.7 + wrong)
    assert found.population.mu == pytest.approx(law.mean(), rel=1e-8)
    assert found.population.sigma == pytest.approx(law.std(), rel=1e-8)
    assert found.population.ends("exact", 0.95) == pytest.approx(law.ppf([0.025, 0.975]), abs=2e-6)


def test_the_moments_against_adaptive_quadrature(prior: ModuleType) -> None:
    counts = [(4, 0), (1, 3), (0, 2), (0, 0), (2, 9)]

    def density(v: float, t: float) -> tuple[float, float, float]:
        # m = v^2 (3 - 2v) and s / (20 + s) = t^2, so that no density has a pole
        m, u = v * v * (3 - 2 * v), t * t
        s = 20 * u / (1 - u)
        ab = [(right + s * m, wrong + s * (1 - m)) for right, wrong in counts]
        log = sum(special.betaln(a, b) - special.betaln(s * m, s * (1 - m)) for a, b in ab)
        means = [a / (a + b) for a, b in ab]
        spread = sum(p * (1 - p) / (a + b + 1) for p, (a, b) in zip(means, ab, strict=True))
        log += np.log(6 * v * (1 - v)) - 0.3 * np.log(m * (1 - m)) + np.log(2 * t) - 0.3 * np.log(u)
        return np.exp(log), np.mean(means), spread / len(ab) ** 2

    def mean(value: Callable[[float, float, float], float]) -> float:
        total = 0.0
        for low, high in ((0, 0.1), (0.1, 1)):
            inner = integrate.dblquad(
                lambda v, t: (d := density(v, t))[0] * value(v * v * (3 - 2 * v), d[1], d[2]),
                low, high, 0, 1,
                epsabs=0, epsrel=1e-7,
            )  # fmt: skip
            total += inner[0]
        return total

    mass = mean(lambda m, score, spread: 1.0)
    found = prior.learned([row[::-1] for row in counts], (0.0, 1.0))
    mu = mean(lambda m, score, spread: score) / mass
    square = mean(lambda m, score, spread: spread + score**2) / mass
    assert found.benchmark.mu == pytest.approx(mu, rel=1e-6)
    assert found.benchmark.sigma == pytest.approx(np.sqrt(square - mu**2), rel=1e-5)
    mu = mean(lambda m, score, spread: m) / mass
    square = mean(lambda m, score, spread: m * m) / mass
    assert found.population.mu == pytest.approx(mu, rel=1e-6)
    assert found.population.sigma == pytest.approx(np.sqrt(square - mu**2), rel=1e-5)


@pytest.mark.parametrize(
    ("counts", "law"),
    [
        ([[8, 0], [6, 2], [5, 3], [7, 1], [3, 5], [8, 0], [2, 6], [6, 2]], "Curve"),
        ([[4, 0]] * 5, "Sample"),  # all but certain: its Fourier series would not end
        ([[3, 1], [0, 2], [0, 0], [2, 0]], "Sample"),
    ],
)
def test_two_categories_against_brute_force(
    prior: ModuleType, counts: list[list[int]], law: str
) -> None:
    found = prior.learned(counts, (0.0, 1.0))
    assert type(found.benchmark.law).__name__ == law
    for score, drawn in zip(
        (found.benchmark, found.population),
        by_brute_force(counts, (0, 1), seed=3),
        strict=True,
    ):
        compare_with_draws(score, drawn, 0.04)


def test_many_questions_drawn_and_transformed(prior: ModuleType) -> None:
    pairs = tuple((right, 8 - right) for right in (0, 0, 0, 1, 1, 2, 2, 3, 4, 5, 5, 6, 8, 8))
    curve = prior.learned([row[::-1] for row in pairs], (0.0, 1.0)).benchmark
    sample = prior._drawn(prior.Hyper(pairs), pairs, draws=8000)
    assert type(curve.law).__name__ == "Curve"
    for mass in (0.005, 0.1, 0.5, 0.95):
        assert curve.law.quantile(mass) == pytest.approx(
            sample.quantile(mass), abs=sample.slack(mass)
        )
    low, high = curve.ends("hdi", 0.8)
    assert curve.mass(low, high) == pytest.approx(0.8, abs=1e-4)
    own = curve.ends("exact", 0.8)
    assert high - low <= own[1] - own[0]


def test_a_narrow_peak_is_found(prior: ModuleType) -> None:
    # 3,000 questions of one difficulty: all that is left is a binomial share
    rng = np.random.default_rng(1)
    right = rng.binomial(10, 0.3, 3000)
    found = prior.learned([[10 - int(r), int(r)] for r in right], (0.0, 1.0))
    share = right.mean() / 10
    for score in (found.benchmark, found.population):
        assert score.mu == pytest.approx(share, abs=5e-5)
        assert score.sigma == pytest.approx(np.sqrt(share * (1 - share) / 30_000), rel=0.05)


def test_an_unasked_question_teaches_nothing(prior: ModuleType) -> None:
    counts = [[3, 1], [0, 4], [2, 2]]
    fewer = prior.learned(counts, (0.0, 1.0))
    more = prior.learned([*counts, [0, 0]], (0.0, 1.0))
    assert more.population.mu == pytest.approx(fewer.population.mu, rel=1e-12)
    assert more.benchmark.mu == pytest.approx(
        (3 * fewer.benchmark.mu + fewer.population.mu) / 4, rel=1e-12
    )


def test_weights_merge_and_scale(prior: ModuleType) -> None:
    learned = prior.learned
    three = learned([[2, 1, 1], [0, 0, 4], [1, 0, 0]], (2.0, 2.0, 5.0))
    two = learned([[3, 1], [0, 4], [1, 0]], (0.0, 1.0))
    for one, other in ((three.benchmark, two.benchmark), (three.population, two.population)):
        assert one.mu == pytest.approx(2 + 3 * other.mu, rel=1e-12)
        assert one.sigma == pytest.approx(3 * other.sigma, rel=1e-12)
        for method in ("exact", "normal", "beta"):
            ends = [2 + 3 * end for end in other.ends(method, 0.9)]
            assert one.ends(method, 0.9) == pytest.approx(ends, rel=1e-9)
