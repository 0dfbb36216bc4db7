"""Outcome matrices: CSV files of zeros and ones, and NPZ files with an array R of categories."""

from __future__ import annotations

import math
import zipfile
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from lm_eval_bayes._util.compressed import plain_name
from lm_eval_bayes._util.text import error_line, first_names
from lm_eval_bayes._util.validation import MOST_HELD
from lm_eval_bayes.errors import InvalidInputError
from lm_eval_bayes.runs.provenance import number
from lm_eval_bayes.runs.readers.column_names import (
    IDS,
    MODELS,
    TASKS,
    TRIALS,
    UNNAMED,
    is_numbered_trial,
    is_trial_word,
)
from lm_eval_bayes.runs.readers.protocol import FileContents, Query, Sniffed
from lm_eval_bayes.runs.readers.text_files import (
    CsvRow,
    CsvTable,
    file_argument,
    read_csv,
)
from lm_eval_bayes.runs.readers.trial_table import EXAMPLE
from lm_eval_bayes.runs.readers.written_numbers import MISSING
from lm_eval_bayes.runs.trials import PartialRun, Question, Trials, questions_of
from lm_eval_bayes.stats import check_weights

_WORDS = {
    "true": 1,
    "false": 0,
    **dict.fromkeys(MISSING, math.nan),
}
#: Names of the array of outcomes, if it is not the only one of its shape.
_OUTCOMES = ("R", "outcomes", "r")

#: By model and task, the trials of every question, NaN where one is missing.
Rows = dict[tuple[str, str], dict[str, Any]]


def sniff(path: Path) -> Sniffed | None:
    """Return a CSV or an NPZ file; files of counts are tried before."""
    return Sniffed([path]) if plain_name(path).suffix in (".csv", ".tsv", ".npz") else None


def read(file: Path, query: Query) -> FileContents:
    """Read an outcome matrix.

    Raises
    ------
    InvalidInputError
        If the file is not an outcome matrix.
    """
    warnings: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    if file.suffix == ".npz":
        runs = matrices_of_npz(file, query.argument, query.task or UNNAMED)
    else:
        table = read_csv(file, query.argument)
        warnings = table.warnings
        runs = matrices_of_csv(table, query.argument, query.task or UNNAMED)
        if _layout(table).columns_are_models:
            models = first_names([run.model for run in runs])
            notes = (f"columns of {file.name} are read as models: {models}",)
    query.advance(file.stat().st_size)
    return FileContents(runs, tuple(run.task for run in runs), warnings=warnings, notes=notes)


def _partial_runs(
    rows: Rows, path: Path, weights: Sequence[float], notes: tuple[str, ...] = ()
) -> list[PartialRun]:
    """Return a run per model and task; missing trials are left out."""
    runs = []
    for (model, task), of_run in rows.items():
        questions, trials = questions_of(
            (Question(id), _present(values)) for id, values in of_run.items()
        )
        runs.append(
            PartialRun(
                model=model,
                task=task,
                sources=(str(path),),
                arguments=file_argument(path, model),
                questions=questions,
                trials=trials,
                weights=tuple(weights),
                notes=notes,
            )
        )
    return runs


def _present(trials: Any) -> Trials:
    values = np.asarray(trials, dtype=np.float64)
    numbers = np.flatnonzero(~np.isnan(values))
    return Trials.of_question(values[numbers].astype(np.int64), numbers)


# -- CSV -----------------------------------------------------------------------------------------


