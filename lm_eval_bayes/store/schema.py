"""The tables of a store, and its records: read with what they refer to, checked, written."""

from __future__ import annotations

import sqlite3
from collections.abc import Generator, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from os import PathLike
from typing import Any, NamedTuple

from lm_eval_bayes._util.hashing import hash_bytes
from lm_eval_bayes._util.sqlite import TRIAL_STORE_ID
from lm_eval_bayes.errors import InvalidInputError
from lm_eval_bayes.store.errors import OtherSchemaError
from lm_eval_bayes.store.trial import MEASUREMENTS, compact_json, pack, unpack

#: The schema that this release reads and writes.
SCHEMA = 1

_STATEMENTS = (
    *(
        f"""CREATE TABLE {table} (
            id INTEGER PRIMARY KEY, hash TEXT NOT NULL UNIQUE, description {kind} NOT NULL
        )"""
        for table, kind in (
            ("models", "TEXT"),
            ("samplings", "TEXT"),
            ("versions", "TEXT"),
            ("prompts", "BLOB"),
        )
    ),
    # The text is the last column: SQLite reads all columns before the one that is selected,
    # and texts of reasoning models are long.
    """CREATE TABLE trials (
        model INTEGER NOT NULL REFERENCES models (id),
        sampling INTEGER NOT NULL REFERENCES samplings (id),
        prompt INTEGER NOT NULL REFERENCES prompts (id),
        trial INTEGER NOT NULL CHECK (trial >= 0),
        versions INTEGER NOT NULL REFERENCES versions (id),
        seed INTEGER,
        prompt_tokens INTEGER,
        completion_tokens INTEGER,
        finish_reason TEXT,
        stop_reason TEXT,
        queued_s REAL,
        generated_s REAL,
        concurrency INTEGER,
        created REAL NOT NULL,
        signals TEXT,
        hash TEXT NOT NULL,
        text BLOB NOT NULL,
        PRIMARY KEY (model, sampling, prompt, trial)
    )""",
    """CREATE TABLE prompt_signals (
        model INTEGER NOT NULL REFERENCES models (id),
        prompt INTEGER NOT NULL REFERENCES prompts (id),
        created REAL NOT NULL,
        signals TEXT NOT NULL,
        hash TEXT NOT NULL,
        PRIMARY KEY (model, prompt)
    )""",
    """CREATE TABLE questions (
        id INTEGER PRIMARY KEY,
        task TEXT NOT NULL,
        version TEXT NOT NULL,
        filter TEXT NOT NULL,
        doc_id INTEGER NOT NULL CHECK (doc_id >= 0),
        categories INTEGER NOT NULL CHECK (categories >= 2),
        doc_hash TEXT NOT NULL,
        UNIQUE (task, version, filter, doc_id, categories, doc_hash)
    )""",
    # Without a reference to the trial, which may be in another rank's store.
    """CREATE TABLE outcomes (
        question INTEGER NOT NULL REFERENCES questions (id),
        model INTEGER NOT NULL REFERENCES models (id),
        sampling INTEGER NOT NULL REFERENCES samplings (id),
        prompt INTEGER NOT NULL REFERENCES prompts (id),
        trial INTEGER NOT NULL CHECK (trial >= 0),
        graded REAL NOT NULL,
        outcome INTEGER NOT NULL CHECK (outcome >= 0),
        answer BLOB,
        error BLOB,
        hash TEXT NOT NULL,
        PRIMARY KEY (question, model, sampling, prompt, trial)
    )""",
    """CREATE TABLE clusters (
        question INTEGER PRIMARY KEY REFERENCES questions (id) ON DELETE CASCADE,
        field BLOB NOT NULL,
        label BLOB NOT NULL,
        hash TEXT NOT NULL
    )""",
    """CREATE TABLE sources (
        model INTEGER NOT NULL REFERENCES models (id) ON DELETE CASCADE,
        description TEXT NOT NULL,
        created REAL NOT NULL,
        hash TEXT NOT NULL,
        PRIMARY KEY (model, description)
    )""",
)


def create_tables(connection: sqlite3.Connection) -> None:
    """Create the tables and the header of a new store, in a transaction."""
    for statement in _STATEMENTS:
        connection.execute(" ".join(statement.split()))
    connection.execute(f"PRAGMA application_id = {TRIAL_STORE_ID}")
    connection.execute(f"PRAGMA user_version = {SCHEMA}")


