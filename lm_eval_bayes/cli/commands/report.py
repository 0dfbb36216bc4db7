"""`lm-eval-bayes report`: saved runs as one HTML page, and its figures as files."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Optional

import typer

from lm_eval_bayes._util.text import format_bytes, plural
from lm_eval_bayes.cli.ui.errors import named_as_options
from lm_eval_bayes.cli.ui.output import say, say_json, say_table
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
    interval_spec,
    read,
)
from lm_eval_bayes.errors import InvalidInputError

if TYPE_CHECKING:
    from lm_eval_bayes.analysis.report_data import ReportData

#: What `-o` takes for standard output.
STDOUT = ("-", "/dev/stdout", "/dev/fd/1", "/proc/self/fd/1")
#: So many runs take long enough to tell how far they are.
_MANY = 12


def command(
    runs: Runs,
    output: Annotated[
        Path,
        typer.Option("-o", "--output", metavar="FILE", help="The page; - is standard output."),
    ] = Path("report.html"),
    plots: Annotated[
        Optional[Path],  # noqa: UP045  typer reads this on Python 3.10 too
        typer.Option(
            metavar="DIR", help="Also write the figures, each as PNG and as SVG, into this folder."
        ),
    ] = None,
    title: Annotated[
        Optional[str],  # noqa: UP045
        typer.Option(metavar="TEXT", help="Head of the page. By default the tasks' names."),
    ] = None,
    task: Task = None,
    metric: Metric = None,
    filter: Filter = None,
    dedupe: Dedupe = False,
    regrade: Regrade = False,
    level: Level = 0.95,
    scope: ScopeOption = Scope.benchmark,
    interval: Interval = IntervalKind.exact,
    seed: Seed = 0,
    overwrite: Annotated[
        bool,
        typer.Option("--overwrite", help="Replace files that are there and are no reports."),
    ] = False,
    as_json: Json = False,
) -> None:
    """Make one self-contained HTML page of saved runs.

    The page has a leaderboard with intervals, who is better than whom, every question with
    every model's score, how the scores became known with N, what they cost in tokens, scores
    under rubrics where the runs recorded what these need, and how everything was made. It is one
    file that fetches nothing, and everything that a model or a dataset wrote is escaped. Keys
    and tokens among the settings of a run are left out.

    An earlier report of the same name is replaced; any other file only with --overwrite.

    \b
    Examples:
      lm-eval-bayes report runs/qwen runs/phi -o report.html
      lm-eval-bayes report runs/* --task aime25_bayes --plots figures/ --scope population
    """
    from lm_eval_bayes.stats.validation import check_level, check_seed

    with named_as_options("level", "seed"):
        check_level(level)
        check_seed(seed)
    to_stdout = str(output) in STDOUT
    if to_stdout and sys.stdout is None:
        raise InvalidInputError("standard output is closed: name a file with --output")
    if to_stdout and as_json:
        rule = "be left out where --output is standard output, which gets the page"
        raise InvalidInputError.of("--json", rule, str(output))
    if not to_stdout:
        _check_page(output, overwrite)
    if plots is not None:
        from lm_eval_bayes.report.plots.files import check_folder

        check_folder(plots, overwrite)
    saved = read(
        runs,
        task=task,
        metric=metric,
        filter=filter,
        dedupe=dedupe,
        regrade=regrade,
        signals="recorded",
    )

    from lm_eval_bayes.analysis.report_data import report_data
    from lm_eval_bayes.cli.ui.progress import Progress
    from lm_eval_bayes.report.page.render import render

    # a few runs take a second or two, of which nobody needs to be told
    many = len(saved.runs) >= _MANY
    with Progress("runs worked out", len(saved.runs) if many else 0) as progress:
        contents = report_data(
            saved,
            interval_spec(level, seed, scope, interval),
            progress=(lambda n: progress.advance(n - progress.done)) if many else None,
        )
    page = render(contents, title=title or "", now=time.time()).encode("utf-8")
    drawn = _draw(contents, plots)
    if to_stdout:
        sys.stdout.buffer.write(page)
        sys.stdout.buffer.flush()
    else:
        _write(page, output)
    told = _told(contents, None if to_stdout else output, len(page), drawn)
    if as_json:
        say_json(told)
    elif not to_stdout:
        parts = [plural(len(contents.models), "model"), plural(len(contents.tasks), "task")]
        say(f"{output}: {', '.join(parts)}, {format_bytes(len(page))}")
        if drawn:
            rows = [(one["file"], one["task"]) for one in told["plots"]]
            say_table(f"figures in {plots}", ("file", "task"), rows)


def _told(
    contents: ReportData, output: Path | None, n_bytes: int, drawn: Sequence[tuple[Path, str]]
) -> dict[str, Any]:
    return {
        "path": None if output is None else str(output),
        "bytes": n_bytes,
        "models": list(contents.models),
        "tasks": list(contents.tasks),
        "questions": contents.n_questions,
        "trials": contents.n_trials,
        "scope": contents.spec.scope,
        "level": contents.spec.level,
        "interval": contents.spec.method,
        "seed": contents.spec.seed,
        "plots": [{"file": path.name, "task": task} for path, task in drawn],
    }


# -- files ---------------------------------------------------------------------------------------


def _check_page(path: Path, overwrite: bool) -> None:
    """Refuse, before any work, a file that the page could not become."""
    from lm_eval_bayes._util.files import check_writable
    from lm_eval_bayes.report.page.render import MARK

    check_writable(path, "--output")
    if not path.exists():
        return
    if not path.is_file():
        raise InvalidInputError.of("--output", "be a regular file", str(path))
    if overwrite:
        return
    with suppress(OSError), open(path, "rb") as file:
        if MARK.encode() in file.read(4096):
            return
    rule = "be a new file or an earlier report; --overwrite replaces any other"
    raise InvalidInputError.of("--output", rule, str(path))


def _write(page: bytes, path: Path) -> None:
    from lm_eval_bayes._util.files import write_atomic

    try:
        # a link stays one: what it leads to is replaced
        write_atomic(Path(os.path.realpath(path)), page)
    except OSError as error:
        rule = f"be a file that can be written; {path}: {error.strerror}"
        raise InvalidInputError.of("--output", rule, path.name) from None


def _draw(contents: ReportData, folder: Path | None) -> list[tuple[Path, str]]:
    """Write the figures; return every file with its task."""
    if folder is None:
        return []
    from lm_eval_bayes.report.plots.files import report_figures, write_figures

    found = report_figures(contents)
    write_figures(found, folder)
    return [(path, one.task) for one in found for path in one.paths(folder)]
