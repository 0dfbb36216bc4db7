"""The questions of graded tasks, and their clusters: records and tables."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, NamedTuple

from lm_eval_bayes._util.hashing import hash_bytes, text_bytes
from lm_eval_bayes.store.file import marks
from lm_eval_bayes.store.trial import has_hash, json_bytes

#: The columns that identify a question, in the order of every row here.
QUESTION = ("task", "version", "filter", "doc_id", "categories", "doc_hash")
#: A question, as :data:`QUESTION` orders it.
Question = tuple[str, str, str, int, int, str]

_COLUMNS = ", ".join(f"q.{column}" for column in QUESTION)
_IS_QUESTION = f"({_COLUMNS}) = ({marks(QUESTION)})"


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


def put_question(connection: sqlite3.Connection, question: Question) -> int:
    """Insert a question unless it is stored, and return its id."""
    row_id = _find_question(connection, question)
    if row_id is not None:
        return row_id
    statement = f"INSERT INTO questions ({', '.join(QUESTION)}) VALUES ({marks(QUESTION)})"
    return int(connection.execute(statement, question).lastrowid or 0)


def _find_question(connection: sqlite3.Connection, question: Question) -> int | None:
    statement = f"SELECT q.id FROM questions AS q WHERE {_IS_QUESTION}"
    row = connection.execute(statement, question).fetchone()
    return None if row is None else int(row[0])


@dataclass(frozen=True)
class ClusterRow:
    """One row of the table of clusters, with its question.

    Attributes
    ----------
    question : tuple
        As :data:`QUESTION` orders it.
    values : tuple
        Field and label, as they are stored.
    digest : object
        The stored hash.
    """

    question: Question
    values: tuple[Any, Any]
    digest: object

    @classmethod
    def of(cls, question: Question, cluster: Cluster) -> ClusterRow:
        """Return the row of a cluster."""
        values = (text_bytes(cluster.field), text_bytes(cluster.label))
        return cls(question, values, hash_bytes(_cluster_bytes(question, values)))

    def __str__(self) -> str:
        return f"the cluster of question {self.question[3]} in task {self.question[0]}"

    def is_intact(self) -> bool:
        """Whether it matches its hash."""
        return has_hash(self.digest, _cluster_bytes, self.question, self.values)

    def cluster(self) -> Cluster:
        """Return the record.

        Raises
        ------
        TypeError, ValueError
            If the row is damaged.
        """
        field, label = (str(value, "utf-8", "surrogatepass") for value in self.values)
        return Cluster(field, label)


def _cluster_bytes(question: Question, values: tuple[Any, Any]) -> bytes:
    """Return the bytes that a cluster is hashed by, independent of the ids of a file."""
    field, label = map(bytes, values)
    return json_bytes(*question, len(field)) + b"\0" + field + label


def cluster_rows(
    connection: sqlite3.Connection, where: str = "", values: tuple[Any, ...] = ()
) -> Iterator[ClusterRow]:
    """Read clusters in the order of their questions; `where` may use c (clusters) and q."""
    statement = (
        f"SELECT {_COLUMNS}, c.field, c.label, c.hash FROM clusters AS c "
        f"JOIN questions AS q ON q.id = c.question {where} ORDER BY {_COLUMNS}"
    )
    for row in connection.execute(statement, values):
        yield ClusterRow(row[:6], row[6:8], row[8])


def put_cluster(connection: sqlite3.Connection, question_id: int, row: ClusterRow) -> None:
    """Store the cluster of a question in place of an earlier one."""
    connection.execute(
        "INSERT OR REPLACE INTO clusters (question, field, label, hash) VALUES (?, ?, ?, ?)",
        (question_id, *row.values, row.digest),
    )


def insert_cluster(connection: sqlite3.Connection, row: ClusterRow) -> Cluster | None:
    """Insert a cluster unless its question has one, which is returned.

    The cluster of a question that is not stored, because its outcomes were refused, is left out.
    """
    stored = cluster_rows(connection, f"WHERE {_IS_QUESTION}", row.question)
    for earlier in stored:
        return earlier.cluster()
    question_id = _find_question(connection, row.question)
    if question_id is not None:
        put_cluster(connection, question_id, row)
    return None
