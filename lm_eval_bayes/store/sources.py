"""Where models came from, and their further names: recorded, and no part of a trial's key."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

from lm_eval_bayes._util.hashing import canonical_json, hash_bytes
from lm_eval_bayes.store.tables import find_id
from lm_eval_bayes.store.trial import has_hash, json_bytes


class SourceRow(NamedTuple):
    """A place that a model was read from: a path or a name, a commit, a host."""

    model: str
    description: str
    created: float
    digest: object

    def __str__(self) -> str:
        return f"a source of the model {self.model}"

    def is_intact(self) -> bool:
        """Whether it matches its hash."""
        return has_hash(self.digest, json_bytes, *self[:-1])


class AliasRow(NamedTuple):
    """A further name of a model, or the hash of another one whose trials are the same."""

    name: str
    model: str
    digest: object

    def __str__(self) -> str:
        return f"the alias {self.name} of the model {self.model}"

    def is_intact(self) -> bool:
        """Whether it matches its hash."""
        return has_hash(self.digest, json_bytes, *self[:-1])


def source_row(model: str, source: Mapping[str, object], now: float) -> SourceRow:
    """Return the row of a source; `now` is in seconds since 1970 UTC."""
    values = (model, canonical_json(source, "source"), now)
    return SourceRow(*values, hash_bytes(json_bytes(*values)))


def alias_row(name: str, model: str) -> AliasRow:
    """Return the row of an alias."""
    return AliasRow(name, model, hash_bytes(json_bytes(name, model)))


def source_rows(connection: sqlite3.Connection) -> Iterator[SourceRow]:
    """Read the sources of all models, the first of each model first."""
    rows = connection.execute(
        "SELECT m.hash, s.description, s.created, s.hash FROM sources AS s "
        "JOIN models AS m ON m.id = s.model ORDER BY m.id, s.created, s.description"
    )
    yield from map(SourceRow._make, rows)


def alias_rows(connection: sqlite3.Connection) -> Iterator[AliasRow]:
    """Read all aliases by name."""
    rows = connection.execute(
        "SELECT a.name, m.hash, a.hash FROM aliases AS a "
        "JOIN models AS m ON m.id = a.model ORDER BY a.name"
    )
    yield from map(AliasRow._make, rows)


def first_sources(connection: sqlite3.Connection) -> dict[str, dict[str, Any]]:
    """Return the first source of each model that has one, by the model's hash.

    A damaged one is left out.
    """
    first: dict[str, dict[str, Any]] = {}
    for row in source_rows(connection):
        if row.is_intact():
            first.setdefault(row.model, dict(json.loads(row.description)))
    return first


def put_source(connection: sqlite3.Connection, row: SourceRow) -> None:
    """Store a source of a model that is stored, unless it is known."""
    model = find_id(connection, "models", row.model)
    connection.execute(
        "INSERT INTO sources (model, description, created, hash) VALUES (?, ?, ?, ?) "
        "ON CONFLICT DO NOTHING",
        (model, *row[1:]),
    )


def put_alias(connection: sqlite3.Connection, row: AliasRow, *, replace: bool) -> None:
    """Store an alias of a model that is stored."""
    model = find_id(connection, "models", row.model)
    what = "REPLACE" if replace else "IGNORE"
    connection.execute(
        f"INSERT OR {what} INTO aliases (name, model, hash) VALUES (?, ?, ?)",
        (row.name, model, row.digest),
    )
