"""`lm-eval-bayes rubric`: saved runs under rubrics, with other weights if you like."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from enum import Enum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Optional

import typer

from lm_eval_bayes._util.text import one_line, plural
from lm_eval_bayes.cli.commands.rubric_tables import show_table
from lm_eval_bayes.cli.ui.output import say, say_json, warn
from lm_eval_bayes.cli.ui.reading import (
    Dedupe,
    IntervalKind,
    Json,
    Level,
    Scope,
    ScopeOption,
    Seed,
    check_level_and_seed,
    read,
)
from lm_eval_bayes.errors import InvalidInputError

if TYPE_CHECKING:
    from lm_eval_bayes.analysis.rubric_runs import ClassifiedRuns
    from lm_eval_bayes.analysis.rubric_table import RubricTable
    from lm_eval_bayes.rubric.schemata import Schema
    from lm_eval_bayes.rubric.thresholds import Thresholds
    from lm_eval_bayes.runs.task_run import TaskRun


class Prior(str, Enum):
    """What a question's categories are thought to be before its trials."""

    hbayes = "hbayes"
    bayes = "bayes"


def command(
    runs: Annotated[
        list[Path],
        typer.Argument(
            metavar="RUN",
            help="Output folders of runs with logged samples, samples_*.jsonl files, or trial "
            "stores.",
            show_default=False,
        ),
    ],
    schema: Annotated[
        Optional[list[str]],  # noqa: UP045  typer reads this on Python 3.10 too
        typer.Option(
            metavar="NAME|FILE",
            help="Only this schema, or the rubric of this YAML file; may be given again. By "
            "default all whose signals all models have.",
        ),
    ] = None,
    weights: Annotated[
        Optional[list[str]],  # noqa: UP045
        typer.Option(
            metavar="SCHEMA=W,W,...",
            help="Other weights, one a category, as in format_aware=0,0,1/3,2/3,1; may be given "
            "again.",
        ),
    ] = None,
    thresholds: Annotated[
        Optional[Path],  # noqa: UP045
        typer.Option(
            metavar="FILE",
            help="Frozen thresholds; by default they are taken over all the runs, task by task.",
        ),
    ] = None,
    freeze: Annotated[
        Optional[Path],  # noqa: UP045
        typer.Option(metavar="FILE", help="Write the thresholds to a new file, for --thresholds."),
    ] = None,
    task: Annotated[
        Optional[str],  # noqa: UP045
        typer.Option(metavar="NAME", help="Only this task."),
    ] = None,
    dedupe: Dedupe = False,
    prior: Annotated[
        Prior,
        typer.Option(
            help="hbayes: learned across the questions. bayes: uniform, which counts one imagined "
            "trial a category and question."
        ),
    ] = Prior.hbayes,
    interval: Annotated[
        IntervalKind,
        typer.Option(
            help="How the credible intervals are made, which are shown where there is room for "
            "them. exact and hdi take longer."
        ),
    ] = IntervalKind.beta,
    level: Level = 0.95,
    scope: ScopeOption = Scope.benchmark,
    seed: Seed = 0,
    ignore_verdicts: Annotated[
        bool,
        typer.Option("--ignore-verdicts", help="Leave a verifier's verdicts aside in all runs."),
    ] = False,
    plot: Annotated[
        Optional[Path],  # noqa: UP045
        typer.Option(metavar="FILE", help="Draw the ranks across schemata, as .svg or .png."),
    ] = None,
    as_json: Json = False,
) -> None:
    """Score saved runs under rubrics, and rank their models.

    Prints mean and sd of the posterior and the rank, model by model. Nothing is sampled again:
    categories come from what the runs logged, so weights and thresholds can change at any time.
    Ranks are those of models that answered the same questions; a model shares a
    rank where it differs by less than one-sided 95% from the best model of that rank.

    A trial is invalid if its generation did not come to a stop, or if a verifier has judged it
    (lm-eval-bayes verify) and gives C, invalid, one half or more. So either all compared runs
    have the verdicts of one verifier, or none, or they are left aside with --ignore-verdicts.

    Thresholds taken over the given runs change with every run that is added. To compare with
    results of another day, --freeze them once and give the file as --thresholds from then on.

    \b
    Examples:
      lm-eval-bayes rubric runs/qwen runs/phi --freeze aime25.json --plot ranks.svg
      lm-eval-bayes rubric runs/* --schema format_aware --weights format_aware=0,0,.2,.5,1
    """
    check_level_and_seed(level, seed)
    if scope is Scope.population and prior is Prior.bayes:
        rule = "be benchmark with --prior bayes, which learns nothing of other questions"
        raise InvalidInputError.of("--scope", rule, scope.value)
    if freeze is not None:
        from lm_eval_bayes._util.files import check_writable

        check_writable(freeze, "--freeze")
        if freeze.exists() and not freeze.is_file():
            raise InvalidInputError.of("--freeze", "be a regular file", str(freeze))
    if thresholds is not None and freeze is not None:
        rule = "be left out where --thresholds gives frozen ones"
        raise InvalidInputError.of("--freeze", rule, str(freeze))
    frozen = None if thresholds is None else _read(thresholds)
    if plot is not None:
        from lm_eval_bayes.report.plots.drawing import check_figure_path

        check_figure_path(plot, "--plot")
        if freeze is not None and os.path.realpath(plot) == os.path.realpath(freeze):
            raise InvalidInputError.of("--plot", "be another file than --freeze", str(plot))
    saved = read(runs, task=task, dedupe=dedupe, signals="all", verdicts=not ignore_verdicts)
    own = {found.name: found for run in saved.runs for found in run.custom_rubrics}
    chosen, given = _asked(schema or (), weights or (), own)
    by_task = {name: saved.of_task(name) for name in saved.tasks}
    if plot is not None and len(by_task) > 1:
        rule = f"be of one task; choose one with --task ({', '.join(by_task)})"
        raise InvalidInputError.of("--plot", rule, plot.name)
    found = [_classified(models, frozen, chosen, given) for models in by_task.values()]
    if freeze is not None:
        _freeze(freeze, [run for models in by_task.values() for run in models])

    from lm_eval_bayes.analysis.rubric_table import rubric_table

    tables = []
    for one in found:
        mine = {name: values for name, values in given.items() if name in one.scores}
        tables.append(
            rubric_table(one, mine, prior.value, interval.value, level, scope.value, seed=seed)
        )
    origin = None if thresholds is None else thresholds.name
    if as_json:
        done = {"thresholds_file": origin, "verdicts_ignored": ignore_verdicts}
        say_json({**done, "tasks": [table.to_dict() for table in tables]})
    else:
        for number, table in enumerate(tables):
            if number:
                say()
            show_table(table, origin, given)
        for table in tables:
            for warning in table.warnings:
                warn(f"warning: {warning}")
    if plot is not None:
        _draw(plot, tables[0])


