"""What every reader of a format has in common: what it is asked for and what it returns."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from lm_eval_bayes._util.text import join_words
from lm_eval_bayes.errors import InvalidInputError
from lm_eval_bayes.runs.query import Query as Query
from lm_eval_bayes.runs.trials import PartialRun


@dataclass(frozen=True)
class FileContents:
    """What a reader returns of a file.

    Attributes
    ----------
    runs : sequence of PartialRun
        One per model and task.
    tasks : tuple of str
        The names of all tasks in the file, those that the query leaves out included.
    groups : mapping of str to tuple of str
        The tasks of the groups that the file names.
    warnings : tuple of str
        What was left out.
    notes : tuple of str
        How the file was read.
    """

    runs: Sequence[PartialRun]
    tasks: tuple[str, ...]
    groups: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    warnings: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()


@dataclass(frozen=True)
class Found:
    """What a format reads of its files at a path.

    Attributes
    ----------
    files : sequence of Path
        Files, or folders that are read as a whole.
    warnings : tuple of str
        What of a folder was left out.
    """

    files: Sequence[Path]
    warnings: tuple[str, ...] = ()


#: The rules that a file breaks which cannot be read.
UNREADABLE_RULES = ("damaged", "empty", "format", "permission")


def choice_note(option: str, names: Sequence[str], chosen: str | None) -> tuple[str, ...]:
    """Return a note on what was counted, the first of several names; none where the user chose."""
    if len(names) < 2 or chosen is not None:
        return ()
    choice = join_words(list(names), "or")
    return (f"{option} {names[0]} was counted; --{option} chooses among {choice}",)


class NothingToCountError(InvalidInputError):
    """A task logs nothing that its trials could be counted by."""
