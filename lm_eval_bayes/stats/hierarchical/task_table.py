"""What the trials of a task say about its mean: the tables that a mean over tasks needs.

The mean m_t of a task's questions is measured by its normal score z = Φ⁻¹(F(m)), with F the
distribution function of m's prior, Beta(.7, .7): under that prior z is standard normal.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TypeAlias

import numpy as np
import numpy.typing as npt
from scipy import special

from lm_eval_bayes.stats.distributions.beta_mixture import BetaMixture, Cumulants
from lm_eval_bayes.stats.hierarchical.beta_binomial import BetaBinomialDensity, hyper_posterior
from lm_eval_bayes.stats.hierarchical.hyperprior import MEAN_SHAPE
from lm_eval_bayes.stats.hierarchical.row_grid import DEPTH
from lm_eval_bayes.stats.intervals import Scope
from lm_eval_bayes.stats.outcomes import distinct_pairs
from lm_eval_bayes.stats.validation import FloatArray, protect

ComplexArray: TypeAlias = npt.NDArray[np.complex128]

#: Steps of the axis of z in one sd of the narrowest likelihood, and the limits of their number.
_STEPS_IN_SD = 4.0
_POINTS = (80, 20_000)
#: Sds between the ends of a row of the grid of (m, s), which is cut off e^-18 below its peak.
_SDS_IN_ROW = 14.0
#: The axis goes beyond the bracket of the task's own posterior by this share of it, either side.
_BEYOND = 0.25
#: Values of s whose probability given z is below this share of the largest are left out.
_NEGLIGIBLE = 1e-7
#: The same for transforms, and the sd of their smoothing in steps of the mean along z.
_SMALL, _SMOOTHING = 1e-4, 0.6
#: Components of smaller skewness are normal in transforms.
_LEAST_SKEW = 1e-4


def normal_score(logit: FloatArray) -> FloatArray:
    """Return the normal score of m from log(m / (1 − m)).

    Examples
    --------
    >>> normal_score(np.array([0.0])).tolist()
    [0.0]
    """
    tail = special.betainc(MEAN_SHAPE, MEAN_SHAPE, special.expit(-np.abs(logit)))
    return np.asarray(-np.sign(logit) * special.ndtri(tail))


def logs_of_mean(z: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Return log m and log(1 − m) from the normal score of m.

    Examples
    --------
    >>> log_m, log_rest = logs_of_mean(normal_score(np.array([3.0])))
    >>> bool(abs((log_m - log_rest)[0] - 3.0) < 1e-12)
    True
    """
    small = special.betaincinv(MEAN_SHAPE, MEAN_SHAPE, special.ndtr(-np.abs(z)))
    near, far = np.log(small), np.log1p(-small)
    return np.where(z < 0.0, near, far), np.where(z < 0.0, far, near)


@dataclass(frozen=True, eq=False)
class Conditional:
    """The distribution of a task's score given its normal score z, less `centre`.

    A mixture of K components at every z, each known by four cumulants.

    Parameters
    ----------
    weight : array, shape (K, Z)
        Probability of each component, sum 1 at every z.
    mean, variance, third, fourth : array, shape (K, Z)
        The cumulants of each.
    centre : float
        What the scores are counted from.
    """

    weight: FloatArray
    mean: FloatArray
    variance: FloatArray
    third: FloatArray
    fourth: FloatArray
    centre: float

    def __post_init__(self) -> None:
        protect(self)

    def raw_moments(self) -> FloatArray:
        """Return the moments about the centre of order 0 to 4 at every z, shape (Z, 5)."""
        d, v, third = self.mean, self.variance, self.third
        orders = (
            np.ones_like(d),
            d,
            d**2 + v,
            d**3 + 3.0 * d * v + third,
            d**4 + 6.0 * d**2 * v + 4.0 * d * third + self.fourth + 3.0 * v**2,
        )
        return np.stack([(self.weight * order).sum(axis=0) for order in orders], axis=1)

    def transform(self, frequency: FloatArray) -> ComplexArray:
        """Return E exp(i ω (score − centre)) at every z, shape (Z, Ω).

        Each component is a shifted gamma with its first three cumulants, a Beta's at either end.
        It is smoothed over the steps of z: without that, the sum over z is periodic in ω.
        """
        total = np.zeros((self.weight.shape[1], frequency.size), dtype=np.complex128)
        smoothing = (_SMOOTHING * np.gradient(self.mean, axis=1)) ** 2
        for k, weight in enumerate(self.weight):
            at = np.flatnonzero(weight > _SMALL)
            mean, variance, third = self.mean[k, at], self.variance[k, at], self.third[k, at]
            # a gamma of shape 4 / γ² and scale sd γ / 2 has the skewness γ
            skewed = third**2 > _LEAST_SKEW**2 * variance**3
            scale = np.where(skewed, third / np.where(skewed, 2.0 * variance, 1.0), 0.0)
            shape = np.where(skewed, variance / np.where(skewed, scale, 1.0) ** 2, 0.0)[:, None]
            normal = smoothing[k, at] + np.where(skewed, 0.0, variance)
            angle = frequency * scale[:, None]
            size = -0.5 * normal[:, None] * frequency**2 - 0.5 * shape * np.log1p(angle**2)
            turn = frequency * mean[:, None] + shape * (np.arctan(angle) - angle)
            total[at] += (weight[at, None] * np.exp(size)) * np.exp(1j * turn)
        return total / total[:, :1].real


