"""Text files of rows, compressed or not: JSON objects, one per line, and CSV tables."""

from __future__ import annotations

import csv
import io
import json
from array import array
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, BinaryIO

from lm_eval_bayes._util.compressed import COMPRESSED, UNREADABLE, open_bytes, plain_name
from lm_eval_bayes._util.text import one_line
from lm_eval_bayes.errors import InvalidInputError
from lm_eval_bayes.runs.readers.file_access import PermissionDeniedError, unreadable
from lm_eval_bayes.runs.readers.protocol import Advance

#: A line of more bytes, its end included, is refused.
_LONGEST_LINE = 2**26
#: A byte order mark and blanks.
_BEFORE_JSON = b"\xef\xbb\xbf \t\r\n\f\v"

#: What `json` says of a text that goes on after its first value.
_SEVERAL_VALUES = "Extra data"

Row = dict[str, Any]


class JsonLines:
    """A file of JSON objects, one per line, which is never held in memory as a whole.

    The harness up to 0.4.2 wrote one array of them instead, which is read as a whole.

    Parameters
    ----------
    file : Path
        The file.
    argument : str
        The name of the argument in an error.
    advance : callable, optional
        Called with the bytes of every line.
    unique_keys : bool
        Whether an object that has a key twice is refused, at any depth; otherwise the last one
        counts.

    Attributes
    ----------
    offset : int
        The byte at which the current line begins, while iterating.
    offsets : array of int
        The bytes at which the lines of the objects begin, as far as they were read.
    random_access : bool
        Whether the file can be read from these bytes on: it is neither compressed nor one array.
    warnings : tuple of str
        After the last line: whether it is cut off, as by a kill, and was left out.
    """

    def __init__(
        self,
        file: Path,
        argument: str,
        advance: Advance = lambda n_bytes: None,
        *,
        unique_keys: bool = True,
    ) -> None:
        self.file, self.argument, self.advance = file, argument, advance
        self.unique_keys = unique_keys
        self.offset = 0
        self.offsets: array[int] = array("q")
        self.random_access = file.suffix not in COMPRESSED
        self.warnings: tuple[str, ...] = ()
        self._n_lines = 0

    def __iter__(self) -> Iterator[Row]:
        """Yield the objects, line by line.

        Raises
        ------
        InvalidInputError
            If a line cannot be read, or the only one is cut off.
        """
        end = self._n_lines = 0
        self.offsets = array("q")
        try:
            with open_bytes(self.file) as lines:
                # a text in UTF-16 is converted as a whole
                self.random_access = self.random_access and not isinstance(lines, io.BytesIO)
                for line in _lines(lines, self.file, self.argument):
                    self.offset, end = end, end + len(line)
                    self._n_lines += 1
                    if not self.offsets and line.lstrip(_BEFORE_JSON).startswith(b"["):
                        self.offset, self.random_access = 0, False
                        content = line.lstrip(_BEFORE_JSON) + lines.read()
                        self.advance(len(content))
                        yield from self._array(content)
                        return
                    self.advance(len(line))
                    row = None if line.isspace() else self._parsed(line)
                    if row is not None:
                        self.offsets.append(self.offset)
                        yield row
        except UNREADABLE as error:
            raise unreadable(error, self.file, self.argument) from None

    def _parsed(self, line: bytes) -> Row | None:
        """Return the object of a line; None for the last one if it is cut off."""
        try:
            text = line.decode("utf-8-sig" if self._n_lines == 1 else "utf-8")
            row = self._value(text)
        except RepeatedKeyError as error:
            raise self._repeated(f"{error} in line {self._n_lines}") from None
        except (ValueError, RecursionError) as error:
            if line.endswith(b"\n") or not self.offsets:
                if getattr(error, "msg", "") == _SEVERAL_VALUES:
                    got = f"line {self._n_lines}, which holds several values"
                    raise self._not_objects(got) from None
                raise self._broken(f"line {self._n_lines}: {damage(error, line)}") from None
            warning = f"{self.file} ends in the middle of line {self._n_lines}"
            self.warnings = (f"{warning}; that line was left out",)
            return None
        if not isinstance(row, dict):
            raise self._not_objects(
                f"line {self._n_lines}, which holds {one_line(text.strip(), 40)}"
            )
        return row

    def _value(self, text: str) -> Any:
        return json.loads(text, object_pairs_hook=unique if self.unique_keys else None)

    def _array(self, content: bytes) -> list[Row]:
        """Return the objects of a file that is one array."""
        try:
            rows = self._value(content.decode("utf-8-sig"))
        except RepeatedKeyError as error:
            raise self._repeated(str(error)) from None
        except (ValueError, RecursionError) as error:
            if getattr(error, "msg", "") == _SEVERAL_VALUES:
                line = getattr(error, "lineno", 1)
                got = f"an array, and more after it in line {line}"
                raise self._not_objects(got) from None
            raise self._broken(damage(error, content)) from None
        if not all(isinstance(row, dict) for row in rows):
            raise self._not_objects("an array of other values than objects")
        return list(rows)

    def _repeated(self, got: str) -> InvalidInputError:
        rule = f"have every key of an object once in {self.file}"
        return InvalidInputError.of(self.argument, "duplicate", rule, got)

    def _not_objects(self, got: str) -> InvalidInputError:
        rule = f"have one JSON object per line, or one array of objects, in {self.file}"
        return InvalidInputError.of(self.argument, "format", rule, got)

    def _broken(self, reason: str) -> InvalidInputError:
        return InvalidInputError.of(
            self.argument, "damaged", f"have a complete {self.file}", reason
        )


