"""The lines of a samples file: trials, graded, graded again, a metric or counts, and signals."""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import MappingProxyType
from typing import Any, Protocol

import numpy as np

from lm_eval_bayes._util.hashing import sha256_text
from lm_eval_bayes.errors import InvalidInputError
from lm_eval_bayes.rubric.signals import completion_limit, trial_signals
from lm_eval_bayes.rubric.verifier_prompt import THINK_END
from lm_eval_bayes.runs.partial_run import QuestionTrials, floats
from lm_eval_bayes.runs.provenance import LoggedTask, mapping
from lm_eval_bayes.runs.readers.protocol import NothingToCountError, Query, Regrade
from lm_eval_bayes.runs.task_run import GRADED, REGRADED, LoggedLine, LoggedTexts
from lm_eval_bayes.runs.verdicts import (
    TrialVerdict,
    Verdicts,
    read_verdicts,
    verdicts_path,
    verifier_inputs,
)
from lm_eval_bayes.stats.validation import MOST_TRIALS, FloatArray, IntArray, check_weights

#: Recorded of every trial, but not measurements of it.
_NO_MEASUREMENTS = frozenset({"trial", "seed"})

#: The row of the average score of a question over N trials.
_AVERAGE = re.compile(r"avg@([1-9]\d{0,11})")


@dataclass(frozen=True)
class LogLine:
    """One line of a samples file.

    Attributes
    ----------
    row : mapping
        Its content.
    text : str
        The text of the question.
    prompt : str
        The hash of the prompt.
    position : LoggedLine
        Where the line is.
    """

    row: Mapping[str, Any]
    text: str
    prompt: str
    position: LoggedLine


@dataclass(frozen=True)
class LoggedTrials:
    """The questions of a samples file.

    Attributes
    ----------
    questions : list of QuestionTrials
        In the order of the lines.
    metric : str
        What was counted.
    weights : tuple of float
        The score of each category.
    notes, signals_error, verifiers
        As in :class:`~lm_eval_bayes.runs.task_run.TaskRun`.
    """

    questions: list[QuestionTrials]
    metric: str
    weights: tuple[float, ...] = (0.0, 1.0)
    notes: tuple[str, ...] = ()
    signals_error: InvalidInputError | None = None
    verifiers: tuple[Mapping[str, Any], ...] = ()


class TrialCollector(Protocol):
    """Makes trials of the lines of a samples file."""

    def add(self, line: LogLine) -> None:
        """Add the question of a line."""

    def result(self) -> LoggedTrials:
        """Return the questions, after the last line."""


def collector_for(task: LoggedTask, first: Mapping[str, Any], query: Query) -> TrialCollector:
    """Return what makes trials of a samples file, judged by its first line.

    Parameters
    ----------
    task : LoggedTask
        The task of the file.
    first : mapping
        Its first line.
    query : Query
        What is read.
    """
    if query.regrade is not None:
        return RegradedTrials(task, query.argument, regrade=query.regrade)
    if "outcomes" in first:
        signals = None
        if query.signals == "all" or (query.signals == "recorded" and first.get("signals")):
            signals = SignalReader(
                task.samples, task.config, task.weights, query.argument, query.verdicts
            )
        return GradedTrials(task, query.argument, signals)
    average = average_metric(first)
    if average is not None:
        return LoggedCounts(task, query.argument, average)
    return LoggedMetric(task, query.argument, query.metric)


# -- tasks of this package -----------------------------------------------------------------------


