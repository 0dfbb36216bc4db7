"""Boundaries for looking again and again at a growing z, at one error rate for all looks.

Between two equal models the difference after N trials a question is, near enough, a random
walk observed at N, so that z behaves like B(t)/√t with B Brownian motion and t = N/N_max the
share of the planned trials. The chance that a boundary is crossed is computed by recursive
integration over the paths that have not crossed yet (Armitage, McPherson & Rowe 1969); a
spending function says how much of the error rate may be used up by t (Lan & DeMets 1983).
"""

from __future__ import annotations

from functools import lru_cache
from typing import Literal, TypeAlias

import numpy as np
from scipy import optimize, special

from lm_eval_bayes.stats.validation import FloatArray

Spending: TypeAlias = Literal["obrien-fleming", "pocock"]

SPENDINGS: tuple[Spending, ...] = ("obrien-fleming", "pocock")
#: An error smaller than this is not spent at a look but kept for the next.
_LEAST = 1e-9
#: Nodes between the boundaries: at the least, and in one Gauss–Legendre panel.
_NODES, _PER_PANEL = 160, 16


def spent(t: float, error: float, spending: Spending) -> float:
    """Return the error rate that may be used up when a share t of the trials is done.

    Two-sided, error/2 for each side. "obrien-fleming": 2·(2 − 2Φ(Φ⁻¹(1 − error/4)/√t)),
    next to nothing early. "pocock": error·log(1 + (e − 1)t), nearly even [Lan & DeMets 1983].

    Examples
    --------
    >>> [round(spent(t, 0.05, "obrien-fleming"), 5) for t in (0.2, 0.5, 1.0)]
    [0.0, 0.00305, 0.05]
    >>> [round(spent(t, 0.05, "pocock"), 5) for t in (0.2, 0.5, 1.0)]
    [0.01477, 0.03101, 0.05]
    """
    if spending == "pocock":
        return error * float(np.log1p((np.e - 1.0) * t))
    return 4.0 * float(special.ndtr(special.ndtri(0.25 * error) / np.sqrt(t)))


@lru_cache(maxsize=64)
def boundaries(shares: tuple[float, ...], error: float, spending: Spending) -> tuple[float, ...]:
    """Return the |z| at which to stop, look by look.

    Parameters
    ----------
    shares : tuple of float
        The shares of the planned trials at which there is a look, rising, at most 1.
    error : float
        In (0, 1): the probability that equal models ever cross, over all looks.
    spending : {"obrien-fleming", "pocock"}
        How the error is spread over the run.

    Returns
    -------
    tuple of float
        ∞ where a look comes so early that nothing can be decided at it.

    Examples
    --------
    Five even looks, the standard example of the clinical literature:

    >>> [round(c, 2) for c in boundaries((0.2, 0.4, 0.6, 0.8, 1.0), 0.05, "obrien-fleming")]
    [4.88, 3.36, 2.68, 2.29, 2.03]
    """
    walk = _Walk()
    found: list[float] = []
    used = 0.0
    for share in shares:
        left = spent(share, error, spending) - used
        limit = walk.boundary(share, left) if left > _LEAST else np.inf
        found.append(limit)
        used += walk.step(share, limit)
    return tuple(found)


def crossing_probability(shares: tuple[float, ...], limits: tuple[float, ...]) -> float:
    """Return the probability that equal models' |z| reaches a limit at one of the looks.

    Parameters
    ----------
    shares : tuple of float
        The shares of the planned trials at which there is a look, rising, at most 1.
    limits : tuple of float
        The |z| at which to stop, one a look.

    Examples
    --------
    z looked at once at 1.96 errs in 5 of 100; at five even looks, in 14:

    >>> round(crossing_probability((1.0,), (1.96,)), 3)
    0.05
    >>> round(crossing_probability((0.2, 0.4, 0.6, 0.8, 1.0), (1.96,) * 5), 3)
    0.142
    """
    walk = _Walk()
    return sum(walk.step(share, limit) for share, limit in zip(shares, limits, strict=True))


class _Walk:
    """Brownian motion that stops where it crosses: the mass and place of what goes on."""

    def __init__(self) -> None:
        self.share = 0.0
        # all mass at 0, before the first look
        self.place: FloatArray = np.zeros(1)
        self.mass: FloatArray = np.ones(1)

    def crossing(self, share: float, limit: float) -> float:
        """Return the mass that is at or beyond `limit` at the look `share`."""
        spread = np.sqrt(share - self.share)
        edge = limit * np.sqrt(share)
        beyond = special.ndtr((self.place - edge) / spread)
        beyond += special.ndtr((-self.place - edge) / spread)
        return float((self.mass * beyond).sum())

    def boundary(self, share: float, error: float) -> float:
        """Return the limit at which a mass of `error` crosses."""
        if self.crossing(share, 0.0) <= error:
            return 0.0
        return float(
            optimize.brentq(lambda c: self.crossing(share, c) - error, 0.0, 40.0, xtol=1e-10)
        )

    def step(self, share: float, limit: float) -> float:
        """Go on to the look `share`, stop what crosses, and return its mass."""
        crossed = 0.0 if np.isinf(limit) else self.crossing(share, limit)
        spread = np.sqrt(share - self.share)
        # beyond 9 standard deviations there is nothing left to follow
        edge = min(limit, 9.0) * np.sqrt(share)
        nodes, weights = _panels(max(_NODES, int(np.ceil(4.0 * edge / spread))))
        place = edge * nodes
        gaps = (place[:, None] - self.place) / spread
        density = np.exp(-0.5 * gaps**2) @ self.mass / (spread * np.sqrt(2.0 * np.pi))
        self.share, self.place, self.mass = share, place, edge * weights * density
        return crossed


def _panels(n_nodes: int) -> tuple[FloatArray, FloatArray]:
    """Return at least `n_nodes` nodes and weights on [−1, 1], Gauss–Legendre panel by panel."""
    nodes, weights = np.polynomial.legendre.leggauss(_PER_PANEL)
    n_panels = -(-n_nodes // _PER_PANEL)
    middles = (2.0 * np.arange(n_panels) + 1.0) / n_panels - 1.0
    places = middles[:, None] + nodes / n_panels
    return places.ravel(), np.tile(weights / n_panels, n_panels)
