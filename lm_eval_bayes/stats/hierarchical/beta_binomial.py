"""The posterior of the common prior of a benchmark's questions, for two categories.

p_α ~ Beta(s m, s (1 − m)) makes x_α successes and y_α failures of question α beta-binomial.
With the prior of (m, s) in `hyperprior`, the posterior of (m, s) is computed on a grid in
y = log(m / (1 − m)) and l = log s. There it is smooth with exponential tails, so that the sum
over an even grid is nearly exact.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from scipy import special

from lm_eval_bayes.stats.arrays import FloatArray, blocks
from lm_eval_bayes.stats.distributions.beta_mixture import BetaMixture
from lm_eval_bayes.stats.hierarchical.hyperprior import (
    LOG_PRIOR_MASS,
    MEAN_SHAPE,
    log_prior_of_log_strength,
)
from lm_eval_bayes.stats.hierarchical.row_grid import DEPTH, LogDensity, NodeCount, fit_grid
from lm_eval_bayes.stats.outcomes import Pairs, distinct_pairs

#: Nodes whose posterior probability is below this share of the largest are left out.
_NEGLIGIBLE = 1e-8
#: The nodes of a grid. Moments use the fine one; a table, whose nodes are expensive, the rough one;
#: success curves, of which a table of results has many, the last.
FINE = NodeCount(36, 110, 0.45)
ROUGH = NodeCount(30, 90, 0.5)
OF_CURVES = NodeCount(24, 90, 0.5)
#: The full range of l.
_LOG_STRENGTH = np.linspace(-25.0, 60.0, 35)
#: Rising factorials of up to this many factors in total are summed factor by factor.
_MAX_FACTORS = 3000
_BLOCK = 1_000_000
#: Of a histogram's expectation: nodes below this share of the largest weight are left out, and
#: larger strengths are replaced by this one.
_LEAST_WEIGHT, _MOST_STRENGTH = 1e-3, 1e6
#: The most trials per question whose histogram is compared with its expectation.
_MOST_COUNTED = 256
#: Maximum number of points on the axis of m.
_MOST_POINTS = 60_000
#: Intervals allow for questions that are all alike from this probability of that on, of prior ½.
LEAST_EQUAL = 0.25
#: No pseudo-trials on the common mean m, right and wrong.
NO_MEAN_COUNTS = (0.0, 0.0)


@dataclass(frozen=True, eq=False)
class HyperGrid:
    """The posterior of (m, s) on nodes that each represent a cell around them.

    Parameters
    ----------
    logit_mean, log_strength : array, shape (L, Y)
        log(m / (1 − m)) and log s; the rows are even in l, and each row even in y.
    steps : array, shape (2, L, Y)
        The width of each cell in y and in l.
    weight : array, shape (L, Y)
        Posterior probability of each cell, sum 1.
    log_mass : float
        The log of the integral of the density, see `log_evidence`.
    """

    logit_mean: FloatArray
    log_strength: FloatArray
    steps: FloatArray
    weight: FloatArray
    log_mass: float


class _Factors:
    """Σ_α log Γ(x_α + a) / Γ(a) as a function of a = exp(log_a).

    For few whole numbers x_α this is Σ_j above[j] log(a + j) with above[j] the number of
    questions whose x_α exceeds j: a matter of the largest x_α, however many questions.
    """

    def __init__(self, x: FloatArray) -> None:
        values, times = np.unique(x[x > 0.0], return_counts=True)
        self.values, self.times, self.above = values, times.astype(np.float64), None
        if values.size and np.all(values == np.floor(values)) and values[-1] <= _MAX_FACTORS:
            counted = np.bincount(values.astype(np.int64), weights=times)
            self.above = counted[::-1].cumsum()[::-1][1:]

    def __call__(self, log_a: FloatArray) -> FloatArray:
        """Evaluate at every log a, of any shape."""
        if not self.values.size:
            return np.zeros_like(log_a)
        flat = log_a.ravel()
        total = np.empty_like(flat)
        width = self.values.size if self.above is None else self.above.size
        for part in blocks(flat.size, width, _BLOCK):
            total[part] = self._some(flat[part])
        return total.reshape(log_a.shape)

    def _some(self, log_a: FloatArray) -> FloatArray:
        a = np.exp(log_a)
        if self.above is None:
            rising = log_rising(a[:, None], log_a[:, None], self.values)
            return np.asarray(rising @ self.times)
        first = self.above[0] * log_a  # log a itself, where a is below the smallest float
        later = np.log(a[:, None] + np.arange(1.0, self.above.size))
        return np.asarray(first + later @ self.above[1:])


def log_rising(a: FloatArray, log_a: FloatArray, x: FloatArray) -> FloatArray:
    """Return log Γ(a + x) / Γ(a) for a > 0 and x > 0, also where a is tiny or huge."""
    small = np.minimum(a, 32.0)
    direct = log_a + special.gammaln(small + x) - special.gammaln(small + 1.0)
    # Stirling's series on both, subtracted before anything large can cancel
    large = np.maximum(a, 32.0)
    both = large + x
    series = _stirling_tail(both) - _stirling_tail(large)
    ratio = (large - 0.5) * np.log1p(x / large) + x * np.log(both) - x + series
    return np.where(a < 32.0, direct, ratio)


def _stirling_tail(a: FloatArray) -> FloatArray:
    """Return log Γ(a) − (a − ½) log a + a − ½ log 2π for a >= 32."""
    inverse = 1.0 / a
    square = inverse * inverse
    return np.asarray(inverse * (1 / 12 - square * (1 / 360 - square / 1260)))


def hyper_posterior(
    x: FloatArray,
    y: FloatArray,
    nodes: NodeCount = FINE,
    mean_counts: tuple[float, float] = NO_MEAN_COUNTS,
) -> HyperGrid:
    """Put the posterior of (m, s) on a grid that fits it.

    Parameters
    ----------
    x, y : array, shape (M,)
        Successes and failures of each question, at least 0, not necessarily whole.
    nodes : NodeCount
        How many nodes either direction takes.
    mean_counts : tuple of float
        Pseudo-trials a, right, and b, wrong, of the prior m ~ Beta(.7 + a, .7 + b).

    Returns
    -------
    HyperGrid
    """
    grid = fit_grid(BetaBinomialDensity(x, y, mean_counts), _LOG_STRENGTH, nodes)
    return HyperGrid(
        logit_mean=grid.column,
        log_strength=grid.row,
        steps=grid.steps,
        weight=grid.weight,
        log_mass=grid.log_mass,
    )


def log_evidence(
    x: FloatArray, y: FloatArray, mean_counts: tuple[float, float] = NO_MEAN_COUNTS
) -> float:
    """Return the log marginal likelihood of x successes and y failures, up to a constant.

    (m, s) are integrated out. The constant does not depend on x, y and `mean_counts`.

    Parameters
    ----------
    x, y : array, shape (M,)
        At least 0, not necessarily whole.
    mean_counts : tuple of float
        As for `hyper_posterior`.
    """
    density = BetaBinomialDensity(x, y, mean_counts)
    log_mass = fit_grid(density, _LOG_STRENGTH, ROUGH).log_mass
    return log_mass - float(special.betaln(density.shape_right, density.shape_wrong))


def equal_probability(x: FloatArray, y: FloatArray, grid: HyperGrid) -> float:
    """Return the posterior probability that p is the same for all questions, of prior ½.

    The other half has the prior of (m, s) in `hyperprior`; the common p that of m. It is the limit
    of s growing to infinity, of which that prior has too little for some intervals.

    Parameters
    ----------
    x, y : array, shape (M,)
        Successes and failures of each question.
    grid : HyperGrid
        From `hyper_posterior` on the same questions.
    """
    right, wrong = float(x.sum()), float(y.sum())
    equal = special.betaln(right + MEAN_SHAPE, wrong + MEAN_SHAPE)
    # the prior of log s is not normalized on the grid
    log_odds = equal - (grid.log_mass - LOG_PRIOR_MASS)
    return float(special.expit(log_odds))


def histogram_discrepancy(x: FloatArray, y: FloatArray, grid: HyperGrid) -> float:
    """Return how far the histogram of successes is from the one that the model expects.

    Pearson's statistic Σ (O − E)²/max(E, ½) over six classes: no success, the quarters of N, and
    N successes. E is averaged over the posterior of (m, s). Of data from one Beta distribution it
    exceeds 7.5 in at most 10% of simulated benchmarks of 30 questions.

    Parameters
    ----------
    x, y : array, shape (M,)
        Successes and failures of each question.
    grid : HyperGrid
        From `hyper_posterior` on the same questions.

    Returns
    -------
    float
        0 where the questions have different numbers of trials, fractions of one, fewer than 4 or
        more than 256.
    """
    trials = x + y
    n = float(trials[0])
    has_fractions = np.any(x != np.floor(x)) or n != np.floor(n)
    if has_fractions or not 4.0 <= n <= _MOST_COUNTED or np.any(trials != n):
        return 0.0
    edges = np.array([0.0, 1.0, n // 4 + 1, n // 2 + 1, 3 * n // 4 + 1, n, n + 1.0])
    edges = np.unique(edges).astype(np.int64)
    likely = grid.weight > _LEAST_WEIGHT * grid.weight.max()
    strength = np.minimum(np.exp(grid.log_strength[likely]), _MOST_STRENGTH)
    a = strength * special.expit(grid.logit_mean[likely])
    b = strength * special.expit(-grid.logit_mean[likely])
    weight = grid.weight[likely] / grid.weight[likely].sum()
    k = np.arange(n + 1.0)[:, None]
    log_ways = -np.log(n + 1.0) - special.betaln(n - k + 1.0, k + 1.0)
    log_share = log_ways + special.betaln(k + a, n - k + b) - special.betaln(a, b)
    expected = x.size * np.add.reduceat(np.exp(log_share) @ weight, edges[:-1])
    observed = np.histogram(x, edges - 0.5)[0]
    return float(((observed - expected) ** 2 / np.maximum(expected, 0.5)).sum())


def mixture_on_grid(pairs: Pairs, grid: HyperGrid) -> BetaMixture:
    """Return the mixture of the distinct questions over the nodes that matter.

    Parameters
    ----------
    pairs : Pairs
        Successes and failures of the distinct questions.
    grid : HyperGrid
        From `hyper_posterior` on the same questions.
    """
    likely = grid.weight > _NEGLIGIBLE * grid.weight.max()
    logit, weight = grid.logit_mean[likely], grid.weight[likely]
    return BetaMixture(
        x=pairs.first,
        y=pairs.second,
        times=pairs.times.astype(np.float64),
        m=special.expit(logit),
        rest=special.expit(-logit),
        s=np.exp(grid.log_strength[likely]),
        weight=weight / weight.sum(),
        steps=grid.steps[:, likely],
    )


def coarse_mixture(
    x: FloatArray, y: FloatArray, mean_counts: tuple[float, float] = NO_MEAN_COUNTS
) -> BetaMixture:
    """Return the mixture of all questions, successes x and failures y, on a coarse grid."""
    return mixture_on_grid(distinct_pairs(x, y), hyper_posterior(x, y, ROUGH, mean_counts))


def mean_density(
    x: FloatArray,
    y: FloatArray,
    grid: HyperGrid,
    mean_counts: tuple[float, float] = NO_MEAN_COUNTS,
) -> tuple[FloatArray, FloatArray]:
    """Return the posterior density of log(m / (1 − m)), s summed out, on an even axis.

    Parameters
    ----------
    x, y : array, shape (M,)
        Successes and failures of each question.
    grid : HyperGrid
        From `hyper_posterior` on the same questions.
    mean_counts : tuple of float
        Those of the grid.

    Returns
    -------
    axis, density : array, shape (Y,)
    """
    nodes = grid.logit_mean
    row = grid.weight.sum(axis=1)
    matters = row > np.exp(-DEPTH) * row.max()
    low, high = nodes[matters, 0].min(), nodes[matters, -1].max()
    narrowest = float(grid.steps[0, matters, 0].min())
    n_points = int(np.clip(2.0 * (high - low) / narrowest, 200, _MOST_POINTS))
    axis = np.linspace(low, high, n_points)
    log_s = grid.log_strength[matters, 0]
    density_at = BetaBinomialDensity(x, y, mean_counts)
    value = density_at(np.broadcast_to(axis, (log_s.size, n_points)), log_s)
    density = np.exp(value - value.max()).sum(axis=0)
    return axis, density / (density.sum() * (axis[1] - axis[0]))


class BetaBinomialDensity(LogDensity):
    """The log posterior density of (y, l), up to a constant; m ~ Beta(.7 + a, .7 + b)."""

    def __init__(
        self, x: FloatArray, y: FloatArray, mean_counts: tuple[float, float] = NO_MEAN_COUNTS
    ) -> None:
        self.right, self.wrong, self.all = _Factors(x), _Factors(y), _Factors(x + y)
        self.n_trials = x + y
        self.shape_right, self.shape_wrong = (MEAN_SHAPE + count for count in mean_counts)
        self.centre = special.logit((x.sum() + 0.5) / (self.n_trials.sum() + 1.0))

    def __call__(self, y: FloatArray, log_s: FloatArray) -> FloatArray:
        """Evaluate for y of shape (L, Y) and log_s of shape (L,)."""
        log_m, log_rest = -np.logaddexp(0.0, -y), -np.logaddexp(0.0, y)
        column = log_s[:, None]
        likelihood = self.right(column + log_m) + self.wrong(column + log_rest)
        # the density of m in terms of y has the factor dm/dy = m (1 − m)
        prior = self.shape_right * log_m + self.shape_wrong * log_rest
        prior = prior + log_prior_of_log_strength(column)
        return np.asarray(likelihood - self.all(log_s)[:, None] + prior)

    def first_bracket(self, log_s: FloatArray) -> tuple[FloatArray, FloatArray]:
        """Return a bracket of y for each l that contains all that matters."""
        m = special.expit(self.centre)
        # the effective number of independent trials of a question is n (s + 1) / (n + s)
        s = np.exp(log_s)[:, None]
        n = self.n_trials
        information = (n * (s + 1.0) / (n + s)).sum(axis=1)
        reach = 12.0 / np.sqrt(m * (1.0 - m) * information + 0.05)
        low = np.minimum(self.centre - reach - 4.0, -40.0)
        high = np.maximum(self.centre + reach + 4.0, 40.0)
        return low, high
