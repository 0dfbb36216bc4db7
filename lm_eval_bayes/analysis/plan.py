"""How many more trials it takes, and what they cost in tokens and in time."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import Any

from lm_eval_bayes.analysis.cost import round_cost
from lm_eval_bayes.analysis.comparability import check_comparable
from lm_eval_bayes.errors import InvalidInputError
from lm_eval_bayes.runs.provenance import greedy
from lm_eval_bayes.runs.task_run import TaskRun
from lm_eval_bayes.stats.comparison.compare import z_threshold
from lm_eval_bayes.stats.comparison.shared_questions import separation
from lm_eval_bayes.stats.hierarchical.hbayes_at_n import hbayes_at_n
from lm_eval_bayes.stats.intervals import METHODS, SCOPES, IntervalMethod, Scope
from lm_eval_bayes.stats.results import Posterior
from lm_eval_bayes.stats.sequential.trials_needed import TrialsForecast, trials_needed
from lm_eval_bayes.stats.validation import check_count, check_level, check_option, check_seed


@dataclass(frozen=True)
class Needed:
    """How much of something is still needed: the middle of the forecast, and its band.

    `low` and `high` are those of the forecast's trials; None where that many trials are not
    enough.
    """

    middle: float | None
    low: float | None
    high: float | None

    def to_dict(self) -> dict[str, float | None]:
        """Return plain JSON types."""
        return {"middle": self.middle, "low": self.low, "high": self.high}


@dataclass(frozen=True, eq=False)
class PlanLine:
    """What it takes to reach one goal.

    Attributes
    ----------
    task : str
        The task.
    models : tuple of str
        One model for a width; two to be told apart, the better one first, each of which gets
        the trials.
    forecast : TrialsForecast
        Further trials of every question.
    n_questions : int
        M.
    trials : Needed
        Further trials in all: of every question and of every model.
    tokens : Needed or None
        Completion tokens; None where they were not recorded.
    seconds : Needed or None
        The models' time at the pace of the runs; None where it was not recorded.
    unrecorded : tuple of str
        Where tokens or time were not recorded, or of part of the trials only: one sentence each.
    notes : tuple of str
        What a reader must know before planning with the numbers.
    repeats : bool
        Whether further trials could only repeat those there are, so that the forecast, which
        is one of sampled answers, is of no use.
    """

    task: str
    models: tuple[str, ...]
    forecast: TrialsForecast
    n_questions: int
    trials: Needed
    tokens: Needed | None
    seconds: Needed | None
    unrecorded: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    repeats: bool = False

    @property
    def reached(self) -> bool:
        """Whether the goal is reached already."""
        return self.forecast.additional == 0

    def to_dict(self) -> dict[str, Any]:
        """Return plain JSON types."""
        return {
            "task": self.task,
            "models": list(self.models),
            "questions": self.n_questions,
            "reached": self.reached,
            "repeats": self.repeats,
            "forecast": self.forecast.to_dict(),
            "trials": self.trials.to_dict(),
            "tokens": None if self.tokens is None else self.tokens.to_dict(),
            "seconds": None if self.seconds is None else self.seconds.to_dict(),
            "unrecorded": list(self.unrecorded),
            "notes": list(self.notes),
        }


def plan_width(
    runs: Sequence[TaskRun],
    width: float,
    *,
    scope: Scope = "benchmark",
    level: float = 0.95,
    method: IntervalMethod = "exact",
    max_trials: int = 100_000,
    seed: int = 0,
) -> tuple[PlanLine, ...]:
    """Forecast, run by run, when the credible interval is at most so wide.

    Parameters
    ----------
    runs : sequence of TaskRun
        Of any models and tasks.
    width : float
        On the scale of the score.
    scope : {"benchmark", "population"}
        About these questions, or about questions like these.
    level, method
        Of the interval.
    max_trials : int
        The most further trials a question to look at.
    seed : int
        Seed of the futures that are drawn.

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
    scope, level, seed, max_trials = _checked(scope, level, seed, max_trials)
    method = check_option("interval", method, METHODS)
    lines = []
    for run in runs:
        posterior = hbayes_at_n(run.outcomes, scope, level, method, seed=seed)
        forecast = trials_needed(
            posterior, width=width, level=level, method=method, max_trials=max_trials, seed=seed
        )
        lines.append(_line([run], forecast))
    return tuple(lines)


@dataclass(frozen=True, eq=False)
class SeparationPlan:
    """What it takes to tell the models of one task apart.

    Attributes
    ----------
    task : str
        The task.
    lines : tuple of PlanLine
        One a pair that is not told apart yet, the closest to it first.
    separated : int
        Pairs that are told apart already.
    """

    task: str
    lines: tuple[PlanLine, ...]
    separated: int

    def to_dict(self) -> dict[str, Any]:
        """Return plain JSON types."""
        return {
            "task": self.task,
            "separated": self.separated,
            "pairs": [line.to_dict() for line in self.lines],
        }


