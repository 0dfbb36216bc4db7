"""The hypergeometric distribution without overflow, for banks of a million trials."""

from __future__ import annotations

from functools import lru_cache

import numpy as np

from lm_eval_bayes.stats.validation import FloatArray, IntArray

#: Above so many trials a subset, a table of all distributions would take too much memory.
_REMEMBERED = 256


def success_counts(n: int, c: int, k: int) -> tuple[IntArray, FloatArray]:
    """Return the distribution of the successes in a random k-subset of n trials.

    P(J = j) = C(c, j) C(n − c, k − j) / C(n, k). Neighbouring probabilities have a simple
    ratio; its logarithms are summed outwards from the mode and the result is normalised,
    so that no binomial coefficient is ever formed and nothing large cancels.

    Parameters
    ----------
    n, c, k : int
        Trials, successes among them, subset size; 0 <= c <= n, 1 <= k <= n.

    Returns
    -------
    j, probability : array, shape (S,)
        The possible numbers of successes and their probabilities, which sum to 1; read-only.

    Examples
    --------
    >>> j, probability = success_counts(5, 3, 2)
    >>> j.tolist(), [round(float(x), 12) for x in probability]
    ([0, 1, 2], [0.1, 0.6, 0.3])
    """
    return _remembered(n, c, k) if k <= _REMEMBERED else _computed(n, c, k)


def _computed(n: int, c: int, k: int) -> tuple[IntArray, FloatArray]:
    j, probability = _distribution(n, c, k)
    for array in (j, probability):
        array.setflags(write=False)
    return j, probability


# Many questions and models have the same counts.
_remembered = lru_cache(maxsize=8192)(_computed)


def _distribution(n: int, c: int, k: int) -> tuple[IntArray, FloatArray]:
    low, high = max(0, k - (n - c)), min(c, k)
    j = np.arange(low, high + 1, dtype=np.int64)
    if j.size == 1:
        return j, np.ones(1)
    i = j[:-1].astype(np.float64)
    # int64 products stay exact: c·k <= 10¹² at N = 10⁶
    steps = np.log((c - i) * (k - i)) - np.log((i + 1.0) * (n - c - k + i + 1.0))
    mode = int(np.clip(((k + 1) * (c + 1)) // (n + 2), low, high)) - low
    log_p = np.zeros(j.size)
    log_p[mode + 1 :] = np.cumsum(steps[mode:])
    log_p[:mode] = -np.cumsum(steps[:mode][::-1])[::-1]
    with np.errstate(under="ignore"):
        probability = np.exp(log_p)
    return j, probability / probability.sum()
