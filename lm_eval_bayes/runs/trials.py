"""The trials of one model on one task as one table, a row per trial, before files are merged.

A reader yields a :class:`PartialRun` per model and task: its questions, the table of their trials,
and what says which files belong together. Merging adds tables. What commands read,
:class:`~lm_eval_bayes.runs.task_run.TaskRun`, is a view of the merged table, question by question.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise
from pathlib import Path
from sys import intern
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from lm_eval_bayes._util.text import join_words, one_line, plural
from lm_eval_bayes.errors import InvalidInputError
from lm_eval_bayes.rubric.signals import numbers
from lm_eval_bayes.runs.logged_texts import LoggedTexts
from lm_eval_bayes.runs.task_run import CUT_OFF, EMPTY, GRADED, Provenance, TaskRun
from lm_eval_bayes.stats import FloatArray, IntArray

#: The numbers of trials that are numbered within a run are those of the run times this, and from
#: `UNNUMBERED` on those of trials that the log does not number.
PER_RUN = 2**20
UNNUMBERED = PER_RUN // 2

#: A file that counts more trials is refused, as they would fill the memory.
MOST_COUNTED = 5_000_000

#: Texts or numbers, one per trial, None where there is none.
Column = npt.NDArray[np.object_]


#: In the place of the hash of a prompt, that a question was asked in several ways.
SEVERAL = "several"


@dataclass(frozen=True)
class Question:
    """A question of a run.

    Attributes
    ----------
    id : str
        The identifier by which runs of several models match questions.
    text, prompt : str
        The text of the question, and the hash of its prompt; "" where there is none, and "several"
        for prompts that differ between settings.
    doc_id : int or None
        The number of the question in the task.
    cluster : str or None
        The cluster of the question, such as its contest; None where none is known.
    categories : tuple of str
        The distinct categories of the question in the files, such as its subject: more than one
        where they contradict each other.
    """

    id: str
    text: str = ""
    prompt: str = ""
    doc_id: int | None = None
    cluster: str | None = None
    categories: tuple[str, ...] = ()

    def joined(self, other: Question) -> Question:
        """Return the question with what another file says of it, where this one says nothing."""
        labels = {self.cluster, other.cluster} - {None}
        if len(labels) > 1:
            rule = "put a question into the same cluster in all files of a run"
            got = f"question {self.id} in {' and in '.join(sorted(filter(None, labels)))}"
            raise InvalidInputError.of("RUN", "mismatch", rule, got)
        prompts = {self.prompt, other.prompt} - {""}
        return replace(
            self,
            text=self.text or other.text,
            prompt=prompts.pop() if len(prompts) == 1 else SEVERAL if prompts else "",
            doc_id=other.doc_id if self.doc_id is None else self.doc_id,
            cluster=other.cluster if self.cluster is None else self.cluster,
            categories=tuple(dict.fromkeys((*self.categories, *other.categories))),
        )


#: Columns that are kept where all parts of a table have them.
_WHOLE = ("question", "category", "number", "score", "answer", "digest")


@dataclass(frozen=True, eq=False)
class Trials:
    """A table of T trials.

    Attributes
    ----------
    question : array of int, shape (T,)
        The number of the trial's question.
    category : array of int, shape (T,)
        -1 for a trial that was not graded.
    number : array of int, shape (T,)
        The number of the trial among those of its question, from 0.
    score : array of float, shape (T,), or None
        Where trials have scores between two bounds; their categories are then 0.
    answer : array of str or None, shape (T,), or None
        The answer that was extracted; None where none is logged.
    digest : array of int, shape (T,), or None
        Hashes of the texts, valid within this process; None where there are no texts.
    seed : array of int or None, shape (T,), or None
        The seeds; None where there are none.
    remark : array of str or None, shape (T,), or None
        What to say of how a trial counts, such as "counted as wrong"; trials of one remark are
        counted in a note of the run.
    setting : array of str or None, shape (T,), or None
        In which setting the model was run, by a label; None where the log has none.
    logged : LoggedTexts or None
        Where the texts of the trials are logged.
    measured, signals : mapping
        By name, one float per trial, NaN where it is missing. Signals are read if asked for.
    """

    question: IntArray
    category: IntArray
    number: IntArray
    score: FloatArray | None = None
    answer: Column | None = None
    digest: IntArray | None = None
    seed: Column | None = None
    remark: Column | None = None
    setting: Column | None = None
    logged: LoggedTexts | None = None
    measured: Mapping[str, FloatArray] = field(default_factory=dict)
    signals: Mapping[str, FloatArray] = field(default_factory=dict)

    @classmethod
    def of_question(
        cls,
        categories: Sequence[int] | IntArray,
        numbers: Sequence[int] | IntArray | None = None,
        *,
        answers: Sequence[str | None] | None = None,
        seeds: Sequence[int | None] | None = None,
        **more: Any,
    ) -> Trials:
        """Return the trials of one question, by default numbered from 0.

        Examples
        --------
        >>> Trials.of_question([1, 0]).number.tolist()
        [0, 1]
        """
        category = np.asarray(categories, dtype=np.int64)
        number = np.arange(category.size) if numbers is None else np.asarray(numbers, np.int64)
        return cls(
            np.zeros(category.size, dtype=np.int64),
            category,
            number,
            answer=None if answers is None else objects([a and intern(a) for a in answers]),
            seed=None if seeds is None else objects(seeds),
            **more,
        )

    @classmethod
    def stacked(cls, parts: Sequence[Trials]) -> Trials:
        """Return the trials of several questions, a part each, as one table."""
        sizes = [part.category.size for part in parts]
        question = np.repeat(np.arange(len(parts)), sizes)
        return replace(cls.joined(parts), question=question)

    @classmethod
    def joined(cls, parts: Sequence[Trials]) -> Trials:
        """Return the rows of all parts.

        Scores, answers and digests are kept where all parts have them, as a part without is not
        known to have none; of the other columns what is missing is filled.
        """
        sizes = [part.category.size for part in parts]
        columns: dict[str, Any] = {}
        for name in (*_WHOLE, "seed", "remark", "setting"):
            of_parts = [getattr(part, name) for part in parts]
            if (all if name in _WHOLE else any)(column is not None for column in of_parts):
                columns[name] = _filled(of_parts, sizes, None)
        if any(part.logged is not None for part in parts):
            both = zip(parts, sizes, strict=True)
            texts = [part.logged or LoggedTexts.at([-1] * n) for part, n in both]
            columns["logged"] = LoggedTexts.joined(texts)
        for name in ("measured", "signals"):
            by_part: list[Mapping[str, FloatArray]] = [getattr(part, name) for part in parts]
            keys = dict.fromkeys(key for named in by_part for key in named)
            filled = ((k, _filled([part.get(k) for part in by_part], sizes, np.nan)) for k in keys)
            columns[name] = dict(filled)
        return cls(**columns)

    @property
    def is_graded(self) -> npt.NDArray[np.bool_]:
        """Whether each trial has a grade, shape (T,)."""
        return self.category >= 0

    def graded(self) -> Trials:
        """Return the trials that have a grade."""
        return self if self.is_graded.all() else self.take(self.is_graded)

    def in_setting(self, label: str) -> Trials:
        """Return the trials, those without a label of a setting with this one."""
        column = [None] * self.category.size if self.setting is None else self.setting.tolist()
        return replace(self, setting=objects([label if s is None else s for s in column]))

    def take(self, rows: npt.NDArray[Any]) -> Trials:
        """Return some rows, by their indices or as a mask."""
        columns: dict[str, Any] = {}
        for name, column in vars(self).items():
            if isinstance(column, Mapping):
                columns[name] = {key: values[rows] for key, values in column.items()}
            elif column is not None:
                columns[name] = column[rows]
        return Trials(**columns)


def _filled(parts: Sequence[npt.NDArray[Any] | None], sizes: Sequence[int], missing: Any) -> Any:
    """Return the rows of all parts, where one is missing this value in every row."""
    both = zip(parts, sizes, strict=True)
    return np.concatenate([np.full(n, missing) if part is None else part for part, n in both])


def objects(values: Sequence[Any]) -> Column:
    """Return values of any kind as a column."""
    column = np.empty(len(values), dtype=object)
    column[:] = values
    return column


#: A question with its trials.
Part: TypeAlias = tuple[Question, Trials]


@dataclass(frozen=True, eq=False)
class PartialRun:
    """The trials of one model on one task, from one file or from several that were merged.

    Attributes
    ----------
    model, task : str
        Names.
    sources : tuple of str
        The files that they were read from.
    questions : tuple of Question
        In their order.
    trials : Trials
        Ordered by question.
    ordered : bool
        Whether it is known which trial has which outcome; False where only counts are known. The
        trials of a question then have a hash of its counts, or of their texts, as digests.
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
    by_line : bool
        Whether questions are identified by the numbers of their lines, for want of ids and texts.
    path : int
        The index of the path that it was read from, among those of the query.
    label : str
        The label that the user gives the setting of its trials; "" for none.
    """

    model: str
    task: str
    sources: tuple[str, ...]
    questions: tuple[Question, ...]
    trials: Trials = field(default_factory=lambda: Trials.of_question([]))
    ordered: bool = True
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
    by_line: bool = False
    path: int = 0
    label: str = ""
    signals_error: InvalidInputError | None = None
    verifiers: tuple[Mapping[str, Any], ...] = ()
    threshold: float | None = None

    @property
    def source(self) -> str:
        """The first of the files."""
        return self.sources[0]

    @property
    def n_trials(self) -> int:
        """The number of graded trials."""
        return int(self.trials.is_graded.sum())

    def table(self, numbers: Mapping[str, int]) -> Trials:
        """Return the trials with these numbers of their questions by id, -1 for no question."""
        codes = np.array([numbers.get(q.id, -1) for q in self.questions], dtype=np.int64)
        return replace(self.trials, question=codes[self.trials.question])

    @property
    def scored(self) -> bool:
        """Whether trials have scores between two bounds."""
        return self.trials.score is not None

    @property
    def ids(self) -> dict[str, int]:
        """The numbers of the questions by their ids."""
        return {question.id: number for number, question in enumerate(self.questions)}


def with_scores(partial: PartialRun) -> PartialRun:
    """Return a run of right and wrong trials as one of scores 1 and 0; others as they are."""
    trials = partial.trials
    if partial.scored or partial.weights != (0.0, 1.0):
        return partial
    score = np.where(trials.is_graded, trials.category.astype(np.float64), np.nan)
    category = np.minimum(trials.category, 0)
    return replace(partial, trials=replace(trials, category=category, score=score))


#: The attributes that a merged run has in common with its partial runs.
_OF_A_RUN = ["sources", "metric", "filter", "provenance", "signals_error", "verifiers", "threshold"]


def task_run_of(partial: PartialRun, name: str) -> TaskRun:
    """Return merged trials in the form that commands read; `name` is that of the model."""
    questions, weights = partial.questions, partial.weights
    ids = [question.id for question in questions]
    clusters = _of_every(question.cluster for question in questions)
    categories, on_categories = _categories(questions)
    notes = [*partial.notes, *on_categories]
    n_clustered = sum(question.cluster is not None for question in questions)
    if 0 < n_clustered < len(questions):
        some = f"only {n_clustered} of {len(questions)} questions have a cluster"
        notes.append(f"{some}: they were taken as independent")
    prompts = tuple(question.prompt for question in questions)
    logged, trials = partial.trials, partial.trials.graded()
    notes += _remarks(logged)
    of_logged, of_graded = (_Views(table.question, len(questions)) for table in (logged, trials))
    answers = _tuples(trials.answer, of_graded)
    # without an answer the task extracts none, and maj@k has no vote to count
    if answers and _are_right_answers(answers, of_graded(trials.category)):
        reason = "right and wrong trials of a question have the same one"
        notes.append(f"the answers are left out: {reason}")
        answers = None
    if trials.score is not None and clusters:
        notes.append("clusters are not used for scores: the questions were taken as independent")
    for column, what in ((CUT_OFF, "were cut off at the limit of tokens"), (EMPTY, "are empty")):
        if column in trials.measured:
            share = np.nansum(trials.measured[column]) / trials.category.size
            notes.append(f"{share:.2%} of the responses {what}")
    attributes: dict[str, Any] = {
        **{attribute: getattr(partial, attribute) for attribute in _OF_A_RUN},
        "questions": tuple(question.text for question in questions),
        "doc_ids": _of_every(question.doc_id for question in questions),
        "categories": categories,
        "prompt_hashes": prompts if any(prompts) else None,
        "texts": None if logged.logged is None else of_logged(logged.logged),
        "is_graded": of_logged(logged.is_graded),
        "answers": answers,
        "seeds": _tuples(trials.seed, of_graded),
        "measured": _with_values(trials.measured, of_graded),
        "signals": _with_values(logged.signals, of_logged),
        "notes": tuple(notes),
        **_settings(trials.setting, of_graded),
    }
    if trials.score is not None:
        scores, bounds = of_graded(trials.score), (weights[0], weights[1])
        return TaskRun.from_scores(name, partial.task, scores, ids, bounds, **attributes)
    run = TaskRun.from_trials(
        name, partial.task, of_graded(trials.category), ids, weights, clusters, **attributes
    )
    return run if partial.ordered else replace(run, trials=None, answers=None)


def _remarks(trials: Trials) -> list[str]:
    """Return of how many trials each remark is, and how many have no grade."""
    remarks = Counter([] if trials.remark is None else filter(None, trials.remark.tolist()))
    notes = [f"{plural(n, 'trial')} {remark}" for remark, n in remarks.items()]
    if n_ungraded := int((~trials.is_graded).sum()):  # some of which have remarks
        total = "in all " if notes and n_ungraded > 1 else ""
        notes.append(f"{total}{plural(n_ungraded, 'trial')} without a score left out")
    return notes


def _of_every(values: Iterable[Any]) -> tuple[Any, ...] | None:
    """Return a value per question; None unless all have one."""
    column = tuple(values)
    return None if None in column else column


class _Views:
    """The parts of a column, one per question, of a table that is ordered by question."""

    def __init__(self, question: IntArray, n_questions: int) -> None:
        ends = np.searchsorted(question, np.arange(n_questions + 1)).tolist()
        self.parts = [slice(*of_question) for of_question in pairwise(ends)]

    def __call__(self, column: Any) -> tuple[Any, ...]:
        return tuple(column[part] for part in self.parts)


def _tuples(column: Column | None, views: _Views) -> tuple[tuple[Any, ...], ...] | None:
    """Return a column by question; None where it holds nothing."""
    if column is None or not (column != np.array(None)).any():
        return None
    return tuple(tuple(part.tolist()) for part in views(column))


def _settings(column: Column | None, views: _Views) -> dict[str, Any]:
    """Return the labels of the settings, and the setting of every trial; none of one setting."""
    labels = labels_of(column)
    if column is None or len(labels) < 2:
        return {}
    codes = {label: code for code, label in enumerate(labels)}
    setting = np.array([codes[label] for label in column.tolist()], dtype=np.int64)
    setting.setflags(write=False)
    return {"settings": tuple(labels), "setting": views(setting)}


def labels_of(column: Column | None) -> list[str]:
    """Return the labels of settings in their order; none where there is no column.

    Examples
    --------
    >>> labels_of(objects(["day10", "day2", "day10"]))
    ['day2', 'day10']
    """
    return sorted(set() if column is None else {*column.tolist()}, key=_with_numbers)


def _with_numbers(text: str) -> list[tuple[int, str]]:
    """Return what sorts texts with numbers in them by these, as "day2" before "day10"."""
    return [(len(part) if part.isdecimal() else 0, part) for part in re.split(r"(\d+)", text)]


def _with_values(
    columns: Mapping[str, FloatArray], views: _Views
) -> dict[str, tuple[FloatArray, ...]]:
    """Return the columns that have a number, by question."""
    filled = {name: column for name, column in columns.items() if not np.isnan(column).all()}
    for column in filled.values():
        column.setflags(write=False)
    return {name: views(column) for name, column in filled.items()}


def _are_right_answers(
    answers: Sequence[Sequence[str | None]], categories: Sequence[IntArray]
) -> bool:
    """Return whether the answers are those to the questions: alike in right and wrong trials."""
    constant = all(len(set(of_question)) < 2 for of_question in answers)
    return constant and any(np.unique(category).size > 1 for category in categories)


def _categories(questions: Sequence[Question]) -> tuple[tuple[str | None, ...] | None, list[str]]:
    """Return the categories of the questions, None where there are none; and a note on why not."""
    labels = {label for question in questions for label in question.categories}
    for question in questions:
        if len(question.categories) > 1:
            several = [repr(one_line(label, 40)) for label in question.categories[:3]]
            where = f"{one_line(question.id, 40)} is in {join_words(several)}"
            return None, [f"the categories of the questions are left out: {where}"]
    if len(labels) == len(questions) > 1:
        return None, ["the categories of the questions are left out: each has one of its own"]
    of_questions = tuple(next(iter(question.categories), None) for question in questions)
    return (of_questions if labels else None), []


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
    return numbers(values)


def endings(texts: Iterable[str], reasons: Iterable[object]) -> dict[str, FloatArray]:
    """Return which trials were cut off at the limit of tokens, and which are empty, if any.

    Examples
    --------
    >>> {name: column.tolist() for name, column in endings(["a", "b"], ["length", "stop"]).items()}
    {'cut_off': [1.0, 0.0]}
    """
    columns = {CUT_OFF: [reason == "length" for reason in reasons]}
    columns[EMPTY] = [not text.strip() for text in texts]
    return {name: np.array(flags, np.float64) for name, flags in columns.items() if any(flags)}


def counted_trials(wrong: int, right: int, logged: LoggedTexts | None = None) -> Trials:
    """Return the trials of a question of which only the counts are known.

    Examples
    --------
    >>> counted_trials(1, 2).category.tolist()
    [0, 1, 1]
    """
    category = np.repeat([0, 1], [wrong, right])
    digest = np.full(category.size, hash((wrong, right)), dtype=np.int64)
    return Trials.of_question(category, digest=digest, logged=logged)


def questions_of(parts: Iterable[Part]) -> tuple[tuple[Question, ...], Trials]:
    """Return questions and the table of their trials."""
    questions, trials = zip(*parts, strict=True)
    return questions, Trials.stacked(trials)
