"""Outcome matrices: CSV files of zeros and ones, and arrays of categories in NPZ and NPY files."""

from __future__ import annotations

import math
import zipfile
from collections import Counter
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from lm_eval_bayes._util.files import most_bytes
from lm_eval_bayes._util.text import error_line, first_names, plural
from lm_eval_bayes.errors import InvalidInputError
from lm_eval_bayes.runs.log_fields import number
from lm_eval_bayes.runs.readers.column_names import (
    ALIASES,
    IDS,
    MISSING,
    MODELS,
    TASKS,
    TRIALS,
    UNNAMED,
    is_numbered_trial,
    is_trial_word,
)
from lm_eval_bayes.runs.readers.protocol import FileContents, Query
from lm_eval_bayes.runs.readers.tables import CSV, LogFile
from lm_eval_bayes.runs.readers.text_files import csv_lines, file_argument
from lm_eval_bayes.runs.readers.trial_columns import TrialColumns, partial_runs
from lm_eval_bayes.runs.readers.trial_table import EXAMPLE
from lm_eval_bayes.runs.trials import PartialRun, Question, Trials
from lm_eval_bayes.stats import check_weights

#: The endings of the names of files of arrays.
ARRAYS = (".npz", ".npy")

_WORDS = {"true": 1.0, "false": 0.0, **dict.fromkeys(MISSING, math.nan)}
#: Names of an array of outcomes that are not those of a task.
_OUTCOMES = ("R", "outcomes", "r")
_CATEGORIES = (
    "hold 0 or 1 in every cell of {}; more categories need an NPZ file with an array `weights`, "
    f"and scores such as 0.85 a table with one row per trial, as in {EXAMPLE} (--columns "
    "question=NAME,score=NAME chooses its columns)"
)


def is_mine(file: LogFile) -> bool:
    """Return whether a file is CSV or of arrays; other tables are tried before."""
    return file.suffix in CSV or file.path.suffix in ARRAYS


def read(file: Path, query: Query) -> FileContents:
    """Read an outcome matrix.

    Raises
    ------
    InvalidInputError
        If the file is not an outcome matrix.
    """
    if file.suffix in ARRAYS:
        runs, notes = runs_of_arrays(file, query)
        unknown = list[str]()
    else:
        runs, notes, unknown = runs_of_csv(file, query)
    return FileContents(
        runs,
        tuple(run.task for run in runs),
        warnings=(
            f"{file.name}: read as outcomes: {first_names(unknown)}; --columns score=NAME chooses",
        )
        * bool(unknown),
        notes=tuple(f"{file.name}: {note}" for note in notes),
    )


# -- CSV -----------------------------------------------------------------------------------------


def runs_of_csv(path: Path, query: Query) -> tuple[list[PartialRun], list[str], list[str]]:
    """Read outcomes of zeros and ones, one question a row.

    Return the runs, notes, and the columns of outcomes that have no known name of a score.

    Without a header a row is a question and a column a trial of one model, named as the file.
    A header may name a column of question ids, one of models, one of tasks and one of trial
    numbers; the others are trials of one model if their names are numbered (``1``, ``trial_2``) or
    there is a column of models, else each is named after its model, and columns of one name are its
    trials. An empty cell or NaN is a trial that is missing. Rows ``q``, ``q.1``, ``q.2``, as data
    frames tell repeated labels apart, are the trials of question q where every question has equally
    many of them.

    Raises
    ------
    InvalidInputError
        If a cell holds anything else, or a question occurs twice.
    """
    body = list(csv_lines(path))
    first = [cell.strip() for cell in body[0]]
    names, special = [""] * len(first), dict[str, int]()
    if has_header := _is_header(first, body):
        names, body, special = first, body[1:], _special_columns(first)
    values = [i for i in range(len(names)) if i not in special.values()]
    numbered = all(is_numbered_trial(names[i]) or not names[i] for i in values)
    is_one = "trial" in special and len(values) == 1
    are_models = not (numbered or is_one or "model" in special)
    _check_columns([names[i] for i in values], are_models, path)
    if "id" in special:
        body = [cells for cells in body if any(map(str.strip, cells))]
    labels: dict[str, str] = {}
    if set(special) == {"id"}:
        labels = _repeated_labels([cells[special["id"]].strip() for cells in body])
    rows, times = list[tuple[str, ...]](), Counter[str]()
    for index, cells in enumerate(body):
        named = {kind: cells[i].strip() for kind, i in special.items()}
        id = named.get("id", str(index))
        question = labels.get(id, id)
        for column, i in enumerate(values):
            if number(cells[i]) not in (None, 0.0, 1.0):
                got = f"{cells[i]!r} in row {index + 1 + has_header}, column {i + 1}"
                raise InvalidInputError.of("RUN", "range", _CATEGORIES.format(path.name), got)
            model = names[i] if are_models else named.get("model", "")
            of_model = [names[k] for k in values[:column]].count(model) if are_models else column
            trial = named.get("trial") or str(of_model + len(values) * times[question])
            rows.append((question, model, named.get("task", ""), trial, cells[i]))
        times[question] += question in labels.values()
    if not rows:
        raise InvalidInputError.of("RUN", "empty", f"hold outcomes ({path.name})", "none")
    questions, models, tasks, numbers, scores = map(list, zip(*rows, strict=True))
    columns, notes = TrialColumns(questions, scores, models, tasks, numbers), []
    if labels:
        q, n = Counter(labels.values()).most_common(1)[0]
        notes.append(f"rows {q}, {q}.1, … are read as {n} trials of question {q}, and so on")
    if has_header and all(number(cell) is not None for cell in first):
        notes.append(f"row 1 ({', '.join(first)}) is read as the numbers of the columns")
    if not has_header and first in (["0"], ["0", "1"]):
        notes.append("row 1 is read as outcomes, and not as the numbers of the columns")
    if are_models:
        notes.append(f"columns are read as models: {first_names(list(dict.fromkeys(models)))}")
    known = [*ALIASES["score"], ""]
    unknown = [names[i] for i in values if names[i].lower() not in known]
    is_unknown = not numbered and not are_models
    return partial_runs(columns, path, query), notes, unknown * is_unknown


