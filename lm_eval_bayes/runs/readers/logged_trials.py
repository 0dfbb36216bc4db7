"""The trials of the lines of a samples file: graded, scored, by a metric, or counts of them."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from lm_eval_bayes._util.text import join_words
from lm_eval_bayes._util.validation import as_real
from lm_eval_bayes.errors import InvalidInputError
from lm_eval_bayes.runs.log_fields import mapping
from lm_eval_bayes.runs.provenance import LoggedTask
from lm_eval_bayes.runs.readers.log_line import LogLine, SignalReader, is_right_or_wrong
from lm_eval_bayes.runs.readers.protocol import NothingToCountError, Query, choice_note
from lm_eval_bayes.runs.task_run import GRADED
from lm_eval_bayes.runs.trials import (
    MOST_COUNTED,
    Part,
    PartialRun,
    counted_trials,
    objects,
)
from lm_eval_bayes.stats import FloatArray, check_weights

#: The row of the average score of a question over N trials.
_AVERAGE = re.compile(r"avg@([1-9]\d{0,11})")

#: The fields of a line besides its metrics.
_NO_METRICS = (
    *("doc_id", "doc", "target", "arguments", "resps", "filtered_resps", "filter", "metrics"),
    *("cluster", "doc_hash", "prompt_hash", "target_hash", "outcomes", "answers", "lengths"),
    *("signals", "grading_error_notes", "setting"),
)


#: The questions of a task in the order of the lines, and what the run has besides them.
Read = tuple[list[Part], PartialRun]
Lines = Iterable[LogLine]


def logged_trials(
    run: PartialRun, task: LoggedTask, first: LogLine, lines: Lines, query: Query
) -> Read:
    """Read the trials of a task.

    Parameters
    ----------
    run : PartialRun
        What is known of the run without its trials.
    task : LoggedTask
        The task.
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
        return [_every_text(line) for line in lines], replace(run, weights=task.weights)
    if (metric := _graded_metric(task, first, query)) is not None:
        return _graded(run, task, first, lines, query, metric)
    if (average := average_metric(first.row)) is not None:
        return _counted(run, task, lines, average)
    return _of_metric(run, task, first, lines, query)


def _every_text(line: LogLine) -> Part:
    """Return a question with every text as a trial, and its grade where it has one."""
    n, grades = len(line.texts or ()), line.row.get("outcomes")
    if not line.generated or not isinstance(grades, list) or len(grades) != n:
        grades = [None] * (n if line.generated else 0)
    recorded = line.recorded(len(grades))
    return line.question([g if type(g) is int else -1 for g in grades], recorded)


# -- tasks of this package -----------------------------------------------------------------------


def _graded_metric(task: LoggedTask, first: LogLine, query: Query) -> str | None:
    """Return the metric that counts, "" where it has no name; None if the task logs no trials."""
    names, errors = task.metrics, task.metric_errors
    logged = {name: None for name in names if _field(task, name, first) in first.row}
    if task.settings:  # of other metrics their values alone are logged
        lists = (name for name in metric_names(first.row) if isinstance(first.row[name], list))
        logged |= dict.fromkeys(lists)
    metric = query.metric if query.metric in logged else next(iter(names), "")
    if metric in errors and query.bounds is None:
        others = [name for name in logged if name not in errors]
        rule = f"have scores of {metric} of task {task.task}, with --bounds LOW:HIGH"
        rule += f" (--metric chooses {join_words(others, 'or')})" if others else ""
        raise NothingToCountError.of("RUN", "range", rule, errors[metric])
    if len(logged) > 1 and query.metric is not None and query.metric not in logged:
        rule = f"be a metric of task {task.task} that has numbers, {join_words(list(logged), 'or')}"
        raise InvalidInputError.of("metric", "choice", rule, query.metric)
    return metric if _field(task, metric, first) in first.row else None


def _field(task: LoggedTask, metric: str, line: LogLine) -> str:
    """Return the field of a line with the outcomes of a metric, or with its values."""
    label = "" if not metric or metric in task.metrics[:1] else f"({metric})"
    fields = (f"scores{label}", f"outcomes{label}", *([metric] if task.settings else []))
    return next((field for field in fields if field in line.row), fields[1])


