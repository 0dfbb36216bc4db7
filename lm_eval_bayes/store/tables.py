"""The tables of descriptions, trials and signals of prompts: insert, find and check rows."""

from __future__ import annotations

import gc
import sqlite3
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from os import PathLike
from pathlib import Path
from typing import Any, NamedTuple

from lm_eval_bayes._util.hashing import canonical_json, hash_bytes, text_bytes
from lm_eval_bayes.errors import InvalidInputError
from lm_eval_bayes.store.errors import OtherWeightsError
from lm_eval_bayes.store.file import chunks, marks
from lm_eval_bayes.store.texts import TextCodec
from lm_eval_bayes.store.trial import (
    CHECKED,
    ID,
    INSERT,
    REPLACE,
    Trial,
    TrialKey,
    TrialRow,
    decode,
    has_hash,
    json_bytes,
    signals_json,
)

#: The tables of descriptions, and the word for one row in messages.
TABLES = {"models": "model", "samplings": "sampling", "prompts": "prompt", "versions": "versions"}

#: The entries of a fingerprint that together name the source of the weights.
SOURCE_OF_WEIGHTS = ("pretrained", "revision", "subfolder", "gguf_file", "peft", "delta")

#: The entry that identifies the weights: a hash of the files or a commit of the hub.
WEIGHTS = "weights"


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
        raise InvalidInputError.of(name, "choice", rule, digest)
    return row_id


class DescriptionRow(NamedTuple):
    """A row of one of :data:`TABLES`; prompts are bytes, the rest text."""

    table: str
    id: int
    digest: Any
    description: Any

    def __str__(self) -> str:
        return f"the {TABLES[self.table]} {self.digest}"

    def is_intact(self) -> bool:
        """Whether it matches its hash."""
        data = self.description
        if self.table != "prompts":
            data = text_bytes(data) if isinstance(data, str) else None
        return isinstance(data, bytes) and self.digest == hash_bytes(data)


def description_rows(
    connection: sqlite3.Connection, table: str, order: str = "id"
) -> Iterator[DescriptionRow]:
    """Read the descriptions of a table, ordered by one of its columns."""
    rows = connection.execute(f"SELECT id, hash, description FROM {table} ORDER BY {order}")
    return (DescriptionRow(table, *row) for row in rows)


def broken_references(connection: sqlite3.Connection) -> Iterator[str]:
    """Yield a sentence about each row that refers to a missing one."""
    for table, row, parent, _ in connection.execute("PRAGMA foreign_key_check"):
        yield f"row {row} of {table} refers to nothing in {parent}"


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
        # Identities of two kinds, such as a commit and a hash, cannot be compared.
        kinds = {str(identity).partition(":")[0] for identity in (weights, stored_weights)}
        if _source(model) == source and stored_weights != weights and len(kinds) == 1:
            raise OtherWeightsError(
                f"{path} has trials of other weights under the name "
                f"{fingerprint['pretrained']}: {stored_weights} is stored, {weights} given; use "
                "another store, or give the model another name"
            )


def _source(fingerprint: Mapping[str, object]) -> str | None:
    if fingerprint.get("pretrained") is None:
        return None
    return canonical_json({key: fingerprint.get(key) for key in SOURCE_OF_WEIGHTS}, "fingerprint")


class KeyIds(dict[TrialKey, tuple[int, int, int]]):
    """The ids of the model, sampling and prompt of keys, each looked up once.

    Parameters
    ----------
    connection : sqlite3.Connection
        In a transaction.
    path : Path
        The store, for messages.

    Raises
    ------
    InvalidInputError
        On a look-up, if one of the hashes has no description in the store.
    """

    def __init__(self, connection: sqlite3.Connection, path: Path) -> None:
        super().__init__()
        self._connection, self._path = connection, path

    def __missing__(self, key: TrialKey) -> tuple[int, int, int]:
        model = require_id(self._connection, "models", key.model, self._path)
        sampling = require_id(self._connection, "samplings", key.sampling, self._path)
        prompt = require_id(self._connection, "prompts", key.prompt, self._path)
        self[key] = (model, sampling, prompt)
        return self[key]


def insert_trials(
    connection: sqlite3.Connection, rows: Iterable[TrialRow], path: Path, texts: TextCodec
) -> Iterator[tuple[TrialRow, str | None]]:
    """Insert trials that are not stored yet, or that are stored and damaged.

    Yields
    ------
    TrialRow, str or None
        Every row, and None if it was inserted, or took the place of a damaged one, else how the
        stored trial differs from it: "text", "seed", "text and seed" or "".

    Raises
    ------
    InvalidInputError
        If a hash of a key has no description in the store.
    """
    ids = KeyIds(connection, path)
    versions: dict[str, int] = {}
    texts.begin()
    for row in rows:
        if row.versions not in versions:
            digest = hash_bytes(row.versions.encode("ascii"))
            versions[row.versions] = put_description(connection, "versions", digest, row.versions)
        row_id = (*ids[row.key], row.trial)
        *measured, text = row.values
        values = (versions[row.versions], *measured, texts.pack(text))
        inserted = connection.execute(INSERT, (*row_id, *values))
        if inserted.rowcount == 1:
            yield row, None
            continue
        stored = trial_row(row.key, connection.execute(_FIND, row_id).fetchone(), texts)
        if stored.is_intact():
            yield row, row.difference(stored)
        else:
            connection.execute(REPLACE, (*values, *row_id))
            yield row, None


