"""What one line of a samples file says of its question's trials: graded by us, or graded again."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

import numpy as np

from lm_eval_bayes.errors import InvalidInputError
from lm_eval_bayes.runs.logged_texts import LoggedLine, LoggedTexts
from lm_eval_bayes.runs.partial_runs import PartQuestion, floats
from lm_eval_bayes.runs.provenance import mapping
from lm_eval_bayes.runs.readers import logged_rows as rows
from lm_eval_bayes.runs.saved_tasks import SavedTask
from lm_eval_bayes.runs.signals import SignalReader
from lm_eval_bayes.runs.task_run import GRADED, REGRADED
from lm_eval_bayes.stats.validation import check_weights

#: Grades the texts of one question against its target: for every text whether it is right, and
#: the answer that was found. Gets the texts, the target, and the model's own mark of the end of
#: its reasoning. :func:`lm_eval_bayes.harness.grading.regrade.regraded` is one.
Regrade = Callable[[Sequence[str], str, str | None], Sequence[tuple[bool, str | None]]]

#: Trials are numbered and seeded; these are no measurements.
_NO_MEASURE = frozenset({"trial", "seed"})


class NothingToCountError(InvalidInputError):
    """A task logs nothing that its trials could be counted by.

    Attributes
    ----------
    what : str
        The task, and what it lacks.
    """

    what = ""

    @classmethod
    def of_task(cls, argument: str, rule: str, got: object, what: str) -> NothingToCountError:
        """Build the standard sentence; `what` is for a warning, where other tasks can be read."""
        error = cls(str(InvalidInputError.of(argument, rule, got)))
        error.what = what
        return error


@dataclass(frozen=True)
class Counted:
    """What was made of all lines.

    Attributes
    ----------
    questions : list of PartQuestion
        In the order of the lines.
    metric : str
        What was counted.
    weights : tuple of float
        The score of each category.
    notes : tuple of str
        What a reader should know.
    signals_error, verifiers
        As in :class:`~lm_eval_bayes.runs.task_run.TaskRun`.
    """

    questions: list[PartQuestion]
    metric: str
    weights: tuple[float, ...] = (0.0, 1.0)
    notes: tuple[str, ...] = ()
    signals_error: InvalidInputError | None = None
    verifiers: tuple[Mapping[str, Any], ...] = ()


class TrialLog(Protocol):
    """Takes the lines of a samples file, one a question, and makes trials of them."""

    def add(self, row: Mapping[str, Any], text: str, prompt: str, line: LoggedLine) -> None:
        """Take a row, with the text of the question, the hash of its prompt and its line."""

    def counted(self) -> Counted:
        """Return the questions with their trials, when all lines are read."""


@dataclass
class GradedTrials:
    """Trials of a task of this package, which logs the category of each.

    Attributes
    ----------
    saved : SavedTask
        The task.
    argument : str
        What to call the run in an error.
    signals : SignalReader or None
        Reads the signals, where they are asked for.
    """

    saved: SavedTask
    argument: str
    signals: SignalReader | None = None
    questions: list[PartQuestion] = field(default_factory=list)

    def __post_init__(self) -> None:
        try:
            self.weights = tuple(check_weights(self.saved.weights).tolist())
        except (InvalidInputError, TypeError):
            rule = f"tell the scores of the categories of task {self.saved.task} in its results"
            got = self.saved.settings.get("weights")
            raise InvalidInputError.of(self.argument, rule, got) from None

    def add(self, row: Mapping[str, Any], text: str, prompt: str, line: LoggedLine) -> None:
        """Take a line; a trial that nobody graded is null in it."""
        outcomes = row.get("outcomes")
        if not isinstance(outcomes, list):
            raise self._broken(row, "`outcomes` is no list")
        top = len(self.weights) - 1
        for outcome in outcomes:
            if outcome is not None and (type(outcome) is not int or not 0 <= outcome <= top):
                if not self.saved.config:
                    rule = "lie beside its results file, which tells the score of each category"
                    raise InvalidInputError.of(self.argument, rule, self.saved.samples.name)
                raise self._broken(row, f"outcome {outcome!r} is no category of 0..{top}")
        answers = row.get("answers")
        if answers is not None:
            answers = self._column(row, "answers", answers, len(outcomes))
            answers = tuple(None if answer is None else str(answer) for answer in answers)
        self.questions.append(
            PartQuestion(
                id="",
                trials=np.array([-1 if c is None else c for c in outcomes], dtype=np.int64),
                text=text,
                prompt=prompt,
                answers=answers,
                signals={} if self.signals is None else self.signals.signals(row),
                **self.recorded(row, len(outcomes), line),
            )
        )

    def recorded(self, row: Mapping[str, Any], n: int, line: LoggedLine) -> dict[str, Any]:
        """Return what was logged of n trials besides their grades."""
        signals = row.get("signals")
        if signals is not None and not isinstance(signals, Mapping):
            raise self._broken(row, "`signals` holds no lists")
        columns = {
            name: self._column(row, name, values, n) for name, values in (signals or {}).items()
        }
        numbers = columns.get("trial", [])
        if not all(type(one) is int and 0 <= one < 2**62 for one in numbers):
            numbers = []
        seeds = columns.get("seed")
        texts = rows.texts(row)
        digests = logged = None
        if texts is not None and len(texts) == n:
            digests = np.array([hash(text) for text in texts], dtype=np.int64)
            logged = LoggedTexts.of_line(line, n)
        measured = {
            name: floats(values) for name, values in columns.items() if name not in _NO_MEASURE
        }
        return {
            "numbers": np.array(numbers or range(n), dtype=np.int64),
            "seeds": None if seeds is None else tuple(map(_seed, seeds)),
            "digests": digests,
            "doc_id": line.doc_id,
            "logged": logged,
            "measured": {name: found for name, found in measured.items() if found is not None},
        }

    def counted(self) -> Counted:
        """Return the questions, with the scores that the task ran with."""
        error = None if self.signals is None else self.signals.error
        verifiers = () if self.signals is None else self.signals.verifiers
        return Counted(
            self.questions, GRADED, self.weights, signals_error=error, verifiers=verifiers
        )

    def _column(self, row: Mapping[str, Any], name: str, values: object, n: int) -> list[Any]:
        if not isinstance(values, list):
            raise self._broken(row, f"`{name}` is no list")
        if len(values) != n:
            raise self._broken(row, f"{n} trials and {len(values)} `{name}`")
        return values

    def _broken(self, row: Mapping[str, Any], why: str) -> InvalidInputError:
        rule = f"log one outcome and signal a trial ({self.saved.samples.name})"
        return InvalidInputError.of(self.argument, rule, f"question {row['doc_id']}: {why}")


@dataclass
class GradedAgain(GradedTrials):
    """Trials whose texts are graded again, against the logged target.

    Attributes
    ----------
    regrade : callable
        Grades the texts of a question.
    """

    regrade: Regrade | None = None
    changed: int = 0

    def add(self, row: Mapping[str, Any], text: str, prompt: str, line: LoggedLine) -> None:
        """Take a line; every text in it is a trial."""
        texts, target = rows.texts(row), row.get("target")
        task, where = self.saved.task, f"question {row['doc_id']} of {self.saved.samples.name}"
        if rows.asked(row)[1] is None or texts is None:
            rule = f"hold generated texts of task {task} to be graded again"
            what = f"task {task}, which holds no generated texts to be graded again"
            raise NothingToCountError.of_task(self.argument, rule, where, what)
        if isinstance(target, (int, float)) and not isinstance(target, bool):
            target = str(target)
        if not isinstance(target, str) or not target.strip():
            rule = f"hold the right answers of task {task} (`target` in every line)"
            what = f"task {task}, which holds no right answers to grade again by"
            raise NothingToCountError.of_task(self.argument, rule, where, what)
        marker = mapping(self.saved.config.get("metadata")).get("think_end_token")
        if self.regrade is None:
            raise InvalidInputError.of("regrade", "grade texts", self.regrade)
        grades = self.regrade(texts, target, marker if isinstance(marker, str) else None)
        now = [int(right) for right, _ in grades]
        before = row.get("outcomes")
        if isinstance(before, list) and len(before) == len(now) and len(self.weights) == 2:
            pairs = zip(before, now, strict=True)
            self.changed += sum(one is not None and one != new for one, new in pairs)
        self.questions.append(
            PartQuestion(
                id="",
                trials=np.array(now, dtype=np.int64),
                text=text,
                prompt=prompt,
                answers=tuple(answer for _, answer in grades),
                **self.recorded(row, len(now), line),
            )
        )

    def counted(self) -> Counted:
        """Return the questions, right or wrong."""
        notes = []
        if self.changed:
            notes.append(f"graded again: {self.changed:,} trials got another grade than before")
        if len(self.weights) > 2:
            told = f"the task's own {len(self.weights)} categories were not used"
            notes.append(f"graded again as right or wrong: {told}")
        return Counted(self.questions, REGRADED, notes=tuple(notes))


def _seed(value: object) -> int | None:
    return value if type(value) is int else None
