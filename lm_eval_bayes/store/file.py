"""Open, create, read and write the file of a store, one transaction at a time."""

from __future__ import annotations

import logging
import os
import sqlite3
import threading
import time
import weakref
from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import closing, contextmanager, suppress
from functools import partial
from os import PathLike
from pathlib import Path
from typing import Literal, TypeAlias

from lm_eval_bayes._util.files import publish, resolve_path, temporary_name
from lm_eval_bayes._util.sqlite import TRIAL_STORE_ID, UNLOCKED, connect, primary_code
from lm_eval_bayes.store.errors import (
    LOCK_CODES,
    StoreBusyError,
    StoreDamagedError,
    StoreError,
    StoreFileError,
    StoreFullError,
    translate_errors,
)
from lm_eval_bayes.store.locations import (
    damaged_log,
    is_store,
    log_bytes,
    log_of,
    network_file_system,
    network_warning,
)
from lm_eval_bayes.store.schema import SCHEMA, Row, Table, check_schema, create_tables, rows
from lm_eval_bayes.store.trial import read_dictionaries

log = logging.getLogger("lm_eval.bayes.store")

Mode: TypeAlias = Literal["write", "read"]

#: Seconds to wait for another process that is writing.
WAIT_S = 60.0

#: Commits after which the write-ahead log is written to the store and emptied.
CHECKPOINT_COMMITS = 200


