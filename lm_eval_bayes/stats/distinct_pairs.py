"""Questions that are alike are worked on once: the distinct pairs of two columns."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from lm_eval_bayes.stats.validation import FloatArray, IntArray


class Pairs(NamedTuple):
    """The D distinct pairs among M.

    `first` and `second` have shape (D,); `where` (M,) leads from each pair to its distinct
    one, and `times` (D,) says how often that occurs.
    """

    first: FloatArray
    second: FloatArray
    where: IntArray
    times: IntArray


def distinct_pairs(first: npt.NDArray[Any], second: npt.NDArray[Any]) -> Pairs:
    """Find the distinct pairs, in ascending order.

    As complex numbers they sort some twenty times faster than as rows of a matrix.

    Examples
    --------
    >>> pairs = distinct_pairs(np.array([2, 1, 2]), np.array([0, 5, 0]))
    >>> pairs.first.tolist(), pairs.second.tolist(), pairs.where.tolist(), pairs.times.tolist()
    ([1.0, 2.0], [5.0, 0.0], [1, 0, 1], [1, 2])
    """
    found, where, times = np.unique(first + 1j * second, return_inverse=True, return_counts=True)
    return Pairs(found.real, found.imag, where, times)
