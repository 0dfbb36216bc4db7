"""The record of a trial, and how it is written to and read from its row.

The fields of :class:`Trial` are listed once, in the class. What is hashed and JSON follow them.

Texts are plain UTF-8, or compressed one by one. A compressed text starts with the byte 0xFF, which
UTF-8 never has, the number of a dictionary in two bytes, and a raw DEFLATE stream. The number is 0,
which is no dictionary. Earlier releases compressed with a dictionary of other trials' texts, which
is read and no longer written.
"""

from __future__ import annotations

import functools
import json
import math
import sqlite3
import time
import zlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import astuple, dataclass, field, fields
from typing import Any, NamedTuple

from lm_eval_bayes._util.hashing import canonical_json, hash_bytes, text_bytes
from lm_eval_bayes._util.plain import NOT_IN_JSON, Record
from lm_eval_bayes._util.validation import as_real, check_integer
from lm_eval_bayes.errors import InvalidInputError

_LARGEST = 2**63 - 1

#: Writes JSON without spaces, in ASCII.
compact_json = json.JSONEncoder(separators=(",", ":")).encode


@dataclass(frozen=True)
class TrialKey(Record):
    """What all trials of one question have in common, as three hashes.

    Attributes
    ----------
    model : str
        Hash of the model's fingerprint, see :func:`~lm_eval_bayes._util.hashing.model_hash`.
    prompt : str
        Hash of the prompt exactly as the model gets it.
    sampling : str
        Hash of the generation settings without the seed.
    """

    model: str
    prompt: str
    sampling: str

    def __str__(self) -> str:
        return f"prompt {self.prompt} (model {self.model}, sampling {self.sampling})"


def check_int64(name: str, value: object, minimum: int) -> int:
    """Return `value` as an int of at least `minimum` that SQLite can store.

    Raises
    ------
    InvalidInputError
        If it is not.
    """
    number = check_integer(name, value, minimum)
    if number > _LARGEST:
        raise InvalidInputError.of(name, "range", "be at most 2**63 - 1", value)
    return number


def check_text(name: str, value: object) -> str:
    """Return `value` if it is a string that UTF-8 can encode.

    Raises
    ------
    InvalidInputError
        If it is something else, or contains a lone surrogate.
    """
    if not isinstance(value, str) or value.encode("utf-8", "replace").decode("utf-8") != value:
        raise InvalidInputError.of(name, "format", "be a string that UTF-8 can hold", value)
    return str(value)


def signals_json(name: str, signals: Mapping[str, Any]) -> str:
    """Write signals as JSON, in Python's dialect that has NaN and infinities.

    Raises
    ------
    InvalidInputError
        If `signals` is not a mapping or contains a value that is not JSON.
    """
    try:
        return compact_json(dict(signals))
    except (TypeError, ValueError, RecursionError) as error:
        raise InvalidInputError.of(name, "format", "hold JSON values", str(error)) from None


def _check_time(name: str, value: object) -> float:
    number = as_real(value)
    if number is None or not math.isfinite(number):
        raise InvalidInputError.of(name, "range", "be a finite number of seconds", value)
    # SQLite has no negative zero, so it would not be read as it was hashed.
    return number + 0.0


def _stop_reason_json(name: str, value: object) -> str:
    return compact_json(value if isinstance(value, str) else check_int64(name, value, 0))


def _optional(
    encode: Callable[..., Any], *limits: int, decode: Callable[[Any], Any] | None = None
) -> Any:
    """Return a field that is a column and may be None."""

    def encode_value(name: str, value: Any) -> Any:
        return None if value is None else encode(name, value, *limits)

    return field(default=None, metadata={"encode": encode_value, "decode": decode})


