"""Files that appear under their names when all of them are whole, or not at all."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path

from lm_eval_bayes._util.files import Content, check_writable, write_all_or_none
from lm_eval_bayes.errors import InvalidInputError
from lm_eval_bayes.store.errors import NotAStoreError, StoreDamagedError
from lm_eval_bayes.store.export import refuse_special
from lm_eval_bayes.store.locations import is_store, locate

__all__ = ["Content", "check_targets", "write_files"]


def check_targets(
    paths: Iterable[Path], overwrite: bool = False, argument: str = "--output"
) -> None:
    """Refuse, before any work, files that could not be written.

    Raises
    ------
    InvalidInputError
        If one is there already and `overwrite` is False, it is a trial store, or its folder
        cannot be made.
    StoreFileError
        If a folder, a device or a pipe is there.
    """
    for path in paths:
        target = locate(path)
        refuse_special(path)
        check_writable(target, argument)
        if not target.exists():
            continue
        if not overwrite:
            rule = "be a new file, unless --overwrite is given"
            raise InvalidInputError.of(argument, rule, str(path))
        if _is_store(target):
            raise InvalidInputError.of(argument, "not be a trial store", str(path))


def _is_store(target: Path) -> bool:
    try:
        return is_store(target)
    except NotAStoreError:
        return False
    except StoreDamagedError:
        return True


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
    write_all_or_none(
        {locate(path): content for path, content in files.items()}, overwrite, argument
    )
