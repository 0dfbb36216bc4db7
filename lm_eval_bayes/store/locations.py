"""What lies at a path, found out without touching it, and new files that appear whole."""

from __future__ import annotations

import os
import sqlite3
import stat
import time
from collections.abc import Callable
from contextlib import closing, suppress
from os import PathLike
from pathlib import Path

from lm_eval_bayes._util.files import publish, temporary_name
from lm_eval_bayes.errors import InvalidInputError
from lm_eval_bayes.store.errors import (
    CORRUPT,
    NotAStoreError,
    StoreDamagedError,
    StoreFileError,
    primary_code,
)
from lm_eval_bayes.store.migrations import APPLICATION_ID

#: How often a file that seems torn is looked at, and the seconds between two looks.
_LOOKS, _BETWEEN_LOOKS_S = 20, 0.01

# The file of a store is only ever opened by SQLite here, never by open(): when a process closes
# any descriptor of a file, all its locks on that file are gone, SQLite's own included
# (https://www.sqlite.org/howtocorrupt.html, section 2.2).


def locate(path: str | PathLike[str]) -> Path:
    """Return the file that a path leads to, absolute and with symbolic links followed.

    Raises
    ------
    InvalidInputError
        If it is no path at all.
    """
    try:
        name = os.fsdecode(path)
    except TypeError:
        raise InvalidInputError.of("path", "be a path", path) from None
    if not name or "\0" in name:
        raise InvalidInputError.of("path", "be a path", name)
    try:
        return Path(os.path.realpath(name))
    except OSError as error:
        raise StoreFileError(f"{name} cannot be found: {error.strerror}") from error


def is_store(path: Path) -> bool:
    """Whether a trial store is at `path`; False where there is nothing yet.

    Raises
    ------
    NotAStoreError
        If something else is there.
    StoreFileError
        If nothing can be there, because the folder is missing or closed to us.
    """
    try:
        status = path.stat()
    except FileNotFoundError:
        if not path.parent.is_dir():
            raise StoreFileError(
                f"{path} cannot be opened: there is no folder {path.parent}"
            ) from None
        return False
    except OSError as error:
        raise StoreFileError(f"{path} cannot be opened: {error.strerror}") from error
    if stat.S_ISDIR(status.st_mode):
        raise NotAStoreError(f"{path} is a directory, not a trial store")
    if not stat.S_ISREG(status.st_mode):
        raise NotAStoreError(f"{path} is not a regular file, so it is no trial store")
    if status.st_size == 0:
        raise NotAStoreError(
            f"{path} is an empty file, not a trial store: remove it or choose another name"
        )
    _check_application(path)
    return True


def log_bytes(path: Path) -> int:
    """Return the size of the write-ahead log beside a store, 0 where there is none."""
    try:
        return path.with_name(path.name + "-wal").stat().st_size
    except OSError:
        return 0


def _check_application(path: Path) -> None:
    """Refuse files of other applications, and ours where it was cut short."""
    try:
        found, whole = _settled(path)
    except sqlite3.OperationalError as error:
        raise StoreFileError(f"{path} cannot be opened: {error}") from error
    except sqlite3.DatabaseError as error:
        if primary_code(error) == CORRUPT:
            raise StoreDamagedError(
                f"{path} is a damaged SQLite file, perhaps cut short: {error}"
            ) from error
        raise NotAStoreError(f"{path} is not a trial store: {error}") from error
    if found not in (APPLICATION_ID, None):
        raise NotAStoreError(f"{path} is an SQLite file of another application, not a trial store")
    if not whole:
        raise StoreDamagedError(f"{path} is damaged: its last page is cut short")


def _settled(path: Path) -> tuple[int | None, bool]:
    """Look again where a file seems torn: a last writer may be folding its log in right now."""
    for _ in range(_LOOKS - 1):
        try:
            found, whole = _probe(path)
        except sqlite3.DatabaseError as error:
            if primary_code(error) not in (CORRUPT, 0):
                raise
        else:
            if whole:
                return found, whole
        time.sleep(_BETWEEN_LOOKS_S)
    return _probe(path)


def _probe(path: Path) -> tuple[int | None, bool]:
    """Return the file's application, and whether it ends with a whole page.

    A store whose log was not folded in completely may look torn by itself; then both answers
    are left to SQLite, which opens file and log together: (None, True).
    """
    # Immutable: no lock, no log, no recovery, so that another program's file stays untouched.
    try:
        with closing(connect(path, "mode=ro&immutable=1")) as connection:
            found = connection.execute("PRAGMA application_id").fetchone()[0]
            page = connection.execute("PRAGMA page_size").fetchone()[0]
    except sqlite3.DatabaseError:
        if log_bytes(path):
            return None, True
        raise
    return int(found), path.stat().st_size % int(page) == 0 or log_bytes(path) > 0


def connect(path: Path, query: str, wait_s: float = 0.0) -> sqlite3.Connection:
    """Open a file with SQLite, by a URI so that no character of its name means anything."""
    return sqlite3.connect(
        f"{path.as_uri()}?{query}",
        uri=True,
        timeout=wait_s,
        isolation_level=None,
        # Threads take turns behind a lock of ours.
        check_same_thread=False,
    )


def create_whole(path: Path, fill: Callable[[Path], None]) -> bool:
    """Make a file under another name and give it its own once it is complete.

    Parameters
    ----------
    path : Path
        The file to be; nothing that is there already is replaced.
    fill : callable
        Writes the file whose path it gets, and closes it.

    Returns
    -------
    bool
        False where somebody else made a file of this name meanwhile.
    """
    temporary = temporary_name(path)
    try:
        fill(temporary)
        return publish(temporary, path)
    except OSError as error:
        if isinstance(error, StoreFileError):
            raise
        raise StoreFileError(f"{path} cannot be created: {error.strerror}") from error
    finally:
        for leftover in ("", "-journal", "-wal", "-shm"):
            with suppress(OSError):
                os.unlink(f"{temporary}{leftover}")
