"""The graded trials of a finished evaluation, and of the baseline run, task by task."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from lm_eval_bayes.errors import InvalidInputError, TaskConfigError
from lm_eval_bayes.runs.task_run import GRADED, TOKENS, TaskRun, distinct_ids


def graded_tasks(results: Mapping[str, Any]) -> dict[str, TaskRun]:
    """Return the graded trials of every task in the results of the harness.

    Where a task has several filters, the first one that is logged counts.

    Parameters
    ----------
    results : mapping
        What `simple_evaluate` returns with `log_samples`.

    Raises
    ------
    TaskConfigError
        If a task was not sampled repeatedly by this package.
    """
    runs = {}
    for task, samples in results["samples"].items():
        settings = (results["configs"][task].get("metadata") or {}).get("bayes")
        if settings is None or not samples or "outcomes" not in samples[0]:
            raise TaskConfigError(
                f"task {task} logs no graded trials, so nothing can be decided about it; use one "
                "of this package's tasks, or RepeatedSamplingTask as the class of your own"
            )
        runs[task] = _graded_task(task, samples, settings["weights"])
    return runs


def _graded_task(
    task: str, samples: Sequence[Mapping[str, Any]], weights: Sequence[float]
) -> TaskRun:
    first_filter = samples[0].get("filter")
    rows = sorted(
        (row for row in samples if row.get("filter") == first_filter),
        key=lambda row: int(row["doc_id"]),
    )
    tokens = [(row.get("signals") or {}).get(TOKENS) for row in rows]
    measured = {}
    if None not in tokens:
        measured[TOKENS] = tuple(np.array(column, dtype=np.float64) for column in tokens)
    return TaskRun.from_trials(
        "",
        task,
        [row["outcomes"] for row in rows],
        distinct_ids([str(row["doc_hash"]) for row in rows]),
        weights=weights,
        doc_ids=tuple(int(row["doc_id"]) for row in rows),
        measured=measured,
    )


def baseline_runs(runs: Sequence[TaskRun], path: str) -> dict[str, TaskRun]:
    """Return the graded trials of a finished run, task by task.

    Parameters
    ----------
    runs : sequence of TaskRun
        What was read at the path.
    path : str
        The path, for errors.

    Returns
    -------
    dict
        The runs by the names of their tasks.

    Raises
    ------
    InvalidInputError
        If there are runs of several models, or none with graded trials.
    """
    graded = [run for run in runs if run.metric == GRADED and run.trials is not None]
    if not graded:
        rule = "hold graded trials of a task of this package (a run with --log_samples, or a store)"
        raise InvalidInputError.of("--decide", rule, path)
    by_task: dict[str, list[TaskRun]] = {}
    for run in graded:
        by_task.setdefault(run.task, []).append(run)
    for task, several in by_task.items():
        if len(several) > 1:
            rule = f"hold one model's run of task {task}; name the folder of one of them"
            raise InvalidInputError.of("--decide", rule, ", ".join(run.model for run in several))
    return {task: run for task, (run,) in by_task.items()}
