"""How many further trials a goal needs, and what they cost in tokens and time."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from itertools import combinations

import numpy as np

from lm_eval_bayes._util.plain import NOT_IN_JSON, Record, json_name
from lm_eval_bayes._util.text import format_number, plural
from lm_eval_bayes._util.validation import check_count
from lm_eval_bayes.analysis.comparability import (
    ARE_COPIES,
    check_comparable,
    identical_runs,
    repeat_note,
)
from lm_eval_bayes.analysis.comparison import RunComparison
from lm_eval_bayes.analysis.settings import settings_posterior
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
    half_width,
    hbayes_by,
    settings_needed,
    sort_best_first,
    trials_needed,
    z_threshold,
)

#: What it costs to open a setting, in trials of every question: a prompt; an engine or a day.
_SETTING_COSTS = (0.0, 4.0)
#: That a goal needs questions, not trials.
NEEDS_QUESTIONS = "Trials alone may not {}: more questions are needed."


def round_cost(run: TaskRun) -> dict[str, float | None]:
    """Return the expected "tokens" and "time" of one further trial of every question of a run.

    None if no trial's were recorded. Time is in seconds of the model, each trial's divided by the
    number of concurrent trials. A question costs the mean of its own trials; one without any
    measurement costs the mean of the other questions.

    Examples
    --------
    >>> tokens = (np.array([10.0, 30.0]), np.array([50.0, 70.0]), np.array([np.nan, np.nan]))
    >>> trials = [[0, 1], [1, 1], [0, 0]]
    >>> run = TaskRun.from_trials("A", "x", trials, list("pqr"), measured={TOKENS: tokens})
    >>> round_cost(run)
    {'tokens': 120.0, 'time': None}
    """
    seconds, concurrency = run.measured.get(SECONDS), run.measured.get(CONCURRENCY)
    if seconds is not None and concurrency is not None:
        # as in `busy_seconds`: a trial of unknown concurrency counts as a single one
        seconds = tuple(s / np.fmax(c, 1.0) for s, c in zip(seconds, concurrency, strict=True))
    return {"tokens": _sum_of_means(run.measured.get(TOKENS)), "time": _sum_of_means(seconds)}


def _sum_of_means(measured: Sequence[FloatArray] | None) -> float | None:
    """Return the sum over questions of their means; None without a measurement."""
    values = [trials[trials <= MOST_OF_TRIAL] for trials in measured or ()]
    means = [float(trials.mean()) for trials in values if trials.size]
    return sum(means) * len(values) / len(means) if means else None


@dataclass(frozen=True)
class ForecastAmount(Record):
    """A forecast of an amount: median and central band.

    They correspond to those of the forecast's trials; None if the largest number of trials
    considered is not enough.
    """

    middle: float | None
    low: float | None
    high: float | None


@dataclass(frozen=True)
class SettingsPlan(Record):
    """What an interval about settings like these takes, on these questions.

    The sd between settings is taken as known. As it is not, intervals of fewer than about eight
    settings are wider: by up to a third for three.

    Attributes
    ----------
    n : int
        Settings of the run.
    target, width : float
        The width that is asked for, and that of the interval now.
    floor : tuple of float
        What more trials of these settings can make it at best, with the posterior median of the sd
        between settings, and with the ends of its interval.
    prompts, engines : tuple of int
        Settings, and trials per question in each, that reach the target with this median: where a
        further setting costs nothing, as a prompt does, and where it costs as much as 4 trials of
        every question, as the start of an engine or another day may.
    """

    n: int
    target: float
    width: float
    floor: tuple[float, ...]
    prompts: tuple[int, int]
    engines: tuple[int, int]


def _settings_plan(run: TaskRun, width: float, spec: IntervalSpec) -> SettingsPlan | None:
    """Return what the width takes in settings like these; None if that is not known."""
    posterior, _ = settings_posterior(run, spec)
    if posterior is None or posterior.spread is None or spec.scope == "population":
        return None
    n, sd, by_trials = len(posterior.labels), posterior.spread.sd, posterior.trial_variance
    like = posterior.like["benchmark"]
    sds = sd.median, sd.low, sd.high
    floor = tuple(2.0 * half_width(x, 0.0, n, 1, spec.level) for x in sds)
    prompts, engines = (
        settings_needed(0.5 * width, sd.median, by_trials, cost, spec.level)
        for cost in _SETTING_COSTS
    )
    return SettingsPlan(n, width, like.high - like.low, floor, prompts, engines)


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
    settings : SettingsPlan or None
        Of a width in scope "benchmark" and a run of several settings.
    trials : ForecastAmount
        Further trials of all questions and models.
    tokens : ForecastAmount or None
        Completion tokens; None if they were not recorded.
    seconds : ForecastAmount or None
        Model time at the rate of the runs; None if it was not recorded.
    notes : tuple of str
        Warnings.
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
    notes: tuple[str, ...] = ()
    repeats: bool = False
    reached: bool = False
    n_clusters: int | None = None
    n_now: tuple[float, ...] = field(default=(), metadata=json_name("n"))
    settings: SettingsPlan | None = None

    @property
    def total(self) -> float | None:
        """Trials per question with which the goal is reached; None where that is not known."""
        further = self.forecast.additional
        return None if self.repeats or further is None else max(self.n_now) + further


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
    >>> line.tokens is None
    True
    """
    max_trials = check_count("max_trials", max_trials, 1)
    lines = []
    for run in runs:
        posterior = hbayes_by(run.outcomes, spec)
        forecast = trials_needed(posterior, width=width, max_trials=max_trials)
        line = _plan_line([run], forecast, posterior)
        lines.append(replace(line, settings=_settings_plan(run, width, spec)))
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
    copies : tuple of (str, str)
        The pairs whose runs are identical, which have no forecast; see `identical_runs`.
    """

    task: str
    models: tuple[str, ...] = field(metadata=NOT_IN_JSON)
    lines: tuple[PlanLine, ...] = field(metadata=json_name("pairs"))
    distinguishable: tuple[tuple[str, str], ...]
    copies: tuple[tuple[str, str], ...] = ()

    @property
    def n_pairs(self) -> int:
        """Pairs of models."""
        return len(self.lines) + len(self.distinguishable) + len(self.copies)

    @property
    def n_now(self) -> float:
        """The most trials per question that a model has, the mean over its questions."""
        return max((n for line in self.lines for n in line.n_now), default=0.0)

    def counts(self, most: int = 8) -> list[tuple[float, int]]:
        """Return numbers of trials, each twice the one before, and the distinguishable pairs."""
        totals = sorted(line.total for line in self.lines if line.total is not None)
        rows = [self.n_now]
        while len(rows) < most and totals and rows[-1] < totals[-1]:
            rows.append(2 * rows[-1])
        now = len(self.distinguishable)
        return [(row, now + sum(total <= row for total in totals)) for row in rows]

    def sentence(self) -> str:
        """Return after how many trials the leader, and all pairs, may be distinguishable."""
        n_apart = len(self.distinguishable)
        sentences = [f"{a} and {b} {ARE_COPIES}." for a, b in self.copies]
        if self.lines and self.n_pairs == 1:
            sentences = [apart_sentence(self.lines[0].forecast, " and ".join(self.models))]
        elif self.lines:
            of_leader = [line for line in self.lines if self.models[0] in line.models]
            forecasts = [self._when(of_leader, f"tell {self.models[0]} from every other model")]
            if all(line.forecast.reachable for line in of_leader):
                which = "all other pairs" if self.copies else f"all {self.n_pairs:,} pairs"
                forecasts.append(self._when(self.lines, f"distinguish {which}"))
            is_copied = any(self.models[0] in pair for pair in self.copies)
            sentences = [*forecasts[is_copied:], *sentences]
        elif self.n_pairs == 1 and n_apart:
            sentences = [f"Both models on {self.task} are distinguishable."]
        elif n_apart:
            which = f"All {'other ' * bool(self.copies)}{plural(n_apart, 'pair')} of models"
            sentences.insert(0, f"{which} on {self.task} are distinguishable.")
        return " ".join(sentences)

    def _when(self, lines: Sequence[PlanLine], goal: str) -> str:
        if not lines:
            return f"{trials_in_words(self.n_now)} per question {goal}."
        if not all(line.forecast.reachable for line in lines):
            return NEEDS_QUESTIONS.format(goal)
        totals = [line.total for line in lines]
        most = max((total for total in totals if total is not None), default=0.0)
        if None in totals:
            return f"{lines[0].forecast.max_trials:,} more trials per question may not {goal}."
        more = f"{trials_in_words(most)} per question ({format_number(most - self.n_now)} more)"
        return f"{more} may {goal}."


def trials_in_words(n: float) -> str:
    """Return "4.5 trials", or "1 trial"."""
    return f"{format_number(n)} {'trial' if n == 1.0 else 'trials'}"


def apart_sentence(forecast: TrialsForecast, models: str = "them") -> str:
    """Return after how many trials two models may be distinguishable."""
    goal, further = f"tell {models} apart", forecast.additional
    if not forecast.reachable:
        return NEEDS_QUESTIONS.format(goal)
    if further is None:
        return f"{forecast.max_trials:,} more trials per question may not {goal}."
    low, high = forecast.additional_low or 0, forecast.additional_high
    to = f"{low:,} or more" if high is None else f"{low:,} to {high:,}"
    return f"{plural(further, 'more trial')} per question may {goal} (90%: {to})."


def pair_forecast(comparison: RunComparison) -> TrialsForecast | None:
    """Return the trials after which two models of a task may be distinguishable.

    None where they are, where further trials would repeat the saved ones, for copies, for several
    tasks, and where questions are left out.
    """
    (task, *others) = comparison.tasks
    if others or task.distinguishable or task.comparison.left_out_a + task.comparison.left_out_b:
        return None
    lines = plan_separation([task.a, task.b], comparison.spec).lines
    return None if not lines or lines[0].repeats else lines[0].forecast


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
    posteriors = {run.model: hbayes_by(run.outcomes, spec) for run in runs}
    ordered, _ = sort_best_first(posteriors)
    best_first = sorted(runs, key=lambda run: [*ordered].index(run.model))
    comparisons = compare_in_order([*ordered.values()], CONFIDENCE, spec.seed)
    # the critical value is 0 where all scores are certain
    target = max(comparisons.critical_value, z_threshold(CONFIDENCE))
    board = PredictiveBoard.of([*ordered.values()])
    lines, distinguishable, copies, identical = [], [], [], identical_runs(runs)
    for i, j in combinations(range(len(runs)), 2):
        pair, z = [best_first[i], best_first[j]], abs(float(comparisons.z[i, j]))
        names = pair[0].model, pair[1].model
        if comparisons.separated[i, j]:
            distinguishable.append(names)
        elif any({*names} <= {*group} for group in identical):
            copies.append(names)
        else:
            forecast = forecast_separation(board, (i, j), target, z, max_trials)
            lines.append(_plan_line(pair, forecast, ordered[pair[0].model]))
        report(1)
    lines.sort(key=lambda line: -line.forecast.current)
    return SeparationPlan(
        *(runs[0].task, tuple(ordered), tuple(lines), tuple(distinguishable), tuple(copies))
    )


def _plan_line(runs: Sequence[TaskRun], forecast: TrialsForecast, posterior: Posterior) -> PlanLine:
    """Convert a forecast of trials into tokens and time."""
    costs = [round_cost(run) for run in runs]
    repeat_notes = [repeat_note(run) for run in runs]
    return PlanLine(
        task=runs[0].task,
        models=tuple(run.model for run in runs),
        forecast=forecast,
        n_questions=runs[0].n_questions,
        trials=amount_of(forecast, float(sum(run.n_questions for run in runs))),
        tokens=_total_amount(forecast, [cost["tokens"] for cost in costs]),
        seconds=_total_amount(forecast, [cost["time"] for cost in costs]),
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
