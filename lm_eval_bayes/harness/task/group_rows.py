"""The rows of a group that averages `hbayes@N` over its tasks.

The harness averages the rows of a group's tasks. Each of these has a learned prior of its own, so
that in the mean over many tasks the pulls of their priors add up, see
:mod:`lm_eval_bayes.stats.hierarchical.mean_over_tasks`. The rows that a group averages are
therefore computed again from the trials of its tasks, under a prior that the tasks share. The
rows of the tasks themselves are not changed.
"""

from __future__ import annotations

from collections.abc import Mapping, MutableMapping
from typing import Any

from lm_eval_bayes.errors import InvalidInputError
from lm_eval_bayes.harness import get_logger
from lm_eval_bayes.harness.evaluation import current_evaluation
from lm_eval_bayes.stats import Scope, TaskWeights, mean_over_tasks

log = get_logger(__name__)


def replace_group_rows(
    group: Any, group_metrics: MutableMapping[str, Any], task_metrics: Mapping[str, Any]
) -> None:
    """Replace the rows of `hbayes@N`, of either scope, that a group averages over its tasks.

    Parameters
    ----------
    group : lm_eval.api.group.Group
        The group, whose tasks the harness has evaluated.
    group_metrics : mapping
        What the harness computed for the group. A row of `hbayes@N` and its sd become those of
        the mean over tasks, and the ends of its interval are added. The row stays where it
        averages a task that this package did not grade in this evaluation. A row is removed that a
        task of the group lacks, though it has others of the same filter.
    task_metrics : mapping
        The rows of every task, by its name.
    """
    tasks = [task.task_name for task in group.get_all_tasks()]
    for entry in group.aggregate_metric_list or ():
        if entry.aggregation != "mean":
            continue
        for key in [key for key in group_metrics if key.startswith(f"{entry.metric},")]:
            values = {task: task_metrics.get(task, {}).get(key) for task in tasks}
            values = {task: value for task, value in values.items() if value is not None}
            filter_name = key.removeprefix(f"{entry.metric},")
            lacking = [
                task
                for task in tasks
                if task not in values
                and any(row.endswith(f",{filter_name}") for row in task_metrics.get(task, {}))
            ]
            if lacking:
                del group_metrics[key]
                group_metrics.pop(f"{entry.metric}_stderr,{filter_name}", None)
                message = "group %s: no row %s, which %s has not"
                log.info(message, group.name, entry.metric, ", ".join(lacking))
                continue
            try:
                rows = _mean_rows(entry.metric, values, "size" if entry.weight_by_size else "equal")
            except InvalidInputError as error:
                message = "group %s: %s is the mean of the tasks' rows: %s"
                log.warning(message, group.name, entry.metric, error)
                continue
            group_metrics.update({f"{row},{filter_name}": rows[row] for row in rows})


def _mean_rows(row: str, values: Mapping[str, Any], weights: TaskWeights) -> dict[str, float]:
    """Return the rows of the mean over tasks; none if the tasks' rows are not of hbayes@N.

    Parameters
    ----------
    row : str
        The row that is averaged.
    values : mapping of str to object
        Its number for each task, the very object that the task's aggregation returned.
    weights : {"equal", "size"}
        The weights of the tasks.
    """
    evaluation = current_evaluation()
    tables = {} if evaluation is None else evaluation.learned_tables
    sources = [tables.get((row, id(value))) for value in values.values()]
    graded = [source for source in sources if source is not None]
    if not graded or len(graded) < len(sources):
        return {}
    outcomes = {task: table.outcomes for task, (_, table) in zip(values, graded, strict=True)}
    first = graded[0][1]
    scope: Scope = "population" if row.endswith("_population") else "benchmark"
    posterior = mean_over_tasks(outcomes, weights, scope=scope, seed=first.settings.seed)
    if posterior.note is not None:
        log.warning("mean of %s over tasks: %s", row, posterior.note)
    rows = {row: float(posterior.mu), f"{row}_stderr": float(posterior.sigma)}
    if len({table.settings.level for _, table in graded}) == 1:
        interval = first.interval(posterior)
        rows |= {f"{row}_low": float(interval.low), f"{row}_high": float(interval.high)}
    return rows
