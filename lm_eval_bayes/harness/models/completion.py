"""A response of a model with the trial that it is the text of."""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping, Sequence
from dataclasses import fields, replace
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, SupportsIndex

from lm_eval_bayes.store.trial import Trial

if TYPE_CHECKING:
    from lm_eval_bayes.harness.models.trial_sink import StoreSink

NO_SIGNALS: Mapping[str, Any] = MappingProxyType({})

#: Fields of a trial that the samples log does not hold as signals.
_NOT_LOGGED = frozenset({"key", "text", "signals", "versions", "created"})
_LOGGED = tuple(field.name for field in fields(Trial) if field.name not in _NOT_LOGGED)


class Completion(str):
    """A string with the trial that it comes from, which its parts keep.

    The harness cuts responses at stop strings, strips them, and passes them through filters
    and from rank to rank. Every method below returns a Completion (or several) of the same
    trial; copies and pickles keep it too. A new string that is made in another way (an
    f-string, `join`, a regular expression) is a plain one.

    Parameters
    ----------
    text : str
        The response.
    signals : mapping
        Signals beside those of the trial: those of its prompt, or all of a backend that
        records no trials.
    trial : Trial, optional
        The trial. Its raw text is dropped, so that a run holds each response once.
    sink : StoreSink, optional
        The store that keeps the trial, for its outcome. It never goes into a pickle: another
        process has a connection of its own.

    Examples
    --------
    >>> response = Completion(" so it is 42.\\n\\nQ:", {"seed": 7})
    >>> answer = response.split("\\n\\n")[0].strip()
    >>> answer, answer.signals["seed"]
    ('so it is 42.', 7)
    """

    _measured: Mapping[str, Any]
    trial: Trial | None
    sink: StoreSink | None

    def __new__(
        cls,
        text: str,
        signals: Mapping[str, Any] = NO_SIGNALS,
        trial: Trial | None = None,
        sink: StoreSink | None = None,
    ) -> Completion:
        """Create a completion from a text, its signals and its trial."""
        completion = super().__new__(cls, text)
        completion._measured, completion.sink = signals, sink
        completion.trial = replace(trial, text="") if trial is not None and trial.text else trial
        return completion

    @property
    def signals(self) -> Mapping[str, Any]:
        """All that is known of the trial, by the names of the samples log."""
        if self.trial is None:
            return self._measured
        recorded = {name: getattr(self.trial, name) for name in _LOGGED}
        return {**recorded, **(self.trial.signals or {}), **self._measured}

    def with_text(self, text: str) -> Completion:
        """Return another text of the same trial."""
        return Completion(text, self._measured, self.trial, self.sink)

    def __reduce_ex__(self, protocol: SupportsIndex) -> tuple[Any, ...]:
        return Completion, (str(self), dict(self._measured), self.trial)

    def __copy__(self) -> Completion:
        return self.with_text(str(self))

    def __deepcopy__(self, memo: dict[int, Any]) -> Completion:
        measured = copy.deepcopy(dict(self._measured), memo)
        return Completion(str(self), measured, self.trial, self.sink)

    def __getitem__(self, key: Any) -> Completion:
        return self.with_text(super().__getitem__(key))


def _of_same_trial(name: str) -> Callable[..., Any]:
    """Return a method of str whose results are completions of the same trial."""
    original = getattr(str, name)

    def method(self: Completion, *args: Any, **kwargs: Any) -> Any:
        result = original(self, *args, **kwargs)
        if isinstance(result, str):
            return self.with_text(result)
        return type(result)([self.with_text(part) for part in result])

    method.__name__, method.__doc__ = name, original.__doc__
    return method


for _name in (
    *("strip", "lstrip", "rstrip", "removeprefix", "removesuffix", "replace", "expandtabs"),
    *("lower", "upper", "casefold", "capitalize", "title", "swapcase"),
    *("split", "rsplit", "splitlines", "partition", "rpartition", "__add__"),
):
    setattr(Completion, _name, _of_same_trial(_name))


def signals_of(response: object) -> Mapping[str, Any]:
    """Return the signals of a response; none for a plain string."""
    return response.signals if isinstance(response, Completion) else NO_SIGNALS


def stored_trial(response: object) -> tuple[StoreSink, Trial] | None:
    """Return the trial of a response and its store, if this process has it open."""
    if isinstance(response, Completion) and response.sink is not None:
        return response.sink, response.trial  # type: ignore[return-value]
    return None


def signal_columns(responses: Sequence[object]) -> dict[str, dict[str, list[Any]]]:
    """Return the signals of a question's trials as columns, for the samples log.

    Returns
    -------
    dict
        ``{"signals": {name: values}}``, a value for each trial, None where a trial lacks it;
        empty where no response has signals.

    Examples
    --------
    >>> signal_columns([Completion("a", {"seed": 1}), Completion("b", {"seed": 2}), "c"])
    {'signals': {'seed': [1, 2, None]}}
    >>> signal_columns(["c"])
    {}
    """
    signals = [signals_of(response) for response in responses]
    names = dict.fromkeys(name for trial in signals for name in trial)
    columns = {name: [trial.get(name) for trial in signals] for name in names}
    return {"signals": columns} if columns else {}
