"""Outcome matrices in CSV files: zeros and ones, one question a row."""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from lm_eval_bayes.errors import InvalidInputError
from lm_eval_bayes.runs.partial_runs import Part
from lm_eval_bayes.runs.readers.csv_rows import CsvRow, CsvTable
from lm_eval_bayes.runs.readers.matrix_files import IDS, MODELS, TASKS, Rows, parts_of

#: What a column of trial numbers may be called.
TRIALS = frozenset({"trial", "attempt", "run", "repeat", "sample"})

#: Columns that are trials of one model: numbered, with a word for a trial or without.
_NUMBERED = re.compile(
    r"(?:trial|attempt|run|repeat|rep|sample|seed|try|outcome|[rtsixy])?[ _#.-]{0,2}\d{1,9}", re.I
)
_MISSING = frozenset({"", "nan", "na", "n/a", "none", "null"})
_WORDS = {"true": 1, "false": 0}


def matrices_of_csv(table: CsvTable, argument: str, task: str) -> list[Part]:
    """Read outcomes of zeros and ones, one question a row.

    Without a header a row is a question and a column a trial of one model, named as the file.
    A header may name a column of question ids, one of models and one of tasks; the others
    are trials of one model if their names are numbered (``1``, ``trial_2``) or there is a column
    of models, else each is named after its model, and columns of one name are its trials. With
    a column ``trial`` beside one of outcomes every row is one trial. An empty cell or NaN is a
    trial that is missing. Rows ``q``, ``q.1``, ``q.2``, as data frames tell repeated labels apart,
    are the trials of question q where every question has equally many of them.

    Parameters
    ----------
    table : CsvTable
        The file.
    argument : str
        What to call it in an error.
    task : str
        What to call a task that has no name.

    Raises
    ------
    InvalidInputError
        If a cell holds something else, or a question stands twice.
    """
    layout = _layout(table)
    if not layout.values or not layout.body:
        raise InvalidInputError.of(argument, f"hold outcomes ({table.path.name})", "none")
    found: Rows = {}
    seen: set[tuple[str, ...]] = set()
    repeated = _repeated_labels(layout)
    for number, row in enumerate(layout.body):
        id = layout.cell(row, "id", str(number))
        model = layout.cell(row, "model", table.path.stem) or table.path.stem
        of_task = layout.cell(row, "task", task) or task
        key = (id, model, of_task, layout.cell(row, "trial", ""))
        if key in seen or not id:
            rule = f"name every question once ({table.path.name})"
            raise InvalidInputError.of(argument, rule, f"{id or 'no name'} in line {row.line}")
        seen.add(key)
        for place in layout.values:
            value = _category(row.cells[place])
            if value is None:
                rule = (
                    f"hold 0 or 1 in every cell of {table.path.name}; more categories need an NPZ "
                    "file with an array `weights`"
                )
                got = f"{row.cells[place]!r} in line {row.line}, column {place + 1}"
                raise InvalidInputError.of(argument, rule, got)
            which = layout.names[place] if layout.columns_are_models else model
            question = repeated.get(id, id)
            found.setdefault((which, of_task), {}).setdefault(question, []).append(value)
    notes: tuple[str, ...] = ()
    if repeated:
        (q, times) = Counter(repeated.values()).most_common(1)[0]
        notes = (f"rows {q}, {q}.1, … are read as {times} trials of question {q}, and so on",)
    return parts_of(found, table.path, (0.0, 1.0), notes)


@dataclass(frozen=True)
class _Layout:
    """What the columns of a table are.

    Attributes
    ----------
    names : list of str
        Their names; "" without a header.
    body : list of CsvRow
        The rows below the header.
    special : dict
        Where the ids, models, tasks and trial numbers stand, if they do.
    values : list of int
        Where the outcomes stand.
    columns_are_models : bool
        Whether the names of these columns are those of models.
    """

    names: list[str]
    body: list[CsvRow]
    special: dict[str, int]
    values: list[int]
    columns_are_models: bool

    def cell(self, row: CsvRow, kind: str, default: str) -> str:
        """Return what a row has in a special column."""
        place = self.special.get(kind)
        return default if place is None else row.cells[place].strip()


def _layout(table: CsvTable) -> _Layout:
    names = [cell.strip() for cell in table.rows[0].cells]
    if not _is_header(names, table.rows):
        return _Layout([""] * len(names), table.rows, {}, list(range(len(names))), False)
    special: dict[str, int] = {}
    for kind, known in (("id", IDS), ("model", MODELS), ("task", TASKS), ("trial", TRIALS)):
        places = [i for i, name in enumerate(names) if name.lower() in known]
        if places:
            special[kind] = places[0]
    if not names[0]:
        special.setdefault("id", 0)
    values = [i for i in range(len(names)) if i not in special.values()]
    if "trial" in special and len(values) != 1:
        # the name of a trial's column among others, not of a column of trials' numbers
        values = sorted([*values, special.pop("trial")])
    numbered = all(_NUMBERED.fullmatch(names[i]) or not names[i] for i in values)
    columns_are_models = not (numbered or "model" in special or "trial" in special)
    return _Layout(names, table.rows[1:], special, values, columns_are_models)


def _repeated_labels(layout: _Layout) -> dict[str, str]:
    """Return the question of every id where ids are labels that were told apart, else nothing."""
    ids = [layout.cell(row, "id", "") for row in layout.body]
    if "id" not in layout.special or {"model", "task", "trial"} & set(layout.special):
        return {}
    found: dict[str, str] = {}
    times: Counter[str] = Counter()
    for id in ids:
        question, dot, number = id.rpartition(".")
        again = bool(dot) and question in times and number == str(times[question])
        found[id] = question if again else id
        times[found[id]] += 1
    equally = set(times.values())
    return found if len(found) == len(ids) and len(equally) == 1 and equally != {1} else {}


def _is_header(first: Sequence[str], rows: Sequence[CsvRow]) -> bool:
    """Return whether the first row names columns and holds no outcomes."""
    if any(_category(cell) is None and not _is_number(cell) for cell in first):
        return True
    counted = list(first[1:] if not first[0] else first)
    if counted not in (_numbers(0, len(counted)), _numbers(1, len(counted))):
        return False
    if any(_category(cell) is None for cell in first):
        return True
    # zeros and ones: the header of a data frame, if its rows are numbered in front of them
    index = [row.cells[0].strip() for row in rows[1:]]
    return not first[0] and len(index) > 0 and index == _numbers(0, len(index))


def _numbers(start: int, n: int) -> list[str]:
    return [str(start + i) for i in range(n)]


def _is_number(cell: str) -> bool:
    try:
        return math.isfinite(float(cell))
    except ValueError:
        return False


def _category(cell: str) -> float | None:
    """Return 0, 1 or NaN; None for anything else."""
    if cell in ("0", "1"):
        return int(cell)
    text = cell.strip().lower()
    if text in _MISSING:
        return math.nan
    if text in _WORDS:
        return _WORDS[text]
    try:
        value = float(text)
    except ValueError:
        return None
    return value if value in (0.0, 1.0) else None
