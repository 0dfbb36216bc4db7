"""Trials as columns, one row per trial: what tables and the logs of other tools are read into.

A reader fills the columns; :func:`partial_runs` turns them into runs. Where all scores of a task
are 0 and 1, they are right and wrong answers, otherwise scores between two bounds.
"""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

import numpy as np

from lm_eval_bayes._util.compressed import plain_name
from lm_eval_bayes._util.hashing import hash_text
from lm_eval_bayes._util.text import one_line, plural
from lm_eval_bayes.errors import InvalidInputError
from lm_eval_bayes.runs.attempt_numbers import PER_RUN, UNNUMBERED
from lm_eval_bayes.runs.logged_texts import PER_RECORD, LoggedTexts, TextLog
from lm_eval_bayes.runs.readers.column_names import UNNAMED
from lm_eval_bayes.runs.readers.protocol import Query
from lm_eval_bayes.runs.readers.text_files import file_argument
from lm_eval_bayes.runs.readers.written_numbers import MISSING
from lm_eval_bayes.runs.task_run import COST, SECONDS, TOKENS
from lm_eval_bayes.runs.trials import PartialRun, Question, Trials, floats, objects
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
    records : list or None
        What identifies the record of the trial: the tool's own id of it, else a `record_key`. None
        where records that are equal may be of several trials.
    cluster, category, text, answer : list or None
        The cluster, the category and the text of the question, and the answer that was extracted.
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
    records: Sequence[Hashable] | None = None
    cluster: list[Any] | None = None
    category: list[Any] | None = None
    text: list[Any] | None = None
    answer: list[Any] | None = None
    measured: Mapping[str, list[Any]] = field(default_factory=dict)
    texts: TextLog | None = None
    places: Sequence[int] | None = None

    def __len__(self) -> int:
        """Return the number of rows."""
        return len(self.question)


@dataclass(frozen=True)
class _Columns:
    """The columns of all rows as arrays."""

    scores: FloatArray
    numbers: IntArray | None
    records: IntArray | None
    question_ids: list[str]
    answers: list[str] | None
    measured: Mapping[str, FloatArray]
    rows: TrialColumns


