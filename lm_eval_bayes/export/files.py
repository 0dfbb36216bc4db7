"""Exported files: names that stand for untrusted names, and writing all files or none."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable, Mapping
from pathlib import Path

from lm_eval_bayes._util.files import (
    Content,
    check_writable,
    irregular_kind,
    resolve_path,
    write_all_or_none,
    write_errors,
)
from lm_eval_bayes._util.sqlite import check_not_store
from lm_eval_bayes.errors import InvalidInputError

#: Characters that become "_" in file names.
_NOT_IN_NAMES = re.compile(r"[^a-z0-9_.-]+")
_MAX_SLUG = 64
#: Device names of some systems, reserved with any suffix.
_RESERVED = frozenset(
    ["con", "prn", "aux", "nul", *(f"{kind}{i}" for kind in ("com", "lpt") for i in range(10))]
)


def check_targets(
    paths: Iterable[Path], overwrite: bool = False, argument: str = "--output"
) -> None:
    """Raise, before any work, if files cannot be written.

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
            got = str(path)
            raise InvalidInputError.of(argument, "path", f"be a regular file; it is {kind}", got)
        check_writable(target, argument)
        if not target.exists():
            continue
        if not overwrite:
            rule = "be a new file, unless --overwrite is given"
            raise InvalidInputError.of(argument, "path", rule, str(path))
        check_not_store(target, argument)


def write_files(
    files: Mapping[Path, Content], overwrite: bool = False, argument: str = "--output"
) -> None:
    """Write files; if one fails, none is written. Missing folders are created.

    Parameters
    ----------
    files : mapping of path to bytes or callable
        Contents, or functions that write them.
    overwrite : bool
        Whether existing files may be replaced; a trial store never is.
    argument : str
        Name of the argument in error messages.

    Raises
    ------
    InvalidInputError
        If a file exists and may not be replaced, or cannot be written.
    """
    check_targets(files, overwrite, argument)
    with write_errors(argument):
        try:
            write_all_or_none(files.items(), overwrite)
        except FileExistsError as error:
            rule = "be a new file; another process created one of this name"
            raise InvalidInputError.of(argument, "path", rule, error.filename) from None


# -- names of files ----------------------------------------------------------------------------


def slug(name: str) -> str:
    """Return a file or folder name for any name.

    Names of lower-case letters, digits, ``_``, ``-`` and single points are unchanged. Others get
    eight digits of their hash, so different names have different files.

    Examples
    --------
    >>> slug("aime25_bayes"), slug("Qwen/Qwen3-8B"), slug("../../etc/passwd")
    ('aime25_bayes', 'qwen_qwen3-8b-bf316469', 'etc_passwd-830a08e2')
    """
    plain = _NOT_IN_NAMES.sub("_", name.lower())
    plain = re.sub(r"\.{2,}", "_", plain).strip("._-")[:_MAX_SLUG].rstrip("._-")
    if plain and plain == name and not is_reserved(plain):
        return plain
    digits = hashlib.blake2b(name.encode("utf-8", "surrogatepass"), digest_size=4).hexdigest()
    if is_reserved(plain):
        plain = plain.replace(".", "_")
    return f"{plain or 'unnamed'}-{digits}"


def is_reserved(name: str) -> bool:
    """Return whether a name is reserved by an operating system, or by a datastore of results.

    Examples
    --------
    >>> is_reserved("NUL.tar"), is_reserved("data"), is_reserved("aime_2025")
    (True, True, False)
    """
    plain = name.lower()
    return plain.split(".")[0] in _RESERVED or plain in ("data", "unknown")
