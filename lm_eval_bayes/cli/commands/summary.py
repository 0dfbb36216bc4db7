"""`lm-eval-bayes summary`: scores, intervals, Pass@k and cost of saved runs."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Annotated

import typer

from lm_eval_bayes._util.text import (
    NO_VALUE,
    format_duration,
    format_integer,
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
from lm_eval_bayes.cli.ui.options import (
    IntervalOptions,
    Json,
    option,
    parse_integers,
    prints_tables,
)
from lm_eval_bayes.cli.ui.output import (
    say,
    say_json,
    say_prose,
    say_protocols,
    say_records,
    say_table,
    warn_notes,
)
from lm_eval_bayes.cli.ui.prior import PriorOptions, say_effects
from lm_eval_bayes.cli.ui.reading import ReadingOptions, Runs
from lm_eval_bayes.errors import InvalidInputError

if TYPE_CHECKING:
    from lm_eval_bayes.analysis.summary import GroupSummary, ScorePosteriors, TaskSummary
    from lm_eval_bayes.runs.task_run import TaskRun
    from lm_eval_bayes.stats import IntervalSpec, Scope

#: Columns of scores that may be left out, the least important first.
_OPTIONAL = ("its interval", "bayes@N, uniform prior", "clusters", "avg@N", "questions")


@prints_tables
def command(
    runs: Runs,
    *,
    k: Annotated[
        str | None,
        option(
            "K,K,...",
            "The k of Pass@k and its family, each at most N. By default powers of two up to "
            "N, and those of the run's own settings.",
        ),
    ] = None,
    by: Annotated[
        str | None,
        option("COLUMN", "Show the score of every category of questions, a column of tables."),
    ] = None,
    estimates: Annotated[
        bool,
        typer.Option(
            "--estimates",
            help="Show the usual estimates of Pass@k and its family from the saved trials too.",
        ),
    ] = False,
    priors: PriorOptions,
    reading: ReadingOptions,
    intervals: IntervalOptions,
    as_json: Json = False,
) -> None:
    """Show scores, intervals, Pass@k and cost, task by task.

    hbayes@N is the score under a prior that is learned across the questions; report its
    interval. It has two scopes: the benchmark's questions, and the population of questions that
    they are a sample of. bayes@N has the paper's uniform prior, which pulls every question's
    estimate towards the middle. avg@N is the mean of the trials.

    A group of tasks, and all tasks together, have two means: by size, where every question has the
    same weight, and equal, where every task has. For hbayes@N the tasks share the kinds of
    questions: a prior for each task by itself pulls every mean a little, and the pulls add up over
    tasks. For bayes@N the tasks are independent, so the sd of a mean is sqrt(sum of
    (weight x sd)^2). Standard errors are never averaged.

    With --prior the posteriors also use the trials of an earlier run of the same questions; a
    table shows hbayes@N with and without them. Estimates such as avg@N and Pass@k do not use them.

    \b
    Examples:
      lm-eval-bayes summary results/
      lm-eval-bayes summary runs/qwen runs/phi --task aime25_bayes --k 1,10,50 --json
    """
    from lm_eval_bayes.analysis.summary import all_groups, summarise, summarise_groups
    from lm_eval_bayes.stats import SCOPES

    ks = None if k is None else parse_integers("--k", k)
    spec = intervals.spec()
    priors.strength()
    if by is not None:
        columns = filter(None, [reading.given.get("columns"), f"category={by}"])
        reading = ReadingOptions(**{**reading.given, "columns": ",".join(columns)})
    saved = reading.read(runs)
    if by is not None and not any(run.categories for run in saved.runs):
        rule = "be a column of a table of trials that puts questions into categories"
        raise InvalidInputError.of("--by", "missing", rule, by)
    informed = priors.apply(saved.runs, reading, seed=spec.seed)
    with named_as_options("k"):
        summaries = [summarise(run, spec, ks=ks) for run in informed.runs]
    effects = informed.effects(spec)
    group_summaries = summarise_groups(summaries, all_groups(saved))
    if as_json:
        say_json(
            {
                "level": spec.level,
                "interval": spec.method,
                "seed": spec.seed,
                "tasks": summaries,
                "groups": group_summaries,
                "priors": effects,
                "warnings": saved.warnings,
            }
        )
        return
    scopes = SCOPES if intervals.scope is None else (intervals.scope,)
    _show(summaries, group_summaries, scopes, spec)
    _show_pass_family(summaries, estimates)
    _show_categories(summaries, scopes, spec, by is not None)
    _show_cost(summaries)
    say_effects(effects, spec)
    warn_notes(
        (summary.run.task, [summary.run.model], note)
        for summary in summaries
        for note in summary.posterior_notes
    )


# -- tables --------------------------------------------------------------------------------------


def _show(
    summaries: Sequence[TaskSummary],
    groups: Sequence[GroupSummary],
    scopes: Sequence[Scope],
    spec: IntervalSpec,
) -> None:
    posteriors = ["hbayes@N", *map(scope_label, scopes), "bayes@N, uniform prior", "its interval"]
    intervals = interval_label(spec.level, spec.method)
    clustered = any(summary.n_clusters is not None for summary in summaries)
    sizes = ["questions", "clusters"] if clustered else ["questions"]
    head = ["task", "model", *sizes, "N", "avg@N", *posteriors]
    rows = [
        [
            summary.run.task,
            summary.run.model,
            f"{summary.run.n_questions:,}",
            *([format_integer(summary.n_clusters)] if clustered else []),
            format_range(summary.n_range),
            format_score(None if summary.average is None else summary.average.value),
            *_posterior_cells(summary, scopes),
        ]
        for summary in summaries
    ]
    say_table(f"Scores, {intervals}s", head, rows, optional=_OPTIONAL)
    counted = sorted({summary.run.counted for summary in summaries})
    say_prose(f"counted: {'; '.join(counted)}")
    say_protocols(summary.run.provenance.protocol for summary in summaries)
    if clustered and "population" in scopes:
        say_prose(f"{scope_label('population')}: the questions of a cluster are taken as dependent")
    if groups:
        say()
        head = ["group", "model", "size", "weights", "avg@N", *posteriors]
        rows = [
            [
                group.group,
                group.model,
                f"{plural(len(group.tasks), 'task')}, {plural(group.n_questions, 'question')}",
                weighting,
                format_score(mean.average),
                *_posterior_cells(mean, scopes),
            ]
            for group in groups
            for weighting, mean in group.means.items()
        ]
        title = f"Means over the tasks of groups, {intervals}s"
        say_table(title, head, rows, optional=("size", *_OPTIONAL))
    for summary in summaries:
        reason = _lacking(summary)
        if reason:
            say_prose(reason)


def _posterior_cells(scores: ScorePosteriors, scopes: Sequence[Scope]) -> list[str]:
    """Return mean and sd in the first scope and the intervals in all, then those of bayes@N."""
    learned, paper = scores.learned[scopes[0]], scores.paper
    intervals = [format_interval(scores.intervals[scope]) for scope in scopes]
    cells = [format_mean_sd(learned.mu, learned.sigma), *intervals]
    if paper is None:  # scores have none
        return [*cells, NO_VALUE, NO_VALUE]
    mean_sd = format_mean_sd(paper.mu, paper.sigma)
    return [*cells, mean_sd, format_interval(scores.intervals["paper"])]


def _show_categories(
    summaries: Sequence[TaskSummary],
    scopes: Sequence[Scope],
    spec: IntervalSpec,
    by_category: bool,
) -> None:
    """Show a line for every run and category of questions, or how many there are."""
    counts = [len(set(summary.run.categories or ()) - {None}) for summary in summaries]
    if not any(counts):
        return
    say()
    if not by_category:
        say_prose(f"{plural(max(counts), 'category', 'categories')}: --by shows their scores")
        return
    # the order of the first model of a task, so that the same lines stand side by side
    labels = [(s.run.task, category) for s in summaries for category in s.run.categories or ()]
    order = {label: i for i, label in enumerate(dict.fromkeys(labels))}
    lines = [
        (summary, score)
        for summary in summaries
        for score in sorted(
            summary.category_scores, key=lambda score: order[summary.run.task, score.category]
        )
    ]
    posteriors = ["hbayes@N", *map(scope_label, scopes), "bayes@N, uniform prior", "its interval"]
    head = ["task", "model", "category", "questions", "trials", "avg@N", *posteriors]
    rows = [
        [
            summary.run.task,
            summary.run.model,
            score.category,
            f"{score.n_questions:,}",
            f"{score.n_trials:,}",
            format_score(score.average),
            *_posterior_cells(score, scopes),
        ]
        for summary, score in lines
    ]
    title = f"Scores of categories of questions, {interval_label(spec.level, spec.method)}s"
    say_table(title, head, rows, optional=("trials", *_OPTIONAL))
    for summary, n_shown in zip(summaries, counts, strict=True):
        n_without = (summary.run.categories or ()).count(None)
        if n_shown and n_without:
            run, questions = summary.run, plural(n_without, "question")
            say_prose(f"{run.task}, {run.model}: {questions} without a category in none of these")
    warn_notes(
        (f"category {score.category} of {summary.run.task}", [summary.run.model], note)
        for summary, score in lines
        for note in score.notes
    )


def _show_pass_family(summaries: Sequence[TaskSummary], estimates: bool) -> None:
    """Show a line for every member of the pass family, and a column for every k."""
    family = {
        (summary.run.task, summary.run.model): {
            name.removeprefix("h"): format_mean_sd(posterior.mu, posterior.sigma)
            for name, posterior in summary.family.items()
        }
        for summary in summaries
    }
    _show_rows("Pass@k family of new trials, posterior mean ± sd", "h", family)
    if estimates:
        family = {
            (summary.run.task, summary.run.model): {
                name: format_score(value) for name, value in summary.rows.items()
            }
            for summary in summaries
        }
        _show_rows("Pass@k family, estimates from the saved trials", "", family)
    for run in (summary.run for summary in summaries if summary.rows and summary.run.scored):
        say_prose(f"{run.task}, {run.model}: a trial passes from a score of {run.threshold:g} on")


def _show_rows(
    title: str, prefix: str, family: Mapping[tuple[str, str], Mapping[str, str]]
) -> None:
    """Show cells by task and model and by the name of their row; `prefix` is that of the names."""
    lines: dict[tuple[str, str, str], dict[int, str]] = {}
    for (task, model), cells in family.items():
        for name, cell in cells.items():
            estimator, k = _split_row_name(name)
            lines.setdefault((task, model, prefix + estimator), {})[k] = cell
    if not lines:
        return
    for (task, model, estimator), line in lines.items():
        if estimator.endswith("pass^k"):  # as tools of agents report it; both are the mean score
            line[1] = lines[task, model, f"{prefix}pass@k"].get(1, format_score(None))
    ks = sorted({k for values in lines.values() for k in values})
    rows = [
        [*names, *(values.get(k, format_score(None)) for k in ks)]
        for names, values in lines.items()
    ]
    say()
    head = ["task", "model", "", *(f"k={k}" for k in ks)]
    # those between the first and the last, powers of two last
    middle = sorted(ks[1:-1], key=lambda k: k.bit_count() == 1)
    say_table(title, head, rows, optional=[f"k={k}" for k in middle])


def _lacking(summary: TaskSummary) -> str:
    """Return why there is no avg@N and no pass family; "" where there are, or cannot be."""
    run = summary.run
    n_without = int((run.outcomes.n_trials == 0).sum())
    if not n_without:
        return ""
    missing = "avg@N" if run.right_or_wrong is None else "avg@N and no Pass@k family"
    have = "has" if n_without == 1 else "have"
    return (
        f"{run.task}, {run.model}: no {missing}, because {n_without:,} of "
        f"{plural(run.n_questions, 'question')} {have} no trial that counts"
    )


def _split_row_name(row: str) -> tuple[str, int]:
    """Split a row's name into the estimator and its k.

    Examples
    --------
    >>> _split_row_name("pass@8"), _split_row_name("g-pass@16_0.5"), _split_row_name("pass^2")
    (('pass@k', 8), ('g-pass@k_0.5', 16), ('pass^k', 2))
    """
    name, sign, rest = row.partition("^" if "^" in row else "@")
    k, underscore, tau = rest.partition("_")
    return f"{name}{sign}k{underscore}{tau}", int(k)


def _show_cost(summaries: Sequence[TaskSummary]) -> None:
    measured = [(s.run.tokens, s.run.busy_seconds, s.run.cost) for s in summaries]
    if all(amounts == (None, None, None) for amounts in measured):
        partly = [reason for summary in summaries for reason in _partly_recorded(summary.run)]
        for line in partly or ["tokens and time were not recorded"]:
            say_prose(line)
        return
    say()
    costs: dict[str, Callable[[TaskSummary], str]] = {}
    if any(cost is not None for _, _, cost in measured):
        costs["cost, as logged"] = lambda summary: format_large(summary.run.cost)
    say_records(
        "Cost",
        summaries,
        {
            "task": lambda summary: summary.run.task,
            "model": lambda summary: summary.run.model,
            "trials": lambda summary: f"{summary.run.n_trials:,}",
            "tokens": lambda summary: format_large(summary.run.tokens),
            "tokens per trial": lambda summary: format_large(
                None
                if summary.run.tokens is None
                else summary.run.tokens / max(summary.run.n_trials, 1)
            ),
            "model time": lambda summary: format_duration(summary.run.busy_seconds),
            **costs,
        },
        optional=("trials",),
    )
    for summary in summaries:
        for line in _partly_recorded(summary.run):
            say_prose(line)


def _partly_recorded(run: TaskRun) -> Iterator[str]:
    """Yield what was recorded of some trials only, so that there is no total."""
    from lm_eval_bayes.runs.task_run import COST, MOST_OF_TRIAL, SECONDS, TOKENS

    for name, words, total in (
        (TOKENS, "tokens", run.tokens),
        (SECONDS, "model time", run.busy_seconds),
        (COST, "cost", run.cost),
    ):
        if total is not None:
            continue
        n = sum(int((column <= MOST_OF_TRIAL).sum()) for column in run.measured.get(name, ()))
        if n:
            yield (
                f"{run.task}, {run.model}: no {words}, recorded of {n:,} of "
                f"{plural(run.n_trials, 'trial')}"
            )
