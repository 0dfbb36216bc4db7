"""`lm-eval-bayes export`: results as others take them, and the leaderboard as a table."""

from __future__ import annotations

from collections.abc import Sequence
from enum import Enum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, BinaryIO, Optional

import typer

from lm_eval_bayes.cli.errors import named_as_options
from lm_eval_bayes.cli.export_tables import FORMATS, STDOUT, table_command
from lm_eval_bayes.cli.output import count, say, say_json, warn
from lm_eval_bayes.cli.reading import (
    Dedupe,
    Filter,
    Interval,
    IntervalKind,
    Json,
    Level,
    Metric,
    Regrade,
    Runs,
    Scope,
    ScopeOption,
    Seed,
    Task,
    read,
)
from lm_eval_bayes.errors import InvalidInputError

if TYPE_CHECKING:
    from lm_eval_bayes.export.eval_results import HubResult
    from lm_eval_bayes.export.every_eval_ever import Submission
    from lm_eval_bayes.export.files import Content
    from lm_eval_bayes.export.instances import InstancesFile
    from lm_eval_bayes.report.summary import TaskSummary
    from lm_eval_bayes.store.task_run import SavedRuns, TaskRun

app = typer.Typer(
    no_args_is_help=True,
    rich_markup_mode=None,
    help="Write results for leaderboards, or as tables.",
)


class Scale(str, Enum):
    """From 0 to 100, or from 0 to 1."""

    percent = "percent"
    share = "share"


class Relationship(str, Enum):
    """Of who evaluated to who made the model."""

    first_party = "first_party"
    third_party = "third_party"
    collaborative = "collaborative"
    other = "other"


class Deployment(str, Enum):
    """Who ran the model."""

    self_deployed = "self_deployed"
    externally_managed = "externally_managed"
    unknown = "unknown"


class Availability(str, Enum):
    """Who has the weights."""

    open_weights = "open_weights"
    closed_weights = "closed_weights"
    unknown = "unknown"


Overwrite = Annotated[bool, typer.Option("--overwrite", help="Replace files that are there.")]
ModelId = Annotated[str, typer.Option(metavar="ORG/NAME", help="The model on the hub.")]


# -- the Hugging Face hub ------------------------------------------------------------------------


@app.command("hub")
def hub(
    runs: Runs,
    model_id: ModelId,
    output: Annotated[
        Optional[Path],  # noqa: UP045  typer reads this on Python 3.10 too
        typer.Option(
            "-o",
            "--output",
            metavar="DIR",
            help="The model's repository, which gets the files in .eval_results/. By default "
            "here; with --push, nothing is written here unless this is given.",
            show_default=False,
        ),
    ] = None,
    value: Annotated[
        str,
        typer.Option(
            metavar="NAME",
            help="The number that is the benchmark's metric: avg@N, hbayes@N, bayes@N, or a row "
            "of the pass family such as pass@4.",
        ),
    ] = "avg@N",
    scale: Annotated[
        Scale,
        typer.Option(help="0 to 100, as the benchmarks of the hub list accuracies, or 0 to 1."),
    ] = Scale.percent,
    dataset: Annotated[
        Optional[str],  # noqa: UP045
        typer.Option(
            metavar="ORG/NAME", help="The benchmark's dataset, where it is not the run's own."
        ),
    ] = None,
    task_id: Annotated[
        Optional[str],  # noqa: UP045
        typer.Option(metavar="ID", help="The task's id in the eval.yaml of that dataset."),
    ] = None,
    revision: Annotated[
        Optional[str],  # noqa: UP045
        typer.Option(metavar="SHA", help="The commit of that dataset. By default the pinned one."),
    ] = None,
    source_url: Annotated[
        Optional[str],  # noqa: UP045
        typer.Option(metavar="URL", help="A page about the run, such as its logs."),
    ] = None,
    source_name: Annotated[
        Optional[str],  # noqa: UP045
        typer.Option(metavar="NAME", help="What the link to that page is called."),
    ] = None,
    push: Annotated[
        bool, typer.Option("--push", help="Open a pull request in the model's repository.")
    ] = False,
    overwrite: Overwrite = False,
    task: Task = None,
    metric: Metric = None,
    filter: Filter = None,
    dedupe: Dedupe = False,
    regrade: Regrade = False,
    level: Level = 0.95,
    scope: ScopeOption = Scope.benchmark,
    interval: Interval = IntervalKind.exact,
    seed: Seed = 0,
    as_json: Json = False,
) -> None:
    """Write `.eval_results/` for the Hugging Face hub.

    Every task becomes a file .eval_results/<benchmark>.yaml, which the hub shows on the model's
    page and on the benchmark's leaderboard. The number is the benchmark's own metric, so that it
    stands beside everybody else's: by default the mean of the trials, from 0 to 100. N, the
    credible interval and the settings are in the notes; the dataset and its pinned commit come
    from the run. Each file is read back with huggingface_hub before it is written.

    Nothing leaves this computer without --push, which opens one pull request with all files. It
    takes the token of HF_TOKEN or of `hf auth login`, and the hub that HF_ENDPOINT names.

    \b
    Examples:
      lm-eval-bayes export hub results/ --model-id org/model -o model-repository/
      lm-eval-bayes export hub results/ --model-id org/model --task aime25_bayes --push
    """
    from lm_eval_bayes.export.eval_results import check_model_id, hub_result, library
    from lm_eval_bayes.export.files import check_targets, write_files

    check_model_id(model_id)
    library()
    found = read(runs, task=task, metric=metric, filter=filter, dedupe=dedupe, regrade=regrade)
    of_model = _one_model(found)
    given = {"--dataset": dataset, "--task-id": task_id, "--revision": revision}
    for option, text in given.items():
        if text is not None and len(of_model) > 1:
            rule = f"be of one task; choose one with --task ({', '.join(found.tasks)})"
            raise InvalidInputError.of(option, rule, text)
    if source_name is not None and source_url is None:
        rule = "be left out where no --source-url is given"
        raise InvalidInputError.of("--source-name", rule, source_name)
    results = [
        hub_result(
            one,
            value=value,
            scale=scale.value,
            scope=scope.value,
            dataset=dataset,
            task_id=task_id,
            revision=revision,
            source_url=source_url,
            source_name=source_name,
            model_id=model_id,
        )
        for one in _summaries(of_model, level, interval, seed)
    ]
    _distinct(results)
    folder = output if output is not None or push else Path()
    files: dict[Path, Content] = {}
    if folder is not None:
        files = {folder / one.path: one.text.encode("utf-8") for one in results}
    check_targets(files, overwrite)
    for one in results:
        for warning in one.warnings:
            warn(f"warning: {one.path}: {warning}")
    address = _push(results, model_id, overwrite) if push else None
    write_files(files, overwrite)
    if as_json:
        content = [
            {**one.to_dict(), "file": str(file) if folder is not None else None}
            for one, file in zip(results, files or [None] * len(results), strict=True)
        ]
        say_json({"model_id": model_id, "results": content, "pull_request": address})
        return
    for one, path in zip(results, files, strict=False):
        say(f"{path}: {one.value:g} on {one.dataset_id}")
    if address is not None:
        say(f"pull request: {address}")


