"""Outputs of NeMo-Skills: `output-rs*.jsonl`, one file per random seed, and folders of them.

A file is one trial of every question, and its seed the number of the trial. As NeMo-Skills does,
questions without an id or a text are matched by their lines; files of other numbers of lines are
then refused.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from lm_eval_bayes._util.hashing import distinct_ids, hash_text
from lm_eval_bayes._util.text import plural
from lm_eval_bayes.runs.logged_texts import TrialText
from lm_eval_bayes.runs.provenance import mapping
from lm_eval_bayes.runs.readers.conversations import written
from lm_eval_bayes.runs.readers.file_access import files_below
from lm_eval_bayes.runs.readers.json_files import (
    broken,
    chosen_metric,
    clusters_of,
    name_of,
    score_of,
    text_of,
)
from lm_eval_bayes.runs.readers.protocol import FileContents, Query, Sniffed
from lm_eval_bayes.runs.readers.text_files import JsonLines, first_line
from lm_eval_bayes.runs.readers.trial_columns import TrialColumns, partial_runs, record_key
from lm_eval_bayes.runs.readers.trial_texts import lines_log, one_text

_NAME = re.compile(r"output(?:-rs(\d{1,15}))?\.jsonl")

#: Fields that identify a question, and fields that hold its text.
_IDS = ("id", "problem_id", "question_id", "task_id", "instance_id")
_TEXTS = ("problem", "question", "prompt")

#: What tells lines apart that have neither.
_TOKENS = "num_generated_tokens"

#: Folders of results, which are not called after a model.
_RESULTS = ("eval-results", "tmp-eval-results")

Row = Mapping[str, Any]


def _field(name: str) -> Callable[[Row], float | None]:
    return lambda row: score_of(row.get(name))


def _judged(row: Row, field: str = "judgement") -> bool | None:
    """Return what a judge said; None where it said neither yes nor no."""
    text = row.get(field)
    verdict = text.rpartition("Judgement:") if isinstance(text, str) else ("", "", "")
    word = verdict[2].strip().lower() if verdict[1] else ""
    return True if word.startswith("yes") else False if word.startswith("no") else None


def _judge_correct(row: Row) -> float | None:
    return None if row.get("judgement") is None else float(_judged(row) is True)


def _both(row: Row) -> list[float | None]:
    return [score_of(row.get("symbolic_correct")), _judge_correct(row)]


def _first_grade(row: Row) -> float | None:
    grades = row.get("graded_list")
    return score_of(grades[0]) if isinstance(grades, list) and grades else None


def _all_followed(part: str) -> Callable[[Row], float | None]:
    return lambda row: score_of(mapping(row.get(part)).get("follow_all_instructions"))


#: The metrics by their names in NeMo-Skills: the fields that each needs, and its value.
_METRICS: Mapping[str, tuple[tuple[str, ...], Callable[[Row], float | None]]] = {
    "correct_judgements": (
        ("judgement", "expected_judgement"),
        lambda row: float(_judged(row) == _judged(row, "expected_judgement")),
    ),
    "symbolic_correct": (("symbolic_correct",), _field("symbolic_correct")),
    "judge_correct": (("judgement",), _judge_correct),
    "both_correct": (
        ("symbolic_correct", "judgement"),
        lambda row: None if None in _both(row) else min(value or 0.0 for value in _both(row)),
    ),
    "any_correct": (
        ("symbolic_correct", "judgement"),
        lambda row: None if None in _both(row) else max(value or 0.0 for value in _both(row)),
    ),
    "passing_base_tests": (("is_correct", "is_correct-plus"), _field("is_correct")),
    "passing_plus_tests": (("is_correct", "is_correct-plus"), _field("is_correct-plus")),
    "is_correct": (("is_correct",), _field("is_correct")),
    "accuracy": (("graded_list",), _first_grade),
    "passed": (("passed",), _field("passed")),
    "issues_resolved": (
        ("swe-bench-metrics",),
        lambda row: score_of(mapping(row.get("swe-bench-metrics")).get("resolved")),
    ),
    "lean4_correct": (
        ("proof_status",),
        lambda row: float(row.get("proof_status") == "completed"),
    ),
    "prompt_strict_accuracy": (("strict_eval",), _all_followed("strict_eval")),
    "prompt_loose_accuracy": (("loose_eval",), _all_followed("loose_eval")),
}


def _metrics(row: Row) -> list[str]:
    """Return the metrics of which a row has the fields."""
    names = [name for name, (fields, _) in _METRICS.items() if row.keys() >= set(fields)]
    if "correct_judgements" in names:
        return ["correct_judgements"]  # of a judge, not of a model that is judged
    return [name for name in names if name != "is_correct" or "passing_base_tests" not in names]


def sniff(path: Path) -> Sniffed | None:
    """Return a file of outputs that were graded, or those in a folder."""
    files = sorted(files_below(path), key=_order) if path.is_dir() else [path]
    found = [file for file in files if _is_graded(file)]
    seeded = {file.parent for file in found if file.name != "output.jsonl"}
    left_out = [f for f in found if f.name == "output.jsonl" and f.parent in seeded]
    warnings = tuple(
        f"{file} was left out: there are outputs with seeds beside it" for file in left_out
    )
    files = [file for file in found if file not in left_out]
    return Sniffed(files, warnings) if files else None


def _order(file: Path) -> tuple[str, int, str]:
    named = _NAME.fullmatch(file.name)
    return str(file.parent), int(named[1] or 0) if named else 0, file.name


def _is_graded(file: Path) -> bool:
    if _NAME.fullmatch(file.name) is None or not file.is_file():
        return False
    first = first_line(file)
    # such a name alone says little: what NeMo-Skills adds to every generation is looked for, too
    return first is not None and bool(_metrics(first)) and "doc_id" not in first


def read(file: Path, query: Query) -> FileContents:
    """Read the outputs of one seed.

    Raises
    ------
    InvalidInputError
        If the file is broken, or the query names a metric or a field that it does not have.
    """
    model, task = _names(file, query)
    if query.task not in (None, task):
        return FileContents((), (task,))
    lines = JsonLines(file, query.argument, query.advance)
    rows = list(lines)
    names = list(dict.fromkeys(name for row in rows for name in _metrics(row)))
    if not names:
        raise broken(file, query, "no graded generation")
    metric, notes = chosen_metric(names, query, file, "metric")
    value = _METRICS[metric][1]
    clusters = clusters_of(rows, query, f"the lines of {file.name}")
    if metric in ("judge_correct", "both_correct", "any_correct"):
        n_unclear = sum(isinstance(r.get("judgement"), str) and _judged(r) is None for r in rows)
        if n_unclear:
            unclear = f"{plural(n_unclear, 'judgement')} neither yes nor no"
            notes = (*notes, f"{unclear} counted as no, as in NeMo-Skills' own metrics")
    named = _NAME.fullmatch(file.name)
    texts = [_text(row) for row in rows]
    question_ids, by_line = _question_ids(rows, texts)
    columns = TrialColumns(
        question=question_ids,
        score=[value(row) for row in rows],
        model=model,
        task=task,
        trial=[int(named[1] or 0) if named else 0] * len(rows),
        cluster=clusters,
        text=texts,
        answer=[name_of(row.get("predicted_answer")) for row in rows],
        measured={"tokens": [row.get(_TOKENS) for row in rows]},
        texts=lines_log(lines, _generation),
    )
    runs = partial_runs(
        columns,
        file,
        query,
        metric=metric,
        notes=notes,
        first_label=0 if named and named[1] else 1,
        by_line=by_line,
    )
    return FileContents(runs, (task,), warnings=lines.warnings)


def _generation(row: Row) -> Sequence[TrialText]:
    """Return what the model wrote, and the right answer."""
    return one_text(written(row.get("generation")), row.get("expected_answer"))


def _names(file: Path, query: Query) -> tuple[str, str]:
    """Return the model and the task: MODEL/[eval-results/]TASK/output-rs0.jsonl.

    Outputs do not name the model. Where the query names a task, and neither the folder nor one
    beside it is called so, the folder is that of a model.
    """
    parts = file.absolute().parts[:-1]
    folder = parts[-1] if len(parts) > 1 else file.stem
    beside = file.absolute().parents[1] if len(parts) > 1 else file.parent
    of_results = beside.name in _RESULTS
    if query.task not in (None, folder) and not of_results and not _is_folder(beside, query.task):
        return folder, str(query.task)
    above = [part for part in parts[1:-1] if part not in _RESULTS]
    return (above[-1] if above else folder), folder


def _is_folder(parent: Path, name: str | None) -> bool:
    try:
        return name is not None and (parent / name).is_dir()
    except (OSError, ValueError):  # no possible name of a folder
        return False


def _text(row: Row) -> str:
    return text_of(next((row[name] for name in _TEXTS if isinstance(row.get(name), str)), ""))


def _question_ids(rows: Sequence[Row], texts: Sequence[str]) -> tuple[list[str], bool]:
    """Return ids, else hashes of texts, else the numbers of lines, and whether they are these."""
    records = [record_key(row) for row in rows]
    contents = texts if all(texts) else records
    for field in _IDS:
        ids = [name_of(row.get(field)) for row in rows]
        if all(ids) and len(set(ids)) == len(set(zip(ids, contents, strict=True))):
            return ids, False
    if all(texts):
        text_of_record = dict(zip(records, texts, strict=True))
        hashes = distinct_ids([hash_text(text) for text in text_of_record.values()])
        id_of_record = dict(zip(text_of_record, hashes, strict=True))
        return [id_of_record[record] for record in records], False
    numbers: Iterable[int] = range(len(rows))
    if min(Counter(records).values()) > 1 and any(_TOKENS in row for row in rows):
        codes = {record: number for number, record in enumerate(dict.fromkeys(records))}
        numbers = map(codes.__getitem__, records)  # the file holds all of its lines again
    return list(map(str, numbers)), True
