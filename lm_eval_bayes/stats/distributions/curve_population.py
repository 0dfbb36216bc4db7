"""The score of a further question: a success curve under the prior that the questions share."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from lm_eval_bayes.stats.arrays import FloatArray
from lm_eval_bayes.stats.distributions.base import CdfTable, TabulatedDistribution
from lm_eval_bayes.stats.distributions.curve_mixture import CurveMixture
from lm_eval_bayes.stats.distributions.success_curves import Curve
from lm_eval_bayes.stats.outcomes import Pairs

#: Points between two nodes of the grid of (m, s) at which a population's score is interpolated.
_FINER = 8


def curve_means(
    logit_mean: FloatArray, log_strength: FloatArray, curves: Sequence[Curve]
) -> FloatArray:
    """Return E curve(p) for p ~ Beta(s m, s (1 − m)) of every curve and node, shape (K, L, Y).

    Parameters
    ----------
    logit_mean : array, shape (L, Y)
        log(m / (1 − m)) of every node.
    log_strength : array, shape (L,)
        log s of every row.
    curves : sequence of Curve, length K
        The scores as functions of p.
    """
    zero, even = np.zeros(1), np.full(logit_mean.shape, 1.0 / logit_mean.size)
    question = Pairs(zero, zero, np.zeros(1, dtype=np.int64), np.ones(1, dtype=np.int64))
    further = CurveMixture.of(question, logit_mean, log_strength, even, curves)
    return np.stack([moments.at_node.mean for moments in further.moments(curves)])


def population_of_curve(
    mixture: CurveMixture, curve: Curve, at_node: FloatArray
) -> TabulatedDistribution:
    """Return the distribution of E curve(p) over a mixture's grid of (m, s), from `curve_means`."""
    return distribution_over_nodes(at_node, mixture.weight, curve.top, (_FINER, _FINER))


def distribution_over_nodes(
    value: FloatArray, weight: FloatArray, top: float, finer: Sequence[int]
) -> TabulatedDistribution:
    """Return the distribution of a smooth function of the position on a grid.

    Parameters
    ----------
    value, weight : array, of the same shape
        The function, in [0, top], and the probability of every node, sum 1.
    top : float
        The largest value that is possible.
    finer : sequence of int
        Points between two nodes at which both are interpolated, in each direction.
    """
    mu = float((weight * value).sum())
    sd = float(np.sqrt((weight * (value - mu) ** 2).sum()))
    if sd == 0.0:
        return TabulatedDistribution(CdfTable(np.array([0.0, 1.0]), np.array([mu, mu])), mu, sd)
    finer_weight = np.exp(_refined(np.log(np.maximum(weight, 1e-300)), finer)).ravel()
    finer_value = np.clip(_refined(value, finer), 0.0, top).ravel()
    order = np.argsort(finer_value)
    probability = np.cumsum(finer_weight[order])
    probability = (probability - 0.5 * finer_weight[order]) / probability[-1]
    probability[0], probability[-1] = 0.0, 1.0
    return TabulatedDistribution(CdfTable(probability, finer_value[order]), mu, sd)


def _refined(values: FloatArray, finer: Sequence[int]) -> FloatArray:
    """Interpolate between the nodes of a grid, in each direction."""
    from scipy.interpolate import CubicSpline  # takes long to import

    for axis, (size, factor) in enumerate(zip(values.shape, finer, strict=True)):
        if factor > 1:
            fine_axis = np.linspace(0.0, size - 1.0, factor * (size - 1) + 1)
            values = CubicSpline(np.arange(size), values, axis=axis)(fine_axis)
    return np.asarray(values)
