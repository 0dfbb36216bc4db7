"""Verify a store: its log, SQLite's structure, and the hash of every record."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass
from os import PathLike

from lm_eval_bayes._util.plain import Record
from lm_eval_bayes.store.errors import StoreDamagedError, StoreError
from lm_eval_bayes.store.file import StoreFile, lacks_log, open_file
from lm_eval_bayes.store.schema import TABLES

#: The most problems that a verification lists; all are counted.
MAX_PROBLEMS = 100


@dataclass(frozen=True)
class Verification(Record):
    """What was checked in a store, and its problems.

    Attributes
    ----------
    path : str
        The file.
    records : dict
        Number of records that were checked, by table.
    problems : tuple of str
        One sentence each, at most 100; empty for an intact store.
    n_problems : int
        The number of problems.
    notes : tuple of str
        What may be wrong, though the store is intact: that its latest trials may be missing.
    """

    path: str
    records: dict[str, int]
    problems: tuple[str, ...]
    n_problems: int
    notes: tuple[str, ...] = ()

    @property
    def ok(self) -> bool:
        """Whether there is no problem."""
        return self.n_problems == 0


def verify(path: str | PathLike[str]) -> Verification:
    """Check a store: its log, SQLite's structure, and every hash.

    The hash of a trial is of all its fields and the hashes of its key, so a single changed bit
    in a text, a signal or a seed is detected.

    Parameters
    ----------
    path : path
        The store. It may be in use: one consistent state of it is checked.

    Returns
    -------
    Verification
        Also for a store that is too damaged to be opened, or whose write-ahead log is.

    Raises
    ------
    StoreError
        If there is no store at the path, or one of another schema.
    """
    records = {table.name: 0 for table in TABLES}
    try:
        file = open_file(path, "read")
    except StoreDamagedError as error:
        return Verification(str(path), records, (str(error),), 1)
    with closing(file):
        problems = list(_problems(file, records))
    return Verification(
        path=str(file.path),
        records=records,
        problems=tuple(problems[:MAX_PROBLEMS]),
        n_problems=len(problems),
        notes=(lacks_log(file.path),) if file.lacks_log else (),
    )


def _problems(file: StoreFile, records: dict[str, int]) -> Iterator[str]:
    """Yield a sentence about each problem, and count the records."""
    try:
        with file.reading() as connection:
            for (line,) in connection.execute(f"PRAGMA integrity_check({MAX_PROBLEMS})"):
                if line != "ok":
                    yield f"SQLite: {line}"
            for table in TABLES:
                for row in file.rows(connection, table):
                    records[table.name] += 1
                    if not row.is_intact():
                        yield f"{row} does not match its hash"
    except StoreError as error:
        yield str(error)