# -- what was asked for --------------------------------------------------------------------------


def _asked(
    names: Sequence[str], weights: Sequence[str], own: Mapping[str, Schema]
) -> tuple[dict[str, Schema] | None, dict[str, tuple[float, ...]]]:
    """Return the schemata that were named, None for all, and the weights by schema."""
    chosen = {found.name: found for found in (_schema(name, own) for name in names)} or None
    given: dict[str, tuple[float, ...]] = {}
    for text in weights:
        name, equals, values = text.partition("=")
        name = name.strip()
        if not equals:
            rule = "name the schema, as in exact_match=0,0,1"
            raise InvalidInputError.of("--weights", rule, text)
        if name in given:
            raise InvalidInputError.of("--weights", "give a schema's weights once", text)
        if chosen is not None and name not in chosen:
            rule = f"be of a schema that --schema names ({', '.join(chosen)})"
            raise InvalidInputError.of("--weights", rule, name)
        given[name] = tuple(_weight(part, text) for part in values.split(","))
        asked = _schema(name, own) if chosen is None else chosen[name]
        if len(set(asked.with_weights(given[name]).weights)) == 1:
            raise InvalidInputError.of("--weights", "tell the categories apart", text)
    return chosen, given


def _schema(name: str, own: Mapping[str, Schema]) -> Schema:
    """Return one of the twelve, a rubric that a run's task had, or that of a YAML file."""
    from lm_eval_bayes.rubric.schemata import schema_named

    if name in own:
        return own[name]
    if not name.endswith((".yaml", ".yml")):
        return schema_named(name)
    from lm_eval_bayes.harness.rubrics.custom_rubric import custom_rubrics

    (found,) = custom_rubrics(name, Path())
    return found.schema


