"""Counts in files: how many of n trials of every question were right, as JSON lines or CSV."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from lm_eval_bayes.errors import InvalidInputError
from lm_eval_bayes.runs.partial_runs import Part, PartQuestion
from lm_eval_bayes.runs.readers.csv_rows import CsvTable
from lm_eval_bayes.runs.readers.logged_rows import Advance, logged_rows
from lm_eval_bayes.runs.readers.matrix_files import IDS, MODELS, TASKS, named_by
from lm_eval_bayes.stats.validation import MOST_TRIALS


def is_counts_header(names: list[str]) -> bool:
    """Return whether the first row of a CSV file is that of a file of counts.

    Examples
    --------
    >>> is_counts_header(["id", "c", "n"]), is_counts_header(["id", "n", "c_base", "c_rl"])
    (True, True)
    >>> is_counts_header(["id", "trial_1", "trial_2"])
    False
    """
    known = {name.strip().lower() for name in names}
    counted = any(name == "c" or name.startswith("c_") for name in known)
    return counted and any(name == "n" or name.startswith("n_") for name in known)


def counts_of_csv(table: CsvTable, argument: str, task: str, dedupe: bool) -> list[Part]:
    """Read rows of id, c and n; with a column of models, or columns c_A, c_B of models A and B.

    Raises
    ------
    InvalidInputError
        If a row holds no such counts, or a question stands twice.
    """
    names = [cell.strip() for cell in table.rows[0].cells]
    rows = (
        (row.line, dict(zip(names, (_whole(cell) for cell in row.cells), strict=True)))
        for row in table.rows[1:]
    )
    return _parts(rows, table.path, argument, task, dedupe)


def counts_of_jsonl(
    path: Path,
    argument: str,
    task: str,
    dedupe: bool,
    told: list[str],
    advance: Advance | None = None,
) -> list[Part]:
    """Read objects with id, c and n, one a line, and model where there are several.

    Raises
    ------
    InvalidInputError
        If a line holds no such counts, or a question stands twice.
    """
    rows = enumerate(logged_rows(path, argument, told, advance), 1)
    return _parts(rows, path, argument, task, dedupe)


def _whole(cell: str) -> int | str:
    text = cell.strip()
    return int(text) if text.isascii() and text.isdigit() and len(text) < 20 else text


def _parts(
    rows: Iterator[tuple[int, Mapping[str, Any]]] | Any,
    path: Path,
    argument: str,
    task: str,
    dedupe: bool,
) -> list[Part]:
    found: dict[tuple[str, str], dict[str, PartQuestion]] = {}
    for line, row in rows:
        known = {str(name).lower(): value for name, value in row.items()}
        id = _named(known, IDS)
        if not id:
            rule = f"name the question in every row of {path} (id)"
            raise InvalidInputError.of(argument, rule, f"none in line {line}")
        of_task = _named(known, TASKS) or task
        for model, c, n in _counted(row, _named(known, MODELS) or path.stem):
            counts = _checked(c, n, f"{path}, line {line}", argument)
            questions = found.setdefault((model, of_task), {})
            again = questions.get(id)
            if again is not None and not (dedupe and again.counts == counts):
                rule = f"count every question of a model once ({path})"
                raise InvalidInputError.of(argument, rule, f"{id} again in line {line}")
            none = np.empty(0, dtype=np.int64)
            questions[id] = PartQuestion(id, none, none, counts=counts)
    if not found:
        raise InvalidInputError.of(argument, f"hold rows of id, c and n ({path})", "none")
    return [
        Part(model, of_task, (str(path),), questions, arguments=named_by(path, model))
        for (model, of_task), questions in found.items()
    ]


def _named(row: Mapping[str, Any], called: frozenset[str]) -> str:
    value = next((row[name] for name in row if name in called), None)
    if isinstance(value, bool) or not isinstance(value, (str, int)):
        return ""
    return str(value).strip()


def _counted(row: Mapping[str, Any], model: str) -> Iterator[tuple[str, Any, Any]]:
    """Return the models that a row has counts of, with c and n."""
    if "c" in row or "n" not in row:
        yield model, row.get("c"), row.get("n")
        return
    wide = [name for name in row if str(name).startswith("c_")]
    for name in wide:
        yield name[2:], row[name], row.get(f"n_{name[2:]}", row["n"])
    if not wide:
        yield model, None, row["n"]


def _checked(c: object, n: object, where: str, argument: str) -> tuple[int, int]:
    """Return how many were wrong and how many right."""
    if type(c) is not int or type(n) is not int or not 0 <= c <= n <= MOST_TRIALS:
        rule = f"count c right ones of n trials, whole numbers with 0 <= c <= n ({where})"
        raise InvalidInputError.of(argument, rule, f"c={c!r}, n={n!r}")
    return n - c, c
