"""Copy a store that may be in use into one whole file."""

from __future__ import annotations

import os
import sqlite3
from contextlib import closing, suppress
from dataclasses import dataclass
from os import PathLike

from lm_eval_bayes._util.files import publish, resolve_path, temporary_name
from lm_eval_bayes._util.plain import Record
from lm_eval_bayes._util.sqlite import connect
from lm_eval_bayes.store.errors import (
    StoreFileError,
    StoreFullError,
    translate_error,
    translate_errors,
)
from lm_eval_bayes.store.file import open_file
from lm_eval_bayes.store.locations import is_store


@dataclass(frozen=True)
class SnapshotReport(Record):
    """What a snapshot wrote.

    Attributes
    ----------
    source, target : str
        The store, and its copy.
    trials : int
        Number of trials in the copy.
    size : int
        Its size in bytes.
    """

    source: str
    target: str
    trials: int
    size: int


def snapshot(
    store: str | PathLike[str], target: str | PathLike[str], overwrite: bool = False
) -> SnapshotReport:
    """Copy a store, in one consistent state, with SQLite's backup.

    The copy is one file without a log, on any file system. It appears under its name when it is
    complete. A process that is writing the store is not delayed.

    Parameters
    ----------
    store : path or TrialStore
        The store; it may be in use.
    target : path
        The file to be written.
    overwrite : bool
        Whether an existing store is replaced; another file never is.

    Raises
    ------
    StoreError
        If the store cannot be read or the file cannot be written; nothing is left behind.
    """
    path = resolve_path(target)
    with closing(open_file(store, "read")) as file:
        if path == file.path:
            raise StoreFileError(f"{path} is the store itself; copy it to another file")
        if is_store(path) and not overwrite:
            raise StoreFileError(f"{path} exists already; nothing was copied")
        temporary = temporary_name(path)
        try:
            with translate_errors(path, "written"), closing(_empty(temporary)) as copy:
                with file.reading() as connection:
                    _back_up(connection, copy, path)
                copy.execute("PRAGMA journal_mode = DELETE")
                trials = int(copy.execute("SELECT count(*) FROM trials").fetchone()[0])
            with open(temporary, "rb") as written:
                os.fsync(written.fileno())
            if overwrite:
                _remove_log(path)
            if not publish(temporary, path, overwrite):
                raise StoreFileError(f"{path} exists already; nothing was copied")
        except StoreFileError:
            raise
        except OSError as error:
            raise StoreFileError(f"{path} cannot be written: {error.strerror}") from error
        finally:
            for suffix in ("", "-journal", "-wal", "-shm"):
                with suppress(OSError):
                    os.unlink(f"{temporary}{suffix}")
        return SnapshotReport(str(file.path), str(path), trials, path.stat().st_size)


def _back_up(
    connection: sqlite3.Connection, copy: sqlite3.Connection, target: PathLike[str]
) -> None:
    """Copy the content of a store; a full disk is that of the target."""
    try:
        connection.backup(copy)
    except sqlite3.Error as error:
        translated = translate_error(error, target, "written")
        if isinstance(translated, StoreFullError):
            raise translated from error
        raise


def _remove_log(path: PathLike[str]) -> None:
    """Remove the write-ahead log of a store that is replaced, which SQLite would apply to the copy.

    It is there if the process that wrote the store was killed.
    """
    for suffix in ("-wal", "-shm", "-journal"):
        with suppress(FileNotFoundError):
            os.unlink(f"{os.fspath(path)}{suffix}")


def _empty(path: PathLike[str]) -> sqlite3.Connection:
    """Create an empty file for a backup, for this process alone."""
    connection = connect(resolve_path(path), "mode=rwc")
    connection.execute("PRAGMA locking_mode = EXCLUSIVE")
    return connection
