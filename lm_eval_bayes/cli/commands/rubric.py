"""`lm-eval-bayes study rubric`: scores and ranks of saved runs under rubrics."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from fractions import Fraction
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from lm_eval_bayes._util.text import (
    error_line,
    first_names,
    format_score,
    one_line,
    plural,
    questions_in_words,
    shorten_names,
)
from lm_eval_bayes.cli.screens.layout import (
    Column,
    Form,
    names,
    say_bars,
    say_columns,
    say_next,
    say_sentence,
)
from lm_eval_bayes.cli.ui.options import (
    MORE,
    IntervalOptions,
    Json,
    option,
    prints_tables,
)
from lm_eval_bayes.cli.ui.output import say, say_each, say_json, warn, warn_after, warn_notes
from lm_eval_bayes.cli.ui.reading import TaskOptions
from lm_eval_bayes.errors import InvalidInputError

if TYPE_CHECKING:
    from lm_eval_bayes.analysis.rubric_table import ModelScore, RubricTable
    from lm_eval_bayes.rubric.schemata import Schema
    from lm_eval_bayes.rubric.thresholds import Thresholds

#: Columns of a model's name above its scores on a terminal.
_MODEL = 12


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
        option(None, "Do not use the verdicts of a verifier.", "--ignore-verdicts", panel=MORE),
    ] = False,
    reading: TaskOptions,
    intervals: IntervalOptions,
    as_json: Json = False,
) -> None:
    """Score saved runs under rubrics, and rank their models.

    Categories follow from the logged signals, so that nothing is sampled again. Under every schema
    models are ranked as by `rank`.

    A trial is invalid if its generation did not end at a stop, or if a verifier (`study verify`)
    gives C, invalid, a probability of one half or more. All runs need verdicts of the same
    verifier, or none.

    Pooled thresholds change with every run that is added. To compare with later results, write
    them with --freeze once and pass the file as --thresholds from then on.

    \b
    Examples:
      lm-eval-bayes study rubric runs/qwen runs/phi --freeze aime25.json
      lm-eval-bayes study rubric runs/* --schema format_aware --weights format_aware=0,0,.2,.5,1
    """
    from lm_eval_bayes.analysis.rubric_table import classify_runs, pooled_thresholds, rubric_table
    from lm_eval_bayes.export.files import write_files

    spec = intervals.spec()
    given_weights = _parse_weights(weights or ())
    if freeze is not None:
        _check_new(freeze, thresholds)
    frozen = None if thresholds is None else _read_thresholds(thresholds)
    saved = reading.read(runs, signals="all", verdicts=not ignore_verdicts)
    own = {rubric.name: rubric for run in saved.runs for rubric in run.custom_rubrics}
    tables = []
    schemata = None if schema is None else [_schema(name, own) for name in schema]
    for task in saved.tasks:
        of_task = saved.of_task(task)
        cuts = pooled_thresholds(of_task) if frozen is None else frozen
        classified = classify_runs(of_task, cuts, schemata, given_weights)
        tables.append(rubric_table(classified, spec.level, spec.scope, seed=spec.seed))
    if freeze is not None:
        pooled = pooled_thresholds(saved.runs)
        write_files({freeze: pooled.to_json().encode()}, argument="--freeze")
        warn(
            f"thresholds of {plural(len(pooled.tasks), 'task')} written to {freeze}; their common "
            f"hash is {pooled.hash}"
        )
    thresholds_file = None if thresholds is None else thresholds.name
    if as_json:
        say_json(
            {
                "thresholds_file": thresholds_file,
                "verdicts_ignored": ignore_verdicts,
                "tasks": [table.to_dict() for table in tables],
            }
        )
        return
    form = Form.of_output()
    with_tables = form.verbose or len(tables) == 1

    def show(table: RubricTable) -> None:
        say_sentence(_sentence(table), form)
        if with_tables:
            _show(table, thresholds_file, form)

    say_each(tables, show, lambda table: table.classified.task)
    for table in tables:
        for warning in table.warnings:
            warn_after(f"warning: {warning}")
        scores = [(row.schema.name, score) for row in table.rows for score in row.scores]
        warn_notes((name, [score.model], score.note) for name, score in scores if score.note)
        left_out = [(left.lacks, left) for left in table.classified.left_out]
        warn_notes(
            (left.schema, left.models, f"left out for lack of {lacks}") for lacks, left in left_out
        )
    words = ["lm-eval-bayes", "study", "rubric", *map(str, runs), *reading.words()]
    if not with_tables:
        say_next([*words, "--task", tables[0].classified.task], "one task")
    elif len(tables[0].rows) > 1:
        say_next([*words, "--schema", tables[0].rows[0].schema.name], "one schema")


# -- options -------------------------------------------------------------------------------------


def _schema(name: str, own: Mapping[str, Schema]) -> Schema:
    """Return a schema of the paper, the rubric of a run's task, or that of a YAML file."""
    from lm_eval_bayes.rubric.schemata import schema_named

    if name in own:
        return own[name]
    if not name.endswith((".yaml", ".yml")):
        return schema_named(name)
    from lm_eval_bayes.harness.rubrics.custom_rubric import custom_rubrics as read_rubrics

    (rubric,) = read_rubrics(name, Path())
    return rubric.schema


def _parse_weights(texts: Sequence[str]) -> dict[str, tuple[float, ...]]:
    """Parse `format_aware=0,0,1/3,2/3,1`."""
    by_schema: dict[str, tuple[float, ...]] = {}
    for text in texts:
        name, equals, values = text.partition("=")
        name = name.strip()
        if not equals:
            rule = "name the schema, as in exact_match=0,0,1"
            raise InvalidInputError.of("--weights", "missing", rule, text)
        if name in by_schema:
            raise InvalidInputError.of("--weights", "duplicate", "be given once per schema", text)
        try:
            by_schema[name] = tuple(
                float(Fraction(part.strip()) if "/" in part else part) for part in values.split(",")
            )
        except (ValueError, ZeroDivisionError):
            rule = "be numbers or fractions separated by commas, as in exact_match=0,0,1"
            raise InvalidInputError.of("--weights", "format", rule, text) from None
        if len(set(by_schema[name])) == 1:
            raise InvalidInputError.of("--weights", "duplicate", "differ between categories", text)
    return by_schema


def _check_new(freeze: Path, thresholds: Path | None) -> None:
    """Refuse a file of frozen thresholds that cannot be written, before any run is read."""
    from lm_eval_bayes.export.files import check_targets

    if thresholds is not None:
        rule = "be left out with --thresholds, which are frozen already"
        raise InvalidInputError.of("--freeze", "conflict", rule, str(freeze))
    check_targets([freeze], overwrite=True, argument="--freeze")
    if freeze.exists():
        raise InvalidInputError.of("--freeze", "path", "be a new file", str(freeze))


def _read_thresholds(path: Path) -> Thresholds:
    from lm_eval_bayes.rubric.thresholds import Thresholds

    if path.exists() and not path.is_file():
        raise InvalidInputError.of("--thresholds", "path", "be a regular file", str(path))
    try:
        return Thresholds.from_json(path.read_text(encoding="utf-8"), path.name)
    except (OSError, UnicodeDecodeError) as error:
        rule = f"be a file of UTF-8 text that can be read: {error_line(error)}"
        raise InvalidInputError.of("--thresholds", "path", rule, str(path)) from None


# -- the screen ----------------------------------------------------------------------------------


def _show(table: RubricTable, thresholds_file: str | None, form: Form) -> None:
    from lm_eval_bayes.analysis.rubric_table import verifier_name

    classified = table.classified
    models, several = classified.models, len(table.rows) > 1
    if len(models) == 1:
        rows = [(row.schema.name, score) for row in table.rows for score in row.scores]
        say()
        _show_scores("schema", rows, table.level, form)
    elif several:
        say()
        _show_ranks(table, form)
    if len(models) > 1 and (form.verbose or not several):
        for row in table.rows:
            say()
            say(f"{row.schema.name}: weights {', '.join(f'{w:g}' for w in row.schema.weights)}")
            best_first = sorted(row.scores, key=lambda score: (score.rank, -score.mu))
            scores = [(score.model, score) for score in best_first]
            _show_scores("model", scores, table.level, form)
    frozen = "not frozen"
    if thresholds_file:
        frozen = f"frozen on {classified.source.date} in {thresholds_file}"
    pooled_over = plural(len(classified.source.runs), "run")
    say_sentence(
        f"Thresholds {classified.thresholds.hash}, {frozen}, pooled over {pooled_over}; verifier: "
        f"{verifier_name(classified.verifier)}.",
        form,
    )
    if classified.thresholds_note is not None:
        warn_after(f"note: {classified.thresholds_note}")


def _sentence(table: RubricTable) -> str:
    """Return how a model scores, or which model is first under the most schemata."""
    scope = questions_in_words(table.scope, table.classified.n_questions)
    schemata = plural(len(table.rows), "schema", "schemata")
    if len(table.classified.models) == 1:
        means = [(row.scores[0].mu, row.schema.name) for row in table.rows]
        (low, lowest), (high, highest) = min(means), max(means)
        ends = f"{format_score(low)} ({lowest}) to {format_score(high)} ({highest})"
        return f"{table.classified.models[0]} scores {ends} under {schemata} on {scope}."
    n_first = {
        model: sum(row.scores[i].rank == 1 for row in table.rows)
        for i, model in enumerate(table.classified.models)
    }
    if len(table.rows) == 1:
        first = [model for model, n in n_first.items() if n]
        have = "has" if len(first) == 1 else "have"
        return f"{first_names(first)} {have} rank 1 under {table.rows[0].schema.name} on {scope}."
    leader = max(n_first, key=lambda model: n_first[model])
    return f"{leader} has rank 1 under {n_first[leader]} of {schemata} on {scope}."


def _show_ranks(table: RubricTable, form: Form) -> None:
    """Show a line for every schema, and a column for as many models as fit."""
    models = list(map(one_line, table.classified.models))
    columns = [names("schema", [row.schema.name for row in table.rows])]
    if not form.is_piped:
        width = form.width - columns[0].width
        models = list(shorten_names(models, _MODEL))[: width // (_MODEL + 2)]
    for i, model in enumerate(models):
        scores = [row.scores[i] for row in table.rows]
        cells = [f"{format_score(s.mu)} ({s.rank}){'*' * bool(s.score.missing)}" for s in scores]
        columns.append(Column(model, cells, left=True))
    say_columns(columns, form)
    if any(score.score.missing for row in table.rows for score in row.scores):
        say("* trials that lack a signal or threshold are in no category: --schema shows how many")
    if len(models) < len(table.classified.models):
        say(f"{len(table.classified.models) - len(models)} more models: --schema or --json")


def _show_scores(
    head: str, rows: Sequence[tuple[str, ModelScore]], level: float, form: Form
) -> None:
    """Show scores with their intervals, a line each."""
    scores = [score for _, score in rows]
    columns = [
        *([Column("rank", [str(score.rank) for score in scores])] if head == "model" else []),
        names(head, [name for name, _ in rows]),
        Column("score", [format_score(score.mu) for score in scores]),
        Column(
            f"{100 * level:g}% interval", [form.interval(s.interval) for s in scores], left=True
        ),
    ]
    if any(score.score.missing for score in scores):
        cells = [f"{score.score.missing:,} of {score.n_trials:,}" for score in scores]
        columns.append(Column("missing", cells))
    weights = [weight for score in scores for weight in score.score.schema.weights]
    bars = [(score.mu, (score.interval.low, score.interval.high), None) for score in scores]
    say_bars(columns, bars, form, (min(weights), max(weights)))
