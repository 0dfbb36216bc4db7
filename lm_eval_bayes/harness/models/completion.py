"""A response that carries what was measured when it was made."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from types import MappingProxyType
from typing import Any, SupportsIndex

NOTHING: Mapping[str, Any] = MappingProxyType({})


class Completion(str):
    """A string with `signals`, which its parts keep.

    The harness cuts responses at stop strings, strips them, and hands them through filters
    and from rank to rank. Every method below returns a Completion (or several) with the same
    signals; copies and pickles keep them too. Whatever makes a new string in another way
    (an f-string, `join`, a regular expression) gives a plain one.

    Parameters
    ----------
    text : str
        The response.
    signals : mapping
        What was measured, by name.

    Examples
    --------
    >>> whole = Completion(" so it is 42.\\n\\nQ:", {"seed": 7})
    >>> part = whole.split("\\n\\n")[0].strip()
    >>> part, part.signals["seed"]
    ('so it is 42.', 7)
    """

    signals: Mapping[str, Any]

    def __new__(cls, text: str, signals: Mapping[str, Any] = NOTHING) -> Completion:
        """Make one from a text and its signals."""
        made = super().__new__(cls, text)
        made.signals = signals
        return made

    def __reduce_ex__(self, protocol: SupportsIndex) -> tuple[Any, ...]:
        return Completion, (str(self), dict(self.signals))

    def __getitem__(self, key: Any) -> Completion:
        return Completion(super().__getitem__(key), self.signals)


def _keeping(name: str) -> Callable[..., Any]:
    plain = getattr(str, name)

    def method(self: Completion, *args: Any, **kwargs: Any) -> Any:
        result = plain(self, *args, **kwargs)
        if isinstance(result, str):
            return Completion(result, self.signals)
        return type(result)(_with_signals(result, self.signals))

    method.__name__, method.__doc__ = name, plain.__doc__
    return method


def _with_signals(parts: Iterable[str], signals: Mapping[str, Any]) -> list[Completion]:
    return [Completion(part, signals) for part in parts]


for _name in (
    *("strip", "lstrip", "rstrip", "removeprefix", "removesuffix", "replace", "expandtabs"),
    *("lower", "upper", "casefold", "capitalize", "title", "swapcase"),
    *("split", "rsplit", "splitlines", "partition", "rpartition", "__add__"),
):
    setattr(Completion, _name, _keeping(_name))


def signals_of(response: object) -> Mapping[str, Any]:
    """Return what was measured of a response; nothing, for a plain string."""
    return response.signals if isinstance(response, Completion) else NOTHING


def signal_columns(responses: Sequence[object]) -> dict[str, dict[str, list[Any]]]:
    """Return the signals of a question's trials as columns, for the samples log.

    Returns
    -------
    dict
        ``{"signals": {name: [one value a trial]}}``, None where a trial lacks it; empty where
        no response has signals.

    Examples
    --------
    >>> signal_columns([Completion("a", {"seed": 1}), Completion("b", {"seed": 2}), "c"])
    {'signals': {'seed': [1, 2, None]}}
    >>> signal_columns(["c"])
    {}
    """
    measured = [signals_of(response) for response in responses]
    names = dict.fromkeys(name for signals in measured for name in signals)
    columns = {name: [signals.get(name) for signals in measured] for name in names}
    return {"signals": columns} if columns else {}
