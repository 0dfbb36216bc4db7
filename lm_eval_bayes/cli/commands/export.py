"""`lm-eval-bayes export`: leaderboard submissions, and the leaderboard as a table."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, BinaryIO, Literal, TypeAlias

from lm_eval_bayes._util.text import first_names, plural
from lm_eval_bayes.cli.ui.options import (
    MORE,
    IntervalOptions,
    Json,
    Overwrite,
    expand_options,
    option,
    parse_integers,
)
from lm_eval_bayes.cli.ui.output import say, say_json, warn
from lm_eval_bayes.cli.ui.reading import ReadingOptions, Runs, check_not_read
from lm_eval_bayes.errors import InvalidInputError

if TYPE_CHECKING:
    from lm_eval_bayes._util.files import Content
    from lm_eval_bayes.export.every_eval_ever import Submission
    from lm_eval_bayes.export.every_eval_instances import InstancesFile
    from lm_eval_bayes.runs.task_run import SavedRuns

# -- the hub ---------------------------------------------------------------------------------------


#: From 0 to 100, or from 0 to 1.
Scale: TypeAlias = Literal["percent", "share"]


@dataclass(frozen=True)
class HubOptions:
    """What a result on the hub says; names as in `HubSettings`."""

    value: Annotated[
        str, option("NAME", "The number: avg@N, hbayes@N, bayes@N, or a row such as pass@4.")
    ] = "avg@N"
    scale: Annotated[Scale, option(None, "0 to 100, or 0 to 1.", panel=MORE)] = "percent"
    dataset: Annotated[
        str | None, option("ORG/NAME", "The dataset, if it is not that of the run.", panel=MORE)
    ] = None
    task_id: Annotated[
        str | None, option("ID", "The task's id in the eval.yaml of that dataset.")
    ] = None
    revision: Annotated[str | None, option("SHA", "The commit of the dataset.", panel=MORE)] = None
    source_url: Annotated[str | None, option("URL", "A page about the run.", panel=MORE)] = None
    source_name: Annotated[str | None, option("NAME", "The text of its link.", panel=MORE)] = None

    def check(self, saved: SavedRuns) -> None:
        """Refuse settings of one benchmark for several, and a link's text without a link."""
        for name in ("dataset", "task_id", "revision"):
            value = getattr(self, name)
            if value is not None and len(saved.tasks) > 1:
                rule = f"be of one task; choose one with --task ({first_names(saved.tasks, 8)})"
                option = f"--{name.replace('_', '-')}"
                raise InvalidInputError.of(option, "conflict", rule, value)
        if self.source_name is not None and self.source_url is None:
            rule = "be left out without --source-url"
            raise InvalidInputError.of("--source-name", "conflict", rule, self.source_name)


@expand_options
def hub(
    runs: Runs,
    *,
    model_id: Annotated[str, option("ORG/NAME", "The model on the hub.")],
    output: Annotated[
        Path, option("DIR", "The model's repository, with .eval_results/.", "-o", "--output")
    ] = Path(),
    options: HubOptions,
    overwrite: Overwrite = False,
    reading: ReadingOptions,
    intervals: IntervalOptions,
    as_json: Json = False,
) -> None:
    """Write `.eval_results/` for the Hugging Face hub.

    Every task becomes a file with the mean of the trials, from 0 to 100; N and the interval are in
    its notes. Nothing is uploaded: `hf upload ORG/NAME model-repository/
    --create-pr` opens a pull request.

    \b
    Examples:
      lm-eval-bayes export hub results/ --model-id org/model -o model-repository/
      lm-eval-bayes export hub results/ --model-id org/model --task aime25_bayes
    """
    from lm_eval_bayes.analysis.summary import summarise
    from lm_eval_bayes.export.files import check_targets, write_files
    from lm_eval_bayes.export.hub import HubSettings, hub_result, library
    from lm_eval_bayes.export.run_metadata import check_model_id

    check_model_id(model_id)
    library()
    spec = intervals.spec()
    saved = reading.read(runs)
    if len(saved.models) > 1:
        rule = "be runs of one model, since --model-id names one"
        raise InvalidInputError.of("RUN", "mismatch", rule, ", ".join(saved.models))
    options.check(saved)
    results = [
        hub_result(
            summarise(run, spec),
            HubSettings(**vars(options)),
            scope=spec.scope,
            model_id=model_id,
            reading_warnings=saved.warnings,
        )
        for run in saved.runs
    ]
    (path, n_tasks), *_ = Counter(result.path for result in results).most_common(1)
    if n_tasks > 1:
        rule = f"have one task per benchmark; choose one with --task (several are {path})"
        raise InvalidInputError.of("RUN", "duplicate", rule, f"{n_tasks} tasks")
    files = {output / result.path: result.text.encode("utf-8") for result in results}
    check_targets(files, overwrite)
    for result in results:
        for warning in result.warnings:
            warn(f"warning: {result.path}: {warning}")
    write_files(files, overwrite)
    if as_json:
        records = [
            {**result.to_dict(), "file": str(file)}
            for file, result in zip(files, results, strict=True)
        ]
        say_json({"model_id": model_id, "results": records})
        return
    for file, result in zip(files, results, strict=True):
        say(f"{file}: {result.value:g} on {result.dataset_id}")


