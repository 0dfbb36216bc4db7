"""Posteriors of a score after the first n trials of every question, n = 1 to N."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from lm_eval_bayes._util.plain import Record
from lm_eval_bayes.analysis.summary import TaskSummary
from lm_eval_bayes.runs.task_run import TaskRun
from lm_eval_bayes.stats.hierarchical.hbayes_at_n import hbayes_at_n
from lm_eval_bayes.stats.intervals import Interval, IntervalMethod, IntervalSpec
from lm_eval_bayes.stats.outcomes import Outcomes
from lm_eval_bayes.stats.validation import IntArray

#: Points of all curves of a report together, and the fewest and the most of a single curve.
_MAX_TOTAL_POINTS, _MIN_POINTS, _MAX_POINTS = 720, 6, 24
#: Up to this n a posterior may differ visibly from the Beta distribution of its moments.
_EXACT_UP_TO = 3


@dataclass(frozen=True)
class PrefixPosterior(Record):
    """hbayes@n: a model's posterior after the first n trials of every question."""

    n: int
    mu: float
    sigma: float
    interval: Interval


@dataclass(frozen=True)
class ScoreCurve:
    """Posterior mean and credible interval of a score as functions of n.

    Attributes
    ----------
    n : tuple of int
        Trials of every question, increasing.
    mu, low, high : tuple of float
        Posterior mean and interval ends at every n.
    """

    n: tuple[int, ...]
    mu: tuple[float, ...]
    low: tuple[float, ...]
    high: tuple[float, ...]


def doublings(n_trials: int) -> tuple[int, ...]:
    """Return 1, 2, 4, … and `n_trials`.

    Examples
    --------
    >>> doublings(10), doublings(8)
    ((1, 2, 4, 8, 10), (1, 2, 4, 8))
    """
    powers = [2**i for i in range(n_trials.bit_length()) if 2**i < n_trials]
    return (*powers, n_trials)


def prefix_posteriors(
    run: TaskRun, matrix: IntArray, spec: IntervalSpec
) -> tuple[PrefixPosterior, ...]:
    """Return hbayes@n for n = 1, 2, 4, … and N.

    Parameters
    ----------
    run : TaskRun
        The run.
    matrix : array of int, shape (M, N)
        Its outcomes, in the order in which the trials were drawn.
    spec : IntervalSpec
        Settings of the intervals.
    """
    posteriors = []
    for n in doublings(matrix.shape[1]):
        posterior = hbayes_at_n(
            _first_trials(run, matrix, n), spec.scope, spec.level, spec.method, seed=spec.seed
        )
        interval = posterior.interval(seed=spec.seed)
        posteriors.append(PrefixPosterior(n, posterior.mu, posterior.sigma, interval))
    return tuple(posteriors)


def points_per_curve(n_curves: int) -> int:
    """Return the number of points that each of `n_curves` curves may have.

    Examples
    --------
    >>> points_per_curve(1), points_per_curve(80), points_per_curve(1000)
    (24, 9, 6)
    """
    return max(_MIN_POINTS, min(_MAX_POINTS, _MAX_TOTAL_POINTS // max(1, n_curves)))


def score_curve(summary: TaskSummary, n_points: int) -> ScoreCurve | None:
    """Return a run's score curve; None if the order of its trials is unknown.

    Parameters
    ----------
    summary : TaskSummary
        The run and its posterior, which is the last point where all questions have N trials.
        From the fourth trial on, "exact" and "hdi" intervals are replaced by "beta" ones, which
        have the posterior's mean and sd and cannot be told from them in a figure.
    n_points : int
        Maximal number of points.
    """
    run, spec = summary.run, summary.spec
    if run.trials is None or not run.n_common:
        return None
    matrix = run.matrix()
    fast_method: IntervalMethod = "normal" if spec.method == "normal" else "beta"
    # exact intervals of more than two categories are drawn, which is slow
    exact_up_to = _EXACT_UP_TO if run.binary else 0
    points = []
    for n in curve_points(matrix.shape[1], n_points):
        if n == summary.n_range[1]:
            posterior = summary.learned[spec.scope]
            interval = summary.intervals[spec.scope]
        else:
            posterior = hbayes_at_n(_first_trials(run, matrix, n), spec.scope, seed=spec.seed)
            method = spec.method if n <= exact_up_to else fast_method
            interval = posterior.interval(spec.level, method, seed=spec.seed)
        points.append((n, posterior.mu, interval.low, interval.high))
    return ScoreCurve(*zip(*points, strict=True))


def curve_points(n_trials: int, n_points: int) -> tuple[int, ...]:
    """Return at most `n_points` numbers from 1 to `n_trials` in about equal ratios.

    Examples
    --------
    >>> curve_points(80, 8)
    (1, 2, 3, 7, 12, 23, 43, 80)
    >>> curve_points(3, 8)
    (1, 2, 3)
    """
    if n_trials <= n_points:
        return tuple(range(1, n_trials + 1))
    numbers = np.unique(np.rint(np.geomspace(1.0, n_trials, n_points)).astype(np.int64))
    return tuple(int(n) for n in numbers)


def _first_trials(run: TaskRun, matrix: IntArray, n: int) -> Outcomes:
    return Outcomes.from_matrix(matrix[:, :n], weights=run.outcomes.weights)
