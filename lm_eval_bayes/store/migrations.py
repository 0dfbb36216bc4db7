"""The tables of a store, as numbered migrations that upgrade an older file."""

from __future__ import annotations

import sqlite3
import time
from collections.abc import Iterable
from dataclasses import dataclass
from os import PathLike

from lm_eval_bayes._util.sqlite import TRIAL_STORE_ID
from lm_eval_bayes.store.errors import NewerSchemaError, StoreDamagedError


@dataclass(frozen=True)
class Migration:
    """The step from schema `number` - 1 to schema `number`, in one transaction."""

    number: int
    name: str
    statements: Iterable[str]


def _one_line(*statements: str) -> tuple[str, ...]:
    """Return statements with single spaces, as they are stored in the file."""
    return tuple(" ".join(statement.split()) for statement in statements)


_DESCRIPTIONS = {"models": "TEXT", "samplings": "TEXT", "versions": "TEXT", "prompts": "BLOB"}

# A released migration is never changed, as stores exist that ran it. Add the next number instead.
MIGRATIONS: tuple[Migration, ...] = (
    Migration(
        1,
        "trials and what their hashes stand for",
        _one_line(
            """CREATE TABLE migrations (
                number INTEGER PRIMARY KEY,
                name TEXT NOT NULL,
                applied REAL NOT NULL
            )""",
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
        ),
    ),
    Migration(
        2,
        "signals of prompts",
        _one_line(
            """CREATE TABLE prompt_signals (
                model INTEGER NOT NULL REFERENCES models (id),
                prompt INTEGER NOT NULL REFERENCES prompts (id),
                created REAL NOT NULL,
                signals TEXT NOT NULL,
                hash TEXT NOT NULL,
                PRIMARY KEY (model, prompt)
            )""",
        ),
    ),
    Migration(
        3,
        "graded outcomes",
        _one_line(
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
        ),
    ),
    Migration(
        4,
        "clusters of questions",
        _one_line(
            """CREATE TABLE clusters (
                question INTEGER PRIMARY KEY REFERENCES questions (id) ON DELETE CASCADE,
                field BLOB NOT NULL,
                label BLOB NOT NULL,
                hash TEXT NOT NULL
            )""",
        ),
    ),
    Migration(
        5,
        "compressed texts",
        # Texts that are stored already stay as they are, see `texts`.
        _one_line(
            """CREATE TABLE dictionaries (
                id INTEGER PRIMARY KEY,
                hash TEXT NOT NULL,
                first BLOB NOT NULL,
                second BLOB NOT NULL
            )""",
        ),
    ),
    Migration(
        6,
        "sources and further names of models",
        _one_line(
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
        ),
    ),
)

#: The schema that this release writes.
SCHEMA = MIGRATIONS[-1].number

#: The first schema with signals of prompts.
PROMPT_SIGNALS_SCHEMA = 2

#: The first schema with outcomes.
OUTCOMES_SCHEMA = 3

#: The first schema with clusters of questions.
CLUSTERS_SCHEMA = 4

#: The first schema with compressed texts.
COMPRESSED_SCHEMA = 5

#: The first schema with sources and aliases of models.
SOURCES_SCHEMA = 6


def refuse_newer(connection: sqlite3.Connection, path: str | PathLike[str]) -> int:
    """Return the schema in a store's header, if this release can read it.

    Raises
    ------
    NewerSchemaError
        If a later release wrote it.
    """
    schema = int(connection.execute("PRAGMA user_version").fetchone()[0])
    if schema > SCHEMA:
        raise NewerSchemaError(
            f"{path} has schema {schema} and this release of lm-eval-bayes reads schemas up to "
            f"{SCHEMA}: upgrade lm-eval-bayes; nothing was changed"
        )
    return schema


def schema_of(connection: sqlite3.Connection, path: str | PathLike[str]) -> int:
    """Return the schema of a store, checked against its list of migrations.

    Raises
    ------
    NewerSchemaError
        If a later release wrote it.
    StoreDamagedError
        If the file's header and its list of migrations differ.
    """
    schema = refuse_newer(connection, path)
    recorded = None
    if schema >= 1:
        recorded = connection.execute("SELECT max(number) FROM migrations").fetchone()[0]
    if recorded != schema:
        raise StoreDamagedError(
            f"{path} is damaged: its header says schema {schema}, its list of migrations {recorded}"
        )
    return schema


def upgrade(connection: sqlite3.Connection) -> list[int]:
    """Upgrade a store, or a new file, to the schema of this release.

    Each migration and its entry in the list are one transaction, so an interrupted upgrade leaves
    a valid store of an older schema.

    Returns
    -------
    list of int
        The numbers of the migrations that were applied.
    """
    applied = []
    for migration in MIGRATIONS:
        connection.execute("BEGIN IMMEDIATE")
        with connection:  # commits, or rolls back on an exception
            # Read in the transaction, as another process may upgrade the same file.
            if connection.execute("PRAGMA user_version").fetchone()[0] < migration.number:
                for statement in migration.statements:
                    connection.execute(statement)
                connection.execute(
                    "INSERT INTO migrations (number, name, applied) VALUES (?, ?, ?)",
                    (migration.number, migration.name, time.time()),
                )
                connection.execute(f"PRAGMA application_id = {TRIAL_STORE_ID}")
                connection.execute(f"PRAGMA user_version = {migration.number}")
                applied.append(migration.number)
    return applied
