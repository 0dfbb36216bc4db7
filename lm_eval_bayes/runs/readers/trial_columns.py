"""Trials as columns, one row per trial: what tables and the logs of other tools are read into.

A reader fills the columns; :func:`partial_runs` turns them into runs. Where all scores of a task
are 0 and 1, they are right and wrong answers, otherwise scores between two bounds.
"""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, TypeVar

import numpy as np

from lm_eval_bayes._util.files import plain_name
from lm_eval_bayes._util.hashing import hash_text
from lm_eval_bayes._util.text import one_line
from lm_eval_bayes.errors import InvalidInputError, Rule
from lm_eval_bayes.runs.logged_texts import PER_RECORD, LoggedTexts, TextLog
from lm_eval_bayes.runs.readers.column_names import MISSING, UNNAMED
from lm_eval_bayes.runs.readers.protocol import Query
from lm_eval_bayes.runs.readers.text_files import file_argument
from lm_eval_bayes.runs.task_run import COST, SECONDS, TOKENS
from lm_eval_bayes.runs.trials import (
    PER_RUN,
    UNNUMBERED,
    PartialRun,
    Question,
    Trials,
    floats,
    objects,
)
from lm_eval_bayes.stats import FloatArray, IntArray

#: Words for right and wrong in lower case, and for a trial without a grade.
_WORDS = {
    **dict.fromkeys(("true", "yes", "pass", "passed", "correct", "right", "success"), 1.0),
    **dict.fromkeys(("successful", "solved", "resolved", "succeeded", "ok", "c"), 1.0),
    **dict.fromkeys(("false", "no", "fail", "failed", "incorrect", "wrong", "failure"), 0.0),
    **dict.fromkeys(("unsuccessful", "unsolved", "unresolved", "i"), 0.0),
    **dict.fromkeys(MISSING, math.nan),
}
_Key = TypeVar("_Key", bound=Hashable)
#: A whole number that is written as 3.0.
_WITH_DECIMALS = re.compile(r"-?\d{1,15}\.0", re.ASCII)
#: The rounding beyond a bound that is cut off.
_SLACK = 1e-9
#: Names of the measurements of a trial by the kinds of columns.
MEASURED = {"tokens": TOKENS, "time": SECONDS, "cost": COST}


@dataclass
class TrialColumns:
    """Trials, one row each; every column has the same length.

    Attributes
    ----------
    question : list
        What identifies the question: a text or a number.
    score : list
        A number, a bool, a word such as "pass"; None or NaN for a trial without a grade.
    model, task : list or str
        One name per row, or that of all rows; "" for the name of the file, or of the query.
    trial : list or None
        What identifies the trial within its question; None if rows are numbered as they come.
    setting : list or None
        The label of the setting in which the model was run; trials are numbered within it.
    records : list or None
        What identifies the record of the trial: the tool's own id of it, else a `record_key`. None
        where records that are equal may be of several trials.
    cluster, category, text, answer, remark : list or None
        The cluster, the category and the text of the question, the answer that was extracted, and
        what to say of how the trial counts.
    measured : mapping of str to list
        By kind, "tokens", "time" in seconds or "cost", one number per row.
    texts : TextLog or None
        The log of the texts that the models wrote, from which they are read on demand.
    places : sequence of int or None
        The place of every row in `texts`; by default each row is a record, in their order.
    """

    question: list[Any] = field(default_factory=list)
    score: list[Any] = field(default_factory=list)
    model: list[Any] | str = ""
    task: list[Any] | str = ""
    trial: list[Any] | None = None
    setting: list[Any] | None = None
    records: Sequence[Hashable] | None = None
    cluster: list[Any] | None = None
    category: list[Any] | None = None
    text: list[Any] | None = None
    answer: list[Any] | None = None
    remark: list[Any] | None = None
    measured: Mapping[str, list[Any]] = field(default_factory=dict)
    texts: TextLog | None = None
    places: Sequence[int] | None = None


