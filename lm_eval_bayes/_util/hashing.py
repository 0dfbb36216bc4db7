"""Hashes that say how they were made, of texts and of whatever JSON can hold.

Every hash in a store reads ``algorithm:hexdigits``, so a later release may hash in another
way and still check what an earlier one wrote.
"""

from __future__ import annotations

import hashlib
import json
import math
import operator
from collections.abc import Callable, Mapping
from typing import Any

from lm_eval_bayes.errors import InvalidInputError

#: What new hashes are made with; ``b2sum --length 128`` gives the same digits.
ALGORITHM = "blake2b-128"

#: Every algorithm that a store may name, from bytes to hex digits.
ALGORITHMS: dict[str, Callable[[bytes], str]] = {
    "blake2b-128": lambda data: hashlib.blake2b(data, digest_size=16).hexdigest()
}


def text_bytes(text: str) -> bytes:
    """Return UTF-8, in which lone surrogates, as the JSON of an API may hold, survive.

    Examples
    --------
    >>> text_bytes("a\\ud800\\x00").decode("utf-8", "surrogatepass") == "a\\ud800\\x00"
    True
    """
    return text.encode("utf-8", "surrogatepass")


def hash_bytes(data: bytes) -> str:
    """Hash bytes.

    Examples
    --------
    >>> hash_bytes(b"abc")
    'blake2b-128:cf4ab791c62b8d2b2109c90275287816'
    """
    return f"{ALGORITHM}:{ALGORITHMS[ALGORITHM](data)}"


def hash_text(text: str) -> str:
    """Hash a text, such as a prompt, by its UTF-8."""
    if not isinstance(text, str):
        raise InvalidInputError.of("text", "be a string", text)
    return hash_bytes(text_bytes(text))


def sha256_text(text: str) -> str:
    """Return the SHA-256 of a text, in hex digits, as the harness hashes prompts and documents."""
    return hashlib.sha256(text_bytes(text)).hexdigest()


def hash_json(value: object, argument: str = "value") -> str:
    """Hash a JSON value by its canonical form, so that equal values hash equal.

    Examples
    --------
    >>> hash_json({"top_p": 1, "n": [2]}) == hash_json({"n": (2.0,), "top_p": 1.0})
    True
    """
    return hash_bytes(canonical_json(value, argument).encode("ascii"))


def agrees(recorded: object, data: bytes) -> bool:
    """Whether `recorded` is the hash of `data`, by the algorithm that it names.

    Examples
    --------
    >>> agrees(hash_bytes(b"abc"), b"abc"), agrees(hash_bytes(b"abc"), b"abd"), agrees("x", b"")
    (True, False, False)
    """
    if not isinstance(recorded, str):
        return False
    name, _, digits = recorded.partition(":")
    algorithm = ALGORITHMS.get(name)
    return algorithm is not None and algorithm(data) == digits


def canonical_json(value: object, argument: str = "value") -> str:
    """Write a JSON value in the one form that all equal values share.

    Keys are sorted, nothing is padded, everything outside ASCII is escaped, and a whole
    number is written without a point: 1 and 1.0 are the same temperature. True and 1 are not.

    Parameters
    ----------
    value : mapping, sequence, str, number, bool or None
        Mappings with string keys, lists and tuples, nested at will.
    argument : str
        What to call the value in an error.

    Raises
    ------
    InvalidInputError
        If there is anything in it that JSON cannot hold, NaN and infinities included.

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
        plain = _plain(value, argument)
        return json.dumps(plain, sort_keys=True, separators=(",", ":"), allow_nan=False)
    except RecursionError:
        rule = "not be nested without end"
        raise InvalidInputError.of(argument, rule, type(value).__name__) from None


def _plain(value: Any, where: str) -> Any:
    if value is None or isinstance(value, (bool, str)):
        return value
    if isinstance(value, float):
        if not math.isfinite(value):
            raise InvalidInputError.of(where, "be a finite number", value)
        return int(value) if value.is_integer() else float(value)
    if isinstance(value, Mapping):
        wrong = [key for key in value if not isinstance(key, str)]
        if wrong:
            raise InvalidInputError.of(where, "have strings as keys", wrong[0])
        return {key: _plain(item, f"{where}[{json.dumps(key)}]") for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_plain(item, f"{where}[{i}]") for i, item in enumerate(value)]
    try:
        return operator.index(value)
    except TypeError:
        raise InvalidInputError.of(where, "be a JSON value", value) from None


def model_hash(fingerprint: Mapping[str, object]) -> str:
    """Hash what a model's distribution depends on, without storing it."""
    return hash_json(_mapping("fingerprint", fingerprint), "fingerprint")


def sampling_hash(kwargs: Mapping[str, object]) -> str:
    """Hash generation settings; the seed belongs to the trial and is refused here.

    Raises
    ------
    InvalidInputError
        If there is a seed among them, or something that is no JSON.

    Examples
    --------
    >>> sampling_hash({"temperature": 1}) == sampling_hash({"temperature": 1.0})
    True
    >>> sampling_hash({"temperature": 1, "seed": 7})
    Traceback (most recent call last):
        ...
    lm_eval_bayes.errors.InvalidInputError: `sampling` must leave out the seed of each trial; got 7
    """
    settings = _mapping("sampling", kwargs)
    for key in settings:
        if str(key).lower() == "seed":
            rule = "leave out the seed of each trial"
            raise InvalidInputError.of("sampling", rule, settings[key])
    return hash_json(settings, "sampling")


def prompt_hash(prompt: str) -> str:
    """Hash the prompt exactly as the model gets it."""
    if not isinstance(prompt, str):
        raise InvalidInputError.of("prompt", "be a string", prompt)
    return hash_text(prompt)


def _mapping(name: str, value: object) -> Mapping[str, object]:
    if not isinstance(value, Mapping):
        raise InvalidInputError.of(name, "be a mapping", value)
    return value
