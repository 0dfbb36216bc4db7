"""The records of a store: what names a trial, and what is kept of it."""

from __future__ import annotations

import math
import time
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any


@dataclass(frozen=True)
class TrialKey:
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

    def to_dict(self) -> dict[str, Any]:
        """Return plain JSON types."""
        return asdict(self)


@dataclass(frozen=True)
class StoredTrial:
    """One trial as the model gave it, before anything is cut off, and what was measured.

    Attributes
    ----------
    key : TrialKey
        Model, prompt and sampling.
    trial : int
        The trial's number among those of its key, from 0.
    text : str
        The raw text. NUL characters and lone surrogates are kept.
    seed : int or None
        The seed it was drawn with, a signed 64-bit number; None where there was none.
    signals : mapping or None
        Whatever JSON can hold, by name. NaN and infinities are kept here, though a strict
        JSON file has no such numbers.
    prompt_tokens, completion_tokens : int or None
        Token counts, the completion's with its end-of-sequence token.
    finish_reason : str or None
        Why generation ended, in the backend's words.
    stop_reason : str, int or None
        The stop string or the token that ended it.
    queued_s, generated_s : float or None
        Seconds from submission to start, and from start to end.
    concurrency : int or None
        Requests under way at the time.
    versions : mapping
        Versions of the software that made it, by name. Treat it as read-only: trials that
        were read together share it.
    created : float
        When, in seconds since 1970 UTC.

    Examples
    --------
    >>> key = TrialKey(model="blake2b-128:0a", prompt="blake2b-128:0b", sampling="blake2b-128:0c")
    >>> StoredTrial(key, 0, "42", seed=7).to_dict()["text"]
    '42'
    """

    key: TrialKey
    trial: int
    text: str
    seed: int | None = None
    signals: Mapping[str, Any] | None = None
    prompt_tokens: int | None = None
    completion_tokens: int | None = None
    finish_reason: str | None = None
    stop_reason: str | int | None = None
    queued_s: float | None = None
    generated_s: float | None = None
    concurrency: int | None = None
    versions: Mapping[str, Any] = field(default_factory=dict)
    created: float = field(default_factory=time.time)

    def to_dict(self) -> dict[str, Any]:
        """Return plain JSON types; a number that JSON does not know becomes None."""
        fields = {name: getattr(self, name) for name in self.__dataclass_fields__ if name != "key"}
        fields["signals"] = None if self.signals is None else strict_json(self.signals)
        fields["versions"] = strict_json(self.versions)
        return {**self.key.to_dict(), **fields}


@dataclass(frozen=True)
class Conflict:
    """A trial that two sides hold, with another text or another seed.

    Attributes
    ----------
    key : TrialKey
        Model, prompt and sampling.
    trial : int
        The trial's number.
    what : str
        "text", "seed" or "text and seed".
    first, second : str
        Which side had it first, and which came with another one.
    """

    key: TrialKey
    trial: int
    what: str
    first: str
    second: str

    def __str__(self) -> str:
        return (
            f"trial {self.trial} of {self.key} has one {self.what} in {self.first} "
            f"and another in {self.second}"
        )

    def to_dict(self) -> dict[str, Any]:
        """Return plain JSON types."""
        return asdict(self)


def name_conflicts(conflicts: list[Conflict], shown: int = 3) -> str:
    """Name the first conflicts and count the others."""
    named = "; ".join(str(conflict) for conflict in conflicts[:shown])
    more = len(conflicts) - shown
    return f"{named}; and {more:,} more" if more > 0 else named


def strict_json(value: Any) -> Any:
    """Return a copy in which NaN and infinities are None, as strict JSON wants it.

    Examples
    --------
    >>> strict_json({"bits": [1.5, float("nan")]})
    {'bits': [1.5, None]}
    """
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, Mapping):
        return {key: strict_json(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [strict_json(item) for item in value]
    return value
