"""Output of the commands: lines, tables, JSON, and the progress of long work.

On a terminal tables and progress are drawn by rich; in a pipe they are plain text.

File names, model names and other untrusted text are never interpreted as markup, and control
characters in them are escaped.
"""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import ExitStack, suppress
from typing import Any, TypeVar

import typer

from lm_eval_bayes._util.text import one_line

T = TypeVar("T")

#: Seconds between two lines of progress in a pipe.
EVERY_S = 15.0


def say(text: object = "") -> None:
    """Print one line."""
    typer.echo(_encodable(one_line(text), sys.stdout))


def warn(text: object) -> None:
    """Print one line to standard error; ignored if standard error cannot be written."""
    try:
        typer.echo(_encodable(one_line(text), sys.stderr), err=True)
    except OSError:
        discard(sys.stderr)


def discard(stream: Any) -> None:
    """Discard what a stream could not write, or the interpreter would try again at its end."""
    with suppress(OSError):
        null = os.open(os.devnull, os.O_WRONLY)
        os.dup2(null, stream.fileno())
        os.close(null)


def say_json(value: Any) -> None:
    """Print a JSON value, in ASCII; records in it by their `to_dict`."""
    text = json.dumps(value, indent=2, allow_nan=False, default=lambda record: record.to_dict())
    typer.echo(text)


def say_table(title: str, head: Sequence[str], rows: Sequence[Sequence[object]]) -> None:
    """Print a table: drawn by rich on a terminal, else in columns separated by two spaces."""
    lines = [[one_line(cell) for cell in row] for row in rows]
    if sys.stdout is not None and sys.stdout.isatty():
        from lm_eval_bayes.cli.ui.terminal_table import draw

        draw(title, head, lines)
        return
    widths = [max(map(len, column)) for column in zip(head, *lines, strict=True)]
    say(title)
    for line in [list(head), *lines]:
        cells = [cell.ljust(width) for cell, width in zip(line, widths, strict=True)]
        say("  " + "  ".join(cells).rstrip())


def say_records(
    title: str, records: Iterable[T], columns: Mapping[str, Callable[[T], object]]
) -> None:
    """Print a table with a line for every record; a column has its head and its cells' function."""
    rows = [[cell(record) for cell in columns.values()] for record in records]
    say_table(title, list(columns), rows)


def say_each(items: Iterable[T], show: Callable[[T], None]) -> None:
    """Show items, with an empty line between them."""
    for number, item in enumerate(items):
        if number:
            say()
        show(item)


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
        The number of steps.

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

    def __enter__(self) -> Progress:
        if self.total and sys.stderr.isatty():
            from rich.console import Console
            from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeRemainingColumn
            from rich.progress import Progress as Bars

            self._bar = Bars(
                TextColumn("{task.description}", markup=False),
                BarColumn(),
                MofNCompleteColumn(),
                TimeRemainingColumn(),
                console=Console(stderr=True),
            )
            self._task = self._bar.add_task(self.what, total=self.total)
            self.enter_context(self._bar)
        return self

    def advance(self, n: int) -> None:
        """Add `n` steps to those done."""
        self.done += n
        if self._bar is not None:
            self._bar.advance(self._task, n)
            return
        now = time.monotonic()
        if now - self._last_line >= EVERY_S or self.done >= self.total:
            self._last_line = now
            rate = self.done / max(now - self._started, 1e-9)
            share = self.done / max(self.total, 1)
            warn(f"{self.what}: {self.done:,} of {self.total:,} ({share:.0%}, {rate:.2g} a second)")
