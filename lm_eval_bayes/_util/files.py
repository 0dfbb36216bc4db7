"""Files: atomic writes, checks of paths, compressed ones, and the task folder."""

from __future__ import annotations

import errno
import io
import os
import secrets
import stat
import zlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, BinaryIO, TypeAlias, cast

from lm_eval_bayes.errors import InvalidInputError, LmEvalBayesError, Rule

#: What a file is filled with: its bytes, or a function that writes them into an open file.
Content: TypeAlias = bytes | Callable[[BinaryIO], None]


def write_atomic(path: Path, content: Content, replace: bool = True) -> bool:
    """Write a file under a temporary name, and rename it once it is on the disk.

    Missing folders are created; if the file cannot be written they are removed again.

    Parameters
    ----------
    path : Path
        The file to be written. Of a symbolic link, the file that it leads to is written.
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
        If it cannot be written; its `filename` is `path`. Nothing is left behind.
    """
    return _write([(path, content)], replace) is None


def write_all_or_none(files: Iterable[tuple[Path, Content]], replace: bool = False) -> None:
    """Write several files; if one fails, none of the new ones stays.

    All are written under temporary names before the first is renamed. Missing folders are created.

    Parameters
    ----------
    files : iterable of (Path, bytes or callable)
        What to write where. Each content is written before the next pair is taken.
    replace : bool
        Whether existing files are replaced.

    Raises
    ------
    FileExistsError
        If a file exists and `replace` is False.
    OSError
        If one cannot be written; its `filename` is the path of that file as given.
    """
    existing = _write(files, replace)
    if existing is not None:
        raise FileExistsError(errno.EEXIST, "the file exists", str(existing))


def _write(files: Iterable[tuple[Path, Content]], replace: bool) -> Path | None:
    """Write all files or none; return the first that exists, if files are not replaced."""
    created, filled, published = list[Path](), list[tuple[Path, Path, Path]](), list[Path]()
    is_complete = False
    try:
        for path, content in files:
            target = Path(os.path.realpath(path))
            temporary = temporary_name(target)
            filled.append((path, target, temporary))
            with _errors_naming(path, target, temporary):
                _make_folder(target.parent, created)
                _fill(temporary, content)
        for path, target, temporary in filled:
            with _errors_naming(path, target, temporary):
                if not publish(temporary, target, replace):
                    return path
            published.append(target)
        is_complete = True
        return None
    finally:
        new_files = [] if is_complete or replace else published
        for path in (*new_files, *(temporary for _, _, temporary in filled)):
            with suppress(OSError):
                path.unlink()
        _remove_empty(created)


@contextmanager
def write_errors(argument: str) -> Iterator[None]:
    """Raise errors of :func:`write_atomic` and :func:`write_all_or_none` as errors of an argument.

    Raises
    ------
    InvalidInputError
        With the argument, the path as it was given, and the reason.
    """
    try:
        yield
    except LmEvalBayesError:
        raise  # of a file that the content reads
    except OSError as error:
        # Not by InvalidInputError.of, which shortens long values.
        sentence = f"`{argument}` must be a file that can be written; {error.filename}"
        rule: Rule = "permission" if isinstance(error, PermissionError) else "failed"
        raise InvalidInputError(
            f"{sentence}: {error.strerror}", rule, argument, error.filename
        ) from None


@contextmanager
def _errors_naming(path: Path, target: Path, temporary: Path) -> Iterator[None]:
    """Name `path` in errors of the system that name its temporary file, a folder or no file."""
    try:
        yield
    except OSError as error:
        names = map(str, (temporary, target, *target.parents))
        if error.errno is None or (error.filename and str(error.filename) not in names):
            raise  # an error of this package, or of another file that the content reads
        raise OSError(error.errno, error.strerror, str(path)) from error


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


def publish(temporary: Path, path: Path, replace: bool = False) -> bool:
    """Rename a finished file; return False if its name is taken and `replace` is False."""
    if replace:
        os.replace(temporary, path)
    elif not _rename_new(temporary, path):
        return False
    _sync_folder(path.parent)
    return True


def _rename_new(temporary: Path, path: Path) -> bool:
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
    return True


def _sync_folder(folder: Path) -> None:
    """Flush the entries of a folder to the disk, if the system can."""
    with suppress(OSError):
        descriptor = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)


def _make_folder(folder: Path, created: list[Path]) -> None:
    """Create a folder and its missing parents, and append those that were missing to `created`."""
    missing = [path for path in (folder, *folder.parents) if not path.is_dir()]
    folder.mkdir(parents=True, exist_ok=True)
    created += reversed(missing)


def _remove_empty(folders: Sequence[Path]) -> None:
    """Remove the empty folders, from the last to the first."""
    for folder in reversed(folders):
        with suppress(OSError):
            folder.rmdir()


def resolve_path(path: str | os.PathLike[str]) -> Path:
    """Return the file that a path leads to, absolute and with symbolic links followed.

    Raises
    ------
    InvalidInputError
        If `path` is not a path, or cannot be resolved.
    """
    try:
        return Path(os.path.realpath(os.fsdecode(path) or "\0"))
    except (TypeError, ValueError, OSError) as error:
        reason = f" that can be resolved ({error.strerror})" if isinstance(error, OSError) else ""
        raise InvalidInputError.of("path", "path", f"be a path{reason}", path) from None


