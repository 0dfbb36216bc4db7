"""The beginning of a file, by which the formats recognise their own."""

from __future__ import annotations

from functools import cached_property
from pathlib import Path

from lm_eval_bayes._util.compressed import plain_name
from lm_eval_bayes.runs.readers.json_files import beginning
from lm_eval_bayes.runs.readers.tables import JSON_LINES, first_row, names_of
from lm_eval_bayes.runs.readers.text_files import JsonLines, Row


class LogFile:
    """A file whose beginning is read once, for all formats that ask for it.

    What cannot be read, or is broken, has an empty beginning; a denied permission is an error.

    Parameters
    ----------
    path : Path
        The file.

    Attributes
    ----------
    name, suffix : str
        Its name, and the ending of that, without the one of a compressed file.
    """

    def __init__(self, path: Path) -> None:
        self.path, self.name, self.suffix = path, path.name, plain_name(path).suffix

    @cached_property
    def beginning(self) -> bytes:
        """The first bytes, 4096 at most, without a byte order mark."""
        return beginning(self.path)

    @cached_property
    def first_line(self) -> Row:
        """The object in the first line of JSON; empty for other files."""
        if self.suffix not in JSON_LINES:
            return {}
        return first_row(JsonLines(self.path, unique_keys=False)) or {}

    @cached_property
    def columns(self) -> list[str]:
        """The names of the columns of a table; empty for any other file."""
        return list(self.first_line) or list(first_row(names_of(self.path)) or ())
