"""Verify a store: SQLite's structure, its references, and the hash of every record."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable, Iterator
from contextlib import closing
from dataclasses import dataclass
from itertools import chain
from os import PathLike
from pathlib import Path
from struct import unpack
from typing import Any

from lm_eval_bayes._util.files import resolve_path
from lm_eval_bayes._util.text import plural
from lm_eval_bayes.store.errors import StoreDamagedError, StoreError, StoreFileError
from lm_eval_bayes.store.file import StoreFile, lacks_log, open_file
from lm_eval_bayes.store.outcomes import outcome_rows
from lm_eval_bayes.store.questions import cluster_rows
from lm_eval_bayes.store.schema import create_tables
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
class Verification:
    """What was checked in a store, and its problems.

    Attributes
    ----------
    path : str
        The file.
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
        Also for a store that is too damaged to be opened, or whose write-ahead log is.

    Raises
    ------
    StoreError
        If there is no store at the path, or one of another schema.
    """
    try:
        # before SQLite opens the store, which removes the log when it is closed
        _check_log(resolve_path(path))
        file = open_file(path, "read")
    except StoreDamagedError as error:
        return Verification(str(path), 0, 0, 0, 0, 0, (str(error),), 1)
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
        **counts,
        problems=tuple(problems),
        n_problems=n_problems,
        notes=(lacks_log(file.path),) if file.lacks_log else (),
    )


def _check_log(path: Path) -> None:
    """Refuse a store that loses commits of its write-ahead log when SQLite recovers it.

    Raises
    ------
    StoreDamagedError
        If the log is damaged and commits stand behind the damage.
    StoreFileError
        If the log cannot be read.
    """
    log = path.with_name(f"{path.name}-wal")
    try:
        n_intact, n_lost = _read_log(log)
        if not n_lost:
            return
        # again, as another process may have been writing it: then more frames are intact now
        n_intact_again, n_lost = _read_log(log)
    except FileNotFoundError:
        return
    except OSError as error:
        raise StoreFileError(
            f"{log} cannot be read: {error.strerror}", "failed", "store", log
        ) from error
    if n_lost and n_intact_again == n_intact:
        raise StoreDamagedError(
            f"{log} is damaged: SQLite would ignore at least {plural(n_lost, 'commit')} behind the "
            "damage and remove the log, so the store was not opened; copy both files first"
        )


def _read_log(log: Path) -> tuple[int, int]:
    """Return how many frames of a write-ahead log are intact, and how many commits lie behind them.

    The log is a header of 32 bytes and frames of 24 bytes and a page, with cumulative checksums
    (https://www.sqlite.org/fileformat2.html#walformat). Frames with other salts than the header's
    are left from an earlier use of the file. Behind a frame that a kill cut off there is no commit.
    """
    n_intact = n_lost = 0
    with open(log, "rb") as file:
        header = file.read(32)
        if len(header) < 32:
            return 0, 0
        order = ">" if header[3] & 1 else "<"
        checksum = _checksum(header[:24], order)
        if checksum != unpack(">2I", header[24:]):
            return 0, len(file.read(1))  # its salts do not tell which frames are of its last use
        size, salts, intact = 24 + int.from_bytes(header[8:12], "big"), header[16:24], True
        while len(frame := file.read(size)) == size:
            if intact:
                checksum = _checksum(frame[:8] + frame[24:], order, checksum)
                intact = (frame[8:16], checksum) == (salts, unpack(">2I", frame[16:24]))
                n_intact += intact
            elif frame[8:16] == salts and any(frame[4:8]):  # the last frame of a commit
                n_lost += 1
    return n_intact, n_lost


def _checksum(data: bytes, order: str, start: tuple[int, int] = (0, 0)) -> tuple[int, int]:
    first, second = start
    words = unpack(f"{order}{len(data) // 4}I", data)
    for even, odd in zip(words[::2], words[1::2], strict=True):
        first = (first + even + second) & 0xFFFFFFFF
        second = (second + odd + first) & 0xFFFFFFFF
    return first, second


def _problems(file: StoreFile, counts: dict[str, int]) -> Iterator[str]:
    """Yield a sentence about each problem, and count the records in `counts`."""
    try:
        with file.reading() as connection:
            for (line,) in connection.execute(f"PRAGMA integrity_check({MAX_PROBLEMS})"):
                yield from (f"SQLite: {problem}" for problem in _lines(line))
            if _tables(connection) != _expected_tables():
                yield "the tables are not those of a trial store"
            yield from broken_references(connection)
            records: dict[str, Iterable[Any]] = {
                "descriptions": chain.from_iterable(
                    description_rows(connection, table) for table in TABLES
                ),
                "trials": trial_rows(connection, file.texts),
                "prompt_signals": prompt_signals_rows(connection),
                "outcomes": outcome_rows(connection),
                "clusters": cluster_rows(connection),
            }
            for named in chain[Any](source_rows(connection), alias_rows(connection)):
                if not named.is_intact():
                    yield f"{named} does not match its hash"
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


def _expected_tables() -> list[Any]:
    with closing(sqlite3.connect(":memory:", isolation_level=None)) as connection:
        create_tables(connection)
        return _tables(connection)
