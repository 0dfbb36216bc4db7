"""The results that bayes_evals publishes, and its method derived again, on 36 pairs of models.

The two matrices of P(row's column < row) are printed in examples/basic_example.ipynb of
github.com/sambowyer/bayes_evals (revision 139870c), which runs on this same file: 10,000 draws
each, the paired ones resampled from 10,000 draws of the prior with ρ ~ U(−1, 1).
"""

from __future__ import annotations

import csv
from itertools import combinations

import numpy as np
import pytest
from scipy import stats

from lm_eval_bayes.stats.comparison.single_trial import compare_paired, compare_unpaired
from lm_eval_bayes.stats.outcomes import Outcomes

# column j holds P(model i > model j) for the nine models i
INDEPENDENT = np.array([
    [np.nan, .0008, .0000, .0001, .0000, .0000, .1176, .0000, .0000],
    [.9992, np.nan, .0000, .2702, .0148, .1098, .9827, .0001, .0007],
    [1.000, 1.000, np.nan, .9996, .9511, .9957, 1.000, .2425, .6977],
    [.9999, .7298, .0004, np.nan, .0547, .2639, .9967, .0002, .0040],
    [1.000, .9852, .0489, .9453, np.nan, .8379, 1.000, .0101, .1200],
    [1.000, .8902, .0043, .7361, .1621, np.nan, .9997, .0003, .0155],
    [.8824, .0173, .0000, .0033, .0000, .0003, np.nan, .0000, .0000],
    [1.000, .9999, .7575, .9998, .9899, .9997, 1.000, np.nan, .8863],
    [1.000, .9993, .3023, .9960, .8800, .9845, 1.000, .1137, np.nan],
]).T  # fmt: skip
PAIRED = np.array([
    [np.nan, .0004, .0000, .0000, .0000, .0001, .1247, .0000, .0000],
    [.9988, np.nan, .0008, .2516, .0147, .1063, .9957, .0002, .0004],
    [1.000, .9993, np.nan, .9996, .9518, .9982, 1.000, .2485, .7612],
    [.9996, .7416, .0003, np.nan, .0390, .2352, .9985, .0003, .0034],
    [1.000, .9867, .0676, .9516, np.nan, .8271, .9998, .0073, .1264],
    [1.000, .8716, .0013, .7645, .1831, np.nan, .9990, .0005, .0323],
    [.9092, .0041, .0000, .0007, .0000, .0015, np.nan, .0000, .0000],
    [1.000, 1.000, .8103, .9999, .9901, .9992, 1.000, np.nan, .9132],
    [1.000, .9996, .3156, .9949, .8671, .9799, 1.000, .0968, np.nan],
]).T  # fmt: skip
PAIRS = list(combinations(range(9), 2))


@pytest.fixture(scope="module")
def models(shared):
    path = shared / "data" / "outcomes" / "langchain_typewriter_26.csv"
    with path.open(newline="") as file:
        rows = list(csv.reader(file))[1:]
    answers = np.array([[float(cell) for cell in row[2:]] for row in rows]).astype(int)
    assert answers.shape == (20, 9)
    return answers.T


def outcomes(answers):
    return Outcomes.from_matrix(answers[:, None])


def quadrant(h, k, rho):
    """Drezner's integral of the bivariate normal distribution function, no Owen's T in it."""
    nodes, weights = np.polynomial.legendre.leggauss(40)
    top = np.arcsin(rho)[:, None]
    angle = 0.5 * top * (nodes + 1.0)
    h, k = h[:, None], k[:, None]
    exponent = -(h**2 + k**2 - 2 * h * k * np.sin(angle)) / (2 * np.cos(angle) ** 2)
    area = (np.exp(exponent) @ weights) * 0.5 * top[:, 0] / (2 * np.pi)
    return stats.norm.cdf(h[:, 0]) * stats.norm.cdf(k[:, 0]) + area


@pytest.fixture(scope="module")
def prior_draws():
    """Draws of θ_A, θ_B, ρ from the prior with ρ uniform, and the four quadrants."""
    rng = np.random.default_rng(20250303)
    theta_a, theta_b = rng.random((2, 60_000))
    rho = rng.uniform(-0.995, 0.995, 60_000)
    neither = quadrant(stats.norm.ppf(1 - theta_a), stats.norm.ppf(1 - theta_b), rho)
    only_a, only_b = 1 - theta_b - neither, 1 - theta_a - neither
    cells = np.maximum([theta_a - only_a, only_a, only_b, neither], 1e-12)
    return theta_a, theta_b, rho, np.log(cells)


def self_normalised(models, prior_draws, i, j, correlation=None):
    """P(θ_i > θ_j) and the difference by importance sampling from the prior, with errors."""
    theta_a, theta_b, rho, log_cells = prior_draws
    a, b = models[i], models[j]
    counts = [(a * b).sum(), (a * (1 - b)).sum(), ((1 - a) * b).sum(), ((1 - a) * (1 - b)).sum()]
    log_weight = np.array(counts) @ log_cells
    if correlation is not None:
        log_weight = log_weight + stats.beta.logpdf((1 + rho) / 2, *correlation)
    weight = np.exp(log_weight - log_weight.max())
    weight /= weight.sum()
    found = []
    for value in (theta_a > theta_b, theta_a - theta_b):
        mean = weight @ value
        found.append((mean, np.sqrt((weight**2 * (value - mean) ** 2).sum())))
    return found


def test_the_published_independent_comparisons(models):
    gaps = []
    for i, j in PAIRS:
        ours = compare_unpaired(outcomes(models[i]), outcomes(models[j])).p_a_greater
        error = np.sqrt(ours * (1 - ours) / 10_000)
        assert INDEPENDENT[i, j] == pytest.approx(ours, abs=4 * error + 1e-4)
        gaps.append((INDEPENDENT[i, j] - ours) / (error + 1e-4))
    assert abs(np.mean(gaps)) < 0.5


def test_the_published_paired_comparisons(models):
    gaps = []
    for i, j in PAIRS:
        result = compare_paired(
            outcomes(models[i]), outcomes(models[j]), correlation_prior=(1, 1), draws=5_000
        )
        # two runs of theirs, A against B and B against A
        theirs = 0.5 * (PAIRED[i, j] + 1 - PAIRED[j, i])
        assert theirs == pytest.approx(result.p_a_greater, abs=0.04)
        gaps.append(theirs - result.p_a_greater)
    assert abs(np.mean(gaps)) < 0.01


@pytest.mark.slow
@pytest.mark.parametrize("correlation", [(1.0, 1.0), (4.0, 2.0)], ids=["library", "paper"])
def test_the_published_method_derived_again(models, prior_draws, correlation):
    for i, j in PAIRS:
        result = compare_paired(
            outcomes(models[i]), outcomes(models[j]), correlation_prior=correlation, draws=20_000
        )
        prior = None if correlation == (1.0, 1.0) else correlation
        (p, p_error), (mean, error) = self_normalised(models, prior_draws, i, j, prior)
        assert result.p_a_greater == pytest.approx(p, abs=5 * (p_error + result.mc_error) + 2e-3)
        assert result.difference == pytest.approx(mean, abs=5 * error + 0.005)
        assert result.ess > 10_000
