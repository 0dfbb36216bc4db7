"""The graded trials of a finished evaluation, task by task."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from lm_eval_bayes.errors import TaskConfigError
from lm_eval_bayes.runs.task_run import TOKENS, TaskRun, distinct_ids


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