def check_schema(connection: sqlite3.Connection, path: str | PathLike[str]) -> None:
    """Refuse a store of another schema.

    Raises
    ------
    OtherSchemaError
        If the store's header has another number.
    """
    schema = connection.execute("PRAGMA user_version").fetchone()[0]
    if schema != SCHEMA:
        sentence = (
            f"{path} has schema {schema}, and this release of lm-eval-bayes reads schema {SCHEMA}"
        )
        raise OtherSchemaError(sentence, "schema", str(path), schema)


#: The columns that identify a question.
QUESTION = ("task", "version", "filter", "doc_id", "categories", "doc_hash")

#: Columns of ids, and the columns of another table that a record has in their place.
_REFERENCES: dict[str, tuple[str, tuple[str, ...]]] = {
    "model": ("models", ("hash",)),
    "prompt": ("prompts", ("hash",)),
    "sampling": ("samplings", ("hash",)),
    "versions": ("versions", ("description",)),
    "question": ("questions", QUESTION),
}

#: The condition of a key's rows, with the hashes of model, prompt and sampling as its values.
OF_KEY = " AND ".join(
    f"t.{name} = (SELECT id FROM {name}s WHERE hash = ?)"
    for name in ("model", "prompt", "sampling")
)


@dataclass(frozen=True)
class Table:
    """A table of records, each stored with the hash that it was written with.

    Attributes
    ----------
    name : str
        The table.
    label : str
        What a record is called in messages, with its columns in braces.
    columns : tuple of str
        The columns that are hashed as JSON.
    texts : tuple of str
        The columns that are hashed as bytes.
    n_lengths : int
        Of how many of the texts the length is hashed as well.
    kind : str
        The type in which texts are stored.
    """

    name: str
    label: str
    columns: tuple[str, ...] = ()
    texts: tuple[str, ...] = ()
    n_lengths: int = 0
    kind: str = "BLOB"

    @cached_property
    def names(self) -> tuple[str, ...]:
        """The names of a record's values: of a question they are several."""
        return tuple(
            name
            for column in self.columns
            for name in (QUESTION if column == "question" else (column,))
        )

    @cached_property
    def select(self) -> str:
        """The statement that reads all records, before its conditions; the table is t."""
        columns, joins = [], []
        for column in self.columns:
            if column in _REFERENCES:
                table, names = _REFERENCES[column]
                columns += [f"{column}_.{name}" for name in names]
                joins.append(f"LEFT JOIN {table} AS {column}_ ON {column}_.id = t.{column}")
            else:
                columns.append(f"t.{column}")
        columns += ["t.hash", *(f"CAST(t.{name} AS BLOB)" for name in self.texts)]
        return f"SELECT {', '.join(columns)} FROM {self.name} AS t {' '.join(joins)}"

    @cached_property
    def insert(self) -> str:
        """The statement that inserts a record unless its key is stored."""
        values = []
        for column in self.columns:
            table, names = _REFERENCES.get(column, ("", ()))
            row = f"({', '.join(names)}) = ({', '.join('?' * len(names))})"
            values.append(f"(SELECT id FROM {table} WHERE {row})" if table else "?")
        values += ["?", *(f"CAST(? AS {self.kind})" for _ in self.texts)]
        columns = ", ".join((*self.columns, "hash", *self.texts))
        return (
            f"INSERT INTO {self.name} ({columns}) VALUES ({', '.join(values)}) "
            "ON CONFLICT DO NOTHING"
        )

    def hash_of(self, values: Sequence[Any], texts: Sequence[bytes | None]) -> str:
        """Return the hash of a record, which is independent of the ids of a file.

        Raises
        ------
        TypeError, ValueError
            If a damaged record has other types.
        """
        lengths = [None if text is None else len(text) for text in texts[: self.n_lengths]]
        head = [compact_json([*values, *lengths]).encode("ascii")] if self.columns else []
        body = [b"".join(text or b"" for text in texts)] if self.texts else []
        return hash_bytes(b"\0".join(head + body))

    def record(self, values: Sequence[Any], texts: Sequence[bytes | None] = ()) -> Row:
        """Return a new record."""
        return Row(self, tuple(values), self.hash_of(values, texts), tuple(texts))


