"""Output of the commands: lines, tables, JSON, and the progress of long work.

On a terminal progress is drawn by rich; in a pipe it is plain text.

File names, model names and other untrusted text are never interpreted as markup, and control
characters in them are escaped. In jobs of GitHub Actions and Azure Pipelines, whose runners obey
commands in the output, those in such text are broken up by a blank.
"""

from __future__ import annotations

import json
import os
import shutil
import sys
import textwrap
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from contextvars import ContextVar
from typing import Any, TypeVar

import typer

from lm_eval_bayes._util.text import (
    begins_with_count,
    one_line,
    plural,
    without_commands,
)
from lm_eval_bayes.errors import InvalidInputError

T = TypeVar("T")

#: Seconds between two lines of progress in a pipe.
EVERY_S = 15.0
#: Names of models, tasks or runs that a note is said to be about.
_MOST_NAMES = 8
#: Whether tables have all columns; they have unless a command has the option --verbose.
_WIDE = ContextVar("wide", default=True)
#: Warnings that wait until the answer is printed, and notes, which only --verbose shows.
_WAITING: ContextVar[tuple[dict[str, None], dict[str, None]] | None] = ContextVar(
    "waiting", default=None
)
#: Warnings that are shown unasked.
_MOST_WARNINGS = 2


def say(text: object = "") -> None:
    """Print one line."""
    typer.echo(_encodable(_line(text), sys.stdout))


def warn(text: object, *, is_command: bool = False) -> None:
    """Print a line to standard error, on a terminal on lines that fit; ignored if it cannot.

    Parameters
    ----------
    text : object
        The line.
    is_command : bool
        Whether it is a command to a runner of CI jobs, and stays one.
    """
    lines = [_encodable(_line(text, is_command), sys.stderr)]
    if sys.stderr is not None and sys.stderr.isatty() and not is_command:
        width = shutil.get_terminal_size((80, 24)).columns
        lines = textwrap.wrap(lines[0], width, break_long_words=False, break_on_hyphens=False)
    try:
        for line in lines:
            typer.echo(line, err=True)
    except OSError:
        discard(sys.stderr)


def warn_after(text: str, *, is_note: bool = False) -> None:
    """Print a line to standard error after the answer of a command, at once where it has none.

    Of warnings two are shown and the rest counted; notes are shown with --verbose alone.
    """
    waiting = _WAITING.get()
    if waiting is None:
        warn(text)
    else:
        waiting[is_note][text] = None


def warn_notes(notes: Iterable[tuple[str, Sequence[str], str]], *, is_note: bool = False) -> None:
    """Print notes on standard error, each once with all that it is about; see `warn_after`.

    Parameters
    ----------
    notes : iterable of (str, sequence of str, str)
        The task, the models (none where the note is about all of the task), and the note.
    """
    by_note: dict[str, dict[str, dict[str, None]]] = {}
    for task, models, note in notes:
        by_note.setdefault(note, {}).setdefault(task, {}).update(dict.fromkeys(models))
    for note, tasks in by_note.items():
        n_runs = sum(map(len, tasks.values()))
        each = "each of " if n_runs > 1 and begins_with_count(note) else ""
        warn_after(f"note: {each}{_about(tasks)}: {note}")


def _about(tasks: Mapping[str, Mapping[str, None]]) -> str:
    """Return models and tasks in words: "A, B, aime" for models A and B of the task aime."""
    of_first = next(iter(tasks.values()))
    if all(models == of_first for models in tasks.values()):
        return ", ".join([*_first(list(of_first), "model"), *_first(list(tasks), "task")])
    pairs = [f"{model} on {task}" for task, models in tasks.items() for model in models]
    return ", ".join(_first(pairs, "run"))


def _first(names: list[str], noun: str) -> list[str]:
    """Return the first names, and how many more there are."""
    if len(names) <= _MOST_NAMES:
        return names
    return [*names[: _MOST_NAMES - 1], plural(len(names) - _MOST_NAMES + 1, f"more {noun}")]


