"""`lm-eval-bayes plan`: the number of further trials that a goal needs, and their cost."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Annotated

import typer

from lm_eval_bayes._util.text import (
    NO_VALUE,
    format_duration,
    format_integer,
    format_large,
    join_words,
    plural,
    scope_label,
)
from lm_eval_bayes.cli.ui.errors import named_as_options
from lm_eval_bayes.cli.ui.options import IntervalOptions, Json, expand_options
from lm_eval_bayes.cli.ui.output import say, say_json, say_table, warn
from lm_eval_bayes.cli.ui.reading import ReadingOptions, Runs
from lm_eval_bayes.errors import InvalidInputError

if TYPE_CHECKING:
    from lm_eval_bayes.analysis.plan import ForecastAmount, PlanLine, SeparationPlan


@expand_options
def command(
    runs: Runs,
    *,
    width: Annotated[
        float | None,
        typer.Option(metavar="W", help="Goal: every run's credible interval is at most this wide."),
    ] = None,
    separate: Annotated[
        bool,
        typer.Option("--separate", help="Goal: every two models of a task are distinguishable."),
    ] = False,
    confidence: Annotated[
        float,
        typer.Option(
            metavar="P",
            help="With --separate: the one-sided confidence from which two models are "
            "distinguishable; above 0.5.",
        ),
    ] = 0.95,
    max_trials: Annotated[
        int, typer.Option(metavar="N", help="The largest number of further trials per question.")
    ] = 100_000,
    reading: ReadingOptions,
    intervals: IntervalOptions,
    as_json: Json = False,
) -> None:
    """Forecast the trials, tokens and hours that a goal needs.

    The forecast is the number of trials after which half of the posterior predictive draws have
    reached the goal, with a central 90% range. Tokens and model time follow from what the saved
    trials of the same questions took; they are missing if the runs did not record them.

    In scope benchmark every goal can be reached with enough trials. In scope population the
    differences between questions remain: only more questions help, and a note says so.

    \b
    Examples:
      lm-eval-bayes plan runs/qwen --width .05
      lm-eval-bayes plan runs/qwen runs/phi --separate --confidence .99
    """
    from lm_eval_bayes.analysis.plan import plan_separation, plan_width

    spec = intervals.spec()
    _check(width, separate, confidence, max_trials)
    saved = reading.read(runs)
    by_task = {name: saved.of_task(name) for name in saved.tasks}
    if separate and all(len(of_task) < 2 for of_task in by_task.values()):
        rule = "hold at least two models of one task for --separate"
        raise InvalidInputError.of("RUN", rule, ", ".join(saved.models))
    lines: tuple[PlanLine, ...] = ()
    plans: list[SeparationPlan] = []
    with named_as_options("width", "confidence", "max_trials"):
        if width is not None:
            lines = plan_width(saved.runs, width, spec, max_trials=max_trials)
        if separate:
            plans = [
                plan_separation(of_task, spec, confidence=confidence, max_trials=max_trials)
                for of_task in by_task.values()
                if len(of_task) > 1
            ]
    if as_json:
        say_json(
            {
                "width": width,
                "separate": separate,
                "scope": spec.scope,
                "level": spec.level,
                "runs": lines,
                "separation": plans,
                "warnings": saved.warnings,
            }
        )
        return
    if width is not None:
        title = (
            f"until {100 * spec.level:g}% intervals are at most {width:g} wide, "
            f"for {scope_label(spec.scope)}"
        )
        _show(title, lines, "width")
    for number, plan in enumerate(plans):
        if number or lines:
            say()
        _show_separation(plan, confidence, spec.scope)
    all_lines = [*lines, *(line for plan in plans for line in plan.lines)]
    for message in _unrecorded(all_lines):
        say(message)
    for line in all_lines:
        for note in line.notes:
            warn(f"note: {line.task}, {join_words(line.models)}: {note}")


def _check(width: float | None, separate: bool, confidence: float, max_trials: int) -> None:
    """Refuse wrong options before any run is read."""
    from lm_eval_bayes.stats.comparison.compare import z_threshold
    from lm_eval_bayes.stats.validation import check_count

    if width is None and not separate:
        rule = "be given a goal: --width .05, or --separate, or both"
        raise InvalidInputError.of("plan", rule, "neither")
    if width is not None and not 0.0 < width < float("inf"):
        raise InvalidInputError.of("--width", "be a finite number above 0", width)
    with named_as_options("confidence", "max_trials"):
        check_count("max_trials", max_trials, 1)
        if z_threshold(confidence) <= 0.0:
            raise InvalidInputError.of("confidence", "be above 0.5", confidence)


# -- tables --------------------------------------------------------------------------------------


def _show(title: str, lines: Sequence[PlanLine], goal: str) -> None:
    rows = []
    for line in lines:
        forecast = line.forecast
        cost = [NO_VALUE] * 3
        if not (line.reached or line.repeats):
            cost = [
                _with_range(line.trials, format_integer),
                _with_range(line.tokens, format_large),
                _with_range(line.seconds, format_duration),
            ]
        rows.append(
            [
                line.task,
                join_words(line.models),
                f"{forecast.current:.3f}" if goal == "width" else f"{forecast.current:.2f}",
                f"{forecast.trials:g}",
                _further_trials(line),
                NO_VALUE if line.repeats or forecast.total is None else f"{forecast.total:g}",
                *cost,
            ]
        )
    models = "model" if goal == "width" else "models"
    further = f"further N ({100 * lines[0].forecast.band:g}%)"
    head = ["task", models, f"{goal} now", "N", further, "total N", "trials", "tokens", "time"]
    say_table(title, head, rows)


def _show_separation(plan: SeparationPlan, confidence: float, scope: str) -> None:
    separated = plural(plan.separated, "pair")
    scope_text = f"for {scope_label(scope)}"
    if not plan.lines:
        say(f"{plan.task}: all models are already distinguishable ({separated}), {scope_text}")
        return
    title = (
        f"{plan.task}: until two models are distinguishable at {100 * confidence:g}% "
        f"(z = {plan.lines[0].forecast.target:.3f}), {scope_text}; "
        f"already distinguishable: {separated}"
    )
    _show(title, plan.lines, "z")


def _unrecorded(lines: Sequence[PlanLine]) -> list[str]:
    """Return the messages on missing records, those of several models as one."""
    models: dict[str, dict[str, None]] = {}
    for line in lines:
        for message in line.unrecorded:
            subject, separator, model = message.partition(" not recorded for ")
            models.setdefault(subject + separator, {})[model] = None
    return [start + ", ".join(names) for start, names in models.items()]


def _further_trials(line: PlanLine) -> str:
    from lm_eval_bayes.analysis.plan import ForecastAmount

    if line.reached:
        return "reached"
    if line.repeats:
        return NO_VALUE
    f = line.forecast
    further = ForecastAmount(f.additional, f.additional_low, f.additional_high)
    return _with_range(further, format_integer)


def _with_range(amount: ForecastAmount | None, form: Callable[[float | None], str]) -> str:
    """Return the median of a forecast with its range, which may have no upper end."""
    if amount is None:
        return NO_VALUE
    if amount.middle is None:
        return "out of reach" if amount.low is None else f"{form(amount.low)} or more"
    end = "or more" if amount.high is None else f"to {form(amount.high)}"
    return f"{form(amount.middle)} ({form(amount.low)} {end})"
