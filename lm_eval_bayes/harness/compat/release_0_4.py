"""The names of :mod:`lm_eval_bayes.harness.compat` in harness 0.4."""

from __future__ import annotations

from collections.abc import MutableMapping
from typing import Any

from lm_eval.api.task import ConfigurableTask as ConfigurableTask


def sample_size(task: Any, limit: float | None) -> int | None:
    """Return the number of questions that ``--limit`` leaves."""
    from lm_eval.evaluator_utils import get_sample_size

    size: int | None = get_sample_size(task, limit)
    return size


def task_index(manager: Any) -> MutableMapping[str, Any]:
    """Return the harness's index of tasks, groups and tags."""
    index: MutableMapping[str, Any] = manager.task_index
    return index


def name_in_results(task: Any) -> str:
    """Return the name under which the results have a task."""
    return str(task.task_name)


def lists_bayes(task: Any) -> bool:
    """Return whether a task's `metric_list` has ``metric: bayes``."""
    return "bayes" in getattr(task, "_metric_fn_list", ())
