"""CSV files, as spreadsheets and data frames write them, and the names of their columns."""

from __future__ import annotations

import csv
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from lm_eval_bayes.errors import InvalidInputError

_DELIMITERS = ",;\t"

#: Names of a column or an array of question ids.
IDS = frozenset(
    (
        *("id", "ids", "question", "questions", "question_id", "question_ids", "doc_id"),
        *("problem", "problem_id", "qid", "index"),
    )
)
#: Names of a column of models, and of tasks.
MODELS, TASKS = frozenset({"model", "models", "model_name"}), frozenset({"task", "benchmark"})

#: The name of the task of outcomes in a file that names none.
UNNAMED = "outcomes"


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
        with path.open(encoding="utf-8-sig", newline="") as lines:
            first = next((line for line in lines if line.strip()), "")
        delimiter = max(_DELIMITERS, key=first.count)
        return next(csv.reader([first], delimiter=delimiter), [])
    except (OSError, UnicodeDecodeError, csv.Error):
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
        warnings = (f"{path} ends in the middle of line {uneven.line}; it was left out",)
        rows.pop()
    elif uneven is not None:
        got = f"{len(uneven.cells)} cells in line {uneven.line}, {width} in the first"
        raise InvalidInputError.of(argument, f"{rule}, all rows of one length", got)
    return CsvTable(path, rows, warnings)
