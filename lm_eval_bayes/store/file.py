"""An open store file: who may read and write it, one transaction at a time."""

from __future__ import annotations

import logging
import os
import sqlite3
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager
from os import PathLike
from pathlib import Path
from typing import Any, Literal, TypeAlias

from lm_eval_bayes._util.files import resolve_path
from lm_eval_bayes._util.sqlite import TRIAL_STORE_ID, connect, connect_unlocked
from lm_eval_bayes.stats.validation import check_option
from lm_eval_bayes.store.errors import (
    StoreDamagedError,
    StoreError,
    StoreFileError,
    is_wait,
    plain_errors,
)
from lm_eval_bayes.store.locations import create_whole, log_bytes, network_warning, store_at
from lm_eval_bayes.store.migrations import SCHEMA, refuse_newer, schema_of, upgrade

log = logging.getLogger("lm_eval.bayes.store")

Mode: TypeAlias = Literal["write", "read"]
Synchronous: TypeAlias = Literal["NORMAL", "FULL"]

MODES: tuple[Mode, ...] = ("write", "read")
SYNCHRONOUS: tuple[Synchronous, ...] = ("NORMAL", "FULL")

#: How long to wait for another process that is writing, in seconds.
WAIT_S = 60.0

#: Values bound in one statement; SQLite before 3.32 allows 999.
MAX_BOUND = 500


class StoreFile:
    """An SQLite connection to a store, made by :func:`open_file`.

    Threads may share it: each transaction holds a lock. A forked process may not.

    Attributes
    ----------
    path : Path
        The file, absolute, symbolic links followed.
    mode : str
        "write" or "read".
    schema : int
        Its schema, which a reader finds older than ours at times.
    """

    def __init__(
        self, path: Path, mode: Mode, connection: sqlite3.Connection, wait_s: float
    ) -> None:
        self.path = path
        self.mode: Mode = mode
        self.wait_s = wait_s
        self.schema = 0
        self.frozen: tuple[int, int] | None = None
        self._connection: sqlite3.Connection | None = connection
        self._process = os.getpid()
        self._lock = threading.RLock()

    @contextmanager
    def reading(self) -> Iterator[sqlite3.Connection]:
        """Give the connection, inside one view of the store that no writer changes."""
        with self._lock, plain_errors(self.path, "read"):
            connection = self._usable()
            connection.execute("BEGIN")
            try:
                yield connection
            finally:
                if connection.in_transaction:
                    connection.execute("ROLLBACK")
            if self.frozen is not None and self.frozen != _signature(self.path):
                raise StoreFileError(
                    f"{self.path} was changed by another process while we read it without locks: "
                    "open it again, from a folder that can be written to"
                )

    @contextmanager
    def writing(self, commit: bool = True) -> Iterator[sqlite3.Connection]:
        """Give the connection, inside one transaction that is committed at the end.

        Whatever is raised inside takes all of it back, and so does `commit` = False.
        """
        with self._lock, plain_errors(self.path, "written"):
            connection = self._usable()
            if self.mode != "write":
                raise StoreError(f"{self.path} was opened for reading, so nothing can be stored")
            begin_writing(connection, self.wait_s)
            try:
                # A later release may have upgraded the file since we opened it.
                refuse_newer(connection, self.path)
                yield connection
                connection.execute("COMMIT" if commit else "ROLLBACK")
            except BaseException:
                if connection.in_transaction:
                    connection.execute("ROLLBACK")
                raise

    def compact(self) -> None:
        """Hand the room of deleted trials back to the disk."""
        with self._lock, plain_errors(self.path, "made smaller"):
            connection = self._usable()
            connection.execute("VACUUM")
            connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")

    def close(self) -> None:
        """Close the file; what is committed stays. Closing twice is fine."""
        with self._lock:
            connection, self._connection = self._connection, None
            if connection is not None and self._process == os.getpid():
                connection.close()

    def _usable(self) -> sqlite3.Connection:
        if self._connection is None:
            raise StoreError(f"{self.path} is closed")
        if self._process != os.getpid():
            raise StoreError(
                f"{self.path} was opened before this process was forked: open it again here"
            )
        return self._connection


def chunks(items: list[Any]) -> Iterator[list[Any]]:
    """Split a list into parts whose values one statement can bind."""
    for start in range(0, len(items), MAX_BOUND):
        yield items[start : start + MAX_BOUND]


def marks(items: Sequence[object]) -> str:
    """Return a question mark for each value to be bound."""
    return ", ".join("?" * len(items))


def begin_writing(connection: sqlite3.Connection, wait_s: float) -> None:
    """Begin a transaction that may write, when others let us."""
    deadline = time.monotonic() + wait_s
    while True:
        try:
            connection.execute("BEGIN IMMEDIATE")
            return
        except sqlite3.OperationalError as error:
            # Some locks, as during recovery after a kill, are refused without any waiting.
            if not is_wait(error) or time.monotonic() >= deadline:
                raise
            time.sleep(0.01)


