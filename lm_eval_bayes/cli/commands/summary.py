"""`lm-eval-bayes summary`: scores, intervals, Pass@k and cost of saved runs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Annotated

import typer

from lm_eval_bayes._util.text import first_names, format_score
from lm_eval_bayes.cli.ui.options import (
    IntervalOptions,
    Json,
    option,
    parse_integers,
    prints_tables,
)
from lm_eval_bayes.cli.ui.output import (
    say,
    say_each,
    say_json,
    warn_notes,
)
from lm_eval_bayes.cli.ui.prior import PriorOptions, say_effects
from lm_eval_bayes.cli.ui.reading import ReadingOptions, Runs
from lm_eval_bayes.errors import InvalidInputError

if TYPE_CHECKING:
    from lm_eval_bayes.analysis.board import Board
    from lm_eval_bayes.analysis.summary import GroupSummary, TaskSummary
    from lm_eval_bayes.cli.screens.layout import Column, Form
    from lm_eval_bayes.stats import IntervalSpec


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
            help="Show the usual estimates from the saved trials too: avg@N, Pass@k, …, and "
            "bayes@N, under the paper's uniform prior.",
        ),
    ] = False,
    priors: PriorOptions,
    reading: ReadingOptions,
    intervals: IntervalOptions,
    as_json: Json = False,
) -> None:
    """Show scores, intervals, Pass@k and cost.

    A score is the posterior mean of hbayes@N, whose prior is learned across the questions. Thick
    bars are about these questions, thin ones about other questions of the kind. Several models are
    sorted by their scores, and the sentence says who is distinguishable from the first.

    Several runs of a model are its settings: a second table has the score in settings like these.

    With several tasks a model has the mean over tasks, in which every task counts the same.
    --verbose shows every run, and means in which every question counts the same.

    \b
    Examples:
      lm-eval-bayes summary results/
      lm-eval-bayes summary runs/qwen runs/phi --task aime25_bayes --k 1,10,50 --json
    """
    from lm_eval_bayes.analysis.summary import all_groups, summarise, summarise_groups
    from lm_eval_bayes.cli.screens.layout import Form, say_counted, say_next
    from lm_eval_bayes.cli.screens.one_run import show_run

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
    summaries = [summarise(run, spec, ks=ks) for run in informed.runs]
    effects = informed.effects(spec)
    groups = summarise_groups(summaries, all_groups(saved))
    if as_json:
        say_json(
            {
                "level": spec.level,
                "interval": spec.method,
                "seed": spec.seed,
                "tasks": summaries,
                "groups": groups,
                "priors": effects,
                "warnings": saved.warnings,
            }
        )
        return
    form = Form.of_output()
    words = [*map(str, runs), *reading.words()]
    _show(summaries, groups, spec, form, estimates, ks or [])
    if form.verbose and len(summaries) > 1:
        say()
        say_each(summaries, lambda summary: show_run(summary, form, estimates))
    elif len(summaries) > 1 and (n := sum(bool(summary.run.settings) for summary in summaries)):
        say(f"{n} of {len(summaries)} runs have several settings (--verbose)")
    if by is not None:
        _show_categories(summaries, form)
    say_effects(effects, spec)
    protocols = (summary.run.provenance.protocol for summary in summaries)
    say_counted((summary.run.counted for summary in summaries), protocols, form)
    warn_notes(
        (summary.run.task, [summary.run.model], note)
        for summary in summaries
        for note in summary.posterior_notes
    )
    several = len({summary.run.model for summary in summaries}) > 1
    say_next(["lm-eval-bayes", "rank" if several else "plan", *words])


def _show(
    summaries: Sequence[TaskSummary],
    groups: Sequence[GroupSummary],
    spec: IntervalSpec,
    form: Form,
    estimates: bool,
    ks: Sequence[int],
) -> None:
    """Show one run, the tasks of one model, or the models of one task or of a mean of tasks."""
    from lm_eval_bayes.analysis.board import mean_of_common
    from lm_eval_bayes.cli.screens.boards import show_scores
    from lm_eval_bayes.cli.screens.one_run import show_run, show_tasks

    by_task: dict[str, dict[str, TaskSummary]] = {}
    for summary in summaries:
        by_task.setdefault(summary.run.task, {})[summary.run.model] = summary
    models = {summary.run.model for summary in summaries}
    if len(summaries) == 1:
        show_run(summaries[0], form, estimates)
        return
    if len(models) == 1:
        show_tasks(summaries, groups, form)
        return
    boards = [board for board in (_board(of, spec, form) for of in by_task.values()) if board]
    overall, left_out = mean_of_common(boards, models, groups)
    if overall is None:
        say_each(
            boards,
            lambda board: show_scores(board, form, _chances(by_task[board.title], board, ks)),
            lambda board: board.title,
        )
        return
    show_scores(overall, form)
    if left_out:
        say(f"left out of the mean: {first_names(left_out)}, which not every model has")


def _board(of_task: Mapping[str, TaskSummary], spec: IntervalSpec, form: Form) -> Board | None:
    """Return the board of a task; None, with a word, where its models cannot be compared."""
    from lm_eval_bayes.analysis.board import task_board
    from lm_eval_bayes.cli.screens.layout import say_sentence
    from lm_eval_bayes.cli.screens.one_run import show_unsorted
    from lm_eval_bayes.stats import SCOPES

    posteriors = {
        scope: {model: summary.learned[scope] for model, summary in of_task.items()}
        for scope in SCOPES
    }
    try:
        return task_board([s.run for s in of_task.values()], spec, posteriors=posteriors)
    except InvalidInputError as error:
        say_sentence(f"Not compared, and not sorted: {error}", form)
        show_unsorted(list(of_task.values()), form)
        say()
        return None


def _chances(of_task: Mapping[str, TaskSummary], board: Board, ks: Sequence[int]) -> list[Column]:
    """Return columns of the posterior means of Pass@k that were asked for."""
    from lm_eval_bayes.cli.screens.layout import Column

    families = [of_task[model].family for model in board.models]
    return [
        Column(name, [format_score(family[name].mu) for family in families])
        for name in (f"hpass@{k}" for k in ks)
        if all(name in family for family in families)
    ]


def _show_categories(summaries: Sequence[TaskSummary], form: Form) -> None:
    """Show a row for every category of questions of every run."""
    from lm_eval_bayes.cli.screens.one_run import show_categories

    with_categories = [summary for summary in summaries if summary.category_scores]
    for summary in with_categories:
        say()
        show_categories(summary, form)
        warn_notes(
            (f"category {score.category} of {summary.run.task}", [summary.run.model], note)
            for score in summary.category_scores
            for note in score.notes
        )
