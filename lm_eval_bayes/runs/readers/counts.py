"""Tables of counts: how many of n trials of every question were right."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from lm_eval_bayes._util.files import plain_name
from lm_eval_bayes.errors import InvalidInputError
from lm_eval_bayes.runs.log_fields import cluster_label
from lm_eval_bayes.runs.readers.column_names import UNNAMED, find_columns
from lm_eval_bayes.runs.readers.json_files import name_of
from lm_eval_bayes.runs.readers.protocol import FileContents, Query
from lm_eval_bayes.runs.readers.tables import LogFile, rows_of, uniform
from lm_eval_bayes.runs.readers.text_files import file_argument
from lm_eval_bayes.runs.trials import (
    MOST_COUNTED,
    PartialRun,
    Question,
    counted_trials,
    questions_of,
)

#: The name of a column of counts.
_COUNT = re.compile(r"[cn](_|$)", re.IGNORECASE)

#: The kinds of columns that say what is counted.
_NAMES = ("question", "task", "model")


def is_mine(file: LogFile) -> bool:
    """Return whether a table has columns of counts, c and n or those of models, c_A and n."""
    return {name[0].lower() for name in file.columns if _COUNT.match(name)} == {"c", "n"}


def read(file: Path, query: Query) -> FileContents:
    """Read id, c and n of every question; with a model, or with c_A and c_B of models A and B.

    A column `cluster`, or that of the query, names the cluster of each question.

    Raises
    ------
    InvalidInputError
        If a row holds no such counts, or a question occurs twice.
    """
    names = LogFile(file).columns
    columns = find_columns(names, {}, query.cluster)
    rows = rows_of(file, names)
    runs: dict[tuple[str, str], dict[str, tuple[tuple[int, int], Question]]] = {}
    n_left = MOST_COUNTED
    for number, row in enumerate(uniform(rows, names), 1):
        where = f"{file}, row {number}"
        id, task, model = (name_of(row.get(columns.get(k, ""))) for k in _NAMES)
        if not id:
            raise InvalidInputError.of("RUN", "missing", "name the question in every row", where)
        for of_model, c, n in _counts_by_model(row, model or plain_name(file).stem):
            questions = runs.setdefault((of_model, task or query.task or UNNAMED), {})
            counts = _check_counts(c, n, n_left, where)
            n_left -= sum(counts)
            if id in questions and not (query.dedupe and questions[id][0] == counts):
                rule = "count every question of a model once"
                raise InvalidInputError.of("RUN", "duplicate", rule, f"{id} in {where}")
            label = cluster_label(row, columns.get("cluster", ""))
            questions[id] = counts, Question(id, cluster=label)
    if not runs:
        raise InvalidInputError.of("RUN", "empty", f"hold rows of id, c and n ({file})", "none")
    partials = []
    for (model, task), of_run in runs.items():
        parts = ((question, counted_trials(*counts)) for counts, question in of_run.values())
        run = PartialRun(model, task, (str(file),), *questions_of(parts), ordered=False)
        partials.append(replace(run, arguments=file_argument(file, model)))
    read_names = {columns.get(kind) for kind in (*_NAMES, "cluster")}
    unread = [name for name in names if not (_COUNT.match(name) or name in read_names)]
    return FileContents(
        partials,
        tuple(run.task for run in partials),
        warnings=getattr(rows, "warnings", ()),
        notes=(f"columns of {file.name} that are not read: {', '.join(unread)}",) * bool(unread),
    )


def _counts_by_model(row: Mapping[str, Any], model: str) -> Iterator[tuple[str, Any, Any]]:
    """Yield the models of a row, each with c and n."""
    wide = [name for name in row if name.startswith("c_")]
    if "c" in row or not wide:
        yield model, row.get("c"), row.get("n")
        return
    for name in wide:
        yield name[2:], row[name], row.get(f"n_{name[2:]}", row.get("n"))


def _check_counts(c: object, n: object, most: int, where: str) -> tuple[int, int]:
    """Return how many were wrong and how many right."""
    # whole numbers, or their texts in CSV
    texts = [str(value).strip() if type(value) in (int, str) else "" for value in (c, n)]
    are_whole = all(re.fullmatch("[0-9]{1,19}", text) for text in texts)
    if not are_whole or not int(texts[0]) <= int(texts[1]) <= most:
        rule = "count c right ones of n trials, whole numbers with 0 <= c <= n, "
        rule += f"and at most {MOST_COUNTED:,} trials in a file ({where})"
        raise InvalidInputError.of("RUN", "range", rule, f"c={c!r}, n={n!r}")
    return int(texts[1]) - int(texts[0]), int(texts[0])
