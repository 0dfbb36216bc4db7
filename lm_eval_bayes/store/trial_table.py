"""The statements behind a trial store: many trials in, many trials out."""

from __future__ import annotations

import gc
import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from lm_eval_bayes._util.hashing import hash_bytes
from lm_eval_bayes.store.descriptions import find_id, find_ids, put_description, require_id
from lm_eval_bayes.store.file import chunks, marks
from lm_eval_bayes.store.trial import INSERT, Conflict, EncodedTrial, TrialKey, difference


def insert_trials(
    connection: sqlite3.Connection, rows: list[EncodedTrial], path: Path
) -> tuple[int, list[Conflict]]:
    """Insert rows; return how many were new, and those that differ from the stored one."""
    stored, collided = 0, []
    keys: dict[TrialKey, tuple[int, ...]] = {}
    versions: dict[str, int] = {}
    for row in rows:
        key = row.key
        if key not in keys:
            keys[key] = key_ids(connection, key, path)
        if row.versions not in versions:
            digest = hash_bytes(row.versions.encode("ascii"))
            versions[row.versions] = put_description(connection, "versions", digest, row.versions)
        place = (*keys[key], row.trial)
        if connection.execute(INSERT, (*place, versions[row.versions], *row.values)).rowcount == 1:
            stored += 1
            continue
        there = connection.execute(
            "SELECT seed, text FROM trials "
            "WHERE model = ? AND sampling = ? AND prompt = ? AND trial = ?",
            place,
        ).fetchone()
        what = difference(there, row.seed_and_text)
        if what is not None:
            collided.append(Conflict(key, row.trial, what, str(path), "what was to be added"))
    return stored, collided


def key_ids(connection: sqlite3.Connection, key: TrialKey, path: Path) -> tuple[int, ...]:
    """Return the rows of a key's model, sampling and prompt.

    Raises
    ------
    InvalidInputError
        If nobody told the store what one of its hashes stands for.
    """
    ids: tuple[int | None, ...] = connection.execute(
        "SELECT (SELECT id FROM models WHERE hash = ?), (SELECT id FROM samplings WHERE hash = ?), "
        "(SELECT id FROM prompts WHERE hash = ?)",
        (key.model, key.sampling, key.prompt),
    ).fetchone()
    found = tuple(number for number in ids if number is not None)
    if len(found) < len(ids):
        require_id(connection, "models", key.model, path)
        require_id(connection, "samplings", key.sampling, path)
        require_id(connection, "prompts", key.prompt, path)
    return found


def find_rows(
    connection: sqlite3.Connection, keys: list[TrialKey], columns: str, first: int, last: int
) -> Iterator[tuple[TrialKey, Any]]:
    """Find trials of many keys, a few statements for each pair of model and sampling.

    Yields
    ------
    tuple
        The key, and a row of the columns, the first of which is the prompt's id.
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
    """Keep Python's cycle collector from walking through records while they are piling up."""
    collecting = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if collecting:
            gc.enable()
