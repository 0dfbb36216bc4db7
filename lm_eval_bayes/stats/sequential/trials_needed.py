"""How many further trials are needed, a forecast with its uncertainty, and on which questions."""

from __future__ import annotations

import heapq
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

from lm_eval_bayes._util.plain import Record
from lm_eval_bayes._util.validation import check_count, check_integer, check_positive
from lm_eval_bayes.errors import InvalidInputError
from lm_eval_bayes.stats.arrays import IntArray, read_only
from lm_eval_bayes.stats.comparison.difference import separation_in_sd
from lm_eval_bayes.stats.comparison.shared_questions import pair_posterior
from lm_eval_bayes.stats.hierarchical.hbayes_at_n import FEW_QUESTIONS
from lm_eval_bayes.stats.intervals import Scope
from lm_eval_bayes.stats.outcomes import Outcomes, check_outcomes
from lm_eval_bayes.stats.results import Posterior, check_leaderboard, check_posterior, joined_notes
from lm_eval_bayes.stats.sequential.predictive_draws import (
    DRAWS,
    Goal,
    PredictiveBoard,
    PredictiveScore,
    further_trials,
)

#: The note on forecasts of scores between two bounds with one trial of each question.
NO_DISPERSION = (
    "No question has two trials: the forecast is that of right and wrong answers, and scores need "
    "fewer trials."
)
#: The shares of the predictive draws behind a forecast: its median and its central 90%.
SHARES = (0.5 * (1.0 - 0.9), 0.5, 0.5 * (1.0 + 0.9))
#: More trials than this are not given one by one.
_MOST_TRIALS = 1_000_000


@dataclass(frozen=True)
class TrialsForecast(Record):
    """How many further trials of every question are needed to reach a goal.

    Attributes
    ----------
    goal : str
        "width": of the credible interval; "z": of the difference of two models.
    target : float
        The width or the z to be reached.
    current : float
        The width or the z now.
    trials : float
        N so far, a question: the mean over questions where they differ, and over two models.
        The posterior's own, prior trials included.
    additional : int or None
        Further trials per question after which the goal is reached in half of the posterior
        predictive draws; None where that takes more than `max_trials`, or never happens.
    additional_low, additional_high : int or None
        The same for 5 and 95% of the draws: the central 90% of the number of trials needed.
    probability : float
        Share of the draws in which the goal is reached after `max_trials` further trials.
    max_trials : int
        The largest number of further trials that was evaluated.
    reachable : bool
        Whether half of the draws reach the goal with any number of trials; in scope "population"
        more questions may be needed.
    limit : float or None
        Median of the limiting width for many trials; None where that is 0.
    level : float or None
        Level of the interval, for a width.
    scope : str
        "benchmark" or "population".
    draws : int
        Posterior predictive draws.
    note : str or None
        A warning about the forecast.
    """

    goal: Literal["width", "z"]
    target: float
    current: float
    trials: float
    additional: int | None
    additional_low: int | None
    additional_high: int | None
    probability: float
    max_trials: int
    reachable: bool
    limit: float | None
    level: float | None
    scope: Scope
    draws: int = DRAWS
    note: str | None = None

    @property
    def total(self) -> float | None:
        """Trials a question in all: those so far and the additional ones."""
        return None if self.additional is None else self.trials + self.additional

    def to_dict(self) -> dict[str, Any]:
        """Return the fields and the total as plain JSON types."""
        return {**super().to_dict(), "total": self.total}


