"""Reading saved runs: its options, and its warnings and progress on standard error."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Sequence
from dataclasses import Field, fields
from inspect import Parameter
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal, get_origin, get_type_hints

import typer

from lm_eval_bayes.cli.ui.options import MORE, READING, keyword, option
from lm_eval_bayes.cli.ui.output import Progress, warn_after, warn_notes
from lm_eval_bayes.errors import InvalidInputError
from lm_eval_bayes.runs.query import Query

if TYPE_CHECKING:
    from lm_eval_bayes.runs.task_run import SavedRuns

#: Bytes from which reading takes long enough for a progress bar.
_LONG = 50_000_000
#: Bytes of one step of the bar.
_UNIT = 1_000_000
#: Names of files of the harness, and of verdicts on its samples.
_OF_HARNESS = re.compile(r"results(_.*)?\.json|(samples|verdicts)_.*\.jsonl")


def _path(text: str) -> Path:
    if not text:  # as of a variable of the shell that is not set
        raise typer.BadParameter("it is empty")
    return Path(text)


Runs = Annotated[
    list[Path],
    typer.Argument(
        metavar="RUN",
        parser=_path,
        help="Output folders or files of the harness, trial stores, tables of trials, or logs of "
        "other tools: see `lm-eval-bayes doctor --formats`.",
    ),
]

#: The options of reading that `--help` shows.
_SHOWN = ("task", "metric", "filter", "dedupe", "columns", "settings", "setting")
#: The fields of `Query` that are options, by the names of these.
_DECLARED = {f.metadata.get("option", f.name): f for f in fields(Query) if f.metadata}


class ReadingOptions:
    """Which trials of saved runs are counted: options that `Query` declares, as they are given."""

    names = tuple(_DECLARED)

    def __init__(self, **given: Any) -> None:
        self.given = given

    @classmethod
    def parameters(cls) -> list[Parameter]:
        """Return the options as parameters of a command."""
        return [_parameter(name, _DECLARED[name]) for name in cls.names]

    def words(self) -> list[str]:
        """Return the options that were given, as words of a command line."""
        words = []
        for parameter in self.parameters():
            given = self.given.get(parameter.name, parameter.default)
            for value in given if isinstance(given, (list, tuple)) else [given]:
                if value != parameter.default:
                    words.append(f"--{parameter.name.replace('_', '-')}")
                    words += [] if value is True else [value]
        return words

    def read(self, paths: Sequence[Path], **arguments: Any) -> SavedRuns:
        """Read runs; warnings, notes and the progress of long reads go to standard error.

        Further arguments are those of :func:`lm_eval_bayes.runs.reader.read_runs`.

        Raises
        ------
        InvalidInputError
            If a path holds no run, or the runs contradict each other.
        """
        from lm_eval_bayes.runs.reader import read_runs

        arguments["regrade"] = None
        if self.given.get("regrade"):
            from lm_eval_bayes.harness.grading.grade import regraded

            arguments["regrade"] = regraded
        with Progress("megabytes read", 0) as progress:

            def show(done: int, total: int) -> None:
                progress.total = total // _UNIT if total >= _LONG else 0
                progress.advance(done // _UNIT - progress.done)

            for name, value in self.given.items():
                declared = _DECLARED[name]
                if value is not None and declared.name not in arguments:
                    parse = declared.metadata.get("parse")
                    arguments[declared.name] = parse(value) if parse else value
            saved = read_runs(paths, progress=show, **arguments)
        for warning in saved.warnings:
            warn_after(f"warning: {warning}")
        for note in saved.notes:
            warn_after(f"note: {note}", is_note=True)
        warn_notes((run.task, [run.model], note) for run in saved.runs for note in run.notes)
        return saved


class TaskOptions(ReadingOptions):
    """Which trials are counted, for commands that read what the harness logged."""

    names = ("task", "dedupe", "same_seeds")


def _parameter(name: str, declared: Field[Any]) -> Parameter:
    """Return an option of `Query` as a parameter of a command."""
    metavar, text = declared.metadata["metavar"], declared.metadata["help"]
    panel = READING if name in _SHOWN else MORE
    if metavar is None:
        flag = option(None, text, f"--{name.replace('_', '-')}", panel=panel)
        return keyword(name, False, Annotated[bool, flag])
    hint = get_type_hints(Query)[declared.name]
    if get_origin(hint) is Literal:
        return keyword(name, declared.default, Annotated[hint, option(None, text, panel=panel)])
    texts: Any = list[str] if declared.metadata.get("many") else str
    return keyword(name, None, Annotated[texts | None, option(metavar, text, panel=panel)])


def check_not_read(
    outputs: Iterable[Path], paths: Sequence[Path], saved: SavedRuns, argument: str = "--output"
) -> None:
    """Refuse to replace a file that runs are read from, whether its task was chosen or not.

    Parameters
    ----------
    outputs : iterable of Path
        The files to be written.
    paths : sequence of Path
        The paths that were read.
    saved : SavedRuns
        The runs in them.
    argument : str
        Name of the argument of the outputs in the error.

    Raises
    ------
    InvalidInputError
        If an output is one of the paths, a file that a run is from, or a file of the harness beside
        it or below one of the paths.
    """
    sources = [*paths, *(Path(source) for run in saved.runs for source in run.sources)]
    read_folders = [os.path.realpath(path) for path in paths if path.is_dir()]
    samples = [path for path in sources if _OF_HARNESS.match(path.name)]
    beside = {os.path.realpath(path.parent) for path in samples}
    for output in outputs:
        if not output.exists():
            continue
        is_read = any(s.exists() and output.samefile(s) for s in sources)
        if not is_read and _OF_HARNESS.match(output.name):
            real = Path(os.path.realpath(output))
            is_below = any(real.is_relative_to(folder) for folder in read_folders)
            is_read = is_below or str(real.parent) in beside
        if is_read:
            rule = "be another file than those that the runs are read from"
            raise InvalidInputError.of(argument, "conflict", rule, str(output))