def _check_columns(names: Sequence[str], are_models: bool, path: Path) -> None:
    """Refuse columns of trials beside those of models, or with one name."""
    trials = [name for name in names if is_trial_word(name) or name in ("0", "1")]
    if are_models and trials:
        rule = f"have columns of trials or of models in {path.name}, not both"
        raise InvalidInputError.of("RUN", "conflict", rule, ", ".join(names))
    if repeated := [name for name in trials if names.count(name) > 1]:
        rule = f"have one column {repeated[0]} in {path.name}"
        raise InvalidInputError.of("RUN", "duplicate", rule, names.count(repeated[0]))


def _special_columns(names: Sequence[str]) -> dict[str, int]:
    """Return the columns of ids, models, tasks and trial numbers, where there are such."""
    special: dict[str, int] = {}
    for kind, aliases in (("id", IDS), ("model", MODELS), ("task", TASKS), ("trial", TRIALS)):
        columns = [i for i, name in enumerate(names) if name.lower() in aliases]
        # of several columns of trials none holds their numbers
        is_several = len(columns) > 1 or any(map(is_numbered_trial, names))
        if columns and not (kind == "trial" and is_several):
            special[kind] = columns[0]
    return special if names[0] else {"id": 0} | special


def _repeated_labels(ids: Sequence[str]) -> dict[str, str]:
    """Return the question of every id where data frames numbered repeated labels, else nothing."""
    questions, times = dict[str, str](), Counter[str]()
    for id in ids:
        question, _, time = id.rpartition(".")
        questions[id] = question if times[question] and time == str(times[question]) else id
        times[questions[id]] += 1
    sizes = set(times.values())
    return questions if len(sizes) == 1 < max(sizes) and len(questions) == len(ids) else {}


def _is_header(first: Sequence[str], rows: Sequence[Sequence[str]]) -> bool:
    """Return whether the first row names columns and holds no outcomes."""
    if any(_category(cell) is None and number(cell) is None for cell in first):
        return True
    numbers = list(first[1:] if not first[0] else first)
    if numbers[:1] not in (["0"], ["1"]) or numbers != _numbers(len(numbers), int(numbers[0])):
        return False
    # of zeros and ones: the header of a data frame, if its rows are numbered in front of them
    index = [row[0].strip() for row in rows[1:]]
    is_frame = not first[0] and len(index) > 0 and index == _numbers(len(index))
    return is_frame or any(_category(cell) is None for cell in first)


def _numbers(n: int, start: int = 0) -> list[str]:
    return [str(start + i) for i in range(n)]


def _category(cell: str) -> float | None:
    """Return 0, 1 or NaN; None for anything else."""
    text = cell.strip().lower()
    value = _WORDS.get(text, number(text))
    return value if value in (0.0, 1.0) or text in MISSING else None


# -- arrays ----------------------------------------------------------------------------------------


