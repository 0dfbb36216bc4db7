"""The table of trials: insert trials, find them by key, and check them against their hashes."""

from __future__ import annotations

import gc
import json
import sqlite3
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from lm_eval_bayes._util.hashing import hash_bytes
from lm_eval_bayes.store.descriptions import find_id, find_ids, put_description, require_id
from lm_eval_bayes.store.file import chunks, marks
from lm_eval_bayes.store.trial import (
    INSERT,
    READ,
    Conflict,
    EncodedTrial,
    Trial,
    TrialKey,
    decode,
    difference,
    is_intact,
)

#: The row of a trial: the ids of its model, sampling and prompt, and its number.
RowId = tuple[int, int, int, int]


def insert_trials(
    connection: sqlite3.Connection, rows: list[EncodedTrial], path: Path
) -> tuple[int, list[Conflict]]:
    """Insert trials that are not stored yet.

    Returns
    -------
    int
        The number of inserted trials.
    list of Conflict
        The trials that are stored with another text or seed.
    """
    n_inserted, conflicts = 0, []
    ids: dict[TrialKey, tuple[int, int, int]] = {}
    versions: dict[str, int] = {}
    for row in rows:
        key = row.key
        if key not in ids:
            ids[key] = key_ids(connection, key, path)
        if row.versions not in versions:
            digest = hash_bytes(row.versions.encode("ascii"))
            versions[row.versions] = put_description(connection, "versions", digest, row.versions)
        row_id = (*ids[key], row.trial)
        if insert_row(connection, row_id, versions[row.versions], row.values):
            n_inserted += 1
            continue
        what = difference(stored_seed_and_text(connection, row_id), row.seed_and_text)
        if what is not None:
            conflicts.append(Conflict(key, row.trial, what, str(path), "the trials to be added"))
    return n_inserted, conflicts


def insert_row(
    connection: sqlite3.Connection, row_id: RowId, versions: int, values: Sequence[Any]
) -> bool:
    """Insert a row unless the trial is stored; return whether it was inserted."""
    return connection.execute(INSERT, (*row_id, versions, *values)).rowcount == 1


def stored_seed_and_text(connection: sqlite3.Connection, row_id: RowId) -> tuple[int | None, bytes]:
    """Return seed and text of a stored trial."""
    seed, text = connection.execute(
        "SELECT seed, text FROM trials "
        "WHERE model = ? AND sampling = ? AND prompt = ? AND trial = ?",
        row_id,
    ).fetchone()
    return seed, text


def key_ids(connection: sqlite3.Connection, key: TrialKey, path: Path) -> tuple[int, int, int]:
    """Return the ids of a key's model, sampling and prompt.

    Raises
    ------
    InvalidInputError
        If one of its hashes has no description in the store.
    """
    model, sampling, prompt = connection.execute(
        "SELECT (SELECT id FROM models WHERE hash = ?), (SELECT id FROM samplings WHERE hash = ?), "
        "(SELECT id FROM prompts WHERE hash = ?)",
        (key.model, key.sampling, key.prompt),
    ).fetchone()
    if model is None or sampling is None or prompt is None:
        require_id(connection, "models", key.model, path)
        require_id(connection, "samplings", key.sampling, path)
        require_id(connection, "prompts", key.prompt, path)
    return model, sampling, prompt


def find_rows(
    connection: sqlite3.Connection, keys: list[TrialKey], columns: str, first: int, last: int
) -> Iterator[tuple[TrialKey, Any]]:
    """Find trials of many keys, with few statements for each pair of model and sampling.

    Parameters
    ----------
    connection : sqlite3.Connection
        In a transaction that reads.
    keys : list of TrialKey
        The keys.
    columns : str
        The columns to read; the first is ``prompt``.
    first, last : int
        The smallest and the largest trial number.

    Yields
    ------
    tuple
        The key, and a row of the columns.
    """
    groups: dict[tuple[str, str], list[TrialKey]] = {}
    for key in keys:
        groups.setdefault((key.model, key.sampling), []).append(key)
    prompts = find_ids(connection, "prompts", {key.prompt for key in keys})
    for (model, sampling), group in groups.items():
        pair = (find_id(connection, "models", model), find_id(connection, "samplings", sampling))
        by_id = {prompts[key.prompt]: key for key in group if key.prompt in prompts}
        for chunk in chunks(sorted(by_id)):
            statement = (
                f"SELECT {columns} FROM trials WHERE model = ? AND sampling = ? "
                f"AND prompt IN ({marks(chunk)}) AND trial >= ? AND trial <= ? "
                "ORDER BY model, sampling, prompt, trial"
            )
            for row in connection.execute(statement, (*pair, *chunk, first, last)):
                yield by_id[row[0]], row


@contextmanager
def paused_collector() -> Iterator[None]:
    """Pause Python's cycle collector, which otherwise walks through all records again and again."""
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()


class HashCheckedReader:
    """Reads the trials of one key at a time, each checked against its hash.

    Parameters
    ----------
    connection : sqlite3.Connection
        In a transaction that reads.
    """

    def __init__(self, connection: sqlite3.Connection) -> None:
        self._connection = connection
        self._version_texts: dict[int, str] = dict(
            connection.execute("SELECT id, description FROM versions").fetchall()
        )
        self._versions = {
            version_id: json.loads(text) for version_id, text in self._version_texts.items()
        }

    def trials(self, key: TrialKey, ids: Sequence[int]) -> Iterator[tuple[Trial, bool]]:
        """Read the trials of a key by number.

        Parameters
        ----------
        key : TrialKey
            The hashes of model, prompt and sampling.
        ids : sequence of int
            The ids of model, sampling and prompt, in this order.

        Yields
        ------
        Trial, bool
            A trial, and whether it matches its hash.

        Raises
        ------
        TypeError, ValueError, LookupError
            If a row is damaged such that it cannot be read.
        """
        rows = self._connection.execute(
            f"SELECT {READ}, hash FROM trials "
            "WHERE model = ? AND sampling = ? AND prompt = ? ORDER BY trial",
            tuple(ids),
        )
        for row in rows:
            trial = decode(key, self._versions, row[:-1])
            # is_intact takes the hash before the text
            values = (*row[3:-2], row[-1], row[-2])
            yield trial, is_intact(key, row[1], self._version_texts[row[2]], values)
