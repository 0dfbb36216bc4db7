"""A distribution function as a table."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from lm_eval_bayes.stats.validation import FloatArray, protect


@dataclass(frozen=True, eq=False)
class Table:
    """A distribution function, tabulated; linear between its points.

    Parameters
    ----------
    probability, score : array, shape (L,)
        Points of the distribution function, both non-decreasing; probability runs from 0 to 1.
    """

    probability: FloatArray
    score: FloatArray

    def __post_init__(self) -> None:
        protect(self)

    def quantile(self, u: FloatArray) -> FloatArray:
        """Return the scores below which the mass `u` lies."""
        return np.interp(u, self.probability, self.score)

    def cdf(self, x: FloatArray) -> FloatArray:
        """Return the mass at or below the scores `x`."""
        return np.interp(x, self.score, self.probability, left=0.0, right=1.0)

    def clipped(self, low: float, high: float) -> Table:
        """Return the table with every score beyond `low` or `high` put there."""
        return Table(self.probability, np.clip(self.score, low, high))

    def scaled(self, low: float, high: float) -> Table:
        """Return the table of low + (high − low)·score."""
        return Table(self.probability, low + (high - low) * self.score)
