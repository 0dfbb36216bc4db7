"""Tie rules: which models of a leaderboard share a rank.

A further rule that compares z with a threshold is a line of `_Z_RULES`, with a name of its type.
Ranks count the groups from 1, so that the next rank after a tie is one more (1, 2, 2, 3), as in
[Hariri 2026, Table 1]. "intervals" is the rule "leader" with z from
`interval_separations`, and "simultaneous" makes groups by `separation_levels`. The texts of a rule
stand where they are shown: the choices in `cli.ui.options`, the sentences in `export.tables` and
`cli.commands.rank`, which raise an error for a rule without one.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Literal, NamedTuple, TypeAlias, get_args

import numpy as np
import numpy.typing as npt

from lm_eval_bayes.stats.arrays import FloatArray, IntArray

ZRule: TypeAlias = Literal["adjacent", "leader", "pairwise", "none"]
TieRule: TypeAlias = Literal["simultaneous", "adjacent", "leader", "pairwise", "intervals", "none"]


class _Rule(NamedTuple):
    """A model joins a group if it ties with all models that `compared` selects.

    `compared` takes the positions of the group's best model and of the model that may join it.
    Without `by_threshold` only equal means tie.
    """

    compared: Callable[[int, int], slice]
    by_threshold: bool = True


def _upper_neighbour(first: int, joining: int) -> slice:
    """Return the position above `joining`."""
    return slice(joining - 1, joining)


_Z_RULES: Mapping[ZRule, _Rule] = {
    "adjacent": _Rule(_upper_neighbour),
    "leader": _Rule(lambda first, joining: slice(first, first + 1)),
    "pairwise": _Rule(slice),
    "none": _Rule(_upper_neighbour, by_threshold=False),
}
TIE_RULES: tuple[TieRule, ...] = get_args(TieRule)
#: The rules that compare neighbours only, and whether each compares z with a threshold.
NEIGHBOUR_RULES: Mapping[TieRule, bool] = {
    name: rule.by_threshold for name, rule in _Z_RULES.items() if rule.compared is _upper_neighbour
}


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


def interval_separations(low: FloatArray, high: FloatArray) -> FloatArray:
    """Return ∞ for every two models whose intervals do not overlap, 0 for the others.

    For `tie_groups`, in place of z: the rule of [Hariri 2026, §2.5]. Intervals that
    share an end overlap.

    Parameters
    ----------
    low, high : array, shape (L,)
        The intervals' ends.

    Returns
    -------
    array, shape (L, L)

    Examples
    --------
    >>> interval_separations(np.array([0.5, 0.4, 0.1]), np.array([0.7, 0.5, 0.3])).tolist()
    [[0.0, 0.0, inf], [0.0, 0.0, inf], [inf, inf, 0.0]]
    """
    above = low[:, None] > high
    return np.where(above | above.T, np.inf, 0.0)


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


def tie_groups(z: FloatArray, ties: ZRule, threshold: float) -> IntArray:
    """Cut a leaderboard into groups that share a rank.

    A pair ties where its z is below the threshold, or 0. Going down from the best:

    - "adjacent": a model joins if it ties with its upper neighbour [Hariri 2026, Table 1].
      This chains: the ends of a long group may be far apart.
    - "leader": it joins if it ties with the best of the group.
    - "pairwise": it joins if it ties with every one of the group.
    - "none": it joins only if its mean equals its neighbour's.

    Parameters
    ----------
    z : array, shape (L, L)
        Separations of the models, best first.
    ties : {"adjacent", "leader", "pairwise", "none"}
        The rule.
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
    >>> rules = ("adjacent", "leader", "pairwise", "none")
    >>> [tie_groups(z, rule, 1.645).tolist() for rule in rules]
    [[0, 0, 0, 1], [0, 0, 1, 2], [0, 0, 1, 2], [0, 1, 2, 3]]
    """
    rule = _Z_RULES[ties]
    tied = (z == 0.0) | ((z < threshold) & rule.by_threshold)
    groups = np.zeros(z.shape[0], dtype=np.int64)
    start = 0
    for i in range(1, groups.size):
        joins = tied[rule.compared(start, i), i].all()
        groups[i] = groups[i - 1] + (not joins)
        start = start if joins else i
    return groups
