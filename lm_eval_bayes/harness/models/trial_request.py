"""What a sampling backend is asked for: one trial of one question."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from lm_eval_bayes.errors import ModelConfigError


@dataclass(frozen=True, eq=False)
class Order:
    """One trial that is to be generated.

    Attributes
    ----------
    place : int
        Where its text goes in what the harness gets back.
    context : object
        The prompt as the harness hands it to the backend: a string, or a named tuple around
        the JSON of a chat's messages.
    request : Instance
        The harness's request.
    prompt : str
        The prompt's text.
    trial : int
        The trial's number among those of its prompt, from 0.
    seed : int
        The seed of this trial.
    kwargs : mapping
        Generation settings, all explicit: temperature, top_p, top_k (0: all), min_p, until,
        max_gen_toks, do_sample; and whatever else the task gave.
    """

    place: int
    context: Any
    request: Any
    prompt: str
    trial: int
    seed: int
    kwargs: Mapping[str, Any]


@dataclass(frozen=True, eq=False)
class Sampled:
    """What a backend gave for one order, before anything is cut off.

    Attributes
    ----------
    text : str
        The raw text.
    signals : mapping
        What was measured: ``completion_bpt`` (negative mean log-probability of the sampled
        tokens under the untempered model, in bits per token), ``think_closed`` (whether the
        think block was closed; only with a think token), ``prompt_truncated``.
    prompt_tokens, completion_tokens : int or None
        Token counts, the completion's with its end-of-sequence token.
    finish_reason : str or None
        "stop", "length", or the backend's own word.
    stop_reason : str, int or None
        The stop string or token that ended it; None for the end of the sequence.
    queued_s, generated_s : float or None
        Seconds from submission to start, and from start to end.
    concurrency : int or None
        Requests under way when it ended, itself included.
    prompt_signals : mapping or None
        ``prompt_bpt``, where this trial was chosen to measure its prompt.
    """

    text: str
    signals: Mapping[str, Any] = field(default_factory=dict)
    prompt_tokens: int | None = None
    completion_tokens: int | None = None
    finish_reason: str | None = None
    stop_reason: str | int | None = None
    queued_s: float | None = None
    generated_s: float | None = None
    concurrency: int | None = None
    prompt_signals: Mapping[str, Any] | None = None


_SLICE = re.compile(r"(\d{1,9}):(\d{1,9})")


@dataclass(frozen=True)
class Slice:
    """The trials that a run makes: numbers first, first + 1, … up to, not including, last.

    Attributes
    ----------
    first : int
        The first trial's number.
    last : int or None
        One more than the last trial's; None for as many as the task asks.
    """

    first: int = 0
    last: int | None = None

    @classmethod
    def parse(cls, text: object) -> Slice:
        """Read "a:b", as a job of an array gets it.

        Raises
        ------
        ModelConfigError
            If it is something else.

        Examples
        --------
        >>> Slice.parse("8:16")
        Slice(first=8, last=16)
        """
        if text is None:
            return cls()
        found = _SLICE.fullmatch(text) if isinstance(text, str) else None
        if found is None or int(found[1]) >= int(found[2]):
            raise ModelConfigError(
                f"`trials` must be a:b with whole numbers a < b, such as trials=8:16; got {text!r}"
            )
        return cls(int(found[1]), int(found[2]))

    def check(self, n: int, task: object) -> None:
        """Refuse a task whose N is not the slice's length.

        Raises
        ------
        ModelConfigError
            If it is not.
        """
        if self.last is not None and n != self.last - self.first:
            length = self.last - self.first
            raise ModelConfigError(
                f"`trials={self.first}:{self.last}` is {length} trials a question, but task {task} "
                f"asks for N = {n}; pass --metadata '{{\"bayes_n\": {length}}}' as well"
            )


def trial_numbers(requests: Sequence[Any], first: int = 0) -> list[int]:
    """Number the clones of every request.

    The harness lists one request object as often as it has `repeats`, and with several ranks
    some more often, to keep the ranks even: such a further clone has the number of the clone
    that it repeats.

    Parameters
    ----------
    requests : sequence of Instance
        As the harness hands them over.
    first : int
        The number of a request's first clone.

    Returns
    -------
    list of int
        A trial number for each request.

    Examples
    --------
    >>> from types import SimpleNamespace
    >>> a, b = SimpleNamespace(repeats=2), SimpleNamespace(repeats=2)
    >>> trial_numbers([a, a, b, b, b, b])
    [0, 1, 0, 1, 0, 1]
    """
    seen: Counter[int] = Counter()
    numbers = []
    for request in requests:
        numbers.append(first + seen[id(request)] % max(int(request.repeats or 1), 1))
        seen[id(request)] += 1
    return numbers