# -- Every Eval Ever -------------------------------------------------------------------------------


#: The relationship of the evaluator to the developer of the model.
Relationship: TypeAlias = Literal["first_party", "third_party", "collaborative", "other"]

#: Who runs the model.
Deployment: TypeAlias = Literal["self_deployed", "externally_managed", "unknown"]

#: Who has access to the weights.
Availability: TypeAlias = Literal["open_weights", "closed_weights", "unknown"]


@dataclass(frozen=True)
class SenderOptions:
    """Facts about a submission that the run does not record; names as in `Sender`."""

    organization: Annotated[str, option("NAME", "Who submits the records.")] = "not stated"
    relationship: Annotated[Relationship, option(None, "To the model's developer.")] = "other"
    developer: Annotated[
        str, option("NAME", "The developer of the model, if its id does not name one.", panel=MORE)
    ] = ""
    deployment: Annotated[
        Deployment | None,
        option(None, "Who runs the model. By default from the backend.", panel=MORE),
    ] = None
    availability: Annotated[
        Availability, option(None, "Who has access to the weights.", panel=MORE)
    ] = "unknown"


@expand_options
def every_eval_ever(
    runs: Runs,
    *,
    output: Annotated[
        Path, option("DIR", "For data/<benchmark>/<org>/<model>/<uuid>.json.", "-o", "--output")
    ],
    model_id: Annotated[
        list[str] | None,
        option(
            "ORG/NAME",
            "The model, if the run does not name it. Of several MODEL=ORG/NAME; can be repeated.",
        ),
    ] = None,
    instances: Annotated[
        bool, option(None, "Add <uuid>_samples.jsonl, one record per trial.", "--instances")
    ] = False,
    texts: Annotated[
        bool,
        option(
            None,
            "Whether these hold questions, answers and completions; licences may forbid it.",
            "--texts/--no-texts",
        ),
    ] = True,
    collection: Annotated[str | None, option("NAME", "The benchmark's folder.", panel=MORE)] = None,
    sender: SenderOptions,
    overwrite: Overwrite = False,
    reading: ReadingOptions,
    intervals: IntervalOptions,
) -> None:
    """Write records in the schema of Every Eval Ever, 0.3.0.

    Every run (one model on one task) becomes a record with one result per metric. Paths, addresses
    and keys are left out. To validate them, `cd OUT; every_eval_ever validate data/*/*/*/*.json*`.

    \b
    Examples:
      lm-eval-bayes export every-eval-ever results/ --model-id org/model -o OUT
      lm-eval-bayes export every-eval-ever board.csv -o OUT --model-id A=org/a --model-id B=lab/b
    """
    from lm_eval_bayes.analysis.summary import summarise
    from lm_eval_bayes.export.every_eval_ever import Sender, submission
    from lm_eval_bayes.export.every_eval_instances import InstancesFile, check_instances
    from lm_eval_bayes.export.files import write_files

    spec = intervals.spec()
    saved = reading.read(runs)
    if len(saved.models) > 1 and sender.developer:
        rule = "be of one model; --model-id MODEL=ORG/NAME, repeated, names several"
        raise InvalidInputError.of("--developer", "mismatch", rule, sender.developer)
    model_ids = _model_ids(model_id or (), saved.models)
    files: dict[Path, Content] = {}
    written: list[tuple[Submission, InstancesFile | None]] = []
    for run in saved.runs:
        if instances:
            check_instances(run)
        summary = summarise(run, spec)
        record = submission(
            summary,
            model_id=model_ids.get(run.model),
            collection=collection,
            sender=Sender(**{**vars(sender), "deployment": sender.deployment or ""}),
            scope=intervals.scope,
            reading_warnings=saved.warnings,
        )
        if output / record.path in files:
            rule = "be different runs; two of them are the same trials of one model"
            raise InvalidInputError.of("RUN", "duplicate", rule, run.model)
        rows = InstancesFile(summary, record, texts) if instances else None
        if rows is not None:
            files[output / record.instances_path] = rows.write
        files[output / record.path] = partial(_write_record, record, rows)
        written.append((record, rows))
    write_files(files, overwrite)
    _say_written(output, written)


