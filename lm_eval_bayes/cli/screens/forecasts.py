"""The screens of `plan`: trials until an interval is narrow, or models are distinguishable."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from lm_eval_bayes._util.text import NO_VALUE, format_duration, format_large, plural
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
    from lm_eval_bayes.analysis.plan import NEEDS_QUESTIONS

    forecast = line.forecast
    width, now = f"{forecast.target:g}", f"{forecast.current:.3f}"
    if line.reached:
        return f"{about[0].upper()}{about[1:]} is {now} wide: {width} is reached."
    if line.repeats:
        return f"Further trials of {line.models[0]} on {line.task} would repeat the saved ones."
    if forecast.additional is None:
        trials = f"{forecast.max_trials:,} more trials per question may not make"
        if not forecast.reachable:
            return NEEDS_QUESTIONS.format(f"make {about} {width} wide") + f" It is {now} now."
        return f"{trials} {about} {width} wide; it is {now} now."
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
    from lm_eval_bayes.analysis.plan import trials_in_words

    if not plan.lines:
        say_sentence(plan.sentence(), form)
        return
    now, n_apart = trials_in_words(plan.n_now), plural(len(plan.distinguishable), "pair")
    say_sentence(f"{plan.sentence()} Now: {now}, {n_apart}.", form)
    say()
    counts = plan.counts()
    n_questions, n_models = plan.lines[0].n_questions, len(plan.models)
    columns = [
        Column("trials", [form.number(row) for row, _ in counts]),
        Column("in all", [form.number(row * n_questions * n_models) for row, _ in counts]),
    ]
    shares = [n / plan.n_pairs for _, n in counts]
    width = max(free_width([*columns, Column("", ["100%"])], form) - 10, 10)
    bars = [filled_bar(share, width, form.drawn) for share in shares]
    cells = [f"{n:>3} {bar}" for (_, n), bar in zip(counts, bars, strict=True)]
    columns.append(Column("distinguishable pairs", cells, left=True))
    say_columns([*columns, Column("", [f"{share:.0%}" for share in shares])], form)
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


def _more(line: PlanLine, form: Form) -> str:
    return NO_VALUE if line.total is None else form.number(line.forecast.additional or 0)


def _total(line: PlanLine, form: Form) -> str:
    return NO_VALUE if line.total is None else form.number(line.total)


def _range(line: PlanLine, form: Form) -> str:
    low, high = line.forecast.additional_low, line.forecast.additional_high
    if line.reached or line.repeats or low is None:
        return NO_VALUE
    return f"{form.number(low)} {'or more' if high is None else f'to {form.number(high)}'}"


def _amount(amount: ForecastAmount | None, form: Callable[[float | None], str]) -> str:
    return NO_VALUE if amount is None else form(amount.middle)
