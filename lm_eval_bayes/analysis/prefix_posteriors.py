"""How a score became known: its posterior after the first n trials of every question."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from lm_eval_bayes.analysis.summary import TaskSummary
from lm_eval_bayes.runs.task_run import TaskRun
from lm_eval_bayes.stats.hierarchical.hbayes_at_n import hbayes_at_n
from lm_eval_bayes.stats.intervals import IntervalMethod, Scope
from lm_eval_bayes.stats.outcomes import Outcomes
from lm_eval_bayes.stats.results import Posterior

#: Posteriors that all curves of a page may take together, and points a curve may have.
_IN_ALL, _FEWEST, _MOST = 720, 6, 24
#: Trials up to which a posterior may be far from a beta distribution.
_EXACT = 3


@dataclass(frozen=True)
class Curve:
    """Posterior mean and interval of a score after n trials, one value a point.

    Attributes
    ----------
    n : tuple of int
        Trials of every question, rising.
    mu, low, high : tuple of float
        Posterior mean, and the ends of the interval.
    """

    n: tuple[int, ...]
    mu: tuple[float, ...]
    low: tuple[float, ...]
    high: tuple[float, ...]


def points(most: int, n_points: int) -> tuple[int, ...]:
    """Return numbers of trials from 1 to `most` in about equal ratios.

    Examples
    --------
    >>> points(80, 8)
    (1, 2, 3, 7, 12, 23, 43, 80)
    >>> points(3, 8)
    (1, 2, 3)
    """
    if most <= n_points:
        return tuple(range(1, most + 1))
    found = np.unique(np.rint(np.geomspace(1.0, most, n_points)).astype(np.int64))
    return tuple(int(n) for n in found)


def points_each(n_curves: int) -> int:
    """Return how many points each of so many curves may have.

    Examples
    --------
    >>> points_each(1), points_each(80), points_each(1000)
    (24, 9, 6)
    """
    return max(_FEWEST, min(_MOST, _IN_ALL // max(1, n_curves)))


def curve(
    summary: TaskSummary,
    scope: Scope,
    level: float,
    method: IntervalMethod,
    seed: int,
    n_points: int,
) -> Curve | None:
    """Return the curve of a run; None where the order of its trials is not known.

    Parameters
    ----------
    summary : TaskSummary
        The run, and its posterior, which is the last point where all questions have N trials.
    scope, level, seed
        Of the posterior and its interval.
    method : {"exact", "hdi", "beta", "normal"}
        From the fourth trial on, "exact" and "hdi" are replaced by "beta", which has the
        posterior's mean and sd, takes no time, and differs by less than a line's breadth.
    n_points : int
        At most so many points.
    """
    run = summary.run
    if run.trials is None or not run.n_common:
        return None
    matrix = run.matrix()
    quick: IntervalMethod = "normal" if method == "normal" else "beta"
    # for rubrics even the first exact intervals would have to be drawn
    exact = _EXACT if run.binary else 0
    found = []
    for n in points(matrix.shape[1], n_points):
        if n == summary.n_range[1]:
            posterior, ends = summary.learned[scope], summary.intervals[scope]
        else:
            posterior = _posterior(run, matrix[:, :n], scope, seed)
            ends = posterior.interval(level, method if n <= exact else quick, seed=seed)
        found.append((n, posterior.mu, ends.low, ends.high))
    return Curve(*zip(*found, strict=True))


def _posterior(run: TaskRun, matrix: np.ndarray, scope: Scope, seed: int) -> Posterior:
    weights = run.outcomes.weights
    counts = np.stack([(matrix == category).sum(axis=1) for category in range(weights.size)], 1)
    return hbayes_at_n(Outcomes.from_counts(counts, weights=weights), scope, seed=seed)