def _bounds(task: LoggedTask, metric: str, field: str, query: Query) -> tuple[float, float] | None:
    """Return the bounds of the scores of a metric; None where it gives categories."""
    if metric in task.metric_errors or (metric not in task.metrics and field == metric):
        return query.bounds or (0.0, 1.0)
    return task.bounds(metric) or ((0.0, 1.0) if field.startswith("scores") else None)


def _graded(
    run: PartialRun, task: LoggedTask, first: LogLine, lines: Lines, query: Query, metric: str
) -> Read:
    """Read what a task of this package logs: the categories of trials, or their scores."""
    names, field = task.metrics, _field(task, metric, first)
    bounds, further = _bounds(task, metric, field, query), bool(metric) and metric not in names[:1]
    if bounds is not None and not task.config:
        raise first.broken("scores without the results file, which has their bounds", "missing")
    weights = bounds or ((0.0, 1.0) if further else task.weights)
    signals, wanted = None, None if bounds else query.signals  # of right and wrong trials
    if wanted == "all" or (wanted == "recorded" and first.row.get("signals")):
        signals = SignalReader(task, query)
    questions, lowest = [], "wrong" if bounds is None else f"{bounds[0]:g}"
    for line in lines:
        field = _field(task, metric, line)
        values = line.column(field, line.row.get(field))
        if field == metric:
            values = [_outcome(value, 0 if bounds is None else bounds[0]) for value in values]
        columns: dict[str, Any] = {}
        if failed := mapping(line.row, "grading_error_notes"):
            remark = dict.fromkeys(failed, f"whose grading failed counted as {lowest}")
            columns["remark"] = objects([remark.get(str(i)) for i in range(len(values))])
        if bounds is not None:
            categories, columns["score"] = [0] * len(values), _scores(line, values, bounds)
        else:
            categories = _categories(line, values, len(weights), task)
        if (answers := line.row.get("answers")) is not None:
            answers = line.column("answers", answers, len(values))
            columns["answers"] = [None if answer is None else str(answer) for answer in answers]
        if signals is not None:
            columns["signals"] = signals.signals(line)
        recorded = line.recorded(len(values))
        questions.append(line.question(categories, recorded, **columns))
    names = tuple(name for name in names if name not in task.metric_errors)
    if signals is not None:
        run = replace(run, signals_error=signals.error, verifiers=signals.verifiers)
    return questions, replace(
        run,
        metric=metric if query.metric == metric or (bounds and metric) else GRADED,
        weights=weights,
        notes=choice_note("metric", list(dict.fromkeys([metric, *names])), query.metric),
        threshold=task.threshold(metric) if bounds else None,
    )


def _outcome(value: Any, lowest: float) -> Any:
    """Return what a metric's value of a trial counts as: of a list of zeros and ones their mean."""
    if value is None:  # grading failed
        return lowest
    if isinstance(value, list) and value and all(part in (0, 1) for part in value):
        value = sum(value) / len(value)
    return int(value) if isinstance(value, (bool, float)) and value in (0, 1) else value


def _categories(line: LogLine, values: list[Any], n: int, task: LoggedTask) -> list[int]:
    """Return the category of every trial of a line, -1 for one without a grade."""
    for value in values:
        if value is not None and (type(value) is not int or not 0 <= value < n):
            but = "" if task.config else ", as far as is known without the results file"
            reason = f"outcome {value!r} is no category of 0..{n - 1}{but}"
            raise line.broken(reason, "damaged" if task.config else "missing")
    return [-1 if value is None else value for value in values]


def _scores(line: LogLine, values: list[Any], bounds: Sequence[float]) -> FloatArray:
    """Return the score of every trial of a line."""
    scores = [as_real(value) for value in values]
    for value, score in zip(values, scores, strict=True):
        if score is None or not bounds[0] <= score <= bounds[1]:
            raise line.broken(f"score {value!r:.80} is not from {bounds[0]:g} to {bounds[1]:g}")
    return np.array(scores, dtype=np.float64)


# -- other tasks: a metric of zeros and ones, or counts of `bayes` ---------------------------------


