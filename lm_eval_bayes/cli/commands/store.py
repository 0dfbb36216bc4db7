"""`lm-eval-bayes store`: look at trial stores, bring them together, check, export, prune."""

from __future__ import annotations

import sys
from enum import Enum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Optional

import typer

from lm_eval_bayes._util.text import format_bytes, plural
from lm_eval_bayes.cli.ui.errors import named_as_options
from lm_eval_bayes.cli.ui.exit_codes import CHECK_FAILED, ERROR
from lm_eval_bayes.cli.ui.output import say, say_json, say_table, warn
from lm_eval_bayes.errors import InvalidInputError

if TYPE_CHECKING:
    from lm_eval_bayes.store.info import StoreInfo
    from lm_eval_bayes.store.prune import PruneReport
    from lm_eval_bayes.store.trial import Conflict

app = typer.Typer(
    no_args_is_help=True,
    rich_markup_mode=None,
    help="Look at trial stores, merge, verify, export and prune them.",
)

#: Conflicts that are printed, one a line; --json gives all that the merge names.
SHOWN = 5

#: What `export -o` takes for standard output.
STDOUT = ("-", "/dev/stdout", "/dev/fd/1", "/proc/self/fd/1")

Stores = Annotated[
    list[Path],
    typer.Argument(metavar="STORE", help="Files of trial stores.", show_default=False),
]
Json = Annotated[bool, typer.Option("--json", help="Print JSON.")]


class Format(str, Enum):
    """What `store export` writes."""

    jsonl = "jsonl"
    samples = "samples"


@app.command()
def info(stores: Stores, as_json: Json = False) -> None:
    """Count what stores hold.

    Trials by model and sampling, tokens, and what the trials were graded as, task by task.

    \b
    Examples:
      lm-eval-bayes store info runs/aime.sqlite
      lm-eval-bayes store info --json runs/*.sqlite | jq '.[].trials'
    """
    from lm_eval_bayes._util.plain import to_plain
    from lm_eval_bayes.store.trial_store import TrialStore

    found = []
    for path in stores:
        with TrialStore.open(path, mode="read") as store:
            found.append(store.info())
    if as_json:
        say_json(to_plain([one.to_dict() for one in found]))
        return
    for number, one in enumerate(found):
        if number:
            say()
        _show(one)


def _show(found: StoreInfo) -> None:
    from lm_eval_bayes._util.hashing import canonical_json

    beside = f" and {format_bytes(found.log_bytes)} of log" if found.log_bytes else ""
    say(f"{found.path}: schema {found.schema}, {format_bytes(found.file_bytes)}{beside}")
    held = [
        plural(found.trials, "trial"),
        plural(found.prompts, "prompt"),
        plural(found.prompt_signals, "prompt with signals", "prompts with signals"),
        plural(found.outcomes, "graded outcome"),
    ]
    say(", ".join(held))
    for title, described in (("models", found.models), ("samplings", found.samplings)):
        if described:
            rows = [(digest, canonical_json(value)) for digest, value in described.items()]
            say_table(title, ("hash", "stands for"), rows)
    if found.series:
        columns = ("model", "sampling", "prompts", "trials", "a prompt", "tokens", "from", "to")
        say_table("trials", columns, [_series(one) for one in found.series])
    if found.tasks:
        head = ("task", "version", "filter", "categories", "questions", "outcomes")
        graded = [
            (one.task, one.version, one.filter, one.categories, one.questions, f"{one.outcomes:,}")
            for one in found.tasks
        ]
        say_table("graded", head, graded)


def _series(one: Any) -> tuple[object, ...]:
    each = str(one.fewest) if one.fewest == one.most else f"{one.fewest} to {one.most}"
    numbers = (f"{one.prompts:,}", f"{one.trials:,}", each, f"{one.completion_tokens:,}")
    return (one.model, one.sampling, *numbers, _date(one.first), _date(one.last))


def _date(seconds: float) -> str:
    from datetime import datetime, timezone

    try:
        return datetime.fromtimestamp(seconds, timezone.utc).strftime("%Y-%m-%d %H:%M")
    except (OverflowError, OSError, ValueError):
        return "?"


