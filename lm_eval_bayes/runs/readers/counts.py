"""Tables of counts: how many of n trials of every question were right."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from lm_eval_bayes._util.compressed import plain_name
from lm_eval_bayes._util.validation import MOST_TRIALS
from lm_eval_bayes.errors import InvalidInputError
from lm_eval_bayes.runs.log_fields import cluster_label
from lm_eval_bayes.runs.readers.column_names import IDS, MODELS, TASKS, UNNAMED
from lm_eval_bayes.runs.readers.json_files import name_of
from lm_eval_bayes.runs.readers.protocol import FileContents, Query, Sniffed
from lm_eval_bayes.runs.readers.tables import header, rows_of
from lm_eval_bayes.runs.readers.text_files import file_argument
from lm_eval_bayes.runs.trials import PartialRun, Question


def sniff(path: Path) -> Sniffed | None:
    """Return a table that has columns of counts."""
    return Sniffed([path]) if has_counts(header(path)) else None


def has_counts(names: Iterable[str]) -> bool:
    """Return whether these are the names of columns of a file of counts.

    Examples
    --------
    >>> has_counts(["id", "c", "n"]), has_counts(["id", "n", "c_base", "c_rl"])
    (True, True)
    >>> has_counts(["id", "trial_1", "trial_2"])
    False
    """
    first = {name.strip().lower().partition("_")[0] for name in names if _is_count(name)}
    return first == {"c", "n"}


def _is_count(name: str) -> bool:
    lower = name.strip().lower()
    return lower in ("c", "n") or lower.startswith(("c_", "n_"))


def read(file: Path, query: Query) -> FileContents:
    """Read id, c and n of every question; with a model, or with c_A and c_B of models A and B.

    A column `cluster`, or that of the query, names the cluster of each question.

    Raises
    ------
    InvalidInputError
        If a row holds no such counts, or a question occurs twice.
    """
    names = header(file)
    cluster = (query.cluster or "cluster").lower()
    rows = rows_of(file, query.argument, names, query.advance)
    runs: dict[tuple[str, str], dict[str, Question]] = {}
    for number, row in enumerate(rows, 1):
        lower = {str(name).lower(): value for name, value in row.items()}
        where = f"{file}, row {number}"
        id = _name(lower, IDS)
        if not id:
            rule = "name the question in every row (id)"
            raise InvalidInputError.of(query.argument, "missing", rule, f"none in {where}")
        task = _name(lower, TASKS) or query.task or UNNAMED
        for model, c, n in _counts_by_model(row, _name(lower, MODELS) or plain_name(file).stem):
            questions = runs.setdefault((model, task), {})
            counts = _check_counts(c, n, where, query.argument)
            if id in questions and not (query.dedupe and questions[id].counts == counts):
                rule = "count every question of a model once"
                raise InvalidInputError.of(query.argument, "duplicate", rule, f"{id} in {where}")
            label = cluster_label(lower, cluster)
            questions[id] = Question(id, counts=counts, cluster=label)
    if not runs:
        rule = f"hold rows of id, c and n ({file})"
        raise InvalidInputError.of(query.argument, "empty", rule, "none")
    partials = [
        PartialRun(
            model, task, (str(file),), tuple(of.values()), arguments=file_argument(file, model)
        )
        for (model, task), of in runs.items()
    ]
    known = {*IDS, *MODELS, *TASKS, cluster}
    unread = [name for name in names if not (_is_count(name) or name.lower() in known)]
    return FileContents(
        partials,
        tuple(run.task for run in partials),
        warnings=getattr(rows, "warnings", ()),
        notes=(f"columns of {file.name} that are not read: {', '.join(unread)}",) * bool(unread),
    )


def _name(row: Mapping[str, Any], aliases: frozenset[str]) -> str:
    return next((name_of(row[name]) for name in row if name in aliases), "")


def _counts_by_model(row: Mapping[str, Any], model: str) -> Iterator[tuple[str, Any, Any]]:
    """Yield the models of a row, each with c and n."""
    wide = [name for name in row if name.startswith("c_")]
    if "c" in row or not wide:
        yield model, row.get("c"), row.get("n")
        return
    for name in wide:
        yield name[2:], row[name], row.get(f"n_{name[2:]}", row.get("n"))


def _check_counts(c: object, n: object, where: str, argument: str) -> tuple[int, int]:
    """Return how many were wrong and how many right."""
    right, all_of = (_integer(value) for value in (c, n))
    if right is None or all_of is None or not right <= all_of <= MOST_TRIALS:
        rule = f"count c right ones of n trials, whole numbers with 0 <= c <= n ({where})"
        raise InvalidInputError.of(argument, "range", rule, f"c={c!r}, n={n!r}")
    return all_of - right, right


def _integer(value: object) -> int | None:
    """Return a whole number of at least 0, or its text, as in CSV; None for anything else."""
    text = str(value).strip() if type(value) in (int, str) else ""
    return int(text) if text.isascii() and text.isdigit() and len(text) < 20 else None
