"""`lm-eval-bayes export hub`: evaluation results for the Hugging Face hub."""

from __future__ import annotations

from collections.abc import Sequence
from enum import Enum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Optional

import typer

from lm_eval_bayes.cli.ui.options import (
    IntervalOptions,
    Json,
    Overwrite,
    ReadingOptions,
    Runs,
    expand_options,
)
from lm_eval_bayes.cli.ui.output import say, say_json, warn
from lm_eval_bayes.errors import InvalidInputError

if TYPE_CHECKING:
    from lm_eval_bayes._util.files import Content
    from lm_eval_bayes.export.hub_results import HubResult


class Scale(str, Enum):
    """From 0 to 100, or from 0 to 1."""

    percent = "percent"
    share = "share"


@expand_options
def command(
    runs: Runs,
    *,
    model_id: Annotated[str, typer.Option(metavar="ORG/NAME", help="The model on the hub.")],
    output: Annotated[
        Optional[Path],  # noqa: UP045  typer reads this on Python 3.10 too
        typer.Option(
            "-o",
            "--output",
            metavar="DIR",
            help="The model's repository; the files are written to its .eval_results/. By default "
            "the current folder; with --push, files are only written if this is given.",
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
        typer.Option(help="0 to 100, as benchmarks on the hub list accuracies, or 0 to 1."),
    ] = Scale.percent,
    dataset: Annotated[
        Optional[str],  # noqa: UP045
        typer.Option(
            metavar="ORG/NAME", help="The benchmark's dataset, if it is not that of the run."
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
        typer.Option(metavar="NAME", help="The text of the link to that page."),
    ] = None,
    push: Annotated[
        bool, typer.Option("--push", help="Open a pull request in the model's repository.")
    ] = False,
    overwrite: Overwrite = False,
    reading: ReadingOptions,
    intervals: IntervalOptions,
    as_json: Json = False,
) -> None:
    """Write `.eval_results/` for the Hugging Face hub.

    Every task becomes a file .eval_results/<benchmark>.yaml, which the hub shows on the model's
    page and on the benchmark's leaderboard. The value is the benchmark's own metric, so that it
    is comparable with other submissions: by default the mean of the trials, from 0 to 100. N,
    the credible interval and the settings are in the notes; the dataset and its pinned commit
    are those of the run. Each file is validated with huggingface_hub before it is written.

    Nothing is uploaded without --push, which opens one pull request with all files. It uses the
    token of HF_TOKEN or of `hf auth login`, and the hub of HF_ENDPOINT.

    \b
    Examples:
      lm-eval-bayes export hub results/ --model-id org/model -o model-repository/
      lm-eval-bayes export hub results/ --model-id org/model --task aime25_bayes --push
    """
    from lm_eval_bayes.analysis.summary import summarise
    from lm_eval_bayes.export.files import check_targets, write_files
    from lm_eval_bayes.export.hub_results import check_model_id, hub_result, library

    check_model_id(model_id)
    library()
    spec = intervals.spec()
    saved = reading.read(runs)
    if len(saved.models) > 1:
        rule = "be runs of one model, since --model-id names one"
        raise InvalidInputError.of("RUN", rule, ", ".join(saved.models))
    for option, text in (
        ("--dataset", dataset),
        ("--task-id", task_id),
        ("--revision", revision),
    ):
        if text is not None and len(saved.runs) > 1:
            rule = f"be of one task; choose one with --task ({', '.join(saved.tasks)})"
            raise InvalidInputError.of(option, rule, text)
    if source_name is not None and source_url is None:
        rule = "be left out without --source-url"
        raise InvalidInputError.of("--source-name", rule, source_name)
    results = [
        hub_result(
            summarise(run, spec),
            value=value,
            scale=scale.value,
            scope=spec.scope,
            dataset=dataset,
            task_id=task_id,
            revision=revision,
            source_url=source_url,
            source_name=source_name,
            model_id=model_id,
        )
        for run in saved.runs
    ]
    _check_distinct(results)
    folder = output if output is not None or push else Path()
    files: dict[Path, Content] = {}
    if folder is not None:
        files = {folder / result.path: result.text.encode("utf-8") for result in results}
    check_targets(files, overwrite)
    for result in results:
        for warning in result.warnings:
            warn(f"warning: {result.path}: {warning}")
    pull_request = None
    if push:
        from lm_eval_bayes.export.hub_pull_request import open_pull_request

        pull_request = open_pull_request(results, model_id, overwrite=overwrite)
    write_files(files, overwrite)
    if as_json:
        content = [
            {**result.to_dict(), "file": str(file) if folder is not None else None}
            for result, file in zip(results, files or [None] * len(results), strict=True)
        ]
        say_json({"model_id": model_id, "results": content, "pull_request": pull_request})
        return
    for result, path in zip(results, files, strict=False):
        say(f"{path}: {result.value:g} on {result.dataset_id}")
    if pull_request is not None:
        say(f"pull request: {pull_request}")


def _check_distinct(results: Sequence[HubResult]) -> None:
    """Refuse two tasks of one benchmark, which have the same file."""
    paths = [result.path for result in results]
    for path in paths:
        if paths.count(path) > 1:
            rule = f"have one task per benchmark; choose one with --task (several are {path})"
            raise InvalidInputError.of("RUN", rule, f"{paths.count(path)} tasks")