def plan_separation(
    runs: Sequence[TaskRun],
    *,
    scope: Scope = "benchmark",
    confidence: float = 0.95,
    max_trials: int = 100_000,
    seed: int = 0,
    argument: str = "RUN",
) -> SeparationPlan:
    """Forecast when the models of one task are told apart, pair by pair.

    Two models are told apart where z = |μ − μ'| / sqrt(σ² + σ'²) reaches Φ⁻¹(confidence), one-sided
    [Hariri 2026, §2.9]; in scope "population" z is that of the paired difference.

    Parameters
    ----------
    runs : sequence of TaskRun
        One a model, of the same questions.
    scope, max_trials, seed
        As for `plan_width`.
    confidence : float
        In [0.5, 1): 0.95 asks for z >= 1.645.
    argument : str
        What errors call the runs.

    Raises
    ------
    InvalidInputError
        If there are not at least two models, they answered different questions, or another
        argument breaks its rule.
    """
    scope, _, seed, max_trials = _checked(scope, 0.95, seed, max_trials)
    threshold = z_threshold(confidence)
    if threshold <= 0.0:
        raise InvalidInputError.of("confidence", "be above 0.5 to separate", confidence)
    check_comparable(runs, argument)
    if len(runs) < 2:
        rule = f"be of at least two models on {runs[0].task} to be separated"
        raise InvalidInputError.of(argument, rule, runs[0].model)
    posteriors = {run.model: hbayes_at_n(run.outcomes, scope, seed=seed) for run in runs}
    order = sorted(runs, key=lambda run: -posteriors[run.model].mu)
    pairs = [(a, b, _z(posteriors, a, b)) for a, b in combinations(order, 2)]
    close = sorted((one for one in pairs if one[2] < threshold), key=lambda one: -one[2])
    lines = []
    for a, b, _ in close:
        forecast = trials_needed(
            posteriors[a.model],
            z=threshold,
            other=posteriors[b.model],
            max_trials=max_trials,
            seed=seed,
        )
        lines.append(_line([a, b], forecast))
    return SeparationPlan(runs[0].task, tuple(lines), len(pairs) - len(close))


def _checked(
    scope: Scope, level: float, seed: int, max_trials: int
) -> tuple[Scope, float, int, int]:
    return (
        check_option("scope", scope, SCOPES),
        check_level(level),
        check_seed(seed),
        check_count("max_trials", max_trials, 1),
    )


def _z(posteriors: dict[str, Posterior], a: TaskRun, b: TaskRun) -> float:
    return separation(posteriors[a.model], posteriors[b.model]).z


def _line(runs: Sequence[TaskRun], forecast: TrialsForecast) -> PlanLine:
    """Turn trials into tokens and time."""
    costs = {run.model: round_cost(run) for run in runs}
    unrecorded = []
    for what, field, verb in (("tokens", "tokens", "were"), ("time", "seconds", "was")):
        for model, cost in costs.items():
            known = getattr(cost, f"{field}_known")
            if getattr(cost, field) is None:
                unrecorded.append(f"{what} {verb} not recorded for {model}")
            elif known < cost.trials:
                unrecorded.append(
                    f"{what} of {known:,} of {cost.trials:,} trials of {model} {verb} recorded; "
                    "the others are taken to be like them"
                )
    repeated = [same_again(run) for run in runs]
    return PlanLine(
        task=runs[0].task,
        models=tuple(run.model for run in runs),
        forecast=forecast,
        n_questions=runs[0].n_questions,
        trials=_needed(forecast, float(sum(run.n_questions for run in runs))),
        tokens=_sum(forecast, [cost.tokens for cost in costs.values()]),
        seconds=_sum(forecast, [cost.seconds for cost in costs.values()]),
        unrecorded=tuple(unrecorded),
        notes=tuple(note for note in (forecast.note, *repeated) if note),
        repeats=any(repeated),
    )


def same_again(run: TaskRun) -> str | None:
    """Say where further trials can only repeat what there is; None where they need not."""
    kind, kwargs = run.made.config.get("output_type"), run.made.generation_kwargs
    likelihoods = kind is not None and kind != "generate_until"
    if not likelihoods and not (kwargs and greedy(kwargs)):
        return None
    what = "compares likelihoods" if likelihoods else "decodes greedily"
    return (
        f"{run.model} {what} on {run.task}: a further trial would end as the first did. More "
        "questions would help, or sampling at a temperature."
    )


def _sum(forecast: TrialsForecast, each: Sequence[float | None]) -> Needed | None:
    """Return what the further trials of all models cost; None where one's is not known."""
    known = [one for one in each if one is not None]
    return _needed(forecast, sum(known)) if len(known) == len(each) else None


def _needed(forecast: TrialsForecast, a_round: float) -> Needed:
    """Return so many rounds of one trial of every question, in units of what a round takes."""
    numbers = (forecast.additional, forecast.additional_low, forecast.additional_high)
    return Needed(*(None if n is None else n * a_round for n in numbers))