class StoreFile:
    """An SQLite connection to a store, returned by :func:`open_file`.

    Threads may share it, as each transaction holds a lock. A forked process may not use it.

    Attributes
    ----------
    path : Path
        The file, absolute and with symbolic links followed.
    mode : str
        "write" or "read".
    dictionaries : dict
        With which its texts are read, see :func:`~lm_eval_bayes.store.trial.unpack`.
    lacks_log : bool
        Whether the file seems to have been in use when it was copied without its write-ahead log,
        so that its latest trials may be missing. A writer that was killed as it opened or closed
        the file, and two that closed it at one moment, leave it in the same state; a store without
        trials is never said to lack them.
    """

    def __init__(
        self, path: Path, mode: Mode, connection: sqlite3.Connection, wait_s: float
    ) -> None:
        self.path = path
        self.mode: Mode = mode
        self.wait_s = wait_s
        self.lacks_log = False
        self.signature: tuple[int, int] | None = None
        self.dictionaries = read_dictionaries(connection)
        self._connection: sqlite3.Connection | None = connection
        self._process = os.getpid()
        self._n_commits = 0
        self._identity = _identity(path)
        self._lock = threading.RLock()
        # The store of a run is closed by no one: it is when the interpreter ends.
        self._at_exit = weakref.finalize(self, _close, connection, self._process, mode == "write")

    @contextmanager
    def reading(self, checked: bool = False) -> Iterator[sqlite3.Connection]:
        """Return the connection in a transaction that reads one consistent state of the store.

        Before all of a table is read, SQLite's structure is `checked`: a damaged index hides rows
        from every statement that uses it.

        Raises
        ------
        StoreDamagedError
            If SQLite's check, which takes a second for a million trials, reports a problem.
        """
        with self._lock, translate_errors(self.path, "read"):
            connection = self.connection()
            connection.execute("BEGIN")
            try:
                if checked:
                    check_structure(connection, self.path)
                yield connection
            finally:
                connection.rollback()
            if self.signature is not None and self.signature != _signature(self.path):
                sentence = (
                    f"{self.path} was changed by another process while it was read without locks: "
                    "open it again, from a folder that can be written"
                )
                raise StoreFileError(sentence, "failed", "store", self.path)

    @contextmanager
    def writing(self, commit: bool = True) -> Iterator[sqlite3.Connection]:
        """Return the connection in a transaction that is committed at the end.

        It is rolled back on an exception, and if `commit` is False.

        Raises
        ------
        StoreFileError
            If the file was removed or replaced since it was opened, so that what is written would
            be lost with this process.
        """
        with self._lock, translate_errors(self.path, "written"):
            connection = self.connection()
            if self.mode != "write":
                sentence = f"{self.path} was opened for reading, so nothing can be stored"
                raise StoreError(sentence, "conflict", "mode", self.mode)
            if _identity(self.path) != self._identity:
                sentence = (
                    f"{self.path} was removed or replaced while it was in use: nothing more can be "
                    "stored in it; run the same command again"
                )
                raise StoreFileError(sentence, "path", "store", self.path)
            begin_writing(connection, self.wait_s)
            with connection:  # commits, or rolls back on an exception
                yield connection
                if not commit:
                    connection.rollback()
            self._n_commits += 1
            if self._n_commits % CHECKPOINT_COMMITS == 0:
                _checkpoint(connection, self.wait_s)

    def rows(
        self,
        connection: sqlite3.Connection,
        table: Table,
        conditions: str = "",
        values: Sequence[object] = (),
    ) -> Generator[Row, None, None]:
        """Read records, see :func:`lm_eval_bayes.store.schema.rows`."""
        return rows(connection, table, self.dictionaries, conditions, values)

    def intact(self, records: Generator[Row, None, None]) -> Iterator[Row]:
        """Yield records that are what was written.

        Raises
        ------
        StoreDamagedError
            If one is not.
        """
        with closing(records):  # an error would keep the statement open otherwise
            for row in records:
                if not row.is_intact():
                    raise StoreDamagedError(
                        f"{self.path} is damaged: {row} does not match its hash; `lm-eval-bayes "
                        "store info --check` lists all such records, and the command that sampled "
                        "the trials samples and grades them again"
                    )
                yield row

    def vacuum(self) -> None:
        """Return the space of deleted trials to the file system."""
        with self._lock, translate_errors(self.path, "compacted"):
            self.connection().execute("VACUUM")
            self.connection().execute("PRAGMA wal_checkpoint(TRUNCATE)")

    def close(self) -> None:
        """Close the file; closing it twice does nothing."""
        with self._lock:
            connection, self._connection = self._connection, None
            self._at_exit.detach()
            if connection is not None:
                # a copy that lacks its log stays as it is when it is read
                _close(connection, self._process, self.mode == "write" or not self.lacks_log)

    @property
    def is_open(self) -> bool:
        """Whether the file is open in this process."""
        return self._connection is not None and self._process == os.getpid()

    def connection(self) -> sqlite3.Connection:
        """Return the connection, if the file is open in this process."""
        if self._connection is None:
            raise StoreError(f"{self.path} is closed", "conflict", "store", self.path)
        if self._process != os.getpid():
            sentence = f"{self.path} was opened before this process was forked: open it again"
            raise StoreError(sentence, "conflict", "store", self.path)
        return self._connection


def check_structure(connection: sqlite3.Connection, path: Path) -> None:
    """Refuse a store whose tables or indexes are damaged, see :meth:`StoreFile.reading`."""
    if connection.execute("PRAGMA integrity_check(1)").fetchone() != ("ok",):
        raise StoreDamagedError(
            f"{path} is damaged, so that records may be missing: `lm-eval-bayes store info "
            "--check` lists its problems"
        )


def begin_writing(connection: sqlite3.Connection, wait_s: float) -> None:
    """Begin a transaction that may write, once no other process is writing."""
    deadline = time.monotonic() + wait_s
    while True:
        try:
            connection.execute("BEGIN IMMEDIATE")
            return
        except sqlite3.OperationalError as error:
            # SQLite refuses some locks at once, such as during recovery after a kill.
            if primary_code(error) not in LOCK_CODES or time.monotonic() >= deadline:
                raise
            time.sleep(0.01)


def _checkpoint(connection: sqlite3.Connection, wait_s: float) -> None:
    """Write the log to the store and empty it, unless another process reads or writes for long."""
    connection.execute("PRAGMA busy_timeout = 100")
    with suppress(sqlite3.Error):  # the commits are safe in the log, which a later one empties
        connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    connection.execute(f"PRAGMA busy_timeout = {int(wait_s * 1000)}")


