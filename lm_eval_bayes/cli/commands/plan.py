"""`lm-eval-bayes plan`: the number of further trials that a goal needs, and their cost."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from math import comb
from typing import TYPE_CHECKING, Annotated

from lm_eval_bayes._util.text import NO_VALUE, format_duration, format_large, format_score, plural
from lm_eval_bayes.cli.screens.bars import filled_bar
from lm_eval_bayes.cli.screens.layout import (
    Column,
    Form,
    free_width,
    names,
    say_columns,
    say_next,
    say_sentence,
)
from lm_eval_bayes.cli.ui.options import IntervalOptions, Json, option, prints_tables
from lm_eval_bayes.cli.ui.output import Progress, say, say_each, say_json, warn_notes
from lm_eval_bayes.cli.ui.reading import ReadingOptions, Runs
from lm_eval_bayes.errors import InvalidInputError

if TYPE_CHECKING:
    from lm_eval_bayes.analysis.plan import ForecastAmount, PlanLine, SeparationPlan, SettingsPlan
    from lm_eval_bayes.runs.task_run import TaskRun
    from lm_eval_bayes.stats import IntervalSpec

#: The largest number of further trials.
MAX_TRIALS = 100_000
#: More pairs than this take so long that their progress is shown.
_MANY_PAIRS = 50
#: The widths of intervals that are shown where no goal is given, as shares of the range of scores.
_WIDTHS = (0.08, 0.05, 0.03, 0.02)


@prints_tables
def command(
    runs: Runs,
    *,
    width: Annotated[
        float | None, option("W", "Goal: every run's credible interval is at most this wide.")
    ] = None,
    apart: Annotated[
        bool,
        option(None, "Goal: every two models of a task are distinguishable.", "--apart"),
    ] = False,
    max_trials: Annotated[
        int, option("N", "The largest number of further trials per question.")
    ] = MAX_TRIALS,
    reading: ReadingOptions,
    intervals: IntervalOptions,
    as_json: Json = False,
) -> None:
    """Forecast the trials, tokens and hours that a goal needs.

    Without a goal it shows for several models how many pairs are distinguishable after how many
    trials, and for one model the trials of intervals of several widths.

    The forecast is the number of trials after which half of the posterior predictive draws have
    reached the goal, with a central 90% range. Tokens and model time follow from what the saved
    trials of the same questions took; they are missing if the runs did not record them.

    For a run of several settings it shows how many the interval about settings like these needs.

    Whether two models are distinguishable is what `rank` says, all models compared at once.

    In scope benchmark every goal can be reached with enough trials. In scope population the
    differences between questions remain: where only more questions help, the sentence says so.

    \b
    Examples:
      lm-eval-bayes plan runs/qwen --width .05
      lm-eval-bayes plan runs/qwen runs/phi
    """
    from lm_eval_bayes._util.validation import check_count, check_positive
    from lm_eval_bayes.analysis.comparability import check_counted

    spec = intervals.spec()
    if width is not None:
        check_positive("--width", width)
    check_count("--max-trials", max_trials, 1)
    saved = reading.read(runs)
    boards = [board for board in map(saved.of_task, saved.tasks) if len(board) > 1]
    if apart and not boards:
        rule = "hold at least two models of one task for --apart"
        raise InvalidInputError.of("RUN", "empty", rule, ", ".join(saved.models))
    check_counted(saved.runs)
    apart = apart or (width is None and bool(boards))
    narrowed = () if apart and width is None else saved.runs
    of_runs = [_until_narrow(run, width, spec, max_trials) for run in narrowed]
    plans = _until_distinguishable(boards, spec, max_trials) if apart else []
    lines = [line for of_run in of_runs for line in of_run]
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
    form = Form.of_output()
    if width is not None:
        _show_runs(lines, form)
    say_each([] if width is not None else of_runs, partial(_show_widths, form=form))
    if lines and plans:
        say()
    say_each(plans, partial(_show_pairs, form=form), lambda plan: plan.task)
    all_lines = [*lines, *(line for plan in plans for line in plan.lines)]
    warn_notes((line.task, line.models, note) for line in all_lines for note in line.notes)
    words = [*map(str, runs), *reading.words()]
    further = [line for line in lines if line.forecast.additional]
    if plans:
        say_next(["lm-eval-bayes", "rank", *words])
    elif further:
        goal = f"{further[0].forecast.target:g}"
        say_next(["lm-eval-bayes", "run", "--width", goal], "and what lm_eval got")


def _until_narrow(
    run: TaskRun, width: float | None, spec: IntervalSpec, max_trials: int
) -> list[PlanLine]:
    from lm_eval_bayes.analysis.plan import plan_width

    low, high = run.outcomes.bounds
    widths = [share * (high - low) for share in _WIDTHS] if width is None else [width]
    plans = (plan_width([run], width, spec, max_trials=max_trials) for width in widths)
    return [line for (line,) in plans]


def _until_distinguishable(
    boards: Sequence[Sequence[TaskRun]], spec: IntervalSpec, max_trials: int
) -> list[SeparationPlan]:
    from lm_eval_bayes.analysis.plan import plan_separation

    n_pairs = sum(comb(len(board), 2) for board in boards)
    with Progress("pairs", n_pairs if n_pairs > _MANY_PAIRS else 0) as progress:
        return [
            plan_separation(board, spec, max_trials=max_trials, progress=progress.advance)
            for board in boards
        ]


# -- the screens ----------------------------------------------------------------------------------


def _show_widths(lines: Sequence[PlanLine], form: Form) -> None:
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
    _say_notes(lines, line.settings, form)


def _show_runs(lines: Sequence[PlanLine], form: Form) -> None:
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
    _say_notes(lines, line.settings, form)


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


def _say_notes(lines: Sequence[PlanLine], settings: SettingsPlan | None, form: Form) -> None:
    """Print whose tokens are unknown, and what more trials and more settings of a run do."""
    if any(line.tokens is None for line in lines):
        say("tokens unknown" if all(line.tokens is None for line in lines) else "-: tokens unknown")
    if settings is None:
        return
    now, *floor = map(format_score, (settings.width, *settings.floor))
    designs = (settings.prompts, settings.engines)
    prompts, engines = (f"{n} settings x {plural(trials, 'trial')}" for n, trials in designs)
    for sentence in (
        f"In settings like these {settings.n} it is {now} wide. More trials of these alone: "
        f"{floor[0]} at best ({floor[1]} to {floor[2]}).",
        f"{settings.target:g} wide takes about {prompts} (prompts), or {engines} (engines, days: "
        "one costs 4 trials).",
    ):
        say_sentence(sentence, form)


def _show_pairs(plan: SeparationPlan, form: Form) -> None:
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
    say("Counts are forecasts (medians). On other questions only more questions help.")
    if form.verbose:
        say()
        _show_each_pair(plan.lines, form)


def _show_each_pair(lines: Sequence[PlanLine], form: Form) -> None:
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