@dataclass
class GradedTrials:
    """Trials of a task of this package, which logs the category of each.

    Attributes
    ----------
    task : LoggedTask
        The task.
    argument : str
        The name of the argument in an error.
    signals : SignalReader or None
        Reads the signals, where the query asks for them.
    """

    task: LoggedTask
    argument: str
    signals: SignalReader | None = None
    questions: list[QuestionTrials] = field(default_factory=list)

    def __post_init__(self) -> None:
        try:
            self.weights = tuple(check_weights(self.task.weights).tolist())
        except (InvalidInputError, TypeError):
            rule = f"tell the scores of the categories of task {self.task.task} in its results"
            got = self.task.settings.get("weights")
            raise InvalidInputError.of(self.argument, rule, got) from None

    def add(self, line: LogLine) -> None:
        """Add the question of a line, in which the outcome of an ungraded trial is null."""
        outcomes = line.row.get("outcomes")
        if not isinstance(outcomes, list):
            raise self._broken(line, "`outcomes` is no list")
        top = len(self.weights) - 1
        for outcome in outcomes:
            if outcome is not None and (type(outcome) is not int or not 0 <= outcome <= top):
                if not self.task.config:
                    rule = "lie beside its results file, which tells the score of each category"
                    raise InvalidInputError.of(self.argument, rule, self.task.samples.name)
                raise self._broken(line, f"outcome {outcome!r} is no category of 0..{top}")
        answers = line.row.get("answers")
        if answers is not None:
            answers = self._column(line, "answers", answers, len(outcomes))
            answers = tuple(None if answer is None else str(answer) for answer in answers)
        self.questions.append(
            QuestionTrials(
                id="",
                trials=np.array([-1 if k is None else k for k in outcomes], dtype=np.int64),
                text=line.text,
                prompt=line.prompt,
                answers=answers,
                signals={} if self.signals is None else self.signals.signals(line.row),
                **self.recorded(line, len(outcomes)),
            )
        )

    def recorded(self, line: LogLine, n_trials: int) -> dict[str, Any]:
        """Return what is logged of the trials besides their grades."""
        signals = line.row.get("signals")
        if signals is not None and not isinstance(signals, Mapping):
            raise self._broken(line, "`signals` holds no lists")
        columns = {
            name: self._column(line, name, values, n_trials)
            for name, values in (signals or {}).items()
        }
        numbers = columns.get("trial", [])
        if not all(type(number) is int and 0 <= number < 2**62 for number in numbers):
            numbers = []
        seeds = columns.get("seed")
        texts = generated_texts(line.row)
        digests = logged = None
        if texts is not None and len(texts) == n_trials:
            digests = np.array([hash(text) for text in texts], dtype=np.int64)
            logged = LoggedTexts.of_line(line.position, n_trials)
        measured = {
            name: floats(values) for name, values in columns.items() if name not in _NO_MEASUREMENTS
        }
        return {
            "numbers": np.array(numbers or range(n_trials), dtype=np.int64),
            "seeds": None if seeds is None else tuple(map(_seed, seeds)),
            "digests": digests,
            "doc_id": line.position.doc_id,
            "logged": logged,
            "measured": {name: column for name, column in measured.items() if column is not None},
        }

    def result(self) -> LoggedTrials:
        """Return the questions, with the scores that the task was configured with."""
        if self.signals is None:
            return LoggedTrials(self.questions, GRADED, self.weights)
        return LoggedTrials(
            self.questions,
            GRADED,
            self.weights,
            signals_error=self.signals.error,
            verifiers=self.signals.verifiers,
        )

    def _column(self, line: LogLine, name: str, values: object, n: int) -> list[Any]:
        if not isinstance(values, list):
            raise self._broken(line, f"`{name}` is no list")
        if len(values) != n:
            raise self._broken(line, f"{n} trials and {len(values)} `{name}`")
        return values

    def _broken(self, line: LogLine, reason: str) -> InvalidInputError:
        rule = f"log one outcome and signal per trial ({self.task.samples.name})"
        got = f"question {line.position.doc_id}: {reason}"
        return InvalidInputError.of(self.argument, rule, got)