def partial_runs(
    columns: TrialColumns, file: Path, query: Query, *, source: str = "", **more: Any
) -> list[PartialRun]:
    """Return a run per model and task.

    Parameters
    ----------
    columns : TrialColumns
        The trials.
    file : Path
        The file, or the folder, that they were read from.
    query : Query
        What is read; the scores of `query.bounds` are possible.
    source : str
        What distinguishes the trials of this file, which are not numbered, from those of others,
        such as the id of a run; by default the name of the file and the outcomes in it.
    **more
        Further attributes of every :class:`PartialRun`, such as the metric.

    Raises
    ------
    InvalidInputError
        If a row names no question or no score, or a trial occurs twice.
    """
    n, bounds = len(columns.question), query.bounds or (0.0, 1.0)
    if not n:
        raise InvalidInputError.of("RUN", "empty", f"hold trials ({file})", "none")
    scores = _scores(columns.score, file, query)
    counted_wrong = np.isnan(scores) & (query.unscored == "wrong")
    scores[counted_wrong] = bounds[0]
    table = _table(columns, scores, file)
    if any(columns.remark or ()) or counted_wrong.any():
        remark = objects(columns.remark or [None] * n)
        remark[counted_wrong] = "without a score counted as wrong (--unscored wrong)"
        table = replace(table, remark=remark)
    stem = plain_name(file).stem if file.suffix else file.name
    models = _names("model", columns.model, n, file, stem)
    tasks = _names("task", columns.task, n, file, query.task or UNNAMED)
    is_binary = np.isin(scores, (0.0, 1.0)) | ~table.is_graded
    rows_of = _rows_of(list(zip(models, tasks, strict=True)))
    scored = {task for (_, task), rows in rows_of.items() if not is_binary[rows].all()}
    first, runs = 0, []
    if columns.trial is None:
        outcomes = "" if source else hash_text(repr(columns.score)) + hash_text(repr(models))
        first = first_number(source or f"{file.name} {outcomes}")
    records = None if columns.records is None else _codes(columns.records)
    for (model, task), rows in rows_of.items():
        is_scored, code = task in scored, _codes(table.question[rows].tolist())
        rows = rows[np.lexsort((table.number[rows], code))]
        if columns.trial is not None:
            rows = _first_of_each(table, table.number, rows, columns, file, query)
        if records is not None:
            rows = _first_of_each(table, records, rows, columns, file, query)
        code = _codes(table.question[rows].tolist())
        starts = np.flatnonzero(np.diff(code, prepend=-1))
        trials = replace(table.take(rows), question=code)
        if columns.trial is None:
            trials = replace(trials, number=first + np.arange(code.size) - starts[code])
        own: Any = {"category": np.minimum(trials.category, 0)} if is_scored else {"score": None}
        run = PartialRun(
            model=model,
            task=task,
            sources=(str(file),),
            questions=tuple(
                _question(columns, part.tolist(), file) for part in np.split(rows, starts[1:])
            ),
            trials=replace(trials, **own),
            weights=bounds if is_scored else (0.0, 1.0),
            arguments=file_argument(file, model),
            **more,
        )
        runs.append(run)
    return runs


def _table(columns: TrialColumns, scores: FloatArray, file: Path) -> Trials:
    """Return all rows, of category 0, 1 or more as their scores are, and -1 without one."""
    n = scores.size
    places = columns.places or range(0, n * PER_RECORD, PER_RECORD)
    logged = None if columns.texts is None else LoggedTexts.at(places, columns.texts)
    measured = {MEASURED[kind]: floats(values) for kind, values in columns.measured.items()}
    answers = [_text(answer) or None for answer in columns.answer or ()]
    number = np.zeros(n, np.int64) if columns.trial is None else trial_numbers(columns.trial)
    settings = [
        label.strip() if type(label) is str else _text(label) for label in columns.setting or ()
    ]
    if columns.trial is not None and settings:
        # apart from those of other settings, and not taken for those of another file's run
        first = {s: first_number(s) + UNNUMBERED if s else 0 for s in dict.fromkeys(settings)}
        number = number + np.array([first[label] for label in settings], dtype=np.int64)
    return Trials(
        question=_codes(_names("question", columns.question, n, file)),
        category=np.where(np.isnan(scores), -1, np.maximum(scores, 0)).astype(np.int64),
        number=number,
        score=scores,
        answer=objects(answers) if answers else None,
        setting=objects(settings) if any(settings) else None,
        measured={name: column for name, column in measured.items() if column is not None},
        logged=logged,
    )


