"""Quadrature of a log density of two variables, on a grid whose rows fit the density.

The second variable has an even grid of values, the rows; the first has in each row an even grid of
its own, over what matters there. Where the density is smooth with exponential tails in both, the
sum over the nodes is nearly exact.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from scipy import special

from lm_eval_bayes.stats.arrays import FloatArray

#: Depth below the peak of a log density at which it is cut off, e^-18 of the peak.
DEPTH = 18.0


class NodeCount(NamedTuple):
    """The minimum and maximum number of nodes of a row, and their distance in long tails."""

    least: int
    most: int
    spacing: float

    def of(self, reach: float) -> int:
        """Return how many nodes an interval takes: enough for its tails, and for its peak."""
        return int(np.clip(np.ceil(reach / self.spacing), self.least, self.most)) + 1


@dataclass(frozen=True, eq=False)
class RowGrid:
    """Nodes of a grid that each represent a cell around them.

    Parameters
    ----------
    column : array, shape (L, Y)
        The first variable, even in each row.
    row : array, shape (L, Y)
        The second variable, constant in each row.
    steps : array, shape (2, L, Y)
        The width of each cell in the first and in the second variable.
    weight : array, shape (L, Y)
        Probability of each cell, sum 1.
    log_mass : float
        The log of the integral of the density.
    """

    column: FloatArray
    row: FloatArray
    steps: FloatArray
    weight: FloatArray
    log_mass: float


class LogDensity(ABC):
    """The log of a density of two variables, up to a constant, unimodal in the first."""

    @abstractmethod
    def __call__(self, column: FloatArray, row: FloatArray) -> FloatArray:
        """Evaluate for `column` of shape (L, Y) and `row` of shape (L,)."""

    @abstractmethod
    def first_bracket(self, row: FloatArray) -> tuple[FloatArray, FloatArray]:
        """Return a bracket of the first variable for each row that contains all that matters."""

    def rows(
        self, row: FloatArray, low: FloatArray, high: FloatArray, n: int
    ) -> tuple[FloatArray, FloatArray]:
        """Return n even values between low and high for each row, and the log density there."""
        column = low[:, None] + (high - low)[:, None] * np.linspace(0.0, 1.0, n)
        return column, self(column, row)

    def fitted(
        self, row: FloatArray, low: FloatArray, high: FloatArray
    ) -> tuple[FloatArray, FloatArray]:
        """Widen or narrow each bracket to what matters, with a margin of one of 16 steps."""
        rows, fits = np.arange(row.size), False
        while not fits:
            column, value = self.rows(row, low, high, 17)
            matters = value > value.max(axis=1, keepdims=True) - DEPTH
            first, last = matters.argmax(axis=1), 16 - matters[:, ::-1].argmax(axis=1)
            beyond = (first == 0, last == 16)
            fits = not (beyond[0].any() or beyond[1].any() or (last - first).min() < 6)
            width = high - low
            low = np.where(beyond[0], low - width, column[rows, np.maximum(first - 1, 0)])
            high = np.where(beyond[1], high + width, column[rows, np.minimum(last + 1, 16)])
        return low, high


def fit_grid(density: LogDensity, row: FloatArray, nodes: NodeCount) -> RowGrid:
    """Put a density on a grid that fits it.

    Parameters
    ----------
    density : LogDensity
        The density.
    row : array, shape (L,)
        Even values of the second variable, over all of its range; the range is then narrowed
        repeatedly to the part that matters.
    nodes : NodeCount
        How many nodes either direction takes.
    """
    low, high = density.first_bracket(row)
    low, high = density.fitted(row, low, high)
    settled = False
    while not settled:
        _, value = density.rows(row, low, high, 17)
        marginal = special.logsumexp(value, axis=1) + np.log(high - low)
        matters = np.flatnonzero(marginal > marginal.max() - DEPTH)
        first, last = max(matters[0] - 1, 0), min(matters[-1] + 1, marginal.size - 1)
        settled = last - first > 8
        n_rows = nodes.of(row[last] - row[first]) if settled else 17
        # the brackets vary smoothly between rows; a margin covers the values between two rows
        margin = 0.1 * (high - low)
        closer = np.linspace(row[first], row[last], n_rows)
        low = np.interp(closer, row, low - margin)
        high = np.interp(closer, row, high + margin)
        row = closer
        low, high = density.fitted(row, low, high)
    column, value = density.rows(row, low, high, nodes.of(float((high - low).max())))
    step_column = np.broadcast_to(((high - low) / (column.shape[1] - 1))[:, None], column.shape)
    step_row = np.full(column.shape, row[1] - row[0])
    mass = np.exp(value - value.max()) * step_column
    return RowGrid(
        column=column,
        row=np.broadcast_to(row[:, None], column.shape),
        steps=np.stack([step_column, step_row]),
        weight=mass / mass.sum(),
        log_mass=float(value.max() + np.log(mass.sum() * (row[1] - row[0]))),
    )
