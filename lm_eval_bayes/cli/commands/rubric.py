"""`lm-eval-bayes study rubric`: scores and ranks of saved runs under rubrics."""

from __future__ import annotations

import os
import shutil
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from lm_eval_bayes._util.text import (
    format_interval,
    format_mean_sd,
    interval_label,
    one_line,
    plural,
    scope_label,
)
from lm_eval_bayes.cli.ui.options import (
    MORE,
    IntervalOptions,
    Json,
    option,
    prints_tables,
)
from lm_eval_bayes.cli.ui.output import say, say_json, say_table, sentence_name, warn
from lm_eval_bayes.cli.ui.reading import TaskOptions
from lm_eval_bayes.errors import InvalidInputError, Rule

if TYPE_CHECKING:
    from lm_eval_bayes.analysis.rubric_classes import ClassifiedRuns
    from lm_eval_bayes.analysis.rubric_table import ModelScore, RubricTable
    from lm_eval_bayes.rubric.schemata import Schema
    from lm_eval_bayes.rubric.thresholds import Thresholds
    from lm_eval_bayes.runs.task_run import TaskRun

#: Up to so many runs are named in the line on thresholds; --json names all.
_NAMED_RUNS = 4


@prints_tables
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
    *,
    schema: Annotated[
        list[str] | None,
        option(
            "NAME|FILE",
            "Only this schema, or the rubric of this YAML file; can be repeated. By default "
            "all schemata whose signals all models have.",
        ),
    ] = None,
    weights: Annotated[
        list[str] | None,
        option(
            "SCHEMA=W,W,...",
            "Other weights, one per category, as in format_aware=0,0,1/3,2/3,1; can be repeated.",
        ),
    ] = None,
    thresholds: Annotated[
        Path | None,
        option(
            "FILE",
            "Frozen thresholds. By default they are pooled over all runs, task by task; those of "
            "a single run are its own.",
        ),
    ] = None,
    freeze: Annotated[
        Path | None, option("FILE", "Write the thresholds to a new file, for --thresholds.")
    ] = None,
    ignore_verdicts: Annotated[
        bool,
        typer.Option(
            "--ignore-verdicts", rich_help_panel=MORE, help="Do not use the verdicts of a verifier."
        ),
    ] = False,
    reading: TaskOptions,
    intervals: IntervalOptions,
    as_json: Json = False,
) -> None:
    """Score saved runs under rubrics, and rank their models.

    Shows mean and sd of the posterior and the rank of every model. Nothing is sampled again:
    categories follow from the logged signals, so weights and thresholds can be changed at any
    time. Models are ranked on the same questions, under every schema as by rank: all pairs are
    compared at once, so that with 95% confidence no pair is separated the wrong way.

    A trial is invalid if its generation did not end at a stop, or if a verifier has judged it
    (`study verify`) with a probability of C, invalid, of at least one half. All runs must
    have verdicts of the same verifier, or none; --ignore-verdicts ignores them.

    Pooled thresholds change with every run that is added. To compare with later results, write
    them with --freeze once and pass the file as --thresholds from then on.

    \b
    Examples:
      lm-eval-bayes study rubric runs/qwen runs/phi --freeze aime25.json
      lm-eval-bayes study rubric runs/* --schema format_aware --weights format_aware=0,0,.2,.5,1
    """
    spec = intervals.spec()
    _check_files(thresholds, freeze)
    frozen = None if thresholds is None else _read_thresholds(thresholds)
    saved = reading.read(runs, signals="all", verdicts=not ignore_verdicts)
    custom_rubrics = {rubric.name: rubric for run in saved.runs for rubric in run.custom_rubrics}
    schemata, schema_weights = _parse_schemata(schema or (), weights or (), custom_rubrics)
    by_task = {name: saved.of_task(name) for name in saved.tasks}
    classified_runs = [
        _classify(of_task, frozen, schemata, schema_weights) for of_task in by_task.values()
    ]
    if freeze is not None:
        _freeze(freeze, [run for of_task in by_task.values() for run in of_task])

    from lm_eval_bayes.analysis.rubric_table import rubric_table

    tables = [
        rubric_table(
            classified,
            {name: w for name, w in schema_weights.items() if name in classified.scores},
            spec.level,
            spec.scope,
            seed=spec.seed,
        )
        for classified in classified_runs
    ]
    thresholds_file = None if thresholds is None else thresholds.name
    if as_json:
        say_json(
            {
                "thresholds_file": thresholds_file,
                "verdicts_ignored": ignore_verdicts,
                "tasks": [table.to_dict() for table in tables],
            }
        )
    else:
        for number, table in enumerate(tables):
            if number:
                say()
            _show(table, thresholds_file, schema_weights)
        for table in tables:
            for warning in table.warnings:
                warn(f"warning: {warning}")


# -- schemata and weights ------------------------------------------------------------------------


