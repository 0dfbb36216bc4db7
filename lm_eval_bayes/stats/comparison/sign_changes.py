"""Where the sign of a difference first turns, given a band that holds at all budgets."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any, Literal, TypeAlias

import numpy as np

from lm_eval_bayes.stats.validation import IntArray

Direction: TypeAlias = Literal["gain to loss", "loss to gain"]


@dataclass(frozen=True)
class Turn:
    """Where the sign of the difference first turns, as a set that the band implies.

    Let s be the sign at the first budget k0 at which the band excludes 0. The turn is the
    first budget after k0, among those compared, at which the difference has the sign −s.
    Wherever the band holds, the turn lies in [`low`, `high`].

    Attributes
    ----------
    direction : str
        "gain to loss" where A is ahead at k0, "loss to gain" where it is behind.
    low : int
        The first budget after k0 at which the band no longer has the sign s.
    high : int or None
        The first budget after k0 at which the band has the sign −s; None where there is
        none, and then no turn is certain.
    """

    direction: Direction
    low: int
    high: int | None

    def to_dict(self) -> dict[str, Any]:
        """Return plain JSON types."""
        return asdict(self)


def first_turn(ks: IntArray, sign: IntArray) -> Turn | None:
    """Return where a sign that a band gives at every budget first turns.

    Parameters
    ----------
    ks : array of int, shape (K,)
        Rising budgets.
    sign : array of int, shape (K,)
        1 where the difference is certainly above 0, −1 below, 0 undecided.

    Examples
    --------
    >>> first_turn(np.arange(1, 7), np.array([1, 1, 0, 1, -1, 0]))
    Turn(direction='gain to loss', low=3, high=5)
    >>> first_turn(np.arange(1, 4), np.array([0, -1, -1])) is None
    True
    """
    decided = np.flatnonzero(sign)
    if decided.size == 0:
        return None
    start = int(decided[0])
    other = np.flatnonzero(sign[start:] != sign[start])
    if other.size == 0:
        return None
    opposite = np.flatnonzero(sign[start:] == -sign[start])
    return Turn(
        direction="gain to loss" if sign[start] > 0 else "loss to gain",
        low=int(ks[start + other[0]]),
        high=int(ks[start + opposite[0]]) if opposite.size else None,
    )