@dataclass
class RegradedTrials(GradedTrials):
    """Trials whose texts are graded again, against the logged target.

    Attributes
    ----------
    regrade : callable
        Grades the texts of a question.
    """

    regrade: Regrade | None = None
    n_changed: int = 0

    def add(self, line: LogLine) -> None:
        """Add the question of a line; every text in it is a trial."""
        row, task = line.row, self.task.task
        texts, target = generated_texts(row), row.get("target")
        where = f"question {line.position.doc_id} of {self.task.samples.name}"
        if prompt_and_settings(row)[1] is None or texts is None:
            rule = f"hold generated texts of task {task} to be graded again"
            lacking = f"task {task}, which holds no generated texts to be graded again"
            raise NothingToCountError.of_task(self.argument, rule, where, lacking)
        if isinstance(target, (int, float)) and not isinstance(target, bool):
            target = str(target)
        if not isinstance(target, str) or not target.strip():
            rule = f"hold the right answers of task {task} (`target` in every line)"
            lacking = f"task {task}, which holds no right answers to grade again by"
            raise NothingToCountError.of_task(self.argument, rule, where, lacking)
        marker = mapping(self.task.config.get("metadata")).get("think_end_token")
        if self.regrade is None:
            raise InvalidInputError.of("regrade", "grade texts", self.regrade)
        grades = self.regrade(texts, target, marker if isinstance(marker, str) else None)
        outcomes = [int(right) for right, _ in grades]
        before = row.get("outcomes")
        if isinstance(before, list) and len(before) == len(outcomes) and len(self.weights) == 2:
            pairs = zip(before, outcomes, strict=True)
            self.n_changed += sum(old is not None and old != new for old, new in pairs)
        self.questions.append(
            QuestionTrials(
                id="",
                trials=np.array(outcomes, dtype=np.int64),
                text=line.text,
                prompt=line.prompt,
                answers=tuple(answer for _, answer in grades),
                **self.recorded(line, len(outcomes)),
            )
        )

    def result(self) -> LoggedTrials:
        """Return the questions, right or wrong."""
        notes = []
        if self.n_changed:
            notes.append(f"graded again: {self.n_changed:,} trials got another grade than before")
        if len(self.weights) > 2:
            unused = f"the task's own {len(self.weights)} categories were not used"
            notes.append(f"graded again as right or wrong: {unused}")
        return LoggedTrials(self.questions, REGRADED, notes=tuple(notes))


def _seed(value: object) -> int | None:
    return value if type(value) is int else None


# -- other tasks: one metric of zeros and ones ---------------------------------------------------


