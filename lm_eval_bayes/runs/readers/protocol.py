"""What every reader of a format has in common: what it is asked for and what it returns.

Also which files and folders there are, and whether the user may read them.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from lm_eval_bayes._util.text import error_line, join_words
from lm_eval_bayes.errors import InvalidInputError
from lm_eval_bayes.runs.query import Query as Query
from lm_eval_bayes.runs.trials import PartialRun


@dataclass(frozen=True)
class FileContents:
    """What a reader returns of a file.

    Attributes
    ----------
    runs : sequence of PartialRun
        One per model and task.
    tasks : tuple of str
        The names of all tasks in the file, those that the query leaves out included.
    groups : mapping of str to tuple of str
        The tasks of the groups that the file names.
    warnings : tuple of str
        What was left out.
    notes : tuple of str
        How the file was read.
    """

    runs: Sequence[PartialRun]
    tasks: tuple[str, ...]
    groups: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    warnings: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()


@dataclass(frozen=True)
class Found:
    """What a format reads of its files at a path.

    Attributes
    ----------
    files : sequence of Path
        Files, or folders that are read as a whole.
    warnings : tuple of str
        What of a folder was left out.
    """

    files: Sequence[Path]
    warnings: tuple[str, ...] = ()


#: The rules that a file breaks which cannot be read.
UNREADABLE_RULES = ("damaged", "empty", "format", "permission")


def choice_note(option: str, names: Sequence[str], chosen: str | None) -> tuple[str, ...]:
    """Return a note on what was counted, the first of several names; none where the user chose."""
    if len(names) < 2 or chosen is not None:
        return ()
    choice = join_words(list(names), "or")
    return (f"{option} {names[0]} was counted; --{option} chooses among {choice}",)


class NothingToCountError(InvalidInputError):
    """A task logs nothing that its trials could be counted by."""


@contextmanager
def errors_of(argument: str, path: object) -> Iterator[None]:
    """Raise errors of readers, which name the argument RUN, as those of another argument.

    A denied permission is an error of the argument too, which names the file or folder.
    """
    try:
        yield
    except InvalidInputError as error:
        if error.argument == "RUN":
            error.args = (str(error).replace("`RUN`", f"`{argument}`", 1),)
            error.argument = argument
        raise
    except PermissionError as error:
        rule = f"be readable ({error.filename or path})"
        raise InvalidInputError.of(argument, "permission", rule, "permission denied") from None


def check_permission(path: Path) -> None:
    """Raise a PermissionError unless the user may read a file, or list a folder."""
    if path.is_dir():
        with os.scandir(path):
            return
    with path.open("rb"):
        return


def unreadable(error: Exception, file: Path) -> Exception:
    """Return the error of a file whose bytes cannot be read, or not be decompressed.

    A denied permission is returned as it is, see :func:`errors_of`.

    Parameters
    ----------
    error : Exception
        One of :data:`lm_eval_bayes._util.files.UNREADABLE`.
    file : Path
        The file.
    """
    if isinstance(error, PermissionError):
        return error
    rule = f"have a complete {file}"
    reason = getattr(error, "strerror", None) or error_line(error)
    kind = {".gz": "gzip", ".zst": "zstd"}.get(file.suffix)
    if kind is not None and getattr(error, "errno", None) is None:
        reason = f"an incomplete or damaged {kind} file ({reason})"
    return InvalidInputError.of("RUN", "damaged", rule, reason)


def files_below(folder: Path) -> Iterator[Path]:
    """Yield the files in a folder and in those below it.

    Raises
    ------
    PermissionError
        If the user may not list a folder, or not look at a file in it.
    """
    for parent, _, names in os.walk(folder, onerror=_raise_denied):
        visible = (Path(parent, name) for name in names if not name.startswith("."))
        yield from filter(_is_file, visible)


def files_beside(file: Path, pattern: str) -> list[Path]:
    """Return the files in the folder of a file whose names match a pattern, in their order.

    Raises
    ------
    PermissionError
        If the user may not list the folder.
    """
    try:
        paths = (path for path in file.parent.iterdir() if not path.name.startswith("."))
        return sorted(path for path in paths if path.match(pattern))
    except (FileNotFoundError, NotADirectoryError):
        return []


def _raise_denied(error: OSError) -> None:
    if isinstance(error, PermissionError):
        raise error


def _is_file(path: Path) -> bool:
    try:
        return stat.S_ISREG(path.stat().st_mode)
    except PermissionError:
        raise
    except (OSError, ValueError):
        return False