@app.command()
def merge(
    stores: Stores,
    output: Annotated[
        Path,
        typer.Option("-o", "--output", metavar="TARGET", help="The store that shall hold all."),
    ],
    keep_first: Annotated[
        bool, typer.Option("--keep-first", help="Where stores disagree, keep the first trial.")
    ] = False,
    as_json: Json = False,
) -> None:
    """Bring several stores together: all of it, or nothing.

    The stores may come from ranks, jobs or other computers. The target may exist, and may be
    among the stores. Where two stores hold a trial with another text or seed, this is told, and
    nothing is merged unless --keep-first is given.

    \b
    Examples:
      lm-eval-bayes store merge runs/aime*.sqlite -o runs/all.sqlite
      lm-eval-bayes store merge a.sqlite b.sqlite -o all.sqlite --keep-first
    """
    from lm_eval_bayes._util.files import folder_for, resolve_path
    from lm_eval_bayes.store.errors import TrialConflictError
    from lm_eval_bayes.store.merge import merge as merge_stores

    target = resolve_path(output)
    if all(resolve_path(path) == target for path in stores):
        raise InvalidInputError(
            f"{target} is the target of --output and the only store that was given: there is "
            "nothing to merge"
        )
    try:
        with folder_for(output, "--output"):
            report = merge_stores(stores, output, "keep-first" if keep_first else "refuse")
    except TrialConflictError as error:
        warn(f"error: {error}")
        conflicts: list[Any] = list(error.conflicts)
        if as_json:
            named = [one.to_dict() for one in conflicts]
            say_json({"merged": False, "n_conflicts": error.n_conflicts, "conflicts": named})
        else:
            _name(conflicts, error.n_conflicts)
            warn("with --keep-first the trial of the store that comes first is kept")
        raise typer.Exit(ERROR) from None
    if as_json:
        say_json({"merged": True, **report.to_dict()})
        return
    say(
        f"{report.target}: {plural(report.added, 'trial')} added, {report.known:,} were there, "
        f"{plural(report.outcomes, 'graded outcome')} added"
    )
    if report.n_conflicts:
        say(f"{plural(report.n_conflicts, 'trial')} differed, and the first was kept")
        _name(list(report.conflicts), report.n_conflicts)
    for note in report.notes:
        say(f"note: {note}")


def _name(conflicts: list[Conflict], n_conflicts: int) -> None:
    for conflict in conflicts[:SHOWN]:
        warn(f"  {_shortened(conflict)}")
    more = n_conflicts - SHOWN
    if more > 0:
        up_to = "" if n_conflicts == len(conflicts) else f" up to {len(conflicts):,}"
        warn(f"  and {more:,} more; --json names{up_to or ' all'}, with whole hashes")


def _shortened(conflict: Conflict) -> str:
    """Name a conflict with the first digits of its hashes."""
    from dataclasses import replace

    digits = {name: h.rpartition(":")[2][:8] for name, h in conflict.key.to_dict().items()}
    return str(replace(conflict, key=replace(conflict.key, **digits)))


@app.command()
def verify(stores: Stores, as_json: Json = False) -> None:
    """Check that stores hold what was written.

    SQLite's own structure is checked, and a hash of every trial and graded outcome. Ends with
    exit code 1 if anything is not what was written.

    \b
    Examples:
      lm-eval-bayes store verify runs/aime.sqlite
      lm-eval-bayes store verify --json backup/*.sqlite
    """
    from lm_eval_bayes.store.errors import StoreError
    from lm_eval_bayes.store.verify import verify as verify_store

    found, code = [], 0
    for path in stores:
        try:
            one = verify_store(path)
        except StoreError as error:
            # The others shall be checked all the same.
            warn(f"error: {error}")
            code = ERROR
            continue
        found.append(one)
        if not one.ok:
            code = max(code, CHECK_FAILED)
        if as_json:
            continue
        counted = [
            plural(one.trials, "trial"),
            plural(one.descriptions, "description"),
            plural(one.prompt_signals, "prompt with signals", "prompts with signals"),
            plural(one.outcomes, "graded outcome"),
        ]
        verdict = "sound" if one.ok else f"not sound, {plural(one.n_problems, 'problem')}"
        say(f"{one.path}: {verdict} ({', '.join(counted)} checked)")
        for problem in one.problems:
            say(f"  {problem}")
        if one.n_problems > len(one.problems):
            say(f"  and {one.n_problems - len(one.problems):,} more")
    if as_json:
        say_json([one.to_dict() for one in found])
    raise typer.Exit(code)


@app.command()
def export(
    store: Annotated[Path, typer.Argument(metavar="STORE", help="The file.", show_default=False)],
    output: Annotated[
        Path,
        typer.Option(
            "-o",
            "--output",
            metavar="PATH",
            help="A file for jsonl (- is standard output), a folder for samples.",
        ),
    ],
    form: Annotated[
        Format,
        typer.Option(
            "--format",
            help="jsonl: everything, one record a line. samples: the harness's samples_*.jsonl, "
            "a file for each model and sampling (and task).",
        ),
    ] = Format.jsonl,
    overwrite: Annotated[
        bool, typer.Option("--overwrite", help="Replace files that are there.")
    ] = False,
    as_json: Json = False,
) -> None:
    """Write a store as JSON lines, or as the harness's logs of samples.

    To export several stores, merge them first. What is damaged but can be read is exported as
    it is; then this is told, and the exit code is 1.

    \b
    Examples:
      lm-eval-bayes store export runs/aime.sqlite -o aime.jsonl
      lm-eval-bayes store export runs/aime.sqlite --format samples -o samples/
    """
    to_stdout = str(output) in STDOUT
    if form is Format.samples:
        if to_stdout:
            raise InvalidInputError("samples are several files: name a folder with --output")
        damaged = _export_samples(store, output, overwrite, as_json)
    elif to_stdout:
        if as_json:
            rule = "be left out where --output is standard output, which gets the lines"
            raise InvalidInputError.of("--json", rule, str(output))
        damaged = _export_to_stdout(store)
    else:
        damaged = _export_jsonl(store, output, overwrite, as_json)
    if damaged:
        warn(
            f"warning: {plural(damaged, 'record')} exported from {store} "
            f"{'is' if damaged == 1 else 'are'} not what was written; "
            "`lm-eval-bayes store verify` tells more"
        )
        raise typer.Exit(CHECK_FAILED)