@dataclass
class LoggedMetric:
    """Trials of a task of the harness, one per question: a metric that is 0 or 1.

    Attributes
    ----------
    task : LoggedTask
        The task.
    argument : str
        The name of the argument in an error.
    metric : str or None
        The metric; None for the first that the task lists and that is 0 or 1.
    """

    task: LoggedTask
    argument: str
    metric: str | None
    questions: list[QuestionTrials] = field(default_factory=list)
    #: By metric, the outcome of every question, -1 for none; a metric with other values is removed.
    values: dict[str, list[int]] = field(default_factory=dict)
    logged: list[str] = field(default_factory=list)
    #: The most texts per question, which got one grade.
    n_texts: int = 0
    generated: bool = False

    def add(self, line: LogLine) -> None:
        """Add the question of a line."""
        row = line.row
        if not self.questions:
            self.logged = metric_names(row)
            self.values = {name: [] for name in self.logged}
        for name in list(self.values):
            value = right_or_wrong(row[name]) if name in row else None
            if value is None:
                del self.values[name]
            else:
                self.values[name].append(value)
        n_texts = len(generated_texts(row) or ())
        if prompt_and_settings(row)[1] is not None:
            self.generated = True
            self.n_texts = max(self.n_texts, n_texts)
        # its outcome is added after the last line, when it is known which metrics are 0 or 1
        self.questions.append(
            QuestionTrials(
                id="",
                trials=np.empty(0, dtype=np.int64),
                numbers=np.zeros(1, dtype=np.int64),
                text=line.text,
                prompt=line.prompt,
                answers=_filtered_answer(row),
                digests=np.array([hash(repr(row.get("resps")))], dtype=np.int64),
                doc_id=line.position.doc_id,
                logged=LoggedTexts.of_line(line.position, 1) if n_texts == 1 else None,
            )
        )

    def result(self) -> LoggedTrials:
        """Choose the metric, and add its outcome to every question.

        Raises
        ------
        InvalidInputError
            If there is no such metric.
        """
        graded = {name: v for name, v in self.values.items() if any(k >= 0 for k in v)}
        metric = self._choose(graded)
        questions = [
            _with_outcome(question, outcome)
            for question, outcome in zip(self.questions, graded[metric], strict=True)
        ]
        notes = []
        others = [name for name in graded if name != metric]
        if others and self.metric is None:
            choice = alternatives([metric, *others])
            notes.append(f"{metric} was counted; --metric chooses among {choice}")
        if self.n_texts > 1:
            notes.append(
                f"the task gave the {self.n_texts} texts of a question one grade, which was "
                "counted as one trial; --regrade grades each"
            )
        return LoggedTrials(questions, metric, notes=tuple(notes))

    def _choose(self, graded: Mapping[str, Any]) -> str:
        task = self.task.task
        if self.metric is not None:
            if self.metric not in graded:
                choice = f", {alternatives(graded)}" if graded else "; it has none"
                rule = f"be a metric of zeros and ones that task {task} logs{choice}"
                raise InvalidInputError.of("metric", rule, self.metric)
            return self.metric
        directions = mapping(mapping(self.task.results.get("higher_is_better")).get(task))
        candidates = [name for name in graded if directions.get(name) is not False]
        if not candidates:
            logs = ", ".join(self.logged) or "no metric"
            rule = f"log graded trials or a metric of zeros and ones of task {task}"
            rule += " (--regrade grades the texts)" if self.generated else ""
            lacking = f"task {task}, which logs no metric of zeros and ones ({logs})"
            raise NothingToCountError.of_task(self.argument, rule, logs, lacking)
        names = [entry.get("metric") for entry in self.task.metric_list]
        return next((name for name in names if name in candidates), candidates[0])


def _filtered_answer(row: Mapping[str, Any]) -> tuple[str | None] | None:
    """Return the answer that a filter extracted from the text; None where no filter did."""
    filtered = row.get("filtered_resps")
    if row.get("filter") in (None, "", "none"):
        return None
    if not isinstance(filtered, list) or len(filtered) != 1 or not isinstance(filtered[0], str):
        return (None,)
    return (filtered[0],)


def _with_outcome(question: QuestionTrials, outcome: int) -> QuestionTrials:
    trials: IntArray = np.array([outcome] if outcome >= 0 else [], dtype=np.int64)
    if not trials.size:
        answers = None if question.answers is None else ()
        return replace(question, numbers=trials, answers=answers, digests=None, logged=None)
    return replace(question, trials=trials)


def alternatives(names: Collection[str]) -> str:
    """Return names as a choice.

    Examples
    --------
    >>> alternatives(["acc", "acc_norm", "f1"]), alternatives(["acc"])
    ('acc, acc_norm or f1', 'acc')
    """
    listed = list(names)
    return " or ".join([", ".join(listed[:-1]), listed[-1]] if len(listed) > 1 else listed)


# -- other tasks: counts from the metric `bayes` -------------------------------------------------


def average_metric(row: Mapping[str, Any]) -> str | None:
    """Return the name of the average that the metric `bayes` logged; None where it did not.

    Examples
    --------
    >>> average_metric({"metrics": ["bayes@16", "avg@16"], "bayes@16": 0.5, "avg@16": 0.5})
    'avg@16'
    >>> average_metric({"metrics": ["avg@4"], "avg@4": 0.5}) is None
    True
    """
    names = metric_names(row)
    averages = [name for name in names if _AVERAGE.fullmatch(name)]
    return next((name for name in averages if name.replace("avg", "bayes") in names), None)