_FIND = f"SELECT {CHECKED} FROM trials WHERE ({ID}) = (?, ?, ?, ?)"


def trial_row(key: TrialKey, row: Sequence[Any], texts: TextCodec) -> TrialRow:
    """Return the :data:`CHECKED` columns of a trial as a record."""
    return TrialRow(key, row[0], row[1], (*row[2:-1], texts.unpack(row[-1])))


def trial_rows(connection: sqlite3.Connection, texts: TextCodec) -> Iterator[TrialRow]:
    """Read all trials by key and number; a description that is missing is "?"."""
    hashes = [
        dict(connection.execute(f"SELECT id, hash FROM {table}").fetchall())
        for table in ("models", "samplings", "prompts")
    ]
    latest, key = None, TrialKey("?", "?", "?")
    statement = f"SELECT model, sampling, prompt, {CHECKED} FROM trials ORDER BY {ID}"
    for row in connection.execute(statement):
        if row[:3] != latest:
            latest = row[:3]
            model, sampling, prompt = (
                by_id.get(row_id, "?") for by_id, row_id in zip(hashes, latest, strict=True)
            )
            key = TrialKey(model=model, prompt=prompt, sampling=sampling)
        yield trial_row(key, row[3:], texts)


def find_rows(
    connection: sqlite3.Connection,
    keys: list[TrialKey],
    columns: str,
    first: int = 0,
    end: int | None = None,
) -> Iterator[tuple[TrialKey, Any]]:
    """Find trials of many keys, with few statements for each pair of model and sampling.

    Parameters
    ----------
    connection : sqlite3.Connection
        In a transaction that reads.
    keys : list of TrialKey
        The keys.
    columns : str
        The columns to read.
    first : int
        The smallest trial number.
    end : int, optional
        One more than the largest trial number.

    Yields
    ------
    tuple
        The key, and a row of the columns.
    """
    groups: dict[tuple[str, str], list[TrialKey]] = {}
    for key in keys:
        groups.setdefault((key.model, key.sampling), []).append(key)
    prompts = find_ids(connection, "prompts", {key.prompt for key in keys})
    last = 2**63 - 1 if end is None else end - 1
    for (model, sampling), group in groups.items():
        pair = (find_id(connection, "models", model), find_id(connection, "samplings", sampling))
        by_id = {prompts[key.prompt]: key for key in group if key.prompt in prompts}
        for chunk in chunks(sorted(by_id)):
            statement = (
                f"SELECT prompt, {columns} FROM trials WHERE model = ? AND sampling = ? "
                f"AND prompt IN ({marks(chunk)}) AND trial >= ? AND trial <= ? "
                "ORDER BY model, sampling, prompt, trial"
            )
            for row in connection.execute(statement, (*pair, *chunk, first, last)):
                yield by_id[row[0]], row[1:]


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


def key_trials(
    connection: sqlite3.Connection, texts: TextCodec, key: TrialKey, ids: Sequence[int]
) -> Iterator[tuple[Trial, bool]]:
    """Read the trials of one key by number.

    Parameters
    ----------
    connection : sqlite3.Connection
        In a transaction that reads.
    texts : TextCodec
        How its texts are compressed.
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
    condition = "(model, sampling, prompt) = (?, ?, ?) ORDER BY trial"
    for columns in connection.execute(f"SELECT {CHECKED} FROM trials WHERE {condition}", ids):
        row = trial_row(key, columns, texts)
        yield decode(row), row.is_intact()


class PromptSignalsRow(NamedTuple):
    """What a model's forward pass over a prompt measured, as it is stored."""

    model: str
    prompt: str
    created: float
    signals: str
    digest: str

    def __str__(self) -> str:
        return f"the row of signals of prompt {self.prompt}"

    def is_intact(self) -> bool:
        """Whether it matches its hash."""
        return has_hash(self.digest, json_bytes, *self[:4])


def prompt_signals_row(
    model: str, prompt: str, signals: Mapping[str, Any], now: float
) -> PromptSignalsRow:
    """Return the row of a measurement; `now` is in seconds since 1970 UTC."""
    values = (model, prompt, now, signals_json("signals", signals))
    return PromptSignalsRow(*values, hash_bytes(json_bytes(*values)))


def insert_prompt_signals(
    connection: sqlite3.Connection, row: PromptSignalsRow, path: Path
) -> bool:
    """Insert signals of a prompt unless it has some; return whether they were inserted."""
    model = require_id(connection, "models", row.model, path)
    prompt = require_id(connection, "prompts", row.prompt, path)
    statement = (
        "INSERT INTO prompt_signals (model, prompt, created, signals, hash) "
        "VALUES (?, ?, ?, ?, ?) ON CONFLICT (model, prompt) DO NOTHING"
    )
    return connection.execute(statement, (model, prompt, *row[2:])).rowcount == 1


def prompt_signals_rows(
    connection: sqlite3.Connection, where: str = "", values: Sequence[object] = ()
) -> Iterator[PromptSignalsRow]:
    """Read signals of prompts; `where` may use m (models), p (prompts) and g (signals)."""
    rows = connection.execute(
        "SELECT m.hash, p.hash, g.created, g.signals, g.hash FROM prompt_signals AS g "
        f"JOIN models AS m ON m.id = g.model JOIN prompts AS p ON p.id = g.prompt {where} "
        "ORDER BY 1, 2",
        values,
    )
    yield from map(PromptSignalsRow._make, rows)