def runs_of_arrays(path: Path, query: Query) -> tuple[list[PartialRun], list[str]]:
    """Read outcome matrices of shape (M, N) or (L, M, N) from an NPZ or an NPY file.

    An array ``R`` or ``outcomes`` is the only matrix; otherwise every array of numbers of two or
    three dimensions is, and its name is the task, as the name of an NPY file of three dimensions
    is. Beside them may stand ``models`` (L names), ``question_ids`` (M names), ``weights`` (the
    score of each category; without them the outcomes are 0 and 1) and ``task``. NaN is a trial that
    is missing. Nothing in the file is executed: arrays of Python objects are refused.

    Raises
    ------
    InvalidInputError
        If the file holds no such matrix, or something else in one.
    """
    arrays = _arrays(path)
    fitting = {n: a for n, a in arrays.items() if a.ndim in (2, 3) and a.dtype.kind in "biuf"}
    first = next((name for name in _OUTCOMES if name in fitting), None)
    if first and len(fitting) > 1:
        rule = f"hold the array {first} alone in {path.name}, or arrays named by their tasks"
        raise InvalidInputError.of("RUN", "conflict", rule, ", ".join(fitting))
    chosen = [name for name in fitting if name == (first or query.task)] or list(fitting)
    if not chosen or any(0 in fitting[name].shape for name in chosen):
        rule = f"hold outcome matrices (M, N) or (L, M, N) in {path.name}, M >= 1 and N >= 1"
        got = ", ".join(f"{name} {a.dtype} {a.shape}" for name, a in arrays.items()) or "no array"
        raise InvalidInputError.of("RUN", "shape", rule, got)
    weights = tuple(check_weights(arrays.get("weights", (0.0, 1.0))).tolist())
    runs, n_empty = list[PartialRun](), 0
    for name in chosen:
        matrix = fitting[name].astype(np.float64)
        n_empty += int(np.isnan(matrix).sum())
        _check_categories(matrix, len(weights) - 1, f"array {name} of {path.name}")
        stacked = matrix if matrix.ndim == 3 else matrix[None]
        numbered = [f"{path.stem} {i + 1}" for i in range(len(stacked))]
        named = partial(_names_in, arrays, path)
        models = named(MODELS, numbered if len(stacked) > 1 else [path.stem])
        ids = named(IDS, _numbers(stacked.shape[1]))
        is_task = first is None and not (len(chosen) == 1 and name.startswith("arr_"))
        (task,) = [name] if is_task else named(TASKS, [query.task or UNNAMED])
        questions = tuple(map(Question, ids))
        for model, of_model in zip(models, stacked, strict=True):
            question, trial = np.nonzero(~np.isnan(of_model))
            trials = Trials(question, of_model[question, trial].astype(np.int64), trial)
            more: Any = {"weights": weights, "arguments": file_argument(path, model)}
            runs.append(PartialRun(model, task, (str(path),), questions, trials, **more))
    return runs, [f"{plural(n_empty, 'empty cell')} left out"] if n_empty else []


def _check_categories(matrix: npt.NDArray[np.float64], top: int, what: str) -> None:
    """Refuse a matrix with anything but NaN and the whole numbers up to a category."""
    valid = np.isnan(matrix) | ((matrix >= 0) & (matrix <= top) & (matrix == np.floor(matrix)))
    if not valid.all():
        at = tuple(np.argwhere(~valid)[0].tolist())
        rule = f"hold categories 0..{top} in the {what}; an array `weights` has one score for each"
        raise InvalidInputError.of("RUN", "range", rule, f"{matrix[at]:g} at {at}")


def _arrays(path: Path) -> dict[str, npt.NDArray[Any]]:
    """Return the arrays of a file by name.

    Raises
    ------
    InvalidInputError
        If the file cannot be read, or is too large when decompressed.
    """
    try:
        if path.suffix == ".npy":
            array = np.load(path, allow_pickle=False)
            return {path.stem if array.ndim == 3 else _OUTCOMES[0]: array}
        with zipfile.ZipFile(path) as archive:
            size = sum(entry.file_size for entry in archive.infolist())
        if size > most_bytes(path):
            raise ValueError(f"{size:,} bytes when decompressed")
        with np.load(path, allow_pickle=False) as arrays:
            return dict(arrays)
    except Exception as error:
        # zipfile, zlib and numpy raise errors of many kinds on a file that only looks like one
        rule = f"have a file of arrays of numbers and names in {path.name}"
        raise InvalidInputError.of("RUN", "damaged", rule, error_line(error)) from None


def _names_in(
    arrays: dict[str, npt.NDArray[Any]], path: Path, aliases: frozenset[str], default: list[str]
) -> list[str]:
    """Return the names in the first array that has one of these names, as many as by default."""
    name = next((key for key in arrays if key in aliases), None)
    if name is None:
        return default
    values = np.ravel(arrays[name]).tolist()
    names = [v.decode("utf-8", "replace") if isinstance(v, bytes) else str(v) for v in values]
    if not len(names) == len(default) == len({*names} - {""}):
        rule = f"hold {len(default)} different names in the array {name} of {path.name}"
        got = f"{len(names)} of them: {first_names(names)}"
        raise InvalidInputError.of("RUN", "duplicate", rule, got)
    return names
