"""The likelihood of lying between two anchors, at one position that all queries share.

Every query's success probability is linear in the position u between the weaker and the stronger
anchor, so that the log likelihood is concave in u. With many trials it has a narrow peak in
[0, 1]. The interval is bisected: the tangents at the edges of a panel bound the likelihood inside,
panels that cannot contain the peak are skipped, and the others are halved until the peak is wide
compared with the panel.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from scipy import special

from lm_eval_bayes.stats.arrays import FloatArray, blocks

#: Nodes in a panel, and how far the log likelihood may fall in it, as the tangents have it:
#: the panel at the top of a normal hill is then at most 7 sd wide.
_NODES, _FALL = 32, 24.0
_GAUSS_NODES, _GAUSS_WEIGHTS = np.polynomial.legendre.leggauss(_NODES)
#: The nodes and weights on [0, 1].
_UNIT_NODES, _UNIT_WEIGHTS = 0.5 * (_GAUSS_NODES + 1.0), 0.5 * _GAUSS_WEIGHTS
#: Depth below the peak of the log likelihood at which it is cut off, e^-40 of the peak.
_DEPTH = 40.0
#: Panels are halved so often at the most: floats in [0, 1] hold no more.
_HALVINGS = 48
#: Numbers worked on at a time.
_BLOCK = 1_000_000


@dataclass(frozen=True, eq=False)
class _Way:
    """The way from one anchor to the next; see `shared_position_log`."""

    weaker: FloatArray
    rise: FloatArray
    solved: FloatArray
    failed: FloatArray
    subsets: FloatArray

    def values(self, u: FloatArray) -> FloatArray:
        """Return the log likelihood of each subset at positions (P,), shape (B, P)."""
        p = self.weaker + u[:, None] * self.rise
        return np.asarray(self.subsets @ (self.solved * np.log(p) + self.failed * np.log1p(-p)).T)

    def ends(self, u: FloatArray) -> tuple[FloatArray, FloatArray]:
        """Return the same with its slope, each (B, P), a block of positions at a time."""
        value = np.empty((self.subsets.shape[0], u.size))
        slope = np.empty_like(value)
        for part in blocks(u.size, self.weaker.size, _BLOCK):
            value[:, part] = self.values(u[part])
            p = self.weaker + u[part, None] * self.rise
            slopes = self.rise * (self.solved / p - self.failed / (1.0 - p))
            slope[:, part] = self.subsets @ slopes.T
        return value, slope


def shared_position_log(
    weaker: FloatArray,
    stronger: FloatArray,
    solved: FloatArray,
    failed: FloatArray,
    subsets: FloatArray,
) -> FloatArray:
    """Return log ∫₀¹ Π_j p_j(u)^c_j (1 − p_j(u))^(N_j − c_j) du for each subset of the queries.

    p_j(u) = (1 − u) Π_j + u Π'_j.

    Parameters
    ----------
    weaker, stronger : array, shape (M,)
        The two anchors' probabilities Π_j and Π'_j, strictly between 0 and 1.
    solved, failed : array, shape (M,)
        c_j and N_j − c_j.
    subsets : array, shape (B, M)
        How often each holds a query.

    Returns
    -------
    array, shape (B,)

    Examples
    --------
    One query between 0.2 and 0.6, solved in its one trial: as if at the middle, 0.4.

    >>> one = np.ones(1)
    >>> log = shared_position_log(0.2 * one, 0.6 * one, one, 0 * one, np.ones((1, 1)))
    >>> round(float(np.exp(log[0])), 12)
    0.4
    """
    way = _Way(weaker, stronger - weaker, solved, failed, subsets)
    low, width = _panels(way)
    total = np.full(subsets.shape[0], -np.inf)
    for part in blocks(low.size, _NODES * max(subsets.shape), _BLOCK):
        u = (low[part, None] + width[part, None] * _UNIT_NODES).ravel()
        mass = (width[part, None] * _UNIT_WEIGHTS).ravel()
        total = np.logaddexp(total, special.logsumexp(way.values(u), axis=1, b=mass))
    return total


def _panels(way: _Way) -> tuple[FloatArray, FloatArray]:
    """Return where the panels that matter to some subset begin, and their widths, each (P,)."""
    low, width = np.zeros(1), 1.0
    lows: list[FloatArray] = []
    widths: list[FloatArray] = []
    peak = np.full((way.subsets.shape[0], 1), -np.inf)
    for halving in range(_HALVINGS + 1):
        (left, left_slope), (right, right_slope) = way.ends(low), way.ends(low + width)
        # a concave function stays below its tangents
        top = np.minimum(
            left + width * np.maximum(left_slope, 0.0),
            right - width * np.minimum(right_slope, 0.0),
        )
        bottom = np.minimum(left, right)
        highest = np.maximum(left, right).max(axis=1, keepdims=True)
        peak = np.maximum(peak, highest)
        matters = top > peak - _DEPTH
        steep = (matters & (top - bottom > _FALL)).any(axis=0) & (halving < _HALVINGS)
        done = matters.any(axis=0) & ~steep
        lows.append(low[done])
        widths.append(np.full(int(done.sum()), width))
        if not steep.any():
            break
        width *= 0.5
        low = (low[steep, None] + np.array([0.0, width])).ravel()
    return np.concatenate(lows), np.concatenate(widths)
