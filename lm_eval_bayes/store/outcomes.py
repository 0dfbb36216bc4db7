"""Graded outcomes in a store: the statements, the hashes, what goes in and what comes out."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import groupby
from operator import itemgetter
from pathlib import Path
from typing import Any

from lm_eval_bayes._util.hashing import agrees, hash_bytes, text_bytes
from lm_eval_bayes.errors import InvalidInputError
from lm_eval_bayes.stats.validation import check_integer
from lm_eval_bayes.store.errors import readable
from lm_eval_bayes.store.file import StoreFile, marks
from lm_eval_bayes.store.graded import GradedQuestion, GradedTask, GradedTrial
from lm_eval_bayes.store.migrations import OUTCOMES_SCHEMA
from lm_eval_bayes.store.trial_table import key_ids
from lm_eval_bayes.store.trial import TrialKey, check_int64, check_text, compact_json

#: What says which question of which task a trial answered, in the order of every row here.
QUESTION = "task, version, filter, doc_id, categories, doc_hash"
PLACE = "question, model, sampling, prompt, trial"
VALUES = "graded, outcome, answer, error, hash"

_INSERT = f"INSERT INTO outcomes ({PLACE}, {VALUES}) VALUES (?{', ?' * 9}) "
#: For merging: what is there stays.
INSERT_IF_NEW = _INSERT + "ON CONFLICT DO NOTHING"
# A grading that repeats an earlier one leaves it alone, date included.
_REPLACE = _INSERT + (
    "ON CONFLICT (question, model, sampling, prompt, trial) DO UPDATE SET "
    "graded = excluded.graded, outcome = excluded.outcome, answer = excluded.answer, "
    "error = excluded.error, hash = excluded.hash WHERE outcome IS NOT excluded.outcome "
    "OR answer IS NOT excluded.answer OR error IS NOT excluded.error"
)
#: Every outcome with its question and its key, spelled out.
SELECT = (
    "SELECT q.task, q.version, q.filter, q.doc_id, q.categories, q.doc_hash, "
    "m.hash, s.hash, p.hash, o.trial, o.graded, o.outcome, o.answer, o.error, o.hash "
    "FROM outcomes AS o JOIN questions AS q ON q.id = o.question "
    "JOIN models AS m ON m.id = o.model JOIN samplings AS s ON s.id = o.sampling "
    "JOIN prompts AS p ON p.id = o.prompt "
)
ORDER = "ORDER BY q.task, q.version, q.filter, q.categories, q.doc_id, q.doc_hash, 7, 8, 9, 10"

#: A question, as :data:`QUESTION` orders it.
Question = tuple[str, str, str, int, int, str]
#: A question with its trials, fit to be stored.
Checked = tuple[Question, tuple[GradedTrial, ...]]


def put_outcomes(
    connection: sqlite3.Connection, checked: Iterable[Checked], now: float, path: Path
) -> int:
    """Store outcomes over what was graded before; return how many are new or changed.

    Raises
    ------
    InvalidInputError
        If nobody told the store what a hash stands for.
    """
    changed = 0
    keys: dict[TrialKey, tuple[int, ...]] = {}
    for question, trials in checked:
        number = put_question(connection, question)
        stale = _siblings(connection, question, number)
        rows = []
        for trial in trials:
            if trial.key not in keys:
                keys[trial.key] = key_ids(connection, trial.key, path)
            place = (*keys[trial.key], trial.trial)
            rows.append((number, *place, *_values(question, trial, now)))
        changed += connection.executemany(_REPLACE, rows).rowcount
        if stale:
            _forget(connection, stale, [row[1:5] for row in rows])
    return changed


def put_question(connection: sqlite3.Connection, question: Question) -> int:
    """Keep a question, once, and return its row."""
    where = " AND ".join(f"{column} = ?" for column in QUESTION.split(", "))
    found = connection.execute(f"SELECT id FROM questions WHERE {where}", question).fetchone()
    if found is not None:
        return int(found[0])
    statement = f"INSERT INTO questions ({QUESTION}) VALUES (?, ?, ?, ?, ?, ?)"
    return int(connection.execute(statement, question).lastrowid or 0)


def _siblings(connection: sqlite3.Connection, question: Question, number: int) -> list[int]:
    """Return what else stood at this place of this task, such as the document before its gold
    answer was corrected.
    """
    rows = connection.execute(
        "SELECT id FROM questions WHERE task = ? AND version = ? AND filter = ? AND doc_id = ? "
        "AND id <> ?",
        (*question[:4], number),
    )
    return [int(row[0]) for row in rows]


def _forget(
    connection: sqlite3.Connection, stale: list[int], places: list[tuple[int, ...]]
) -> None:
    connection.executemany(
        f"DELETE FROM outcomes WHERE question IN ({marks(stale)}) "
        "AND model = ? AND sampling = ? AND prompt = ? AND trial = ?",
        [(*stale, *place) for place in places],
    )
    delete_unused_questions(connection, stale)


def delete_unused_questions(connection: sqlite3.Connection, questions: Iterable[int]) -> int:
    """Delete those of the questions that have no outcome left; return how many."""
    return connection.executemany(
        "DELETE FROM questions WHERE id = ? "
        "AND NOT EXISTS (SELECT 1 FROM outcomes WHERE question = questions.id)",
        [(number,) for number in questions],
    ).rowcount


def check_outcomes(tasks: Iterable[GradedTask]) -> list[Checked]:
    """Return the questions that have trials, with these, if they may be stored.

    Raises
    ------
    InvalidInputError
        If a record breaks a rule.
    """
    checked: list[Checked] = []
    for task in tasks:
        if not isinstance(task, GradedTask):
            raise InvalidInputError.of("tasks", "hold GradedTask records", task)
        name, version = _text("task", task.task), _text("version", task.version)
        pipeline = _text("filter", task.filter)
        categories = check_int64("categories", task.categories, 2)
        for question in task.questions:
            if not isinstance(question, GradedQuestion):
                raise InvalidInputError.of("questions", "hold GradedQuestion records", question)
            doc_id = check_int64("doc_id", question.doc_id, 0)
            doc_hash = _text("doc_hash", question.doc_hash)
            trials = tuple(question.trials)
            for trial in trials:
                _check_trial(trial, categories)
            if trials:
                checked.append(((name, version, pipeline, doc_id, categories, doc_hash), trials))
    return checked


def _check_trial(trial: GradedTrial, categories: int) -> None:
    if not isinstance(trial, GradedTrial) or not isinstance(trial.key, TrialKey):
        raise InvalidInputError.of("trials", "hold GradedTrial records", trial)
    check_int64("trial", trial.trial, 0)
    if check_integer("outcome", trial.outcome, 0) >= categories:
        rule = f"be below the {categories} categories of the task"
        raise InvalidInputError.of("outcome", rule, trial.outcome)
    for name, text in (("answer", trial.answer), ("error", trial.error)):
        if text is not None and not isinstance(text, str):
            raise InvalidInputError.of(name, "be a string or None", text)


def _text(name: str, value: object) -> str:
    text = check_text(name, value)
    if text is None:
        raise InvalidInputError.of(name, "be a string that UTF-8 can hold", value)
    return text


def _values(question: Question, trial: GradedTrial, now: float) -> tuple[Any, ...]:
    answer = None if trial.answer is None else text_bytes(trial.answer)
    error = None if trial.error is None else text_bytes(trial.error)
    values = (now, int(trial.outcome), answer, error)
    return (*values, hash_bytes(_hashed(question, trial.key, int(trial.trial), values)))


def _hashed(question: Question, key: TrialKey, trial: int, values: tuple[Any, ...]) -> bytes:
    """Return the bytes that an outcome's hash is taken of, whatever ids its file uses."""
    graded, outcome, answer, error = values
    lengths = [None if text is None else len(text) for text in (answer, error)]
    head = [*question, key.model, key.prompt, key.sampling, trial, graded, outcome, *lengths]
    return compact_json(head).encode("ascii") + b"\0" + (answer or b"") + (error or b"")


