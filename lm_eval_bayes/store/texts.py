"""The texts of trials as they are stored: plain UTF-8, or compressed one by one.

A compressed text starts with the byte 0xFF, which UTF-8 never has, the number of a dictionary in
two bytes, and a raw DEFLATE stream. The number is 0, which is no dictionary. Earlier releases
compressed with a dictionary of other trials' texts, which is read and no longer written.
"""

from __future__ import annotations

import sqlite3
import zlib
from collections.abc import Mapping
from typing import Any

from lm_eval_bayes._util.hashing import hash_bytes

#: The first byte of a compressed text.
MARK = b"\xff"

#: Shorter texts stay as they are.
MIN_BYTES = 100

#: The most bytes that a text may have when it is decompressed.
MAX_BYTES = 2**30


def pack(text: bytes) -> bytes:
    """Return a text compressed, or as it is if that is shorter.

    Examples
    --------
    >>> len(pack(b"So we have " * 20)) < 30
    True
    >>> pack(b"42")
    b'42'
    """
    if len(text) < MIN_BYTES:
        return text
    deflate = zlib.compressobj(6, zlib.DEFLATED, -zlib.MAX_WBITS, 9)
    packed = MARK + b"\0\0" + deflate.compress(text) + deflate.flush()
    return packed if len(packed) < len(text) else text


def unpack(stored: Any, dictionaries: Mapping[int, bytes]) -> Any:
    """Return a text as it was; None if it is damaged, and what is not bytes as it is."""
    if not isinstance(stored, bytes) or not stored.startswith(MARK):
        return stored
    try:
        dictionary = dictionaries[int.from_bytes(stored[1:3], "big")]
        inflate = zlib.decompressobj(-zlib.MAX_WBITS, dictionary)
        text: bytes = inflate.decompress(stored[3:], MAX_BYTES)
    except (zlib.error, LookupError):
        return None
    return text if inflate.eof and not inflate.unused_data else None


def read_dictionaries(connection: sqlite3.Connection) -> dict[int, bytes]:
    """Return the dictionaries that an earlier release stored, each twice, by number; 0 is none."""
    dictionaries = {0: b""}
    if connection.execute("SELECT 1 FROM sqlite_master WHERE name = 'dictionaries'").fetchone():
        rows = connection.execute("SELECT id, hash, first, second FROM dictionaries")
        for number, digest, *copies in rows:
            for copy in copies:
                if isinstance(copy, bytes) and hash_bytes(copy) == digest:
                    dictionaries[number] = copy
    return dictionaries