def matrices_of_csv(table: CsvTable, argument: str, task: str) -> list[PartialRun]:
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
        The name of the argument in an error.
    task : str
        The name of a task that has none.

    Raises
    ------
    InvalidInputError
        If a cell holds anything else, or a question occurs twice.
    """
    layout = _layout(table)
    trials = [layout.names[i] for i in layout.values if is_trial_word(layout.names[i])]
    if layout.columns_are_models and len(trials) > 1:
        rule = f"have columns of trials or of models in {table.path.name}, not both"
        others = [layout.names[i] for i in layout.values if layout.names[i] not in trials]
        raise InvalidInputError.of(
            argument, "conflict", rule, f"{', '.join(trials)} and {', '.join(others)}"
        )
    if not layout.values or not layout.body:
        raise InvalidInputError.of(argument, "empty", f"hold outcomes ({table.path.name})", "none")
    rows: Rows = {}
    seen: set[tuple[str, ...]] = set()
    repeated = _repeated_labels(layout)
    stem = plain_name(table.path).stem
    for index, row in enumerate(layout.body):
        id = layout.cell(row, "id", str(index))
        model = layout.cell(row, "model", stem) or stem
        of_task = layout.cell(row, "task", task) or task
        key = (id, model, of_task, layout.cell(row, "trial", ""))
        if key in seen or not id:
            rule = f"name every question once ({table.path.name})"
            raise InvalidInputError.of(
                argument, "duplicate", rule, f"{id or 'no name'} in line {row.line}"
            )
        seen.add(key)
        for column in layout.values:
            value = _category(row.cells[column])
            if value is None:
                rule = (
                    f"hold 0 or 1 in every cell of {table.path.name}; more categories need an NPZ "
                    "file with an array `weights`, and scores such as 0.85 or 85% a table with one "
                    f"row per trial, as in {EXAMPLE}{_choice(table, layout)}"
                )
                got = f"{row.cells[column]!r} in line {row.line}, column {column + 1}"
                raise InvalidInputError.of(argument, "range", rule, got)
            name = layout.names[column] if layout.columns_are_models else model
            question = repeated.get(id, id)
            rows.setdefault((name, of_task), {}).setdefault(question, []).append(value)
    notes: tuple[str, ...] = ()
    if repeated:
        (q, times) = Counter(repeated.values()).most_common(1)[0]
        notes = (f"rows {q}, {q}.1, … are read as {times} trials of question {q}, and so on",)
    first = [cell.strip() for cell in table.rows[0].cells]
    if len(layout.body) < len(table.rows) and all(number(cell) is not None for cell in first):
        line = table.rows[0].line
        notes += (f"line {line} ({', '.join(first)}) is read as the numbers of the columns",)
    return _partial_runs(rows, table.path, (0.0, 1.0), notes)


@dataclass(frozen=True)
class _Layout:
    """The columns of a table.

    Attributes
    ----------
    names : list of str
        Their names; "" without a header.
    body : list of CsvRow
        The rows below the header.
    special : dict
        The indices of the columns of ids, models, tasks and trial numbers, where there are such.
    values : list of int
        The indices of the columns of outcomes.
    columns_are_models : bool
        Whether the names of these columns are those of models.
    """

    names: list[str]
    body: list[CsvRow]
    special: dict[str, int]
    values: list[int]
    columns_are_models: bool

    def cell(self, row: CsvRow, kind: str, default: str) -> str:
        """Return the cell of a row in a special column."""
        column = self.special.get(kind)
        return default if column is None else row.cells[column].strip()


def _layout(table: CsvTable) -> _Layout:
    names = [cell.strip() for cell in table.rows[0].cells]
    without_header = _Layout([""] * len(names), table.rows, {}, list(range(len(names))), False)
    if not _is_header(names, table.rows):
        return without_header
    special: dict[str, int] = {}
    for kind, aliases in (("id", IDS), ("model", MODELS), ("task", TASKS), ("trial", TRIALS)):
        columns = [i for i, name in enumerate(names) if name.lower() in aliases]
        if columns:
            special[kind] = columns[0]
    if not names[0]:
        special.setdefault("id", 0)
    values = [i for i in range(len(names)) if i not in special.values()]
    if "trial" in special and len(values) != 1:
        # one of several columns of trials, not a column of trial numbers
        values = sorted([*values, special.pop("trial")])
    numbered = all(is_numbered_trial(names[i]) or not names[i] for i in values)
    columns_are_models = not (numbered or "model" in special or "trial" in special)
    if columns_are_models and any(names[i] in ("0", "1") for i in values):
        return without_header  # outcomes beside a cell that is none, not names of models
    return _Layout(names, table.rows[1:], special, values, columns_are_models)


def _choice(table: CsvTable, layout: _Layout) -> str:
    """Return how the columns of a table of trials are chosen, if this one names its columns."""
    if len(layout.body) == len(table.rows):
        return ""
    listed = first_names([name or "(no name)" for name in layout.names], 8)
    return f" (--columns question=NAME,score=NAME chooses other columns, here of {listed})"


def _repeated_labels(layout: _Layout) -> dict[str, str]:
    """Return the question of every id where data frames numbered repeated labels, else nothing."""
    ids = [layout.cell(row, "id", "") for row in layout.body]
    if "id" not in layout.special or {"model", "task", "trial"} & set(layout.special):
        return {}
    questions: dict[str, str] = {}
    times: Counter[str] = Counter()
    for id in ids:
        question, dot, time = id.rpartition(".")
        repeated = bool(dot) and question in times and time == str(times[question])
        questions[id] = question if repeated else id
        times[questions[id]] += 1
    if len(questions) < len(ids) or len(set(times.values())) > 1 or set(times.values()) == {1}:
        return {}
    return questions


def _is_header(first: Sequence[str], rows: Sequence[CsvRow]) -> bool:
    """Return whether the first row names columns and holds no outcomes."""
    if any(_category(cell) is None and number(cell) is None for cell in first):
        return True
    numbers = list(first[1:] if not first[0] else first)
    if numbers not in (_numbers(0, len(numbers)), _numbers(1, len(numbers))):
        return False
    if any(_category(cell) is None for cell in first):
        return True
    # zeros and ones: the header of a data frame, if its rows are numbered in front of them
    index = [row.cells[0].strip() for row in rows[1:]]
    return not first[0] and len(index) > 0 and index == _numbers(0, len(index))


def _numbers(start: int, n: int) -> list[str]:
    return [str(start + i) for i in range(n)]


def _category(cell: str) -> float | None:
    """Return 0, 1 or NaN; None for anything else."""
    if cell in ("0", "1"):
        return int(cell)
    text = cell.strip().lower()
    if text in _WORDS:
        return _WORDS[text]
    value = number(text)
    return value if value in (0.0, 1.0) else None


# -- NPZ -----------------------------------------------------------------------------------------


def matrices_of_npz(path: Path, argument: str, task: str) -> list[PartialRun]:
    """Read an outcome matrix R of shape (M, N) or (L, M, N).

    The array is called ``R`` or ``outcomes``, or is the only one of two or three dimensions.
    Beside it may stand ``models`` (L names), ``question_ids`` (M names), ``weights`` (the score
    of each category; without them the outcomes are 0 and 1) and ``task``. NaN is a trial that
    is missing. Nothing in the file is executed: arrays of Python objects are refused.

    Raises
    ------
    InvalidInputError
        If the file is not such a matrix.
    """
    npz = _Npz(path, argument)
    name, outcomes = npz.outcomes()
    stacked = (outcomes if outcomes.ndim == 3 else outcomes[None]).astype(np.float64)
    n_models, n_questions, _ = stacked.shape
    weights = npz.arrays.get("weights")
    scores = (0.0, 1.0) if weights is None else tuple(check_weights(weights).tolist())
    top = len(scores) - 1
    valid = (stacked >= 0) & (stacked <= top) & (stacked == np.floor(stacked))
    wrong = np.argwhere(~(valid | np.isnan(stacked)))
    if wrong.size:
        rule = f"hold categories 0..{top} in the array {name} of {path.name}"
        rule += "; more need an array `weights`, one score per category" if weights is None else ""
        first = tuple(wrong[0].tolist())
        raise InvalidInputError.of(argument, "range", rule, f"{stacked[first]:g} at {first}")
    numbered = [f"{path.stem} {i + 1}" for i in range(n_models)]
    models = npz.names(MODELS, n_models) or (numbered if n_models > 1 else [path.stem])
    ids = npz.names(IDS, n_questions) or _numbers(0, n_questions)
    tasks = npz.names(TASKS, 1) or [task]
    rows: Rows = {
        (model, tasks[0]): dict(zip(ids, of_model, strict=True))
        for model, of_model in zip(models, stacked, strict=True)
    }
    return _partial_runs(rows, path, scores)


class _Npz:
    """The arrays of an NPZ file.

    Raises
    ------
    InvalidInputError
        If the file cannot be read, or is too large to be held in memory.
    """

    def __init__(self, path: Path, argument: str) -> None:
        self.path, self.argument = path, argument
        rule = f"have an NPZ file of numbers and names in {path.name}"
        try:
            with zipfile.ZipFile(path) as archive:
                size = sum(entry.file_size for entry in archive.infolist())
            if size > 8 * MOST_HELD:
                got = f"{size:,} bytes, too many to be held"
                raise InvalidInputError.of(argument, "range", rule, got)
            with np.load(path, allow_pickle=False) as archive:
                self.arrays = {name: archive[name] for name in archive.files}
        except InvalidInputError:
            raise
        except Exception as error:
            # zipfile, zlib and numpy raise errors of many kinds on a file that only looks like one
            raise InvalidInputError.of(argument, "damaged", rule, error_line(error)) from None

    def outcomes(self) -> tuple[str, npt.NDArray[Any]]:
        """Return the outcome matrix with its name."""
        arrays = self.arrays
        fitting = {n: a for n, a in arrays.items() if a.ndim in (2, 3) and a.dtype.kind in "biuf"}
        name = next((n for n in _OUTCOMES if n in fitting), None)
        if name is None and len(fitting) == 1:
            (name,) = fitting
        if name is None:
            rule = f"hold one outcome matrix R, (M, N) or (L, M, N), in {self.path.name}"
            shapes = [f"{n} {a.dtype} {a.shape}" for n, a in arrays.items()]
            got = ", ".join(shapes) or "no array"
            raise InvalidInputError.of(self.argument, "shape", rule, got)
        if 0 in fitting[name].shape:
            rule = f"not be empty in {self.path.name} (M >= 1 questions, N >= 1 trials)"
            raise InvalidInputError.of(self.argument, "empty", rule, f"shape {fitting[name].shape}")
        return name, fitting[name]

    def names(self, aliases: frozenset[str], n: int) -> list[str] | None:
        """Return the n different names in the first array that has one of these names."""
        name = next((key for key in self.arrays if key in aliases), None)
        if name is None:
            return None
        names = [_text(value) for value in np.atleast_1d(self.arrays[name]).ravel().tolist()]
        if len(names) != n or len(set(names)) != n or not all(names):
            rule = f"hold {n} different names in the array {name} of {self.path.name}"
            got = f"{len(names)} of them: {', '.join(names)}"
            raise InvalidInputError.of(self.argument, "duplicate", rule, got)
        return names


def _text(value: object) -> str:
    return value.decode("utf-8", "replace") if isinstance(value, bytes) else str(value)
