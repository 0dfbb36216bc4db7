"""`lm-eval-bayes store`: what is done with trial stores."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from lm_eval_bayes._util.text import (
    format_bytes,
    format_date,
    format_range,
    plural,
    shorten_middle,
)
from lm_eval_bayes.cli.screens.layout import say_table
from lm_eval_bayes.cli.ui.errors import CHECK_FAILED, ERROR, named
from lm_eval_bayes.cli.ui.options import (
    STANDARD_OUTPUT,
    Json,
    Overwrite,
    expand_options,
    option,
    prints_tables,
)
from lm_eval_bayes.cli.ui.output import (
    all_columns,
    check_standard_output,
    say,
    say_each,
    say_json,
    warn,
)
from lm_eval_bayes.errors import InvalidInputError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from lm_eval_bayes.store.errors import TrialConflictError
    from lm_eval_bayes.store.export import ExportReport
    from lm_eval_bayes.store.info import SeriesInfo, StoreInfo, TaskInfo
    from lm_eval_bayes.store.merge import MergeReport
    from lm_eval_bayes.store.prune import PruneReport, Verification
    from lm_eval_bayes.store.samples_export import SamplesReport

#: The most conflicts that are printed; --json lists up to 1,000.
MAX_PRINTED = 5

Stores = Annotated[
    list[Path], typer.Argument(metavar="STORE", help="Files of trial stores.", show_default=False)
]


def _counts(record: object, *names: str) -> str:
    nouns = {name: name.removesuffix("s").replace("_", " ") for name in names}
    return ", ".join(plural(getattr(record, name), noun) for name, noun in nouns.items())


@prints_tables
def info(
    stores: Stores,
    *,
    check: Annotated[
        bool,
        option(
            None,
            "Instead verify SQLite's structure, its log, and every record against its hash. The "
            "exit code is 1 if there is a problem.",
            "--check",
        ),
    ] = False,
    as_json: Json = False,
) -> None:
    """Count the contents of stores, or verify that they are intact.

    Models, tasks, questions × trials; trials and tokens by model and sampling.

    \b
    Examples:
      lm-eval-bayes store info runs/aime.sqlite
      lm-eval-bayes store info --json runs/*.sqlite | jq '.[].trials'
      lm-eval-bayes store info --check backup/*.sqlite
    """
    if check:
        raise typer.Exit(_check(stores, as_json))
    from lm_eval_bayes.store.trial_store import TrialStore

    infos = []
    for path in stores:
        with TrialStore.open(path, mode="read") as store:
            infos.append(store.info())
    if as_json:
        say_json(infos)
    else:
        say_each(infos, _print_info)


def _print_info(info: StoreInfo) -> None:
    from lm_eval_bayes._util.hashing import canonical_json
    from lm_eval_bayes.store.samples_export import setting_of

    log = f" and {format_bytes(info.log_bytes)} of log" if info.log_bytes else ""
    say(f"{info.path}: {format_bytes(info.file_bytes)}{log}")
    ungraded = f", {info.ungraded:,} of the trials without a grade" if info.ungraded else ""
    say(_counts(info, "trials", "prompts", "prompt_signals", "outcomes") + ungraded)
    names = {digest: _stored_name(fingerprint) for digest, fingerprint in info.models.items()}
    labels = {digest: ", ".join(setting_of(s)) for digest, s in info.samplings.items()}
    column = ["setting"] * any(labels.values())

    def named(of: TaskInfo | SeriesInfo) -> tuple[str, ...]:
        return (names[of.model], *(labels[of.sampling] for _ in column))

    if info.tasks:
        head = ("model", *column, "task", "version", "filter", "questions × trials", "outcomes")
        graded = [
            (
                *(*named(task), task.task, task.version, task.filter),
                f"{task.questions:,} × {format_range((task.fewest, task.most))}",
                f"{task.outcomes:,}",
            )
            for task in info.tasks
        ]
        say_table("", head, graded)
    if info.series:
        head = ("model", *column, "prompts × trials", "trials", "tokens", "latest", "sampling")
        say_table("", head, [(*named(series), *_series_row(series)) for series in info.series])
    described = {**info.models, **info.samplings}
    if described and all_columns():  # `store prune` takes hashes
        rows = [(digest, canonical_json(value)) for digest, value in described.items()]
        say_table("", ("hash", "of a model or a sampling"), rows)


def _series_row(series: SeriesInfo) -> tuple[str, ...]:
    return (
        f"{series.prompts:,} × {format_range((series.fewest, series.most))}",
        f"{series.trials:,}",
        f"{series.completion_tokens:,}",
        format_date(series.last, "%Y-%m-%d %H:%M") or "?",
        shorten_middle(series.sampling, 22),
    )


@expand_options
def merge(
    stores: Stores,
    target: Annotated[Path, option("TARGET", "The merged store.", "-o", "--output")],
    keep_first: Annotated[
        bool, option(None, "If stores differ, keep the first trial.", "--keep-first")
    ] = False,
    as_json: Json = False,
) -> None:
    """Merge stores: all of them, or none.

    The target may exist, and may be among the stores. Without --keep-first nothing is merged if two
    stores have a trial with different texts or seeds.

    \b
    Examples:
      lm-eval-bayes store merge runs/aime*.sqlite -o runs/all.sqlite
      lm-eval-bayes store merge a.sqlite b.sqlite -o all.sqlite --keep-first
    """
    from lm_eval_bayes._util.files import folder_for
    from lm_eval_bayes.store.errors import TrialConflictError
    from lm_eval_bayes.store.merge import merge as merge_stores

    try:
        with folder_for(target, "--output"):
            report = merge_stores(stores, target, keep_first=keep_first)
    except TrialConflictError as error:
        warn(f"error: {error}")
        if as_json:
            content = {"n_conflicts": error.n_conflicts, "conflicts": error.conflicts}
            say_json({"merged": False, **content})
        else:
            _warn_of_conflicts(error)
            warn("with --keep-first, the first trial is kept")
        raise typer.Exit(ERROR) from None
    if as_json:
        say_json({"merged": True, **report.to_dict()})
        return
    say(
        f"{report.target}: {plural(report.added, 'trial')} added, {report.known:,} already stored, "
        f"{plural(report.outcomes, 'graded outcome')} added"
    )
    if report.n_conflicts:
        warn(f"warning: {plural(report.n_conflicts, 'trial')} differed; the first was kept")
        _warn_of_conflicts(report)
    for note in report.notes:
        warn(f"note: {note}")


def _warn_of_conflicts(result: MergeReport | TrialConflictError) -> None:
    for conflict in result.conflicts[:MAX_PRINTED]:
        warn(f"  {conflict}")
    if result.n_conflicts > MAX_PRINTED:
        warn(f"  and {result.n_conflicts - MAX_PRINTED:,} more; --json lists up to 1,000")


def _check(stores: Sequence[Path], as_json: bool) -> int:
    """Verify stores; return the exit code."""
    from lm_eval_bayes.store.errors import StoreError
    from lm_eval_bayes.store.prune import verify

    code, results = 0, []
    for path in stores:
        try:
            result = verify(path)
        except StoreError as error:
            # the other stores are checked nevertheless
            warn(f"error: {error}")
            code = ERROR
            continue
        results.append(result)
        if not result.ok:
            code = max(code, CHECK_FAILED)
        if not as_json:
            _print_verification(result)
    if as_json:
        say_json(results)
    return code


def _print_verification(result: Verification) -> None:
    counts = ", ".join(f"{n:,} {table}" for table, n in result.records.items())
    verdict = "intact" if result.ok else f"damaged, {plural(result.n_problems, 'problem')}"
    say(f"{result.path}: {verdict} ({counts})")
    for problem in result.problems:
        say(f"  {problem}")
    if result.n_problems > len(result.problems):
        say(f"  and {result.n_problems - len(result.problems):,} more")
    for note in result.notes:
        say(f"  note: {note}")


@expand_options
def export(
    store: Annotated[
        Path, typer.Argument(metavar="STORE", help="The trial store.", show_default=False)
    ],
    output: Annotated[
        Path, option("PATH", "A file or - for jsonl, a folder for samples.", "-o", "--output")
    ],
    form: Annotated[
        Literal["jsonl", "samples"],
        option(
            None,
            "jsonl: every record on a line. samples: the harness's samples_*.jsonl.",
            "--format",
        ),
    ] = "jsonl",
    overwrite: Overwrite = False,
    as_json: Json = False,
) -> None:
    """Export a store as JSON lines, or in the harness's format of logged samples.

    As jsonl, damaged records are left out, with a warning and exit code 1; as samples, a damaged
    store is refused.

    \b
    Examples:
      lm-eval-bayes store export runs/aime.sqlite -o aime.jsonl
      lm-eval-bayes store export runs/aime.sqlite --format samples -o samples/
    """
    from lm_eval_bayes._util.files import folder_for
    from lm_eval_bayes.store.export import export_jsonl, export_lines
    from lm_eval_bayes.store.samples_export import export_samples

    report: ExportReport | SamplesReport
    if str(output) in STANDARD_OUTPUT:
        if form == "samples":
            rule = "be a folder for --format samples, which are several files"
            raise InvalidInputError.of("--output", "conflict", rule, str(output))
        check_standard_output(as_json=as_json)
        report = export_lines(store, sys.stdout)
    else:
        with folder_for(output, "--output"), named({"path": "--output", "folder": "--output"}):
            if form == "samples":
                report = export_samples(store, output, overwrite, _stored_name)
            else:
                report = export_jsonl(store, output, overwrite)
        if as_json:
            say_json(report)
        else:
            _print_export(report)
    n_damaged = getattr(report, "damaged", 0)
    if n_damaged:
        records = plural(n_damaged, "record is", "records are")
        warn(f"warning: {records} damaged and left out; see `lm-eval-bayes store info --check`")
        raise typer.Exit(CHECK_FAILED)


def _stored_name(fingerprint: Mapping[str, Any]) -> str:
    """Return the name that runs give a stored model."""
    from lm_eval_bayes.runs.model_arguments import model_name

    return model_name(fingerprint, str(fingerprint.get("backend") or ""))


def _print_export(report: ExportReport | SamplesReport) -> None:
    from lm_eval_bayes.store.export import ExportReport

    if isinstance(report, ExportReport):
        counts = f"{plural(report.trials, 'trial')}, {plural(report.lines, 'line')}"
        say(f"{report.path}: {counts}, {format_bytes(report.size)}")
        return
    for file in report.files:
        task = "not graded" if file.task is None else f"task {file.task}, {file.version}"
        say(f"{file.path}: {plural(file.lines, 'line')}, {plural(file.trials, 'trial')}, {task}")
    if not report.files:
        say(f"{report.folder}: nothing was written, the store has no trials")


@expand_options
def prune(
    stores: Stores,
    model: Annotated[str | None, option("HASH", "Only trials of this model.")] = None,
    sampling: Annotated[str | None, option("HASH", "Only trials of this sampling.")] = None,
    prompt: Annotated[str | None, option("HASH", "Only trials of this prompt.")] = None,
    trials_from: Annotated[int | None, option("N", "Only trials N, N + 1, …, from 0.")] = None,
    yes: Annotated[bool, option(None, "Delete; without it, only count.", "--yes")] = False,
    as_json: Json = False,
) -> None:
    """Delete the trials that meet all criteria, or count them.

    Without --yes nothing is deleted. Outcomes, descriptions and signals of the trials are deleted
    with them. `store info --verbose` shows the hashes.

    \b
    Examples:
      lm-eval-bayes store prune runs/aime.sqlite --trials-from 16
      lm-eval-bayes store prune runs/aime.sqlite --model blake2b-128:0f... --yes
    """
    from lm_eval_bayes._util.files import resolve_path
    from lm_eval_bayes.store.trial_store import TrialStore

    criteria: dict[str, Any] = {
        "model": model,
        "sampling": sampling,
        "prompt": prompt,
        "trials_from": trials_from,
    }
    paths = [resolve_path(path) for path in stores]

    def prune_store(path: Path, dry_run: bool) -> PruneReport:
        TrialStore.open(path, mode="read").close()  # a missing one would be created for writing
        with TrialStore.open(path) as store:
            return store.prune(**criteria, dry_run=dry_run)

    # A dry run of all stores comes first, so that an error in one leaves all of them unchanged.
    reports = [prune_store(path, True) for path in paths]
    if yes:
        reports = [prune_store(path, False) for path in paths]
    if as_json:
        pairs = zip(paths, reports, strict=True)
        say_json([{"path": str(path), **report.to_dict()} for path, report in pairs])
        return
    for path, report in zip(paths, reports, strict=True):
        names = ("trials", "outcomes", "prompts", "prompt_signals", "models", "samplings")
        say(f"{path}: {'deleted' if yes else 'to be deleted'}: {_counts(report, *names)}")
    if not yes:
        say("nothing was deleted; add --yes to delete")
