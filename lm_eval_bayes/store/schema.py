"""The tables of a store, which have a number, the schema."""

from __future__ import annotations

import sqlite3
from os import PathLike

from lm_eval_bayes._util.sqlite import TRIAL_STORE_ID
from lm_eval_bayes.store.errors import OtherSchemaError

#: The schema that this release reads and writes.
SCHEMA = 1

_DESCRIPTIONS = {"models": "TEXT", "samplings": "TEXT", "versions": "TEXT", "prompts": "BLOB"}

_STATEMENTS = (
    *(
        f"""CREATE TABLE {table} (
            id INTEGER PRIMARY KEY, hash TEXT NOT NULL UNIQUE, description {kind} NOT NULL
        )"""
        for table, kind in _DESCRIPTIONS.items()
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
    # Of texts, see `texts`.
    """CREATE TABLE dictionaries (
        id INTEGER PRIMARY KEY,
        hash TEXT NOT NULL,
        first BLOB NOT NULL,
        second BLOB NOT NULL
    )""",
    """CREATE TABLE sources (
        model INTEGER NOT NULL REFERENCES models (id) ON DELETE CASCADE,
        description TEXT NOT NULL,
        created REAL NOT NULL,
        hash TEXT NOT NULL,
        PRIMARY KEY (model, description)
    )""",
    """CREATE TABLE aliases (
        name TEXT PRIMARY KEY,
        model INTEGER NOT NULL REFERENCES models (id) ON DELETE CASCADE,
        hash TEXT NOT NULL
    )""",
)


def create_tables(connection: sqlite3.Connection) -> None:
    """Create the tables and the header of a new store, in one transaction."""
    connection.execute("BEGIN IMMEDIATE")
    with connection:  # commits, or rolls back on an exception
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
