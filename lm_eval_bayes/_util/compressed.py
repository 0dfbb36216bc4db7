"""Files that may be compressed, by the endings of their names, .gz and .zst, or be in UTF-16."""

from __future__ import annotations

import codecs
import gzip
import io
import zlib
from pathlib import Path
from typing import BinaryIO, cast

#: What reading a file may raise that is broken, or that cannot be read.
UNREADABLE = (OSError, EOFError, zlib.error)

#: What the name of a compressed file ends in.
COMPRESSED = (".gz", ".zst")

_BYTE_ORDER_MARKS = (codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)


def plain_name(path: Path) -> Path:
    """Return the path without the ending of a compressed file.

    Examples
    --------
    >>> plain_name(Path("runs/board.csv.gz")).name
    'board.csv'
    """
    return path.with_suffix("") if path.suffix in COMPRESSED else path


def open_bytes(path: Path) -> BinaryIO:
    """Open a file for reading, decompressed where its name ends in .gz or .zst.

    A text in UTF-16 that begins with its byte order mark is read as UTF-8, as a whole.

    Raises
    ------
    OSError, EOFError, zlib.error
        If it cannot be read, at once or later.
    """
    opened = _open_bytes(path)
    try:
        if opened.peek(2)[:2] not in _BYTE_ORDER_MARKS:
            return cast(BinaryIO, opened)
        content = opened.read()
    except BaseException:
        opened.close()
        raise
    opened.close()
    try:
        return io.BytesIO(content.decode("utf-16").encode("utf-8"))
    except UnicodeError as error:
        raise OSError(f"no text in UTF-16, as its first bytes say: {error}") from None


def _open_bytes(path: Path) -> io.BufferedReader | gzip.GzipFile:
    if path.suffix == ".gz":
        return gzip.open(path, "rb")
    if path.suffix == ".zst":
        import pyarrow  # part of the harness's requirement `datasets`

        stream = pyarrow.input_stream(path, compression="zstd")
        return io.BufferedReader(stream)
    return path.open("rb")
