"""What every reader of a format has in common: what it is asked for and what it returns."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

from lm_eval_bayes.errors import InvalidInputError, Rule
from lm_eval_bayes.runs.trials import PartialRun

#: Called with the number of bytes that were read since the last call.
Advance = Callable[[int], None]

#: Grades the texts of one question against its target: for every text whether it is right, and
#: the answer that was extracted. Its arguments are the texts, the target, and the marker that ends
#: the reasoning of the model. :func:`lm_eval_bayes.harness.grading.grade.regraded` is one.
Regrade = Callable[[Sequence[str], str, str | None], Sequence[tuple[bool, str | None]]]


@dataclass(frozen=True)
class Query:
    """What is read of a file.

    Attributes
    ----------
    task : str or None
        Only this task, or the tasks of this group. Outcomes in a file that names no task are
        taken for it.
    metric, filter : str or None
        The metric that counts, and the filter pipeline whose output counts; None for the first one.
    dedupe : bool or None
        Whether a trial that occurs twice counts once; otherwise it is refused. None if the
        command has no such option.
    regrade : callable or None
        Grades the saved texts again.
    signals : {"all", "recorded"} or None
        Whether the signals of all trials are read, or only of runs whose model recorded some.
    verdicts : bool
        Whether the verdicts of a verifier, beside the samples, are among the signals.
    cluster : str or None
        The field of a logged document, or the column of a table, that names the cluster of a
        question; None for that of the task's own settings.
    columns : mapping
        The columns of tables by what they hold, where the user chose them: {"question": "item"}.
    bounds : tuple of float or None
        The lowest and the highest possible score of tables and of other tools' logs; None for 0
        and 1.
    unscored : {"left-out", "wrong"}
        What becomes of trials without a score in tables and other tools' logs: they are left out,
        or get the lowest possible score.
    models : mapping
        The names of models by paths: runs in the file or the folder are of that model.
    skip_unreadable : bool
        Whether a file that is damaged or may not be read is left out, with a warning.
    advance : callable
        Called with the bytes that were read.
    """

    task: str | None = None
    metric: str | None = None
    filter: str | None = None
    dedupe: bool | None = False
    regrade: Regrade | None = None
    signals: Literal["all", "recorded"] | None = None
    verdicts: bool = True
    cluster: str | None = None
    columns: Mapping[str, str] = field(default_factory=dict)
    bounds: tuple[float, float] | None = None
    unscored: Literal["left-out", "wrong"] = "left-out"
    models: Mapping[str, str] = field(default_factory=dict)
    skip_unreadable: bool = False
    argument: str = "RUN"
    advance: Advance = field(default=lambda n_bytes: None, repr=False)


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
    columns : tuple of str
        Of a table the name of the file, and its columns by what they hold; empty for others.
    """

    runs: Sequence[PartialRun]
    tasks: tuple[str, ...]
    groups: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    warnings: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    columns: tuple[str, ...] = ()


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


class NothingToCountError(InvalidInputError):
    """A task logs nothing that its trials could be counted by.

    Attributes
    ----------
    lacking : str
        The task, and what it lacks.
    """

    lacking = ""

    @classmethod
    def of_task(
        cls, argument: str, rule: str, got: object, lacking: str, rule_id: Rule = "missing"
    ) -> NothingToCountError:
        """Return the error; `lacking` is for a warning, where other tasks can be read."""
        error = cls.of(argument, rule_id, rule, got)
        error.lacking = lacking
        return error
