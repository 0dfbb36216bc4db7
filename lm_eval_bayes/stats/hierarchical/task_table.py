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

from lm_eval_bayes.errors import InvalidInputError
from lm_eval_bayes.stats.arrays import FloatArray
from lm_eval_bayes.stats.distributions.beta_mixture import BetaMixture, Cumulants
from lm_eval_bayes.stats.distributions.mixtures import (
    DirichletMixtureDistribution,
    ParticleDistribution,
)
from lm_eval_bayes.stats.hierarchical.beta_binomial import (
    ROUGH,
    BetaBinomialDensity,
    hyper_posterior,
)
from lm_eval_bayes.stats.hierarchical.hyperprior import (
    MEAN_SHAPE,
    STRENGTH_SCALE,
    STRENGTH_SHAPE,
    mean_concentration,
)
from lm_eval_bayes.stats.hierarchical.row_grid import DEPTH
from lm_eval_bayes.stats.intervals import Scope
from lm_eval_bayes.stats.outcomes import Outcomes, distinct_pairs, scaled_weights
from lm_eval_bayes.stats.results import Posterior

ComplexArray: TypeAlias = npt.NDArray[np.complex128]

#: Steps of the axis of z in one sd of the narrowest likelihood, and the limits of their number.
_STEPS_IN_SD = 4.0
_POINTS = (80, 20_000)
#: Sds between the ends of a row of the grid of (m, s), which is cut off e^-18 below its peak.
_SDS_IN_ROW = 14.0
#: The axis goes beyond the bracket of the task's own posterior by this share of it, either side.
_BEYOND = 0.25
#: The mass beyond each end of the axis of a task with more than two weights.
_TAIL = 1e-9
#: The least sd of a density that is summed over an axis, in its steps: the sum is then exact.
_LEAST_SD = 0.6
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


def strength_score(log_strength: FloatArray) -> FloatArray:
    """Return the normal score of s from log s: Φ⁻¹ of its prior distribution function.

    Examples
    --------
    >>> median = STRENGTH_SCALE / (2 ** (1 / STRENGTH_SHAPE) - 1)
    >>> bool(abs(strength_score(np.log([median])))[0] < 1e-12)
    True
    """
    log_below = -STRENGTH_SHAPE * np.log1p(STRENGTH_SCALE * np.exp(-log_strength))
    upper = -special.ndtri(-np.expm1(log_below))
    lower = special.ndtri_exp(np.minimum(log_below, -1e-300))
    return np.asarray(np.where(log_below > -0.5, upper, lower))


