"""The records of what trials were graded as: a task, its questions, their trials."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

from lm_eval_bayes.store.trial import TrialKey


@dataclass(frozen=True)
class GradedTrial:
    """One trial, graded as the answer to one question of a task.

    Attributes
    ----------
    key : TrialKey
        Model, prompt and sampling of the trial.
    trial : int
        Its number among those of its key, from 0.
    outcome : int
        Its category, 0..C.
    answer : str or None
        What the grader found in the response, if anything.
    error : str or None
        Why it could not be graded and counts as category 0.
    """

    key: TrialKey
    trial: int
    outcome: int
    answer: str | None = None
    error: str | None = None

    def to_dict(self) -> dict[str, Any]:
        """Return plain JSON types."""
        return {
            **self.key.to_dict(),
            "trial": self.trial,
            "outcome": self.outcome,
            "answer": self.answer,
            "error": self.error,
        }


@dataclass(frozen=True)
class GradedQuestion:
    """One question of a task, with the trials that answered it.

    Attributes
    ----------
    doc_id : int
        Its place in the task's data, from 0.
    doc_hash : str
        The harness's hash of its document, by which runs of several models match questions
        though their chat templates make other prompts of them.
    trials : tuple of GradedTrial
        Those of one model, sampling and prompt stand together, by number.
    """

    doc_id: int
    doc_hash: str
    trials: tuple[GradedTrial, ...]

    def to_dict(self) -> dict[str, Any]:
        """Return plain JSON types."""
        trials = [trial.to_dict() for trial in self.trials]
        return {"doc_id": self.doc_id, "doc_hash": self.doc_hash, "trials": trials}


@dataclass(frozen=True)
class GradedTask:
    """One version of a task, as graded through one filter.

    Attributes
    ----------
    task : str
        Its name.
    version : str
        Its version, as text.
    filter : str
        The name of the filter pipeline that the responses went through.
    categories : int
        C + 1, the number of categories that a trial may be graded as.
    questions : tuple of GradedQuestion
        In the order of their doc_id.

    Examples
    --------
    >>> key = TrialKey(model="blake2b-128:0a", prompt="blake2b-128:0b", sampling="blake2b-128:0c")
    >>> trials = (GradedTrial(key, 0, 1, "42"), GradedTrial(key, 1, 0, "41"))
    >>> task = GradedTask("aime", "1.0", "none", 2, (GradedQuestion(0, "ab", trials),))
    >>> task.series
    (('blake2b-128:0a', 'blake2b-128:0c'),)
    >>> task.of("another model").questions
    ()
    """

    task: str
    version: str
    filter: str
    categories: int
    questions: tuple[GradedQuestion, ...]

    @property
    def series(self) -> tuple[tuple[str, str], ...]:
        """The pairs of model and sampling that have trials here, in order."""
        found = {
            (trial.key.model, trial.key.sampling)
            for question in self.questions
            for trial in question.trials
        }
        return tuple(sorted(found))

    def of(self, model: str, sampling: str | None = None) -> GradedTask:
        """Return the part of one model, under one sampling if it is given.

        Questions that have no such trial are left out.
        """
        questions = []
        for question in self.questions:
            trials = tuple(
                trial
                for trial in question.trials
                if trial.key.model == model and sampling in (None, trial.key.sampling)
            )
            if trials:
                questions.append(replace(question, trials=trials))
        return replace(self, questions=tuple(questions))

    def to_dict(self) -> dict[str, Any]:
        """Return plain JSON types."""
        return {
            "task": self.task,
            "version": self.version,
            "filter": self.filter,
            "categories": self.categories,
            "questions": [question.to_dict() for question in self.questions],
        }
