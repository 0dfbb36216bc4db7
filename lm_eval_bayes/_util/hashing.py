"""Hashes of texts and of JSON values.

A hash has the form ``algorithm:hexdigits``.
"""

from __future__ import annotations

import hashlib
import json
import math
import operator
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from lm_eval_bayes.errors import InvalidInputError

#: The algorithm of all hashes that are stored; ``b2sum --length 128`` gives the same digits.
ALGORITHM = "blake2b-128"

#: The algorithm that names files on the hub; ``sha256sum`` gives the same digits.
SHA256 = "sha256"

#: Made once: `json.dumps` makes an encoder on every call with these options.
_encode_json = json.JSONEncoder(sort_keys=True, separators=(",", ":"), allow_nan=False).encode


def text_bytes(text: str) -> bytes:
    """Return a text as UTF-8, with lone surrogates, which the JSON of an API may have, encoded too.

    Examples
    --------
    >>> text_bytes("a\\ud800\\x00").decode("utf-8", "surrogatepass") == "a\\ud800\\x00"
    True
    """
    return text.encode("utf-8", "surrogatepass")


def digest_of(data: bytes) -> bytes:
    """Return the 16 bytes of a hash, for what is compared in memory and not recorded."""
    return hashlib.blake2b(data, digest_size=16).digest()


def hash_bytes(data: bytes) -> str:
    """Hash bytes.

    Examples
    --------
    >>> hash_bytes(b"abc")
    'blake2b-128:cf4ab791c62b8d2b2109c90275287816'
    """
    return f"{ALGORITHM}:{digest_of(data).hex()}"


def hash_text(text: str, argument: str = "text") -> str:
    """Hash a text by its UTF-8; `argument` is its name in errors."""
    if not isinstance(text, str):
        raise InvalidInputError.of(argument, "type", "be a string", text)
    return hash_bytes(text_bytes(text))


def sha256_text(text: str) -> str:
    """Return the SHA-256 of a text, in hex digits, as the harness hashes prompts and documents."""
    return hashlib.sha256(text_bytes(text)).hexdigest()


def hash_json(value: object, argument: str = "value") -> str:
    """Hash a JSON value by its canonical form, so that equal values have equal hashes.

    Examples
    --------
    >>> hash_json({"top_p": 1, "n": [2]}) == hash_json({"n": (2.0,), "top_p": 1.0})
    True
    """
    return hash_bytes(canonical_json(value, argument).encode("ascii"))


def canonical_json(value: object, argument: str = "value") -> str:
    """Return the canonical JSON of a value, which is the same for all equal values.

    Keys are sorted, there are no spaces, only ASCII is used, and integral numbers have no decimal
    point: 1 and 1.0 are the same temperature. True and 1 are different.

    Parameters
    ----------
    value : mapping, sequence, str, number, bool or None
        Mappings with string keys, lists and tuples, arbitrarily nested.
    argument : str
        The name of the value in errors.

    Raises
    ------
    InvalidInputError
        If it contains anything that is not JSON, such as NaN and infinities.

    Examples
    --------
    >>> canonical_json({"b": 1.0, "a": [True, None, 0.5, -0.0]})
    '{"a":[true,null,0.5,0],"b":1}'
    >>> canonical_json({"until": {1, 2}}, "sampling")
    Traceback (most recent call last):
        ...
    lm_eval_bayes.errors.InvalidInputError: `sampling["until"]` must be a JSON value; got {1, 2}
    """
    try:
        plain = _canonical(value, argument)
        return _encode_json(plain)
    except RecursionError:
        rule = "not be nested too deeply"
        raise InvalidInputError.of(argument, "range", rule, type(value).__name__) from None


def _canonical(value: Any, path: str) -> Any:
    if value is None or isinstance(value, (bool, str)):
        return value
    if isinstance(value, float):
        if not math.isfinite(value):
            raise InvalidInputError.of(path, "range", "be a finite number", value)
        return int(value) if value.is_integer() else float(value)
    if isinstance(value, Mapping):
        wrong = [key for key in value if not isinstance(key, str)]
        if wrong:
            raise InvalidInputError.of(path, "type", "have strings as keys", wrong[0])
        return {key: _canonical(item, f"{path}[{json.dumps(key)}]") for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_canonical(item, f"{path}[{i}]") for i, item in enumerate(value)]
    try:
        return operator.index(value)
    except TypeError:
        raise InvalidInputError.of(path, "type", "be a JSON value", value) from None


def model_hash(fingerprint: Mapping[str, object]) -> str:
    """Hash a model's fingerprint: everything that its distribution depends on."""
    return hash_json(fingerprint, "fingerprint")


def sampling_hash(kwargs: Mapping[str, object]) -> str:
    """Hash generation settings without a seed, which belongs to the trial.

    Raises
    ------
    InvalidInputError
        If they contain a seed, or something that is not JSON.

    Examples
    --------
    >>> sampling_hash({"temperature": 1}) == sampling_hash({"temperature": 1.0})
    True
    >>> sampling_hash({"temperature": 1, "seed": 7})
    Traceback (most recent call last):
        ...
    lm_eval_bayes.errors.InvalidInputError: `sampling` must leave out the seed of each trial; got 7
    """
    for key, value in kwargs.items():
        if str(key).lower() == "seed":
            rule = "leave out the seed of each trial"
            raise InvalidInputError.of("sampling", "unknown-key", rule, value)
    return hash_json(kwargs, "sampling")


def weight_hash_folder() -> Path:
    """Return the folder of the hashes of weights, in ``$XDG_CACHE_HOME`` or ``~/.cache``."""
    home = os.environ.get("XDG_CACHE_HOME")
    return (Path(home) if home else Path.home() / ".cache") / "lm-eval-bayes" / "weights"


def distinct_ids(hashes: Sequence[str]) -> tuple[str, ...]:
    """Return an identifier per question; a document that occurs again gets a number.

    Examples
    --------
    >>> distinct_ids(["a", "b", "a"])
    ('a', 'b', 'a#2')
    """
    times: dict[str, int] = {}
    ids = []
    for digest in hashes:
        times[digest] = times.get(digest, 0) + 1
        ids.append(digest if times[digest] == 1 else f"{digest}#{times[digest]}")
    return tuple(ids)
