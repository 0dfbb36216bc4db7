"""Trials of one model on one task as one source holds them, before sources are brought together."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from lm_eval_bayes.errors import InvalidInputError
from lm_eval_bayes.runs.logged_texts import LoggedTexts
from lm_eval_bayes.runs.task_run import GRADED, Made, TaskRun
from lm_eval_bayes.stats.outcomes import Outcomes
from lm_eval_bayes.stats.validation import FloatArray, IntArray


@dataclass(frozen=True, eq=False)
class PartQuestion:
    """One question and its trials, or the counts of them.

    Attributes
    ----------
    id : str
        What runs of several models match it by.
    trials : array of int, shape (N,)
        The category of every trial, -1 for one that was not graded; empty where only counts are
        known.
    numbers : array of int, shape (N,)
        The trials' numbers, from 0.
    text, prompt : str
        The question, and the hash of its prompt; "" where there is none.
    answers : tuple of str or None, or None
        What was found in every trial; None where it was not logged.
    seeds : tuple of int or None, or None
        The trials' seeds.
    digests : array of int, shape (N,), or None
        What tells texts apart within this process; None where there are none.
    measured : mapping
        By name, a float a trial.
    counts : tuple of int or None
        Trials by category, where their order is not known.
    doc_id : int or None
        The number of the question in the task.
    signals : mapping
        By name, one float per trial, as in `measured`; empty unless the query asks for signals.
    logged : LoggedTexts or None
        Where the texts of the trials are logged.
    """

    id: str
    trials: IntArray
    numbers: IntArray
    text: str = ""
    prompt: str = ""
    answers: tuple[str | None, ...] | None = None
    seeds: tuple[int | None, ...] | None = None
    digests: IntArray | None = None
    measured: Mapping[str, FloatArray] = field(default_factory=dict)
    counts: tuple[int, ...] | None = None
    doc_id: int | None = None
    signals: Mapping[str, FloatArray] = field(default_factory=dict)
    logged: LoggedTexts | None = None

    @classmethod
    def plain(cls, id: str, trials: Sequence[int] | IntArray) -> PartQuestion:
        """Return a question of which nothing but the outcomes is known."""
        array = np.asarray(trials, dtype=np.int64)
        return cls(id, array, np.arange(array.size))

    @property
    def n_trials(self) -> int:
        """How many graded trials it has."""
        return int((self.trials >= 0).sum()) if self.counts is None else sum(self.counts)

    def graded(self) -> PartQuestion:
        """Return the question without its trials that were not graded."""
        return self if (self.trials >= 0).all() else self.select(np.flatnonzero(self.trials >= 0))

    def select(self, trials: npt.NDArray[np.intp]) -> PartQuestion:
        """Return the question with these of its trials, in their order."""
        chosen = trials.tolist()
        return replace(
            self,
            trials=self.trials[trials],
            numbers=self.numbers[trials],
            answers=None if self.answers is None else tuple(self.answers[i] for i in chosen),
            seeds=None if self.seeds is None else tuple(self.seeds[i] for i in chosen),
            digests=None if self.digests is None else self.digests[trials],
            measured={name: column[trials] for name, column in self.measured.items()},
            signals={name: column[trials] for name, column in self.signals.items()},
            logged=None if self.logged is None else self.logged.select(trials),
        )


@dataclass(frozen=True, eq=False)
class Part:
    """One model's trials on one task, from one source.

    Attributes
    ----------
    model, task : str
        Names.
    sources : tuple of str
        The files that they were read from.
    questions : mapping of str to PartQuestion
        By id, in order.
    weights : tuple of float
        The score of each category.
    metric, filter, made, notes
        As in :class:`~lm_eval_bayes.runs.task_run.TaskRun`.
    settings : mapping
        The generation settings, such as the temperature, without those that change nothing.
    arguments : mapping
        What else makes the model another one if it differs, in the words of the harness.
    fingerprint : str
        The hash that a trial store has of the model instead; "" elsewhere.
    version : str
        The version of the task; "" where it is not known.
    sampled : bool
        Whether further trials may end otherwise; False for greedy answers and likelihoods.
    place : Path or None
        The folder, and...
    stamp : str
        ...the time in the name of a harness's file: of one folder the newest counts.
    path : int
        Which of the paths it was found at.
    signals_error, verifiers
        As in :class:`~lm_eval_bayes.runs.task_run.TaskRun`.
    """

    model: str
    task: str
    sources: tuple[str, ...]
    questions: Mapping[str, PartQuestion]
    weights: tuple[float, ...] = (0.0, 1.0)
    metric: str = GRADED
    filter: str = ""
    made: Made = field(default_factory=Made)
    notes: tuple[str, ...] = ()
    settings: Mapping[str, Any] = field(default_factory=dict)
    arguments: Mapping[str, Any] = field(default_factory=dict)
    fingerprint: str = ""
    version: str = ""
    sampled: bool = True
    place: Path | None = None
    stamp: str = ""
    path: int = 0
    signals_error: InvalidInputError | None = None
    verifiers: tuple[Mapping[str, Any], ...] = ()

    @property
    def source(self) -> str:
        """The first of the files."""
        return self.sources[0]

    @property
    def n_trials(self) -> int:
        """Trials in all."""
        return sum(one.n_trials for one in self.questions.values())

    @property
    def only_counts(self) -> bool:
        """Whether the order of the trials is unknown."""
        return any(one.counts is not None for one in self.questions.values())


def as_run(part: Part, name: str) -> TaskRun:
    """Return a part, or several that were brought together, in the form that commands read.

    Parameters
    ----------
    part : Part
        The trials.
    name : str
        What the model is called among all that was read.
    """
    responses = list(part.questions.values())
    asked = [question.graded() for question in responses]
    ids = [one.id for one in asked]
    about: dict[str, Any] = {
        "sources": part.sources,
        "questions": tuple(one.text for one in asked),
        "prompt_hashes": tuple(one.prompt for one in asked)
        if any(q.prompt for q in asked)
        else None,
        "metric": part.metric,
        "filter": part.filter,
        "made": part.made,
        "notes": part.notes,
        "signals_error": part.signals_error,
        "verifiers": part.verifiers,
    }
    numbers = [one.doc_id for one in asked if one.doc_id is not None]
    if len(numbers) == len(asked):
        about["doc_ids"] = tuple(numbers)
    if part.only_counts:
        counts = np.array([_counts(one, len(part.weights)) for one in asked], dtype=np.int64)
        outcomes = Outcomes.from_counts(counts, weights=part.weights, question_ids=tuple(ids))
        return TaskRun(model=name, task=part.task, outcomes=outcomes, **about)
    if any(one.answers is not None for one in asked):
        about["answers"] = tuple(one.answers or (None,) * one.n_trials for one in asked)
    if any(one.seeds is not None and any(s is not None for s in one.seeds) for one in asked):
        about["seeds"] = tuple(one.seeds or (None,) * one.n_trials for one in asked)
    about["measured"] = _columns([one.measured for one in asked], asked)
    about["signals"] = _columns([one.signals for one in responses], responses)
    if any(one.logged is not None for one in responses):
        about["texts"] = tuple(one.logged or LoggedTexts.none(one.trials.size) for one in responses)
    trials = [one.trials for one in asked]
    return TaskRun.from_trials(name, part.task, trials, ids, weights=part.weights, **about)


def _counts(one: PartQuestion, width: int) -> Sequence[int]:
    if one.counts is not None:
        return one.counts
    return [int(n) for n in np.bincount(one.trials, minlength=width)]


def _columns(
    by_question: Sequence[Mapping[str, FloatArray]], asked: Sequence[PartQuestion]
) -> dict[str, tuple[FloatArray, ...]]:
    names = dict.fromkeys(name for columns in by_question for name in columns)
    found = {}
    for name in names:
        columns = tuple(
            named.get(name, np.full(one.trials.size, np.nan))
            for named, one in zip(by_question, asked, strict=True)
        )
        if any(column.size and not np.isnan(column).all() for column in columns):
            for column in columns:
                column.setflags(write=False)
            found[name] = columns
    return found


def floats(values: Sequence[Any]) -> FloatArray | None:
    """Return numbers, NaN in place of whatever is none; None if nothing is a number.

    Examples
    --------
    >>> floats([3, None, 0.5]).tolist()
    [3.0, nan, 0.5]
    >>> floats(["stop", None]) is None
    True
    """
    numbers = [value if isinstance(value, (int, float)) else None for value in values]
    if all(value is None for value in numbers):
        return None
    try:
        return np.array(numbers, dtype=np.float64)
    except OverflowError:  # an integer of more than 308 digits
        return None