@dataclass(frozen=True)
class OutcomeRow:
    """One row of :data:`SELECT`."""

    question: Question
    key: TrialKey
    trial: int
    values: tuple[Any, ...]
    hash: object

    @classmethod
    def of(cls, row: tuple[Any, ...]) -> OutcomeRow:
        """Take a row apart."""
        key = TrialKey(model=row[6], prompt=row[8], sampling=row[7])
        question: Question = (row[0], row[1], row[2], row[3], row[4], row[5])
        return cls(question, key, row[9], tuple(row[10:14]), row[14])

    def __str__(self) -> str:
        return f"the outcome of trial {self.trial} of {self.key} in task {self.question[0]}"

    @property
    def grading(self) -> tuple[Any, ...]:
        """What another grading of the same trial may have otherwise."""
        return (*self.question[4:], *self.values[1:])

    def is_intact(self) -> bool:
        """Whether it is what was written."""
        try:
            return agrees(self.hash, _hashed(self.question, self.key, self.trial, self.values))
        except (TypeError, ValueError):
            return False

    def graded_trial(self) -> GradedTrial:
        """Return the record.

        Raises
        ------
        TypeError, ValueError
            If the row is damaged.
        """
        _, outcome, answer, error = self.values
        return GradedTrial(self.key, self.trial, outcome, _decoded(answer), _decoded(error))


def _decoded(text: Any) -> str | None:
    return None if text is None else str(text, "utf-8", "surrogatepass")


def rows_of(
    connection: sqlite3.Connection, where: str = "", values: tuple[Any, ...] = ()
) -> Iterator[OutcomeRow]:
    """Read outcomes, those of one question after each other."""
    for row in connection.execute(f"{SELECT} {where} {ORDER}", values):
        yield OutcomeRow.of(row)


def read_outcomes(file: StoreFile, task: str | None = None) -> tuple[GradedTask, ...]:
    """Return what was graded, see ``TrialStore.outcomes_of``."""
    if file.schema < OUTCOMES_SCHEMA:
        return ()
    where, values = ("", ()) if task is None else ("WHERE q.task = ?", (_text("task", task),))
    with file.reading() as connection, readable(file.path, "an outcome"):
        rows = connection.execute(f"{SELECT} {where} {ORDER}", values).fetchall()
        return tuple(_tasks(rows))


def _tasks(rows: list[tuple[Any, ...]]) -> Iterator[GradedTask]:
    # Task, version, filter and categories; then the question.
    for (name, version, pipeline, categories), of_task in groupby(rows, itemgetter(0, 1, 2, 4)):
        questions = []
        for (doc_id, doc_hash), of_question in groupby(of_task, itemgetter(3, 5)):
            keys: dict[tuple[str, ...], TrialKey] = {}
            trials = []
            for row in of_question:
                hashes = row[6:9]
                if hashes not in keys:
                    keys[hashes] = TrialKey(model=row[6], prompt=row[8], sampling=row[7])
                text, error = _decoded(row[12]), _decoded(row[13])
                trials.append(GradedTrial(keys[hashes], row[9], row[11], text, error))
            questions.append(GradedQuestion(doc_id, doc_hash, tuple(trials)))
        yield GradedTask(name, version, pipeline, categories, tuple(questions))
