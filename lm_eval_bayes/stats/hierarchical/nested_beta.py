"""The cluster model: Beta clusters of Beta questions of independent trials.

p_t ~ Beta(d θ, d (1 − θ)) is the mean success probability of cluster t, q_α ~ Beta(s p_t,
s (1 − p_t)) that of a question α in it, and x_α ~ Binomial(n_α, q_α). The q_α are integrated out
exactly, and p_t by the trapezoid rule on an axis that all clusters share, so that the integrals of
all clusters at all hyperparameters are matrix products. The posterior of (θ, d, s) is computed on a
grid in logit θ, log d and log s.

The hyperprior is θ ~ Beta(.7, .7), d/(3 + d) ~ Beta(1, .7) and s/(20 + s) ~ Beta(.7, 1).
`examples/clusters.py` measures how often the intervals hold the truth.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from scipy import special

from lm_eval_bayes.stats.arrays import FloatArray, IntArray, blocks
from lm_eval_bayes.stats.outcomes import distinct_pairs

#: Distance of the nodes of p_t, in standard deviations of the narrowest factor of an integrand.
_STEP = 0.8
#: Beyond this strength, in units of the largest cluster's information, clusters do not differ.
_LARGEST = 40.0
#: Numbers held at a time.
_BLOCK = 4_000_000

#: Both parameters of the Beta prior of θ.
_MEAN_SHAPE = 0.7
#: Parameters (a, b, c) of the priors x/(c + x) ~ Beta(a, b) of d and s.
_STRENGTH, _WITHIN = (1.0, 0.7, 3.0), (0.7, 1.0, 20.0)
#: Ranges of logit θ, and smallest values of log d and log s: below, all is decided.
_LOGIT_MEAN, _SMALLEST = (-45.0, 45.0), (-7.0, -6.0)
#: Largest s, in units of the largest number of trials: above, questions of a cluster are alike.
_LARGEST_WITHIN = 50.0
#: Nodes of the grids that locate the mass, and of the final one in log d and log s.
_SEARCH, _FINAL = (41, 13, 9), (25, 15)
#: Minimum and maximum nodes of the final grid in logit θ, and their distance in narrowest sds.
_FINAL_MEAN = (49, 241, 1.0)
#: Depth of the log density below its peak at which it is cut off (e^-22 = 3e-10).
_DEPTH = 22.0


def log_rising(a: FloatArray, x: FloatArray) -> FloatArray:
    """Return log Γ(a + x) / Γ(a) for a > 0 and x > 0, also where a is tiny or huge."""
    return np.asarray(special.gammaln(x) - special.betaln(a, x))


class Clusters(NamedTuple):
    """The distinct clusters of a benchmark, T' among T.

    `right` (T', V) and `wrong` (T', W) count the questions of a cluster by their numbers of
    successes `x` (V,) and failures `y` (W,), zeros left out; `trials` (T', Z) by their numbers of
    trials `n` (Z,). `times` (T',) is how often each cluster occurs.
    """

    x: FloatArray
    right: FloatArray
    y: FloatArray
    wrong: FloatArray
    n: FloatArray
    trials: FloatArray
    times: FloatArray

    @classmethod
    def of(cls, successes: FloatArray, failures: FloatArray, index: IntArray) -> Clusters:
        """Collect the questions of clusters that are numbered from 0, `index` of shape (M,)."""
        tables = [_count_values(v, index) for v in (successes, failures, successes + failures)]
        rows = np.concatenate([table for _, table in tables], axis=1)
        _, first, times = np.unique(rows, axis=0, return_index=True, return_counts=True)
        (x, right), (y, wrong), (n, trials) = tables
        tables_of_each = (x, right[first], y, wrong[first], n, trials[first])
        return cls(*tables_of_each, times.astype(np.float64))

    @classmethod
    def of_trials(cls, successes: FloatArray, failures: FloatArray) -> Clusters:
        """Collect clusters (T,) whose trials are independent given p_t."""
        pairs = distinct_pairs(successes, failures)
        unit, times = np.ones(1), pairs.times.astype(np.float64)
        right, wrong = pairs.first[:, None], pairs.second[:, None]
        return cls(unit, right, unit, wrong, unit, right + wrong, times)

    @property
    def n_trials(self) -> FloatArray:
        """The trials of every distinct cluster, (T',)."""
        return np.asarray(self.trials @ self.n)

    @property
    def several_trials(self) -> bool:
        """Whether a question has more than one trial, so that s has a likelihood."""
        return bool(self.n.max(initial=1.0) > 1.0)

    def information_of_each(self, within: float) -> FloatArray:
        """Return the independent trials of as much information about p_t, (T',), at one s."""
        return np.asarray(self.trials @ (self.n * (within + 1.0) / (self.n + within)))

    def information(self, strength: float, within: float) -> float:
        """Return the independent trials of as much information about θ, at one d and s.

        A cluster of E independent trials has the information of E (d + 1)/(E + d) about θ.
        """
        trials = self.information_of_each(within)
        return float(self.times @ (trials * (strength + 1.0) / (trials + strength)))


def _count_values(values: FloatArray, index: IntArray) -> tuple[FloatArray, FloatArray]:
    """Return the distinct values above 0, and how often each occurs in every cluster."""
    distinct, column = np.unique(values, return_inverse=True)
    flat = index * distinct.size + column
    n_clusters = int(index.max()) + 1
    table = np.bincount(flat, minlength=n_clusters * distinct.size).reshape(n_clusters, -1)
    positive = distinct > 0.0
    return distinct[positive], table[:, positive].astype(np.float64)


class NestedLikelihood:
    """The likelihood of (θ, d, s), given the trials of all clusters.

    Parameters
    ----------
    clusters : Clusters
        The trials.

    Attributes
    ----------
    largest_strength : float
        From this d on the likelihood is that of clusters that do not differ.
    """

    def __init__(self, clusters: Clusters) -> None:
        self.clusters = clusters
        self.largest_strength = _LARGEST * max(float(clusters.n_trials.max()), 1.0)
        self.all_wrong = clusters.right.sum(axis=1) == 0.0
        self.all_right = clusters.wrong.sum(axis=1) == 0.0

    def __call__(self, logit_mean: FloatArray, log_d: FloatArray, log_s: FloatArray) -> FloatArray:
        """Return the log likelihood on a grid, shape (Y, D, S), up to a constant."""
        nodes = self._nodes(log_d, log_s)
        mass = nodes.beta_mass(logit_mean, log_d)
        out = np.empty((logit_mean.size, log_d.size, log_s.size))
        for i, log_strength in enumerate(log_s):
            value, peak = self._questions(nodes, float(log_strength))
            total = np.full(mass.shape[1], self.clusters.times @ peak)
            for part in blocks(value.shape[0], mass.shape[1], _BLOCK):
                with np.errstate(divide="ignore"):
                    logs = np.log(value[part] @ mass)
                total += self.clusters.times[part] @ logs
            out[:, :, i] = total.reshape(logit_mean.size, log_d.size)
        return out

    def _nodes(self, log_d: FloatArray, log_s: FloatArray) -> _Nodes:
        """Return nodes of p_t that are close enough for the largest d and s."""
        trials = self.clusters.information_of_each(float(np.exp(log_s[-1])))
        n_trials = max(float(self.clusters.n_trials.max()), 1.0)
        return _Nodes.of(n_trials, float(trials.max() + np.exp(log_d[-1])))

    def _questions(self, nodes: _Nodes, log_s: float) -> tuple[FloatArray, FloatArray]:
        """Return Π_α p(x_α | p_t, s) at the nodes and at p_t = 0 and 1, divided by its peak.

        Returns
        -------
        value : array, shape (T', P + 2)
        peak : array, shape (T',)
            The logarithm of each row's peak.
        """
        c, s = self.clusters, np.exp(np.array(log_s))
        log_a, log_b = log_s + nodes.log_p, log_s + nodes.log_q
        out = np.zeros((c.times.size, log_a.size))
        for table, values, log_parameter in ((c.right, c.x, log_a), (c.wrong, c.y, log_b)):
            a = np.exp(log_parameter)[:, None]
            for part in blocks(values.size, log_a.size, _BLOCK):
                rising = log_rising(a, values[part])
                out += table[:, part] @ rising.T
        out -= (c.trials @ log_rising(s, c.n))[:, None]
        peak = out.max(axis=1)
        # at p_t = 0 the trials of all questions are failures, with probability 1
        peak = np.where(self.all_wrong | self.all_right, np.maximum(peak, 0.0), peak)
        value = np.empty((c.times.size, log_a.size + 2))
        value[:, 1:-1] = np.exp(out - peak[:, None])
        value[:, 0] = np.where(self.all_wrong, np.exp(-np.maximum(peak, 0.0)), 0.0)
        value[:, -1] = np.where(self.all_right, np.exp(-np.maximum(peak, 0.0)), 0.0)
        return value, peak


class _Nodes(NamedTuple):
    """Nodes of p_t: log p and log(1 − p), and their steps in logit p, all (P,)."""

    log_p: FloatArray
    log_q: FloatArray
    steps: FloatArray

    @classmethod
    def of(cls, n_trials: float, information: float) -> _Nodes:
        """Return nodes that are closer where p (1 − p) is larger, as the integrands need.

        Factors with the information of n trials together have the standard deviation
        1/sqrt(1 + n p (1 − p)) or more. The nodes follow it, out to where all of `n_trials` are of
        one kind with near certainty.
        """
        from scipy.interpolate import CubicSpline  # takes long to import

        def density(y: FloatArray) -> FloatArray:
            spread = special.expit(y) * special.expit(-y)
            return np.asarray(np.sqrt(1.0 + information * spread) / _STEP)

        reach = np.log(n_trials) + 14.0
        fine = np.linspace(-reach, reach, 4001)
        number = CubicSpline(fine, density(fine)).antiderivative()(fine)
        last = int(np.ceil(number[-1]))
        y = CubicSpline(number, fine)(np.linspace(0.0, number[-1], last + 1))
        steps = number[-1] / last / density(y)
        steps[[0, -1]] *= 0.5
        return cls(special.log_expit(y), special.log_expit(-y), steps)

    def beta_mass(self, logit_mean: FloatArray, log_d: FloatArray) -> FloatArray:
        """Return the Beta probability of each node, shape (P + 2, Y·D), each column of sum 1.

        The first and the last row are the probabilities below and above all nodes.
        """
        log_theta, log_other = special.log_expit(logit_mean), special.log_expit(-logit_mean)
        a = np.exp(log_theta[:, None] + log_d).ravel()
        b = np.exp(log_other[:, None] + log_d).ravel()
        mass = np.empty((self.steps.size + 2, a.size))
        density = self.log_p[:, None] * a + self.log_q[:, None] * b - special.betaln(a, b)
        mass[1:-1] = np.exp(density) * self.steps[:, None]
        mass[0] = special.betainc(a, b, np.exp(self.log_p[0]))
        mass[-1] = special.betainc(b, a, np.exp(self.log_q[-1]))
        return np.asarray(mass / mass.sum(axis=0))


class ClusterGrid(NamedTuple):
    """The posterior of (θ, d, s) on a grid.

    `logit_mean` (Y,), `log_strength` (D,) and `log_within` (S,) are the axes of logit θ, log d and
    log s, the first at even steps; `mass` (Y, D, S) holds probabilities, sum 1.
    """

    logit_mean: FloatArray
    log_strength: FloatArray
    log_within: FloatArray
    mass: FloatArray


def cluster_posterior(likelihood: NestedLikelihood) -> ClusterGrid:
    """Put the posterior of (θ, d, s) on a grid that fits it.

    The box is found by zooming: from a coarse grid over all that is possible, keep the part within
    `_DEPTH` of the peak, until it does not shrink any more. At the limits of d and s, beyond which
    the likelihood is constant, a node stands for the rest of the prior too.
    """
    clusters = likelihood.clusters
    last_within = float(np.log(_LARGEST_WITHIN * clusters.n.max(initial=1.0)))
    limits = np.array(
        [
            _LOGIT_MEAN,
            (_SMALLEST[0], np.log(likelihood.largest_strength)),
            (_SMALLEST[1], last_within) if clusters.several_trials else (0.0, 0.0),
        ]
    )
    box, settled = limits.copy(), False
    while not settled:
        axes = _axes(box, _SEARCH)
        logs = _log_mass(likelihood, axes, limits)
        closer = box.copy()
        for i, axis in enumerate(axes):
            others = tuple(j for j in range(3) if j != i)
            inside = np.flatnonzero(logs.max(axis=others) > logs.max() - _DEPTH)
            # one node more on either side: the density may cross the threshold between nodes
            first, last = max(inside[0] - 1, 0), min(inside[-1] + 1, axis.size - 1)
            closer[i] = axis[first], axis[last]
        settled = bool((np.ptp(closer, axis=1) >= 0.7 * np.ptp(box, axis=1)).all())
        box = closer
    least, most, spacing = _FINAL_MEAN
    narrowest = 2.0 / np.sqrt(clusters.information(*np.exp(box[1:, 1]).tolist()) + 4.0)
    n_mean = int(np.clip(np.ptp(box[0]) / (spacing * narrowest), least, most))
    axes = _axes(box, (n_mean, *_FINAL))
    logs = _log_mass(likelihood, axes, limits)
    mass = np.exp(logs - logs.max())
    return ClusterGrid(axes[0], axes[1], axes[2], mass / mass.sum())


def _axes(box: FloatArray, sizes: tuple[int, int, int]) -> list[FloatArray]:
    """Return even nodes of every parameter; one node, where a parameter has no likelihood."""
    return [
        np.linspace(first, last, n if last > first else 1)
        for (first, last), n in zip(box, sizes, strict=True)
    ]


def _log_mass(
    likelihood: NestedLikelihood, axes: Sequence[FloatArray], limits: FloatArray
) -> FloatArray:
    """Return the log of likelihood, prior and step at every node, shape (Y, D, S)."""
    y, log_d, log_s = axes
    prior = _MEAN_SHAPE * (special.log_expit(y) + special.log_expit(-y))
    return np.asarray(
        likelihood(y, log_d, log_s)
        + prior[:, None, None]
        + _log_prior_mass(log_d, limits[1], _STRENGTH)[:, None]
        + _log_prior_mass(log_s, limits[2], _WITHIN)
    )


def _log_prior_mass(
    axis: FloatArray, limits: FloatArray, parameters: tuple[float, float, float]
) -> FloatArray:
    """Return the log prior probability of the nodes of log x, x/(c + x) ~ Beta(a, b).

    The density of log x is proportional to x^a (c + x)^−(a + b), with exponential tails.
    """
    if axis.size == 1:
        return np.zeros(1)
    a, b, c = parameters
    density = a * axis - (a + b) * np.logaddexp(np.log(c), axis)
    step = np.full(axis.size, axis[1] - axis[0])
    step[[0, -1]] *= 0.5
    step[0] += 1.0 / a if axis[0] == limits[0] else 0.0
    step[-1] += 1.0 / b if axis[-1] == limits[1] else 0.0
    return np.asarray(density + np.log(step))


def grid_with_within(clusters: Clusters, grid: ClusterGrid, k: int) -> ClusterGrid:
    """Return the grid with the prior of s, where s has no likelihood.

    Parameters
    ----------
    clusters : Clusters
        The trials.
    grid : ClusterGrid
        Their `cluster_posterior`.
    k : int
        A number of trials, from 50 times of which on questions of a cluster are alike.
    """
    if grid.log_within.size > 1:
        return grid
    limits = np.array([_SMALLEST[1], np.log(_LARGEST_WITHIN * max(k, 1))])
    log_s = np.linspace(limits[0], limits[1], _FINAL[1])
    share = np.exp(_log_prior_mass(log_s, limits, _WITHIN))
    return grid._replace(log_within=log_s, mass=grid.mass * (share / share.sum()))
