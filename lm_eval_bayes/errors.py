"""Every error that this package raises on purpose.

All of them derive from :class:`LmEvalBayesError`, so a command line can turn
any of them into one sentence and a caller can catch them together. Where the
standard library has a fitting base class, the error derives from that too.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal, TypeAlias, TypeVar

#: The rules that an argument, an option, a key or a file can break.
Rule: TypeAlias = Literal[
    "type",  # another type, or another kind of record
    "range",  # a number or a size outside its bounds
    "shape",  # another number of dimensions or of entries
    "format",  # a text that is not of the form
    "choice",  # not one of the names that can be chosen
    "empty",  # nothing, or less than is needed
    "missing",  # a value that is needed
    "missing-key",
    "missing-column",
    "unknown-key",
    "duplicate",  # the same thing twice
    "conflict",  # two arguments that exclude each other, or one that needs another
    "mismatch",  # things that must agree and differ
    "unsupported",  # a quantity or a setting that these outcomes, this model or server do not have
    "path",  # a file or folder that does not exist, exists already, or is of another kind
    "permission",
    "damaged",  # a file that is cut, changed or broken
    "schema",  # a store or a file of another version
    "not-installed",
    "secret",  # a key or a password where it would be logged
    "failed",  # an engine, a server, a process or a disk that failed
]


_Error = TypeVar("_Error", bound="LmEvalBayesError")


class LmEvalBayesError(Exception):
    """Base class of every deliberate error of this package.

    Parameters
    ----------
    message : str
        The sentence.
    rule : str, optional
        The id of the broken rule, which stays the same where the sentence changes.
    argument : str, optional
        The argument, option, key or file that breaks it.
    value : object, optional
        What came.
    """

    rule: Rule | None = None
    argument: str | None = None
    value: object = None

    def __init__(
        self,
        message: str,
        rule: Rule | None = None,
        argument: str | None = None,
        value: object = None,
    ) -> None:
        super().__init__(message)
        self.rule = rule or self.rule
        self.argument = argument
        self.value = value

    @classmethod
    def of(cls: type[_Error], argument: str, rule: Rule, requirement: str, got: object) -> _Error:
        """Return the error with the standard sentence: the argument, the rule and what came.

        Parameters
        ----------
        argument : str
            The name of the argument, as the caller wrote it.
        rule : str
            The id of the rule.
        requirement : str
            What the argument must satisfy, as the words after "must".
        got : object
            The offending value; long values are shortened.

        Examples
        --------
        >>> error = InvalidInputError.of("k", "range", "satisfy 1 <= k <= N (N=5)", 9)
        >>> str(error)
        '`k` must satisfy 1 <= k <= N (N=5); got 9'
        >>> error.argument, error.rule, error.value
        ('k', 'range', 9)
        """
        shown = " ".join(_shown(got).split())
        if len(shown) > 120:
            shown = shown[:117] + "..."
        return cls(f"`{argument}` must {requirement}; got {shown}", rule, argument, got)


class InvalidInputError(LmEvalBayesError, ValueError):
    """An argument breaks a rule."""


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

    results: Mapping[str, Any] | None = None


class DatasetUnavailableError(LmEvalBayesError, RuntimeError):
    """A task's questions cannot be loaded, or they lack what the task needs."""


class ModelConfigError(LmEvalBayesError, ValueError):
    """The arguments of a model of this package make no sense."""
