"""A response that carries what was measured when it was made."""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, NamedTuple, SupportsIndex

if TYPE_CHECKING:
    from lm_eval_bayes.harness.models.trial_sink import StoreKeeper
    from lm_eval_bayes.store.trial import TrialKey

NOTHING: Mapping[str, Any] = MappingProxyType({})


class Origin(NamedTuple):
    """The stored trial that a response is the text of, so that its grade finds its way there.

    Attributes
    ----------
    keeper : StoreKeeper
        Who keeps it.
    key : TrialKey
        Its model, prompt and sampling.
    trial : int
        Its number among those of its key.
    """

    keeper: StoreKeeper
    key: TrialKey
    trial: int


class Completion(str):
    """A string with `signals`, which its parts keep.

    The harness cuts responses at stop strings, strips them, and hands them through filters
    and from rank to rank. Every method below returns a Completion (or several) with the same
    signals; copies and pickles keep them too. Whatever makes a new string in another way
    (an f-string, `join`, a regular expression) gives a plain one. The origin goes the same
    ways, but never into a pickle: another process has another connection to the store.

    Parameters
    ----------
    text : str
        The response.
    signals : mapping
        What was measured, by name.
    origin : Origin, optional
        The stored trial.

    Examples
    --------
    >>> whole = Completion(" so it is 42.\\n\\nQ:", {"seed": 7})
    >>> part = whole.split("\\n\\n")[0].strip()
    >>> part, part.signals["seed"]
    ('so it is 42.', 7)
    """

    signals: Mapping[str, Any]
    _origin: Origin | None

    def __new__(
        cls, text: str, signals: Mapping[str, Any] = NOTHING, origin: Origin | None = None
    ) -> Completion:
        """Make one from a text, its signals and its origin."""
        made = super().__new__(cls, text)
        made.signals, made._origin = signals, origin
        return made

    def with_text(self, text: str) -> Completion:
        """Return another text of the same trial."""
        return Completion(text, self.signals, self._origin)

    def __reduce_ex__(self, protocol: SupportsIndex) -> tuple[Any, ...]:
        return Completion, (str(self), dict(self.signals))

    def __copy__(self) -> Completion:
        return self.with_text(str(self))

    def __deepcopy__(self, memo: dict[int, Any]) -> Completion:
        return Completion(str(self), copy.deepcopy(dict(self.signals), memo), self._origin)

    def __getitem__(self, key: Any) -> Completion:
        return self.with_text(super().__getitem__(key))


def _keeping(name: str) -> Callable[..., Any]:
    plain = getattr(str, name)

    def method(self: Completion, *args: Any, **kwargs: Any) -> Any:
        result = plain(self, *args, **kwargs)
        if isinstance(result, str):
            return self.with_text(result)
        return type(result)([self.with_text(part) for part in result])

    method.__name__, method.__doc__ = name, plain.__doc__
    return method


for _name in (
    *("strip", "lstrip", "rstrip", "removeprefix", "removesuffix", "replace", "expandtabs"),
    *("lower", "upper", "casefold", "capitalize", "title", "swapcase"),
    *("split", "rsplit", "splitlines", "partition", "rpartition", "__add__"),
):
    setattr(Completion, _name, _keeping(_name))


def signals_of(response: object) -> Mapping[str, Any]:
    """Return what was measured of a response; nothing, for a plain string."""
    return response.signals if isinstance(response, Completion) else NOTHING


def origin_of(response: object) -> Origin | None:
    """Return the stored trial that a response is the text of, if there is one in this process."""
    return response._origin if isinstance(response, Completion) else None


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