def _say_written(folder: Path, written: Sequence[tuple[Submission, InstancesFile | None]]) -> None:
    """Name the files of records and of instances, with the numbers of entries in them."""
    for record, rows in written:
        results = plural(len(record.record["evaluation_results"]), "result")
        say(f"{folder / record.path}: {results}")
        if rows is None:
            continue
        say(f"{folder / record.instances_path}: {plural(rows.rows, 'record')}")
        if rows.texts and rows.without_completion:
            without = plural(rows.without_completion, "record")
            warn(
                f"warning: {without} of {record.model_id} without the completion, which the "
                "samples files lack"
            )


def _model_ids(given: Sequence[str], models: Sequence[str]) -> dict[str, str]:
    """Return the ids of models by their names in the runs.

    Raises
    ------
    InvalidInputError
        If an id does not say of which of several models it is, or two are of one.
    """
    ids: dict[str, str] = {}
    for text in given:
        model, _, id = text.rpartition("=")
        if model not in models and len(models) == 1:
            model, id = models[0], text
        if model not in models or model in ids:
            rule = f"be {models[0]}=org/name, for each of several models once"
            got = f"{text!r}, for {first_names(models, 8)}"
            raise InvalidInputError.of("--model-id", "format", rule, got)
        ids[model] = id
    return ids


def _write_record(record: Submission, rows: InstancesFile | None, output: BinaryIO) -> None:
    """Write a record, after its instances, whose checksum it holds."""
    if rows is not None:
        record = record.with_instances(rows.rows, rows.checksum)
    output.write(record.to_json().encode("ascii"))


# -- tables ----------------------------------------------------------------------------------------


@expand_options
def table(
    runs: Runs,
    *,
    output: Annotated[Path, option("FILE", "A .csv, .json or .md file.", "-o", "--output")],
    overwrite: Overwrite = False,
    k: Annotated[
        str | None,
        option(
            "K,K,...",
            "The k of pass@k, pass^k and maj@k, each at most N. By default powers of two and those "
            "of the run's settings; in Markdown none.",
        ),
    ] = None,
    reading: ReadingOptions,
    intervals: IntervalOptions,
) -> None:
    """Write the leaderboard as a table in CSV, JSON or Markdown, by the suffix of the file.

    .csv and .json have all digits; .json also the distribution of every rank and P(A > B). .md has
    per task model, ranks, mean, sd and interval of hbayes@N, N, and settings like these.

    \b
    Examples:
      lm-eval-bayes export table runs/* -o leaderboard.csv
      lm-eval-bayes export table runs/qwen runs/phi -o board.md --scope population
    """
    from lm_eval_bayes._util.validation import check_option
    from lm_eval_bayes.analysis.leaderboard import leaderboard
    from lm_eval_bayes.analysis.pass_rows import pass_rows
    from lm_eval_bayes.analysis.settings import settings_posterior
    from lm_eval_bayes.export.files import check_targets, write_files
    from lm_eval_bayes.export.tables import DIGITS_IN_FULL, SUFFIXES, table_text

    spec = intervals.spec()
    ks = None if k is None else parse_integers("--k", k)
    suffix = check_option("--output", output.suffix.lower(), SUFFIXES)
    check_targets([output], overwrite)
    saved = reading.read(runs)
    check_not_read([output], runs, saved)
    boards = [leaderboard(saved.of_task(name), spec) for name in saved.tasks]
    families = {}
    if ks is not None or suffix in DIGITS_IN_FULL:
        families = {(run.task, run.model): pass_rows(run, spec, ks)[1] for run in saved.runs}
    for run in saved.runs:
        if run.settings and (note := settings_posterior(run, spec)[1]):
            warn(f"note: {run.model}, {run.task}: {note}")
    text = table_text(boards, suffix, families)
    write_files({output: text.encode("utf-8", "replace")}, overwrite)
    models = plural(len(saved.models), "model")
    say(f"{output}: {models} on {plural(len(boards), 'task')}")