def damage(error: Exception, content: bytes) -> str:
    """Return why a text cannot be read, with what to do about its encoding."""
    if b"\x00" in content:
        return "NUL bytes, as in UTF-16; convert it to UTF-8, as by iconv -f UTF-16LE -t UTF-8"
    if isinstance(error, UnicodeDecodeError):
        return "bytes that are not UTF-8; convert it, as by iconv -f WINDOWS-1252 -t UTF-8"
    if isinstance(error, RecursionError):
        return "values nested hundreds deep"
    if isinstance(error, json.JSONDecodeError):
        several_lines = b"\n" in content.strip()
        place = f"line {error.lineno}, " if several_lines else ""
        return f"incomplete or damaged JSON, {place}character {error.colno:,} ({error.msg})"
    reason = str(error)
    return "a whole number of thousands of digits" if "set_int_max_str_digits" in reason else reason


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


def first_line(file: Path) -> dict[str, Any] | None:
    """Return the first object of a file; None where there is none, or it is broken.

    Raises
    ------
    PermissionDeniedError
        If the user may not read the file.
    """
    try:
        return next(iter(JsonLines(file, "RUN", unique_keys=False)), None)
    except PermissionDeniedError:
        raise
    except InvalidInputError:
        return None


# -- CSV -----------------------------------------------------------------------------------------

_DELIMITERS = ",;\t"


@dataclass(frozen=True)
class CsvRow:
    """One row.

    Attributes
    ----------
    line : int
        The line in which it ends, from 1.
    cells : sequence of str
        The cells.
    """

    line: int
    cells: Sequence[str]


@dataclass(frozen=True)
class CsvTable:
    """A CSV file whose rows have one length.

    Attributes
    ----------
    path : Path
        The file.
    rows : list of CsvRow
        Without empty ones; at least one.
    warnings : tuple of str
        Where the last line was cut off.
    """

    path: Path
    rows: list[CsvRow]
    warnings: tuple[str, ...] = ()


def csv_header(path: Path) -> list[str]:
    """Return the cells of the first line of a CSV file that has one; empty for any other file.

    Raises
    ------
    PermissionDeniedError
        If the user may not read the file.
    """
    try:
        with io.TextIOWrapper(open_bytes(path), encoding="utf-8-sig", newline="") as lines:
            read_line = partial(lines.readline, _LONGEST_LINE)
            first = next((line for line in iter(read_line, "") if line.strip()), "")
        delimiter = max(_DELIMITERS, key=first.count)
        return next(csv.reader([first], delimiter=delimiter), [])
    except PermissionError:
        raise PermissionDeniedError.of_path("RUN", path) from None
    except (*UNREADABLE, UnicodeDecodeError, csv.Error):
        return []


