"""Graded outcomes: the records of what trials were graded as, and their tables."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, replace
from functools import lru_cache
from itertools import groupby
from operator import attrgetter
from pathlib import Path
from typing import Any, TypeVar

from lm_eval_bayes._util.hashing import hash_bytes, text_bytes
from lm_eval_bayes._util.plain import NOT_IN_JSON, Record
from lm_eval_bayes._util.validation import check_integer
from lm_eval_bayes.errors import InvalidInputError
from lm_eval_bayes.store.errors import StoreDamagedError, readable
from lm_eval_bayes.store.file import StoreFile, check_structure
from lm_eval_bayes.store.questions import (
    QUESTION,
    Cluster,
    ClusterRow,
    Question,
    cluster_rows,
    put_cluster,
    put_question,
)
from lm_eval_bayes.store.tables import KeyIds
from lm_eval_bayes.store.trial import (
    ID,
    TrialKey,
    check_int64,
    check_text,
    has_hash,
    json_bytes,
)


@dataclass(frozen=True)
class GradedTrial(Record):
    """One trial, graded as the answer to one question of a task.

    Attributes
    ----------
    key : TrialKey
        Model, prompt and sampling of the trial.
    trial : int
        Its number among those of its key, from 0.
    outcome : int
        Its category, 0..C.
    answer : str or None
        The answer that the grader extracted from the response, if any.
    error : str or None
        Why it could not be graded and counts as category 0.
    """

    key: TrialKey = field(metadata=NOT_IN_JSON)
    trial: int
    outcome: int
    answer: str | None = None
    error: str | None = None

    def to_dict(self) -> dict[str, Any]:
        """Return plain JSON types, with the three hashes of the key."""
        return {**self.key.to_dict(), **super().to_dict()}


@dataclass(frozen=True)
class GradedQuestion(Record):
    """One question of a task, with the trials that answered it.

    Attributes
    ----------
    doc_id : int
        Its index in the task's data, from 0.
    doc_hash : str
        The harness's hash of its document. It identifies the question across models, whose chat
        templates make different prompts of it.
    trials : tuple of GradedTrial
        Grouped by model, sampling and prompt, then by number.
    cluster : Cluster or None
        Its cluster, if the run that graded it knew one.
    """

    doc_id: int
    doc_hash: str
    trials: tuple[GradedTrial, ...]
    cluster: Cluster | None = None


@dataclass(frozen=True)
class GradedTask(Record):
    """One version of a task, as graded through one filter.

    Attributes
    ----------
    task : str
        Its name.
    version : str
        Its version, as text.
    filter : str
        The name of the filter pipeline that the responses went through.
    categories : int
        C + 1, the number of categories that a trial may be graded as.
    questions : tuple of GradedQuestion
        In the order of their doc_id.

    Examples
    --------
    >>> key = TrialKey(model="blake2b-128:0a", prompt="blake2b-128:0b", sampling="blake2b-128:0c")
    >>> trials = (GradedTrial(key, 0, 1, "42"), GradedTrial(key, 1, 0, "41"))
    >>> task = GradedTask("aime", "1.0", "none", 2, (GradedQuestion(0, "ab", trials),))
    >>> task.series
    (('blake2b-128:0a', 'blake2b-128:0c'),)
    >>> task.of("another model", "blake2b-128:0c").questions
    ()
    """

    task: str
    version: str
    filter: str
    categories: int
    questions: tuple[GradedQuestion, ...]

    @property
    def series(self) -> tuple[tuple[str, str], ...]:
        """The pairs of model and sampling of the trials, sorted."""
        keys = {trial.key for question in self.questions for trial in question.trials}
        return tuple(sorted({(key.model, key.sampling) for key in keys}))

    def of(self, model: str, sampling: str) -> GradedTask:
        """Return the part of one model and sampling, without questions that have no such trial."""

        def is_included(trial: GradedTrial) -> bool:
            return (trial.key.model, trial.key.sampling) == (model, sampling)

        questions = (
            replace(question, trials=tuple(filter(is_included, question.trials)))
            for question in self.questions
        )
        return replace(self, questions=tuple(q for q in questions if q.trials))


#: A question with its trials and its cluster.
CheckedQuestion = tuple[Question, tuple[GradedTrial, ...], "Cluster | None"]

_INSERT = (
    f"INSERT INTO outcomes (question, {ID}, graded, outcome, answer, error, hash) "
    "VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?) "
)
# An equal outcome stays as it is, its date included.
_REPLACE = _INSERT + (
    f"ON CONFLICT (question, {ID}) DO UPDATE SET "
    "graded = excluded.graded, outcome = excluded.outcome, answer = excluded.answer, "
    "error = excluded.error, hash = excluded.hash WHERE outcome IS NOT excluded.outcome "
    "OR answer IS NOT excluded.answer OR error IS NOT excluded.error"
)
# Every outcome with its question and its key.
_SELECT = (
    f"SELECT {', '.join(f'q.{column}' for column in QUESTION)}, "
    "m.hash, s.hash, p.hash, o.trial, o.graded, o.outcome, o.answer, o.error, o.hash, "
    "o.rowid FROM outcomes AS o JOIN questions AS q ON q.id = o.question "
    "JOIN models AS m ON m.id = o.model JOIN samplings AS s ON s.id = o.sampling "
    "JOIN prompts AS p ON p.id = o.prompt "
)
_ORDER = "ORDER BY q.task, q.version, q.filter, q.categories, q.doc_id, q.doc_hash, 7, 8, 9, 10"


def check_outcomes(tasks: Iterable[GradedTask]) -> list[CheckedQuestion]:
    """Return the questions that have trials, each with its trials and cluster, if they are valid.

    Raises
    ------
    InvalidInputError
        If a record breaks a rule.
    """
    checked: list[CheckedQuestion] = []
    for task in tasks:
        name, version = _required("task", task.task), _required("version", task.version)
        filter_name = _required("filter", task.filter)
        categories = check_int64("categories", task.categories, 2)
        for question in task.questions:
            doc_id = check_int64("doc_id", question.doc_id, 0)
            doc_hash = _required("doc_hash", question.doc_hash)
            for trial in question.trials:
                _check_trial(trial, categories)
            if question.trials:
                row: Question = (name, version, filter_name, doc_id, categories, doc_hash)
                checked.append((row, question.trials, question.cluster))
    return checked


def _check_trial(trial: GradedTrial, categories: int) -> None:
    if check_integer("outcome", trial.outcome, 0) >= categories:
        rule = f"be below the {categories} categories of the task"
        raise InvalidInputError.of("outcome", "range", rule, trial.outcome)


def _required(name: str, value: object) -> str:
    text = check_text(name, value)
    if text is None:
        raise InvalidInputError.of(name, "format", "be a string that UTF-8 can hold", value)
    return text


def put_outcomes(
    connection: sqlite3.Connection,
    checked: Iterable[CheckedQuestion],
    now: float,
    path: Path,
) -> int:
    """Store outcomes in place of earlier ones; return how many are new or changed.

    A cluster replaces an earlier one. A question without a cluster keeps its earlier one.

    Parameters
    ----------
    connection : sqlite3.Connection
        In a transaction that writes.
    checked : iterable
        From :func:`check_outcomes`.
    now : float
        The date of the outcomes, in seconds since 1970 UTC.
    path : Path
        The store, for messages.

    Raises
    ------
    InvalidInputError
        If a hash has no description in the store.
    """
    n_changed = 0
    ids = KeyIds(connection, path)
    for question, trials, cluster in checked:
        question_id = put_question(connection, question)
        if cluster is not None:
            put_cluster(connection, question_id, ClusterRow.of(question, cluster))
        trial_ids = [(*ids[trial.key], trial.trial) for trial in trials]
        rows = [
            (question_id, *trial_id, *_encode(question, trial, now))
            for trial_id, trial in zip(trial_ids, trials, strict=True)
        ]
        _delete_damaged(connection, question_id)
        n_changed += connection.executemany(_REPLACE, rows).rowcount
        # Questions with this doc_id, such as the document before its gold answer was corrected.
        others = connection.execute(
            "SELECT id FROM questions WHERE (task, version, filter, doc_id) = (?, ?, ?, ?) "
            "AND id <> ?",
            (*question[:4], question_id),
        ).fetchall()
        for (other_id,) in others:
            connection.executemany(
                f"DELETE FROM outcomes WHERE (question, {ID}) = (?, ?, ?, ?, ?)",
                [(other_id, *trial_id) for trial_id in trial_ids],
            )
            connection.execute(
                "DELETE FROM questions WHERE id = ? "
                "AND NOT EXISTS (SELECT 1 FROM outcomes WHERE question = questions.id)",
                (other_id,),
            )
    return n_changed


def _delete_damaged(connection: sqlite3.Connection, question_id: int) -> None:
    """Delete the outcomes of a question that do not match their hashes, to be stored anew."""
    stored = connection.execute(f"{_SELECT} WHERE o.question = ?", (question_id,))
    damaged = [row[-1:] for row in stored if not _outcome_row(row).is_intact()]
    connection.executemany("DELETE FROM outcomes WHERE rowid = ?", damaged)


def _encode(question: Question, trial: GradedTrial, now: float) -> tuple[Any, ...]:
    answer = None if trial.answer is None else text_bytes(trial.answer)
    error = None if trial.error is None else text_bytes(trial.error)
    values = (now, int(trial.outcome), answer, error)
    return (*values, hash_bytes(_hashed_bytes(question, trial.key, int(trial.trial), values)))


def _hashed_bytes(question: Question, key: TrialKey, trial: int, values: tuple[Any, ...]) -> bytes:
    """Return the bytes that an outcome is hashed by, independent of the ids of a file."""
    graded, outcome, answer, error = values
    lengths = [None if text is None else len(text) for text in (answer, error)]
    head = [*question, key.model, key.prompt, key.sampling, trial, graded, outcome, *lengths]
    return json_bytes(*head) + b"\0" + (answer or b"") + (error or b"")


@dataclass(frozen=True)
class OutcomeRow:
    """One row of the table of outcomes, with its question and its key.

    Attributes
    ----------
    question : tuple
        As :data:`QUESTION` orders it.
    key : TrialKey
        Model, prompt and sampling.
    trial : int
        The number of the trial.
    values : tuple
        Date, outcome, answer and error, as they are stored.
    digest : object
        The stored hash.
    """

    question: Question
    key: TrialKey
    trial: int
    values: tuple[Any, ...]
    digest: object

    def __str__(self) -> str:
        return f"the outcome of trial {self.trial} of {self.key} in task {self.question[0]}"

    @property
    def grading(self) -> tuple[Any, ...]:
        """Categories, document, outcome, answer and error: what gradings may differ in."""
        return (*self.question[4:], *self.values[1:])

    def is_intact(self) -> bool:
        """Whether it matches its hash."""
        row = (self.question, self.key, self.trial, self.values)
        return has_hash(self.digest, _hashed_bytes, *row)

    def graded_trial(self) -> GradedTrial:
        """Return the record.

        Raises
        ------
        TypeError, ValueError
            If the row is damaged.
        """
        _, outcome, answer, error = self.values
        return GradedTrial(self.key, self.trial, outcome, _decode(answer), _decode(error))


def _decode(text: Any) -> str | None:
    return None if text is None else str(text, "utf-8", "surrogatepass")


def outcome_rows(
    connection: sqlite3.Connection, where: str = "", values: tuple[Any, ...] = ()
) -> Iterator[OutcomeRow]:
    """Read outcomes, grouped by question; `where` may use o (outcomes), q, m, s and p."""
    yield from map(_outcome_row, connection.execute(f"{_SELECT} {where} {_ORDER}", values))


#: Consecutive rows share the object of their key.
_key = lru_cache(maxsize=1)(TrialKey)


def _outcome_row(row: tuple[Any, ...]) -> OutcomeRow:
    """Return a row of :data:`_SELECT` as a record."""
    key = _key(model=row[6], prompt=row[8], sampling=row[7])
    return OutcomeRow(row[:6], key, row[9], row[10:14], row[14])


_Row = TypeVar("_Row", OutcomeRow, ClusterRow)


def insert_outcome(
    connection: sqlite3.Connection, row: OutcomeRow, key_ids: tuple[int, int, int]
) -> tuple[Any, ...] | None:
    """Insert an outcome unless its trial has one, whose :attr:`OutcomeRow.grading` is returned."""
    row_id = (*key_ids, row.trial)
    stored: tuple[Any, ...] | None = connection.execute(
        "SELECT q.categories, q.doc_hash, o.outcome, o.answer, o.error "
        "FROM questions AS q JOIN outcomes AS o ON o.question = q.id "
        f"WHERE (task, version, filter, doc_id) = (?, ?, ?, ?) AND ({ID}) = (?, ?, ?, ?)",
        (*row.question[:4], *row_id),
    ).fetchone()
    if stored is None:
        question_id = put_question(connection, row.question)
        connection.execute(_INSERT, (question_id, *row_id, *row.values, row.digest))
    return stored


def read_outcomes(file: StoreFile, task: str | None = None) -> tuple[GradedTask, ...]:
    """Return what was graded: of the task of this name, or of all tasks."""
    where, values = ("", ()) if task is None else ("WHERE q.task = ?", (_required("task", task),))
    with file.reading() as connection, readable(file.path, "an outcome"):
        check_structure(connection, file.path)
        stored = _intact(cluster_rows(connection, where, values), file.path)
        clusters = {row.question: row.cluster() for row in stored}
        tasks: dict[tuple[str, str, str, int], list[GradedQuestion]] = {}
        rows = _intact(outcome_rows(connection, where, values), file.path)
        for question, of_question in groupby(rows, attrgetter("question")):
            name, version, filter_name, doc_id, categories, doc_hash = question
            trials = tuple(row.graded_trial() for row in of_question)
            graded = GradedQuestion(doc_id, doc_hash, trials, clusters.get(question))
            tasks.setdefault((name, version, filter_name, categories), []).append(graded)
        # filters in the order in which the harness applied them
        first = dict.fromkeys(
            connection.execute("SELECT task, filter FROM questions ORDER BY id").fetchall()
        )
    place = {name: number for number, name in enumerate(first)}
    graded_tasks = [GradedTask(*task, tuple(questions)) for task, questions in tasks.items()]
    graded_tasks.sort(key=lambda task: (task.task, task.version, place[task.task, task.filter]))
    return tuple(graded_tasks)


def _intact(rows: Iterable[_Row], path: Path) -> Iterator[_Row]:
    for row in rows:
        if not row.is_intact():
            raise StoreDamagedError(
                f"{path} is damaged: {row} does not match its hash; the command that sampled the "
                "trials grades them again"
            )
        yield row
