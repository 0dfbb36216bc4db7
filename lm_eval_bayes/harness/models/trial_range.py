"""The numbers of a run's trials: the argument ``trials=a:b``."""

from __future__ import annotations

import re
from dataclasses import dataclass

from lm_eval_bayes.errors import ModelConfigError

_RANGE = re.compile(r"(\d{1,9}):(\d{1,9})")


@dataclass(frozen=True)
class TrialRange:
    """The numbers of the trials of a run: first, first + 1, …, last - 1.

    Attributes
    ----------
    first : int
        The first trial's number.
    last : int or None
        One more than the last trial's number; None for as many trials as the task has.
    """

    first: int = 0
    last: int | None = None

    @classmethod
    def parse(cls, text: object) -> TrialRange:
        """Parse "a:b", the model argument `trials`.

        Raises
        ------
        ModelConfigError
            If it has another form.

        Examples
        --------
        >>> TrialRange.parse("8:16")
        TrialRange(first=8, last=16)
        """
        if text is None:
            return cls()
        match = _RANGE.fullmatch(text) if isinstance(text, str) else None
        if match is None or int(match[1]) >= int(match[2]):
            rule = "be a:b with whole numbers a < b, such as trials=8:16"
            raise ModelConfigError.of("trials", "format", rule, text)
        return cls(int(match[1]), int(match[2]))

    def check(self, n: int, task: object) -> None:
        """Check that a task's N is the length of the range.

        Raises
        ------
        ModelConfigError
            If it is not.
        """
        if self.last is not None and n != self.last - self.first:
            length = self.last - self.first
            sentence = (
                f"`trials={self.first}:{self.last}` is {length} trials per question, but task "
                f"{task} has N = {n}; pass --metadata '{{\"bayes_n\": {length}}}' as well"
            )
            raise ModelConfigError(sentence, "mismatch", "trials", n)
