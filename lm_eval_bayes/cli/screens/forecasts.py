"""The screens of `plan`: trials until an interval is narrow, or models are distinguishable."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from lm_eval_bayes._util.text import NO_VALUE, format_large, plural
from lm_eval_bayes.cli.screens.bars import Axis, filled_bar
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


def show_widths(lines: Mapping[float, PlanLine], form: Form) -> None:
    """Print the trials until the interval of a run is as narrow as each of some widths.

    Parameters
    ----------
    lines : mapping of float to PlanLine
        By width; the sentence is about the first that is not reached.
    form : Form
        The form of the screen.
    """
    width, line = next(
        ((w, line) for w, line in lines.items() if not line.reached), list(lines.items())[-1]
    )
    forecast, (now,) = line.forecast, line.n_now
    about = f"{line.models[0]} on {line.task}"
    if line.reached:
        answer = f"The interval of {about} is {forecast.current:.3f} wide: {width:g} is reached."
    elif forecast.additional is None:
        answer = (
            f"No number of trials makes the interval of {about} {width:g} wide; it is "
            f"{forecast.current:.3f} now: more questions are needed."
        )
    else:
        answer = (
            f"{form.integer(now + forecast.additional)} trials per question "
            f"({form.integer(forecast.additional)} more) make the interval of {about} {width:g} "
            f"wide; it is {forecast.current:.3f} now."
        )
    say_sentence(answer, form)
    say()
    tokens = [_amount(line.tokens) for line in lines.values()]
    columns = [
        Column("width", [f"{width:g}" for width in lines]),
        Column("trials", [_total(line, form) for line in lines.values()]),
        Column("more", [_more(line, form) for line in lines.values()]),
        Column("90%", [_range(line, form) for line in lines.values()]),
    ]
    if any(line.tokens is not None for line in lines.values()):
        columns.append(Column("tokens", tokens))
    longest = max(forecast.current, *lines)
    axis = Axis(0.0, longest, free_width(columns, form), form.drawn)
    bars = [filled_bar(width / longest, axis.width, form.drawn, rest=False) for width in lines]
    say_columns([*columns, Column("", bars, left=True)], form)
    if len(columns) == 4:
        say("tokens unknown: the run did not record them")


def show_pairs(plan: SeparationPlan, leader: str, n_models: int, form: Form) -> None:
    """Print how many pairs of models are distinguishable after how many trials.

    Parameters
    ----------
    plan : SeparationPlan
        The pairs that are, and forecasts of the others.
    leader : str
        The model with the largest score.
    n_models : int
        Number of models.
    form : Form
        The form of the screen.
    """
    n_pairs, n_now = n_models * (n_models - 1) // 2, len(plan.distinguishable)
    if not plan.lines:
        pairs = plural(n_pairs, "pair")
        say_sentence(f"All {pairs} of models on {plan.task} are distinguishable.", form)
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


def _amount(amount: ForecastAmount | None) -> str:
    return NO_VALUE if amount is None else format_large(amount.middle)
