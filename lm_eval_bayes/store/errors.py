"""What can be wrong with a trial store, each as one sentence."""

from __future__ import annotations

import math
import os
import shutil
import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from os import PathLike

from lm_eval_bayes._util.sqlite import (
    BUSY,
    CORRUPT,
    FULL,
    IO,
    LOCKED,
    NOT_A_DATABASE,
    PROTOCOL,
    primary_code,
)
from lm_eval_bayes.errors import LmEvalBayesError

_WAITING = (BUSY, LOCKED, PROTOCOL)
_DAMAGE = (CORRUPT, NOT_A_DATABASE)

#: Bytes that a disk must have free for us to believe that it is not full: the index of SQLite's
#: log alone takes half of them, and where it finds no room SQLite speaks of an I/O error.
ROOM = 2**16


class StoreError(LmEvalBayesError):
    """Base class of everything that a trial store refuses."""


class StoreFileError(StoreError, OSError):
    """The file of a store cannot be created, opened, read or written."""


class StoreBusyError(StoreFileError):
    """Another process kept the store locked for longer than we wait."""


class StoreFullError(StoreFileError):
    """There is no room left to write; what was committed before is safe."""


class NotAStoreError(StoreError, ValueError):
    """The path leads to something that is not a trial store."""


class StoreDamagedError(StoreError):
    """The file is a trial store whose content is broken."""


class NewerSchemaError(StoreError):
    """The store was written by a later release of this package."""


class OtherWeightsError(StoreError, ValueError):
    """The store holds trials of other weights under the same name."""


class TrialConflictError(StoreError, ValueError):
    """A trial is already stored, with another text or another seed.

    Attributes
    ----------
    conflicts : tuple
        What collided, one record each.
    n_conflicts : int
        How many there are, where not all have a record.
    """

    def __init__(
        self, message: str, conflicts: tuple[object, ...] = (), n_conflicts: int | None = None
    ) -> None:
        super().__init__(message)
        self.conflicts = conflicts
        self.n_conflicts = len(conflicts) if n_conflicts is None else n_conflicts


def is_wait(error: sqlite3.Error) -> bool:
    """Whether trying again later may help, because somebody else holds a lock."""
    return primary_code(error) in _WAITING


def plain_error(error: sqlite3.Error, path: str | PathLike[str], doing: str) -> StoreError:
    """Turn an error of SQLite into one of ours.

    Parameters
    ----------
    error : sqlite3.Error
        What SQLite raised.
    path : path
        The store.
    doing : str
        What was tried, as the words after "cannot be".
    """
    code = primary_code(error)
    if code in _WAITING:
        return StoreBusyError(f"{path} cannot be {doing}: another process keeps it locked")
    if _is_full(error, code, path):
        return StoreFullError(
            f"{path} cannot be {doing}: the disk is full ({error}); what was committed is safe"
        )
    # Python 3.10 tells damage by the class alone: SQLite's own DatabaseError, no subclass of it.
    if code in _DAMAGE or (not code and type(error) is sqlite3.DatabaseError):
        return StoreDamagedError(f"{path} is damaged and cannot be {doing}: {error}")
    return StoreFileError(f"{path} cannot be {doing}: {error}")


def _is_full(error: sqlite3.Error, code: int, path: str | PathLike[str]) -> bool:
    # By its words on Python 3.10.
    if code == FULL or (not code and "disk is full" in str(error)):
        return True
    if code != IO and (code or "disk I/O error" not in str(error)):
        return False
    try:
        free: float = shutil.disk_usage(os.path.dirname(os.path.abspath(path))).free
    except OSError:
        free = math.inf
    return free < ROOM


@contextmanager
def plain_errors(path: str | PathLike[str], doing: str) -> Iterator[None]:
    """Raise errors of SQLite as errors of this package, see :func:`plain_error`."""
    try:
        yield
    except sqlite3.Error as error:
        raise plain_error(error, path, doing) from error


@contextmanager
def readable(path: str | PathLike[str], what: str) -> Iterator[None]:
    """Raise a :class:`StoreDamagedError` where what was read is not what we write.

    Parameters
    ----------
    path : path
        The store.
    what : str
        What is being read, as the words before "cannot be read".
    """
    try:
        yield
    except LmEvalBayesError:
        raise
    except (TypeError, ValueError, LookupError) as error:
        raise StoreDamagedError(f"{path} is damaged: {what} cannot be read: {error}") from error