def _of_metric(
    run: PartialRun, task: LoggedTask, first: LogLine, lines: Lines, query: Query
) -> Read:
    """Read one trial per question: a metric that is 0 or 1."""
    logged = metric_names(first.row)
    parts, values = list[Part](), list[dict[str, Any]]()
    n_texts, generated = 0, False
    for line in lines:
        # its outcome is added after the last line, when it is known which metrics are 0 or 1
        parts.append(line.question([-1], answers=_filtered_answer(line.row)))
        values.append({name: line.row.get(name, "none") for name in logged})
        n_texts, generated = max(n_texts, len(line.texts or ())), generated or line.generated
    binary = [name for name in logged if all(row[name] in (None, 0, 1) for row in values)]
    graded = [name for name in binary if any(row[name] is not None for row in values)]
    metric = _chosen(task, query, logged, graded, generated)
    outcomes = [-1 if row[metric] is None else int(row[metric]) for row in values]
    questions = [
        (question, replace(trials, category=np.array([outcome], dtype=np.int64)))
        for (question, trials), outcome in zip(parts, outcomes, strict=True)
    ]
    notes = [*choice_note("metric", list(dict.fromkeys([metric, *graded])), query.metric)]
    if n_texts > 1:
        grade = f"the task gave the {n_texts} texts of a question one grade"
        notes.append(f"{grade}, which was counted as one trial; --regrade grades each")
    return questions, replace(run, metric=metric, notes=tuple(notes))


def _chosen(
    task: LoggedTask, query: Query, logged: Sequence[str], graded: Sequence[str], generated: bool
) -> str:
    """Return the metric of the query, else the first that the task lists and that is 0 or 1."""
    directions = mapping(task.results, "higher_is_better", task.task)
    names = [name for name in graded if directions.get(name) is not False]
    if query.metric is not None and query.metric not in graded:
        choice = f", {join_words(graded, 'or')}" if graded else "; it has none"
        rule = f"be a metric of zeros and ones that task {task.task} logs{choice}"
        raise InvalidInputError.of("metric", "choice", rule, query.metric)
    if query.metric is None and not names:
        logs = ", ".join(logged) or "no metric"
        rule = f"log graded trials or a metric of zeros and ones of task {task.task}"
        rule += f" in {task.samples}" + ("; --regrade grades the texts" if generated else "")
        raise NothingToCountError.of("RUN", "missing", rule, logs)
    listed = [entry.get("metric") for entry in task.metric_list]
    return query.metric or next((name for name in listed if name in names), names[0])


def _filtered_answer(row: Mapping[str, Any]) -> list[str | None] | None:
    """Return the answer that a filter extracted from the text; None where no filter did."""
    if row.get("filter") in (None, "", "none"):
        return None
    filtered = row.get("filtered_resps")
    is_text = isinstance(filtered, list) and len(filtered) == 1 and isinstance(filtered[0], str)
    return filtered if is_text else [None]


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


def _counted(run: PartialRun, task: LoggedTask, lines: Lines, average: str) -> Read:
    """Read counts of right trials, from the average score that the metric `bayes` logs."""
    entry: Mapping[str, Any] = next((e for e in task.metric_list if e.get("metric") == "bayes"), {})
    weights = tuple(check_weights(entry.get("weights") or (0.0, 1.0)).tolist())
    if not is_right_or_wrong(weights):
        rule = f"score a right answer above a wrong one in task {task.task}"
        raise InvalidInputError.of("RUN", "range", rule, list(weights))
    low, high = weights
    n = int(average.removeprefix("avg@"))
    questions: list[Part] = []
    for line in lines:
        value, right = line.row.get(average), -1.0
        if isinstance(value, (int, float)) and n * (len(questions) + 1) <= MOST_COUNTED:
            right = n * (value - low) / (high - low)
        # a float keeps fifteen digits, so c of N trials is an integer but for rounding
        if not (-0.01 < right < n + 0.01) or abs(right - round(right)) > 0.01:
            raise line.broken(f"{average} = {value!r} is no average of {n} trials", "mismatch")
        counts = counted_trials(n - round(right), round(right))
        questions.append(line.question(counts.category, digest=counts.digest))
    note = f"the metric bayes of task {task.task} logs how many trials were right and not which"
    notes = (f"{note}: what needs their order needs --regrade",)
    return questions, replace(run, weights=weights, notes=notes, ordered=False)


def metric_names(row: Mapping[str, Any]) -> list[str]:
    """Return the names of the metrics of a line; older harnesses do not list them."""
    listed = row.get("metrics")
    if isinstance(listed, list):
        return [name for name in listed if isinstance(name, str) and name in row]
    return [name for name in row if name not in _NO_METRICS]
