"""Graded outcomes: what trials were graded as, by task and question."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import astuple, dataclass, field, replace
from itertools import groupby
from typing import Any, NamedTuple

from lm_eval_bayes._util.hashing import text_bytes
from lm_eval_bayes._util.plain import NOT_IN_JSON, Record
from lm_eval_bayes._util.validation import check_integer
from lm_eval_bayes.errors import InvalidInputError
from lm_eval_bayes.store.file import StoreFile
from lm_eval_bayes.store.schema import (
    CLUSTERS,
    OF_KEY,
    OUTCOMES,
    QUESTION,
    Row,
    insert,
    put_question,
)
from lm_eval_bayes.store.trial import TrialKey, check_int64, check_text


class Cluster(NamedTuple):
    """The cluster of a question.

    Attributes
    ----------
    field : str
        The field of the document that names it, such as "contest".
    label : str
        The document's value of that field, such as "AIME I".
    """

    field: str
    label: str


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
        Grouped by model, prompt and sampling, then by number.
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

    def of(self, model: str, *samplings: str) -> GradedTask:
        """Return the part of one model and some samplings, without questions that have none."""
        questions = []
        for question in self.questions:
            of_model = [trial for trial in question.trials if trial.key.model == model]
            trials = [trial for trial in of_model if trial.key.sampling in samplings]
            if trials:
                questions.append(replace(question, trials=tuple(trials)))
        return replace(self, questions=tuple(questions))


def outcome_records(tasks: Iterable[GradedTask], now: float) -> list[Row]:
    """Return the records of outcomes and clusters.

    Parameters
    ----------
    tasks : iterable of GradedTask
        What was graded.
    now : float
        The date of the outcomes, in seconds since 1970 UTC.

    Raises
    ------
    InvalidInputError
        If one breaks a rule.
    """
    records: list[Row] = []
    for task in tasks:
        names = [check_text(name, getattr(task, name)) for name in ("task", "version", "filter")]
        categories = check_int64("categories", task.categories, 2)
        for graded in task.questions:
            doc_id = check_int64("doc_id", graded.doc_id, 0)
            question = (*names, doc_id, categories, check_text("doc_hash", graded.doc_hash))
            for trial in graded.trials:
                if check_integer("outcome", trial.outcome, 0) >= categories:
                    rule = f"be below the {categories} categories of the task"
                    raise InvalidInputError.of("outcome", "range", rule, trial.outcome)
                values = (*astuple(trial.key), int(trial.trial), now, int(trial.outcome))
                texts = (_encoded(trial.answer), _encoded(trial.error))
                records.append(OUTCOMES.record((*question, *values), texts))
            if graded.trials and graded.cluster is not None:
                records.append(CLUSTERS.record(question, [text_bytes(t) for t in graded.cluster]))
    return records


def _encoded(text: str | None) -> bytes | None:
    return None if text is None else text_bytes(text)


def _decoded(text: bytes | None) -> str | None:
    return None if text is None else str(text, "utf-8", "surrogatepass")


#: The condition of a question that is the same but for its document and its categories.
_OF_DOC_ID = "(task, version, filter, doc_id) = (?, ?, ?, ?)"


def same_subject(row: Row) -> tuple[str, tuple[Any, ...]]:
    """Return the conditions, and their values, of stored records in whose place a record would be.

    These are the cluster of the question, or outcomes of the same trial for the same doc_id,
    version and filter of a task, such as those before its gold answer was corrected.
    """
    if row.table is CLUSTERS:
        question = f"SELECT id FROM questions WHERE ({', '.join(QUESTION)}) = (?, ?, ?, ?, ?, ?)"
        return f"t.question = ({question})", row.values
    questions = f"SELECT id FROM questions WHERE {_OF_DOC_ID}"
    conditions = f"t.question IN ({questions}) AND {OF_KEY} AND t.trial = ?"
    return conditions, (*row.values[:4], *row.values[6:10])


def put_outcomes(file: StoreFile, records: Iterable[Row]) -> None:
    """Store outcomes and clusters in place of earlier ones, in one transaction."""
    questions = set[tuple[Any, ...]]()
    with file.writing() as connection:
        for row in records:
            if row.values[:6] not in questions:
                questions.add(row.values[:6])
                put_question(connection, row.values[:6])
            conditions, values = same_subject(row)
            connection.execute(f"DELETE FROM {row.table.name} AS t WHERE {conditions}", values)
            insert(connection, row)
        connection.executemany(
            f"DELETE FROM questions WHERE {_OF_DOC_ID} "
            "AND NOT EXISTS (SELECT 1 FROM outcomes WHERE question = questions.id)",
            {question[:4] for question in questions},
        )


def read_outcomes(file: StoreFile, task: str | None = None) -> tuple[GradedTask, ...]:
    """Return what was graded: of the task of this name, or of all tasks."""
    where, values = ("", ()) if task is None else ("WHERE question_.task = ?", (task,))
    order = f"{where} ORDER BY 1, 2, 3, 5, 4, 6, 7, 8, 9, 10"
    tasks: dict[tuple[str, str, str, int], list[GradedQuestion]] = {}
    with file.reading(checked=True) as connection:
        rows = file.rows(connection, CLUSTERS, where, values)
        clusters = {
            row.values: Cluster(*(str(text, "utf-8", "surrogatepass") for text in row.texts))
            for row in file.intact(rows)
        }
        # filters in the order in which the harness applied them
        statement = "SELECT task, filter FROM questions ORDER BY id"
        first = dict.fromkeys(connection.execute(statement).fetchall())
        rows = file.rows(connection, OUTCOMES, order, values)
        for question, of_question in groupby(file.intact(rows), lambda row: row.values[:6]):
            name, version, filter_name, doc_id, categories, doc_hash = question
            trials = []
            for of_key, of_trials in groupby(of_question, lambda row: row.values[6:9]):
                key = TrialKey(*of_key)
                for row in of_trials:
                    answer, error = map(_decoded, row.texts)
                    trials.append(GradedTrial(key, row.values[9], row.values[11], answer, error))
            graded = GradedQuestion(doc_id, doc_hash, tuple(trials), clusters.get(question))
            tasks.setdefault((name, version, filter_name, categories), []).append(graded)
    position = {name: number for number, name in enumerate(first)}
    graded_tasks = [GradedTask(*names, tuple(questions)) for names, questions in tasks.items()]
    return tuple(
        sorted(graded_tasks, key=lambda t: (t.task, t.version, position[t.task, t.filter]))
    )