def _export_jsonl(store: Path, output: Path, overwrite: bool, as_json: bool) -> int:
    from lm_eval_bayes._util.files import folder_for
    from lm_eval_bayes.store.export import export_jsonl

    with folder_for(output, "--output"):
        written = export_jsonl(store, output, overwrite)
    if as_json:
        say_json(written.to_dict())
    else:
        lines = f"{plural(written.trials, 'trial')}, {plural(written.lines, 'line')}"
        say(f"{written.path}: {lines}, {format_bytes(written.size)}")
    return written.damaged


def _export_to_stdout(store: Path) -> int:
    from lm_eval_bayes.store.export import export_lines

    if sys.stdout is None:
        raise InvalidInputError("standard output is closed: name a file with --output")
    return export_lines(store, sys.stdout).damaged


def _export_samples(store: Path, output: Path, overwrite: bool, as_json: bool) -> int:
    from lm_eval_bayes._util.files import folder_for
    from lm_eval_bayes.store.samples_export import export_samples

    with folder_for(output, "--output"):
        report = export_samples(store, output, overwrite)
    if as_json:
        say_json(report.to_dict())
        return report.damaged
    for file in report.files:
        of_task = "not graded" if file.task is None else f"task {file.task}, {file.version}"
        held = f"{plural(file.lines, 'line')}, {plural(file.trials, 'trial')}"
        say(f"{file.path}: {held}, {of_task}")
    if not report.files:
        say(f"{report.folder}: nothing was written, the store has no trials")
    return report.damaged


@app.command()
def prune(
    stores: Stores,
    model: Annotated[
        Optional[str],  # noqa: UP045  typer reads this on Python 3.10 too
        typer.Option("--model", metavar="HASH", help="Only trials of this model."),
    ] = None,
    sampling: Annotated[
        Optional[str],  # noqa: UP045
        typer.Option("--sampling", metavar="HASH", help="Only trials of this sampling."),
    ] = None,
    prompt: Annotated[
        Optional[str],  # noqa: UP045
        typer.Option("--prompt", metavar="HASH", help="Only trials of this prompt."),
    ] = None,
    trials_from: Annotated[
        Optional[int],  # noqa: UP045
        typer.Option("--trials-from", metavar="N", help="Only trials numbered N and up, from 0."),
    ] = None,
    yes: Annotated[bool, typer.Option("--yes", help="Delete; without it, only count.")] = False,
    as_json: Json = False,
) -> None:
    """Delete trials that meet all criteria, or count them.

    Without --yes nothing is deleted. What the trials were graded as goes with them, and so does
    whatever only they needed.

    \b
    Examples:
      lm-eval-bayes store prune runs/aime.sqlite --trials-from 16
      lm-eval-bayes store prune runs/aime.sqlite --model blake2b-128:0f... --yes
    """
    from lm_eval_bayes._util.files import resolve_path
    from lm_eval_bayes.store.trial_store import TrialStore

    if model is None and sampling is None and prompt is None and trials_from is None:
        raise InvalidInputError(
            "nothing says what to delete: give --model, --sampling, --prompt or --trials-from"
        )
    places = [resolve_path(path) for path in stores]

    def pruned(path: Path, dry_run: bool) -> PruneReport:
        # Opened for reading first, since opening for writing would make a store that is missing.
        TrialStore.open(path, mode="read").close()
        with TrialStore.open(path) as store:
            return store.prune(
                model=model,
                sampling=sampling,
                prompt=prompt,
                trials_from=trials_from,
                dry_run=dry_run,
            )

    # All of them are counted before anything is deleted: a slip ends it here.
    with named_as_options("model", "sampling", "prompt", "trials_from"):
        reports = [pruned(path, True) for path in places]
        if yes:
            reports = [pruned(path, False) for path in places]
    if as_json:
        named = zip(places, reports, strict=True)
        say_json([{"path": str(path), **report.to_dict()} for path, report in named])
        return
    for path, report in zip(places, reports, strict=True):
        verb = "deleted" if yes else "to be deleted"
        parts = [
            plural(report.trials, "trial"),
            plural(report.outcomes, "graded outcome"),
            plural(report.prompts, "prompt"),
            plural(report.prompt_signals, "prompt's signals", "prompts' signals"),
            plural(report.models, "model"),
            plural(report.samplings, "sampling"),
        ]
        say(f"{path}: {verb}: {', '.join(parts)}")
    if not yes:
        say("nothing was deleted; add --yes to delete")