@dataclass(frozen=True, eq=False)
class TaskTable:
    """A task of two categories: the likelihood of its mean, and its score given the mean.

    Parameters
    ----------
    z : array, shape (Z,)
        Even normal scores of the mean.
    log_likelihood : array, shape (Z,)
        Log of the probability of the task's trials given m, s integrated out, up to a constant.
    benchmark, population : Conditional
        The mean of the questions' p, and m itself, given z.
    """

    z: FloatArray
    log_likelihood: FloatArray
    benchmark: Conditional = field(repr=False)
    population: Conditional = field(repr=False)

    def __post_init__(self) -> None:
        protect(self)

    def given(self, scope: Scope) -> Conditional:
        """Return the distribution of the score of a scope given z."""
        return self.benchmark if scope == "benchmark" else self.population


def task_table(x: FloatArray, y: FloatArray) -> TaskTable:
    """Tabulate a task of two categories.

    Parameters
    ----------
    x, y : array, shape (M,)
        Successes and failures of each question, at least 0, not necessarily whole.
    """
    grid = hyper_posterior(x, y, rough=True)
    by_row = grid.weight.sum(axis=1)
    matters = by_row > np.exp(-DEPTH) * by_row.max()
    ends = normal_score(grid.logit_mean[matters][:, [0, -1]])
    low, high = float(ends[:, 0].min()), float(ends[:, 1].max())
    step = float(np.diff(ends, axis=1).min()) / (_SDS_IN_ROW * _STEPS_IN_SD)
    low, high = low - _BEYOND * (high - low), high + _BEYOND * (high - low)
    z = np.linspace(low, high, int(np.clip((high - low) / step, *_POINTS)) + 1)
    log_m, log_rest = logs_of_mean(z)
    log_s = grid.log_strength[matters, 0]
    value = BetaBinomialDensity(x, y)(
        np.broadcast_to(log_m - log_rest, (log_s.size, z.size)), log_s
    )
    largest = value.max(axis=0)
    weight = np.exp(value - largest)
    total = weight.sum(axis=0)
    # the density of log(m / (1 − m)) without the prior of m
    log_likelihood = largest + np.log(total) - MEAN_SHAPE * (log_m + log_rest)
    weight[weight < _NEGLIGIBLE] = 0.0
    weight /= weight.sum(axis=0)
    own = np.exp(log_likelihood - log_likelihood.max() - 0.5 * z**2)
    m = np.exp(log_m)
    centre = float(own @ m / own.sum())
    nothing = np.zeros((1, z.size))
    population = Conditional(nothing + 1.0, (m - centre)[None], nothing, nothing, nothing, centre)
    return TaskTable(
        z,
        log_likelihood - log_likelihood.max(),
        _benchmark(x, y, (log_m, log_rest), np.exp(log_s), weight, centre),
        population,
    )


def _benchmark(
    x: FloatArray,
    y: FloatArray,
    logs: tuple[FloatArray, FloatArray],
    s: FloatArray,
    weight: FloatArray,
    centre: float,
) -> Conditional:
    """Return the mean of the questions' p given z, with one component for each value of s."""
    rows, columns = np.nonzero(weight)
    pairs = distinct_pairs(x, y)
    at_node = BetaMixture(
        x=pairs.first,
        y=pairs.second,
        times=pairs.times.astype(np.float64),
        m=np.exp(logs[0])[columns],
        rest=np.exp(logs[1])[columns],
        s=s[rows],
        weight=weight[rows, columns],
        steps=np.zeros((2, rows.size)),
    ).cumulants()

    def spread(values: FloatArray) -> FloatArray:
        table = np.zeros_like(weight)
        table[rows, columns] = values
        return table

    return Conditional(
        weight,
        spread(at_node.mean - centre),
        spread(at_node.variance),
        spread(at_node.third),
        spread(at_node.fourth),
        centre,
    )


def node_cumulants(moments: FloatArray, weight: float, centre: float) -> Cumulants:
    """Return the cumulants of weight · score from moments about the centre, shape (G, 5).

    The first column is the order 0, by which the others are divided.
    """
    first, second, third, fourth = (moments[:, k] / moments[:, 0] for k in range(1, 5))
    variance = np.maximum(second - first**2, 0.0)
    skew = third - 3.0 * first * second + 2.0 * first**3
    excess = (
        fourth - 4.0 * first * third - 3.0 * second**2 + 12.0 * first**2 * second - 6.0 * first**4
    )
    return Cumulants(
        weight * (centre + first),
        weight**2 * variance,
        weight**3 * skew,
        weight**3 * np.abs(skew),
        weight**4 * excess,
        weight**4 * np.abs(excess),
    )
