"""Text files of rows, compressed or not: JSON objects, one per line, and CSV tables."""

from __future__ import annotations

import csv
import io
import json
import os
from array import array
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from lm_eval_bayes._util.compressed import COMPRESSED, UNREADABLE, open_bytes, plain_name
from lm_eval_bayes.errors import InvalidInputError
from lm_eval_bayes.runs.readers.protocol import Advance, Sniffed


class JsonLines:
    """A file of JSON objects, one per line, of which one line at a time is held in memory.

    The harness up to 0.4.2 wrote one array of them instead, which is read as a whole.

    Parameters
    ----------
    file : Path
        The file.
    argument : str
        The name of the argument in an error.
    advance : callable, optional
        Called with the bytes of every line.

    Attributes
    ----------
    offset : int
        The byte at which the current line begins.
    offsets : array of int
        The bytes at which the lines of the objects begin, as far as they were read.
    random_access : bool
        Whether the file can be read from these bytes on: it is neither compressed nor one array.
    warnings : tuple of str
        After the last line: whether it is cut off, as by a kill, and was left out.
    """

    def __init__(self, file: Path, argument: str, advance: Advance | None = None) -> None:
        self.file, self.argument, self.advance = file, argument, advance
        self.offset = 0
        self.offsets: array[int] = array("q")
        self.random_access = file.suffix not in COMPRESSED
        self.warnings: tuple[str, ...] = ()

    def __iter__(self) -> Iterator[dict[str, Any]]:
        """Yield the objects.

        Raises
        ------
        InvalidInputError
            If a line cannot be read, or the only one is cut off.
        """
        cut_off, n_rows, end = "", 0, 0
        try:
            with open_bytes(self.file) as lines:
                # a text in UTF-16 is converted as a whole
                self.random_access = self.random_access and not isinstance(lines, io.BytesIO)
                for number, line in enumerate(lines, 1):
                    if cut_off:
                        raise self._broken(cut_off)
                    self.offset, end = end, end + len(line)
                    if self.advance is not None:
                        self.advance(len(line))
                    if line.isspace():
                        continue
                    if not n_rows and line.lstrip(b"\xef\xbb\xbf \t").startswith(b"["):
                        self.offset, self.random_access = 0, False
                        for row in self._array(line + lines.read()):
                            n_rows += 1
                            yield row
                        return
                    try:
                        row = _parsed(line.decode("utf-8-sig" if number == 1 else "utf-8"))
                    except (ValueError, RecursionError) as error:
                        cut_off = f"line {number}: {_reason(error, line)}"
                        if line.endswith(b"\n"):
                            raise self._broken(cut_off) from None
                        continue
                    if not isinstance(row, dict):
                        raise self._broken(f"line {number} is not an object")
                    n_rows += 1
                    self.offsets.append(self.offset)
                    yield row
        except UNREADABLE as error:
            raise self._broken(getattr(error, "strerror", None) or str(error)) from None
        if cut_off and not n_rows:
            raise self._broken(cut_off)
        if cut_off:
            warning = f"{self.file} ends in the middle of line {number}; that line was left out"
            self.warnings = (warning,)

    def _array(self, content: bytes) -> list[dict[str, Any]]:
        """Return the objects of a file that is one array."""
        try:
            rows = json.loads(content.decode("utf-8-sig"))
        except (ValueError, RecursionError) as error:
            raise self._broken(_reason(error, content)) from None
        if not all(isinstance(row, dict) for row in rows):
            raise self._broken("an array of other values than objects")
        return list(rows)

    def _broken(self, reason: str) -> InvalidInputError:
        return InvalidInputError.of(self.argument, f"have a complete {self.file.name}", reason)