class Row(NamedTuple):
    """A record of a table: its values, the hash that it was written with, and its texts."""

    table: Table
    values: tuple[Any, ...]
    digest: Any
    texts: tuple[Any, ...]

    def __str__(self) -> str:
        return self.table.label.format(hash=self.digest, **self.named())

    def named(self) -> dict[str, Any]:
        """Return the values by name."""
        return dict(zip(self.table.names, self.values, strict=True))

    def is_intact(self) -> bool:
        """Whether it still has the hash that it was written with."""
        try:
            return bool(self.digest == self.table.hash_of(self.values, self.texts))
        except (TypeError, ValueError):
            return False


_OF_TRIAL = "trial {trial} of prompt {prompt} (model {model}, sampling {sampling})"
_KEY = ("model", "prompt", "sampling", "trial")

MODELS, SAMPLINGS, VERSIONS = (
    Table(name, label + " {hash}", texts=("description",), kind="TEXT")
    for name, label in (
        ("models", "the model"),
        ("samplings", "the sampling"),
        ("versions", "the versions"),
    )
)
PROMPTS = Table("prompts", "the prompt {hash}", texts=("description",))
SOURCES = Table(
    "sources", "a source of the model {model}", columns=("model", "description", "created")
)
TRIALS = Table("trials", _OF_TRIAL, columns=(*_KEY, "versions", *MEASUREMENTS), texts=("text",))
PROMPT_SIGNALS = Table(
    "prompt_signals",
    "the row of signals of prompt {prompt}",
    columns=("model", "prompt", "created", "signals"),
)
OUTCOMES = Table(
    "outcomes",
    f"the outcome of {_OF_TRIAL} in task {{task}}",
    columns=("question", *_KEY, "graded", "outcome"),
    texts=("answer", "error"),
    n_lengths=2,
)
CLUSTERS = Table(
    "clusters",
    "the cluster of question {doc_id} in task {task}",
    columns=("question",),
    texts=("field", "label"),
    n_lengths=1,
)

#: Every table of records; those that others refer to come first.
TABLES = (MODELS, SAMPLINGS, VERSIONS, PROMPTS, SOURCES, PROMPT_SIGNALS, TRIALS, OUTCOMES, CLUSTERS)


def rows(
    connection: sqlite3.Connection,
    table: Table,
    dictionaries: Mapping[int, bytes],
    conditions: str = "",
    values: Sequence[object] = (),
) -> Generator[Row, None, None]:
    """Read the records of a table; its name in the conditions is t."""
    n = len(table.names)
    for row in connection.execute(f"{table.select} {conditions}", values):
        texts = tuple(unpack(text, dictionaries) for text in row[n + 1 :])
        yield Row(table, row[:n], row[n], texts)


def insert(connection: sqlite3.Connection, row: Row) -> bool:
    """Insert a record unless its key is stored; return whether it was inserted.

    Raises
    ------
    InvalidInputError
        If one of its hashes has no description in the store.
    """
    texts: Iterable[Any] = map(pack, row.texts) if row.table is TRIALS else row.texts
    try:
        cursor = connection.execute(row.table.insert, (*row.values, row.digest, *texts))
    except sqlite3.IntegrityError:
        named = row.named()
        for name in ("model", "prompt", "sampling"):
            if name in named and not is_described(connection, f"{name}s", named[name]):
                rule = f"be a hash that describe_{name} gave for this store"
                raise InvalidInputError.of(name, "choice", rule, named[name]) from None
        raise
    return cursor.rowcount == 1


def is_described(connection: sqlite3.Connection, table: str, digest: str) -> bool:
    """Return whether a hash is stored; `table` is one of descriptions."""
    statement = f"SELECT 1 FROM {table} WHERE hash = ?"
    return connection.execute(statement, (digest,)).fetchone() is not None


def put_question(connection: sqlite3.Connection, question: Sequence[Any]) -> None:
    """Insert a question, as :data:`QUESTION` orders it, unless it is stored."""
    connection.execute(
        f"INSERT INTO questions ({', '.join(QUESTION)}) VALUES (?, ?, ?, ?, ?, ?) "
        "ON CONFLICT DO NOTHING",
        tuple(question),
    )
