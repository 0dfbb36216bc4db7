"""Text files of rows, compressed or not: JSON objects, one per line, and CSV tables."""

from __future__ import annotations

import csv
import io
import json
from array import array
from collections import Counter
from collections.abc import Iterator
from itertools import chain
from pathlib import Path
from typing import IO, Any, AnyStr

from lm_eval_bayes._util.files import (
    ALWAYS_BYTES,
    COMPRESSED,
    UNREADABLE,
    open_bytes,
    plain_name,
)
from lm_eval_bayes._util.text import one_line
from lm_eval_bayes.errors import InvalidInputError
from lm_eval_bayes.runs.readers.protocol import unreadable

#: A byte order mark and blanks.
_BEFORE_JSON = b"\xef\xbb\xbf \t\r\n\f\v"

Row = dict[str, Any]


class JsonLines:
    """A file of JSON objects, one per line, which is never held in memory as a whole.

    The harness up to 0.4.2 wrote one array of them instead, which is read as a whole.

    Parameters
    ----------
    file : Path
        The file.
    unique_keys : bool
        Whether an object that has a key twice is refused, at any depth; otherwise the last one
        counts.

    Attributes
    ----------
    offsets : array of int
        The bytes at which the lines of the objects begin, as far as they were read.
    random_access : bool
        Whether the file can be read from these bytes on: it is neither compressed nor one array.
    warnings : tuple of str
        After the last line: whether it is cut off, as by a kill, and was left out.
    """

    def __init__(self, file: Path, *, unique_keys: bool = True) -> None:
        self.file, self.unique_keys = file, unique_keys
        self.offsets: array[int] = array("q")
        self.random_access = file.suffix not in COMPRESSED
        self.warnings: tuple[str, ...] = ()

    def __iter__(self) -> Iterator[Row]:
        """Yield the objects, line by line.

        Raises
        ------
        InvalidInputError
            If a line cannot be read, or the only one is cut off.
        """
        end, self.offsets = 0, array("q")
        try:
            with open_bytes(self.file) as lines:
                for number, line in enumerate(_lines(lines, self.file), 1):
                    begin, end = end, end + len(line)
                    is_array = not self.offsets and line.lstrip(_BEFORE_JSON)[:1] == b"["
                    if is_array:
                        line, self.random_access = line + lines.read(), False
                    for row in self._rows(line, 0 if is_array else number):
                        self.offsets.append(begin)
                        yield row
        except UNREADABLE as error:
            raise unreadable(error, self.file) from None

    def _rows(self, content: bytes, number: int) -> list[Row]:
        """Return the object of a line, none of the last if it is cut off; those of an array."""
        where = f" in line {number}" if number else ""
        if content.isspace():
            return []
        if not number:
            content = content.lstrip(_BEFORE_JSON)
        try:
            value = parsed(content, self.file, where, unique_keys=self.unique_keys)
        except InvalidInputError as error:
            if error.rule != "damaged" or content.endswith(b"\n") or not self.offsets:
                raise
            warning = f"{self.file} ends in the middle of line {number}"
            self.warnings = (f"{warning}; that line was left out",)
            return []
        rows = [value] if number else value
        for row in rows:
            if not isinstance(row, dict):
                rule = f"have one JSON object per line, or one array of objects, in {self.file}"
                got = f"{one_line(json.dumps(row), 40)}{where}"
                raise InvalidInputError.of("RUN", "format", rule, got)
        return rows


def parsed(content: bytes, file: Path, where: str = "", *, unique_keys: bool = True) -> Any:
    """Return the value of a JSON text, which is a file or a part of one.

    Parameters
    ----------
    content : bytes
        The text, in UTF-8 with or without a byte order mark.
    file : Path
        The file.
    where : str
        What follows the reason in an error, such as the line.
    unique_keys : bool
        Whether an object that has a key twice is refused.

    Raises
    ------
    InvalidInputError
        If it is no JSON, or an object has a key twice.
    """
    try:
        text = content.decode("utf-8-sig")
        return json.loads(text, object_pairs_hook=unique if unique_keys else None)
    except RepeatedKeyError as error:
        rule = f"have every key of an object once in {file}"
        raise InvalidInputError.of("RUN", "duplicate", rule, f"{error}{where}") from None
    except (ValueError, RecursionError) as error:
        got = f"{damage(error, content)}{where}"
        raise InvalidInputError.of("RUN", "damaged", f"have a complete {file}", got) from None