@dataclass(frozen=True, eq=False)
class Likelihood:
    """The likelihood of a variable that is standard normal a priori, on an axis of points.

    Parameters
    ----------
    score : array, shape (Z,)
        Ascending points.
    log_mass : array, shape (Z,)
        Log of the likelihood times the width of each point's cell, up to a constant.
    least_sd : float
        The least sd of a normal density whose product with the likelihood is summed here.
    """

    score: FloatArray
    log_mass: FloatArray
    least_sd: float

    def products(
        self, centre: FloatArray, sd: FloatArray
    ) -> tuple[FloatArray, FloatArray, FloatArray]:
        """Multiply the likelihood by normal densities.

        Parameters
        ----------
        centre, sd : array, shape (G,)
            Of each density.

        Returns
        -------
        log_evidence : array, shape (G,)
            Log of the integral of the product, up to a constant.
        integrand : array, shape (G, Z)
            The product, up to a constant for each density.
        sd : array, shape (G,)
            The sds, at least `least_sd`.
        """
        sd = np.maximum(sd, self.least_sd)
        exponent = (self.score - centre[:, None]) / sd[:, None]
        np.square(exponent, out=exponent)
        exponent *= -0.5
        exponent += self.log_mass
        largest = exponent.max(axis=1)
        exponent -= largest[:, None]
        integrand = np.exp(exponent, out=exponent)
        return largest + np.log(integrand.sum(axis=1) / sd), integrand, sd


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
    mean : Likelihood
        Of the normal score z of m.
    benchmark, population : Conditional
        The mean of the questions' p, and m itself, given z.
    """

    mean: Likelihood
    benchmark: Conditional = field(repr=False)
    population: Conditional = field(repr=False)

    def given(self, scope: Scope) -> Conditional:
        """Return the distribution of the score of a scope given z."""
        return self.benchmark if scope == "benchmark" else self.population


@dataclass(frozen=True, eq=False)
class BinaryTask:
    """The trials of a task of two categories, and the likelihood of (m, s) on a grid.

    Parameters
    ----------
    x, y : array, shape (M,)
        Successes and failures of each question.
    z, log_m, log_rest : array, shape (Z,)
        Even normal scores of m, log m and log(1 − m).
    log_strength : array, shape (L,)
        Even values of log s.
    log_joint : array, shape (L, Z)
        The log of the likelihood times the prior density of log s.
    """

    x: FloatArray
    y: FloatArray
    z: FloatArray
    log_m: FloatArray
    log_rest: FloatArray
    log_strength: FloatArray
    log_joint: FloatArray

    @classmethod
    def of(cls, x: FloatArray, y: FloatArray) -> BinaryTask:
        """Tabulate the likelihood of a task.

        Parameters
        ----------
        x, y : array, shape (M,)
            Successes and failures of each question, at least 0, not necessarily whole.
        """
        grid = hyper_posterior(x, y, ROUGH)
        by_row = grid.weight.sum(axis=1)
        matters = by_row > np.exp(-DEPTH) * by_row.max()
        ends = normal_score(grid.logit_mean[matters][:, [0, -1]])
        low, high = float(ends[:, 0].min()), float(ends[:, 1].max())
        step = float(np.diff(ends, axis=1).min()) / (_SDS_IN_ROW * _STEPS_IN_SD)
        low, high = low - _BEYOND * (high - low), high + _BEYOND * (high - low)
        z = np.linspace(low, high, int(np.clip((high - low) / step, *_POINTS)) + 1)
        log_m, log_rest = logs_of_mean(z)
        log_s = grid.log_strength[matters, 0]
        logit = np.broadcast_to(log_m - log_rest, (log_s.size, z.size))
        # the density of log(m / (1 − m)), without the prior of m
        log_joint = BetaBinomialDensity(x, y)(logit, log_s) - MEAN_SHAPE * (log_m + log_rest)
        return cls(x, y, z, log_m, log_rest, log_s, log_joint - log_joint.max())

    @property
    def strength(self) -> Likelihood:
        """The likelihood of the normal score of s, m integrated out over its own prior."""
        log_mass = special.logsumexp(self.log_joint - 0.5 * self.z**2, axis=1)
        score = strength_score(self.log_strength)
        # the density of the score under its own prior is in `log_joint`
        return Likelihood(score, log_mass + 0.5 * score**2, _LEAST_SD * float(np.diff(score).max()))

    def table(self, log_ratio: FloatArray) -> TaskTable:
        """Return the table of the task, s integrated out.

        Parameters
        ----------
        log_ratio : array, shape (L,)
            Log of the prior density of log s over that of `hyperprior`.
        """
        value = self.log_joint + log_ratio[:, None]
        largest = value.max(axis=0)
        weight = np.exp(value - largest)
        log_mass = largest + np.log(weight.sum(axis=0))
        weight[weight < _NEGLIGIBLE] = 0.0
        weight /= weight.sum(axis=0)
        own = log_mass - 0.5 * self.z**2
        own = np.exp(own - own.max())
        m = np.exp(self.log_m)
        centre = float(own @ m / own.sum())
        nothing = np.zeros((1, m.size))
        return TaskTable(
            Likelihood(self.z, log_mass, _LEAST_SD * float(self.z[1] - self.z[0])),
            self._benchmark(weight, centre),
            Conditional(nothing + 1.0, (m - centre)[None], nothing, nothing, nothing, centre),
        )

    def _benchmark(self, weight: FloatArray, centre: float) -> Conditional:
        """Return the mean of the questions' p given z, with one component for each value of s."""
        rows, columns = np.nonzero(weight)
        pairs = distinct_pairs(self.x, self.y)
        at_node = BetaMixture(
            x=pairs.first,
            y=pairs.second,
            times=pairs.times.astype(np.float64),
            m=np.exp(self.log_m)[columns],
            rest=np.exp(self.log_rest)[columns],
            s=np.exp(self.log_strength)[rows],
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


def category_table(population: Posterior, outcomes: Outcomes) -> TaskTable:
    """Return the table of a task of more than two distinct weights, by moments.

    The likelihood of its mean is that of a binomial: as many successes and failures as a Beta
    distribution with the moments of its own posterior has, less those of its own prior,
    m ~ Dirichlet. Its questions' mean score given the mean is normal, with the regression line and
    the residual variance of its own posterior.

    Parameters
    ----------
    population : Posterior
        hbayes@N of the task, scope "population", with the posterior of scope "benchmark".
    outcomes : Outcomes
        Its trials.
    """
    low, span, unit = scaled_weights(outcomes.weights)
    benchmark, distribution = population.benchmark, population.distribution
    if (
        benchmark is None
        or population.learned is None
        or not isinstance(distribution, ParticleDistribution)
        or not isinstance(benchmark.distribution, DirichletMixtureDistribution)
    ):
        rule = 'be of hbayes@N for more than two weights, of scope "population"'
        raise InvalidInputError.of("population", "unsupported", rule, population.quantity)
    mean, sd = (population.mu - low) / span, population.sigma / span
    binomial = mean * (1.0 - mean)
    total = binomial / sd**2 - 1.0
    # a trial in these categories is worth more than one of a binomial with the same mean
    worth = binomial / float(population.learned.mean @ (unit - mean) ** 2)
    prior = mean_concentration(unit.size) * unit.size * worth
    right = max(mean * total - float(unit.mean()) * prior, 0.0)
    wrong = max((1.0 - mean) * total - (1.0 - float(unit.mean())) * prior, 0.0)
    a, b = right + MEAN_SHAPE, wrong + MEAN_SHAPE
    below, above = (special.betaincinv(p, q, _TAIL) for p, q in ((a, b), (b, a)))
    ends = normal_score(np.array([special.logit(below), -special.logit(above)]))
    beyond = _BEYOND * (ends[1] - ends[0])
    z = np.linspace(ends[0] - beyond, ends[1] + beyond, _POINTS[0] + 1)
    log_m, log_rest = logs_of_mean(z)
    m = np.exp(log_m)
    at_particle = (benchmark.distribution.particle_means() - low) / span
    score = (distribution.scores - low) / span
    slope = float(distribution.weight @ ((score - mean) * at_particle)) / sd**2
    residual = (benchmark.sigma / span) ** 2 - (slope * sd) ** 2
    line = (benchmark.mu - low) / span + slope * (m - mean) - mean
    nothing = np.zeros((1, z.size))
    return TaskTable(
        Likelihood(z, right * log_m + wrong * log_rest, _LEAST_SD * float(z[1] - z[0])),
        Conditional(
            nothing + 1.0, line[None], nothing + max(residual, 0.0), nothing, nothing, mean
        ),
        Conditional(nothing + 1.0, (m - mean)[None], nothing, nothing, nothing, mean),
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
