"""`lm-eval-bayes plan`: how many more trials it takes, and what they cost."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated, Optional

import typer

from lm_eval_bayes._util.text import NO_VALUE, format_duration, format_large, plural, scope_label
from lm_eval_bayes.cli.ui.errors import named_as_options
from lm_eval_bayes.cli.ui.output import say, say_json, say_table, warn
from lm_eval_bayes.cli.ui.reading import (
    Dedupe,
    Filter,
    Interval,
    IntervalKind,
    Json,
    Level,
    Metric,
    Regrade,
    Runs,
    Scope,
    ScopeOption,
    Seed,
    Task,
    check_level_and_seed,
    interval_spec,
    read,
)
from lm_eval_bayes.errors import InvalidInputError

if TYPE_CHECKING:
    from collections.abc import Callable

    from lm_eval_bayes.analysis.plan import ForecastAmount, PlanLine, SeparationPlan


def command(
    runs: Runs,
    task: Task = None,
    metric: Metric = None,
    filter: Filter = None,
    width: Annotated[
        Optional[float],  # noqa: UP045  typer reads this on Python 3.10 too
        typer.Option(metavar="W", help="Until every run's credible interval is at most this wide."),
    ] = None,
    separate: Annotated[
        bool,
        typer.Option("--separate", help="Until every two models of a task are told apart."),
    ] = False,
    confidence: Annotated[
        float,
        typer.Option(
            metavar="P",
            help="For --separate: told apart is where z reaches this one-sided confidence; above "
            "0.5.",
        ),
    ] = 0.95,
    max_trials: Annotated[
        int,
        typer.Option(metavar="N", help="The most further trials a question to look at."),
    ] = 100_000,
    dedupe: Dedupe = False,
    regrade: Regrade = False,
    level: Level = 0.95,
    scope: ScopeOption = Scope.benchmark,
    interval: Interval = IntervalKind.exact,
    seed: Seed = 0,
    as_json: Json = False,
) -> None:
    """Forecast the trials, tokens and hours that a goal needs.

    The number is that after which half of all futures have reached the goal, futures being
    drawn from the posterior; behind it stands the range for 90% of them. Tokens and the model's
    time are what trials of the same questions took so far. They are missing where the runs did
    not record them.

    More trials make every statement about these questions as sure as you like. What is said
    about questions like these ends where the questions themselves differ: then only more
    questions help, and the plan says so.

    \b
    Examples:
      lm-eval-bayes plan runs/qwen --width .05
      lm-eval-bayes plan runs/qwen runs/phi --separate --confidence .99
    """
    from lm_eval_bayes.analysis.plan import plan_separation, plan_width

    _check(width, separate, confidence, level, seed, max_trials)
    found = read(runs, task=task, metric=metric, filter=filter, dedupe=dedupe, regrade=regrade)
    if separate and not any(len(found.of_task(name)) > 1 for name in found.tasks):
        told = ", ".join(found.models)
        rule = "hold at least two models of one task for --separate"
        raise InvalidInputError.of("RUN", rule, told)
    lines: tuple[PlanLine, ...] = ()
    plans: list[SeparationPlan] = []
    spec = interval_spec(level, seed, scope, interval)
    with named_as_options("width", "confidence", "max_trials"):
        if width is not None:
            lines = plan_width(
                found.runs,
                width,
                spec,
                max_trials=max_trials,
            )
        if separate:
            plans = [
                plan_separation(
                    found.of_task(name),
                    spec,
                    confidence=confidence,
                    max_trials=max_trials,
                )
                for name in found.tasks
                if len(found.of_task(name)) > 1
            ]
    if as_json:
        goals = {"width": width, "separate": separate, "scope": scope.value, "level": level}
        say_json(
            {
                **goals,
                "runs": [line.to_dict() for line in lines],
                "separation": [plan.to_dict() for plan in plans],
                "warnings": list(found.warnings),
            }
        )
        return
    if width is not None:
        title = (
            f"until {100 * level:g}% intervals are at most {width:g} wide, "
            f"about {scope_label(scope.value)}"
        )
        _show(title, lines, "width")
    for at, plan in enumerate(plans):
        if at or lines:
            say()
        _show_separation(plan, confidence, scope.value)
    shown = [*lines, *(line for plan in plans for line in plan.lines)]
    for told in _unrecorded(shown):
        say(told)
    for line in shown:
        for note in line.notes:
            warn(f"note: {line.task}, {' and '.join(line.models)}: {note}")


def _check(
    width: float | None,
    separate: bool,
    confidence: float,
    level: float,
    seed: int,
    max_trials: int,
) -> None:
    """Refuse wrong options before anything is read."""
    from lm_eval_bayes.stats.comparison.compare import z_threshold
    from lm_eval_bayes.stats.validation import check_count

    if width is None and not separate:
        rule = "say what to plan for: --width .05, or --separate, or both"
        raise InvalidInputError.of("plan", rule, "neither")
    if width is not None and not 0.0 < width < float("inf"):
        raise InvalidInputError.of("--width", "be a finite number above 0", width)
    with named_as_options("confidence", "max_trials"):
        check_level_and_seed(level, seed)
        check_count("max_trials", max_trials, 1)
        if z_threshold(confidence) <= 0.0:
            raise InvalidInputError.of("confidence", "be above 0.5", confidence)


# -- what is shown -------------------------------------------------------------------------------


def _show(title: str, lines: Sequence[PlanLine], goal: str) -> None:
    band = f"{100 * lines[0].forecast.band:g}%"
    rows = []
    for line in lines:
        of = line.forecast
        none = line.reached or line.repeats
        enough = NO_VALUE if line.repeats else _range(_counts(line), _count)
        rows.append(
            [
                line.task,
                " and ".join(line.models),
                f"{of.current:.3f}" if goal == "width" else f"{of.current:.2f}",
                f"{of.trials:g}",
                "reached" if line.reached else enough,
                NO_VALUE if line.repeats or of.total is None else f"{of.total:g}",
                NO_VALUE if none else _range(line.trials, _count),
                NO_VALUE if none else _range(line.tokens, format_large),
                NO_VALUE if none else _range(line.seconds, format_duration),
            ]
        )
    who = "model" if goal == "width" else "models"
    head = ["task", who, f"{goal} now", "N", f"further N ({band})", "N in all"]
    say_table(title, [*head, "trials", "tokens", "time"], rows)


def _show_separation(plan: SeparationPlan, confidence: float, scope: str) -> None:
    apart = plural(plan.separated, "pair")
    if not plan.lines:
        say(f"{plan.task}: all models are told apart already ({apart}), about {scope_label(scope)}")
        return
    title = (
        f"{plan.task}: until two models are told apart at {100 * confidence:g}% "
        f"(z = {plan.lines[0].forecast.target:.3f}), about {scope_label(scope)}; "
        f"{apart} told apart already"
    )
    _show(title, plan.lines, "z")


def _unrecorded(lines: Sequence[PlanLine]) -> list[str]:
    """Say what was not recorded, with all models that it was not recorded for in one line."""
    models: dict[str, dict[str, None]] = {}
    for line in lines:
        for told in line.unrecorded:
            what, missing, model = told.partition(" not recorded for ")
            models.setdefault(what + missing, {})[model] = None
    return [what + ", ".join(of) for what, of in models.items()]


def _counts(line: PlanLine) -> ForecastAmount:
    from lm_eval_bayes.analysis.plan import ForecastAmount

    of = line.forecast
    return ForecastAmount(of.additional, of.additional_low, of.additional_high)


def _count(n: float | None) -> str:
    return NO_VALUE if n is None else f"{round(n):,}"


def _range(needed: ForecastAmount | None, told: Callable[[float | None], str]) -> str:
    """Return the middle of a forecast with its range; "or more" where that has no end."""
    if needed is None:
        return NO_VALUE
    if needed.middle is None:
        return "out of reach" if needed.low is None else f"{told(needed.low)} or more"
    end = "or more" if needed.high is None else f"to {told(needed.high)}"
    return f"{told(needed.middle)} ({told(needed.low)} {end})"
