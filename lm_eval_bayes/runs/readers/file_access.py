"""Files and folders of runs: which there are, and whether the user may read them."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from lm_eval_bayes._util.text import error_line
from lm_eval_bayes.errors import InvalidInputError


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
