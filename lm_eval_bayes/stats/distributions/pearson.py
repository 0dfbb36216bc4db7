"""Pearson's curve of type I through four cumulants: a Beta between two ends of its own.

A mean of one Beta is such a curve, and a mean of Betas that all lie near one end (the questions
that a model never solves, or always) is one but for a few thousandths of its standard deviation.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
from scipy import special

from lm_eval_bayes.stats.distributions.base import CdfTable
from lm_eval_bayes.stats.distributions.beta import beta_cdf, beta_quantile
from lm_eval_bayes.stats.distributions.beta_mixture import Cumulants
from lm_eval_bayes.stats.validation import FloatArray, IntArray

#: Points of a table, half evenly in the score and half evenly in a normal's quantiles.
_POINTS = 100
_FINER = 6
#: Posterior mass in the least likely nodes that are left out.
_LEFT_OUT = 5e-5


@dataclass(frozen=True, eq=False)
class PearsonNodes:
    """Type I curves with the cumulants of G nodes.

    Parameters
    ----------
    mean, spread : array, shape (G,)
        Mean and standard deviation.
    skew : array, shape (G,)
        Third standardized cumulant.
    total : array, shape (G,)
        Sum of the two Beta parameters; not above 0, or infinite, where no such curve exists.
    """

    mean: FloatArray
    spread: FloatArray
    skew: FloatArray
    total: FloatArray

    @classmethod
    def of(cls, at_node: Cumulants) -> PearsonNodes:
        """Fit a curve to every node."""
        spread = np.sqrt(at_node.variance)
        skew = at_node.third / spread**3
        square, excess = skew**2, at_node.fourth / at_node.variance**2
        with np.errstate(divide="ignore"):
            total = 6.0 * (excess + 2.0 - square) / (3.0 * square - 2.0 * excess)
        return cls(at_node.mean, spread, skew, np.asarray(total))

    def __getitem__(self, some: npt.NDArray[np.bool_] | IntArray) -> PearsonNodes:
        """Return some of the nodes."""
        return PearsonNodes(self.mean[some], self.spread[some], self.skew[some], self.total[some])

    def exist(self) -> bool:
        """Return whether every node has its curve."""
        return bool(np.all((self.total > 0.0) & np.isfinite(self.total)))

    def below(self, score: FloatArray) -> FloatArray:
        """Return the distribution functions at `score`, shape (G, L)."""
        total, skew = self.total, np.abs(self.skew)
        wide = np.sqrt((skew * (total + 2.0)) ** 2 + 16.0 * (total + 1.0))
        # the parameter of the end nearer to the mean, without cancellation
        near = 0.5 * total * 16.0 * (total + 1.0) / (wide * (wide + (total + 2.0) * skew))
        far = total - near
        width = 0.5 * self.spread * wide
        towards = np.where(self.skew < 0.0, -1.0, 1.0)
        from_mean = towards[:, None] * (score - self.mean[:, None]) / width[:, None]
        inside = np.clip(from_mean + (near / total)[:, None], 0.0, 1.0)
        part = beta_cdf(near, far, inside, 1e-5)
        return np.asarray(np.where(towards[:, None] < 0.0, 1.0 - part, part))


def pearson_table(
    weight: FloatArray, nodes: PearsonNodes, sway: FloatArray, mu: float, sigma: float
) -> CdfTable:
    """Mix the curves of a mixture's nodes into one table.

    Parameters
    ----------
    weight : array, shape (G,)
        Probability of each node.
    nodes : PearsonNodes
        Of which all exist.
    sway : array, shape (2, G)
        How far the mean moves over each node's cell.
    mu, sigma : float
        Mean and standard deviation of the mixture.

    Returns
    -------
    CdfTable
        Scores within [0, 1].
    """
    order = np.argsort(weight)
    kept = order[np.cumsum(weight[order]) > _LEFT_OUT]
    weight = weight[kept] / weight[kept].sum()
    nodes, sway = nodes[kept], sway[:, kept]
    moved = sway.max(axis=0) > nodes.spread
    score = _scores(mu, sigma)
    below = np.empty((kept.size, score.size))
    below[~moved] = nodes[~moved].below(score)
    below[moved] = _moved(nodes[moved], sway[:, moved], score)
    below = np.maximum.accumulate(np.clip(weight @ below, 0.0, 1.0))
    below[-1] = 1.0
    # the movement over cells widens the whole a little: take that back
    variance = nodes.spread**2 + np.where(moved, (sway**2).sum(axis=0) / 12.0, 0.0)
    widened = float(weight @ (variance + (nodes.mean - mu) ** 2))
    score = _stretched(score, mu, sigma / np.sqrt(widened))
    from scipy.interpolate import PchipInterpolator  # takes long to import

    index = np.arange(score.size)
    finer = np.interp(np.linspace(0.0, index[-1], _FINER * int(index[-1]) + 1), index, score)
    smooth = np.clip(PchipInterpolator(score, below)(finer), 0.0, 1.0)
    # what lies below the first point lies, for all that can be told, on it
    return CdfTable(np.append(0.0, smooth), np.append(finer[0], finer))


def _scores(mu: float, sigma: float) -> FloatArray:
    """Return scores that are close to each other where the mass is, and near the ends."""
    strength = mu * (1.0 - mu) / sigma**2 - 1.0
    steps = special.ndtr(np.linspace(-8.0, 8.0, _POINTS // 2))
    dense = beta_quantile(mu * strength, (1.0 - mu) * strength, steps)
    even = np.linspace(max(mu - 12.0 * sigma, 0.0), min(mu + 12.0 * sigma, 1.0), _POINTS // 2)
    score = np.unique(np.concatenate([dense, even]))
    return np.asarray(score[np.append(np.diff(score) > 1e-9 * sigma, True)])


def _stretched(score: FloatArray, mu: float, factor: float) -> FloatArray:
    """Stretch scores about `mu` by a factor close to 1, and leave 0 and 1 where they are."""
    left = mu * np.minimum(score / mu, 1.0) ** factor
    right = (1.0 - mu) * np.minimum((1.0 - score) / (1.0 - mu), 1.0) ** factor
    return np.asarray(np.where(score < mu, left, 1.0 - right))


def _moved(nodes: PearsonNodes, sway: FloatArray, score: FloatArray) -> FloatArray:
    """Return the distribution functions of nodes that move further than they spread, (G, L).

    The wider movement is a uniform one, so that neighbouring cells join without a seam;
    the other one and the spread are taken for normal.
    """
    wide = sway.max(axis=0)[:, None]
    spread = np.sqrt(nodes.spread**2 + sway.min(axis=0) ** 2 / 12.0)[:, None]
    above = score - nodes.mean[:, None]
    return np.asarray(
        (_ramp(above + 0.5 * wide, spread) - _ramp(above - 0.5 * wide, spread)) / wide
    )


def _ramp(x: FloatArray, spread: FloatArray) -> FloatArray:
    """Return ∫ Φ(t / spread) dt from −∞ to x."""
    z = np.clip(x / np.maximum(spread, 1e-300), -40.0, 40.0)
    return np.asarray(x * special.ndtr(z) + spread * np.exp(-0.5 * z * z) / np.sqrt(2.0 * np.pi))
