"""Trials of one model on one task as one file holds them, before files are merged.

Three records are needed. :class:`QuestionTrials` is one question, trial by trial: what merging
compares, by number, seed and text. :class:`PartialRun` holds the questions of a file with what says
which files belong together. :class:`~lm_eval_bayes.runs.task_run.TaskRun` is the result, checked:
the trials of all files as columns, without what only merging needs.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from lm_eval_bayes._util.text import join_words, one_line
from lm_eval_bayes.errors import InvalidInputError
from lm_eval_bayes.rubric.signals import numbers
from lm_eval_bayes.runs.attempt_numbers import AttemptNumbers
from lm_eval_bayes.runs.logged_texts import LoggedTexts
from lm_eval_bayes.runs.task_run import GRADED, Provenance, TaskRun
from lm_eval_bayes.stats import FloatArray, IntArray, Outcomes


@dataclass(frozen=True, eq=False)
class QuestionTrials:
    """One question with its trials, or with counts of them.

    Attributes
    ----------
    id : str
        The identifier by which runs of several models match questions.
    trials : array of int, shape (N,)
        The category of every trial, -1 for one that was not graded; empty where only counts are
        known.
    numbers : array of int, shape (N,)
        The numbers of the trials, from 0.
    text, prompt : str
        The text of the question, and the hash of its prompt; "" where there is none.
    answers : tuple of str or None, or None
        The answer that was extracted from every trial; None where none is logged.
    seeds : tuple of int or None, or None
        The seeds of the trials.
    digests : array of int, shape (N,), or None
        Hashes of the texts, valid within this process; None where there are no texts.
    measured : mapping
        By name, one float per trial.
    counts : tuple of int or None
        Trials per category, where their order is not known.
    doc_id : int or None
        The number of the question in the task.
    signals : mapping
        By name, one float per trial, as in `measured`; empty unless the query asks for signals.
    logged : LoggedTexts or None
        Where the texts of the trials are logged.
    cluster : str or None
        The cluster of the question, such as its contest; None where none is known.
    categories : tuple of str
        The distinct categories of the question in the files, such as its subject: more than one
        where they contradict each other.
    scores : array of float, shape (N,), or None
        The score of every trial, where trials have scores between two bounds; their categories are
        then 0.
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
    cluster: str | None = None
    categories: tuple[str, ...] = ()
    scores: FloatArray | None = None

    @property
    def n_trials(self) -> int:
        """The number of graded trials."""
        return int((self.trials >= 0).sum()) if self.counts is None else sum(self.counts)

    def graded(self) -> QuestionTrials:
        """Return the question without its trials that were not graded."""
        return self if (self.trials >= 0).all() else self.select(np.flatnonzero(self.trials >= 0))

    def select(self, trials: npt.NDArray[np.intp]) -> QuestionTrials:
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
            scores=None if self.scores is None else self.scores[trials],
        )