def _reason(error: Exception, content: bytes) -> str:
    """Return why a text cannot be read, with what to do about its encoding."""
    if b"\x00" in content:
        return "NUL bytes, as in UTF-16; convert it to UTF-8, as by iconv -f UTF-16LE -t UTF-8"
    if isinstance(error, UnicodeDecodeError):
        return "bytes that are not UTF-8; convert it, as by iconv -f WINDOWS-1252 -t UTF-8"
    return getattr(error, "msg", None) or str(error)


_decode_from_start = json.JSONDecoder().raw_decode


def _parsed(line: str) -> Any:
    """Return the value of a line, as :func:`json.loads` does, in three quarters of its time."""
    if line.startswith("{"):
        value, end = _decode_from_start(line)
        if end >= len(line) or line[end:] == "\n" or line[end:].isspace():
            return value
    return json.loads(line)


def files_below(folder: Path) -> Iterator[Path]:
    """Yield the files in a folder and in those below it, but for what cannot be read."""
    for parent, _, names in os.walk(folder):
        yield from (file for name in names if os.path.isfile(file := Path(parent, name)))


def sniff_files(path: Path, is_log: Callable[[Path], bool], in_folder: str = "*") -> Sniffed | None:
    """Return a file of a format, or those in a folder whose names match a pattern."""
    if path.is_dir():
        files = sorted(file for file in files_below(path) if file.match(in_folder))
    else:
        files = [path]
    logs = list(filter(is_log, files))
    return Sniffed(logs) if logs else None


def first_line(file: Path) -> dict[str, Any] | None:
    """Return the first object of a file; None where there is none, or it cannot be read."""
    try:
        return next(iter(JsonLines(file, "RUN")), None)
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
    """Return the cells of the first line of a CSV file that has one; empty for any other file."""
    try:
        with io.TextIOWrapper(open_bytes(path), encoding="utf-8-sig", newline="") as lines:
            first = next((line for line in lines if line.strip()), "")
        delimiter = max(_DELIMITERS, key=first.count)
        return next(csv.reader([first], delimiter=delimiter), [])
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
    warnings: tuple[str, ...] = ()
    try:
        with open_bytes(path) as file:
            content = file.read()
        text = content.decode("utf-8-sig")
        if "\0" in text:
            raise csv.Error("line contains NUL")
        first = text.partition("\n")[0]
        delimiter = max(_DELIMITERS, key=first.count)
        reader = csv.reader(text.splitlines(keepends=True), delimiter=delimiter)
        rows = [CsvRow(reader.line_num, cells) for cells in reader if any(c.strip() for c in cells)]
    except UNREADABLE as error:
        got = getattr(error, "strerror", None) or str(error)
        raise InvalidInputError.of(argument, rule, got) from None
    except (UnicodeDecodeError, csv.Error) as error:
        raise InvalidInputError.of(argument, rule, _reason(error, content)) from None
    if not rows:
        raise InvalidInputError.of(argument, rule, "an empty file")
    width = len(rows[0].cells)
    uneven = next((row for row in rows if len(row.cells) != width), None)
    if uneven is rows[-1] and len(uneven.cells) < width and not text.endswith("\n") and rows[1:]:
        warnings = (f"{path} ends in the middle of line {uneven.line}; it was left out",)
        rows.pop()
    elif uneven is not None:
        got = f"{len(uneven.cells)} cells in line {uneven.line}, {width} in the first"
        raise InvalidInputError.of(argument, f"{rule}, all rows of one length", got)
    last = rows[-1].cells[-1].strip()
    if not warnings and rows[1:] and not text.endswith(("\n", "\r")) and last[-1:] in ("", "."):
        warnings = (
            f"{path} has no line end after its last cell, {last!r}: if the file was cut off, the "
            "trials of that line are wrong",
        )
    return CsvTable(path, rows, warnings)


def file_argument(path: Path, model: str) -> dict[str, str]:
    """Return the file as an argument of the model, where the model is named after the file.

    The trials of two models in files of one name are then never merged.
    """
    return {"file": str(path)} if model.startswith(plain_name(path).stem) else {}
