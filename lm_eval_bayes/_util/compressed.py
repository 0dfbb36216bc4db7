"""Files that may be compressed, by the endings of their names: .gz and .zst."""

from __future__ import annotations

import gzip
import io
import zlib
from pathlib import Path
from typing import BinaryIO, cast

#: What reading a file may raise that is broken, or that cannot be read.
UNREADABLE = (OSError, EOFError, zlib.error)

#: What the name of a compressed file ends in.
COMPRESSED = (".gz", ".zst")


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

    Raises
    ------
    OSError, EOFError, zlib.error
        If it cannot be read, at once or later.
    """
    if path.suffix == ".gz":
        return cast(BinaryIO, gzip.open(path, "rb"))
    if path.suffix == ".zst":
        import pyarrow  # part of the harness's requirement `datasets`

        stream = pyarrow.input_stream(path, compression="zstd")
        return cast(BinaryIO, io.BufferedReader(stream))
    return path.open("rb")
