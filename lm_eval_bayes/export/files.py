"""Files that appear under their names when all of them are whole, or not at all."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path

from lm_eval_bayes._util.files import (
    Content,
    check_writable,
    irregular_kind,
    resolve_path,
    write_all_or_none,
)
from lm_eval_bayes._util.sqlite import check_not_store
from lm_eval_bayes.errors import InvalidInputError

__all__ = ["Content", "check_targets", "write_files"]


def check_targets(
    paths: Iterable[Path], overwrite: bool = False, argument: str = "--output"
) -> None:
    """Refuse, before any work, files that could not be written.

    Raises
    ------
    InvalidInputError
        If one exists and `overwrite` is False, it is a trial store, a folder, a device or a pipe,
        or its folder cannot be created.
    """
    for path in paths:
        target = resolve_path(path)
        kind = irregular_kind(path)
        if kind is not None:
            raise InvalidInputError.of(argument, f"be a regular file; it is {kind}", str(path))
        check_writable(target, argument)
        if not target.exists():
            continue
        if not overwrite:
            rule = "be a new file, unless --overwrite is given"
            raise InvalidInputError.of(argument, rule, str(path))
        check_not_store(target, argument)


def write_files(
    files: Mapping[Path, Content], overwrite: bool = False, argument: str = "--output"
) -> None:
    """Write files, each in a folder that is made where it is missing.

    All of them are written under other names before the first gets its own, so that an error on
    the way leaves nothing behind.

    Parameters
    ----------
    files : mapping of path to bytes or callable
        What to write, or what writes it.
    overwrite : bool
        Whether files that are there may be replaced; a trial store never is.
    argument : str
        What errors call the place.

    Raises
    ------
    InvalidInputError
        If a file is there and may not be replaced, or it cannot be written.
    """
    check_targets(files, overwrite, argument)
    targets = [(resolve_path(path), content) for path, content in files.items()]
    try:
        write_all_or_none(targets, overwrite)
    except FileExistsError as error:
        rule = "be a new file; another process created one of this name"
        raise InvalidInputError.of(argument, rule, error.filename or [*map(str, files)]) from None
    except OSError as error:
        rule = f"be a path that can be written: {error.strerror}"
        raise InvalidInputError.of(argument, rule, error.filename or [*map(str, files)]) from None
