"""Verify a store: SQLite's structure, its references, and the hash of every record."""

from __future__ import annotations

import sqlite3
from collections import Counter
from collections.abc import Iterable
from contextlib import closing
from dataclasses import dataclass
from os import PathLike
from typing import Any

from lm_eval_bayes._util.plain import Record
from lm_eval_bayes.store.errors import StoreDamagedError, StoreError
from lm_eval_bayes.store.file import StoreFile, open_file
from lm_eval_bayes.store.migrations import MIGRATIONS
from lm_eval_bayes.store.outcomes import OutcomeRow, outcome_rows
from lm_eval_bayes.store.tables import (
    TABLES,
    DescriptionRow,
    PromptSignalsRow,
    broken_references,
    description_rows,
    prompt_signals_rows,
    trial_rows,
)
from lm_eval_bayes.store.trial import TrialRow

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
    trials, descriptions, prompt_signals, outcomes : int
        Number of records that were checked.
    problems : tuple of str
        One sentence each, at most 100; empty for an intact store.
    n_problems : int
        The number of problems.
    """

    path: str
    schema: int
    trials: int
    descriptions: int
    prompt_signals: int
    outcomes: int
    problems: tuple[str, ...]
    n_problems: int

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
        return Verification(str(path), 0, 0, 0, 0, 0, (str(error),), 1)
    with closing(file):
        check = _Check(file)
        try:
            with file.reading() as connection:
                # Text that is not UTF-8 should fail its hash, and not end the check.
                connection.text_factory = lambda data: data.decode("utf-8", "surrogateescape")
                check.run(connection)
        except StoreError as error:
            check.add_problem(str(error))
        return check.result()


class _Check:
    def __init__(self, file: StoreFile) -> None:
        self.file = file
        self.counts: Counter[str] = Counter()
        self.problems: list[str] = []
        self.n_problems = 0

    def add_problem(self, problem: str) -> None:
        self.n_problems += 1
        if len(self.problems) < MAX_PROBLEMS:
            self.problems.append(problem)

    def result(self) -> Verification:
        return Verification(
            path=str(self.file.path),
            schema=self.file.schema,
            trials=self.counts["trials"],
            descriptions=self.counts["descriptions"],
            prompt_signals=self.counts["prompt_signals"],
            outcomes=self.counts["outcomes"],
            problems=tuple(self.problems),
            n_problems=self.n_problems,
        )

    def run(self, connection: sqlite3.Connection) -> None:
        for (line,) in connection.execute(f"PRAGMA integrity_check({MAX_PROBLEMS})"):
            if line != "ok":
                self.add_problem(f"SQLite: {line}")
        if _tables(connection) != _expected_tables(self.file.schema):
            self.add_problem(f"the tables are not those of schema {self.file.schema}")
        for problem in broken_references(connection):
            self.add_problem(problem)
        for table in TABLES:
            self.check_hashes("descriptions", description_rows(connection, table))
        self.check_hashes("trials", trial_rows(connection))
        self.check_hashes("prompt_signals", prompt_signals_rows(connection, self.file.schema))
        self.check_hashes("outcomes", outcome_rows(connection, self.file.schema))

    def check_hashes(
        self,
        kind: str,
        rows: Iterable[DescriptionRow | TrialRow | PromptSignalsRow | OutcomeRow],
    ) -> None:
        for row in rows:
            self.counts[kind] += 1
            if not row.is_intact():
                self.add_problem(f"{row} does not match its hash")


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
