"""The trials of a samples file: graded, graded again, a metric or counts, with their signals."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from types import MappingProxyType
from typing import Any

import numpy as np

from lm_eval_bayes.errors import InvalidInputError
from lm_eval_bayes.rubric.answers import THINK_END
from lm_eval_bayes.rubric.signals import completion_limit, trial_signals
from lm_eval_bayes.runs.log_fields import (
    document_hash,
    generated_texts,
    prompt_and_settings,
    prompt_hash,
    question_text,
)
from lm_eval_bayes.runs.partial_run import QuestionTrials, floats
from lm_eval_bayes.runs.provenance import LoggedTask, mapping
from lm_eval_bayes.runs.readers.protocol import NothingToCountError, Query, Regrade
from lm_eval_bayes.runs.task_run import GRADED, REGRADED, LoggedLine, LoggedTexts
from lm_eval_bayes.runs.verdicts import (
    Verdicts,
    case_hash,
    read_verdicts,
    verdicts_path,
    verifier_inputs,
)
from lm_eval_bayes.stats.validation import MOST_TRIALS, FloatArray, check_weights

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
    position : LoggedLine
        Where the line is.
    prompt : str
        The prompt of the question.
    settings : mapping or None
        The generation settings that were sent with it; None where nothing was generated.
    cluster : str or None
        The cluster of the question; None where it is not known.
    """

    row: Mapping[str, Any]
    position: LoggedLine
    prompt: str
    settings: Mapping[str, Any] | None
    cluster: str | None = None

    @classmethod
    def of(
        cls, row: Mapping[str, Any], position: LoggedLine, cluster: str | None = None
    ) -> LogLine:
        """Return a line that was read."""
        return cls(row, position, *prompt_and_settings(row), cluster)

    @property
    def doc_id(self) -> int:
        """The number of the question."""
        return self.position.doc_id

    @property
    def file_name(self) -> str:
        """The name of the samples file."""
        return Path(self.position.file).name

    def question(self, trials: Sequence[int], **more: Any) -> QuestionTrials:
        """Return the question with the categories of its trials, identified by its document."""
        return QuestionTrials(
            id=document_hash(self.row),
            trials=np.array(trials, dtype=np.int64),
            text=question_text(self.row, self.prompt),
            prompt=prompt_hash(self.row, self.prompt),
            doc_id=self.doc_id,
            cluster=self.cluster,
            **more,
        )


