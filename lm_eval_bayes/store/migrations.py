"""The tables of a store, as numbered steps that bring any older file up to date."""

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
    """One step: from schema `number` - 1 to schema `number`, all of it or nothing."""

    number: int
    name: str
    statements: Iterable[str]


def _one_line(*statements: str) -> tuple[str, ...]:
    """Return statements as the file shall keep them, however they are laid out here."""
    return tuple(" ".join(statement.split()) for statement in statements)


# A released step is never edited: stores that ran it exist. Add the next number instead.
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
            """CREATE TABLE models (
                id INTEGER PRIMARY KEY, hash TEXT NOT NULL UNIQUE, description TEXT NOT NULL
            )""",
            """CREATE TABLE samplings (
                id INTEGER PRIMARY KEY, hash TEXT NOT NULL UNIQUE, description TEXT NOT NULL
            )""",
            """CREATE TABLE versions (
                id INTEGER PRIMARY KEY, hash TEXT NOT NULL UNIQUE, description TEXT NOT NULL
            )""",
            """CREATE TABLE prompts (
                id INTEGER PRIMARY KEY, hash TEXT NOT NULL UNIQUE, description BLOB NOT NULL
            )""",
            # The text stands last: SQLite walks through whatever precedes a column, and
            # what a reasoning model wrote can be long.
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
            # The trial itself may lie in another rank's store, so nothing refers to it.
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
)

#: The schema that this release writes.
SCHEMA = MIGRATIONS[-1].number

#: The schema from which on prompts have signals.
PROMPT_SIGNALS_SCHEMA = 2

#: The schema from which on trials have outcomes.
OUTCOMES_SCHEMA = 3


def refuse_newer(connection: sqlite3.Connection, path: str | PathLike[str]) -> int:
    """Return the schema in a store's header, unless a later release wrote it.

    Raises
    ------
    NewerSchemaError
        If it did.
    """
    schema = int(connection.execute("PRAGMA user_version").fetchone()[0])
    if schema > SCHEMA:
        raise NewerSchemaError(
            f"{path} has schema {schema} and this release of lm-eval-bayes knows schemas up to "
            f"{SCHEMA}: upgrade lm-eval-bayes; nothing was changed"
        )
    return schema


def schema_of(connection: sqlite3.Connection, path: str | PathLike[str]) -> int:
    """Return the schema of a store, which this release can read.

    Raises
    ------
    NewerSchemaError
        If a later release wrote it.
    StoreDamagedError
        If the file's header and its list of migrations tell different stories.
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
    """Bring a store, or a new file, to the schema of this release.

    Each step and its bookkeeping are one transaction, so whatever interrupts the work leaves
    a store of an older schema and never one between two.

    Returns
    -------
    list of int
        The numbers of the steps taken.
    """
    taken = []
    for migration in MIGRATIONS:
        connection.execute("BEGIN IMMEDIATE")
        try:
            # Asked inside the transaction: another process may upgrade the same file.
            if connection.execute("PRAGMA user_version").fetchone()[0] < migration.number:
                for statement in migration.statements:
                    connection.execute(statement)
                connection.execute(
                    "INSERT INTO migrations (number, name, applied) VALUES (?, ?, ?)",
                    (migration.number, migration.name, time.time()),
                )
                connection.execute(f"PRAGMA application_id = {TRIAL_STORE_ID}")
                connection.execute(f"PRAGMA user_version = {migration.number}")
                taken.append(migration.number)
            connection.execute("COMMIT")
        except BaseException:
            if connection.in_transaction:
                connection.execute("ROLLBACK")
            raise
    return taken
