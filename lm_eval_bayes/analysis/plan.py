"""How many further trials a goal needs, and what they cost in tokens and time."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from itertools import combinations

import numpy as np

from lm_eval_bayes._util.plain import NOT_IN_JSON, Record, json_name
from lm_eval_bayes._util.text import plural
from lm_eval_bayes._util.validation import check_count
from lm_eval_bayes.analysis.comparability import check_comparable
from lm_eval_bayes.analysis.independence import repeat_note
from lm_eval_bayes.errors import InvalidInputError
from lm_eval_bayes.runs.task_run import CONCURRENCY, MOST_OF_TRIAL, SECONDS, TOKENS, TaskRun
from lm_eval_bayes.stats import (
    CONFIDENCE,
    DEFAULT_INTERVAL,
    FloatArray,
    IntervalSpec,
    Posterior,
    PredictiveBoard,
    TrialsForecast,
    compare_in_order,
    forecast_separation,
    hbayes_at_n,
    sort_best_first,
    trials_needed,
    z_threshold,
)


def round_cost(run: TaskRun) -> dict[str, tuple[float | None, int]]:
    """Return the expected "tokens" and "time" of one further trial of every question of a run.

    Each with the number of trials that it rests on, and None if no trial's were recorded. Time is
    in seconds of the model, each trial's divided by the number of concurrent trials. A question
    costs the mean of its own trials; one without any measurement costs the mean of the other
    questions.

    Examples
    --------
    >>> tokens = (np.array([10.0, 30.0]), np.array([50.0, 70.0]), np.array([np.nan, np.nan]))
    >>> trials = [[0, 1], [1, 1], [0, 0]]
    >>> run = TaskRun.from_trials("A", "x", trials, list("pqr"), measured={TOKENS: tokens})
    >>> round_cost(run)
    {'tokens': (120.0, 4), 'time': (None, 0)}
    """
    seconds, concurrency = run.measured.get(SECONDS), run.measured.get(CONCURRENCY)
    if seconds is not None and concurrency is not None:
        # as in `busy_seconds`: a trial of unknown concurrency counts as a single one
        seconds = tuple(s / np.fmax(c, 1.0) for s, c in zip(seconds, concurrency, strict=True))
    return {"tokens": _sum_of_means(run.measured.get(TOKENS)), "time": _sum_of_means(seconds)}


def _sum_of_means(measured: Sequence[FloatArray] | None) -> tuple[float | None, int]:
    """Return the sum over questions of their means, and the number of measured trials."""
    values = [trials[trials <= MOST_OF_TRIAL] for trials in measured or ()]
    means = [float(trials.mean()) for trials in values if trials.size]
    if not means:
        return None, 0
    return sum(means) * len(values) / len(means), sum(trials.size for trials in values)


@dataclass(frozen=True)
class ForecastAmount(Record):
    """A forecast of an amount: median and central band.

    They correspond to those of the forecast's trials; None if the largest number of trials
    considered is not enough.
    """

    middle: float | None
    low: float | None
    high: float | None


@dataclass(frozen=True, eq=False)
class PlanLine(Record):
    """What reaching a goal needs.

    Attributes
    ----------
    task : str
        The task.
    models : tuple of str
        One model for a width; two for a separation, the better one first. Each gets the trials.
    forecast : TrialsForecast
        Further trials of every question.
    n_questions : int
        M.
    n_clusters : int or None
        In scope "population" the number of clusters of the questions; None without.
    n_now : tuple of float
        The mean number of trials per question that every model has.
    trials : ForecastAmount
        Further trials of all questions and models.
    tokens : ForecastAmount or None
        Completion tokens; None if they were not recorded.
    seconds : ForecastAmount or None
        Model time at the rate of the runs; None if it was not recorded.
    unrecorded : tuple of str
        Warnings: tokens or time that were recorded for no or only some trials.
    notes : tuple of str
        Further warnings.
    repeats : bool
        Whether further trials would repeat the present ones, so that the forecast, which assumes
        sampled answers, does not apply.
    reached : bool
        Whether the goal is reached already.
    """

    task: str
    models: tuple[str, ...]
    forecast: TrialsForecast
    n_questions: int = field(metadata=json_name("questions"))
    trials: ForecastAmount
    tokens: ForecastAmount | None
    seconds: ForecastAmount | None
    unrecorded: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    repeats: bool = False
    reached: bool = False
    n_clusters: int | None = None
    n_now: tuple[float, ...] = field(default=(), metadata=json_name("n"))


def plan_width(
    runs: Sequence[TaskRun],
    width: float,
    spec: IntervalSpec = DEFAULT_INTERVAL,
    *,
    max_trials: int = 100_000,
) -> tuple[PlanLine, ...]:
    """Forecast for every run the trials until its credible interval is at most `width` wide.

    Parameters
    ----------
    runs : sequence of TaskRun
        Runs of any models and tasks.
    width : float
        Target width, on the scale of the score.
    spec : IntervalSpec
        Settings of the interval; its seed is that of the posterior predictive draws.
    max_trials : int
        The largest number of further trials per question to consider.

    Raises
    ------
    InvalidInputError
        If an argument breaks its rule.

    Examples
    --------
    >>> ids = [f"q{i}" for i in range(30)]
    >>> run = TaskRun.from_trials("A", "aime", [[0, 1, 1, 0]] * 30, ids)
    >>> (line,) = plan_width([run], width=0.08)
    >>> line.forecast.additional > 4, line.trials.middle == 30 * line.forecast.additional
    (True, True)
    >>> line.unrecorded
    ('tokens were not recorded for A', 'time was not recorded for A')
    """
    max_trials = check_count("max_trials", max_trials, 1)
    lines = []
    for run in runs:
        posterior = hbayes_at_n(run.outcomes, spec.scope, spec.level, spec.method, seed=spec.seed)
        forecast = trials_needed(posterior, width=width, max_trials=max_trials)
        lines.append(_plan_line([run], forecast, posterior))
    return tuple(lines)


@dataclass(frozen=True, eq=False)
class SeparationPlan(Record):
    """What separating the models of a task needs.

    Attributes
    ----------
    task : str
        The task.
    models : tuple of str
        The models, best first.
    lines : tuple of PlanLine
        One per further pair, those with the largest z first.
    distinguishable : tuple of (str, str)
        The pairs that are distinguishable already, the better model first.
    """

    task: str
    models: tuple[str, ...] = field(metadata=NOT_IN_JSON)
    lines: tuple[PlanLine, ...] = field(metadata=json_name("pairs"))
    distinguishable: tuple[tuple[str, str], ...]

    @property
    def n_pairs(self) -> int:
        """Pairs of models."""
        return len(self.lines) + len(self.distinguishable)

    @property
    def n_now(self) -> float:
        """The most trials per question that a model has."""
        return max((n for line in self.lines for n in line.n_now), default=0.0)

    def totals(self, model: str | None = None) -> list[float | None]:
        """Return the trials after which further pairs, or those of a model, are distinguishable.

        One per pair; None where no number of trials is known to be enough.
        """
        lines = [line for line in self.lines if model is None or model in line.models]
        return [
            None
            if line.repeats or line.forecast.additional is None
            else max(line.n_now) + line.forecast.additional
            for line in lines
        ]

    def counts(self, most: int = 8) -> list[tuple[float, int]]:
        """Return numbers of trials, each twice the one before, and the distinguishable pairs."""
        totals = sorted(total for total in self.totals() if total is not None)
        rows = [self.n_now]
        while len(rows) < most and totals and rows[-1] < totals[-1]:
            rows.append(2 * rows[-1])
        now = len(self.distinguishable)
        return [(row, now + sum(total <= row for total in totals)) for row in rows]

    def sentence(self) -> str:
        """Return after how many trials the leader, and all pairs, may be distinguishable."""
        if not self.lines:
            which = f"All {plural(self.n_pairs, 'pair')} of models"
            which = "Both models" if self.n_pairs == 1 else which
            return f"{which} on {self.task} are distinguishable."
        leader, of_all = self.models[0], f"distinguish all {self.n_pairs:,} pairs"
        if self.n_pairs == 1:
            return self._when(self.totals(), "distinguish the two models")
        of_leader = self._when(self.totals(leader), f"tell {leader} from every other model")
        return f"{of_leader} {self._when(self.totals(), of_all)}"

    def _when(self, totals: Sequence[float | None], goal: str) -> str:
        if not totals:
            return f"{self.n_now:,.0f} trials per question {goal}."
        if None in totals:
            further = max(line.forecast.max_trials for line in self.lines)
            return f"{further:,} more trials per question may not {goal}."
        most = max(total for total in totals if total is not None)
        return f"{most:,.0f} trials per question ({most - self.n_now:,.0f} more) may {goal}."


def plan_separation(
    runs: Sequence[TaskRun],
    spec: IntervalSpec = DEFAULT_INTERVAL,
    *,
    max_trials: int = 100_000,
    progress: Callable[[int], None] | None = None,
) -> SeparationPlan:
    """Forecast for every pair of a task's models the trials until they are distinguishable.

    Two models are distinguishable as in `rank`, all pairs compared at once. The others need
    z = |μ − μ'| / sqrt(σ² + σ'²) of at least the critical value of that comparison; in scope
    "population" z is that of the paired difference.

    Parameters
    ----------
    runs : sequence of TaskRun
        One per model, of the same questions.
    spec : IntervalSpec
        Scope of the posteriors, and seed of the posterior predictive draws; level and method do
        not matter here.
    max_trials : int
        The largest number of further trials per question to consider.
    progress : callable, optional
        Called with the number of pairs that were done since the last call.

    Raises
    ------
    InvalidInputError
        If there are fewer than two models, they answered different questions, or another argument
        breaks its rule.
    """
    max_trials = check_count("max_trials", max_trials, 1)
    check_comparable(runs)
    report = progress or (lambda n_pairs: None)
    if len(runs) < 2:
        rule = f"be of at least two models on {runs[0].task} to be separated"
        raise InvalidInputError.of("RUN", "empty", rule, runs[0].model)
    posteriors = {run.model: hbayes_at_n(run.outcomes, spec.scope, seed=spec.seed) for run in runs}
    ordered, _ = sort_best_first(posteriors)
    best_first = sorted(runs, key=lambda run: [*ordered].index(run.model))
    comparisons = compare_in_order([*ordered.values()], CONFIDENCE, spec.seed)
    # the critical value is 0 where all scores are certain
    target = max(comparisons.critical_value, z_threshold(CONFIDENCE))
    board = PredictiveBoard.of([*ordered.values()])
    lines, distinguishable = [], []
    for i, j in combinations(range(len(runs)), 2):
        pair, z = [best_first[i], best_first[j]], abs(float(comparisons.z[i, j]))
        if comparisons.separated[i, j]:
            distinguishable.append((pair[0].model, pair[1].model))
        else:
            forecast = forecast_separation(board, (i, j), target, z, max_trials)
            lines.append(_plan_line(pair, forecast, ordered[pair[0].model]))
        report(1)
    lines.sort(key=lambda line: -line.forecast.current)
    return SeparationPlan(runs[0].task, tuple(ordered), tuple(lines), tuple(distinguishable))


def _plan_line(runs: Sequence[TaskRun], forecast: TrialsForecast, posterior: Posterior) -> PlanLine:
    """Convert a forecast of trials into tokens and time."""
    costs = [round_cost(run) for run in runs]
    unrecorded = []
    for noun, verb in (("tokens", "were"), ("time", "was")):
        for run, cost in zip(runs, costs, strict=True):
            amount, n_recorded = cost[noun]
            if amount is None:
                unrecorded.append(f"{noun} {verb} not recorded for {run.model}")
            elif n_recorded < run.n_trials:
                unrecorded.append(
                    f"{noun} of {n_recorded:,} of {run.n_trials:,} trials of {run.model} {verb} "
                    "recorded; the forecast extrapolates from them"
                )
    repeat_notes = [repeat_note(run) for run in runs]
    return PlanLine(
        task=runs[0].task,
        models=tuple(run.model for run in runs),
        forecast=forecast,
        n_questions=runs[0].n_questions,
        trials=amount_of(forecast, float(sum(run.n_questions for run in runs))),
        tokens=_total_amount(forecast, [cost["tokens"][0] for cost in costs]),
        seconds=_total_amount(forecast, [cost["time"][0] for cost in costs]),
        unrecorded=tuple(unrecorded),
        notes=tuple(note for note in (forecast.note, *repeat_notes) if note),
        repeats=any(repeat_notes),
        reached=forecast.additional == 0,
        n_clusters=None if posterior.clusters is None else posterior.clusters.n_clusters,
        n_now=tuple(float(run.outcomes.n_trials.mean()) for run in runs),
    )


def _total_amount(
    forecast: TrialsForecast, per_round: Sequence[float | None]
) -> ForecastAmount | None:
    """Return the amount for all models; None if that of a model is unknown."""
    recorded = [amount for amount in per_round if amount is not None]
    return amount_of(forecast, sum(recorded)) if len(recorded) == len(per_round) else None


def amount_of(forecast: TrialsForecast, per_round: float) -> ForecastAmount:
    """Return the amount, given that of one trial of every question."""
    trials = (forecast.additional, forecast.additional_low, forecast.additional_high)
    return ForecastAmount(*(None if n is None else n * per_round for n in trials))