def _weight(part: str, text: str) -> float:
    """Read `0.5` or `1/3`."""
    above, slash, below = part.partition("/")
    try:
        return float(above) / (float(below) if slash else 1.0)
    except (ValueError, ZeroDivisionError):
        rule = "be numbers or fractions with commas between them, as in exact_match=0,0,1"
        raise InvalidInputError.of("--weights", rule, text) from None


def _read(path: Path) -> Thresholds:
    from lm_eval_bayes.rubric.thresholds import Thresholds

    if path.exists() and not path.is_file():
        raise InvalidInputError.of("--thresholds", "be a regular file", str(path))
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, ValueError) as error:
        told = error.strerror if isinstance(error, OSError) else "it is no text"
        rule = f"be a file that can be read; {path}: {told}"
        raise InvalidInputError.of("--thresholds", rule, path.name) from None
    return Thresholds.from_json(text, path.name)


def _classified(
    models: Sequence[TaskRun],
    frozen: Thresholds | None,
    chosen: dict[str, Schema] | None,
    given: dict[str, tuple[float, ...]],
) -> ClassifiedRuns:
    from lm_eval_bayes.analysis.rubric_runs import classify_runs, pooled_thresholds

    found = classify_runs(
        models,
        pooled_thresholds(models) if frozen is None else frozen,
        None if chosen is None else chosen.values(),
        needed=[*(chosen or ()), *given],
    )
    if not found.scores:
        lacking = "; ".join(map(str, found.left_out))
        rule = f"give a schema its signals in every run of {found.task}: {lacking}"
        raise InvalidInputError.of("RUN", rule, ", ".join(found.models))
    return found


def _freeze(path: Path, runs: Sequence[TaskRun]) -> None:
    """Write the thresholds to a new file; one that holds the same already is left as it is."""
    from lm_eval_bayes._util.files import write_atomic
    from lm_eval_bayes.analysis.rubric_runs import pooled_thresholds

    pooled = pooled_thresholds(runs)
    if not _holds(path, pooled):
        try:
            new = write_atomic(path, pooled.to_json().encode(), replace=False)
        except OSError as error:
            rule = f"be a file that can be written; {path}: {error.strerror}"
            raise InvalidInputError.of("--freeze", rule, path.name) from None
        if not new:
            rule = "be a new file; somebody else made one of this name"
            raise InvalidInputError.of("--freeze", rule, path.name)
    tasks = plural(len(pooled.tasks), "task")
    warn(f"the thresholds of {tasks} are in {path}; the hash of them all is {pooled.hash}")


def _holds(path: Path, pooled: Thresholds) -> bool:
    """Return whether a file holds these thresholds, taken over these runs.

    Raises
    ------
    InvalidInputError
        If it holds anything else, which is never written over.
    """
    from lm_eval_bayes.rubric.thresholds import Thresholds

    if not os.path.lexists(path):
        return False
    try:
        there = Thresholds.from_json(path.read_text(encoding="utf-8"), path.name)
        if (there.hash, there.runs) == (pooled.hash, pooled.runs):
            return True
        told = f"{there.hash} of {there.date}, over {', '.join(there.runs)}"
    except (OSError, ValueError):
        told = "something else"
    rule = f"be a new file, or hold these thresholds already ({pooled.hash}); it holds {told}"
    raise InvalidInputError.of("--freeze", rule, path.name)


def _draw(path: Path, table: RubricTable) -> None:
    from lm_eval_bayes.report.plots.rank_trajectories import draw_rank_trajectories

    found = table.classified
    draw_rank_trajectories(
        path,
        [row.schema.name for row in table.rows],
        [one_line(model) for model in found.models],
        table.ranks,
        table.mu,
        f"{one_line(found.task)}: rank under each rubric",
    )
    warn(f"the picture is {path}")
