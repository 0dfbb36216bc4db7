"""What a model's trials cost, beside what they score."""

from __future__ import annotations

from dataclasses import dataclass

from lm_eval_bayes.analysis.report_data import Panel
from lm_eval_bayes.stats.results import Interval


@dataclass(frozen=True)
class Cost:
    """One model's tokens and score.

    Attributes
    ----------
    place : int
        Its line of the leaderboard, from 1.
    model : str
        Its name.
    tokens : float
        Completion tokens of a trial, on average.
    total : int
        Of all its trials.
    seconds : float or None
        Of the model's time for all trials.
    mu, interval
        The score.
    frontier : bool
        Whether no other model scores as much or more with fewer tokens.
    """

    place: int
    model: str
    tokens: float
    total: int
    seconds: float | None
    mu: float
    interval: Interval
    frontier: bool


def costs_of(panel: Panel) -> tuple[Cost, ...]:
    """Return the costs of the models whose tokens were counted, best score first.

    A mean over trials, not a sum: models may have been asked differently often.
    """
    known = [
        (number, place, run)
        for number, (place, run) in enumerate(zip(panel.board.places, panel.runs, strict=True), 1)
        if place.tokens and run.n_trials
    ]
    means = {number: place.tokens / run.n_trials for number, place, run in known if place.tokens}
    found = []
    for number, place, _ in known:
        mine, mu = means[number], place.posterior.mu
        beaten = any(
            other != number
            and means[other] <= mine
            and line.posterior.mu >= mu
            and (means[other] < mine or line.posterior.mu > mu)
            for other, line, _ in known
        )
        found.append(
            Cost(
                place=number,
                model=place.model,
                tokens=mine,
                total=int(place.tokens or 0),
                seconds=place.seconds,
                mu=mu,
                interval=place.interval,
                frontier=not beaten,
            )
        )
    return tuple(found)