@dataclass
class LoggedCounts:
    """Counts of right trials, from the average score that the metric `bayes` logs.

    Attributes
    ----------
    task : LoggedTask
        The task.
    argument : str
        The name of the argument in an error.
    average : str
        The name of the average, "avg@N".
    """

    task: LoggedTask
    argument: str
    average: str
    questions: list[QuestionTrials] = field(default_factory=list)

    def __post_init__(self) -> None:
        entry = next((e for e in self.task.metric_list if e.get("metric") == "bayes"), {})
        weights = check_weights(entry.get("weights") or (0.0, 1.0)).tolist()
        if len(weights) != 2 or not weights[0] < weights[1]:
            rule = f"score a right answer above a wrong one in task {self.task.task}"
            raise InvalidInputError.of(self.argument, rule, weights)
        self.weights = (float(weights[0]), float(weights[1]))

    def add(self, line: LogLine) -> None:
        """Add the question of a line."""
        match, value = _AVERAGE.fullmatch(self.average), line.row.get(self.average)
        low, high = self.weights
        n = int(match[1]) if match is not None else 0
        right = -1.0
        if isinstance(value, (int, float)) and 0 < n <= MOST_TRIALS:
            right = n * (value - low) / (high - low)
        # a float keeps fifteen digits, so c of N trials is an integer but for rounding
        if not (-0.01 < right < n + 0.01) or abs(right - round(right)) > 0.01:
            rule = f"log the average score of {n} trials ({self.task.samples.name})"
            got = f"question {line.position.doc_id}: {self.average} = {value!r}"
            raise InvalidInputError.of(self.argument, rule, got)
        none = np.empty(0, dtype=np.int64)
        counts = (n - round(right), round(right))
        doc_id = line.position.doc_id
        self.questions.append(
            QuestionTrials("", none, none, line.text, line.prompt, counts=counts, doc_id=doc_id)
        )

    def result(self) -> LoggedTrials:
        """Return the questions with their counts."""
        note = (
            f"the metric bayes of task {self.task.task} logs how many trials were right and not "
            "which: what needs their order needs --regrade"
        )
        return LoggedTrials(self.questions, GRADED, self.weights, (note,))


#: Fields of the document of a question that hold its text; without one the prompt is the question.
_QUESTION_FIELDS = ("problem", "question", "Question", "query", "goal", "sentence")

#: The fields of a line besides its metrics.
NO_METRICS = frozenset(
    (
        *("doc_id", "doc", "target", "arguments", "resps", "filtered_resps", "filter", "metrics"),
        *("doc_hash", "prompt_hash", "target_hash", "outcomes", "answers", "lengths", "signals"),
        *("grading_error_notes",),
    )
)


# -- the fields of a line ------------------------------------------------------------------------


def document_hash(row: Mapping[str, Any]) -> str:
    """Return the hash of the document of a question, computed as by the harness if missing."""
    logged = row.get("doc_hash")
    if isinstance(logged, str) and logged:
        return logged
    return sha256_text(json.dumps(row.get("doc"), indent=2, ensure_ascii=False))


def prompt_and_settings(row: Mapping[str, Any]) -> tuple[str, dict[str, Any] | None]:
    """Return the prompt of a question, and the generation settings that were sent with it.

    The settings are None where nothing was generated.

    Examples
    --------
    >>> named = {"gen_args_0": {"arg_0": "1+1=", "arg_1": {"until": []}}}
    >>> prompt_and_settings({"arguments": named})
    ('1+1=', {'until': []})
    >>> prompt_and_settings({"arguments": [["1+1=", " 2"], ["1+1=", " 3"]]})
    ('1+1=', None)
    """
    arguments = row.get("arguments")
    first: Any = None
    if isinstance(arguments, Mapping):
        named = arguments.get("gen_args_0")
        first = [named.get("arg_0"), named.get("arg_1")] if isinstance(named, Mapping) else None
    elif isinstance(arguments, list) and arguments:
        first = arguments[0]
    if not isinstance(first, list) or not first:
        return "", None
    prompt = first[0] if isinstance(first[0], str) else ""
    sent = first[1] if len(first) > 1 and isinstance(first[1], dict) else None
    return prompt, sent