@dataclass(frozen=True)
class Trial(Record):
    """One trial as the model generated it, before anything is cut off, and what was measured.

    Attributes
    ----------
    key : TrialKey
        Model, prompt and sampling.
    trial : int
        The trial's number among those of its key, from 0.
    text : str
        The raw text, with NUL characters and lone surrogates.
    seed : int or None
        Its seed, a signed 64-bit number; None if it had none.
    signals : mapping or None
        JSON values by name. They may be NaN or infinite; :meth:`to_dict` writes these as None.
    prompt_tokens, completion_tokens : int or None
        Token counts, the completion's with its end-of-sequence token.
    finish_reason : str or None
        Why generation ended, in the backend's words.
    stop_reason : str, int or None
        The stop string or the token that ended it.
    queued_s, generated_s : float or None
        Seconds from submission to start, and from start to end.
    concurrency : int or None
        Number of concurrent requests.
    versions : mapping
        Versions of the software that generated it, by name. Treat it as read-only: trials that
        were read share it.
    created : float
        When, in seconds since 1970 UTC.

    Examples
    --------
    >>> key = TrialKey(model="blake2b-128:0a", prompt="blake2b-128:0b", sampling="blake2b-128:0c")
    >>> Trial(key, 0, "42", seed=7).to_dict()["text"]
    '42'
    """

    # The hash of a stored trial depends on the order of these fields.
    key: TrialKey = field(metadata=NOT_IN_JSON)
    trial: int
    text: str
    seed: int | None = _optional(check_int64, -_LARGEST - 1)
    signals: Mapping[str, Any] | None = _optional(signals_json, decode=json.loads)
    prompt_tokens: int | None = _optional(check_int64, 0)
    completion_tokens: int | None = _optional(check_int64, 0)
    finish_reason: str | None = _optional(check_text)
    stop_reason: str | int | None = _optional(
        _stop_reason_json, decode=functools.lru_cache(maxsize=1024)(json.loads)
    )
    queued_s: float | None = _optional(_check_time)
    generated_s: float | None = _optional(_check_time)
    concurrency: int | None = _optional(check_int64, 0)
    versions: Mapping[str, Any] = field(default_factory=dict)
    created: float = field(default_factory=time.time, metadata={"encode": _check_time})

    def to_dict(self) -> dict[str, Any]:
        """Return plain JSON types, with the three hashes of the key; NaN becomes None."""
        return {**self.key.to_dict(), **super().to_dict()}


# Signals are the last of the measurements in a row, as they can be long.
_COLUMN_FIELDS = sorted(
    (column for column in fields(Trial) if "encode" in column.metadata),
    key=lambda column: column.name == "signals",
)
_ENCODERS = tuple((column.name, column.metadata["encode"]) for column in _COLUMN_FIELDS)
_DECODERS = tuple(
    (column.name, column.metadata["decode"])
    for column in _COLUMN_FIELDS
    if column.metadata.get("decode") is not None
)

#: The columns of measurements, in the order in which they are hashed.
MEASUREMENTS = tuple(column.name for column in _COLUMN_FIELDS)


class TrialId(NamedTuple):
    """Which trial it is: its key and its number."""

    key: TrialKey
    trial: int

    def __str__(self) -> str:
        return f"trial {self.trial} of {self.key}"


def encode(trial: Trial) -> tuple[tuple[Any, ...], bytes]:
    """Check a trial; return the values of its record, and its text.

    Raises
    ------
    InvalidInputError
        If one of its fields breaks its rule.
    """
    number = check_int64("trial", trial.trial, 0)
    versions = canonical_json(trial.versions, "versions")
    measurements = (check(name, getattr(trial, name)) for name, check in _ENCODERS)
    return (*astuple(trial.key), number, versions, *measurements), text_bytes(trial.text)


_parse_versions = functools.lru_cache(maxsize=1024)(json.loads)


def decode(key: TrialKey, values: Sequence[Any], text: bytes) -> Trial:
    """Return the trial of a record that is intact."""
    # 100,000 rows should take less than a second: the constructor of a frozen dataclass sets its
    # fields one by one, which is slower than this.
    trial: Trial = object.__new__(Trial)
    fields = trial.__dict__
    fields.update(zip(MEASUREMENTS, values[5:], strict=True))
    fields["key"], fields["trial"] = key, values[3]
    fields["text"] = str(text, "utf-8", "surrogatepass")
    fields["versions"] = _parse_versions(values[4])
    for name, read in _DECODERS:
        if fields[name] is not None:
            fields[name] = read(fields[name])
    return trial


def list_first(items: Sequence[object], shown: int = 3) -> str:
    """Return the first items as text, with the number of the others."""
    text = "; ".join(str(item) for item in items[:shown])
    more = len(items) - shown
    return f"{text}; and {more:,} more" if more > 0 else text


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
