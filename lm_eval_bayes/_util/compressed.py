"""Files that may be compressed, by the endings of their names, .gz and .zst."""

from __future__ import annotations

import io
import zlib
from pathlib import Path
from typing import Any, BinaryIO, cast

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
