"""Joint draws of models' scores, and the ranks in them."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from lm_eval_bayes.stats.arrays import FloatArray, IntArray
from lm_eval_bayes.stats.results import Posterior


def draw_scores(posteriors: Sequence[Posterior], draws: int, seed: int) -> FloatArray:
    """Draw the scores of L models, independent of each other.

    Every model draws from a stream of its own.

    Parameters
    ----------
    posteriors : sequence of Posterior
        L of them.
    draws : int
        How many joint draws.
    seed : int
        The seed of all streams.

    Returns
    -------
    array, shape (L, draws)
    """
    scores = np.empty((len(posteriors), draws))
    streams = np.random.SeedSequence(seed).spawn(len(posteriors))
    for row, posterior, stream in zip(scores, posteriors, streams, strict=True):
        rng, distribution = np.random.default_rng(stream), posterior.distribution
        if posterior.sigma == 0.0:
            row[:] = posterior.mu
        else:
            row[:] = rng.permutation(distribution.draw(draws, rng))
    return scores


def count_ranks(scores: FloatArray) -> tuple[FloatArray, FloatArray, float]:
    """Count the ranks of L models in joint draws; equal scores share their places evenly.

    Parameters
    ----------
    scores : array, shape (L, draws)
        One column a joint draw.

    Returns
    -------
    distribution : array, shape (L, L)
        ``distribution[i, r]``: the probability that model i has rank r + 1. Rows and columns
        sum to 1.
    greater : array, shape (L, L)
        ``greater[i, j]``: the probability that model i scores more than model j, a draw that
        is equal counting half; ½ on the diagonal.
    worst_variance : float
        The largest variance of one draw of these events; the probabilities' own is that over
        the number of draws.

    Examples
    --------
    Two draws of three models; in the second the first two are equal:

    >>> distribution, greater, _ = count_ranks(np.array([[0.9, 0.5], [0.4, 0.5], [0.1, 0.2]]))
    >>> distribution.tolist()
    [[0.75, 0.25, 0.0], [0.25, 0.75, 0.0], [0.0, 0.0, 1.0]]
    >>> greater.tolist()
    [[0.5, 0.75, 1.0], [0.25, 0.5, 1.0], [0.0, 0.0, 0.5]]
    """
    n_models, draws = scores.shape
    distribution = np.zeros((n_models, n_models))
    greater = np.full((n_models, n_models), 0.5)
    first, last = _places(scores)
    has_ties = not np.array_equal(first, last)
    for i, own in enumerate(scores):
        rest = slice(i + 1, None)
        above = np.count_nonzero(scores[rest] > own, axis=1)
        equal = np.count_nonzero(scores[rest] == own, axis=1) if has_ties else 0
        greater[rest, i] = (above + 0.5 * equal) / draws
        greater[i, rest] = (draws - above - equal + 0.5 * equal) / draws
        # places first..last (from 0) are shared by the models equal to this one, itself included
        times = np.bincount(first[i] * n_models + last[i], minlength=n_models**2)
        for pair in np.flatnonzero(times).tolist():
            begin, end = divmod(pair, n_models)
            distribution[i, begin : end + 1] += times[pair] / (end + 1 - begin)
    distribution /= draws
    others = greater[~np.eye(n_models, dtype=bool)]  # a model and itself are level for certain
    events = np.concatenate([distribution.ravel(), others])
    return distribution, greater, float((events * (1.0 - events)).max())


def _places(scores: FloatArray) -> tuple[IntArray, IntArray]:
    """Return the first and the last place, from 0, of every model's score in its column."""
    order = np.argsort(-scores, axis=0)
    falling = np.take_along_axis(scores, order, axis=0)
    place = np.arange(len(scores))[:, None]
    differs = falling[1:] != falling[:-1]
    begins = np.where(np.pad(differs, ((1, 0), (0, 0)), constant_values=True), place, 0)
    ends = np.where(np.pad(differs, ((0, 1), (0, 0)), constant_values=True), place, len(scores))
    first, last = np.empty((2, *scores.shape), dtype=np.int64)
    np.put_along_axis(first, order, np.maximum.accumulate(begins, axis=0), axis=0)
    np.put_along_axis(last, order, np.minimum.accumulate(ends[::-1], axis=0)[::-1], axis=0)
    return first, last
