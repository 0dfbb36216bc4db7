"""`lm-eval-bayes plan`: the number of further trials that a goal needs, and their cost."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import comb
from typing import TYPE_CHECKING, Annotated, TypeAlias

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
from lm_eval_bayes.cli.ui.options import (
    IntervalOptions,
    Json,
    option,
    prints_tables,
)
from lm_eval_bayes.cli.ui.output import (
    Progress,
    say,
    say_json,
    say_prose,
    say_records,
    sentence_name,
    warn_notes,
)
from lm_eval_bayes.cli.ui.reading import ReadingOptions, Runs
from lm_eval_bayes.errors import InvalidInputError

if TYPE_CHECKING:
    from lm_eval_bayes.analysis.plan import ForecastAmount, PlanLine, SeparationPlan

#: The largest number of further trials.
MAX_TRIALS = 100_000
#: More pairs than this take so long that their progress is shown.
_MANY_PAIRS = 50

NumberFormat: TypeAlias = Callable[[float | None], str]


@prints_tables
def command(
    runs: Runs,
    *,
    width: Annotated[
        float | None, option("W", "Goal: every run's credible interval is at most this wide.")
    ] = None,
    apart: Annotated[
        bool,
        typer.Option("--apart", help="Goal: every two models of a task are distinguishable."),
    ] = False,
    max_trials: Annotated[
        int, option("N", "The largest number of further trials per question.")
    ] = MAX_TRIALS,
    reading: ReadingOptions,
    intervals: IntervalOptions,
    as_json: Json = False,
) -> None:
    """Forecast the trials, tokens and hours that a goal needs.

    The forecast is the number of trials after which half of the posterior predictive draws have
    reached the goal, with a central 90% range. Tokens and model time follow from what the saved
    trials of the same questions took; they are missing if the runs did not record them.

    --apart asks whether two models are distinguishable as `rank`, `compare` and `report` do, all
    given models compared at once.

    In scope benchmark every goal can be reached with enough trials. In scope population the
    differences between questions remain: only more questions help, and a note says so.

    \b
    Examples:
      lm-eval-bayes plan runs/qwen --width .05
      lm-eval-bayes plan runs/qwen runs/phi --apart
    """
    from lm_eval_bayes.analysis.plan import plan_separation, plan_width

    spec = intervals.spec()
    _check(width, apart, max_trials)
    saved = reading.read(runs)
    by_task = {name: saved.of_task(name) for name in saved.tasks}
    if apart and all(len(of_task) < 2 for of_task in by_task.values()):
        rule = "hold at least two models of one task for --apart"
        raise InvalidInputError.of("RUN", "empty", rule, ", ".join(saved.models))
    lines: tuple[PlanLine, ...] = ()
    plans: list[SeparationPlan] = []
    with named_as_options("width", "max_trials"):
        if width is not None:
            lines = plan_width(saved.runs, width, spec, max_trials=max_trials)
        if apart:
            boards = [of_task for of_task in by_task.values() if len(of_task) > 1]
            n_pairs = sum(comb(len(board), 2) for board in boards)
            with Progress("pairs", n_pairs if n_pairs > _MANY_PAIRS else 0) as progress:
                plans = [
                    plan_separation(board, spec, max_trials=max_trials, progress=progress.advance)
                    for board in boards
                ]
    if as_json:
        say_json(
            {
                "width": width,
                "apart": apart,
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
        rule = "distinguishable with 95% confidence"
        rule += f" (z = {plan.lines[0].forecast.target:.3f})" if plan.lines else ""
        _show_separation(plan, rule, spec.scope)
    all_lines = [*lines, *(line for plan in plans for line in plan.lines)]
    for message in _unrecorded(all_lines):
        say_prose(message)
    warn_notes((line.task, line.models, note) for line in all_lines for note in line.notes)


def _check(width: float | None, apart: bool, max_trials: int) -> None:
    """Refuse wrong options before any run is read."""
    from lm_eval_bayes._util.validation import check_count, check_positive

    if width is None and not apart:
        rule = "be given a goal: --width .05, or --apart, or both"
        raise InvalidInputError.of("plan", "missing", rule, "neither")
    if width is not None:
        check_positive("--width", width)
    check_count("--max-trials", max_trials, 1)


# -- tables --------------------------------------------------------------------------------------


def _show(title: str, lines: Sequence[PlanLine], goal: str) -> None:
    models, digits = ("model", 3) if goal == "width" else ("models", 2)
    clustered = any(line.n_clusters is not None for line in lines)
    say_records(
        title,
        lines,
        {
            "task": lambda line: line.task,
            **_model_columns(models, lines),
            f"{goal} now": lambda line: f"{line.forecast.current:.{digits}f}",
            **({"clusters": lambda line: format_integer(line.n_clusters)} if clustered else {}),
            "N": lambda line: _of_each(line.n_now),
            "further N (90%)": _further_trials,
            "total N": _total_trials,
            "trials": lambda line: _cost(line, line.trials, format_integer),
            "tokens": lambda line: _cost(line, line.tokens, format_large),
            "time": lambda line: _cost(line, line.seconds, format_duration),
        },
        optional=("time", "tokens", "trials", "total N", "N", "clusters"),
    )


def _model_columns(heading: str, lines: Sequence[PlanLine]) -> dict[str, Callable[[PlanLine], str]]:
    """Return a column of models, and for pairs a second one, so that long names stay distinct."""
    if any(len(line.models) != 2 for line in lines):
        return {heading: lambda line: join_words(line.models)}
    return {heading: lambda line: line.models[0], "and": lambda line: line.models[1]}


def _show_separation(plan: SeparationPlan, rule: str, scope: str) -> None:
    separated = plural(len(plan.distinguishable), "pair")
    n_clusters = next((line.n_clusters for line in plan.lines), None)
    scope_text = f"for {scope_label(scope, n_clusters)}"
    if not plan.lines:
        say_prose(f"{plan.task}: all pairs of models are already {rule}: {separated}, {scope_text}")
        return
    title = f"{plan.task}: until a pair of models is {rule}, {scope_text}; already: {separated}"
    _show(title, plan.lines, "z")


def _unrecorded(lines: Sequence[PlanLine]) -> list[str]:
    """Return the messages on missing records, those of several models as one."""
    models: dict[str, dict[str, None]] = {}
    for line in lines:
        for message in line.unrecorded:
            subject, separator, model = message.partition(" not recorded for ")
            models.setdefault(subject + separator, {})[model] = None
    return [start + ", ".join(map(sentence_name, names)) for start, names in models.items()]


def _further_trials(line: PlanLine) -> str:
    from lm_eval_bayes.analysis.plan import amount_of

    if line.reached:
        return "reached"
    if line.repeats:
        return NO_VALUE
    return _with_range(amount_of(line.forecast, 1.0), format_integer)


def _total_trials(line: PlanLine) -> str:
    further = line.forecast.additional
    if line.repeats or further is None:
        return NO_VALUE
    return _of_each([n + further for n in line.n_now])


def _of_each(numbers: Sequence[float]) -> str:
    """Return a number of every model, once where all are the same."""
    return " and ".join(dict.fromkeys(map(format_large, numbers)))


def _cost(line: PlanLine, amount: ForecastAmount | None, form: NumberFormat) -> str:
    return NO_VALUE if line.reached or line.repeats else _with_range(amount, form)


def _with_range(amount: ForecastAmount | None, form: NumberFormat) -> str:
    """Return the median of a forecast with its range, which may have no upper end."""
    if amount is None:
        return NO_VALUE
    if amount.middle is None:
        return "out of reach"
    end = "or more" if amount.high is None else f"to {form(amount.high)}"
    return f"{form(amount.middle)} ({form(amount.low)} {end})"