def read_csv(path: Path, argument: str) -> CsvTable:
    """Read a CSV file in UTF-8 with commas, semicolons or tabs.

    Parameters
    ----------
    path : Path
        The file.
    argument : str
        The name of the argument in an error.

    Raises
    ------
    InvalidInputError
        If the file is not a table.
    """
    rule = f"have a complete CSV file in {path.name}"
    try:
        with open_bytes(path) as file:
            content = b"".join(_lines(file, path, argument))
        text = content.decode("utf-8-sig")
        if "\0" in text:
            raise csv.Error("line contains NUL")
        first = text.partition("\n")[0]
        delimiter = max(_DELIMITERS, key=first.count)
        rows, cut_line = _csv_rows(text, delimiter)
    except UNREADABLE as error:
        raise unreadable(error, path, argument) from None
    except (UnicodeDecodeError, csv.Error) as error:
        raise InvalidInputError.of(argument, "damaged", rule, damage(error, content)) from None
    if not rows:
        raise InvalidInputError.of(argument, "damaged", rule, "an empty file")
    width = len(rows[0].cells)
    uneven = next((row for row in rows if len(row.cells) != width), None)
    is_last = cut_line is None and uneven is rows[-1] and not text.endswith("\n")
    if uneven is not None and is_last and len(uneven.cells) < width and rows[1:]:
        cut_line = uneven.line
        rows.pop()
    elif uneven is not None:
        got = f"{len(uneven.cells)} cells in line {uneven.line}, {width} in the first"
        raise InvalidInputError.of(argument, "shape", f"{rule}, all rows of one length", got)
    warnings: tuple[str, ...] = ()
    last = rows[-1].cells[-1].strip()
    if cut_line is not None:
        warnings = (f"{path} ends in the middle of line {cut_line}; it was left out",)
    elif rows[1:] and not text.endswith(("\n", "\r")) and last[-1:] in ("", "."):
        warnings = (
            f"{path} has no line end after its last cell, {last!r}: if the file was cut off, the "
            "trials of that line are wrong",
        )
    return CsvTable(path, rows, warnings)


def _lines(opened: BinaryIO, file: Path, argument: str) -> Iterator[bytes]:
    """Yield the lines of a file; raise before one that is too long is in memory."""
    for number, line in enumerate(iter(partial(opened.readline, _LONGEST_LINE + 1), b""), 1):
        if len(line) > _LONGEST_LINE:
            rule = f"have lines of at most {_LONGEST_LINE:,} bytes in {file}"
            got = f"line {number}, which is longer"
            raise InvalidInputError.of(argument, "range", rule, got)
        yield line


def _csv_rows(text: str, delimiter: str) -> tuple[list[CsvRow], int | None]:
    """Return the rows that are not blank, and the last line if it ends within a quoted cell.

    Raises
    ------
    csv.Error
        If a quote closes within a cell, or a cell that a quote opens goes on over several lines to
        the end of the file: those lines, which may be rows, would be taken for its text.
    """
    reader = csv.reader(io.StringIO(text, newline=""), delimiter=delimiter, strict=True)
    rows: list[CsvRow] = []
    n_lines = 0
    longest = csv.field_size_limit(max(csv.field_size_limit(), len(text)))
    try:
        for cells in reader:
            n_lines = reader.line_num
            if any(cell.strip() for cell in cells):
                rows.append(CsvRow(n_lines, cells))
    except csv.Error as error:
        first, last = n_lines + 1, reader.line_num
        if "unexpected end" in str(error) and last == first and rows:
            return rows, last
        lines = f"line {first}" if last <= first else f"lines {first} to {last}"
        raise csv.Error(f"quotes that do not match in {lines}") from None
    finally:
        csv.field_size_limit(longest)
    return rows, None


def file_argument(path: Path, model: str) -> dict[str, str]:
    """Return the file as an argument of the model, where the model is named after the file.

    The trials of two models in files of one name are then never merged.
    """
    return {"file": str(path)} if model.startswith(plain_name(path).stem) else {}