def damage(error: Exception, content: bytes) -> str:
    """Return why a text cannot be read."""
    if b"\x00" in content or isinstance(error, UnicodeDecodeError):
        return "bytes that are not UTF-8; convert it, as by iconv -f UTF-16LE -t UTF-8"
    return "values nested hundreds deep" if isinstance(error, RecursionError) else str(error)


class RepeatedKeyError(ValueError):
    """An object of a JSON text has a key twice."""


def unique(pairs: list[tuple[str, Any]]) -> Row:
    """Return an object whose keys are distinct, as an `object_pairs_hook`.

    Raises
    ------
    RepeatedKeyError
        If a key occurs twice; the message names it.
    """
    row = dict(pairs)
    if len(row) != len(pairs):
        key, n = Counter(key for key, _ in pairs).most_common(1)[0]
        raise RepeatedKeyError(f"{json.dumps(key)} {n} times")
    return row


def _lines(opened: IO[AnyStr], file: Path) -> Iterator[AnyStr]:
    """Yield the lines of a file; raise before one that is too long is in memory."""
    lines = iter(lambda: opened.readline(ALWAYS_BYTES + 1), opened.read(0))
    for number, line in enumerate(lines, 1):
        if len(line) > ALWAYS_BYTES:
            rule = f"have lines of at most {ALWAYS_BYTES:,} bytes in {file}"
            raise InvalidInputError.of("RUN", "range", rule, f"line {number}, which is longer")
        yield line


# -- CSV -----------------------------------------------------------------------------------------


def csv_lines(path: Path) -> Iterator[list[str]]:
    """Yield the rows of a CSV file in UTF-8 with commas, semicolons or tabs.

    A blank line is a row of empty cells, and left out at the beginning and the end of the file.

    Raises
    ------
    InvalidInputError
        If the file is no complete table: rows differ in length, a quote is not closed or closes
        within a cell, or the last cell is a number that ends in its decimal point.
    """
    rule = f"have a complete CSV file in {path.name}"
    line, cells, width, n_lines, n_blank = "", [""], 0, 0, 0
    csv.field_size_limit(max(csv.field_size_limit(), ALWAYS_BYTES))

    def texts(opened: IO[str]) -> Iterator[str]:
        nonlocal line
        for line in _lines(opened, path):
            if "\0" in line:
                raise csv.Error
            yield line

    try:
        # a line may end in a carriage return alone
        with io.TextIOWrapper(open_bytes(path), "utf-8-sig", newline="") as opened:
            lines = texts(opened)
            first = next((text for text in lines if text.strip()), "")
            delimiter = max(",;\t", key=first.count)
            reader = csv.reader(chain([first], lines), delimiter=delimiter, strict=True)
            for cells in reader:
                n_lines, width = reader.line_num, width or len(cells)
                if len(cells) not in (0, width):
                    got = f"{len(cells)} cells in line {n_lines}, {width} in the first"
                    raise InvalidInputError.of("RUN", "shape", rule, got)
                if cells:
                    yield from [[""] * width] * n_blank
                    yield cells
                n_blank = 0 if cells else n_blank + 1
    except UNREADABLE as error:
        raise unreadable(error, path) from None
    except UnicodeDecodeError as error:
        raise InvalidInputError.of("RUN", "damaged", rule, damage(error, error.object)) from None
    except csv.Error:
        got = f"quotes that do not match, or NUL bytes as of UTF-16, from line {n_lines + 1} on"
        raise InvalidInputError.of("RUN", "damaged", rule, got) from None
    last = cells[-1].strip() if cells else ""
    if not width or (last[-1:] == "." and last[:-1].isdigit() and line[-1:] not in "\r\n"):
        got = f"the number {last} at its end, which may be cut off" if width else "an empty file"
        raise InvalidInputError.of("RUN", "damaged", rule, got)


def file_argument(path: Path, model: str) -> dict[str, str]:
    """Return the file as an argument of the model, where the model is named after the file.

    The trials of two models in files of one name are then never merged.
    """
    return {"file": str(path)} if model.startswith(plain_name(path).stem) else {}
