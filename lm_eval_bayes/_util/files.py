"""Files that appear under their names when they are complete, or not at all."""

from __future__ import annotations

import os
import secrets
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import BinaryIO, TypeAlias

from lm_eval_bayes.errors import InvalidInputError

#: What a file is filled with: its bytes, or a function that writes them into an open file.
Content: TypeAlias = bytes | Callable[[BinaryIO], None]


def write_atomic(path: Path, content: Content, replace: bool = True) -> bool:
    """Write a file under a temporary name, and rename it once it is on the disk.

    Missing folders are created; if the file cannot be written they are removed again.

    Parameters
    ----------
    path : Path
        The file to be written.
    content : bytes or callable
        Its bytes, or a function that writes them into the open file it gets.
    replace : bool
        Whether an existing file of this name is replaced.

    Returns
    -------
    bool
        False if a file of this name exists and `replace` is False.

    Raises
    ------
    OSError
        If it cannot be written; nothing is left behind.
    """
    created: list[Path] = []
    temporary = temporary_name(path)
    try:
        make_folder(path.parent, created)
        _fill(temporary, content)
        if not replace:
            return publish(temporary, path)
        os.replace(temporary, path)
        sync_folder(path.parent)
        return True
    finally:
        with suppress(OSError):
            temporary.unlink()
        remove_empty(created)


def write_all_or_none(
    files: Mapping[Path, Content], replace: bool = False, argument: str = "--output"
) -> None:
    """Write several files; if one fails, none of the new ones stays.

    All are written under temporary names before the first is renamed.

    Parameters
    ----------
    files : mapping of Path to bytes or callable
        What to write where.
    replace : bool
        Whether existing files are replaced.
    argument : str
        The name of the argument in errors.

    Raises
    ------
    InvalidInputError
        If a file exists and `replace` is False, or one cannot be written.
    """
    created: list[Path] = []
    temporaries: dict[Path, Path] = {}
    published: list[Path] = []
    try:
        for path, content in files.items():
            make_folder(path.parent, created)
            temporaries[path] = temporary_name(path)
            _fill(temporaries[path], content)
        for path, temporary in temporaries.items():
            if replace:
                os.replace(temporary, path)
                sync_folder(path.parent)
            elif not publish(temporary, path):
                rule = "be a new file; another process created one of this name"
                raise InvalidInputError.of(argument, rule, str(path))
            published.append(path)
    except OSError as error:
        rule = f"be a path that can be written: {error.strerror}"
        raise InvalidInputError.of(argument, rule, str(error.filename or path)) from None
    finally:
        for temporary in temporaries.values():
            with suppress(OSError):
                temporary.unlink()
        if len(published) < len(files) or not files:
            for path in [] if replace else published:
                with suppress(OSError):
                    path.unlink()
            remove_empty(created)


def _fill(temporary: Path, content: Content) -> None:
    with open(temporary, "xb") as output:
        if callable(content):
            content(output)
        else:
            output.write(content)
        output.flush()
        os.fsync(output.fileno())


def temporary_name(path: Path) -> Path:
    """Return a hidden name beside `path` that no other process uses."""
    return path.with_name(f".{path.name}.{os.getpid()}-{secrets.token_hex(4)}.tmp")


def publish(temporary: Path, path: Path) -> bool:
    """Rename a finished file unless its name is taken; return whether it was free."""
    try:
        os.link(temporary, path)
    except FileExistsError:
        return False
    except OSError:
        # a file system without hard links: reserve the name with an empty file first
        try:
            os.close(os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY))
        except FileExistsError:
            return False
        os.replace(temporary, path)
    sync_folder(path.parent)
    return True


def sync_folder(folder: Path) -> None:
    """Flush the names in a folder to the disk, where the system can."""
    with suppress(OSError):
        descriptor = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)


def make_folder(folder: Path, created: list[Path]) -> None:
    """Create a folder and its missing parents, and append those that were missing to `created`."""
    missing = []
    while not folder.is_dir():
        missing.append(folder)
        if folder == folder.parent:
            break
        folder = folder.parent
    for path in reversed(missing):
        path.mkdir(exist_ok=True)
        created.append(path)


def remove_empty(folders: Sequence[Path]) -> None:
    """Remove those of the folders that are empty, the last first."""
    for folder in reversed(folders):
        with suppress(OSError):
            folder.rmdir()


def check_writable(path: Path, argument: str) -> None:
    """Refuse a file whose folder does not exist and cannot be created.

    Raises
    ------
    InvalidInputError
        If its nearest existing parent is not a folder, or not a writable one.
    """
    parent = next((path for path in path.absolute().parents if os.path.lexists(path)), None)
    if parent is None or not parent.is_dir():
        rule = f"lie in a folder; {parent} is none"
        raise InvalidInputError.of(argument, rule, str(path))
    if not os.access(parent, os.W_OK | os.X_OK):
        rule = f"lie in a folder that can be written; {parent} cannot"
        raise InvalidInputError.of(argument, rule, str(path))


@contextmanager
def folder_for(path: Path, argument: str) -> Iterator[None]:
    """Create the folder of a file that is written inside the block; empty ones are removed.

    Raises
    ------
    InvalidInputError
        If it cannot be created.
    """
    check_writable(path, argument)
    created: list[Path] = []
    try:
        make_folder(path.absolute().parent, created)
        yield
    finally:
        remove_empty(created)
