"""`lm-eval-bayes summary`: what saved runs say, task by task."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Annotated, Any, Optional

import typer

from lm_eval_bayes._util.text import (
    format_duration,
    format_interval,
    format_large,
    format_mean_sd,
    format_range,
    format_score,
    interval_label,
    plural,
    scope_label,
)
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
    OneScope,
    Regrade,
    Runs,
    Seed,
    Task,
    interval_spec,
    numbers_in,
    read,
)

if TYPE_CHECKING:
    from lm_eval_bayes.analysis.summary import GroupSummary, TaskSummary
    from lm_eval_bayes.stats.intervals import Interval as CredibleInterval
    from lm_eval_bayes.stats.intervals import Scope
    from lm_eval_bayes.stats.results import Posterior

#: What the group of all tasks is called.
ALL_TASKS = "all tasks"


def command(
    runs: Runs,
    task: Task = None,
    metric: Metric = None,
    filter: Filter = None,
    k: Annotated[
        Optional[str],  # noqa: UP045  typer reads this on Python 3.10 too
        typer.Option(
            metavar="K,K,...",
            help="Budgets of Pass@k and its family, each at most N. By default powers of two up "
            "to N, and those that the run was given.",
        ),
    ] = None,
    all_tasks: Annotated[
        bool,
        typer.Option("--all-tasks", help="Add the means over all tasks, as of a group."),
    ] = False,
    dedupe: Dedupe = False,
    regrade: Regrade = False,
    level: Level = 0.95,
    scope: OneScope = None,
    interval: Interval = IntervalKind.exact,
    seed: Seed = 0,
    as_json: Json = False,
) -> None:
    """Show scores, intervals, Pass@k and cost, task by task.

    hbayes@N is the score with a prior that is learned across the questions: its interval is
    the one to trust. It comes in two scopes: about these questions, and about questions like
    these, of which these are a sample. bayes@N beside it has the paper's uniform prior, which
    pulls every question towards the middle. avg@N is the plain mean.

    A group of tasks has two means: by size, where every question counts the same, and equal,
    where every task does. Their posteriors follow from those of the tasks, which are independent
    given the trials: sd = sqrt(sum of (weight x sd)^2). Standard errors are never averaged.

    \b
    Examples:
      lm-eval-bayes summary results/
      lm-eval-bayes summary runs/qwen runs/phi --task aime25_bayes --k 1,10,50 --json
    """
    from lm_eval_bayes.analysis.summary import summarise, summarise_groups
    from lm_eval_bayes.stats.intervals import SCOPES

    budgets = None if k is None else numbers_in("--k", k)
    spec = interval_spec(level, seed, interval=interval)
    found = read(runs, task=task, metric=metric, filter=filter, dedupe=dedupe, regrade=regrade)
    with named_as_options("k"):
        summaries = [summarise(run, spec, ks=budgets) for run in found.runs]
    groups = {name: tuple(tasks) for name, tasks in found.groups.items()}
    if all_tasks and len(found.tasks) > 1:
        groups[ALL_TASKS] = found.tasks
    grouped = summarise_groups(summaries, groups)
    if as_json:
        say_json(
            {
                "level": level,
                "interval": interval.value,
                "seed": seed,
                "tasks": [one.to_dict() for one in summaries],
                "groups": [one.to_dict() for one in grouped],
                "warnings": list(found.warnings),
            }
        )
        return
    scopes = SCOPES if scope is None else (scope.value,)
    _show(summaries, grouped, scopes, level, interval.value)
    for one in summaries:
        for note in one.posterior_notes:
            warn(f"note: {one.run.model}, {one.run.task}: {note}")


# -- what is shown -------------------------------------------------------------------------------


def _show(
    summaries: Sequence[TaskSummary],
    groups: Sequence[GroupSummary],
    scopes: Sequence[Scope],
    level: float,
    method: str,
) -> None:
    posteriors = ["hbayes@N", *map(scope_label, scopes), "bayes@N, uniform prior", "its interval"]
    intervals = interval_label(level, method)
    head = ["task", "model", "questions", "N", "avg@N", *posteriors]
    rows = [
        [
            *(one.run.task, one.run.model),
            *(
                f"{one.run.n_questions:,}",
                format_range(one.n_range),
                _average(one),
            ),
            *_posteriors(one.learned, one.intervals, scopes),
            *(
                format_mean_sd(one.paper.mu, one.paper.sigma),
                format_interval(one.intervals["paper"]),
            ),
        ]
        for one in summaries
    ]
    say_table(f"Scores, {intervals}s", head, rows)
    counted = sorted({one.run.counted for one in summaries})
    say(f"counted: {'; '.join(counted)}")
    if groups:
        say()
        head = ["group", "model", "of", "weights", "avg@N", *posteriors]
        rows = [
            [
                *(one.group, one.model, _tasks(one), weighting, format_score(mean.average)),
                *_posteriors(mean.posteriors, mean.intervals, scopes),
                *(
                    format_mean_sd(mean.paper.mu, mean.paper.sigma),
                    format_interval(mean.paper_interval),
                ),
            ]
            for one in groups
            for weighting, mean in one.means.items()
        ]
        say_table(f"Means over the tasks of groups, {intervals}s", head, rows)
    _show_rows(summaries)
    _show_cost(summaries)


def _average(summary: TaskSummary) -> str:
    return format_score(None if summary.average is None else summary.average.value)


def _posteriors(
    posteriors: Mapping[Scope, Posterior],
    intervals: Mapping[Any, CredibleInterval],
    scopes: Sequence[Scope],
) -> list[str]:
    """Return mean and sd in the first scope, and the intervals in all."""
    shown = posteriors[scopes[0]]
    return [
        format_mean_sd(shown.mu, shown.sigma),
        *(format_interval(intervals[scope]) for scope in scopes),
    ]


def _tasks(group: GroupSummary) -> str:
    return f"{plural(len(group.tasks), 'task')}, {plural(group.n_questions, 'question')}"


def _show_rows(summaries: Sequence[TaskSummary]) -> None:
    """Show the pass family: a line for every quantity, a column for every k."""
    lines: list[tuple[str, str, str, dict[int, float]]] = []
    for one in summaries:
        quantities: dict[str, dict[int, float]] = {}
        for name, value in one.rows.items():
            quantity, k = _quantity(name)
            quantities.setdefault(quantity, {})[k] = value
        lines += [(one.run.task, one.run.model, name, row) for name, row in quantities.items()]
    if not lines:
        return
    ks = sorted({k for *_, row in lines for k in row})
    say()
    say_table(
        "The pass family, estimates from the trials at hand",
        ["task", "model", "", *(f"k={k}" for k in ks)],
        [
            [task, model, name, *(format_score(row.get(k)) for k in ks)]
            for task, model, name, row in lines
        ],
    )


def _quantity(row: str) -> tuple[str, int]:
    """Split a row's name into the quantity and its k.

    Examples
    --------
    >>> _quantity("pass@8"), _quantity("g-pass@16_0.5"), _quantity("pass^2")
    (('pass@k', 8), ('g-pass@k_0.5', 16), ('pass^k', 2))
    """
    name, sign, rest = row.partition("^" if "^" in row else "@")
    k, under, tau = rest.partition("_")
    return f"{name}{sign}k{under}{tau}", int(k)


def _show_cost(summaries: Sequence[TaskSummary]) -> None:
    known = [one for one in summaries if one.tokens is not None or one.seconds is not None]
    if not known:
        say("tokens and time were not recorded")
        return
    say()
    rows = []
    for one in summaries:
        each = None if one.tokens is None else one.tokens / max(one.run.n_trials, 1)
        cells = [
            f"{one.run.n_trials:,}",
            format_large(one.tokens),
            format_large(each),
            format_duration(one.seconds),
        ]
        rows.append([one.run.task, one.run.model, *cells])
    head = ["task", "model", "trials", "tokens", "tokens a trial", "the model's time"]
    say_table("Cost", head, rows)
