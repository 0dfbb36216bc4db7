"""Find out whether a store still is what was written."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import closing
from dataclasses import asdict, dataclass
from os import PathLike
from typing import Any

from lm_eval_bayes.store.descriptions import TABLES, description_intact
from lm_eval_bayes.store.errors import StoreDamagedError, StoreError
from lm_eval_bayes.store.file import StoreFile, open_file
from lm_eval_bayes.store.migrations import MIGRATIONS, OUTCOMES_SCHEMA, PROMPT_SIGNALS_SCHEMA
from lm_eval_bayes.store.outcomes import rows_of
from lm_eval_bayes.store.prompt_signals import prompt_signals_intact
from lm_eval_bayes.store.trial import COLUMNS, TrialKey, is_intact

#: Problems are counted all, and named up to this many.
MAX_PROBLEMS = 100

#: What is counted while it is checked.
COUNTED = ("trials", "descriptions", "prompt_signals", "outcomes")


@dataclass(frozen=True)
class Verification:
    """What was checked in a store, and what is wrong with it.

    Attributes
    ----------
    path : str
        The file.
    schema : int
        Its schema; 0 where it could not be opened.
    trials, descriptions, prompt_signals, outcomes : int
        How many of each were hashed again.
    problems : tuple of str
        One sentence each, at most 100; empty where the store is sound.
    n_problems : int
        How many there are.
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
        """Whether nothing is wrong."""
        return self.n_problems == 0

    def to_dict(self) -> dict[str, Any]:
        """Return plain JSON types."""
        return {**asdict(self), "problems": list(self.problems), "ok": self.ok}


def verify(path: str | PathLike[str]) -> Verification:
    """Check a store: SQLite's own structure, its references, and every hash.

    Each trial carries a hash of all its fields and of what its key stands for, so one flipped
    bit in a text, a signal or a seed is found.

    Parameters
    ----------
    path : path
        The store. It may be in use; it is read as it is at this moment.

    Returns
    -------
    Verification
        Also of a store too damaged to be opened.

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
                # A text that is no UTF-8 any more shall fail its hash, not stop the check.
                connection.text_factory = lambda data: data.decode("utf-8", "surrogateescape")
                check.run(connection)
        except StoreError as error:
            check.note(str(error))
        return check.result()


class _Check:
    def __init__(self, file: StoreFile) -> None:
        self.file = file
        self.counted = dict.fromkeys(COUNTED, 0)
        self.problems: list[str] = []
        self.n_problems = 0

    def note(self, problem: str) -> None:
        self.n_problems += 1
        if len(self.problems) < MAX_PROBLEMS:
            self.problems.append(problem)

    def result(self) -> Verification:
        return Verification(
            path=str(self.file.path),
            schema=self.file.schema,
            problems=tuple(self.problems),
            n_problems=self.n_problems,
            **self.counted,
        )

    def run(self, connection: sqlite3.Connection) -> None:
        for (line,) in connection.execute(f"PRAGMA integrity_check({MAX_PROBLEMS})"):
            if line != "ok":
                self.note(f"SQLite: {line}")
        if _tables(connection) != _expected_tables(self.file.schema):
            self.note(f"the tables are not those of schema {self.file.schema}")
        for table, row, parent, _ in connection.execute("PRAGMA foreign_key_check"):
            self.note(f"row {row} of {table} refers to nothing in {parent}")
        known = {table: self._descriptions(connection, table) for table in TABLES}
        for problem in self._trials(connection, known):
            self.note(problem)
        if self.file.schema >= PROMPT_SIGNALS_SCHEMA:
            self._prompt_signals(connection, known)
        if self.file.schema >= OUTCOMES_SCHEMA:
            for row in rows_of(connection):
                self.counted["outcomes"] += 1
                if not row.is_intact():
                    self.note(f"{row} is not what was written")

    def _descriptions(self, connection: sqlite3.Connection, table: str) -> dict[int, Any]:
        """Return a table's hashes by id; of versions, whose hash is in no key, the JSON."""
        found = {}
        rows = connection.execute(f"SELECT id, hash, description FROM {table} ORDER BY id")
        for number, digest, description in rows:
            self.counted["descriptions"] += 1
            if not description_intact(table, digest, description):
                self.note(f"the {TABLES[table]} {digest} is not what was written")
            found[number] = description if table == "versions" else digest
        return found

    def _trials(
        self, connection: sqlite3.Connection, known: dict[str, dict[int, Any]]
    ) -> Iterator[str]:
        rows = connection.execute(
            f"SELECT {COLUMNS} FROM trials ORDER BY model, sampling, prompt, trial"
        )
        for model, sampling, prompt, trial, versions, *values in rows:
            self.counted["trials"] += 1
            key = TrialKey(
                model=known["models"].get(model, "?"),
                prompt=known["prompts"].get(prompt, "?"),
                sampling=known["samplings"].get(sampling, "?"),
            )
            if not is_intact(key, trial, known["versions"].get(versions, "?"), tuple(values)):
                yield f"trial {trial} of {key} is not what was written"

    def _prompt_signals(
        self, connection: sqlite3.Connection, known: dict[str, dict[int, Any]]
    ) -> None:
        rows = connection.execute(
            "SELECT model, prompt, created, signals, hash FROM prompt_signals"
        )
        for model, prompt, *values, digest in rows:
            self.counted["prompt_signals"] += 1
            model_hash = known["models"].get(model, "?")
            prompt_hash = known["prompts"].get(prompt, "?")
            if not prompt_signals_intact(digest, model_hash, prompt_hash, values):
                self.note(f"the signals of prompt {prompt_hash} are not what was written")


def _tables(connection: sqlite3.Connection) -> list[Any]:
    # SQLite's own tables, as ANALYZE leaves them, are no damage.
    return connection.execute(
        "SELECT type, name, tbl_name, sql FROM sqlite_master "
        "WHERE name NOT LIKE 'sqlite~_stat%' ESCAPE '~' ORDER BY type, name"
    ).fetchall()


def _expected_tables(schema: int) -> list[Any]:
    with closing(sqlite3.connect(":memory:")) as fresh:
        for migration in MIGRATIONS[:schema]:
            for statement in migration.statements:
                fresh.execute(statement)
        return _tables(fresh)
