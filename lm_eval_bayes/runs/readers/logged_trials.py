"""The trials of a samples file: graded, scored, graded again, a metric or counts."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from lm_eval_bayes._util.text import join_words, one_line, plural
from lm_eval_bayes._util.validation import as_real
from lm_eval_bayes.errors import InvalidInputError
from lm_eval_bayes.runs.log_fields import generated_texts
from lm_eval_bayes.runs.logged_texts import LoggedTexts
from lm_eval_bayes.runs.provenance import LoggedTask, mapping
from lm_eval_bayes.runs.readers.log_line import LoggedTrials, LogLine
from lm_eval_bayes.runs.readers.logged_metrics import (
    average_metric,
    counted,
    of_metric,
)
from lm_eval_bayes.runs.readers.logged_signals import SignalReader
from lm_eval_bayes.runs.readers.protocol import NothingToCountError, Query, Regrade
from lm_eval_bayes.runs.readers.trial_texts import place
from lm_eval_bayes.runs.task_run import GRADED, REGRADED
from lm_eval_bayes.runs.trials import floats
from lm_eval_bayes.stats import FloatArray, check_weights

#: Recorded of every trial, but not measurements of it.
_NO_MEASUREMENTS = frozenset({"trial", "seed"})


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
    _check_no_error(task, query)
    logged = _LoggedMetric.of(task, first, query)
    if logged is not None:
        return _graded(task, first, lines, query, logged)
    average = average_metric(first.row)
    if average is not None:
        return counted(task, lines, query, average)
    return of_metric(task, first, lines, query)


# -- tasks of this package -----------------------------------------------------------------------


@dataclass(frozen=True)
class _LoggedMetric:
    """A metric of a task of this package, and what it logs of the trials.

    Attributes
    ----------
    field : str
        The field of a line.
    scored : bool
        Whether that holds scores, and not categories.
    name : str
        What was counted.
    weights : tuple of float
        The score of each category; of scores their bounds.
    threshold : float or None
        The score from which on a trial passes.
    notes : tuple of str
        That the task has other metrics.
    """

    field: str
    scored: bool
    name: str
    weights: tuple[float, ...]
    threshold: float | None = None
    notes: tuple[str, ...] = ()

    @classmethod
    def of(cls, task: LoggedTask, first: LogLine, query: Query) -> _LoggedMetric | None:
        """Return the metric of the query, else the first; None if the task logs no trials."""
        names, errors = task.metrics, task.metric_errors
        notes: tuple[str, ...] = ()
        metric = query.metric if query.metric in names[1:] else None
        label = "" if metric is None else f"({metric})"
        fields = {f"outcomes{label}": False, f"scores{label}": True}
        field = next((field for field in fields if field in first.row), None)
        if not task.config and (f"scores({query.metric})" in first.row or fields.get(field or "")):
            rule = "lie beside its results file, which tells the bounds of the scores"
            raise InvalidInputError.of(query.argument, "missing", rule, first.file_name)
        if field is None and metric is None:
            return None
        if field is None or (len(names) > 1 and query.metric not in (None, *names)):
            logged = [name for name in names if _logs(first, name, names[0])]
            rule = f"be a metric of task {task.task} that has numbers, {join_words(logged, 'or')}"
            raise InvalidInputError.of("metric", "choice", rule, query.metric)
        if len(names) > 1 and query.metric is None:
            choice = join_words([name for name in names if name not in errors], "or")
            notes = (f"{names[0]} was counted; --metric chooses among {choice}",)
        name = query.metric if query.metric in names and query.metric else GRADED
        if fields[field]:
            name = names[0] if names and metric is None else name
            return cls(field, True, name, task.bounds(metric), task.threshold(metric), notes)
        weights = _task_weights(task, query) if metric is None else (0.0, 1.0)
        return cls(field, False, name, weights, notes=notes)

    def categories(self, line: LogLine, query: Query, task: LoggedTask) -> list[int]:
        """Return the category of every trial of a line, -1 for one without a grade."""
        outcomes, top = self._values(line, query), len(self.weights) - 1
        for outcome in outcomes:
            if outcome is not None and (type(outcome) is not int or not 0 <= outcome <= top):
                if not task.config:
                    rule = "lie beside its results file, which tells the score of each category"
                    raise InvalidInputError.of(query.argument, "missing", rule, line.file_name)
                raise _broken(line, query, f"outcome {outcome!r} is no category of 0..{top}")
        return [-1 if outcome is None else outcome for outcome in outcomes]

    def scores(self, line: LogLine, query: Query) -> FloatArray:
        """Return the score of every trial of a line."""
        low, high = self.weights
        values = self._values(line, query)
        scores = [as_real(value) for value in values]
        for value, score in zip(values, scores, strict=True):
            if score is None or not low <= score <= high:
                raise _broken(line, query, f"score {value!r:.80} is not from {low:g} to {high:g}")
        return np.array(scores, dtype=np.float64)

    def _values(self, line: LogLine, query: Query) -> list[Any]:
        values = line.row.get(self.field)
        if not isinstance(values, list):
            raise _broken(line, query, f"`{self.field}` is no list")
        texts = generated_texts(line.row)
        if texts is not None and len(texts) != len(values):
            raise _broken(line, query, f"{len(texts)} responses and {len(values)} `{self.field}`")
        return values


def _check_no_error(task: LoggedTask, query: Query) -> None:
    """Raise if the metric has no numbers, for a value that its settings do not allow."""
    names, errors = task.metrics, task.metric_errors
    metric = next((name for name in names if name == query.metric), next(iter(names), None))
    if metric is not None and metric in errors:
        others = [name for name in names if name not in errors]
        rule = f"have numbers of the metric {metric} of task {task.task}"
        rule += f" (--metric chooses {join_words(others, 'or')})" if others else ""
        lacking = f"task {task.task}, whose metric {metric} has no numbers: {errors[metric]}"
        raise NothingToCountError.of_task(query.argument, rule, errors[metric], lacking)


def _logs(line: LogLine, metric: str, first: str) -> bool:
    """Return whether a line has the grades or scores of a metric."""
    label = "" if metric == first else f"({metric})"
    return any(f"{kind}{label}" in line.row for kind in ("outcomes", "scores"))


def _graded(
    task: LoggedTask, first: LogLine, lines: Iterable[LogLine], query: Query, logged: _LoggedMetric
) -> LoggedTrials:
    """Read what a task of this package logs: the categories of trials, or their scores."""
    # rubrics are of right and wrong trials
    signals, wanted = None, None if logged.scored else query.signals
    if wanted == "all" or (wanted == "recorded" and first.row.get("signals")):
        signals = SignalReader(task, query)
    questions, n_errors = [], 0
    for line in lines:
        n_errors += len(mapping(line.row.get("grading_error_notes")))
        scores = logged.scores(line, query) if logged.scored else None
        trials = [0] * scores.size if scores is not None else logged.categories(line, query, task)
        columns = _recorded_columns(line, query, len(trials))
        answers = line.row.get("answers")
        if answers is not None:
            answers = _column(line, query, "answers", answers, len(trials))
            answers = tuple(None if answer is None else str(answer) for answer in answers)
        questions.append(
            line.question(
                trials,
                answers=answers,
                score=scores,
                signals={} if signals is None else signals.signals(line, columns),
                **_recorded(line, columns, len(trials)),
            )
        )
    failed: tuple[str, ...] = ()
    if n_errors:
        lowest = f"{logged.weights[0]:g}" if logged.scored else "wrong"
        failed = (f"grading failed on {plural(n_errors, 'trial')}, which count as {lowest}",)
    return LoggedTrials(
        questions,
        logged.name,
        logged.weights,
        (*logged.notes, *failed, *_prior_notes(task)),
        signals_error=None if signals is None else signals.error,
        verifiers=() if signals is None else signals.verifiers,
        threshold=logged.threshold,
    )


def _prior_notes(task: LoggedTask) -> tuple[str, ...]:
    """Return a note if the rows of the log use an earlier run as prior evidence.

    The run is not read: the log may come from elsewhere, and the files at that path may be others
    by now. The note names it, for --prior.
    """
    given = mapping(task.config.get("metadata")).get("bayes_prior")
    if not given:
        return ()
    prior = mapping(given).get("run", given)
    return (
        "the log's own hbayes@N uses an earlier run as prior evidence (`bayes_prior`: "
        f"{one_line(prior)}); here --prior does",
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
        raise InvalidInputError.of(query.argument, "missing", rule, got) from None


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
        logged = LoggedTexts.at([place(line.record, i) for i in range(n_trials)])
    measured = {
        name: floats(values) for name, values in columns.items() if name not in _NO_MEASUREMENTS
    }
    return {
        "numbers": numbers or range(n_trials),
        "seeds": None if seeds is None else tuple(s if type(s) is int else None for s in seeds),
        "digest": digests,
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
    return InvalidInputError.of(
        query.argument, "damaged", rule, f"question {line.doc_id}: {reason}"
    )