@dataclass(frozen=True)
class LoggedTrials:
    """The questions of a samples file.

    Attributes
    ----------
    questions : list of QuestionTrials
        In the order of the lines, each with the hash of its document as id.
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


def logged_trials(
    task: LoggedTask, first: LogLine, lines: Iterable[LogLine], query: Query
) -> LoggedTrials:
    """Read the trials of a samples file.

    Parameters
    ----------
    task : LoggedTask
        The task of the file.
    first : LogLine
        The first line, which shows what the task logs.
    lines : iterable of LogLine
        All lines.
    query : Query
        What is read.

    Raises
    ------
    NothingToCountError
        If the task logs nothing that trials can be counted by.
    InvalidInputError
        If a line is broken.
    """
    if query.regrade is not None:
        return _regraded(task, lines, query, query.regrade)
    if "outcomes" in first.row:
        return _graded(task, first, lines, query)
    average = average_metric(first.row)
    if average is not None:
        return _counted(task, lines, query, average)
    return _of_metric(task, first, lines, query)


# -- tasks of this package -----------------------------------------------------------------------


def _graded(
    task: LoggedTask, first: LogLine, lines: Iterable[LogLine], query: Query
) -> LoggedTrials:
    """Read the categories that a task of this package logs; that of an ungraded trial is null."""
    weights, signals = _task_weights(task, query), None
    if query.signals == "all" or (query.signals == "recorded" and first.row.get("signals")):
        signals = SignalReader(task, query)
    questions = []
    for line in lines:
        outcomes = line.row.get("outcomes")
        if not isinstance(outcomes, list):
            raise _broken(line, query, "`outcomes` is no list")
        top = len(weights) - 1
        for outcome in outcomes:
            if outcome is not None and (type(outcome) is not int or not 0 <= outcome <= top):
                if not task.config:
                    rule = "lie beside its results file, which tells the score of each category"
                    raise InvalidInputError.of(query.argument, rule, line.file_name)
                raise _broken(line, query, f"outcome {outcome!r} is no category of 0..{top}")
        columns = _recorded_columns(line, query, len(outcomes))
        answers = line.row.get("answers")
        if answers is not None:
            answers = _column(line, query, "answers", answers, len(outcomes))
            answers = tuple(None if answer is None else str(answer) for answer in answers)
        questions.append(
            line.question(
                [-1 if outcome is None else outcome for outcome in outcomes],
                answers=answers,
                signals={} if signals is None else signals.signals(line, columns),
                **_recorded(line, columns, len(outcomes)),
            )
        )
    if signals is None:
        return LoggedTrials(questions, GRADED, weights)
    return LoggedTrials(
        questions, GRADED, weights, signals_error=signals.error, verifiers=signals.verifiers
    )


def _regraded(
    task: LoggedTask, lines: Iterable[LogLine], query: Query, regrade: Regrade
) -> LoggedTrials:
    """Grade the texts again, against the logged target; every text is a trial."""
    weights = _task_weights(task, query)
    marker = mapping(task.config.get("metadata")).get("think_end_token")
    questions, n_changed = [], 0
    for line in lines:
        texts, target = generated_texts(line.row), line.row.get("target")
        if isinstance(target, (int, float)) and not isinstance(target, bool):
            target = str(target)
        where = f"question {line.doc_id} of {line.file_name}"
        if line.settings is None or texts is None:
            rule = f"hold generated texts of task {task.task} to be graded again"
            lacking = f"task {task.task}, which holds no generated texts to be graded again"
            raise NothingToCountError.of_task(query.argument, rule, where, lacking)
        if not isinstance(target, str) or not target.strip():
            rule = f"hold the right answers of task {task.task} (`target` in every line)"
            lacking = f"task {task.task}, which holds no right answers to grade again by"
            raise NothingToCountError.of_task(query.argument, rule, where, lacking)
        grades = regrade(texts, target, marker if isinstance(marker, str) else None)
        outcomes, before = [int(right) for right, _ in grades], line.row.get("outcomes")
        if isinstance(before, list) and len(before) == len(outcomes) and len(weights) == 2:
            pairs = zip(before, outcomes, strict=True)
            n_changed += sum(old is not None and old != new for old, new in pairs)
        columns = _recorded_columns(line, query, len(outcomes))
        recorded = _recorded(line, columns, len(outcomes))
        answers = tuple(answer for _, answer in grades)
        questions.append(line.question(outcomes, answers=answers, **recorded))
    notes = []
    if n_changed:
        notes.append(f"graded again: {n_changed:,} trials got another grade than before")
    if len(weights) > 2:
        unused = f"the task's own {len(weights)} categories were not used"
        notes.append(f"graded again as right or wrong: {unused}")
    return LoggedTrials(questions, REGRADED, notes=tuple(notes))


def _task_weights(task: LoggedTask, query: Query) -> tuple[float, ...]:
    try:
        return tuple(check_weights(task.weights).tolist())
    except (InvalidInputError, TypeError):
        rule = f"tell the scores of the categories of task {task.task} in its results"
        got = task.settings.get("weights")
        raise InvalidInputError.of(query.argument, rule, got) from None


def _recorded_columns(line: LogLine, query: Query, n_trials: int) -> dict[str, list[Any]]:
    """Return what a model recorded of the trials, by name."""
    signals = line.row.get("signals")
    if signals is not None and not isinstance(signals, Mapping):
        raise _broken(line, query, "`signals` holds no lists")
    return {
        name: _column(line, query, name, values, n_trials)
        for name, values in (signals or {}).items()
    }


def _recorded(line: LogLine, columns: Mapping[str, Sequence[Any]], n_trials: int) -> dict[str, Any]:
    """Return the attributes of a question that follow from its texts and recorded columns."""
    numbers = columns.get("trial", ())
    if not all(type(number) is int and 0 <= number < 2**62 for number in numbers):
        numbers = ()
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
        "seeds": None if seeds is None else tuple(s if type(s) is int else None for s in seeds),
        "digests": digests,
        "logged": logged,
        "measured": {name: column for name, column in measured.items() if column is not None},
    }


def _column(line: LogLine, query: Query, name: str, values: object, n: int) -> list[Any]:
    if not isinstance(values, list):
        raise _broken(line, query, f"`{name}` is no list")
    if len(values) != n:
        raise _broken(line, query, f"{n} trials and {len(values)} `{name}`")
    return values


def _broken(line: LogLine, query: Query, reason: str) -> InvalidInputError:
    rule = f"log one outcome and signal per trial ({line.file_name})"
    return InvalidInputError.of(query.argument, rule, f"question {line.doc_id}: {reason}")


# -- other tasks: one metric of zeros and ones ---------------------------------------------------


def _of_metric(
    task: LoggedTask, first: LogLine, lines: Iterable[LogLine], query: Query
) -> LoggedTrials:
    """Read one trial per question: a metric that is 0 or 1."""
    logged = metric_names(first.row)
    #: By metric, the outcome of every question, -1 for none; one with other values is removed.
    values: dict[str, list[int]] = {name: [] for name in logged}
    questions, n_texts, generated = [], 0, False
    for line in lines:
        row = line.row
        for name in list(values):
            value = right_or_wrong(row[name]) if name in row else None
            if value is None:
                del values[name]
            else:
                values[name].append(value)
        n = len(generated_texts(row) or ())
        if line.settings is not None:
            generated, n_texts = True, max(n_texts, n)
        # its outcome is added after the last line, when it is known which metrics are 0 or 1
        questions.append(
            line.question(
                [-1],
                numbers=np.zeros(1, dtype=np.int64),
                answers=_filtered_answer(row),
                digests=np.array([hash(repr(row.get("resps")))], dtype=np.int64),
                logged=LoggedTexts.of_line(line.position, 1) if n == 1 else None,
            )
        )
    graded = {name: v for name, v in values.items() if any(outcome >= 0 for outcome in v)}
    metric = _choose_metric(task, query, logged, graded, generated)
    questions = [
        replace(question, trials=np.array([outcome], dtype=np.int64))
        for question, outcome in zip(questions, graded[metric], strict=True)
    ]
    notes = []
    if len(graded) > 1 and query.metric is None:
        choice = alternatives([metric, *(name for name in graded if name != metric)])
        notes.append(f"{metric} was counted; --metric chooses among {choice}")
    if n_texts > 1:
        notes.append(
            f"the task gave the {n_texts} texts of a question one grade, which was counted as one "
            "trial; --regrade grades each"
        )
    return LoggedTrials(questions, metric, notes=tuple(notes))


def _choose_metric(
    task: LoggedTask, query: Query, logged: Sequence[str], graded: Collection[str], generated: bool
) -> str:
    """Return the metric of the query, else the first that the task lists and that is 0 or 1."""
    if query.metric is not None:
        if query.metric not in graded:
            choice = f", {alternatives(graded)}" if graded else "; it has none"
            rule = f"be a metric of zeros and ones that task {task.task} logs{choice}"
            raise InvalidInputError.of("metric", rule, query.metric)
        return query.metric
    directions = mapping(mapping(task.results.get("higher_is_better")).get(task.task))
    candidates = [name for name in graded if directions.get(name) is not False]
    if not candidates:
        logs = ", ".join(logged) or "no metric"
        rule = f"log graded trials or a metric of zeros and ones of task {task.task}"
        rule += " (--regrade grades the texts)" if generated else ""
        lacking = f"task {task.task}, which logs no metric of zeros and ones ({logs})"
        raise NothingToCountError.of_task(query.argument, rule, logs, lacking)
    names = [entry.get("metric") for entry in task.metric_list]
    return next((name for name in names if name in candidates), candidates[0])


def _filtered_answer(row: Mapping[str, Any]) -> tuple[str | None] | None:
    """Return the answer that a filter extracted from the text; None where no filter did."""
    filtered = row.get("filtered_resps")
    if row.get("filter") in (None, "", "none"):
        return None
    if not isinstance(filtered, list) or len(filtered) != 1 or not isinstance(filtered[0], str):
        return (None,)
    return (filtered[0],)


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


def _counted(
    task: LoggedTask, lines: Iterable[LogLine], query: Query, average: str
) -> LoggedTrials:
    """Read counts of right trials, from the average score that the metric `bayes` logs."""
    entry = next((e for e in task.metric_list if e.get("metric") == "bayes"), {})
    weights = tuple(check_weights(entry.get("weights") or (0.0, 1.0)).tolist())
    if not is_right_or_wrong(weights):
        rule = f"score a right answer above a wrong one in task {task.task}"
        raise InvalidInputError.of(query.argument, rule, list(weights))
    low, high = weights
    n = int(average.removeprefix("avg@"))
    questions = []
    for line in lines:
        value, right = line.row.get(average), -1.0
        if isinstance(value, (int, float)) and n <= MOST_TRIALS:
            right = n * (value - low) / (high - low)
        # a float keeps fifteen digits, so c of N trials is an integer but for rounding
        if not (-0.01 < right < n + 0.01) or abs(right - round(right)) > 0.01:
            rule = f"log the average score of {n} trials ({line.file_name})"
            got = f"question {line.doc_id}: {average} = {value!r}"
            raise InvalidInputError.of(query.argument, rule, got)
        numbers = np.empty(0, dtype=np.int64)
        counts = (n - round(right), round(right))
        questions.append(line.question([], numbers=numbers, counts=counts))
    note = (
        f"the metric bayes of task {task.task} logs how many trials were right and not which: "
        "what needs their order needs --regrade"
    )
    return LoggedTrials(questions, GRADED, weights, (note,))


#: The fields of a line besides its metrics.
NO_METRICS = frozenset(
    (
        *("doc_id", "doc", "target", "arguments", "resps", "filtered_resps", "filter", "metrics"),
        *(
            "cluster",
            "doc_hash",
            "prompt_hash",
            "target_hash",
            "outcomes",
            "answers",
            "lengths",
            "signals",
        ),
        *("grading_error_notes",),
    )
)


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


class SignalReader:
    """Reads the signals of a samples file, line by line.

    The texts give has_box and text_loop, the grades is_correct, the log of a recording model the
    rest. Verdicts are those of the `verdicts_*.jsonl` beside the samples: they belong to the
    responses of this file by their index, and to texts by their hash.

    Parameters
    ----------
    task : LoggedTask
        The task of the file.
    query : Query
        What is read.

    Attributes
    ----------
    error : InvalidInputError or None
        Why the signals of this file cannot be read; nothing more is read then.
    verdicts : Verdicts or None
        The verdicts on this file.

    Raises
    ------
    VerdictsError
        If the file of verdicts cannot be read.
    """

    def __init__(self, task: LoggedTask, query: Query) -> None:
        self.task, self.argument = task, query.argument
        self.error: InvalidInputError | None = None
        self.verdicts: Verdicts | None = None
        path = verdicts_path(task.samples)
        if query.verdicts and path.is_file():
            self.verdicts = read_verdicts(path)
            judged = self.verdicts.header.samples
            if judged != task.samples.name:
                rule = f"have verdicts on {task.samples} in {path}"
                self.error = InvalidInputError.of(self.argument, rule, f"verdicts on {judged}")

    @property
    def verifiers(self) -> tuple[Mapping[str, Any], ...]:
        """The verifier that has judged this file, if one has."""
        return () if self.verdicts is None else (self.verdicts.header.verifier,)

    def signals(
        self, line: LogLine, recorded: Mapping[str, Sequence[Any]]
    ) -> dict[str, FloatArray]:
        """Return the signals of one question.

        Parameters
        ----------
        line : LogLine
            The line of the question.
        recorded : mapping of str to sequence, length N
            What a model recorded of every trial.

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
            columns = self._columns(line, recorded) | self._verdict_columns(line)
        except InvalidInputError as error:
            self.error = error
            return {}
        arrays = {name: floats(values) for name, values in columns.items()}
        return {name: array for name, array in arrays.items() if array is not None}

    def _columns(
        self, line: LogLine, recorded: Mapping[str, Sequence[Any]]
    ) -> dict[str, Sequence[Any]]:
        texts, grades = generated_texts(line.row), line.row["outcomes"]
        if texts is None:
            raise self._broken(line, "`resps` holds no list of texts")
        # verdicts count only from their own file, which holds the hashes of the texts
        recorded = {name: v for name, v in recorded.items() if name not in VERDICTS.values()}
        if recorded.keys() >= _LOGGED:
            # a rubric task computed them already, from the texts before they were cut off
            if len(texts) != len(grades):
                raise self._broken(line, f"{len(grades)} trials and {len(texts)} texts")
            return recorded
        outcomes: list[Any] = [np.nan if grade is None else grade for grade in grades]
        config = self.task.config
        token = mapping(config.get("metadata")).get("think_end_token")
        try:
            computed = trial_signals(
                texts,
                outcomes,
                recorded,
                binary=is_right_or_wrong(self.task.weights),
                max_gen_toks=completion_limit(line.settings)
                or completion_limit(config.get("generation_kwargs")),
                think_end_token=token if isinstance(token, str) else None,
            )
        except (InvalidInputError, TypeError, ValueError) as error:
            raise self._broken(line, str(error)) from None
        return dict(computed)

    def _verdict_columns(self, line: LogLine) -> dict[str, Sequence[Any]]:
        if self.verdicts is None:
            return {}
        think_end = str(self.verdicts.header.verifier.get("think_end", THINK_END))
        verdicts = [
            self.verdicts.verdict_of(line.doc_id, trial, case_hash(case))
            for trial, case in enumerate(verifier_inputs(line.row, line.file_name, think_end))
        ]
        return {
            name: [None if verdict is None else getattr(verdict, label) for verdict in verdicts]
            for label, name in VERDICTS.items()
        }

    def _broken(self, line: LogLine, reason: str) -> InvalidInputError:
        rule = f"have one text, grade and signal per trial ({self.task.samples})"
        return InvalidInputError.of(self.argument, rule, f"question {line.doc_id}: {reason}")


def is_right_or_wrong(weights: Sequence[float]) -> bool:
    """Return whether category 1 means right and 0 wrong.

    Examples
    --------
    >>> is_right_or_wrong((0.0, 1.0)), is_right_or_wrong((0.0, 0.5, 1.0))
    (True, False)
    """
    return len(weights) == 2 and weights[0] < weights[1]