def question_text(row: Mapping[str, Any], prompt: str) -> str:
    """Return the text of the question; of a document without one, the prompt."""
    doc = row.get("doc")
    if isinstance(doc, Mapping):
        for name in _QUESTION_FIELDS:
            text = doc.get(name)
            if isinstance(text, str) and text.strip():
                return text.strip()
    return prompt.strip()


def prompt_hash(row: Mapping[str, Any], prompt: str) -> str:
    """Return the hash of the prompt of a question, "" where there is none."""
    logged = row.get("prompt_hash")
    if isinstance(logged, str):
        return logged
    return sha256_text(prompt) if prompt else ""


def generated_texts(row: Mapping[str, Any]) -> list[str] | None:
    """Return the texts that were generated for a question, None where there are none."""
    responses = row.get("resps")
    if (
        not isinstance(responses, list)
        or len(responses) != 1
        or not isinstance(responses[0], list)
        or not all(isinstance(text, str) for text in responses[0])
    ):
        return None
    return responses[0]


def metric_names(row: Mapping[str, Any]) -> list[str]:
    """Return the names of the metrics of a line; older harnesses do not list them."""
    listed = row.get("metrics")
    if isinstance(listed, list):
        return [name for name in listed if isinstance(name, str) and name in row]
    return [name for name in row if name not in NO_METRICS]


def right_or_wrong(value: object) -> int | None:
    """Return 0 or 1, -1 for an ungraded trial, None for any other value.

    Examples
    --------
    >>> [right_or_wrong(value) for value in (True, 0.0, None, 0.5, "1")]
    [1, 0, -1, None, None]
    """
    if value is None:
        return -1
    if isinstance(value, (bool, int, float)) and value in (0, 1):
        return int(value)
    return None


# -- signals -------------------------------------------------------------------------------------

#: By a label of a verdicts file, the signal that is its probability.
VERDICTS = MappingProxyType({"a": "verifier_a", "b": "verifier_b", "c": "verifier_c"})

#: What a rubric task of this package logs of every trial, besides what a model recorded.
_LOGGED = frozenset({"outcome", "has_box", "text_loop"})


