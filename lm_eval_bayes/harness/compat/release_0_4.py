"""The names of :mod:`lm_eval_bayes.harness.compat` in harness 0.4."""

from __future__ import annotations

from collections.abc import MutableMapping
from typing import Any

from lm_eval.api.task import ConfigurableTask as ConfigurableTask
from lm_eval.evaluator_utils import get_sample_size

#: Whether ``metric: bayes`` can stand in a task's `metric_list`.
METRIC_FORM = True


#: The number of questions that ``--limit`` leaves, of a task and the limit.
sample_size = get_sample_size


def instance_fields(task: str, doc_id: int, repeats: int, original: Any) -> dict[str, Any]:
    """Return the fields of a request that say what it belongs to, those of `original` first."""
    if original is not None:
        task, doc_id = original.task_name, original.doc_id
    idx = 0 if original is None else original.idx
    return {"idx": idx, "metadata": (task, doc_id, repeats)}


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
