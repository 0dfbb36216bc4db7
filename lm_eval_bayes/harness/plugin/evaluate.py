"""The wrapper around the harness's `evaluate`, which makes its model known to the tasks."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from lm_eval_bayes.harness import get_logger
from lm_eval_bayes.harness.evaluation import evaluating
from lm_eval_bayes.harness.models.api_seeds import seeded_trials
from lm_eval_bayes.harness.plugin import patches
from lm_eval_bayes.harness.task.rows import RowName

log = get_logger(__name__)


def install() -> None:
    """Wrap the harness's `evaluate`; warn if it has another signature."""
    problem = patches.install(patches.EVALUATE, _in_context)
    if problem is not None:
        log.warning(
            "%s: tasks cannot see their model, so every trial on an API backend may carry the same "
            "seed, and groups have no rows of this package",
            problem,
        )


def _in_context(original: Callable[..., Any]) -> Callable[..., Any]:
    signature = inspect.signature(original)

    @functools.wraps(original)
    def evaluate(*args: Any, **kwargs: Any) -> Any:
        arguments = signature.bind(*args, **kwargs).arguments
        name_group_rows(arguments["task_dict"])
        with evaluating(arguments["lm"]) as evaluation, seeded_trials(evaluation.model):
            return original(*args, **kwargs)

    return evaluate


def name_group_rows(task_dict: Mapping[str, Any]) -> None:
    """Replace the :class:`RowName` entries of every group by the names of its tasks' rows.

    Parameters
    ----------
    task_dict : mapping
        What the harness's `TaskManager.load` returns, or the older form with groups as keys.
    """
    groups: Iterable[Any] = task_dict["groups"].values() if "groups" in task_dict else task_dict
    for group in groups:
        if not hasattr(group, "get_all_tasks"):
            continue
        settings = [getattr(task, "settings", None) for task in group.get_all_tasks()]
        n = next((s.n for s in settings if s is not None), None)
        for entry in group.aggregate_metric_list or ():
            if n is not None and isinstance(entry.metric, RowName):
                entry.metric = entry.metric.at(n)