def check_standard_output(*, as_json: bool) -> None:
    """Refuse `--output` that is standard output where that is closed, or gets JSON."""
    if as_json:
        rule = "be left out if --output is standard output"
        raise InvalidInputError.of("--json", "conflict", rule, "standard output")
    if sys.stdout is None:
        rule = "be a file where standard output is closed"
        raise InvalidInputError.of("--output", "conflict", rule, "standard output")


def discard(stream: Any) -> None:
    """Discard what a stream could not write, or the interpreter would try again at its end."""
    with suppress(OSError):
        null = os.open(os.devnull, os.O_WRONLY)
        os.dup2(null, stream.fileno())
        os.close(null)


def say_json(value: Any) -> None:
    """Print a JSON value, in ASCII; records in it by their `to_dict`."""
    text = json.dumps(value, indent=2, allow_nan=False, default=lambda record: record.to_dict())
    typer.echo(text.replace("##", "#\\u0023") if _in_ci() else text)  # it stands in strings alone


def all_columns() -> bool:
    """Return whether tables have all columns and rows."""
    return _WIDE.get()


@contextmanager
def tables_with_all_columns(wide: bool) -> Iterator[None]:
    """Set whether tables have all columns, or are one block that fits the terminal."""
    tokens = _WIDE.set(wide), _WAITING.set(({}, {}))
    try:
        yield
    finally:
        warnings, notes = _WAITING.get() or ({}, {})
        _WIDE.reset(tokens[0])
        _WAITING.reset(tokens[1])
        shown = [*warnings, *notes] if wide else [*warnings][:_MOST_WARNINGS]
        for line in shown:
            warn(line)
        if len(warnings) > len(shown):
            warn(f"{len(warnings) - len(shown)} more: --verbose")


def say_each(
    items: Sequence[T], show: Callable[[T], None], title: Callable[[T], str] | None = None
) -> None:
    """Show items, with an empty line between them, and of several the title of each."""
    for number, item in enumerate(items):
        if number:
            say()
        if title is not None and len(items) > 1:
            say(f"{title(item)}:")
        show(item)


def _in_ci() -> bool:
    """Return whether a runner of GitHub Actions or Azure Pipelines reads the output."""
    return any(map(os.environ.get, ("GITHUB_ACTIONS", "TF_BUILD")))


def _line(text: object, is_command: bool = False) -> str:
    """Return a text on one line that is no command to a runner unless it is to be one."""
    line = one_line(text)
    return line if is_command or not _in_ci() else without_commands(line)


def _encodable(text: str, stream: Any) -> str:
    """Escape characters that the encoding of the stream lacks."""
    encoding = getattr(stream, "encoding", None) or "utf-8"
    return text.encode(encoding, "backslashreplace").decode(encoding)


class Progress(ExitStack):
    """Progress on standard error.

    Parameters
    ----------
    what : str
        The label, such as "answers judged".
    total : int
        The number of steps, which may be set later; 0 shows nothing.

    Attributes
    ----------
    done : int
        The number of steps done.
    """

    def __init__(self, what: str, total: int) -> None:
        super().__init__()
        self.what, self.total, self.done = one_line(what), total, 0
        self._bar: Any = None
        self._started = self._last_line = time.monotonic()

    def advance(self, n: int) -> None:
        """Add `n` steps to those done."""
        self.done += n
        if not self.total or not n:
            return
        if sys.stderr is not None and sys.stderr.isatty():
            self._draw()
            return
        now = time.monotonic()
        if now - self._last_line >= EVERY_S or self.done >= self.total:
            self._last_line = now
            rate, share = self.done / max(now - self._started, 1e-9), self.done / self.total
            warn(f"{self.what}: {self.done:,} of {self.total:,} ({share:.0%}, {rate:.2g} a second)")

    def _draw(self) -> None:
        if self._bar is None:
            from rich.console import Console
            from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeRemainingColumn
            from rich.progress import Progress as Bars

            label = TextColumn("{task.description}", markup=False)
            columns = (label, BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
            self._bar = self.enter_context(Bars(*columns, console=Console(stderr=True)))
            self._task = self._bar.add_task(self.what, total=self.total)
        self._bar.update(self._task, completed=self.done)