def _codes(keys: Sequence[_Key]) -> IntArray:
    """Return the number of every key, in the order in which the keys first occur."""
    codes = {key: number for number, key in enumerate(dict.fromkeys(keys))}
    return np.fromiter(map(codes.__getitem__, keys), dtype=np.int64, count=len(keys))


def _rows_of(keys: Sequence[_Key]) -> dict[_Key, IntArray]:
    """Return the rows of every key, in the order in which the keys first occur."""
    code = _codes(keys)
    ends = np.cumsum(np.bincount(code))[:-1]
    rows = np.split(np.argsort(code, kind="stable"), ends)
    return dict(zip(dict.fromkeys(keys), rows, strict=True))


def _names(kind: str, names: list[Any] | str, n: int, file: Path, default: str = "") -> list[str]:
    """Return one name per row; the default where none is named."""
    texts = [names] * n if isinstance(names, str) else list(map(_text, names))
    if "" in texts and (any(texts) or not default):
        rule = f"name the {kind} in every row of {file}" + (", or in none" if default else "")
        raise InvalidInputError.of("RUN", "missing", rule, f"none in row {texts.index('') + 1}")
    return [text or default for text in texts]


def _text(value: object) -> str:
    """Return a name; "" for none, whole numbers without decimals."""
    if value is None or (isinstance(value, float) and math.isnan(value)):
        return ""
    if isinstance(value, float) and value.is_integer():
        return str(int(value))
    text = str(value).strip()
    return text[:-2] if _WITH_DECIMALS.fullmatch(text) else text  # as pandas writes numbers


def _scores(values: Sequence[Any], file: Path, query: Query) -> FloatArray:
    """Return the scores; NaN for a trial without a grade."""
    low, high = query.bounds or (0.0, 1.0)
    words = _WORDS if (low, high) == (0.0, 1.0) else dict.fromkeys(MISSING, math.nan)
    slack = _SLACK * (high - low)
    scores = np.empty(len(values))
    for row, value in enumerate(values):
        score = _score(value, words)
        if score is None or score < low - slack or score > high + slack:
            rule = f"be scores from {low:g} to {high:g} in {file}"
            if not query.bounds:
                rule += ", or words such as true and false (other scales: --bounds LOW:HIGH)"
            shown = repr(str(value).strip()) if score is None else one_line(value, 40)
            rule_id: Rule = "format" if score is None else "range"
            raise InvalidInputError.of("RUN", rule_id, rule, f"{shown} in row {row + 1}")
        scores[row] = score
    return np.clip(scores, low, high)


def _score(value: Any, words: Mapping[str, float]) -> float | None:
    """Return a score, NaN where there is none; None for what is no score."""
    if value is None:
        return math.nan
    if isinstance(value, (int, float)) and not isinstance(value, bool):
        try:
            return float(value)
        except OverflowError:
            return math.inf if value > 0 else -math.inf
    text = str(value).strip().lower()
    try:
        return words[text] if text in words else float(text)
    except ValueError:
        return None


def trial_numbers(labels: Sequence[Any]) -> IntArray:
    """Return the numbers of trials by their labels.

    Whole numbers stay as they are. Of texts that end in a number, that number counts where it
    tells all of them apart. Others get a number that depends on the text alone.

    Examples
    --------
    >>> trial_numbers(["run_3", "run_10", "run_3"]).tolist()
    [3, 10, 3]
    """
    if {*map(type, labels)} <= {int} and all(-(2**62) < label < 2**62 for label in {*labels}):
        return np.asarray(labels, dtype=np.int64)
    texts = [_text(label) for label in labels]
    distinct = dict.fromkeys(texts)
    ends = [re.search(r"(?<![0-9])\d{1,15}$", text) for text in distinct]
    numbers = [int(end[0]) for end in ends if end is not None]
    if len(set(numbers)) < len(distinct):
        numbers = list(map(first_number, distinct))
    of_text = dict(zip(distinct, numbers, strict=True))
    return np.array([of_text[text] for text in texts], dtype=np.int64)


