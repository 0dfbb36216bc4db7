"""Output of the commands: rich on a terminal, plain text in a pipe, JSON on request.

File names, model names and other untrusted text are never interpreted as markup, and control
characters in them are escaped.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Sequence
from contextlib import suppress
from typing import Any

import typer

from lm_eval_bayes._util.text import one_line


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
    """Print a JSON value, in ASCII."""
    typer.echo(json.dumps(value, indent=2, allow_nan=False))


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


def _encodable(text: str, stream: Any) -> str:
    """Escape characters that the encoding of the stream lacks."""
    encoding = getattr(stream, "encoding", None) or "utf-8"
    return text.encode(encoding, "backslashreplace").decode(encoding)
