"""The texts of trials as they are stored: plain UTF-8, or compressed with the store's dictionary.

A compressed text starts with the byte 0xFF, which UTF-8 never has, the number of its dictionary in
two bytes, and a raw DEFLATE stream. A dictionary is text of other trials, in which DEFLATE finds
the phrases that the responses of a model share. It is stored twice, each copy checked against its
hash, because all texts that it compressed depend on it.
"""

from __future__ import annotations

import sqlite3
import zlib
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, NamedTuple

from lm_eval_bayes._util.hashing import hash_bytes
from lm_eval_bayes.store.errors import StoreDamagedError

#: The first byte of a compressed text.
MARK = 0xFF

#: Shorter texts stay as they are.
MIN_BYTES = 100

#: The most bytes that a text may have when it is decompressed.
MAX_BYTES = 2**30

#: Size of a dictionary, from so many texts, of each of which at most so many bytes are in it.
DICTIONARY_BYTES, SAMPLES = 2**14, 64
_PIECE = DICTIONARY_BYTES // SAMPLES

_LEVEL, _MEMORY = 6, 9
_NONE = b""


class DictionaryRow(NamedTuple):
    """A dictionary, with its two copies."""

    id: int
    digest: object
    first: object
    second: object

    def __str__(self) -> str:
        return f"the dictionary {self.id} of texts"

    def is_intact(self) -> bool:
        """Whether both copies match the hash."""
        return all(self._agrees(copy) for copy in (self.first, self.second))

    def content(self) -> bytes | None:
        """Return a copy that matches the hash, None if neither does."""
        copies = (copy for copy in (self.first, self.second) if self._agrees(copy))
        return next((copy for copy in copies if isinstance(copy, bytes)), None)

    def _agrees(self, copy: object) -> bool:
        return isinstance(copy, bytes) and self.digest == hash_bytes(copy)


def dictionary_rows(connection: sqlite3.Connection) -> Iterator[DictionaryRow]:
    """Read the dictionaries of a store."""
    statement = "SELECT id, hash, first, second FROM dictionaries ORDER BY id"
    yield from map(DictionaryRow._make, connection.execute(statement))


def dictionary_of(texts: Iterable[bytes]) -> bytes:
    """Return a dictionary: a piece of each text, and of short texts all of it."""
    return b"".join(piece(text) for text in texts)[-DICTIONARY_BYTES:]


def piece(text: bytes) -> bytes:
    """Return the middle of a text, which tells more of its style than its ends."""
    start = max(0, (len(text) - _PIECE) // 2)
    return text[start : start + _PIECE]


class TextCodec:
    """Compresses and decompresses the texts of one store, with the dictionaries that it has.

    Parameters
    ----------
    connection : sqlite3.Connection
        The store.
    path : path
        The store, for messages.
    """

    def __init__(self, connection: sqlite3.Connection, path: object) -> None:
        self._connection, self._path = connection, path
        self._read: dict[int, bytes] = {}
        self._newest = 0
        self._content = _NONE
        self._pieces: list[bytes] = []

    def forget(self) -> None:
        """Forget all dictionaries, as the transaction that stored one may be rolled back."""
        self._read.clear()
        self._newest, self._content = 0, _NONE

    @property
    def has_dictionary(self) -> bool:
        """Whether there is a dictionary for new texts, after :meth:`begin`."""
        return self._newest > 0

    def begin(self) -> None:
        """Find the newest dictionary, at the begin of a transaction that writes."""
        newest = self._connection.execute("SELECT max(id) FROM dictionaries").fetchone()[0] or 0
        if newest != self._newest:
            self._newest, self._content = newest, self._dictionary(newest) if newest else _NONE

    def pack(self, text: bytes) -> bytes:
        """Return a text as it is stored; after :meth:`begin`.

        The first texts of a store become its dictionary.
        """
        if len(text) < MIN_BYTES:
            return text
        if not self._newest:
            self._pieces.append(piece(text))
            if len(self._pieces) >= SAMPLES:
                self.add_dictionary(dictionary_of(self._pieces))
                self._pieces.clear()
        return compress(text, self._newest, self._content)

    def add_dictionary(self, content: bytes) -> None:
        """Store a dictionary for all further texts.

        The numbers of deleted dictionaries are not used again while a newer one is stored.
        """
        newest = self._connection.execute("SELECT max(id) FROM dictionaries").fetchone()[0] or 0
        self._connection.execute(
            "INSERT INTO dictionaries (id, hash, first, second) VALUES (?, ?, ?, ?)",
            (newest + 1, hash_bytes(content), content, content),
        )
        self._newest, self._content = newest + 1, content

    def unpack(self, stored: Any) -> Any:
        """Return a text as it was; None if it is damaged, and what is not bytes as it is.

        Raises
        ------
        StoreDamagedError
            If both copies of its dictionary are damaged.
        """
        if not isinstance(stored, bytes) or not stored or stored[0] != MARK:
            return stored
        number = dictionary_number(stored)
        try:
            if number not in self._read:
                self._read[number] = self._dictionary(number) if number else _NONE
            inflate = zlib.decompressobj(-zlib.MAX_WBITS, self._read[number])
            text: bytes = inflate.decompress(stored[3:], MAX_BYTES)
        except (zlib.error, LookupError):
            return None
        return text if inflate.eof and not inflate.unused_data else None

    def _dictionary(self, number: int) -> bytes:
        statement = "SELECT id, hash, first, second FROM dictionaries WHERE id = ?"
        row = self._connection.execute(statement, (number,)).fetchone()
        if row is None:
            raise LookupError(f"no dictionary {number}")
        content = DictionaryRow._make(row).content()
        if content is None:
            raise StoreDamagedError(
                f"{self._path} is damaged: both copies of dictionary {number} of texts fail their "
                "hash, so the texts that it compressed cannot be read"
            )
        return content


def dictionary_number(stored: bytes) -> int:
    """Return the number of a compressed text's dictionary, 0 for none."""
    return int.from_bytes(stored[1:3], "big")


def compress(text: bytes, number: int = 0, content: bytes = _NONE) -> bytes:
    """Return a text compressed with a dictionary, or as it is if that is shorter.

    Examples
    --------
    >>> len(compress(b"So we have " * 20)) < 30
    True
    >>> compress(b"42")
    b'42'
    """
    more: Sequence[Any] = (content,) if content else ()
    deflate = zlib.compressobj(
        _LEVEL, zlib.DEFLATED, -zlib.MAX_WBITS, _MEMORY, zlib.Z_DEFAULT_STRATEGY, *more
    )
    stored = bytes([MARK]) + number.to_bytes(2, "big") + deflate.compress(text) + deflate.flush()
    return stored if len(stored) < len(text) else text
