"""Files that appear under their names when all of them are whole, or not at all."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import BinaryIO, TypeAlias

from lm_eval_bayes.errors import InvalidInputError
from lm_eval_bayes.store.errors import NotAStoreError, StoreDamagedError, StoreFileError
from lm_eval_bayes.store.export import refuse_special
from lm_eval_bayes.store.locations import (
    check_place,
    is_store,
    leave_no_empty,
    locate,
    make_folder,
    publish,
    sync_folder,
    temporary_name,
)

#: What a file is filled with: its bytes, or what writes them.
Content: TypeAlias = bytes | Callable[[BinaryIO], None]


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
        check_place(target, argument)
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
    made: list[Path] = []
    written: dict[Path, Path] = {}
    done: list[Path] = []
    try:
        for path, content in files.items():
            target = locate(path)
            make_folder(target.parent, made)
            written[target] = temporary_name(target)
            with open(written[target], "xb") as output:
                if callable(content):
                    content(output)
                else:
                    output.write(content)
                output.flush()
                os.fsync(output.fileno())
        for target, temporary in written.items():
            if overwrite:
                os.replace(temporary, target)
                sync_folder(target.parent)
            elif not publish(temporary, target):
                rule = "be a new file; somebody else made one of this name"
                raise InvalidInputError.of(argument, rule, str(target))
            done.append(target)
    except OSError as error:
        if isinstance(error, StoreFileError):
            raise
        rule = f"be a place that can be written: {error.strerror}"
        raise InvalidInputError.of(argument, rule, str(error.filename or path)) from None
    finally:
        for temporary in written.values():
            with suppress(OSError):
                temporary.unlink()
        if len(done) < len(files) or not files:
            for target in [] if overwrite else done:
                with suppress(OSError):
                    target.unlink()
            leave_no_empty(made)
