"""Tie rules: which models of a leaderboard share a rank.

Ranks count the groups from 1, so that the next rank after a tie is one more (1, 2, 2, 3), as in
[Hariri 2026, Table 1].
"""

from __future__ import annotations

from typing import Literal, TypeAlias, get_args

import numpy as np
import numpy.typing as npt

from lm_eval_bayes.stats.arrays import FloatArray, IntArray

TieRule: TypeAlias = Literal["simultaneous", "adjacent", "none"]
TIE_RULES: tuple[TieRule, ...] = get_args(TieRule)


def best_first(mu: FloatArray, sigma: FloatArray, tolerance: float) -> tuple[IntArray, FloatArray]:
    """Order models by falling μ, the one with the smaller σ first where two are equal.

    Two sums of the same numbers in another order differ by rounding. So means that lie
    within `tolerance` of the next better one are made equal to it, and the order of the
    models in the input decides nothing but the places of identical ones.

    Parameters
    ----------
    mu, sigma : array, shape (L,)
        Posterior means and standard deviations.
    tolerance : float
        The largest difference of two means that is taken for rounding.

    Returns
    -------
    order : array of int, shape (L,)
        The models, best first.
    levelled : array, shape (L,)
        The means in that order, with rounding taken out.

    Examples
    --------
    >>> order, levelled = best_first(np.array([.3, .1 + .2, .5]), np.array([.2, .1, .1]), 1e-12)
    >>> order.tolist(), levelled.tolist()
    ([2, 1, 0], [0.5, 0.30000000000000004, 0.30000000000000004])
    """
    falling = np.argsort(-mu, kind="stable")
    levelled = mu[falling]
    for i in range(1, levelled.size):
        if levelled[i - 1] - levelled[i] <= tolerance:
            levelled[i] = levelled[i - 1]
    within = np.lexsort((sigma[falling], -levelled))
    return falling[within], levelled[within]


def separations(mu: FloatArray, sigma: FloatArray) -> FloatArray:
    """Return z = |μ − μ'| / sqrt(σ² + σ'²) of every two models [Hariri 2026, §2.5].

    Equal means have z = 0, whatever their standard deviations; different means that are
    known for certain (σ = σ' = 0) have z = ∞.

    Parameters
    ----------
    mu, sigma : array, shape (L,)
        Posterior means and standard deviations, sigma >= 0.

    Returns
    -------
    array, shape (L, L)

    Examples
    --------
    >>> separations(np.array([0.7, 0.5, 0.5]), np.array([0.03, 0.04, 0.0])).round(3).tolist()
    [[0.0, 4.0, 6.667], [4.0, 0.0, 0.0], [6.667, 0.0, 0.0]]
    """
    return distance_in_sd(np.abs(mu[:, None] - mu), np.hypot(sigma[:, None], sigma))


def distance_in_sd(distance: FloatArray, sd: FloatArray) -> FloatArray:
    """Return distance / sd: 0 where the distance is 0, ∞ where only the sd is."""
    certain = np.where(distance > 0.0, np.inf, 0.0)
    return np.divide(distance, sd, out=certain, where=(sd > 0.0) & (distance > 0.0))


def separation_levels(better: npt.NDArray[np.bool_]) -> IntArray:
    """Return the number of each model's group where groups follow from separations.

    A model stands one group below the lowest group with a model that is better. So a model of
    group g (from 0) has a chain of g models above it, each better than the next.

    Parameters
    ----------
    better : array of bool, shape (L, L)
        ``[i, j]``: whether model i is better than model j.

    Returns
    -------
    array of int, shape (L,)
        Falling means do not imply rising groups: a model with a wide posterior may be separated
        from none.

    Examples
    --------
    The second model is not separated from its neighbours, the third is from the first:

    >>> separation_levels(np.array([[0, 0, 1], [0, 0, 0], [0, 0, 0]], dtype=bool)).tolist()
    [0, 0, 1]
    """
    groups = np.zeros(len(better), dtype=np.int64)
    for _ in range(len(better)):
        groups = np.where(better, groups[:, None] + 1, 0).max(axis=0)
    return groups


def tie_groups(z: FloatArray, threshold: float) -> IntArray:
    """Cut a leaderboard where neighbours are apart: z >= threshold, and not 0 [Hariri 2026, §2.9].

    This chains: the ends of a long group may be far apart. A threshold of 0 leaves ties of equal
    means only.

    Parameters
    ----------
    z : array, shape (L, L)
        Separations of the models, best first.
    threshold : float
        At least 0; 1.645 for a one-sided confidence of 0.95.

    Returns
    -------
    array of int, shape (L,)
        The number of each model's group, counted from 0, non-decreasing.

    Examples
    --------
    Three neighbours, each 1.2 from the next, and a distant fourth:

    >>> z = np.array([[0, 1.2, 2.4, 9], [1.2, 0, 1.2, 8], [2.4, 1.2, 0, 7], [9, 8, 7, 0]])
    >>> tie_groups(z, 1.645).tolist(), tie_groups(z, 0.0).tolist()
    ([0, 0, 0, 1], [0, 1, 2, 3])
    """
    neighbours = np.diagonal(z, 1)
    apart = (neighbours >= threshold) & (neighbours > 0.0)
    return np.concatenate([[0], np.cumsum(apart)])