def open_file(
    path: str | PathLike[str],
    mode: Mode = "write",
    synchronous: Synchronous = "NORMAL",
    wait_s: float = WAIT_S,
) -> StoreFile:
    """Open a store, see :meth:`lm_eval_bayes.store.trial_store.TrialStore.open`."""
    mode = check_option("mode", mode, MODES)
    synchronous = check_option("synchronous", synchronous, SYNCHRONOUS)
    place = resolve_path(path)
    if mode == "read":
        if not store_at(place):
            raise StoreFileError(f"{place} cannot be opened: there is no such file")
        return _open_to_read(place, wait_s)
    warning = network_warning(place)
    if warning:
        log.warning(warning)
    if not store_at(place) and not create_file(place):
        # Somebody else was faster; see what it is.
        store_at(place)
    return _open_to_write(place, synchronous, wait_s)


def create_file(path: Path, fill: Callable[[sqlite3.Connection], None] | None = None) -> bool:
    """Create a store at `path`, complete or not at all.

    Parameters
    ----------
    path : Path
        Where nothing is yet.
    fill : callable, optional
        Writes the first trials; it gets a connection inside a transaction.

    Returns
    -------
    bool
        False where somebody else made a file of this name meanwhile.
    """

    def make(temporary: Path) -> None:
        with closing(connect(temporary, "mode=rwc")) as connection:
            connection.execute("PRAGMA synchronous = FULL")
            upgrade(connection)
            if fill is not None:
                connection.execute("PRAGMA foreign_keys = ON")
                connection.execute("BEGIN IMMEDIATE")
                fill(connection)
                connection.execute("COMMIT")
            # From here on, and last, so that no log lies beside the file when it is renamed.
            connection.execute("PRAGMA journal_mode = WAL")

    with plain_errors(path, "created"):
        return create_whole(path, make)


def _open_to_write(path: Path, synchronous: Synchronous, wait_s: float) -> StoreFile:
    if not _writable(path):
        # Asked before SQLite, which would leave a log of ours beside a file that is not ours.
        raise StoreFileError(
            f"{path} cannot be written: the file is read-only for us; write to a copy of it, or "
            "read it with `lm-eval-bayes store export`"
        )
    with plain_errors(path, "opened for writing"):
        file = StoreFile(path, "write", connect(path, "mode=rw", wait_s), wait_s)
        try:
            connection = _prepared(file)
            # Refused here where file or folder are read-only, rather than after hours of sampling.
            begin_writing(connection, wait_s)
            connection.execute(f"PRAGMA user_version = {file.schema}")
            connection.execute("ROLLBACK")
            if file.schema < SCHEMA:
                taken = upgrade(connection)
                if taken:
                    log.info("%s: upgraded from schema %d to %d", path, file.schema, SCHEMA)
                file.schema = schema_of(connection, path)
            connection.execute("PRAGMA journal_mode = WAL")
            connection.execute(f"PRAGMA synchronous = {synchronous}")
            connection.execute("PRAGMA foreign_keys = ON")
        except BaseException:
            file.close()
            raise
    return file


def _open_to_read(path: Path, wait_s: float) -> StoreFile:
    with plain_errors(path, "opened for reading"):
        if _writable(path) or log_bytes(path):
            # Opened like a writer, who tidies the log away at the end, but kept from writing.
            file = StoreFile(path, "read", connect(path, "mode=rw", wait_s), wait_s)
            try:
                _prepared(file).execute("PRAGMA query_only = ON")
                return file
            except sqlite3.OperationalError:
                file.close()
                if log_bytes(path):
                    raise
            except BaseException:
                file.close()
                raise
        # Nobody is writing and we cannot put a log there: a read-only medium, or an archive.
        file = StoreFile(path, "read", connect_unlocked(path), wait_s)
        try:
            file.frozen = _signature(path)
            _prepared(file)
        except BaseException:
            file.close()
            raise
        return file


def _prepared(file: StoreFile) -> sqlite3.Connection:
    """Read the header, with the log if there is one, and find the schema."""
    connection = file._usable()
    connection.execute("PRAGMA trusted_schema = OFF")
    connection.execute("PRAGMA cell_size_check = ON")
    found = connection.execute("PRAGMA application_id").fetchone()[0]
    if found != TRIAL_STORE_ID:
        raise StoreDamagedError(f"{file.path} is damaged: its header is not that of a trial store")
    file.schema = schema_of(connection, file.path)
    return connection


def _writable(path: Path) -> bool:
    # The superuser could write without the bits, but who took them away wanted the file kept.
    return bool(path.stat().st_mode & 0o222) and os.access(path, os.W_OK)


def _signature(path: Path) -> tuple[int, int]:
    status = path.stat()
    return status.st_size, status.st_mtime_ns
