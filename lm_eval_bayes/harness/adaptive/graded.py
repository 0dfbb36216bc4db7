"""The graded trials of a finished evaluation, task by task."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from lm_eval_bayes.errors import TaskConfigError
from lm_eval_bayes.runs.saved_tasks import distinct
from lm_eval_bayes.stats.outcomes import Outcomes


@dataclass(frozen=True)
class TaskTrials:
    """The graded trials of one task.

    Attributes
    ----------
    task : str
        The task's name.
    doc_ids : tuple of int
        The questions' numbers in the task.
    question_ids : tuple of str
        The hashes of the questions, which do not depend on model or prompt.
    trials : tuple of tuple of int
        The category of every trial of every question.
    weights : tuple of float
        The score of each category.
    tokens : int or None
        Tokens of all completions; None where they were not counted.
    """

    task: str
    doc_ids: tuple[int, ...]
    question_ids: tuple[str, ...]
    trials: tuple[tuple[int, ...], ...]
    weights: tuple[float, ...]
    tokens: int | None = None

    @property
    def n_trials(self) -> int:
        """Trials in all."""
        return sum(map(len, self.trials))

    def outcomes(self) -> Outcomes:
        """Return the counts that every kernel works on."""
        width = len(self.weights)
        counts = [np.bincount(t, minlength=width) for t in self.trials]
        return Outcomes.from_counts(
            np.stack(counts), weights=self.weights, question_ids=self.question_ids
        )


def graded_tasks(results: Mapping[str, Any]) -> dict[str, TaskTrials]:
    """Read the graded trials of every task out of the harness's results.

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
    found = {}
    for task, samples in results["samples"].items():
        settings = (results["configs"][task].get("metadata") or {}).get("bayes")
        if settings is None or not samples or "outcomes" not in samples[0]:
            raise TaskConfigError(
                f"task {task} logs no graded trials, so nothing can be decided about it; use one "
                "of this package's tasks, or RepeatedSamplingTask as the class of your own"
            )
        found[task] = graded_task(task, samples, tuple(settings["weights"]))
    return found


def graded_task(
    task: str, samples: Iterable[Mapping[str, Any]], weights: tuple[float, ...]
) -> TaskTrials:
    """Read the graded trials of one task out of its logged samples."""
    rows = list(samples)
    chosen = rows[0].get("filter")
    rows = sorted(
        (row for row in rows if row.get("filter") == chosen), key=lambda row: int(row["doc_id"])
    )
    counted = [_tokens(row) for row in rows]
    return TaskTrials(
        task=task,
        doc_ids=tuple(int(row["doc_id"]) for row in rows),
        question_ids=distinct([str(row["doc_hash"]) for row in rows]),
        trials=tuple(tuple(int(category) for category in row["outcomes"]) for row in rows),
        weights=weights,
        tokens=None if None in counted else sum(n for n in counted if n is not None),
    )


def _tokens(row: Mapping[str, Any]) -> int | None:
    tokens = (row.get("signals") or {}).get("completion_tokens")
    if tokens is None or None in tokens:
        return None
    return int(sum(tokens))
