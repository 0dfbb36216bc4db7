"""One line of a samples file, and the trials that are read from its lines."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from lm_eval_bayes.errors import InvalidInputError
from lm_eval_bayes.runs.log_fields import (
    document_hash,
    prompt_hash,
    question_text,
)
from lm_eval_bayes.runs.trials import Question, Trials


@dataclass(frozen=True)
class LogLine:
    """One line of a samples file.

    Attributes
    ----------
    row : mapping
        Its content.
    file : Path
        The samples file.
    record : int
        The number of the line among the objects of the file.
    doc_id : int
        The number of the question.
    prompt : str
        The prompt of the question.
    settings : mapping or None
        The generation settings that were sent with it; None where nothing was generated.
    cluster : str or None
        The cluster of the question; None where it is not known.
    """

    row: Mapping[str, Any]
    file: Path
    record: int
    doc_id: int
    prompt: str
    settings: Mapping[str, Any] | None
    cluster: str | None = None

    @property
    def file_name(self) -> str:
        """The name of the samples file."""
        return self.file.name

    def question(
        self,
        trials: Sequence[int],
        numbers: Sequence[int] | None = None,
        counts: tuple[int, ...] | None = None,
        **columns: Any,
    ) -> tuple[Question, Trials]:
        """Return the question, identified by its document, with its trials or counts of them."""
        question = Question(
            id=document_hash(self.row),
            text=question_text(self.row, self.prompt),
            prompt=prompt_hash(self.row, self.prompt),
            doc_id=self.doc_id,
            cluster=self.cluster,
            counts=counts,
        )
        return question, Trials.of_question(trials, numbers, **columns)


@dataclass(frozen=True)
class LoggedTrials:
    """The questions of a samples file.

    Attributes
    ----------
    questions : list of (Question, Trials)
        In the order of the lines, each with the hash of its document as id.
    metric : str
        What was counted.
    weights : tuple of float
        The score of each category; of scores their bounds.
    notes, signals_error, verifiers, threshold
        As in :class:`~lm_eval_bayes.runs.task_run.TaskRun`.
    """

    questions: list[tuple[Question, Trials]]
    metric: str
    weights: tuple[float, ...] = (0.0, 1.0)
    notes: tuple[str, ...] = ()
    signals_error: InvalidInputError | None = None
    verifiers: tuple[Mapping[str, Any], ...] = ()
    threshold: float | None = None


def is_right_or_wrong(weights: Sequence[float]) -> bool:
    """Return whether category 1 means right and 0 wrong.

    Examples
    --------
    >>> is_right_or_wrong((0.0, 1.0)), is_right_or_wrong((0.0, 0.5, 1.0))
    (True, False)
    """
    return len(weights) == 2 and weights[0] < weights[1]
