"""Between the records of a store and the rows of its tables."""

from __future__ import annotations

import functools
import json
import math
import sqlite3
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from lm_eval_bayes._util.hashing import agrees, canonical_json, hash_bytes, text_bytes
from lm_eval_bayes.errors import InvalidInputError
from lm_eval_bayes.stats.validation import as_real, check_integer
from lm_eval_bayes.store.trial import StoredTrial, TrialKey

#: The columns behind the four ids, in the order of every statement here.
VALUES = (
    "seed, prompt_tokens, completion_tokens, finish_reason, stop_reason, queued_s, generated_s, "
    "concurrency, created, signals, hash, text"
)
#: What is read of a trial, after the prompt's id; its hash is for :mod:`verify` and `merge`.
READ = "trial, versions, " + VALUES.replace(" hash,", "")
COLUMNS = f"model, sampling, prompt, trial, versions, {VALUES}"
INSERT = (
    f"INSERT INTO trials ({COLUMNS}) VALUES (?{', ?' * 16}) "
    "ON CONFLICT (model, sampling, prompt, trial) DO NOTHING"
)
INSERT_PROMPT_SIGNALS = (
    "INSERT INTO prompt_signals (model, prompt, created, signals, hash) VALUES (?, ?, ?, ?, ?) "
    "ON CONFLICT (model, prompt) DO NOTHING"
)

#: The tables of what hashes stand for, by what an error calls it.
TABLES = {"models": "model", "samplings": "sampling", "prompts": "prompt", "versions": "versions"}

_LARGEST = 2**63 - 1

#: Writes JSON without blanks, in ASCII.
compact = json.JSONEncoder(separators=(",", ":")).encode
_raw_decode = json.JSONDecoder().raw_decode


@dataclass(frozen=True)
class Encoded:
    """A checked trial: its key, its versions as JSON, and the values of its row."""

    key: TrialKey
    trial: int
    versions: str
    values: tuple[Any, ...]

    @property
    def sampled(self) -> tuple[int | None, bytes]:
        """Seed and text, in which a trial and its double must agree."""
        return self.values[0], self.values[-1]


def encode(trial: StoredTrial) -> Encoded:
    """Check a trial and turn it into what is written.

    Raises
    ------
    InvalidInputError
        If one of its fields breaks its rule.
    """
    if not isinstance(trial, StoredTrial):
        raise InvalidInputError.of("trials", "hold StoredTrial records", trial)
    if not isinstance(trial.key, TrialKey):
        raise InvalidInputError.of("key", "be a TrialKey", trial.key)
    if not isinstance(trial.text, str):
        raise InvalidInputError.of("text", "be a string", trial.text)
    number = check_int64("trial", trial.trial, 0)
    versions = canonical_json(_mapping("versions", trial.versions), "versions")
    text = text_bytes(trial.text)
    values = (
        None if trial.seed is None else check_int64("seed", trial.seed, -_LARGEST - 1),
        _count("prompt_tokens", trial.prompt_tokens),
        _count("completion_tokens", trial.completion_tokens),
        check_word("finish_reason", trial.finish_reason),
        _stop_reason(trial.stop_reason),
        _seconds("queued_s", trial.queued_s),
        _seconds("generated_s", trial.generated_s),
        _count("concurrency", trial.concurrency),
        _finite("created", trial.created),
        None if trial.signals is None else signals_json(trial.signals),
    )
    hashed = hash_bytes(_hashed(trial.key, number, versions, values, text))
    return Encoded(trial.key, number, versions, (*values, hashed, text))


def _hashed(
    key: TrialKey, trial: int, versions: str, values: tuple[Any, ...], text: bytes
) -> bytes:
    """Return the bytes that a trial's hash is taken of: all of it, whatever ids its file uses."""
    head = [key.model, key.prompt, key.sampling, trial, versions, *values]
    return compact(head).encode("ascii") + b"\0" + text


def is_intact(key: TrialKey, trial: int, versions: str, values: tuple[Any, ...]) -> bool:
    """Whether a row, as :data:`VALUES` orders it, is what it was when it was written."""
    *values_before, recorded, text = values
    try:
        return agrees(recorded, _hashed(key, trial, versions, tuple(values_before), text))
    except (TypeError, ValueError):
        return False


def decode(key: TrialKey, versions: Mapping[int, Mapping[str, Any]], row: Any) -> StoredTrial:
    """Turn a row, as :data:`READ` orders it after the prompt's id, into a record.

    Raises
    ------
    TypeError, ValueError, LookupError
        If the row is damaged.
    """
    # A hundred thousand rows shall take less than a second, so a record is filled at once rather
    # than field by field, as the constructor of a frozen one has to.
    signals, stop = row[12], row[7]
    trial: StoredTrial = object.__new__(StoredTrial)
    trial.__dict__.update(
        key=key,
        trial=row[1],
        text=str(row[13], "utf-8", "surrogatepass"),
        seed=row[3],
        signals=None if signals is None else _parsed(signals),
        prompt_tokens=row[4],
        completion_tokens=row[5],
        finish_reason=row[6],
        stop_reason=None if stop is None else _stop(stop),
        queued_s=row[8],
        generated_s=row[9],
        concurrency=row[10],
        versions=versions[row[2]],
        created=row[11],
    )
    return trial