def open_file(
    path: str | PathLike[str],
    mode: Mode = "write",
    wait_s: float = WAIT_S,
) -> StoreFile:
    """Open a store, see :meth:`lm_eval_bayes.store.trial_store.TrialStore.open`."""
    resolved = resolve_path(path)
    exists = is_store(resolved)
    if mode == "read":
        if not exists:
            raise StoreFileError(
                f"{resolved} cannot be opened: there is no such file", "path", "store", resolved
            )
        return _open_to_read(resolved, wait_s)
    warning = network_warning(resolved)
    if warning:
        log.warning(warning)
    if not exists:
        create_file(resolved)
    return _open_to_write(resolved, wait_s)


def create_file(path: Path, fill: Callable[[sqlite3.Connection], None] | None = None) -> bool:
    """Create a store atomically.

    Parameters
    ----------
    path : Path
        The file. An existing one is not replaced.
    fill : callable, optional
        Writes the first trials; it gets a connection in a transaction.

    Returns
    -------
    bool
        False if another process created a file of this name meanwhile.
    """
    temporary = temporary_name(path)
    try:
        with translate_errors(path, "created"):
            with closing(connect(temporary, "mode=rwc")) as connection:
                connection.execute("PRAGMA synchronous = FULL")
                connection.execute("PRAGMA foreign_keys = ON")
                connection.execute("BEGIN IMMEDIATE")
                create_tables(connection)
                if fill is not None:
                    fill(connection)
                connection.execute("COMMIT")
            return publish(temporary, path)
    except StoreFileError:
        raise
    except OSError as error:
        raise StoreFileError(
            f"{path} cannot be created: {error.strerror}", "failed", "store", path
        ) from error
    finally:
        for suffix in ("", "-journal"):
            with suppress(OSError):
                os.unlink(f"{temporary}{suffix}")


def _open_to_write(path: Path, wait_s: float) -> StoreFile:
    if not _writable(path):
        # Checked before SQLite opens it, which would leave a log beside a read-only file.
        sentence = (
            f"{path} cannot be written: the file is read-only; write to a copy of it, or "
            "read it with `lm-eval-bayes store export`"
        )
        raise StoreFileError(sentence, "permission", "store", path)
    damage = damaged_log(path)
    if damage is not None:
        log.warning("%s; what they held is sampled again", damage)
    exclusive = network_file_system(path) is not None
    if not exclusive:
        try:
            return _open_with(path, wait_s, exclusive=False)
        except StoreFileError as error:
            # A file system without shared memory, which the log of several processes needs.
            if isinstance(error, (StoreBusyError, StoreFullError)):
                raise
            log.debug("%s: opened for this process alone", path, exc_info=True)
    return _open_with(path, wait_s, exclusive=True)


def _open_with(path: Path, wait_s: float, *, exclusive: bool) -> StoreFile:
    """Open a store for writing, together with other processes or for this one alone."""
    with (
        translate_errors(path, "opened for writing"),
        _opened(path, "write", "mode=rw", wait_s, exclusive) as (file, connection),
    ):
        # Fails here if it is damaged or read-only, and not after hours of sampling.
        check_structure(connection, path)
        begin_writing(connection, wait_s)
        connection.execute(f"PRAGMA user_version = {SCHEMA}")
        connection.execute("ROLLBACK")
        journal = "DELETE" if exclusive else "WAL"
        connection.execute(f"PRAGMA journal_mode = {journal}")
        # Reads in this mode, and fails here if the mode is not possible.
        connection.execute("SELECT count(*) FROM models").fetchone()
        # every commit survives a kill of the process, and not a power failure
        connection.execute("PRAGMA synchronous = NORMAL")
        connection.execute("PRAGMA foreign_keys = ON")
    return file