@dataclass(frozen=True, eq=False)
class PartialRun:
    """The trials of one model on one task, from one file or from several that were merged.

    Attributes
    ----------
    model, task : str
        Names.
    sources : tuple of str
        The files that they were read from.
    questions : mapping of str to QuestionTrials
        By id, in order.
    weights : tuple of float
        The score of each category; of scores their bounds.
    metric, filter, provenance, notes, signals_error, verifiers, threshold
        As in :class:`~lm_eval_bayes.runs.task_run.TaskRun`.
    settings : mapping
        The generation settings, such as the temperature, without those that have no effect.
    arguments : mapping
        The further arguments that identify the model, as the harness names them.
    fingerprint : str
        The hash by which a trial store identifies the model; "" for other formats.
    version : str
        The version of the task; "" where it is not known.
    sampled : bool
        Whether further trials may have other outcomes; False for greedy answers and likelihoods.
    folder : Path or None
        The folder of a samples file; of one folder the newest file counts.
    stamp : str
        The time in the name of a samples file.
    first_label : int or None
        What the log calls the trial of the number 0 of a question; None where it does not number
        the trials of a question.
    by_line : bool
        Whether questions are identified by the numbers of their lines, for want of ids and texts.
    unnamed : bool
        Whether the name of the model is that of the folder, because a results file is missing.
    path : int
        The index of the path that it was read from, among those of the query.
    """

    model: str
    task: str
    sources: tuple[str, ...]
    questions: Mapping[str, QuestionTrials]
    weights: tuple[float, ...] = (0.0, 1.0)
    metric: str = GRADED
    filter: str = ""
    provenance: Provenance = field(default_factory=Provenance)
    notes: tuple[str, ...] = ()
    settings: Mapping[str, Any] = field(default_factory=dict)
    arguments: Mapping[str, Any] = field(default_factory=dict)
    fingerprint: str = ""
    version: str = ""
    sampled: bool = True
    folder: Path | None = None
    stamp: str = ""
    first_label: int | None = 1
    by_line: bool = False
    unnamed: bool = False
    path: int = 0
    signals_error: InvalidInputError | None = None
    verifiers: tuple[Mapping[str, Any], ...] = ()
    threshold: float | None = None

    @property
    def source(self) -> str:
        """The first of the files."""
        return self.sources[0]

    @property
    def n_trials(self) -> int:
        """The number of trials."""
        return sum(question.n_trials for question in self.questions.values())

    @property
    def scored(self) -> bool:
        """Whether trials have scores between two bounds."""
        return any(question.scores is not None for question in self.questions.values())

    @property
    def only_counts(self) -> bool:
        """Whether the order of the trials is unknown."""
        return any(question.counts is not None for question in self.questions.values())


def with_scores(partial: PartialRun) -> PartialRun:
    """Return a run of right and wrong trials as one of scores 1 and 0; others as they are."""
    if partial.scored or partial.only_counts or partial.weights != (0.0, 1.0):
        return partial
    questions = {
        id: replace(
            question,
            trials=np.minimum(question.trials, 0),
            scores=np.where(question.trials < 0, np.nan, question.trials.astype(np.float64)),
        )
        for id, question in partial.questions.items()
    }
    return replace(partial, questions=questions)


#: The attributes that a merged run has in common with its partial runs.
_OF_A_RUN = (
    *("sources", "metric", "filter", "provenance", "notes", "signals_error", "verifiers"),
    "threshold",
)


def task_run_of(partial: PartialRun, name: str) -> TaskRun:
    """Return merged trials in the form that commands read.

    Parameters
    ----------
    partial : PartialRun
        The trials.
    name : str
        The name of the model, distinct among all that were read.
    """
    responses = list(partial.questions.values())
    questions = [question.graded() for question in responses]
    ids = [question.id for question in questions]
    attributes: dict[str, Any] = {
        "questions": tuple(question.text for question in questions),
        **{name: getattr(partial, name) for name in _OF_A_RUN},
    }
    if any(question.prompt for question in questions):
        attributes["prompt_hashes"] = tuple(question.prompt for question in questions)
    doc_ids = tuple(question.doc_id for question in questions if question.doc_id is not None)
    if len(doc_ids) == len(questions):
        attributes["doc_ids"] = doc_ids
    if any(question.logged is not None for question in responses):
        attributes["texts"] = tuple(q.logged or LoggedTexts.none(q.trials.size) for q in responses)
    attributes |= _with_categories(partial)
    weights = partial.weights
    clusters = tuple(question.cluster for question in questions if question.cluster is not None)
    if len(clusters) < len(questions):
        if clusters:
            note = f"only {len(clusters)} of {len(questions)} questions have a cluster: they were "
            attributes["notes"] = (*attributes["notes"], f"{note}taken as independent")
        clusters = ()
    if partial.only_counts:
        counts = np.array([_counts(question, len(weights)) for question in questions])
        outcomes = Outcomes.from_counts(
            counts, weights=weights, question_ids=ids, clusters=clusters or None
        )
        return TaskRun(model=name, task=partial.task, outcomes=outcomes, **attributes)
    attributes["attempts"] = tuple(
        AttemptNumbers(question.numbers, question.trials >= 0, partial.first_label)
        for question in responses
    )
    answers = [question.answers for question in questions if question.answers is not None]
    # no answer of any trial: the task extracts none, and maj@k has no vote to count
    has_answers = len(answers) == len(questions) and any(a is not None for r in answers for a in r)
    if has_answers and _are_right_answers(questions):
        note = "the answers are left out: right and wrong trials of a question have the same one"
        attributes["notes"] = (*attributes["notes"], note)
    elif has_answers:
        attributes["answers"] = tuple(answers)
    seeds = tuple(question.seeds or (None,) * question.n_trials for question in questions)
    if any(seed is not None for of_question in seeds for seed in of_question):
        attributes["seeds"] = seeds
    attributes["measured"] = _columns([q.measured for q in questions], questions)
    attributes["signals"] = _columns([q.signals for q in responses], responses)
    if partial.scored:
        if clusters:
            note = "clusters are not used for scores: the questions were taken as independent"
            attributes["notes"] = (*attributes["notes"], note)
        scores = [question.scores for question in questions if question.scores is not None]
        return TaskRun.from_scores(
            name, partial.task, scores, ids, (weights[0], weights[1]), **attributes
        )
    trials = [question.trials for question in questions]
    attributes["clusters"] = clusters or None
    return TaskRun.from_trials(name, partial.task, trials, ids, weights=weights, **attributes)


