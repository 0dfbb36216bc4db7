"""Clustered standard errors: questions that come in groups say less than as many on their own."""

from __future__ import annotations

from collections.abc import Hashable, Sequence

import numpy as np
import numpy.typing as npt
from scipy import special

from lm_eval_bayes.errors import InvalidInputError
from lm_eval_bayes.stats.frequentist.interval import (
    Bounds,
    ConfidenceInterval,
    as_scores,
    mean_interval,
    t_quantile,
)
from lm_eval_bayes.stats.outcomes import Outcomes
from lm_eval_bayes.stats.validation import (
    FloatArray,
    IntArray,
    check_flag,
    check_level,
    check_sequence,
)


def clustered_interval(
    scores: Outcomes | npt.ArrayLike,
    clusters: Sequence[Hashable] | npt.NDArray[np.generic],
    level: float = 0.95,
    *,
    small_sample: bool = False,
    bounds: Bounds = (0.0, 1.0),
) -> ConfidenceInterval:
    """Return the mean ± z times its clustered standard error.

    SE² = Σ_c (Σ_{i in c} (s_i − s̄))² / n², the pairs within a cluster counted as they vary
    together (Miller 2024, eq. 4; [Bowyer 2025, §3.2]). It trusts the CLT over clusters, so it
    needs many of them; for few, :func:`lm_eval_bayes.stats.clustered.clustered_posterior`.

    Parameters
    ----------
    scores : Outcomes or array, shape (n,)
        One score a question (or, for repeated trials, one a trial); outcomes give their
        question means.
    clusters : sequence, length n
        The cluster of each score: a passage, a topic, a question asked several times.
    level : float
        In (0, 1).
    small_sample : bool
        Whether to widen by sqrt(G/(G − 1)) and take Student's t at G − 1 degrees of freedom,
        G being the number of clusters.
    bounds : tuple of float or None
        The possible scores; outcomes bring their own.

    Returns
    -------
    ConfidenceInterval
        Of scope "population", method "clustered" or "clustered-t".

    Raises
    ------
    InvalidInputError
        If `scores` break their rule, `clusters` has another length or fewer than two
        distinct entries, `level` is outside (0, 1), or `small_sample` is no bool.

    Examples
    --------
    Two passages of three questions each, one easy and one hard:

    >>> interval = clustered_interval([1, 1, 1, 0, 0, 1], ["a", "a", "a", "b", "b", "b"])
    >>> round(interval.estimate, 4), round(interval.standard_error, 4)
    (0.6667, 0.2357)
    """
    level, small_sample = check_level(level), check_flag("small_sample", small_sample)
    values, bounds = as_scores("scores", scores, bounds, 2)
    where = cluster_index(clusters, values.size, "score")
    n_clusters = int(where.max()) + 1
    if n_clusters < 2:
        raise InvalidInputError.of("clusters", "name at least two clusters", f"{n_clusters}")
    mean = float(values.mean())
    totals = np.bincount(where, weights=values - mean)
    error = float(np.sqrt((totals**2).sum())) / values.size
    quantile = float(special.ndtri(0.5 + 0.5 * level))
    if small_sample:
        error *= float(np.sqrt(n_clusters / (n_clusters - 1)))
        quantile = t_quantile(level, n_clusters - 1)
    return mean_interval(
        mean,
        error,
        level,
        quantile,
        method="clustered-t" if small_sample else "clustered",
        estimand="mean score of questions like these",
        scope="population",
        bounds=bounds,
    )


def cluster_index(
    clusters: Sequence[Hashable] | npt.NDArray[np.generic], size: int, of_what: str
) -> IntArray:
    """Number the clusters in the order in which they first come.

    Raises
    ------
    InvalidInputError
        If there is not one hashable entry for each of the `size` things.

    Examples
    --------
    >>> cluster_index(["b", "a", "b"], 3, "score").tolist()
    [0, 1, 0]
    """
    rule = f"have one entry per {of_what} ({size})"
    entries = check_sequence("clusters", clusters, rule)
    if len(entries) != size:
        raise InvalidInputError.of("clusters", rule, f"{len(entries)} entries")
    numbers: dict[Hashable, int] = {}
    try:
        found = [numbers.setdefault(entry, len(numbers)) for entry in entries]
    except TypeError:
        raise InvalidInputError.of("clusters", "hold hashable entries", clusters) from None
    return np.asarray(found, dtype=np.int64)


def cluster_sums(values: FloatArray, where: IntArray) -> tuple[FloatArray, FloatArray]:
    """Return the total and the size of each cluster, as floats."""
    totals = np.asarray(np.bincount(where, weights=values), dtype=np.float64)
    return totals, np.bincount(where).astype(np.float64)
