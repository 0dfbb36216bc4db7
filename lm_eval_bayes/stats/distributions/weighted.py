"""Quantiles of weighted values."""

from __future__ import annotations

import numpy as np

from lm_eval_bayes.stats.arrays import FloatArray


def weighted_quantiles(values: FloatArray, weight: FloatArray, masses: FloatArray) -> FloatArray:
    """Return quantiles of weighted values, half of each weight being below its value.

    Parameters
    ----------
    values, weight : array, shape (K,)
        The values in any order, and their weights, with any positive sum.
    masses : array
        Probabilities.

    Examples
    --------
    >>> values, weight = np.array([3.0, 1.0, 2.0]), np.array([1.0, 1.0, 2.0])
    >>> weighted_quantiles(values, weight, np.array([0.5, 0.875])).tolist()
    [2.0, 3.0]
    """
    order = np.argsort(values)
    weight = weight[order]
    below = np.cumsum(weight)
    return np.interp(masses, (below - 0.5 * weight) / below[-1], values[order])
