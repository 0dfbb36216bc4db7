"""Beta and Dirichlet distributions for many questions at once: quantiles, cdf and draws."""

from __future__ import annotations

import numpy as np
from scipy import special

from lm_eval_bayes.stats.validation import FloatArray


def beta_quantile(
    a: FloatArray | float, b: FloatArray | float, u: FloatArray | float
) -> FloatArray:
    """Return the Beta(a, b) quantile at u, also where scipy's inverse fails.

    With b far below 1 a quantile can be closer to 1 than a float can represent, and the inverse
    then returns NaN; it is computed from the other tail.
    """
    p = np.asarray(special.betaincinv(a, b, u), dtype=np.float64)
    if np.isnan(p).any():
        other = 1.0 - special.betaincinv(b, a, 1.0 - u)
        p = np.where(np.isnan(p), other, p)
    return p


def beta_cdf(a: FloatArray, b: FloatArray, x: FloatArray, error: float) -> FloatArray:
    """Return the distribution functions of Beta(a, b).

    Where b is large compared with a, a gamma approximates the Beta, which takes half the time.

    Parameters
    ----------
    a, b : array, shape (G,)
        Parameters, above 0.
    x : array, shape (G, L) or (1, L)
        Points in [0, 1].
    error : float
        Tolerance of the result, above 0; the bound is met from 1e-9 to 1e-4.

    Returns
    -------
    array, shape (G, L)

    Examples
    --------
    >>> found = beta_cdf(np.array([1.0]), np.array([3.0]), np.array([[0.5]]), 1e-6)
    >>> round(float(found[0, 0]), 6)
    0.875
    """
    x = np.broadcast_to(x, (a.size, x.shape[1]))
    # an empirical bound of the expansion's first neglected term
    neglected = a * (1.0 + a) ** 3 * (1.0 + a / 20.0) ** 2
    gamma = neglected <= 2.5 * error * (b + 0.5 * (a - 1.0)) ** 4
    below = np.empty(x.shape)
    below[gamma] = _as_gamma(a[gamma, None], b[gamma, None], x[gamma])
    rest = ~gamma
    below[rest] = special.betainc(a[rest, None], b[rest, None], x[rest])
    return below


def _as_gamma(a: FloatArray, b: FloatArray, x: FloatArray) -> FloatArray:
    """Return a Beta's distribution function by Wise's expansion, to its second term.

    −log(1 − x) has the density of a gamma of shape a and rate T times (sinh(v/2) / (v/2))^(a−1),
    of which 1 + (a − 1) v² / 24 is kept.
    """
    rate = b + 0.5 * (a - 1.0)
    y = np.clip(-rate * np.log1p(-np.minimum(x, 1.0 - 1e-16)), 1e-307, 1e300)
    density = np.exp(a * np.log(y) - y - special.gammaln(a + 1.0))
    bend = (a - 1.0) * a * (a + 1.0) / (24.0 * rate**2)
    part = special.gammainc(a, y) - bend / (1.0 + bend) * density * (1.0 + y / (a + 1.0))
    return np.where(x > 0.0, np.clip(part, 0.0, 1.0), 0.0)


def draw_beta(
    a: FloatArray, b: FloatArray, size: tuple[int, ...], rng: np.random.Generator
) -> tuple[FloatArray, FloatArray]:
    """Draw p ~ Beta(a, b) and q = 1 − p, each with its own digits."""
    x, y = rng.standard_gamma(a, size=size), rng.standard_gamma(b, size=size)
    total = x + y
    # With both parameters near 0 both gammas can underflow: then the draw is one of two atoms.
    lost = total == 0.0
    if lost.any():
        top = rng.random(size) < a / (a + b)
        x, y = np.where(lost, top, x), np.where(lost, ~top, y)
        total = x + y
    return x / total, y / total


def draw_dirichlet_scores(
    nu: FloatArray, weights: FloatArray, rng: np.random.Generator
) -> FloatArray:
    """Draw Σ_k w_k θ_k with θ ~ Dirichlet(ν) for ν of shape (..., C+1)."""
    low = weights.min()
    span = weights.max() - low
    scaled = (weights - low) / span if span > 0.0 else np.zeros_like(weights)
    gammas = rng.standard_gamma(nu)
    totals = gammas.sum(axis=-1)
    # With parameters near 0 every gamma of a question can underflow: then it is one atom.
    lost = totals == 0.0
    if lost.any():
        share = np.cumsum(nu[lost], axis=-1)
        atom = (rng.random(int(lost.sum()))[:, None] * share[:, -1:] > share).sum(axis=-1)
        gammas[lost] = np.eye(weights.size)[atom]
        totals = gammas.sum(axis=-1)
    return np.asarray(low + span * ((gammas @ scaled) / totals))
