"""The tables of descriptions, trials and signals of prompts: insert, find and check rows."""

from __future__ import annotations

import gc
import json
import sqlite3
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from os import PathLike
from pathlib import Path
from typing import Any

from lm_eval_bayes._util.hashing import agrees, canonical_json, hash_bytes, text_bytes
from lm_eval_bayes.errors import InvalidInputError
from lm_eval_bayes.store.errors import OtherWeightsError, readable
from lm_eval_bayes.store.file import StoreFile, chunks, marks
from lm_eval_bayes.store.migrations import PROMPT_SIGNALS_SCHEMA
from lm_eval_bayes.store.trial import (
    INSERT,
    READ,
    Conflict,
    EncodedTrial,
    Trial,
    TrialKey,
    compact_json,
    decode,
    difference,
    is_intact,
    signals_json,
)

#: The tables of descriptions, and the word for one row in messages.
TABLES = {"models": "model", "samplings": "sampling", "prompts": "prompt", "versions": "versions"}

#: The entries of a fingerprint that together name the source of the weights.
SOURCE_OF_WEIGHTS = ("pretrained", "revision", "subfolder", "gguf_file", "peft", "delta")

#: The entry that identifies the weights: a hash of the files or a commit of the hub.
WEIGHTS = "weights"

#: The row of a trial: the ids of its model, sampling and prompt, and its number.
RowId = tuple[int, int, int, int]

INSERT_PROMPT_SIGNALS = (
    "INSERT INTO prompt_signals (model, prompt, created, signals, hash) VALUES (?, ?, ?, ?, ?) "
    "ON CONFLICT (model, prompt) DO NOTHING"
)


def put_description(
    connection: sqlite3.Connection, table: str, digest: str, description: str | bytes
) -> int:
    """Insert a description unless it is stored, and return its id."""
    row_id = find_id(connection, table, digest)
    if row_id is not None:
        return row_id
    statement = f"INSERT INTO {table} (hash, description) VALUES (?, ?)"
    return int(connection.execute(statement, (digest, description)).lastrowid or 0)


def find_id(connection: sqlite3.Connection, table: str, digest: str) -> int | None:
    """Return the id of a hash, None if it is not stored; `table` is one of :data:`TABLES`."""
    row = connection.execute(f"SELECT id FROM {table} WHERE hash = ?", (digest,)).fetchone()
    return None if row is None else int(row[0])


def find_ids(connection: sqlite3.Connection, table: str, digests: Iterable[str]) -> dict[str, int]:
    """Return the ids of those hashes that are stored."""
    ids: dict[str, int] = {}
    for chunk in chunks(list(digests)):
        statement = f"SELECT hash, id FROM {table} WHERE hash IN ({marks(chunk)})"
        ids.update(connection.execute(statement, chunk).fetchall())
    return ids


def require_id(connection: sqlite3.Connection, table: str, digest: str, path: Path) -> int:
    """Return the id of a hash.

    Raises
    ------
    InvalidInputError
        If it is not stored.
    """
    row_id = find_id(connection, table, digest)
    if row_id is None:
        name = TABLES[table]
        rule = f"be a hash that describe_{name} gave for {path}"
        raise InvalidInputError.of(name, rule, digest)
    return row_id


def description_intact(table: str, digest: object, description: object) -> bool:
    """Whether a description has the hash it is stored under; prompts are bytes, the rest text."""
    if table == "prompts":
        return isinstance(description, bytes) and agrees(digest, description)
    return isinstance(description, str) and agrees(digest, text_bytes(description))


def check_weights(
    fingerprint: Mapping[str, object],
    stored: Iterable[Mapping[str, object]],
    path: str | PathLike[str],
) -> None:
    """Refuse a fingerprint if a stored one has other weights under the same name.

    Parameters
    ----------
    fingerprint : mapping
        The model to be used.
    stored : iterable of mapping
        The models of the store.
    path : path
        The store, for the message.

    Raises
    ------
    OtherWeightsError
        If a stored fingerprint has the same source of weights and other weights.

    Examples
    --------
    >>> stored = {"pretrained": "m", "weights": "sha256:aa"}
    >>> check_weights({"pretrained": "m", "weights": "sha256:aa"}, [stored], "a.sqlite")
    >>> try:
    ...     check_weights({"pretrained": "m", "weights": "sha256:bb"}, [stored], "a.sqlite")
    ... except OtherWeightsError as error:
    ...     print(str(error).partition(";")[0])
    a.sqlite has trials of other weights under the name m: sha256:aa is stored, sha256:bb given
    """
    source, weights = _source(fingerprint), fingerprint.get(WEIGHTS)
    if source is None or weights is None:
        return
    for model in stored:
        stored_weights = model.get(WEIGHTS)
        if _source(model) == source and stored_weights not in (None, weights):
            raise OtherWeightsError(
                f"{path} has trials of other weights under the name "
                f"{fingerprint['pretrained']}: {stored_weights} is stored, {weights} given; use "
                "another store, or give the model another name"
            )


def _source(fingerprint: Mapping[str, object]) -> str | None:
    if fingerprint.get("pretrained") is None:
        return None
    return canonical_json({key: fingerprint.get(key) for key in SOURCE_OF_WEIGHTS}, "fingerprint")


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


def put_prompt_signals(
    file: StoreFile, model: str, prompt: str, signals: Mapping[str, Any], now: float
) -> bool:
    """Store the signals of a prompt unless it has some; return whether they were stored."""
    text = signals_json("signals", signals)
    digest = hash_bytes(_hashed_bytes(model, prompt, now, text))
    with file.writing() as connection:
        ids = [
            require_id(connection, "models", model, file.path),
            require_id(connection, "prompts", prompt, file.path),
        ]
        return connection.execute(INSERT_PROMPT_SIGNALS, (*ids, now, text, digest)).rowcount == 1


def read_prompt_signals(
    file: StoreFile, model: str, prompts: Iterable[str]
) -> dict[str, dict[str, Any]]:
    """Return the signals of those prompts that have some, by the prompt's hash."""
    if file.schema < PROMPT_SIGNALS_SCHEMA:
        return {}
    signals: dict[str, dict[str, Any]] = {}
    with file.reading() as connection:
        model_id = find_id(connection, "models", model)
        ids = find_ids(connection, "prompts", prompts)
        hashes = {prompt_id: digest for digest, prompt_id in ids.items()}
        for chunk in chunks(list(hashes)):
            statement = (
                "SELECT prompt, signals FROM prompt_signals "
                f"WHERE model = ? AND prompt IN ({marks(chunk)})"
            )
            for prompt_id, text in connection.execute(statement, (model_id, *chunk)):
                with readable(file.path, f"the signals of prompt {hashes[prompt_id]}"):
                    signals[hashes[prompt_id]] = dict(json.loads(text))
    return signals


def prompt_signals_intact(digest: object, model: str, prompt: str, values: Sequence[Any]) -> bool:
    """Whether created and signals, the `values`, have the hash that they are stored with."""
    try:
        return agrees(digest, _hashed_bytes(model, prompt, *values))
    except (TypeError, ValueError):
        return False


def _hashed_bytes(model: str, prompt: str, created: float, signals: str) -> bytes:
    return compact_json([model, prompt, created, signals]).encode("ascii")
