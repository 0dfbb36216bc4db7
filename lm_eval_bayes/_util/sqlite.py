"""Connections to SQLite files, and a check whether a file is a trial store."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path

from lm_eval_bayes.errors import InvalidInputError

#: Parameters that open a file without locks, log and recovery, so that it stays as it is.
UNLOCKED = "mode=ro&immutable=1"

#: "LMEB" in ASCII, the application id in the header of every trial store.
TRIAL_STORE_ID = 0x4C4D4542

# SQLite's primary result codes (https://www.sqlite.org/rescode.html); Python names them from 3.11.
BUSY, LOCKED, IO, CORRUPT, FULL, PROTOCOL, NOT_A_DATABASE = 5, 6, 10, 11, 13, 15, 26

# What tells them on Python 3.10, which hides the codes.
_WORDS = {"locked": BUSY, "disk I/O error": IO, "malformed": CORRUPT, "disk is full": FULL}

# A trial store is only ever opened by SQLite, never by open(): when a process closes any
# descriptor of a file, all its locks on that file are gone, SQLite's own included
# (https://www.sqlite.org/howtocorrupt.html, section 2.2).


def connect(path: Path, query: str, wait_s: float = 0.0) -> sqlite3.Connection:
    """Open a file with SQLite.

    Parameters
    ----------
    path : Path
        The file, absolute. It is given as a URI, so no character of its name is special.
    query : str
        The parameters of the URI, such as "mode=ro".
    wait_s : float
        Seconds to wait for a lock.
    """
    return sqlite3.connect(
        f"{path.as_uri()}?{query}",
        uri=True,
        timeout=wait_s,
        isolation_level=None,
        # a StoreFile has a lock of its own, so threads may share its connection
        check_same_thread=False,
    )


def primary_code(error: sqlite3.Error) -> int:
    """Return SQLite's primary result code of an error; 0 if it is not known."""
    code = getattr(error, "sqlite_errorcode", None)
    if code is None:
        return next((code for words, code in _WORDS.items() if words in str(error)), 0)
    return int(code) & 0xFF


def has_store_header(path: Path) -> bool:
    """Return whether an existing file is a trial store, or an SQLite file that is cut short.

    Without its write-ahead log, a store that is in use may look cut short.

    Raises
    ------
    sqlite3.OperationalError
        If it cannot be opened.
    """
    try:
        with closing(connect(path, UNLOCKED)) as connection:
            application_id = connection.execute("PRAGMA application_id").fetchone()[0]
    except sqlite3.OperationalError:
        raise
    except sqlite3.DatabaseError as error:
        return primary_code(error) == CORRUPT
    return bool(application_id == TRIAL_STORE_ID)


def check_not_store(path: Path, argument: str) -> None:
    """Refuse an existing file that is a trial store, or a damaged SQLite file.

    Raises
    ------
    InvalidInputError
        If it is, or if it cannot be read.
    """
    try:
        is_store = has_store_header(path)
    except sqlite3.OperationalError as error:
        rule = f"be a file that can be read: {error}"
        raise InvalidInputError.of(argument, "damaged", rule, str(path)) from error
    if is_store:
        raise InvalidInputError.of(argument, "type", "not be a trial store", str(path))