def _parsed(text: str) -> Any:
    value, end = _raw_decode(text)
    if end != len(text):
        raise ValueError("more than one JSON value")
    return value


_stop = functools.lru_cache(maxsize=1024)(_parsed)


def signals_json(signals: Mapping[str, Any]) -> str:
    """Write signals as JSON, in Python's dialect that has NaN and infinities.

    Raises
    ------
    InvalidInputError
        If `signals` is no mapping or holds something that is not JSON.
    """
    _mapping("signals", signals)
    try:
        return compact(dict(signals))
    except (TypeError, ValueError, RecursionError) as error:
        raise InvalidInputError.of("signals", "hold JSON values", str(error)) from None


def prompt_signals_hashed(model: str, prompt: str, created: float, signals: str) -> bytes:
    """Return the bytes that the hash of a prompt's signals is taken of."""
    return compact([model, prompt, created, signals]).encode("ascii")


def prompt_signals_intact(digest: object, model: str, prompt: str, values: Sequence[Any]) -> bool:
    """Whether a prompt's signals, as (created, signals), are what was written."""
    try:
        return agrees(digest, prompt_signals_hashed(model, prompt, *values))
    except (TypeError, ValueError):
        return False


def description_intact(table: str, digest: object, description: object) -> bool:
    """Whether a hash still is that of what it stands for; prompts are bytes, the rest is text."""
    if table == "prompts":
        return isinstance(description, bytes) and agrees(digest, description)
    return isinstance(description, str) and agrees(digest, text_bytes(description))


def find_id(connection: sqlite3.Connection, table: str, digest: str) -> int | None:
    """Return the row that a hash stands for; `table` is one of :data:`TABLES`."""
    found = connection.execute(f"SELECT id FROM {table} WHERE hash = ?", (digest,)).fetchone()
    return None if found is None else int(found[0])


def put_description(
    connection: sqlite3.Connection, table: str, digest: str, description: str | bytes
) -> int:
    """Keep what a hash stands for, once, and return its row."""
    found = find_id(connection, table, digest)
    if found is not None:
        return found
    statement = f"INSERT INTO {table} (hash, description) VALUES (?, ?)"
    return int(connection.execute(statement, (digest, description)).lastrowid or 0)


def difference(first: tuple[int | None, bytes], second: tuple[int | None, bytes]) -> str | None:
    """Say in what two doubles of a trial differ, None where they are the same draw.

    Times, signals and versions are measurements of the draw and may differ.
    """
    seed, text = first[0] != second[0], first[1] != second[1]
    if seed and text:
        return "text and seed"
    return "text" if text else "seed" if seed else None


def _mapping(name: str, value: object) -> Mapping[str, Any]:
    if not isinstance(value, Mapping):
        raise InvalidInputError.of(name, "be a mapping", value)
    return value


def check_int64(name: str, value: object, minimum: int) -> int:
    """Return `value` as an int of at least `minimum` that SQLite can hold.

    Raises
    ------
    InvalidInputError
        If it is not.
    """
    number = check_integer(name, value, minimum)
    if number > _LARGEST:
        raise InvalidInputError.of(name, "be at most 2**63 - 1", value)
    return number


def _count(name: str, value: object) -> int | None:
    return None if value is None else check_int64(name, value, 0)


def _finite(name: str, value: object) -> float:
    number = as_real(value)
    if number is None or not math.isfinite(number):
        raise InvalidInputError.of(name, "be a finite number of seconds", value)
    # SQLite has no negative zero, so it would not come back as it was hashed.
    return number + 0.0


def _seconds(name: str, value: object) -> float | None:
    return None if value is None else _finite(name, value)


def check_word(name: str, value: object) -> str | None:
    """Return `value` if it is a text that SQLite can hold as one, or None.

    Raises
    ------
    InvalidInputError
        If it is something else, or holds a lone surrogate.
    """
    if value is None:
        return None
    rule = "be a string that UTF-8 can hold, or None"
    if not isinstance(value, str):
        raise InvalidInputError.of(name, rule, value)
    try:
        value.encode("utf-8")
    except UnicodeEncodeError:
        raise InvalidInputError.of(name, rule, value) from None
    return str(value)


def _stop_reason(value: object) -> str | None:
    if value is None:
        return None
    return compact(value if isinstance(value, str) else check_int64("stop_reason", value, 0))
