"""Compress the texts of a store anew, and return its unused space to the file system."""

from __future__ import annotations

import shutil
import sqlite3
from collections.abc import Iterator
from dataclasses import dataclass

from lm_eval_bayes.store.errors import FREE_BYTES, StoreFileError, StoreFullError
from lm_eval_bayes.store.file import StoreFile, marks
from lm_eval_bayes.store.texts import (
    MARK,
    SAMPLES,
    TextCodec,
    dictionary_number,
    dictionary_of,
    dictionary_rows,
)

#: Texts that are held in memory at a time.
_BATCH = 500


@dataclass(frozen=True)
class CompactReport:
    """What :func:`compact_store` did.

    Attributes
    ----------
    trials : int
        Number of the store's trials.
    text_bytes : int
        Size of their texts as UTF-8.
    stored_bytes : int
        Size of their texts as they are stored now.
    before, after : int
        Size of the file in bytes.
    damaged : int
        Texts that cannot be read, and were left as they are.
    """

    trials: int
    text_bytes: int
    stored_bytes: int
    before: int
    after: int
    damaged: int


def compact_store(file: StoreFile) -> CompactReport:
    """Compress all texts with a new dictionary, drop the earlier ones and unused pages.

    The texts change in one transaction, so a kill leaves the store as it was. Texts are read in
    batches; the disk needs room for the store twice.

    Raises
    ------
    StoreFullError
        If the disk has no room for that.
    StoreFileError
        If SQLite reports a full disk that has room, as it may for a damaged store.
    """
    try:
        return _compacted(file)
    except StoreFullError as error:
        folder = file.path.parent
        free = shutil.disk_usage(folder).free
        if free < 2 * file.path.stat().st_size + FREE_BYTES:
            raise
        sentence = (
            f"{file.path} cannot be compacted: SQLite reports a full disk, but {free:,} bytes are "
            f"free in {folder}; the store may be damaged, which `lm-eval-bayes store verify` "
            "tells, or a quota or the folder of temporary files be full; commits are safe"
        )
        raise StoreFileError(sentence, "failed", "store", file.path) from error


def _compacted(file: StoreFile) -> CompactReport:
    before = file.path.stat().st_size
    counts = {"trials": 0, "text_bytes": 0, "stored_bytes": 0, "damaged": 0}
    with file.writing() as connection:
        texts = file.texts
        texts.begin()
        samples = _samples(connection, texts)
        # An earlier dictionary is always replaced, as it may hold texts that were pruned.
        if texts.has_dictionary or len(samples) >= SAMPLES:
            texts.add_dictionary(dictionary_of(samples))
        used = set[int]()
        for row_id, stored in _stored_texts(connection):
            text = texts.unpack(stored)
            counts["trials"] += 1
            if not isinstance(text, bytes):
                counts["damaged"] += 1
                if isinstance(stored, bytes) and stored[:1] == bytes([MARK]):
                    used.add(dictionary_number(stored))
                continue
            packed = texts.pack(text)
            if texts.unpack(packed) != text:
                raise RuntimeError(f"a text of {file.path} was not compressed as it can be read")
            if packed[:1] == bytes([MARK]):
                used.add(dictionary_number(packed))
            if packed != stored:
                connection.execute("UPDATE trials SET text = ? WHERE rowid = ?", (packed, row_id))
            counts["text_bytes"] += len(text)
            counts["stored_bytes"] += len(packed)
        # The newest stays, so that no process ever meets another dictionary of its number.
        numbers = [row.id for row in dictionary_rows(connection)]
        unused = [(number,) for number in numbers[:-1] if number not in used]
        connection.executemany("DELETE FROM dictionaries WHERE id = ?", unused)
    file.texts.forget()
    file.compact()
    after = file.path.stat().st_size
    return CompactReport(before=before, after=after, **counts)


def _samples(connection: sqlite3.Connection, texts: TextCodec) -> list[bytes]:
    """Return texts from all over the store."""
    ids = [row_id for (row_id,) in connection.execute("SELECT rowid FROM trials ORDER BY rowid")]
    chosen = ids[:: max(1, (len(ids) - 1) // (4 * SAMPLES))]
    statement = f"SELECT text FROM trials WHERE rowid IN ({marks(chosen)}) ORDER BY rowid"
    unpacked = [texts.unpack(stored) for (stored,) in connection.execute(statement, chosen)]
    readable = [text for text in unpacked if isinstance(text, bytes) and text]
    return readable[:: max(1, len(readable) // SAMPLES)]


def _stored_texts(connection: sqlite3.Connection) -> Iterator[tuple[int, object]]:
    """Read all texts by rowid, a batch at a time, so that each may be changed meanwhile."""
    statement = "SELECT rowid, text FROM trials WHERE rowid > ? ORDER BY rowid LIMIT ?"
    last = -(2**63)
    while rows := connection.execute(statement, (last, _BATCH)).fetchall():
        yield from rows
        last = rows[-1][0]
