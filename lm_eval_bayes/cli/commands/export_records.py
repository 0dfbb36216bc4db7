"""`lm-eval-bayes export every-eval-ever`: records in the schema of Every Eval Ever."""

from __future__ import annotations

from enum import Enum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, BinaryIO, Optional

import typer

from lm_eval_bayes._util.text import plural
from lm_eval_bayes.cli.commands.export_summaries import Overwrite, summaries
from lm_eval_bayes.cli.commands.export_tables import STDOUT
from lm_eval_bayes.cli.ui.output import say, warn
from lm_eval_bayes.cli.ui.reading import (
    Dedupe,
    Filter,
    Interval,
    IntervalKind,
    Level,
    Metric,
    OneScope,
    Regrade,
    Runs,
    Seed,
    Task,
    read,
)
from lm_eval_bayes.errors import InvalidInputError

if TYPE_CHECKING:
    from lm_eval_bayes._util.files import Content
    from lm_eval_bayes.export.every_eval_ever import Submission
    from lm_eval_bayes.export.every_eval_instances import InstancesFile


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


def command(
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
    scope: OneScope = None,
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
    from lm_eval_bayes.export.every_eval_instances import InstancesFile, check_instances
    from lm_eval_bayes.export.files import check_targets, write_files

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
    summarised = summaries(found.runs, level, interval, seed)
    records = [
        submission(
            one,
            model_id=model_id,
            collection=collection,
            sender=sender,
            scope=None if scope is None else scope.value,
        )
        for one in summarised
    ]
    if output is None or to_stdout:
        typer.echo(records[0].to_json(), nl=False)
        return
    files: dict[Path, Content] = {}
    beside: list[InstancesFile | None] = []
    for record, summary in zip(records, summarised, strict=True):
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
        say(f"{output / record.path}: {plural(len(record.record['evaluation_results']), 'result')}")
        if rows is None:
            continue
        say(f"{output / record.instances_path}: {plural(rows.rows, 'record')}")
        if texts and rows.without_completion:
            without = plural(rows.without_completion, "record")
            warn(
                f"warning: {without} of {record.model_id} without the completion, which the "
                "samples files lack"
            )


def _record(record: Submission, rows: InstancesFile | None) -> Content:
    """Return what writes a record; with instances, after them, since it holds their checksum."""
    if rows is None:
        return record.to_json().encode("ascii")

    def write(output: BinaryIO) -> None:
        whole = record.with_instances(rows.rows, rows.checksum)
        output.write(whole.to_json().encode("ascii"))

    return write