def _push(results: Sequence[HubResult], model_id: str, overwrite: bool) -> str:
    from lm_eval_bayes.export.hub_push import open_pull_request

    return open_pull_request(results, model_id, overwrite=overwrite)


def _one_model(found: SavedRuns) -> tuple[TaskRun, ...]:
    if len(found.models) > 1:
        rule = "be runs of one model, since --model-id names one"
        raise InvalidInputError.of("RUN", rule, ", ".join(found.models))
    return found.runs


def _distinct(results: Sequence[HubResult]) -> None:
    """Refuse two tasks of one benchmark, which would be one file."""
    paths = [one.path for one in results]
    for path in paths:
        if paths.count(path) > 1:
            rule = f"have one task of each benchmark, choose one with --task ({path} is twice)"
            raise InvalidInputError.of("RUN", rule, f"{paths.count(path)} tasks")


def _summaries(
    runs: Sequence[TaskRun], level: float, interval: IntervalKind, seed: int
) -> list[TaskSummary]:
    from lm_eval_bayes.report.summary import summarise

    with named_as_options("level", "interval", "seed"):
        return [summarise(one, level=level, method=interval.value, seed=seed) for one in runs]


# -- Every Eval Ever -----------------------------------------------------------------------------


@app.command("every-eval-ever")
def every_eval_ever(
    runs: Runs,
    output: Annotated[
        Optional[Path],  # noqa: UP045
        typer.Option(
            "-o",
            "--output",
            metavar="DIR",
            help="The folder that gets data/<benchmark>/<org>/<model>/<uuid>.json. By default "
            "the record of a single run goes to standard output.",
            show_default=False,
        ),
    ] = None,
    model_id: Annotated[
        Optional[str],  # noqa: UP045
        typer.Option(
            metavar="ORG/NAME", help="The model. By default what the run's arguments tell."
        ),
    ] = None,
    instances: Annotated[
        bool,
        typer.Option(
            "--instances", help="Add a file with one record a trial, <uuid>_samples.jsonl."
        ),
    ] = False,
    texts: Annotated[
        bool,
        typer.Option(
            "--texts/--no-texts",
            help="Whether those records hold questions, answers and completions. "
            "Licences of data sets may forbid it.",
        ),
    ] = True,
    collection: Annotated[
        Optional[str],  # noqa: UP045
        typer.Option(metavar="NAME", help="The benchmark's folder. By default its name."),
    ] = None,
    organization: Annotated[
        str, typer.Option(metavar="NAME", help="Who sends this.")
    ] = "not stated",
    relationship: Annotated[
        Relationship, typer.Option(help="Of who evaluated to who made the model.")
    ] = Relationship.other,
    developer: Annotated[
        str,
        typer.Option(
            metavar="NAME",
            help="Who made the model, where its id does not tell.",
            show_default=False,
        ),
    ] = "",
    deployment: Annotated[
        Optional[Deployment],  # noqa: UP045
        typer.Option(help="Who ran the model. By default what the backend tells."),
    ] = None,
    availability: Annotated[
        Availability, typer.Option(help="Who has the weights.")
    ] = Availability.unknown,
    overwrite: Overwrite = False,
    task: Task = None,
    metric: Metric = None,
    filter: Filter = None,
    dedupe: Dedupe = False,
    regrade: Regrade = False,
    level: Level = 0.95,
    interval: Interval = IntervalKind.exact,
    seed: Seed = 0,
) -> None:
    """Write records in the schema of Every Eval Ever, 0.3.0.

    Every run, that is one model on one task, becomes an aggregate record with one result for
    each metric: hbayes@N in both scopes, bayes@N, avg@N and the pass family. Posteriors come
    with their credible interval, whose method says so, and their standard deviation.

    Of the run's settings only those go out that say how the answers came about; paths,
    addresses and keys stay at home. The name of the file depends on nothing but the run, so the
    same run is not counted twice.

    \b
    Examples:
      lm-eval-bayes export every-eval-ever results/ --model-id org/model | less
      lm-eval-bayes export every-eval-ever runs/* -o submission/ --instances --no-texts
    """
    from lm_eval_bayes.export.every_eval_ever import Sender, submission
    from lm_eval_bayes.export.files import check_targets, write_files
    from lm_eval_bayes.export.instances import InstancesFile, check_instances

    to_stdout = output is None or str(output) in STDOUT
    if instances and to_stdout:
        rule = "have a folder to go to: name one with --output"
        raise InvalidInputError.of("--instances", rule, "standard output")
    found = read(runs, task=task, metric=metric, filter=filter, dedupe=dedupe, regrade=regrade)
    if len(found.models) > 1 and (model_id or developer):
        option = "--model-id" if model_id else "--developer"
        rule = "be of one model; export the runs of each model by themselves"
        raise InvalidInputError.of(option, rule, ", ".join(found.models))
    if to_stdout and len(found.runs) > 1:
        rule = "be one run, where the record goes to standard output (--output names a folder)"
        raise InvalidInputError.of("RUN", rule, f"{len(found.runs)} of {', '.join(found.models)}")
    if instances:
        for one in found.runs:
            check_instances(one)
    sender = Sender(
        organization=organization,
        relationship=relationship.value,
        developer=developer,
        deployment="" if deployment is None else deployment.value,
        availability=availability.value,
    )
    summaries = _summaries(found.runs, level, interval, seed)
    records = [
        submission(one, model_id=model_id, collection=collection, sender=sender)
        for one in summaries
    ]
    if output is None or to_stdout:
        typer.echo(records[0].to_json(), nl=False)
        return
    files: dict[Path, Content] = {}
    beside: list[InstancesFile | None] = []
    for record, summary in zip(records, summaries, strict=True):
        path = output / record.path
        if path in files:
            rule = "be different runs; two of them are the same trials of one model"
            raise InvalidInputError.of("RUN", rule, summary.run.model)
        rows = InstancesFile(summary, record, texts) if instances else None
        if rows is not None:
            files[output / record.instances_path] = rows.write
        files[path] = _record(record, rows)
        beside.append(rows)
    check_targets(files, overwrite)
    write_files(files, overwrite)
    for record, rows in zip(records, beside, strict=True):
        say(f"{output / record.path}: {count(len(record.record['evaluation_results']), 'result')}")
        if rows is None:
            continue
        say(f"{output / record.instances_path}: {count(rows.rows, 'record')}")
        if texts and rows.untold:
            warn(
                f"warning: {count(rows.untold, 'record')} of {record.model_id} without the "
                "completion, which the files at hand do not tell"
            )


def _record(record: Submission, rows: InstancesFile | None) -> Content:
    """Return what writes a record; with instances, after them, since it holds their checksum."""
    if rows is None:
        return record.to_json().encode("ascii")

    def write(output: BinaryIO) -> None:
        whole = record.with_instances(rows.rows, rows.checksum)
        output.write(whole.to_json().encode("ascii"))

    return write


# -- the leaderboard as a table ------------------------------------------------------------------

for _form, _what, _suffix, _about in FORMATS:
    app.command(_form)(table_command(_form, _what, _suffix, _about))