def _parse_schemata(
    names: Sequence[str], weights: Sequence[str], custom_rubrics: Mapping[str, Schema]
) -> tuple[dict[str, Schema] | None, dict[str, tuple[float, ...]]]:
    """Return the selected schemata, None for all, and the given weights by schema."""
    selected = [_schema(name, custom_rubrics) for name in names]
    schemata = {schema.name: schema for schema in selected} or None
    by_schema: dict[str, tuple[float, ...]] = {}
    for text in weights:
        name, equals, values = text.partition("=")
        name = name.strip()
        if not equals:
            rule = "name the schema, as in exact_match=0,0,1"
            raise InvalidInputError.of("--weights", "missing", rule, text)
        if name in by_schema:
            raise InvalidInputError.of("--weights", "duplicate", "be given once per schema", text)
        if schemata is not None and name not in schemata:
            rule = f"be of a schema that --schema names ({', '.join(schemata)})"
            raise InvalidInputError.of("--weights", "choice", rule, name)
        by_schema[name] = tuple(_parse_weight(part, text) for part in values.split(","))
        schema = _schema(name, custom_rubrics) if schemata is None else schemata[name]
        if len(set(schema.with_weights(by_schema[name]).weights)) == 1:
            raise InvalidInputError.of("--weights", "duplicate", "differ between categories", text)
    return schemata, by_schema


def _schema(name: str, custom_rubrics: Mapping[str, Schema]) -> Schema:
    """Return a schema of the paper, the custom rubric of a run's task, or that of a YAML file."""
    from lm_eval_bayes.rubric.schemata import schema_named

    if name in custom_rubrics:
        return custom_rubrics[name]
    if not name.endswith((".yaml", ".yml")):
        return schema_named(name)
    from lm_eval_bayes.harness.rubrics.custom_rubric import custom_rubrics as read_rubrics

    (rubric,) = read_rubrics(name, Path())
    return rubric.schema


def _parse_weight(part: str, text: str) -> float:
    """Parse `0.5` or `1/3`."""
    numerator, slash, denominator = part.partition("/")
    try:
        return float(numerator) / (float(denominator) if slash else 1.0)
    except (ValueError, ZeroDivisionError):
        rule = "be numbers or fractions separated by commas, as in exact_match=0,0,1"
        raise InvalidInputError.of("--weights", "format", rule, text) from None


def _classify(
    runs: Sequence[TaskRun],
    frozen: Thresholds | None,
    schemata: Mapping[str, Schema] | None,
    weights: Mapping[str, tuple[float, ...]],
) -> ClassifiedRuns:
    from lm_eval_bayes.analysis.rubric_classes import classify_runs, pooled_thresholds

    classified = classify_runs(
        runs,
        pooled_thresholds(runs) if frozen is None else frozen,
        None if schemata is None else schemata.values(),
        needed=weights,
    )
    if not classified.scores:
        least = min(classified.left_out, key=lambda schema: len(schema.lacks))
        rule = (
            f"have the signals of a schema in every run of {classified.task}; of all schemata the "
            f"fewest are missing of {least}"
        )
        raise InvalidInputError.of("RUN", "missing", rule, ", ".join(classified.models))
    return classified


# -- files ---------------------------------------------------------------------------------------


def _check_files(thresholds: Path | None, freeze: Path | None) -> None:
    """Refuse wrong files before any run is read."""
    if freeze is not None:
        from lm_eval_bayes.export.files import check_targets

        check_targets([freeze], overwrite=True, argument="--freeze")
    if thresholds is not None and freeze is not None:
        rule = "be left out with --thresholds, which are frozen already"
        raise InvalidInputError.of("--freeze", "conflict", rule, str(freeze))


def _read_thresholds(path: Path) -> Thresholds:
    from lm_eval_bayes.rubric.thresholds import Thresholds

    if path.exists() and not path.is_file():
        raise InvalidInputError.of("--thresholds", "path", "be a regular file", str(path))
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is not UTF-8 text"
        requirement = f"be a file that can be read; {path}: {reason}"
        rule: Rule = "path" if isinstance(error, OSError) else "format"
        raise InvalidInputError.of("--thresholds", rule, requirement, path.name) from None
    return Thresholds.from_json(text, path.name)


def _freeze(path: Path, runs: Sequence[TaskRun]) -> None:
    """Write the thresholds to a new file; a file with the same thresholds is left as it is."""
    from lm_eval_bayes._util.files import write_atomic, write_errors
    from lm_eval_bayes.analysis.rubric_classes import pooled_thresholds

    pooled = pooled_thresholds(runs)
    if not _holds(path, pooled):
        with write_errors("--freeze"):
            written = write_atomic(path, pooled.to_json().encode(), replace=False)
        if not written:
            rule = "be a new file; another process has created it"
            raise InvalidInputError.of("--freeze", "path", rule, str(path))
    tasks = plural(len(pooled.tasks), "task")
    warn(f"thresholds of {tasks} written to {path}; their common hash is {pooled.hash}")


