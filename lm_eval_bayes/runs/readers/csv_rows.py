"""CSV files, as spreadsheets and data frames write them, row by row with their line numbers."""

from __future__ import annotations

import csv
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from lm_eval_bayes.errors import InvalidInputError

_DELIMITERS = ",;\t"


@dataclass(frozen=True)
class CsvRow:
    """One row.

    Attributes
    ----------
    line : int
        The line in which it ends, from 1.
    cells : sequence of str
        What it holds.
    """

    line: int
    cells: Sequence[str]


@dataclass(frozen=True)
class CsvTable:
    """A file whose rows are of one length.

    Attributes
    ----------
    path : Path
        The file.
    rows : list of CsvRow
        Without empty ones; at least one.
    """

    path: Path
    rows: list[CsvRow]


def read_csv(path: Path, argument: str, told: list[str]) -> CsvTable:
    """Read a CSV file in UTF-8 with commas, semicolons or tabs.

    Parameters
    ----------
    path : Path
        The file.
    argument : str
        What to call it in an error.
    told : list of str
        Gets a sentence where the last line is cut off.

    Raises
    ------
    InvalidInputError
        If it is no table.
    """
    rule = f"have a whole CSV file in {path.name}"
    try:
        text = path.read_bytes().decode("utf-8-sig")
        first = text.partition("\n")[0]
        delimiter = max(_DELIMITERS, key=first.count)
        reader = csv.reader(text.splitlines(keepends=True), delimiter=delimiter)
        rows = [CsvRow(reader.line_num, cells) for cells in reader if any(c.strip() for c in cells)]
    except OSError as error:
        raise InvalidInputError.of(argument, rule, error.strerror) from None
    except (UnicodeDecodeError, csv.Error) as error:
        raise InvalidInputError.of(argument, rule, str(error)) from None
    if not rows:
        raise InvalidInputError.of(argument, rule, "an empty file")
    width = len(rows[0].cells)
    uneven = next((row for row in rows if len(row.cells) != width), None)
    if uneven is rows[-1] and len(uneven.cells) < width and not text.endswith("\n") and rows[1:]:
        told.append(f"{path} ends in the middle of line {uneven.line}; it was left out")
        rows.pop()
    elif uneven is not None:
        got = f"{len(uneven.cells)} cells in line {uneven.line}, {width} in the first"
        raise InvalidInputError.of(argument, f"{rule}, all rows of one length", got)
    return CsvTable(path, rows)
