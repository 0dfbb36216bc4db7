"""Which signals the models of this process record, so that a task can ask before it samples."""

from __future__ import annotations

import weakref
from collections.abc import Iterable
from typing import Protocol

#: What a recording model logs, and the signal of a rubric that it makes.
_GIVES = {
    "completion_tokens": ("completion_tokens", "token_ratio"),
    "prompt_tokens": ("prompt_tokens",),
    "finish_reason": ("repeated_pattern",),
    "completion_bpt": ("completion_bpt",),
    "prompt_bpt": ("prompt_bpt",),
    "think_closed": ("think_closed",),
    "prompt_truncated": ("prompt_truncated",),
}


class Recorder(Protocol):
    """A model that says what it cannot record."""

    cannot_record: tuple[str, ...]


_alive: weakref.WeakSet[Recorder] = weakref.WeakSet()


def tell(model: Recorder) -> None:
    """Note that a model records; a model that is gone is forgotten."""
    _alive.add(model)


def recorded_signals() -> frozenset[str]:
    """Return the signals that some model of this process records."""
    return frozenset().union(
        *(signals_of_names(set(_GIVES) - set(model.cannot_record)) for model in _alive)
    )


def signals_of_names(names: Iterable[str]) -> frozenset[str]:
    """Return the signals of a rubric that recorded names give.

    Examples
    --------
    >>> sorted(signals_of_names(["completion_tokens", "seed"]))
    ['completion_tokens', 'token_ratio']
    """
    return frozenset(signal for name in names for signal in _GIVES.get(name, ()))
