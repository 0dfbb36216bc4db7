"""`lm-eval-bayes export hub`: results as the Hugging Face hub takes them."""

from __future__ import annotations

from collections.abc import Sequence
from enum import Enum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Optional

import typer

from lm_eval_bayes.cli.commands.export_summaries import Overwrite, summaries
from lm_eval_bayes.cli.ui.output import say, say_json, warn
from lm_eval_bayes.cli.ui.reading import (
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
    from lm_eval_bayes._util.files import Content
    from lm_eval_bayes.export.hub_results import HubResult
    from lm_eval_bayes.runs.task_run import SavedRuns, TaskRun


class Scale(str, Enum):
    """From 0 to 100, or from 0 to 1."""

    percent = "percent"
    share = "share"


ModelId = Annotated[str, typer.Option(metavar="ORG/NAME", help="The model on the hub.")]


def command(
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
    from lm_eval_bayes.export.files import check_targets, write_files
    from lm_eval_bayes.export.hub_results import check_model_id, hub_result, library

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
        for one in summaries(of_model, level, interval, seed)
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
    from lm_eval_bayes.export.hub_pull_request import open_pull_request

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
