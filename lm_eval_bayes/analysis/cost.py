"""What one more trial of every question costs, from what the trials so far took."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from lm_eval_bayes.runs.task_run import CONCURRENCY, SECONDS, TOKENS, TaskRun
from lm_eval_bayes.stats.validation import FloatArray


@dataclass(frozen=True)
class Cost:
    """What one trial of every question takes, on average.

    Attributes
    ----------
    tokens : float or None
        Completion tokens; None where no trial's were counted.
    seconds : float or None
        Seconds of the model's time, each trial by its share of the trials under way; None where
        no trial's were measured.
    tokens_known, seconds_known : int
        Trials behind either.
    trials : int
        Trials in all.
    """

    tokens: float | None
    seconds: float | None
    tokens_known: int
    seconds_known: int
    trials: int


def round_cost(run: TaskRun) -> Cost:
    """Return what one more trial of every question of a run would take.

    A question is taken to go on as it did: each counts with the mean of its own trials, one of
    which nothing was measured with the mean of the others.

    Examples
    --------
    >>> tokens = (np.array([10.0, 30.0]), np.array([50.0, 70.0]), np.array([np.nan, np.nan]))
    >>> trials = [[0, 1], [1, 1], [0, 0]]
    >>> run = TaskRun.from_trials("A", "x", trials, list("pqr"), measured={TOKENS: tokens})
    >>> cost = round_cost(run)
    >>> cost.tokens, cost.tokens_known, cost.seconds
    (120.0, 4, None)
    """
    tokens, tokens_known = _round(run.measured.get(TOKENS))
    seconds = run.measured.get(SECONDS)
    beside = run.measured.get(CONCURRENCY)
    if seconds is not None and beside is not None:
        # as `busy_seconds`: a trial that nobody counted company of was alone
        seconds = tuple(s / np.fmax(b, 1.0) for s, b in zip(seconds, beside, strict=True))
    time, time_known = _round(seconds)
    return Cost(tokens, time, tokens_known, time_known, run.n_trials)


def _round(measured: Sequence[FloatArray] | None) -> tuple[float | None, int]:
    """Return the sum over questions of the means, and how many trials were measured."""
    found = [one[~np.isnan(one)] for one in measured or ()]
    means = [float(one.mean()) for one in found if one.size]
    if not means:
        return None, 0
    unknown = len(found) - len(means)
    return sum(means) + unknown * sum(means) / len(means), sum(one.size for one in found)
