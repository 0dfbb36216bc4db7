"""Every error that this package raises on purpose.

All of them derive from :class:`LmEvalBayesError`, so a command line can turn
any of them into one sentence and a caller can catch them together. Where the
standard library has a fitting base class, the error derives from that too.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any


class LmEvalBayesError(Exception):
    """Base class of every deliberate error of this package."""


class InvalidInputError(LmEvalBayesError, ValueError):
    """An argument breaks a rule.

    The message names the argument, the rule and the value that came.
    """

    @classmethod
    def of(cls, argument: str, rule: str, got: object) -> InvalidInputError:
        """Build the standard sentence.

        Parameters
        ----------
        argument : str
            The name of the argument, as the caller wrote it.
        rule : str
            What the argument must satisfy, as the words after "must".
        got : object
            The offending value; long values are shortened.

        Examples
        --------
        >>> str(InvalidInputError.of("k", "satisfy 1 <= k <= N (N=5)", 9))
        '`k` must satisfy 1 <= k <= N (N=5); got 9'
        """
        shown = " ".join(_shown(got).split())
        if len(shown) > 120:
            shown = shown[:117] + "..."
        return cls(f"`{argument}` must {rule}; got {shown}")


def _shown(got: object) -> str:
    """Return a value as text; its kind where it cannot be shown."""
    if isinstance(got, str) and (" " in got or got == "none"):  # words about what came
        return got
    try:
        return repr(got)
    except Exception:
        # an integer of more than 4,300 digits, or whatever a stranger's repr raises
        return f"a value of type {type(got).__name__} that cannot be shown"


class TaskConfigError(LmEvalBayesError, ValueError):
    """A task's YAML, metadata or generation settings cannot give honest repeated trials.

    Attributes
    ----------
    results : mapping or None
        What `simple_evaluate` would have returned, with the samples, if the error came after them.
    """

    def __init__(self, message: str, results: Mapping[str, Any] | None = None) -> None:
        super().__init__(message)
        self.results = results


class DatasetUnavailableError(LmEvalBayesError, RuntimeError):
    """A task's questions cannot be loaded, or they lack what the task needs."""


class ModelConfigError(LmEvalBayesError, ValueError):
    """The arguments of a model of this package make no sense."""