def record_key(record: object) -> Hashable:
    """Return what is the same, within this process, for records that are equal in every field.

    Examples
    --------
    >>> record_key({"q": 1, "text": "7"}) == record_key({"q": 1, "text": "7"})
    True
    """
    try:
        return hash(repr(record))
    except RecursionError:  # values nested hundreds deep, which are taken for no other record's
        return object()


def first_number(run: str) -> int:
    """Return the number before that of the first trial of a run, by the id of the run.

    Trials that are numbered within a run stay apart from those of other runs, in their order, and
    a copy of the run has the same numbers: the number depends on the id alone, with room for 2^20
    trials after it.
    """
    return (int(hash_text(run).rpartition(":")[2][:10], 16) % 2**40 + 1) * PER_RUN


def numbers_in_run(run: str, labels: Sequence[Any], questions: Sequence[str]) -> list[int]:
    """Return the numbers of the trials of a run, by the numbers that its log gives them.

    Parameters
    ----------
    run : str
        The id of the run.
    labels : sequence
        What the log numbers the trials of a question by; anything but a number from 0 to 2^19
        counts as missing, and the place among the rows of the question is taken.
    questions : sequence of str
        The question of every trial.
    """
    first, counted = first_number(run), Counter[str]()
    numbers = []
    for label, question in zip(labels, questions, strict=True):
        is_number = type(label) is int and 0 <= label < UNNUMBERED
        numbers.append(first + (label if is_number else UNNUMBERED + counted[question]))
        counted[question] += 1
    return numbers


def _first_of_each(
    table: Trials, ids: IntArray, rows: IntArray, columns: TrialColumns, file: Path, query: Query
) -> IntArray:
    """Return rows without those of trials that occurred before.

    Raises
    ------
    InvalidInputError
        If a trial occurs twice, unless the query allows that and its scores are the same.
    """
    values, own = np.unique(ids[rows], return_inverse=True)
    keys = table.question[rows] * values.size + own
    _, first, number = np.unique(keys, return_index=True, return_inverse=True)
    if first.size == rows.size:
        return rows
    before, scores = first[number], np.asarray(table.score)[rows]
    other = np.flatnonzero(~((scores == scores[before]) | (np.isnan(scores + scores[before]))))
    same = other.size == 0
    if not query.dedupe or not same:
        repeated = np.setdiff1d(np.arange(rows.size), first)
        at = int((repeated if same else other)[0])
        rule = f"hold every trial of a model and a question once ({file}"
        rule += "; --dedupe counts it once)" if same and query.dedupe is False else ")"
        places = columns.places or range(0, table.question.size * PER_RECORD, PER_RECORD)
        both = (int(rows[before[at]]), int(rows[at]))
        listed = " and ".join(str(places[row] // PER_RECORD + 1) for row in both)
        got = f"one trial of question {_text(columns.question[both[0]])} in rows {listed}"
        if ids is not table.number:
            got += " (of one id, or alike in every field; number trials that are not one)"
        got += "" if same else ", with another score"
        raise InvalidInputError.of("RUN", "duplicate", rule, got)
    return np.asarray(rows[np.sort(first)])


def _question(columns: TrialColumns, rows: Sequence[int], file: Path) -> Question:
    """Return a question by its rows."""
    id, clusters = _text(columns.question[rows[0]]), _distinct(columns.cluster, rows)
    if len(clusters) > 1:
        rule = f"put question {id} into one cluster ({file})"
        raise InvalidInputError.of("RUN", "mismatch", rule, " and ".join(sorted(clusters)))
    texts = [] if columns.text is None else [columns.text[row] for row in rows]
    text = next((text for text in texts if isinstance(text, str) and text), "")
    cluster, categories = next(iter(clusters), None), _distinct(columns.category, rows)
    return Question(id, text, cluster=cluster, categories=categories)


def _distinct(labels: Sequence[Any] | None, rows: Sequence[int]) -> tuple[str, ...]:
    """Return the distinct labels of rows, without empty ones."""
    values = [] if labels is None else [labels[row] for row in rows]
    lists = (value if isinstance(value, (list, tuple)) else [value] for value in values)
    return tuple(filter(None, dict.fromkeys(_text(label) for part in lists for label in part)))
