"""`lm-eval-bayes plan`: the number of further trials that a goal needs, and their cost."""

from __future__ import annotations

from collections.abc import Sequence
from math import comb
from typing import TYPE_CHECKING, Annotated

import typer

from lm_eval_bayes.cli.screens.forecasts import (
    show_each_pair,
    show_pairs,
    show_runs,
    show_widths,
)
from lm_eval_bayes.cli.screens.layout import Form, say_next
from lm_eval_bayes.cli.ui.options import IntervalOptions, Json, option, prints_tables
from lm_eval_bayes.cli.ui.output import Progress, say, say_each, say_json, warn_notes
from lm_eval_bayes.cli.ui.reading import ReadingOptions, Runs
from lm_eval_bayes.errors import InvalidInputError

if TYPE_CHECKING:
    from lm_eval_bayes.analysis.plan import PlanLine, SeparationPlan
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

    Without a goal it shows for several models how many pairs are distinguishable after how many
    trials, and for one model the trials of intervals of several widths.

    The forecast is the number of trials after which half of the posterior predictive draws have
    reached the goal, with a central 90% range. Tokens and model time follow from what the saved
    trials of the same questions took; they are missing if the runs did not record them.

    Whether two models are distinguishable is what `rank`, `compare` and `report` say, all given
    models compared at once.

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
    say_each([lines] if width is not None else of_runs if lines else [], _show_widths)
    if lines and plans:
        say()
    say_each(plans, _show_pairs, lambda plan: plan.task)
    all_lines = [*lines, *(line for plan in plans for line in plan.lines)]
    warn_notes((line.task, line.models, note) for line in all_lines for note in line.notes)
    words = [*map(str, runs), *reading.words()]
    further = [line for line in lines if line.forecast.additional]
    if plans:
        say_next(["lm-eval-bayes", "rank", *words])
    elif further:
        goal = f"{further[0].forecast.target:g}"
        say_next(["lm-eval-bayes", "run", "--width", goal], "and what `lm_eval` got")


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


def _show_widths(lines: Sequence[PlanLine]) -> None:
    if len({line.forecast.target for line in lines}) > 1:
        show_widths(lines, Form.of_output())
    else:
        show_runs(lines, Form.of_output())


def _show_pairs(plan: SeparationPlan) -> None:
    form = Form.of_output()
    show_pairs(plan, form)
    if form.verbose and plan.lines:
        say()
        show_each_pair(plan.lines, form)