def irregular_kind(path: str | os.PathLike[str]) -> str | None:
    """Return "a folder" or "a device, pipe or socket" if `path` is one, else None."""
    # The path as given: what /dev/fd/3 leads to has no other name if it is a pipe.
    try:
        mode = os.stat(path).st_mode
    except OSError:
        return None
    if stat.S_ISREG(mode):
        return None
    return "a folder" if stat.S_ISDIR(mode) else "a device, pipe or socket"


def check_writable(path: Path, argument: str) -> None:
    """Refuse a file whose folder does not exist and cannot be created.

    Raises
    ------
    InvalidInputError
        If its nearest existing parent is not a folder, or cannot be written.
    """
    parent = next((path for path in path.absolute().parents if os.path.lexists(path)), None)
    if parent is None or not parent.is_dir():
        rule = f"lie in a folder; {parent} is not a folder"
        raise InvalidInputError.of(argument, "path", rule, str(path))
    if not os.access(parent, os.W_OK | os.X_OK):
        rule = f"lie in a folder that can be written; {parent} cannot be written"
        raise InvalidInputError.of(argument, "permission", rule, str(path))


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
        _make_folder(path.absolute().parent, created)
        yield
    finally:
        _remove_empty(created)


#: The folder of this package.
_PACKAGE = Path(__file__).resolve().parents[1]


def task_configs_dir(package: Path = _PACKAGE) -> Path:
    """Return the folder of task YAMLs that belongs to this copy of the package.

    A wheel carries it inside the package; in a checkout, so in an editable install, it lies
    beside the package.

    Returns
    -------
    pathlib.Path
        An existing folder, absolute.

    Raises
    ------
    LmEvalBayesError
        If neither folder exists, so the installation is damaged (or lies in a zip file,
        which the harness cannot read tasks from).

    Examples
    --------
    >>> task_configs_dir().name
    'task_configs'
    """
    # In site-packages, a stranger's folder could have this name; a checkout has its metadata too.
    inside, beside = package / "task_configs", package.parent / "task_configs"
    if inside.is_dir():
        return inside
    if beside.is_dir() and (package.parent / "pyproject.toml").is_file():
        return beside
    raise LmEvalBayesError(
        f"the task files of lm_eval_bayes must lie in {inside} (installed) or {beside} "
        "(checkout); found neither, so please install the package again",
        *("path", "task_configs", str(package)),
    )


#: What reading a file may raise that is broken, or that cannot be read.
UNREADABLE = (OSError, EOFError, zlib.error)

#: What the name of a compressed file ends in.
COMPRESSED = (".gz", ".zst")

#: A file is decompressed to at most this many times its size, and to this many bytes; the third
#: number of bytes is always allowed; no line of a file and no answer of a server may be longer.
MOST_TIMES, MOST_BYTES, ALWAYS_BYTES = 200, 2**31, 2**26

_LFS_POINTER = b"version https://git-lfs.github.com/spec/v1"


def plain_name(path: Path) -> Path:
    """Return the path without the ending of a compressed file.

    Examples
    --------
    >>> plain_name(Path("runs/board.csv.gz")).name
    'board.csv'
    """
    return path.with_suffix("") if path.suffix in COMPRESSED else path


def most_bytes(path: Path) -> int:
    """Return how many bytes a compressed file may hold."""
    return max(ALWAYS_BYTES, min(MOST_BYTES, MOST_TIMES * path.stat().st_size))


def open_bytes(path: Path) -> BinaryIO:
    """Open a file for reading, decompressed where its name ends in .gz or .zst.

    Raises
    ------
    OSError, EOFError, zlib.error
        If it cannot be read, at once or later: it is broken, a Git-LFS pointer, or decompressed
        larger than :func:`most_bytes`.
    """
    check_pointer(path)
    if path.suffix not in COMPRESSED:
        return path.open("rb")
    import pyarrow  # part of the harness's requirement `datasets`

    kind = "gzip" if path.suffix == ".gz" else "zstd"
    stream = _Bounded(pyarrow.input_stream(path, compression=kind), most_bytes(path))
    return cast(BinaryIO, io.BufferedReader(stream, 2**16))


def check_pointer(path: Path) -> None:
    """Raise an OSError if a file is a Git-LFS pointer, which stands in place of a large file."""
    with path.open("rb") as file:
        if file.read(len(_LFS_POINTER)) == _LFS_POINTER:
            raise OSError("a Git-LFS pointer in place of the file; `git lfs pull` fetches it")


class _Bounded(io.RawIOBase):
    """A decompressed stream that ends in an error where it is too large."""

    def __init__(self, stream: Any, most: int) -> None:
        self.stream, self.left = stream, most

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        content = self.stream.read(len(buffer))
        self.left -= len(content)
        if self.left < 0:
            raise OSError("more bytes when decompressed than are read of such a file")
        buffer[: len(content)] = content
        return len(content)

    def close(self) -> None:
        self.stream.close()
        super().close()
