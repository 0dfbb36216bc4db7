"""The screens of `plan`: trials until an interval is narrow, or models are distinguishable."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from lm_eval_bayes._util.text import NO_VALUE, format_duration, format_large
from lm_eval_bayes.cli.screens.bars import filled_bar
from lm_eval_bayes.cli.screens.layout import (
    Column,
    Form,
    free_width,
    names,
    say_columns,
    say_sentence,
)
from lm_eval_bayes.cli.ui.output import say

if TYPE_CHECKING:
    from lm_eval_bayes.analysis.plan import ForecastAmount, PlanLine, SeparationPlan

#: Rows of numbers of trials, each twice the one before.
_MOST_ROWS = 8


def show_widths(lines: Sequence[PlanLine], form: Form) -> None:
    """Print the trials until the interval of a run is as narrow as each of some widths.

    The sentence is about the first width that is not reached.
    """
    line = next((line for line in lines if not line.reached), lines[-1])
    say_sentence(
        _width_sentence(line, f"the interval of {line.models[0]} on {line.task}", form), form
    )
    say()
    columns = [Column("width", [f"{line.forecast.target:g}" for line in lines])]
    columns += _amounts(lines, form)
    longest = max(line.forecast.current, *(line.forecast.target for line in lines))
    width = free_width(columns, form)
    shares = [line.forecast.target / longest for line in lines]
    bars = [filled_bar(share, width, form.drawn, rest=False) for share in shares]
    say_columns([*columns, Column("", bars, left=True)], form)
    _say_unknown(lines)


def show_runs(lines: Sequence[PlanLine], form: Form) -> None:
    """Print the trials until the interval of every run is as narrow as one width."""
    line = max(
        lines, key=lambda line: (line.forecast.additional is None, line.forecast.additional or 0)
    )
    about = f"the interval of {line.models[0]} on {line.task}"
    if len(lines) > 1:
        about = f"every interval (the last is that of {line.models[0]} on {line.task})"
    say_sentence(_width_sentence(line, about, form), form)
    say()
    tasks = [line.task for line in lines]
    columns = [names("task", tasks)] if len({*tasks}) > 1 else []
    columns += [
        names("model", [line.models[0] for line in lines]),
        Column("width now", [f"{line.forecast.current:.3f}" for line in lines]),
        *_amounts(lines, form),
    ]
    say_columns(columns, form)
    _say_unknown(lines)


def _width_sentence(line: PlanLine, about: str, form: Form) -> str:
    forecast = line.forecast
    width, now = f"{forecast.target:g}", f"{forecast.current:.3f}"
    if line.reached:
        return f"{about[0].upper()}{about[1:]} is {now} wide: {width} is reached."
    if line.repeats:
        return f"Further trials of {line.models[0]} on {line.task} would repeat the saved ones."
    if forecast.additional is None:
        return (
            f"No number of trials makes {about} {width} wide; it is {now} now: more questions are "
            "needed."
        )
    return (
        f"{_total(line, form)} trials per question ({_more(line, form)} more) make {about} {width} "
        f"wide; it is {now} now."
    )


def _amounts(lines: Sequence[PlanLine], form: Form) -> list[Column]:
    columns = [
        Column("trials", [_total(line, form) for line in lines]),
        Column("more", [_more(line, form) for line in lines]),
        Column("90%", [_range(line, form) for line in lines]),
    ]
    if any(line.tokens is not None for line in lines):
        columns.append(Column("tokens", [_amount(line.tokens, format_large) for line in lines]))
    if any(line.seconds is not None for line in lines):
        columns.append(Column("time", [_amount(line.seconds, format_duration) for line in lines]))
    return columns


def _say_unknown(lines: Sequence[PlanLine]) -> None:
    if any(line.tokens is None for line in lines):
        say("tokens unknown" if all(line.tokens is None for line in lines) else "-: tokens unknown")


def show_pairs(plan: SeparationPlan, form: Form) -> None:
    """Print how many pairs of models are distinguishable after how many trials."""
    leader, n_models = plan.models[0], len(plan.models)
    n_pairs, n_now = n_models * (n_models - 1) // 2, len(plan.distinguishable)
    if not plan.lines:
        which = "Both models" if n_pairs == 1 else f"All {n_pairs:,} pairs of models"
        say_sentence(f"{which} on {plan.task} are distinguishable.", form)
        return
    now = max(max(line.n_now) for line in plan.lines)
    totals = [
        None
        if line.repeats or line.forecast.additional is None
        else max(line.n_now) + line.forecast.additional
        for line in plan.lines
    ]
    of_leader = [t for t, line in zip(totals, plan.lines, strict=True) if leader in line.models]
    say_sentence(
        f"{_when(of_leader, now, f'tell {leader} from every other model', form)} "
        f"{_when(totals, now, f'distinguish all {n_pairs} pairs', form)} "
        f"Now: {form.integer(now)} {'trial' if now == 1 else 'trials'}, {n_now} pairs.",
        form,
    )
    say()
    reached = sorted(total for total in totals if total is not None)
    rows = [now]
    while len(rows) < _MOST_ROWS and reached and rows[-1] < reached[-1]:
        rows.append(2 * rows[-1])
    counts = [n_now + sum(total <= row for total in reached) for row in rows]
    n_questions = plan.lines[0].n_questions
    columns = [
        Column("trials", [form.integer(row) for row in rows]),
        Column("in all", [form.integer(row * n_questions * n_models) for row in rows]),
    ]
    width = max(free_width([*columns, Column("", ["100%"])], form) - 10, 10)
    cells = [f"{n:>3} {filled_bar(n / n_pairs, width, form.drawn)}" for n in counts]
    columns.append(Column("distinguishable pairs", cells, left=True))
    columns.append(Column("", [f"{n / n_pairs:.0%}" for n in counts]))
    say_columns(columns, form)
    say("Counts are forecasts (medians).")


def show_each_pair(lines: Sequence[PlanLine], form: Form) -> None:
    """Print the further trials of every pair that is not distinguishable yet."""
    say_columns(
        [
            names("model", [line.models[0] for line in lines]),
            names("and", [line.models[1] for line in lines]),
            Column("|z|", [f"{line.forecast.current:.2f}" for line in lines]),
            Column("more trials", [_more(line, form) for line in lines]),
            Column("90%", [_range(line, form) for line in lines]),
        ],
        form,
    )


def _when(totals: Sequence[float | None], now: float, goal: str, form: Form) -> str:
    """Return after how many trials a goal may be reached."""
    if not totals:
        return f"{form.integer(now)} trials per question {goal}."
    if None in totals:
        return f"No number of trials may {goal}."
    most = max(total for total in totals if total is not None)
    return f"{form.integer(most)} trials per question ({form.integer(most - now)} more) may {goal}."


def _more(line: PlanLine, form: Form) -> str:
    if line.reached:
        return "0"
    further = line.forecast.additional
    return NO_VALUE if line.repeats or further is None else form.integer(further)


def _total(line: PlanLine, form: Form) -> str:
    further = line.forecast.additional
    if line.repeats or further is None:
        return NO_VALUE
    return form.integer(max(line.n_now) + further)


def _range(line: PlanLine, form: Form) -> str:
    low, high = line.forecast.additional_low, line.forecast.additional_high
    if line.reached or line.repeats or low is None:
        return NO_VALUE
    return f"{form.integer(low)} {'or more' if high is None else f'to {form.integer(high)}'}"


def _amount(amount: ForecastAmount | None, form: Callable[[float | None], str]) -> str:
    return NO_VALUE if amount is None else form(amount.middle)