def _are_right_answers(questions: Sequence[QuestionTrials]) -> bool:
    """Return whether the answers are those to the questions: alike in right and wrong trials."""
    constant = all(len(set(question.answers or ())) < 2 for question in questions)
    return constant and any(np.unique(question.trials).size > 1 for question in questions)


def _with_categories(partial: PartialRun) -> dict[str, Any]:
    """Return the categories of the questions, and the notes with one on categories left out."""
    categories = [question.categories for question in partial.questions.values()]
    labels = {label for of_question in categories for label in of_question}
    note = ""
    for id, of_question in zip(partial.questions, categories, strict=True):
        if len(of_question) > 1:
            several = join_words([repr(one_line(label, 40)) for label in of_question[:3]])
            note = (
                f"the categories of the questions are left out: {one_line(id, 40)} is in {several}"
            )
            break
    else:
        if len(labels) == len(categories) > 1:
            note = "the categories of the questions are left out: each has one of its own"
    if note:
        return {"notes": (*partial.notes, note)}
    if not labels:
        return {}
    return {"categories": tuple(next(iter(labels), None) for labels in categories)}


def _counts(question: QuestionTrials, n_categories: int) -> Sequence[int]:
    if question.counts is not None:
        return question.counts
    return [int(n) for n in np.bincount(question.trials, minlength=n_categories)]


def _columns(
    by_question: Sequence[Mapping[str, FloatArray]], questions: Sequence[QuestionTrials]
) -> dict[str, tuple[FloatArray, ...]]:
    columns: dict[str, tuple[FloatArray, ...]] = {}
    for name in dict.fromkeys(name for named in by_question for name in named):
        arrays = tuple(
            named.get(name, np.full(question.trials.size, np.nan))
            for named, question in zip(by_question, questions, strict=True)
        )
        if any(array.size and not np.isnan(array).all() for array in arrays):
            for array in arrays:
                array.setflags(write=False)
            columns[name] = arrays
    return columns


def floats(values: Sequence[Any]) -> FloatArray | None:
    """Return numbers, NaN for anything else; None if nothing is a number.

    Examples
    --------
    >>> floats([3, None, 0.5]).tolist()
    [3.0, nan, 0.5]
    >>> floats(["stop", None]) is None
    True
    """
    if not any(isinstance(value, (int, float)) for value in values):
        return None  # texts, as of why generation ended, are not converted one by one
    column = numbers(values)
    return None if np.isnan(column).all() else column
