"""The errors of trial stores, and the translation of SQLite's errors into them."""

from __future__ import annotations

import os
import shutil
import sqlite3
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
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
from lm_eval_bayes.errors import LmEvalBayesError, Rule

#: Another process holds a lock, so that a later attempt may succeed.
LOCK_CODES = (BUSY, LOCKED, PROTOCOL)

_DAMAGE_CODES = (CORRUPT, NOT_A_DATABASE)

#: A disk with fewer free bytes is considered full. The index of SQLite's write-ahead log needs half
#: of them, and SQLite reports an I/O error if it cannot create it.
FREE_BYTES = 2**16


class StoreError(LmEvalBayesError):
    """Base class of the errors of trial stores."""


class StoreFileError(StoreError, OSError):
    """The file of a store cannot be created, opened, read or written."""


class StoreBusyError(StoreFileError):
    """Another process locked the store for longer than the wait."""

    rule: Rule | None = "failed"


class StoreFullError(StoreFileError):
    """The disk is full; what was committed before is safe."""

    rule: Rule | None = "failed"


class NotAStoreError(StoreError, ValueError):
    """The path is not that of a trial store."""

    rule: Rule | None = "path"


class StoreDamagedError(StoreError):
    """The file is a damaged trial store."""

    rule: Rule | None = "damaged"


class OtherSchemaError(StoreError):
    """The store was written by a release of this package with another schema."""

    rule: Rule | None = "schema"


class OtherWeightsError(StoreError, ValueError):
    """The store has trials of other weights under the same name."""

    rule: Rule | None = "mismatch"


class TrialConflictError(StoreError, ValueError):
    """A trial is already stored with another text or seed.

    Attributes
    ----------
    conflicts : sequence of str
        A sentence about each trial, up to a limit.
    n_conflicts : int
        The number of these trials.
    """

    rule: Rule | None = "mismatch"

    def __init__(self, message: str, conflicts: Sequence[str], n_conflicts: int) -> None:
        super().__init__(message)
        self.conflicts, self.n_conflicts = conflicts, n_conflicts


def translate_error(error: sqlite3.Error, path: str | PathLike[str], doing: str) -> StoreError:
    """Return an error of SQLite as an error of this module.

    Parameters
    ----------
    error : sqlite3.Error
        The error.
    path : path
        The store.
    doing : str
        The operation, as the words after "cannot be".
    """
    code = primary_code(error)
    if code in LOCK_CODES:
        return StoreBusyError(f"{path} cannot be {doing}: another process has locked it")
    if _is_full(code, path):
        return StoreFullError(
            f"{path} cannot be {doing}: the disk is full ({error}); what was committed is safe"
        )
    if code in _DAMAGE_CODES:
        return StoreDamagedError(f"{path} is damaged and cannot be {doing}: {error}")
    return StoreFileError(f"{path} cannot be {doing}: {error}", "failed", "store", path)


def _is_full(code: int, path: str | PathLike[str]) -> bool:
    if code == IO:
        with suppress(OSError):
            return shutil.disk_usage(os.path.dirname(os.path.abspath(path))).free < FREE_BYTES
    return code == FULL


@contextmanager
def translate_errors(path: str | PathLike[str], doing: str) -> Iterator[None]:
    """Raise errors of SQLite as errors of this module, see :func:`translate_error`.

    Python raises a UnicodeDecodeError where SQLite names damaged bytes of the file in its error.
    """
    try:
        yield
    except sqlite3.Error as error:
        raise translate_error(error, path, doing) from error
    except UnicodeDecodeError as error:
        raise StoreDamagedError(f"{path} is damaged and cannot be {doing}: {error}") from error