def trials_needed(
    posterior: Posterior,
    *,
    width: float | None = None,
    z: float | None = None,
    other: Posterior | None = None,
    max_trials: int = 100_000,
) -> TrialsForecast:
    """Forecast how many further trials per question reach a width or a decision.

    The estimand is the number t of further trials of every question after which the width
    of the credible interval [Hariri 2026, §2.5] is at most `width`, or
    z = |μ − μ'| / sqrt(σ² + σ'²) [Hariri 2026, §2.5] at least `z`, in draws from the posterior
    predictive distribution; see :mod:`lm_eval_bayes.stats.sequential.predictive_draws`.

    The forecast is the number of trials at which half of the draws have reached the goal, with
    the central 90% of that number. Each number of trials is evaluated by itself, so a z that
    crosses the threshold and returns is not counted: see the corrections of `DecisionReached`
    for stopping at such a point.

    In scope "benchmark" a width falls like 1/√(N + const), to any target. In scope
    "population" it does not: the questions are a sample, and trials do not add questions.
    Then the forecast may be None, and `limit` is the limiting width. The z of
    two models is there that of `compare`, their questions being paired by their ids, or by
    position where neither has ids; no number of trials reduces how much the questions'
    differences differ. Posteriors of different questions are treated as independent, and
    the `note` says so.

    Scores between two bounds count as 1/φ trials each, φ being their dispersion: the mean of t
    further scores has variance φ p(1 − p)/t, and each draw has a φ of its own.

    Parameters
    ----------
    posterior : Posterior
        Of bayes@N or hbayes@N.
    width : float, optional
        The goal: a credible interval at most so wide, on the scale of the score, of the
        posterior's own level. Its "normal" method forecasts the normal interval's width. All
        others forecast that of the Beta distribution with the same mean and sd: the exact one for
        a single question of two categories, and next to it for more.
    z : float, optional
        The goal: |μ − μ'| / sqrt(σ² + σ'²) of `posterior` and `other` at least this,
        e.g. 1.645; in scope "population" that of the paired difference. Both models get the
        same number of further trials. Give one goal.
    other : Posterior, optional
        The other model's, for `z`: same quantity, scope, scores and number of questions.
    max_trials : int
        The largest number of further trials per question to evaluate.

    Returns
    -------
    TrialsForecast

    Raises
    ------
    InvalidInputError
        If not exactly one goal is given, `z` comes without `other` or a width with one, the
        posterior has no number of trials, or is of a quantity whose distribution does not
        determine how a further trial changes it, a width of a population is asked for from fewer
        than ten questions, or another argument breaks its rule.

    Examples
    --------
    >>> from lm_eval_bayes.stats.outcomes import Outcomes
    >>> from lm_eval_bayes.stats.uniform_prior import bayes_at_n
    >>> posterior = bayes_at_n(Outcomes.from_counts([[3, 5], [6, 2], [4, 4]] * 10))
    >>> forecast = trials_needed(posterior, width=0.06)
    >>> round(forecast.current, 3), forecast.trials
    (0.104, 8.0)
    >>> forecast.additional_low <= forecast.additional <= forecast.additional_high
    True
    >>> 15 < forecast.additional < 25
    True
    """
    if (width is None) == (z is None):
        rule = "be given, or else `z`, but not both"
        raise InvalidInputError.of("width", "conflict", rule, (width, z))
    if (z is None) != (other is None):
        rule = "be given with `z` and only with it"
        raise InvalidInputError.of("other", "conflict", rule, "none" if other is None else "one")
    sides = {"posterior": posterior} if other is None else {"posterior": posterior, "other": other}
    check_leaderboard({name: check_posterior(name, side) for name, side in sides.items()})
    max_trials = check_count("max_trials", max_trials, 1)
    if other is not None:
        target, gap = check_positive("z", z), pair_posterior(posterior, other)
        board, now = PredictiveBoard.of([posterior, other]), separation_in_sd(gap.mu, gap.sigma)
        note = gap.note if gap.scope == "population" else None
        return forecast_separation(
            board, (0, 1), target, now, max_trials, done=now >= target, note=note
        )
    width, now = check_positive("width", width), posterior.interval().width
    is_population, n_questions = posterior.scope == "population", posterior.per_question.mu.size
    if is_population and n_questions < FEW_QUESTIONS:
        rule = f'rest on at least {FEW_QUESTIONS} questions for a width in scope "population"'
        raise InvalidInputError.of("posterior", "range", rule, n_questions)
    predictive = PredictiveScore.of(posterior)
    return _forecast(
        lambda extra: float(np.mean(predictive.widths(extra) <= width)),
        [posterior],
        done=now <= width,
        goal="width",
        target=width,
        current=now,
        max_trials=max_trials,
        limit=float(np.median(predictive.widths(np.inf))) if is_population else None,
        level=posterior.level,
    )


def forecast_separation(
    board: PredictiveBoard,
    pair: tuple[int, int],
    target: float,
    current: float,
    max_trials: int,
    *,
    done: bool = False,
    note: str | None = None,
) -> TrialsForecast:
    """Forecast the trials after which z of two models is at least `target`; now it is `current`."""
    return _forecast(
        board.goal(*pair, target),
        [board.scores[i].posterior for i in pair],
        note,
        done=done,
        goal="z",
        target=target,
        current=current,
        max_trials=max_trials,
        limit=None,
        level=None,
    )