def _open_to_read(path: Path, wait_s: float) -> StoreFile:
    damage = damaged_log(path)
    if damage is not None:
        raise StoreDamagedError(
            f"{damage}; a run on the store goes on without them and samples again what they held"
        )
    with translate_errors(path, "opened for reading"):
        if _writable(path) or log_bytes(path):
            # Opened like a writer, which removes the log at the end, with writing disabled.
            try:
                with _opened(path, "read", "mode=rw", wait_s) as (file, connection):
                    connection.execute("PRAGMA query_only = ON")
                return file
            except sqlite3.OperationalError:
                if log_bytes(path):
                    raise
        # No process is writing, and a log cannot be created: a read-only medium or an archive.
        signature = _signature(path)
        with _opened(path, "read", UNLOCKED, wait_s) as (file, _):
            file.signature = signature
        return file


@contextmanager
def _opened(
    path: Path, mode: Mode, query: str, wait_s: float, exclusive: bool = False
) -> Iterator[tuple[StoreFile, sqlite3.Connection]]:
    """Connect, and check the header and the schema; an error, in the block as well, closes it."""
    had_log, is_store = log_of(path).exists(), False
    connection = connect(path, query, wait_s)
    try:
        if exclusive:  # before the file is read, so that no shared memory is used
            connection.execute("PRAGMA locking_mode = EXCLUSIVE")
        # A text that is no longer UTF-8 fails its hash, and not the statement that reads it.
        connection.text_factory = partial(str, encoding="utf-8", errors="surrogateescape")
        connection.execute("PRAGMA trusted_schema = OFF")
        connection.execute("PRAGMA cell_size_check = ON")
        application_id = connection.execute("PRAGMA application_id").fetchone()[0]
        if application_id != TRIAL_STORE_ID:
            raise StoreDamagedError(f"{path} is damaged: its header is not that of a trial store")
        check_schema(connection, path)
        is_store = True
        file = StoreFile(path, mode, connection, wait_s)
        journal = connection.execute("PRAGMA journal_mode").fetchone()[0]
        if not had_log and journal == "wal" and _end_log(connection):
            file.lacks_log = True
            connection.execute("PRAGMA journal_mode = WAL")
            # Processes that close a new store at one moment may leave it so, with nothing in it.
            if connection.execute("SELECT EXISTS (SELECT 1 FROM trials)").fetchone()[0]:
                log.info("%s", lacks_log(path))
        # Another process that opens the store at this moment is waited for.
        connection.execute(f"PRAGMA busy_timeout = {int(wait_s * 1000)}")
        yield file, connection
    except BaseException:
        _close(connection, os.getpid(), is_store)
        raise


def lacks_log(path: Path) -> str:
    """Return the sentence about a store whose write-ahead log is missing."""
    return (
        f"{path} seems to have been copied while it was in use, without its write-ahead log "
        f"({log_of(path).name}): its latest trials may be missing; `lm-eval-bayes store merge` "
        "copies a store that is in use"
    )


def _end_log(connection: sqlite3.Connection) -> bool:
    """Empty and end the write-ahead log, unless another process uses the store.

    A store at rest then has no log by its header, and one that lost its log is told from it.

    Returns
    -------
    bool
        False if another process uses the store, or it cannot be written.
    """
    try:
        connection.execute("PRAGMA busy_timeout = 0")
        connection.execute("PRAGMA query_only = OFF")
        return bool(connection.execute("PRAGMA journal_mode = DELETE").fetchone()[0] == "delete")
    except sqlite3.Error:
        return False


def _close(connection: sqlite3.Connection, process: int, ends_log: bool) -> None:
    """Close a store, in the process that opened it."""
    if os.getpid() != process:
        return
    if ends_log:
        _end_log(connection)
    with suppress(sqlite3.Error):
        connection.close()


def _writable(path: Path) -> bool:
    # Root could write to a file without these bits, but it was made read-only on purpose.
    return bool(path.stat().st_mode & 0o222) and os.access(path, os.W_OK)


def _signature(path: Path) -> tuple[int, int]:
    status = path.stat()
    return status.st_size, status.st_mtime_ns


def _identity(path: Path) -> tuple[int, int] | None:
    """Return what tells a file from another one of the same path; None where there is none."""
    try:
        status = path.stat()
    except FileNotFoundError:
        return None
    return status.st_dev, status.st_ino
