"""Which trial is which: the harness repeats a request, and the repeats are its trials."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from lm_eval_bayes.errors import ModelConfigError

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
