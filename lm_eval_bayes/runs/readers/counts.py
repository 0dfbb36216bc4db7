"""Files of counts: how many of n trials of every question were right, as CSV or JSON lines."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from lm_eval_bayes._util.compressed import plain_name
from lm_eval_bayes._util.validation import MOST_TRIALS
from lm_eval_bayes.errors import InvalidInputError
from lm_eval_bayes.runs.log_fields import cluster_label
from lm_eval_bayes.runs.readers.column_names import IDS, MODELS, TASKS, UNNAMED
from lm_eval_bayes.runs.readers.protocol import FileContents, Query, Sniffed
from lm_eval_bayes.runs.readers.text_files import (
    JsonLines,
    file_argument,
    read_csv,
)
from lm_eval_bayes.runs.readers.trial_table import CSV, JSON_LINES, header
from lm_eval_bayes.runs.trials import PartialRun, Question


def sniff(path: Path) -> Sniffed | None:
    """Return a file that has columns, or lines with keys, of counts."""
    is_text = plain_name(path).suffix in (*CSV, *JSON_LINES)
    return Sniffed([path]) if is_text and has_counts(header(path)) else None


def has_counts(names: Iterable[str]) -> bool:
    """Return whether these are the names of columns of a file of counts.

    Examples
    --------
    >>> has_counts(["id", "c", "n"]), has_counts(["id", "n", "c_base", "c_rl"])
    (True, True)
    >>> has_counts(["id", "trial_1", "trial_2"])
    False
    """
    lower = {name.strip().lower() for name in names}
    counted = any(name == "c" or name.startswith("c_") for name in lower)
    return counted and any(name == "n" or name.startswith("n_") for name in lower)


def read(file: Path, query: Query) -> FileContents:
    """Read id, c and n of every question; with a model, or with c_A and c_B of models A and B.

    A column `cluster`, or that of the query, names the cluster of each question.

    Raises
    ------
    InvalidInputError
        If a row holds no such counts, or a question occurs twice.
    """
    if plain_name(file).suffix in JSON_LINES:
        names = list(header(file))
        lines = JsonLines(file, query.argument, query.advance)
        runs = _partial_runs(enumerate(lines, 1), file, query)
        warnings = lines.warnings
    else:
        table = read_csv(file, query.argument)
        query.advance(file.stat().st_size)
        names = [cell.strip() for cell in table.rows[0].cells]
        rows = (
            (row.line, dict(zip(names, map(_integer, row.cells), strict=True)))
            for row in table.rows[1:]
        )
        runs = _partial_runs(rows, file, query)
        warnings = table.warnings
    unread = [name for name in names if not _is_read(name.lower(), query)]
    notes = (f"columns of {file.name} that are not read: {', '.join(unread)}",) if unread else ()
    return FileContents(runs, tuple(run.task for run in runs), warnings=warnings, notes=notes)


def _is_read(name: str, query: Query) -> bool:
    """Return whether a column of this name, in lower case, is read."""
    is_count = name in ("c", "n") or name.startswith(("c_", "n_"))
    return is_count or name in {*IDS, *MODELS, *TASKS, (query.cluster or "cluster").lower()}


def _integer(cell: str) -> int | str:
    text = cell.strip()
    return int(text) if text.isascii() and text.isdigit() and len(text) < 20 else text


def _partial_runs(
    rows: Iterable[tuple[int, Mapping[str, Any]]], path: Path, query: Query
) -> list[PartialRun]:
    runs: dict[tuple[str, str], dict[str, Question]] = {}
    for line, row in rows:
        lower = {str(name).lower(): value for name, value in row.items()}
        id = _name(lower, IDS)
        if not id:
            rule = f"name the question in every row of {path} (id)"
            raise InvalidInputError.of(query.argument, "missing", rule, f"none in line {line}")
        task = _name(lower, TASKS) or query.task or UNNAMED
        cluster = cluster_label(lower, (query.cluster or "cluster").lower())
        for model, c, n in _counts_by_model(row, _name(lower, MODELS) or plain_name(path).stem):
            counts = _check_counts(c, n, f"{path}, line {line}", query.argument)
            questions = runs.setdefault((model, task), {})
            earlier = questions.get(id)
            if earlier is not None and not (query.dedupe and earlier.counts == counts):
                rule = f"count every question of a model once ({path})"
                got = f"{id} again in line {line}"
                raise InvalidInputError.of(query.argument, "duplicate", rule, got)
            questions[id] = Question(id, counts=counts, cluster=cluster)
    if not runs:
        raise InvalidInputError.of(
            query.argument, "empty", f"hold rows of id, c and n ({path})", "none"
        )
    return [
        PartialRun(
            model,
            task,
            (str(path),),
            tuple(questions.values()),
            arguments=file_argument(path, model),
        )
        for (model, task), questions in runs.items()
    ]


def _name(row: Mapping[str, Any], aliases: frozenset[str]) -> str:
    value = next((row[name] for name in row if name in aliases), None)
    if isinstance(value, bool) or not isinstance(value, (str, int)):
        return ""
    return str(value).strip()


def _counts_by_model(row: Mapping[str, Any], model: str) -> Iterator[tuple[str, Any, Any]]:
    """Yield the models of a row, each with c and n."""
    if "c" in row or "n" not in row:
        yield model, row.get("c"), row.get("n")
        return
    wide = [name for name in row if str(name).startswith("c_")]
    for name in wide:
        yield name[2:], row[name], row.get(f"n_{name[2:]}", row["n"])
    if not wide:
        yield model, None, row["n"]


def _check_counts(c: object, n: object, where: str, argument: str) -> tuple[int, int]:
    """Return how many were wrong and how many right."""
    if type(c) is not int or type(n) is not int or not 0 <= c <= n <= MOST_TRIALS:
        rule = f"count c right ones of n trials, whole numbers with 0 <= c <= n ({where})"
        raise InvalidInputError.of(argument, "range", rule, f"c={c!r}, n={n!r}")
    return n - c, c
