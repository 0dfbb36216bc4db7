"""`lm-eval-bayes export every-eval-ever`: records in the schema of Every Eval Ever."""

from __future__ import annotations

from enum import Enum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, BinaryIO, Optional

import typer

from lm_eval_bayes._util.text import plural
from lm_eval_bayes.cli.ui.options import (
    STANDARD_OUTPUT,
    BothScopesOptions,
    Overwrite,
    ReadingOptions,
    Runs,
    expand_options,
)
from lm_eval_bayes.cli.ui.output import say, warn
from lm_eval_bayes.errors import InvalidInputError

if TYPE_CHECKING:
    from lm_eval_bayes._util.files import Content
    from lm_eval_bayes.export.every_eval_ever import Submission
    from lm_eval_bayes.export.every_eval_instances import InstancesFile


class Relationship(str, Enum):
    """The relationship of the evaluator to the developer of the model."""

    first_party = "first_party"
    third_party = "third_party"
    collaborative = "collaborative"
    other = "other"


class Deployment(str, Enum):
    """Who runs the model."""

    self_deployed = "self_deployed"
    externally_managed = "externally_managed"
    unknown = "unknown"


class Availability(str, Enum):
    """Who has access to the weights."""

    open_weights = "open_weights"
    closed_weights = "closed_weights"
    unknown = "unknown"


@expand_options
def command(
    runs: Runs,
    *,
    output: Annotated[
        Optional[Path],  # noqa: UP045  typer reads this on Python 3.10 too
        typer.Option(
            "-o",
            "--output",
            metavar="DIR",
            help="The folder in which data/<benchmark>/<org>/<model>/<uuid>.json is written. By "
            "default the record of a single run goes to standard output.",
            show_default=False,
        ),
    ] = None,
    model_id: Annotated[
        Optional[str],  # noqa: UP045
        typer.Option(
            metavar="ORG/NAME", help="The model. By default from the run's model arguments."
        ),
    ] = None,
    instances: Annotated[
        bool,
        typer.Option(
            "--instances", help="Add a file with one record per trial, <uuid>_samples.jsonl."
        ),
    ] = False,
    texts: Annotated[
        bool,
        typer.Option(
            "--texts/--no-texts",
            help="Whether these records hold questions, answers and completions. "
            "Licences of data sets may forbid it.",
        ),
    ] = True,
    collection: Annotated[
        Optional[str],  # noqa: UP045
        typer.Option(metavar="NAME", help="The benchmark's folder. By default its name."),
    ] = None,
    organization: Annotated[
        str, typer.Option(metavar="NAME", help="The organization that submits the records.")
    ] = "not stated",
    relationship: Annotated[
        Relationship,
        typer.Option(help="Relationship of the evaluator to the developer of the model."),
    ] = Relationship.other,
    developer: Annotated[
        str,
        typer.Option(
            metavar="NAME",
            help="The developer of the model, if its id does not name one.",
            show_default=False,
        ),
    ] = "",
    deployment: Annotated[
        Optional[Deployment],  # noqa: UP045
        typer.Option(help="Who runs the model. By default from the backend."),
    ] = None,
    availability: Annotated[
        Availability, typer.Option(help="Who has access to the weights.")
    ] = Availability.unknown,
    overwrite: Overwrite = False,
    reading: ReadingOptions,
    intervals: BothScopesOptions,
) -> None:
    """Write records in the schema of Every Eval Ever, 0.3.0.

    Every run (one model on one task) becomes an aggregate record with one result per metric:
    hbayes@N in both scopes, bayes@N, avg@N and the pass family. Posteriors have their standard
    deviation and their credible interval, with its method.

    Of the run's settings only those are written that describe how the answers were generated;
    paths, addresses and keys are left out. The name of a file depends only on the run, so a run
    that is submitted twice is counted once.

    \b
    Examples:
      lm-eval-bayes export every-eval-ever results/ --model-id org/model | less
      lm-eval-bayes export every-eval-ever runs/* -o submission/ --instances --no-texts
    """
    from lm_eval_bayes.analysis.summary import summarise
    from lm_eval_bayes.export.every_eval_ever import Sender, submission
    from lm_eval_bayes.export.every_eval_instances import InstancesFile, check_instances
    from lm_eval_bayes.export.files import check_targets, write_files

    spec = intervals.spec()
    to_stdout = output is None or str(output) in STANDARD_OUTPUT
    if instances and to_stdout:
        rule = "be given with a folder: name one with --output"
        raise InvalidInputError.of("--instances", rule, "standard output")
    saved = reading.read(runs)
    if len(saved.models) > 1 and (model_id or developer):
        option = "--model-id" if model_id else "--developer"
        rule = "be of one model; export the runs of each model separately"
        raise InvalidInputError.of(option, rule, ", ".join(saved.models))
    if to_stdout and len(saved.runs) > 1:
        rule = "be one run if the record goes to standard output (--output names a folder)"
        runs_of_models = f"{len(saved.runs)} of {', '.join(saved.models)}"
        raise InvalidInputError.of("RUN", rule, runs_of_models)
    if instances:
        for run in saved.runs:
            check_instances(run)
    sender = Sender(
        organization=organization,
        relationship=relationship.value,
        developer=developer,
        deployment="" if deployment is None else deployment.value,
        availability=availability.value,
    )
    summaries = [summarise(run, spec) for run in saved.runs]
    records = [
        submission(
            summary,
            model_id=model_id,
            collection=collection,
            sender=sender,
            scope=None if intervals.scope is None else intervals.scope.value,
        )
        for summary in summaries
    ]
    if output is None or to_stdout:
        typer.echo(records[0].to_json(), nl=False)
        return
    files: dict[Path, Content] = {}
    instances_files: list[InstancesFile | None] = []
    for record, summary in zip(records, summaries, strict=True):
        path = output / record.path
        if path in files:
            rule = "be different runs; two of them are the same trials of one model"
            raise InvalidInputError.of("RUN", rule, summary.run.model)
        rows = InstancesFile(summary, record, texts) if instances else None
        if rows is not None:
            files[output / record.instances_path] = rows.write
        files[path] = _record_content(record, rows)
        instances_files.append(rows)
    check_targets(files, overwrite)
    write_files(files, overwrite)
    for record, rows in zip(records, instances_files, strict=True):
        results = plural(len(record.record["evaluation_results"]), "result")
        say(f"{output / record.path}: {results}")
        if rows is None:
            continue
        say(f"{output / record.instances_path}: {plural(rows.rows, 'record')}")
        if texts and rows.without_completion:
            without = plural(rows.without_completion, "record")
            warn(
                f"warning: {without} of {record.model_id} without the completion, which the "
                "samples files lack"
            )


def _record_content(record: Submission, rows: InstancesFile | None) -> Content:
    """Return the content of a record; with instances a function, since it holds their checksum."""
    if rows is None:
        return record.to_json().encode("ascii")

    def write(output: BinaryIO) -> None:
        output.write(record.with_instances(rows.rows, rows.checksum).to_json().encode("ascii"))

    return write
