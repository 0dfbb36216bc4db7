"""Verify a store: SQLite's structure, its references, and the hash of every record."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable, Iterator
from contextlib import closing
from dataclasses import dataclass
from itertools import chain
from os import PathLike
from typing import Any

from lm_eval_bayes._util.plain import Record
from lm_eval_bayes.store.errors import StoreDamagedError, StoreError
from lm_eval_bayes.store.file import StoreFile, lacks_log, open_file
from lm_eval_bayes.store.migrations import COMPRESSED_SCHEMA, MIGRATIONS
from lm_eval_bayes.store.outcomes import outcome_rows
from lm_eval_bayes.store.questions import cluster_rows
from lm_eval_bayes.store.sources import alias_rows, source_rows
from lm_eval_bayes.store.tables import (
    TABLES,
    broken_references,
    description_rows,
    prompt_signals_rows,
    trial_rows,
)
from lm_eval_bayes.store.texts import dictionary_rows

#: The most problems that a verification lists; all are counted.
MAX_PROBLEMS = 100


@dataclass(frozen=True)
class Verification(Record):
    """What was checked in a store, and its problems.

    Attributes
    ----------
    path : str
        The file.
    schema : int
        Its schema; 0 if it could not be opened.
    trials, descriptions, prompt_signals, outcomes, clusters : int
        Number of records that were checked.
    problems : tuple of str
        One sentence each, at most 100; empty for an intact store.
    n_problems : int
        The number of problems.
    notes : tuple of str
        What may be wrong, though the store is intact: that its latest trials may be missing.
    """

    path: str
    schema: int
    trials: int
    descriptions: int
    prompt_signals: int
    outcomes: int
    clusters: int
    problems: tuple[str, ...]
    n_problems: int
    notes: tuple[str, ...] = ()

    @property
    def ok(self) -> bool:
        """Whether there is no problem."""
        return self.n_problems == 0

    def to_dict(self) -> dict[str, Any]:
        """Return plain JSON types, with `ok`."""
        return {**super().to_dict(), "ok": self.ok}


def verify(path: str | PathLike[str]) -> Verification:
    """Check a store: SQLite's structure, its references, and every hash.

    The hash of a trial is of all its fields and the hashes of its key, so a single changed bit
    in a text, a signal or a seed is detected.

    Parameters
    ----------
    path : path
        The store. It may be in use: one consistent state of it is checked.

    Returns
    -------
    Verification
        Also for a store that is too damaged to be opened.

    Raises
    ------
    StoreError
        If there is no store at the path, or one of a later release.
    """
    try:
        file = open_file(path, "read")
    except StoreDamagedError as error:
        return Verification(str(path), 0, 0, 0, 0, 0, 0, (str(error),), 1)
    counts = dict.fromkeys(("trials", "descriptions", "prompt_signals", "outcomes", "clusters"), 0)
    problems: list[str] = []
    n_problems = 0
    with closing(file):
        for problem in _problems(file, counts):
            n_problems += 1
            if len(problems) < MAX_PROBLEMS:
                problems.append(problem)
    return Verification(
        path=str(file.path),
        schema=file.schema,
        **counts,
        problems=tuple(problems),
        n_problems=n_problems,
        notes=(lacks_log(file.path),) if file.lacks_log else (),
    )


def _problems(file: StoreFile, counts: dict[str, int]) -> Iterator[str]:
    """Yield a sentence about each problem, and count the records in `counts`."""
    try:
        with file.reading() as connection:
            for (line,) in connection.execute(f"PRAGMA integrity_check({MAX_PROBLEMS})"):
                yield from (f"SQLite: {problem}" for problem in _lines(line))
            if _tables(connection) != _expected_tables(file.schema):
                yield f"the tables are not those of schema {file.schema}"
            yield from broken_references(connection)
            records: dict[str, Iterable[Any]] = {
                "descriptions": chain.from_iterable(
                    description_rows(connection, table) for table in TABLES
                ),
                "trials": trial_rows(connection, file.texts),
                "prompt_signals": prompt_signals_rows(connection, file.schema),
                "outcomes": outcome_rows(connection, file.schema),
                "clusters": cluster_rows(connection, file.schema),
            }
            for named in chain[Any](
                source_rows(connection, file.schema), alias_rows(connection, file.schema)
            ):
                if not named.is_intact():
                    yield f"{named} does not match its hash"
            if file.schema >= COMPRESSED_SCHEMA:
                for dictionary in dictionary_rows(connection):
                    if not dictionary.is_intact():
                        yield f"a copy of {dictionary} does not match its hash"
            for kind, rows in records.items():
                for row in rows:
                    counts[kind] += 1
                    if not row.is_intact():
                        yield f"{row} does not match its hash"
    except StoreError as error:
        yield str(error)


def _lines(text: str) -> list[str]:
    r"""Return the problems in a text of SQLite's integrity check, which has one per line.

    Examples
    --------
    >>> _lines("*** in database main ***\nTree 5 page 5: btreeInitPage() returns error code 11")
    ['Tree 5 page 5: btreeInitPage() returns error code 11']
    >>> _lines("ok")
    []
    """
    if text == "ok":
        return []
    lines = text.splitlines()
    return [line for line in lines if not line.startswith("***")] or lines


def _tables(connection: sqlite3.Connection) -> list[Any]:
    # Without the tables that ANALYZE creates.
    return connection.execute(
        "SELECT type, name, tbl_name, sql FROM sqlite_master "
        "WHERE name NOT LIKE 'sqlite~_stat%' ESCAPE '~' ORDER BY type, name"
    ).fetchall()


def _expected_tables(schema: int) -> list[Any]:
    with closing(sqlite3.connect(":memory:")) as connection:
        for migration in MIGRATIONS[:schema]:
            for statement in migration.statements:
                connection.execute(statement)
        return _tables(connection)
