"""What trials cost in tokens and in model time."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from lm_eval_bayes.analysis.leaderboard import Leaderboard
from lm_eval_bayes.runs.task_run import CONCURRENCY, SECONDS, TOKENS, TaskRun
from lm_eval_bayes.stats.intervals import Interval
from lm_eval_bayes.stats.validation import FloatArray


@dataclass(frozen=True)
class RoundCost:
    """Expected cost of one further trial of every question.

    Attributes
    ----------
    tokens : float or None
        Completion tokens; None if no trial's were recorded.
    seconds : float or None
        Seconds of model time, each trial's divided by the number of concurrent trials; None if
        no trial's were recorded.
    tokens_recorded, seconds_recorded : int
        Number of trials that either rests on.
    trials : int
        Number of trials of the run.
    """

    tokens: float | None
    seconds: float | None
    tokens_recorded: int
    seconds_recorded: int
    trials: int


def round_cost(run: TaskRun) -> RoundCost:
    """Return the expected cost of one further trial of every question of a run.

    A question costs the mean of its own trials; one without any measurement costs the mean of
    the other questions.

    Examples
    --------
    >>> tokens = (np.array([10.0, 30.0]), np.array([50.0, 70.0]), np.array([np.nan, np.nan]))
    >>> trials = [[0, 1], [1, 1], [0, 0]]
    >>> run = TaskRun.from_trials("A", "x", trials, list("pqr"), measured={TOKENS: tokens})
    >>> cost = round_cost(run)
    >>> cost.tokens, cost.tokens_recorded, cost.seconds
    (120.0, 4, None)
    """
    tokens, tokens_recorded = _sum_of_means(run.measured.get(TOKENS))
    seconds = run.measured.get(SECONDS)
    concurrency = run.measured.get(CONCURRENCY)
    if seconds is not None and concurrency is not None:
        # as in `busy_seconds`: a trial of unknown concurrency counts as a single one
        seconds = tuple(s / np.fmax(c, 1.0) for s, c in zip(seconds, concurrency, strict=True))
    time, seconds_recorded = _sum_of_means(seconds)
    return RoundCost(tokens, time, tokens_recorded, seconds_recorded, run.n_trials)


def _sum_of_means(measured: Sequence[FloatArray] | None) -> tuple[float | None, int]:
    """Return the sum over questions of their means, and the number of measured trials."""
    values = [trials[~np.isnan(trials)] for trials in measured or ()]
    means = [float(trials.mean()) for trials in values if trials.size]
    if not means:
        return None, 0
    n_unknown = len(values) - len(means)
    total = sum(means) + n_unknown * sum(means) / len(means)
    return total, sum(trials.size for trials in values)


@dataclass(frozen=True)
class ModelCost:
    """A model's tokens per trial beside its score.

    Attributes
    ----------
    position : int
        Its row of the leaderboard, from 1.
    model : str
        The model's name.
    tokens : float
        Mean number of completion tokens of a trial.
    total : int
        Completion tokens of all its trials.
    seconds : float or None
        Model time of all its trials.
    mu, interval
        Posterior mean and credible interval of the score.
    frontier : bool
        Whether no other model has an equal or higher score with fewer tokens.
    """

    position: int
    model: str
    tokens: float
    total: int
    seconds: float | None
    mu: float
    interval: Interval
    frontier: bool


def model_costs(board: Leaderboard, runs: Sequence[TaskRun]) -> tuple[ModelCost, ...]:
    """Return the costs of the models whose tokens were recorded, best score first.

    Costs are means over trials, since models may have different numbers of trials.

    Parameters
    ----------
    board : Leaderboard
        The ranking.
    runs : sequence of TaskRun
        The runs in the order of the ranking.
    """
    recorded = [
        (position, row, row.tokens / run.n_trials)
        for position, (row, run) in enumerate(zip(board.rows, runs, strict=True), 1)
        if row.tokens and run.n_trials
    ]
    costs = []
    for position, row, tokens in recorded:
        mu = row.posterior.mu
        dominated = any(
            other_position != position
            and other_tokens <= tokens
            and other.posterior.mu >= mu
            and (other_tokens < tokens or other.posterior.mu > mu)
            for other_position, other, other_tokens in recorded
        )
        costs.append(
            ModelCost(
                position=position,
                model=row.model,
                tokens=tokens,
                total=int(row.tokens or 0),
                seconds=row.seconds,
                mu=mu,
                interval=row.interval,
                frontier=not dominated,
            )
        )
    return tuple(costs)