def _holds(path: Path, pooled: Thresholds) -> bool:
    """Return whether a file holds these thresholds, pooled over these runs.

    Raises
    ------
    InvalidInputError
        If it holds anything else, which is never replaced.
    """
    from lm_eval_bayes.rubric.thresholds import Thresholds

    if not os.path.lexists(path):
        return False
    try:
        existing = Thresholds.from_json(path.read_text(encoding="utf-8"), path.name)
        if (existing.hash, existing.runs) == (pooled.hash, pooled.runs):
            return True
        content = f"{existing.hash} of {existing.date}, over {', '.join(existing.runs)}"
    except (OSError, ValueError):
        content = "something else"
    rule = f"be a new file, or hold these thresholds already ({pooled.hash}); it holds {content}"
    raise InvalidInputError.of("--freeze", "path", rule, path.name)


# -- tables --------------------------------------------------------------------------------------


def _show(table: RubricTable, thresholds_file: str | None, weights: Collection[str]) -> None:
    classified = table.classified
    runs = classified.source.runs
    pooled_over = ", ".join(runs) if len(runs) <= _NAMED_RUNS else plural(len(runs), "run")
    frozen = "not frozen"
    if thresholds_file:
        frozen = f"frozen on {classified.source.date} in {thresholds_file}"
    questions = plural(classified.n_questions, "question")
    scope = scope_label(table.scope, table.n_clusters)
    say(f"{classified.task}: {questions}, hbayes@N for {scope}")
    say(f"thresholds {classified.thresholds.hash}, {frozen}, pooled over {pooled_over}")
    if classified.thresholds_note is not None:
        say(classified.thresholds_note)
    say(f"invalid: {_invalid(classified)}")
    for row in table.rows:
        if row.schema.name in weights:
            values = ",".join(f"{weight:g}" for weight in row.schema.weights)
            say(f"given weights: {row.schema.name}={values}")
    if len(classified.models) == 1:
        head = ("schema", *_columns(table))
        rows = [(row.schema.name, *_cells(score)) for row in table.rows for score in row.scores]
        say_table(sentence_name(classified.models[0]), head, rows)
    else:
        _show_models(table)
    for line in _left_out(classified):
        say(line)


def _invalid(classified: ClassifiedRuns) -> str:
    """Return which trials are invalid."""
    from lm_eval_bayes.analysis.rubric_classes import verifier_name

    stopped = "generation that did not end at a stop"
    if classified.verifier is None:
        return f"{stopped}; no verifier"
    name = verifier_name(classified.verifier)
    return f"{stopped}, or C >= .50 by {name}, whose A >= .6 is high"


def _left_out(classified: ClassifiedRuns) -> list[str]:
    """Return a line for every missing signal, with the schemata that need it."""
    reasons: dict[tuple[str, tuple[str, ...]], list[str]] = {}
    for schema in classified.left_out:
        reasons.setdefault((schema.lacks, schema.models), []).append(schema.schema)
    return [
        f"left out: {', '.join(schemata)}; missing: {lacks}"
        + ("" if models == classified.models else f", in {', '.join(models)}")
        for (lacks, models), schemata in reasons.items()
    ]


def _show_models(table: RubricTable) -> None:
    """Show a column per model, with intervals if they fit; else a table per schema."""
    head = ["schema", *map(one_line, table.classified.models)]
    intervals = interval_label(table.level, "exact")
    title = "mean ± sd (rank)"
    for shown_title, with_interval in ((f"{title}, {intervals}", True), (title, False)):
        rows = [
            [row.schema.name, *(_cell(score, with_interval) for score in row.scores)]
            for row in table.rows
        ]
        width = sum(max(map(len, column)) + 2 for column in zip(head, *rows, strict=True))
        if width <= shutil.get_terminal_size((120, 24)).columns:
            say_table(shown_title, head, rows)
            return
    for row in table.rows:
        best_first = sorted(row.scores, key=lambda score: (score.rank, -score.mu))
        lines = [(score.rank, score.model, *_cells(score)) for score in best_first]
        say_table(row.schema.name, ("rank", "model", *_columns(table)), lines)


def _cell(score: ModelScore, with_interval: bool) -> str:
    cell = f"{format_mean_sd(score.mu, score.sigma)} ({score.rank})"
    if with_interval:
        cell += f", {format_interval(score.interval)}"
    if score.score.missing:
        cell += f", missing {_missing(score)}"
    return cell


def _columns(table: RubricTable) -> tuple[str, ...]:
    return ("mean ± sd", interval_label(table.level, "exact"), "missing")


def _cells(score: ModelScore) -> tuple[str, ...]:
    return (format_mean_sd(score.mu, score.sigma), format_interval(score.interval), _missing(score))


def _missing(score: ModelScore) -> str:
    return f"{score.score.missing:,} of {score.n_trials:,}"