def partial_runs(
    columns: TrialColumns,
    file: Path,
    query: Query,
    *,
    metric: str,
    source: str = "",
    notes: Sequence[str] = (),
    **more: Any,
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
    metric : str
        What the scores are called.
    source : str
        What distinguishes the trials of this file, which are not numbered, from those of others,
        such as the id of a run; by default the name of the file and the outcomes in it.
    notes : sequence of str
        Notes of every run.
    **more
        Further attributes of every :class:`PartialRun`.

    Raises
    ------
    InvalidInputError
        If a row names no question or no score, or a trial occurs twice.
    """
    if not len(columns):
        raise InvalidInputError.of(query.argument, "empty", f"hold trials ({file})", "none")
    scores = _scores(columns.score, file, query)
    counted_wrong = np.isnan(scores) & (query.unscored == "wrong")
    scores = np.where(counted_wrong, (query.bounds or (0.0, 1.0))[0], scores)
    arrays = _Columns(
        scores=scores,
        numbers=None if columns.trial is None else trial_numbers(columns.trial),
        records=None if columns.records is None else _coded(columns.records)[1],
        question_ids=_names(columns.question, "question", file, query.argument),
        answers=None if columns.answer is None else _texts(columns.answer),
        measured={
            MEASURED[kind]: column
            for kind, values in columns.measured.items()
            if (column := floats(values)) is not None
        },
        rows=columns,
    )
    stem = plain_name(file).stem if file.suffix else file.name
    models = _filled(columns.model, len(columns), stem)
    tasks = _filled(columns.task, len(columns), query.task or UNNAMED)
    rows_of = _rows_of(list(zip(models, tasks, strict=True)))
    is_binary = np.isin(arrays.scores, (0.0, 1.0)) | np.isnan(arrays.scores)
    scored = {task for (_, task), rows in rows_of.items() if not is_binary[rows].all()}
    bounds = query.bounds or (0.0, 1.0)
    first = 0
    if arrays.numbers is None:
        outcomes = "" if source else hash_text(repr(columns.score)) + hash_text(repr(models))
        first = first_number(source or f"{file.name} {outcomes}")
    more.setdefault("first_label", 1 if columns.trial is None else 0)
    runs = []
    for (model, task), rows in rows_of.items():
        questions, trials = _table(arrays, rows, first, task in scored, file, query)
        of_run = tuple(notes)
        if n_wrong := int(counted_wrong[rows].sum()):
            counted = f"{plural(n_wrong, 'trial')} without a score counted as wrong"
            of_run += (f"{counted} (--unscored wrong)",)
        run = PartialRun(
            model=model,
            task=task,
            sources=(str(file),),
            questions=questions,
            trials=trials,
            weights=bounds if task in scored else (0.0, 1.0),
            metric=metric,
            arguments=file_argument(file, model),
            notes=(*of_run, *_notes_on_ungraded(trials, bool(of_run))),
            **more,
        )
        runs.append(run)
    return runs


def _coded(keys: Sequence[_Key]) -> tuple[dict[_Key, int], IntArray]:
    """Return the distinct keys with their numbers, in their order, and the number of every key."""
    codes = {key: number for number, key in enumerate(dict.fromkeys(keys))}
    return codes, np.fromiter(map(codes.__getitem__, keys), dtype=np.int64, count=len(keys))


def _rows_of(keys: Sequence[_Key]) -> dict[_Key, IntArray]:
    """Return the rows of every key, in the order in which the keys first occur."""
    codes, code = _coded(keys)
    ends = np.cumsum(np.bincount(code))[:-1]
    return dict(zip(codes, np.split(np.argsort(code, kind="stable"), ends), strict=True))


def _filled(names: list[Any] | str, n: int, default: str) -> Sequence[str]:
    """Return one name per row; empty ones are replaced."""
    if isinstance(names, str):
        return [names or default] * n
    return _texts(names, default)


def _texts(values: Sequence[Any], default: str = "") -> list[str]:
    """Return values as names; empty ones are replaced."""
    return [_text(value) or default for value in values]


def _text(value: object) -> str:
    """Return a name; "" for none, whole numbers without decimals."""
    if value is None or (isinstance(value, float) and math.isnan(value)):
        return ""
    if isinstance(value, float) and value.is_integer():
        return str(int(value))
    text = str(value).strip()
    return text[:-2] if _WITH_DECIMALS.fullmatch(text) else text  # as pandas writes numbers


def _names(values: Sequence[Any], kind: str, file: Path, argument: str) -> list[str]:
    names = _texts(values)
    if "" in names:
        rule = f"name the {kind} in every row of {file}"
        raise InvalidInputError.of(argument, "missing", rule, f"none in row {names.index('') + 1}")
    return names


def _scores(values: Sequence[Any], file: Path, query: Query) -> FloatArray:
    """Return the scores; NaN for a trial without a grade."""
    scores: FloatArray = np.array(
        [_score(value, row, file, query) for row, value in enumerate(values, 1)]
    )
    low, high = query.bounds or (0.0, 1.0)
    slack = _SLACK * (high - low)
    beyond = np.flatnonzero((scores < low - slack) | (scores > high + slack))
    if beyond.size:
        rule = f"be scores from {low:g} to {high:g} in {file}, or words such as true and false"
        if query.bounds is None:
            rule += " (other scales: --bounds LOW:HIGH)"
        first = int(beyond[0])
        value = values[first]  # as it is written, where that is more than a float holds
        shown = one_line(value, 40) if isinstance(value, str) else f"{scores[first]:g}"
        if math.isinf(scores[first]) and not isinstance(value, str):
            shown = f"{shown} (infinite, or beyond the largest float, 1.8e308)"
        got = f"{shown} in row {first + 1}"
        raise InvalidInputError.of(query.argument, "range", rule, got)
    return np.clip(scores, low, high)


def _float(value: float) -> float:
    """Return a number as a float, infinite where it is too large for one."""
    try:
        return float(value)
    except OverflowError:
        return math.inf if value > 0 else -math.inf


def _score(value: Any, row: int, file: Path, query: Query) -> float:
    if value is None:
        return math.nan
    if isinstance(value, (int, float)) and not isinstance(value, bool):
        return _float(value)
    text = str(value).strip()
    is_word = text.lower() in _WORDS
    if is_word and text.lower() not in MISSING and query.bounds not in (None, (0.0, 1.0)):
        rule = f"have numbers as scores in {file} where bounds are given"
        raise InvalidInputError.of(query.argument, "format", rule, f"{text!r} in row {row}")
    if is_word:
        return _WORDS[text.lower()]
    try:
        return float(text)
    except ValueError:
        rule = f"be numbers, or words such as true and false, in the column of scores of {file}"
        got = f"{text!r} in row {row}"
        raise InvalidInputError.of(query.argument, "format", rule, got) from None


def trial_numbers(labels: Sequence[Any]) -> IntArray:
    """Return the numbers of trials by their labels.

    Whole numbers stay as they are. Of texts that end in a number, that number counts where it
    tells all of them apart. Others get a number that depends on the text alone.

    Examples
    --------
    >>> trial_numbers(["run_3", "run_10", "run_3"]).tolist()
    [3, 10, 3]
    """
    whole = set(map(type, labels)) <= {int}
    if whole and all(-(2**62) < label < 2**62 for label in set(labels)):
        return np.asarray(labels, dtype=np.int64)
    texts = [_text(label) for label in labels]
    distinct = dict.fromkeys(texts)
    ends = [re.search(r"(?<![0-9])\d{1,15}$", text) for text in distinct]
    numbers = [int(end[0]) for end in ends if end is not None]
    if len(set(numbers)) == len(distinct):
        of_text = dict(zip(distinct, numbers, strict=True))
    else:
        of_text = {text: first_number(text) for text in distinct}
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
        valid = type(label) is int and 0 <= label < UNNUMBERED
        numbers.append(first + (label if valid else UNNUMBERED + counted[question]))
        counted[question] += 1
    return numbers


def _table(
    arrays: _Columns, rows: IntArray, first: int, scored: bool, file: Path, query: Query
) -> tuple[tuple[Question, ...], Trials]:
    """Return the questions of one model and task, in the order in which they occur, with trials."""
    ids, columns, answers = arrays.question_ids, arrays.rows, arrays.answers
    codes, code = _coded([ids[row] for row in rows.tolist()])
    by_number = (code,) if arrays.numbers is None else (arrays.numbers[rows], code)
    order = np.lexsort(by_number)
    rows, code = rows[order], code[order]
    for identity in (arrays.numbers, arrays.records):
        if identity is not None:
            kept = _first_of_each(arrays, identity, rows, code, file, query)
            rows, code = rows[kept], code[kept]
    starts = np.searchsorted(code, np.arange(len(codes)))
    of_question = [part.tolist() for part in np.split(rows, starts[1:])]
    questions = tuple(
        Question(
            id,
            text=_first(columns.text, listed),
            cluster=_cluster(columns.cluster, listed, id, file, query),
            categories=_distinct(columns.category, listed),
        )
        for id, listed in zip(codes, of_question, strict=True)
    )
    is_graded = ~np.isnan(arrays.scores[rows])
    graded = 0.0 if scored else arrays.scores[rows]
    number = first + np.arange(rows.size) - starts[code]
    listed = rows.tolist()
    return questions, Trials(
        question=code,
        category=np.where(is_graded, graded, -1.0).astype(np.int64),
        number=number if arrays.numbers is None else arrays.numbers[rows],
        score=arrays.scores[rows] if scored else None,
        answer=None if answers is None else objects([answers[row] or None for row in listed]),
        measured={name: column[rows] for name, column in arrays.measured.items()},
        logged=_logged(columns, rows),
    )


def _logged(columns: TrialColumns, rows: IntArray) -> LoggedTexts | None:
    """Return where the texts of rows are."""
    if columns.texts is None:
        return None
    places = rows * PER_RECORD
    if columns.places is not None:
        places = np.array([columns.places[row] for row in rows.tolist()], dtype=np.int64)
    return LoggedTexts.at(places, columns.texts)


def _first_of_each(
    arrays: _Columns, identity: IntArray, rows: IntArray, code: IntArray, file: Path, query: Query
) -> IntArray:
    """Return the places of rows without those of trials that occurred before.

    Raises
    ------
    InvalidInputError
        If a trial occurs twice, unless the query allows that and its scores are the same.
    """
    values, own = np.unique(identity[rows], return_inverse=True)
    _, first, number = np.unique(code * values.size + own, return_index=True, return_inverse=True)
    if first.size == rows.size:
        return np.arange(rows.size)
    scores = arrays.scores[rows]
    before = first[number]
    other = np.flatnonzero(~((scores == scores[before]) | (np.isnan(scores + scores[before]))))
    same = other.size == 0
    if not query.dedupe or not same:
        repeated = np.setdiff1d(np.arange(rows.size), first)
        at = int((repeated if same else other)[0])
        rule = f"hold every trial of a model and a question once ({file}"
        rule += "; --dedupe counts it once)" if same and query.dedupe is False else ")"
        places = arrays.rows.places or range(0, len(arrays.rows) * PER_RECORD, PER_RECORD)
        both = (int(rows[before[at]]), int(rows[at]))
        listed = " and ".join(str(places[row] // PER_RECORD + 1) for row in both)
        got = f"one trial of question {arrays.question_ids[both[0]]} in rows {listed}"
        if identity is arrays.records:
            got += " (of one id, or alike in every field; number trials that are not one)"
        got += "" if same else ", with another score"
        raise InvalidInputError.of(query.argument, "duplicate", rule, got)
    return np.sort(first)


def _first(texts: Sequence[Any] | None, rows: Sequence[int]) -> str:
    if texts is None:
        return ""
    return next((text for row in rows if isinstance(text := texts[row], str) and text), "")


def _cluster(
    clusters: Sequence[Any] | None, rows: Sequence[int], id: str, file: Path, query: Query
) -> str | None:
    if clusters is None:
        return None
    labels = _distinct(clusters, rows)
    if len(labels) > 1:
        rule = f"put question {id} into one cluster ({file})"
        raise InvalidInputError.of(query.argument, "mismatch", rule, " and ".join(sorted(labels)))
    return next(iter(labels), None)


def _distinct(labels: Sequence[Any] | None, rows: Sequence[int]) -> tuple[str, ...]:
    """Return the distinct labels of rows, without empty ones."""
    values = [] if labels is None else [labels[row] for row in rows]
    lists = (value if isinstance(value, (list, tuple)) else [value] for value in values)
    texts = dict.fromkeys(_text(label) for listed in lists for label in listed)
    return tuple(text for text in texts if text)


def _notes_on_ungraded(trials: Trials, others: bool) -> tuple[str, ...]:
    """Return a note on trials without a score: a total, where other notes may count them too."""
    n = int((~trials.is_graded).sum())
    total = "in all " if others and n > 1 else ""
    return (f"{total}{plural(n, 'trial')} without a score left out",) if n else ()
