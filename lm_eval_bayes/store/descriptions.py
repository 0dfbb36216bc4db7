"""What the hashes in a store stand for: models, samplings, prompts and versions."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable, Mapping
from os import PathLike
from pathlib import Path

from lm_eval_bayes._util.hashing import agrees, canonical_json, text_bytes
from lm_eval_bayes.errors import InvalidInputError
from lm_eval_bayes.store.errors import OtherWeightsError
from lm_eval_bayes.store.file import chunks, marks

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
