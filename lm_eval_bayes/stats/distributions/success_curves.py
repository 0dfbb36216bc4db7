"""Success curves: the expected score of a question in k new trials, given its probability p.

Each member of the pass family is the expected credit of the number of successes J among
k independent trials, J ~ Binomial(k, p). As a function of p that is a polynomial rising
from 0; a posterior needs its value and its inverse. Both use p together with q = 1 − p, since
near p = 1 the value of p alone loses the digits of q. The moments of a curve under Beta posteriors
are computed by quadrature.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
from scipy import special

from lm_eval_bayes.stats.arrays import FloatArray
from lm_eval_bayes.stats.distributions.base import beta_quantile

_NODES, _WEIGHTS = np.polynomial.legendre.leggauss(16)
#: Mass beyond the panels, unless p or q is below e^-45 there.
_TAIL = 1e-300


@dataclass(frozen=True)
class Identity:
    """p itself, the expected score of one trial: Bayes@N for two categories."""

    degree: int = 1
    top: float = 1.0
    sharpness: float = 4.0

    def value(self, p: FloatArray, q: FloatArray) -> FloatArray:
        """Return p."""
        return p

    def inverse(self, s: FloatArray) -> tuple[FloatArray, FloatArray]:
        """Return s and 1 − s."""
        return s, 1.0 - s


@dataclass(frozen=True)
class _OfTrials:
    """A curve of k trials that reaches 1."""

    k: int

    @property
    def degree(self) -> int:
        """k."""
        return self.k

    @property
    def top(self) -> float:
        """The value at p = 1."""
        return 1.0

    @property
    def sharpness(self) -> float:
        """That of 1 − exp(−k p/q), which rises over about 1 for any k."""
        return 4.0


class AtLeastOne(_OfTrials):
    """1 − (1 − p)^k, the latent Pass@k."""

    def value(self, p: FloatArray, q: FloatArray) -> FloatArray:
        """Return 1 − q^k without losing the digits of a small p."""
        log_q = np.where(p < 0.5, np.log1p(-np.minimum(p, 0.5)), _safe_log(q))
        return np.asarray(-np.expm1(self.k * log_q))

    def inverse(self, s: FloatArray) -> tuple[FloatArray, FloatArray]:
        """Return 1 − (1 − s)^(1/k) and its complement."""
        log_q = _safe_log(1.0 - s) / self.k
        return np.asarray(-np.expm1(log_q)), np.asarray(np.exp(log_q))


class AllOf(_OfTrials):
    """p^k, the latent Pass^k."""

    def value(self, p: FloatArray, q: FloatArray) -> FloatArray:
        """Return p^k without losing the digits of a small q."""
        log_p = np.where(q < 0.5, np.log1p(-np.minimum(q, 0.5)), _safe_log(p))
        return np.asarray(np.exp(self.k * log_p))

    def inverse(self, s: FloatArray) -> tuple[FloatArray, FloatArray]:
        """Return s^(1/k) and its complement."""
        log_p = _safe_log(s) / self.k
        return np.asarray(np.exp(log_p)), np.asarray(-np.expm1(log_p))


@dataclass(frozen=True)
class AtLeast(_OfTrials):
    """P(J >= j), the latent G-Pass@k_τ with j = max(1, ⌈τk⌉)."""

    j: int

    @property
    def sharpness(self) -> float:
        """From the sd of J at p = j/k, or that of :class:`AtLeastOne`."""
        return max(4.0, 4.0 * self.j * (self.k - self.j) / self.k)

    def value(self, p: FloatArray, q: FloatArray) -> FloatArray:
        """Return the binomial tail as a regularised incomplete beta function."""
        return binomial_tail(self.j, self.k, p)

    def inverse(self, s: FloatArray) -> tuple[FloatArray, FloatArray]:
        """Invert both tails, each where it has digits."""
        above = self.k - self.j + 1.0
        return beta_quantile(self.j, above, s), beta_quantile(above, self.j, 1.0 - s)


class MeanExcess(_OfTrials):
    """(2/k) E max(J − ⌈k/2⌉, 0), the latent mG-Pass@k; always 0 at k = 1."""

    @property
    def top(self) -> float:
        """1 for an even k, (k − 1)/k for an odd one."""
        return 2.0 * (self.k // 2) / self.k

    @property
    def sharpness(self) -> float:
        """From the sd of J at p = 1/2."""
        return max(4.0, float(self.k))

    def value(self, p: FloatArray, q: FloatArray) -> FloatArray:
        """Return the credit through j·P(J=j; k) = kp·P(J=j−1; k−1), which sums the tail."""
        half = (self.k + 1) // 2
        if half >= self.k:
            return np.zeros_like(p)
        rising = self.k * p * binomial_tail(half, self.k - 1, p)
        excess = rising - half * binomial_tail(half + 1, self.k, p)
        return np.clip(2.0 * excess / self.k, 0.0, self.top)

    def inverse(self, s: FloatArray) -> tuple[FloatArray, FloatArray]:
        """Invert by bisection in p, to rounding."""
        low, high = np.zeros_like(s), np.ones_like(s)
        for _ in range(50):
            middle = 0.5 * (low + high)
            below = self.value(middle, 1.0 - middle) < s
            low, high = np.where(below, middle, low), np.where(below, high, middle)
        p = np.where(s >= self.top, 1.0, np.where(s <= 0.0, 0.0, 0.5 * (low + high)))
        return p, 1.0 - p


#: A non-decreasing function of p with curve(0) = 0: its `degree` as a polynomial in p, its value at
#: p = 1, the `top`, its `sharpness`, 4/w² with w the distance over which it rises steepest in
#: log(p / (1 − p)), its `value` at p and q = 1 − p, and the p and 1 − p where it reaches a value.
Curve: TypeAlias = Identity | AtLeastOne | AllOf | AtLeast | MeanExcess


def at_least(j: int, k: int) -> Curve:
    """Return the curve P(J >= j), in closed form at both ends."""
    if j == 1:
        return AtLeastOne(k)
    return AllOf(k) if j == k else AtLeast(k, j)


def binomial_tail(j: int, k: int, p: FloatArray) -> FloatArray:
    """Return P(J >= j) for J ~ Binomial(k, p), 1 <= j <= k."""
    return np.asarray(special.betainc(float(j), k - j + 1.0, p))


def _safe_log(x: FloatArray) -> FloatArray:
    """Log with log(0) = −inf and no warning."""
    with np.errstate(divide="ignore"):
        return np.asarray(np.log(x))


def beta_moments(a: FloatArray, b: FloatArray, curve: Curve) -> tuple[FloatArray, FloatArray]:
    r"""Return mean and variance of curve(p) for p ~ Beta(a_i, b_i), to rounding.

    The integrals are taken in the logit x = log(p/q), where the density p^a q^b / B(a, b)
    is smooth at both ends for any a, b > 0. On panels narrower than four times the finest
    scale that can occur, 2/sqrt(a + b + 2·degree), a 16-point Gauss-Legendre rule has no
    error left. Beyond the outer panels, where p or q is so small that the curve has
    reached its end value, the remaining probability enters as an atom. The
    variance is summed about the mean, so that a narrow posterior keeps its digits.

    Parameters
    ----------
    a, b : array, shape (D,)
        Beta parameters above 0, D of them.
    curve : Curve
        What is averaged, a polynomial in p.

    Returns
    -------
    mean, variance : array, shape (D,)

    Notes
    -----
    Closed forms exist (E p^k is a ratio of Beta functions) and serve as the tests'
    oracle; as a kernel they cancel, at N = 10⁶ down to no digits of the variance.

    Examples
    --------
    Beta(2, 1) and p²: mean 1/2, variance 1/3 − 1/4.

    >>> from lm_eval_bayes.stats.distributions.success_curves import AllOf
    >>> mean, variance = beta_moments(np.array([2.0]), np.array([1.0]), AllOf(2))
    >>> round(float(mean[0]), 12), round(float(variance[0]), 12)
    (0.5, 0.083333333333)
    """
    mean, variance = np.empty_like(a), np.empty_like(a)
    # rows of similar width and location share one grid and the values of the curve
    sharpness = np.ceil(np.log2(a + b + 2.0 * curve.degree))
    order = np.lexsort((a / (a + b), sharpness))
    for level in np.unique(sharpness):
        alike = order[sharpness[order] == level]
        block = 32 if level <= 12 else 4
        for start in range(0, alike.size, block):
            rows = alike[start : start + block]
            mean[rows], variance[rows] = _block_moments(a[rows], b[rows], curve, 2.0**level)
    return mean, variance


def _block_moments(
    a: FloatArray, b: FloatArray, curve: Curve, sharpness: float
) -> tuple[FloatArray, FloatArray]:
    """Return the moments of a few rows on one grid."""
    edges = _panel_edges(a, b, sharpness, curve.degree)
    half = 0.5 * (edges[1] - edges[0])
    x = (0.5 * (edges[:-1] + edges[1:])[:, None] + half * _NODES).ravel()
    scores = curve.value(special.expit(x), special.expit(-x))
    log_density = -a[:, None] * np.logaddexp(0.0, -x) - b[:, None] * np.logaddexp(0.0, x)
    density = np.exp(log_density - log_density.max(axis=1, keepdims=True))
    density *= np.tile(_WEIGHTS, edges.size - 1)
    below = special.betainc(a, b, special.expit(edges[0]))
    above = special.betainc(b, a, special.expit(-edges[-1]))
    mass = density * ((1.0 - below - above) / density.sum(axis=1))[:, None]
    mean = (mass * scores).sum(axis=1) + above * curve.top
    variance = (mass * (scores - mean[:, None]) ** 2).sum(axis=1)
    variance += below * mean**2 + above * (curve.top - mean) ** 2
    return mean, variance


def _panel_edges(a: FloatArray, b: FloatArray, sharpness: float, degree: int) -> FloatArray:
    """Return equally spaced panel edges in the logit, covering every row's posterior."""
    reach = 45.0 + np.log(degree + 1.0)
    with np.errstate(divide="ignore"):
        low = special.logit(np.min(beta_quantile(a, b, _TAIL)))
        high = -special.logit(np.min(beta_quantile(b, a, _TAIL)))
    low, high = max(float(low), -reach), min(float(high), reach)
    n_panels = max(4, int(np.ceil((high - low) * np.sqrt(sharpness) / 4.0)))
    return np.linspace(low, high, n_panels + 1)