def _forecast(
    reached: Goal,
    posteriors: Sequence[Posterior],
    note: str | None = None,
    *,
    done: bool,
    max_trials: int,
    **fields: Any,
) -> TrialsForecast:
    """Return the forecast of a goal."""
    needed: Sequence[int | None] = (0, 0, 0)
    last = 1.0
    if not done:
        needed, last = further_trials(reached, SHARES, max_trials), reached(max_trials)
    low, middle, high = needed
    notes = [*(posterior.note for posterior in posteriors), note]
    if any(side.scored and (side.trials_range or (1, 1))[1] < 2 for side in posteriors):
        notes.append(NO_DISPERSION)
    n_trials = [posterior.n_trials for posterior in posteriors if posterior.n_trials is not None]
    return TrialsForecast(
        trials=float(np.mean(n_trials)),
        additional=middle,
        additional_low=low,
        additional_high=high,
        probability=last,
        max_trials=max_trials,
        reachable=middle is not None
        or posteriors[0].scope == "benchmark"
        or reached(np.inf) >= 0.5,
        scope=posteriors[0].scope,
        note=joined_notes(notes),
        **fields,
    )


def allocate_trials(
    posterior: Posterior, outcomes: Outcomes, n_trials: int, most: int | None = None
) -> IntArray:
    """Allocate further trials to the questions such that the score's variance falls most.

    With v_α the posterior variance of question α and ν_α the weight behind it (its trials and
    those that its prior is worth), one more trial is expected to leave v_α ν_α / (ν_α + 1), as
    for any Beta or Dirichlet posterior. Trials are given one by one to the question with the
    largest expected gain v_α / (ν_α + 1). What a posterior says of a question does not depend
    on why it was asked again, so unequal numbers of trials need no correction.

    Parameters
    ----------
    posterior : Posterior
        Of scope "benchmark", from `outcomes`.
    outcomes : Outcomes
        M questions.
    n_trials : int
        Trials to give, 1 to 10⁶.
    most : int, optional
        No question shall have more than this, the trials it has included.

    Returns
    -------
    array of int, shape (M,)
        Further trials of each question. They sum to `n_trials`, or to less where `most` ends it.

    Raises
    ------
    InvalidInputError
        If the posterior has another number of questions or scope, or a number breaks its rule.

    Examples
    --------
    >>> from lm_eval_bayes.stats.hierarchical.hbayes_at_n import hbayes_at_n
    >>> outcomes = Outcomes.from_counts([[8, 0], [4, 4], [0, 8], [7, 1]])
    >>> allocate_trials(hbayes_at_n(outcomes), outcomes, 8)
    array([0, 6, 0, 2])
    """
    check_outcomes("outcomes", outcomes)
    check_posterior("posterior", posterior)
    sigma = posterior.per_question.sigma
    if posterior.scope != "benchmark" or sigma.size != outcomes.counts.shape[0]:
        rule = f'be of scope "benchmark" and of {outcomes.counts.shape[0]} questions'
        got = f"{posterior.scope}, {sigma.size} questions"
        raise InvalidInputError.of("posterior", "shape", rule, got)
    if posterior.quantity not in ("bayes@N", "hbayes@N"):
        rule = "be one of bayes@N or hbayes@N"
        got = f"a posterior of {posterior.quantity}"
        raise InvalidInputError.of("posterior", "unsupported", rule, got)
    n_trials = check_integer("n_trials", n_trials, 1, _MOST_TRIALS)
    have = outcomes.counts.sum(axis=1).astype(np.int64)
    if posterior.trials_range not in (None, (have.min(), have.max())):
        rule = "rest on the trials of `outcomes`"
        got = f"one of {posterior.trials_range} trials"
        raise InvalidInputError.of("posterior", "mismatch", rule, got)
    room = np.full(have.size, n_trials)
    if most is not None:
        room = np.clip(check_count("most", most, 1) - have, 0, n_trials)
    variance = sigma.astype(np.float64) ** 2
    behind = have + _prior_weight(posterior, outcomes)
    given = np.zeros(have.size, dtype=np.int64)
    queue = [
        (-variance[i] / (behind[i] + 1.0), behind[i], i) for i in range(have.size) if room[i] > 0
    ]
    heapq.heapify(queue)
    for _ in range(n_trials):
        if not queue:
            break
        _, _, i = heapq.heappop(queue)
        variance[i] *= behind[i] / (behind[i] + 1.0)
        behind[i] += 1.0
        given[i] += 1
        if given[i] < room[i]:
            heapq.heappush(queue, (-variance[i] / (behind[i] + 1.0), behind[i], i))
    return read_only(given, np.int64)


def _prior_weight(posterior: Posterior, outcomes: Outcomes) -> float:
    """Return how many trials the prior of a question is worth."""
    if posterior.learned is not None:
        return posterior.learned.strength
    if isinstance(posterior.prior, tuple):
        return sum(posterior.prior)
    pseudo_count = 1.0 if posterior.prior is None else posterior.prior
    return float(pseudo_count * outcomes.counts.shape[1])
