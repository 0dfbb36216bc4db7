"""The trials of a task of the harness: a metric of zeros and ones, or counts of `bayes`."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from lm_eval_bayes._util.text import join_words
from lm_eval_bayes._util.validation import MOST_TRIALS
from lm_eval_bayes.errors import InvalidInputError
from lm_eval_bayes.runs.log_fields import generated_texts
from lm_eval_bayes.runs.logged_texts import LoggedTexts
from lm_eval_bayes.runs.provenance import LoggedTask, mapping
from lm_eval_bayes.runs.readers.log_line import LoggedTrials, LogLine, is_right_or_wrong
from lm_eval_bayes.runs.readers.protocol import NothingToCountError, Query
from lm_eval_bayes.runs.readers.trial_texts import place
from lm_eval_bayes.runs.task_run import GRADED
from lm_eval_bayes.stats import check_weights

#: The row of the average score of a question over N trials.
_AVERAGE = re.compile(r"avg@([1-9]\d{0,11})")


# -- one metric of zeros and ones ------------------------------------------------------------------


def of_metric(
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
                answers=_filtered_answer(row),
                digest=np.array([hash(repr(row.get("resps")))], dtype=np.int64),
                logged=LoggedTexts.at([place(line.record) if n == 1 else -1]),
            )
        )
    graded = {name: v for name, v in values.items() if any(outcome >= 0 for outcome in v)}
    metric = _choose_metric(task, query, logged, graded, generated)
    questions = [
        (question, replace(trial, category=np.array([outcome], dtype=np.int64)))
        for (question, trial), outcome in zip(questions, graded[metric], strict=True)
    ]
    notes = []
    if len(graded) > 1 and query.metric is None:
        choice = join_words([metric, *(name for name in graded if name != metric)], "or")
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
            choice = f", {join_words(list(graded), 'or')}" if graded else "; it has none"
            rule = f"be a metric of zeros and ones that task {task.task} logs{choice}"
            raise InvalidInputError.of("metric", "choice", rule, query.metric)
        return query.metric
    directions = mapping(mapping(task.results.get("higher_is_better")).get(task.task))
    candidates = [name for name in graded if directions.get(name) is not False]
    if not candidates:
        logs = ", ".join(logged) or "no metric"
        rule = f"log graded trials or a metric of zeros and ones of task {task.task}"
        rule += f" in {task.samples}" + ("; --regrade grades the texts" if generated else "")
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


# -- counts of the metric `bayes` ------------------------------------------------------------------


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


def counted(task: LoggedTask, lines: Iterable[LogLine], query: Query, average: str) -> LoggedTrials:
    """Read counts of right trials, from the average score that the metric `bayes` logs."""
    entry = next((e for e in task.metric_list if e.get("metric") == "bayes"), {})
    weights = tuple(check_weights(entry.get("weights") or (0.0, 1.0)).tolist())
    if not is_right_or_wrong(weights):
        rule = f"score a right answer above a wrong one in task {task.task}"
        raise InvalidInputError.of(query.argument, "range", rule, list(weights))
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
            raise InvalidInputError.of(query.argument, "mismatch", rule, got)
        questions.append(line.question([], counts=(n - round(right), round(right))))
    note = (
        f"the metric bayes of task {task.task} logs how many trials were right and not which: "
        "what needs their order needs --regrade"
    )
    return LoggedTrials(questions, GRADED, weights, (note,))


#: The fields of a line besides its metrics.
NO_METRICS = frozenset(
    (
        *("doc_id", "doc", "target", "arguments", "resps", "filtered_resps", "filter", "metrics"),
        *("cluster", "doc_hash", "prompt_hash", "target_hash", "outcomes", "answers", "lengths"),
        *("signals", "grading_error_notes"),
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