@dataclass
class SignalReader:
    """Reads the signals of a samples file, line by line.

    The texts give has_box and text_loop, the grades is_correct, the log of a recording model the
    rest. Verdicts are those of the `verdicts_*.jsonl` beside the samples: they belong to the
    responses of this file by their index, and to texts by their hash.

    Attributes
    ----------
    samples : Path
        The samples file.
    config : mapping
        The configuration of the task.
    weights : sequence of float
        The score of each category.
    argument : str
        What to call the run in an error.
    use_verdicts : bool
        Whether the verdicts of a verifier are read.
    error : InvalidInputError or None
        Why the signals of this file cannot be read; nothing more is read then.
    verdicts : Verdicts or None
        The verdicts on this file.

    Raises
    ------
    VerdictsError
        If the file of verdicts cannot be read.
    """

    samples: Path
    config: Mapping[str, Any]
    weights: Sequence[float]
    argument: str
    use_verdicts: bool = True
    error: InvalidInputError | None = field(default=None, init=False)
    verdicts: Verdicts | None = field(default=None, init=False)

    def __post_init__(self) -> None:
        path = verdicts_path(self.samples)
        if not self.use_verdicts or not path.is_file():
            return
        self.verdicts = read_verdicts(path)
        judged = self.verdicts.header.samples
        if judged != self.samples.name:
            rule = f"have verdicts on {self.samples} in {path}"
            self.error = InvalidInputError.of(self.argument, rule, f"verdicts on {judged}")

    @property
    def verifiers(self) -> tuple[Mapping[str, Any], ...]:
        """The verifier that has judged this file, if one has."""
        return () if self.verdicts is None else (self.verdicts.header.verifier,)

    def signals(self, row: Mapping[str, Any]) -> dict[str, FloatArray]:
        """Return the signals of one question.

        Parameters
        ----------
        row : mapping
            A line of the samples file.

        Returns
        -------
        dict of str to array, shape (N,)
            By name; NaN where a trial lacks a signal. Empty once there was an error.

        Raises
        ------
        ChangedTrialError
            If a verdict is on another text than the one that is logged.
        """
        if self.error is not None:
            return {}
        try:
            columns = self._columns(row) | self._verdict_columns(row)
        except InvalidInputError as error:
            self.error = error
            return {}
        arrays = {name: floats(values) for name, values in columns.items()}
        return {name: array for name, array in arrays.items() if array is not None}

    def _columns(self, row: Mapping[str, Any]) -> dict[str, Sequence[Any]]:
        responses = row.get("resps")
        texts = responses[0] if isinstance(responses, list) and responses else None
        if not isinstance(texts, list) or not all(isinstance(text, str) for text in texts):
            raise self._broken(row, "`resps` holds no list of texts")
        recorded = row.get("signals") or {}
        if not isinstance(recorded, Mapping) or not all(
            isinstance(values, list) for values in recorded.values()
        ):
            raise self._broken(row, "`signals` holds no lists")
        # verdicts count only from their own file, which holds the hashes of the texts
        recorded = {name: v for name, v in recorded.items() if name not in VERDICTS.values()}
        if recorded.keys() >= _LOGGED:
            # a rubric task computed them already, from the texts before they were cut off
            for name, values in recorded.items():
                if len(values) != len(texts):
                    raise self._broken(row, f"{name} has {len(values)} values")
            return recorded
        metadata = self.config.get("metadata")
        token = metadata.get("think_end_token") if isinstance(metadata, Mapping) else None
        grades: list[Any] = [np.nan if grade is None else grade for grade in row["outcomes"]]
        try:
            computed = trial_signals(
                texts,
                grades,
                recorded,
                binary=is_right_or_wrong(self.weights),
                max_gen_toks=_sent_limit(row)
                or completion_limit(self.config.get("generation_kwargs")),
                think_end_token=token if isinstance(token, str) else None,
            )
        except (InvalidInputError, TypeError, ValueError) as error:
            raise self._broken(row, str(error)) from None
        return dict(computed)

    def _verdict_columns(self, row: Mapping[str, Any]) -> dict[str, Sequence[Any]]:
        if self.verdicts is None:
            return {}
        think_end = str(self.verdicts.header.verifier.get("think_end", THINK_END))
        found: list[TrialVerdict | None] = [
            self.verdicts.verdict_of(trial.doc_id, trial.trial, trial.text)
            for trial in verifier_inputs(row, self.samples.name, think_end)
        ]
        return {
            name: [None if verdict is None else getattr(verdict, label) for verdict in found]
            for label, name in VERDICTS.items()
        }

    def _broken(self, row: Mapping[str, Any], why: str) -> InvalidInputError:
        rule = f"have one text, grade and signal per trial ({self.samples})"
        return InvalidInputError.of(self.argument, rule, f"question {row['doc_id']}: {why}")


def is_right_or_wrong(weights: Sequence[float]) -> bool:
    """Return whether category 1 means right and 0 wrong.

    Examples
    --------
    >>> is_right_or_wrong((0.0, 1.0)), is_right_or_wrong((0.0, 0.5, 1.0))
    (True, False)
    """
    return len(weights) == 2 and weights[0] < weights[1]


def _sent_limit(row: Mapping[str, Any]) -> int | None:
    arguments = row.get("arguments")
    first = arguments.get("gen_args_0") if isinstance(arguments, Mapping) else None
    return completion_limit(first.get("arg_1")) if isinstance(first, Mapping) else None
