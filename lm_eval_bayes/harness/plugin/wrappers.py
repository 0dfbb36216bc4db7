"""One call of the harness's `evaluate` in which something of this package is in use.

Tasks see the model that answers. Groups average the rows of this package, YAMLs that list its
metrics or aggregations compute them, and the results hold the version and the identity of the
questions.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from lm_eval_bayes import __version__
from lm_eval_bayes._util.text import plural
from lm_eval_bayes.errors import InvalidInputError, TaskConfigError
from lm_eval_bayes.harness import get_logger
from lm_eval_bayes.harness.evaluation import error_of_run, evaluating
from lm_eval_bayes.harness.models.api_seeds import seeded_trials
from lm_eval_bayes.harness.models.stored_texts import read_later
from lm_eval_bayes.harness.plugin import metric_lists, results_table
from lm_eval_bayes.harness.plugin.aggregations import Mean
from lm_eval_bayes.harness.task import questions
from lm_eval_bayes.harness.task.group_rows import replace_group_rows
from lm_eval_bayes.harness.task.repeated_sampling import RepeatedSamplingTask
from lm_eval_bayes.harness.task.result_rows import RowName

log = get_logger(__name__)


def evaluate_with_trials(original: Callable[..., Any], **arguments: Any) -> Any:
    """Return what the harness's `evaluate` returns, with what this package adds.

    Parameters
    ----------
    original : callable
        It.
    **arguments
        Its arguments.

    Raises
    ------
    TaskConfigError, InvalidInputError
        If a task cannot be evaluated as it is configured, before sampling.
    """
    tasks, groups = tasks_by_name(arguments["task_dict"]), _groups(arguments["task_dict"])
    for task in tasks.values():
        metric_lists.prepare(task)
    by_own_name = {_own_name(task, name): task for name, task in tasks.items()}
    _check_tasks_named(by_own_name)
    _warn_of_unused_settings(tasks)
    name_group_rows(groups)
    with (
        evaluating(
            arguments["lm"],
            by_own_name,
            named_tasks=tasks,
            name_group_rows=lambda: name_group_rows(groups),
        ) as evaluation,
        seeded_trials(evaluation.model),
        _stored_trials_named(evaluation.model),
    ):
        if not arguments.get("apply_chat_template"):
            _warn_of_chat_template(evaluation.model, tasks)
        results = original(**arguments)
        if results is not None:  # None on all ranks but the first
            _add_group_rows(results, groups)
    if results is not None:
        if results.get("samples"):
            results["samples"] = read_later(results["samples"])
        results_table.drop_empty_stderrs(results)
        _add_stderrs(results)
        _add_provenance(results, tasks)
    return results


@contextmanager
def _stored_trials_named(model: Any) -> Iterator[None]:
    """Log what a recording model has stored, when the user stops it."""
    try:
        yield
    except KeyboardInterrupt:
        store = getattr(model, "trial_store", None)
        if store is not None:
            log.warning(
                "stopped; stored: %s in %s; run the same command again to resume",
                *(plural(sum(store.trial_counts().values()), "trial"), store.path),
            )
        raise


# -- tasks ----------------------------------------------------------------------------------------


def tasks_by_name(task_dict: Mapping[Any, Any]) -> dict[str, Any]:
    """Return the tasks of what `evaluate` is called with.

    Parameters
    ----------
    task_dict : mapping
        What the harness's `TaskManager.load` returns, or the older form with groups as keys.
    """
    tasks: dict[str, Any] = {}
    for name, value in task_dict.get("tasks", task_dict).items():
        if isinstance(value, Mapping):
            tasks |= tasks_by_name(value)
        elif hasattr(value, "process_results"):
            tasks[str(name)] = value
    return tasks


def _own_name(task: Any, name: str) -> str:
    """Return the name in a task's requests, which `task_dict` may call otherwise."""
    return str(getattr(getattr(task, "config", None), "task", None) or name)


def _metadata_of(task: Any) -> Mapping[str, Any]:
    return getattr(getattr(task, "config", None), "metadata", None) or {}


def _samples_repeatedly(task: Any) -> bool:
    return isinstance(task, (RepeatedSamplingTask, metric_lists.ListedMetrics))


def _warn_of_unused_settings(tasks: Mapping[str, Any]) -> None:
    """Warn where `bayes_n` is given to tasks that are not sampled repeatedly."""
    unused = [
        name
        for name, task in tasks.items()
        if "bayes_n" in _metadata_of(task) and not _samples_repeatedly(task)
    ]
    if unused:
        log.warning(
            "bayes_n has no effect on %s, which %s not sampled repeatedly; %s_bayes is",
            *(", ".join(unused), "is" if len(unused) == 1 else "are", unused[0]),
        )


def _warn_of_chat_template(model: Any, tasks: Mapping[str, Any]) -> None:
    """Warn where a model with a chat template gets the prompts of this package's tasks without."""
    if model.rank or not any(map(_samples_repeatedly, tasks.values())):
        return
    # not the attribute: a tokenizer that is a property may be loaded, or fail, when it is looked at
    if getattr(vars(model).get("tokenizer"), "chat_template", None):
        log.warning(
            "the model's tokenizer has a chat template, and the prompts are sent without it: a "
            "chat model needs --apply_chat_template, with which [Hariri 2026, F.2] runs every model"
        )


def _check_tasks_named(tasks: Mapping[str, Any]) -> None:
    """Raise an error where `bayes_n` gives an N to a task that is not evaluated."""
    for task in tasks.values():
        given = _metadata_of(task).get("bayes_n")
        if isinstance(given, Mapping) and isinstance(task, RepeatedSamplingTask):
            unknown = sorted(set(given) - set(tasks))
            if unknown:
                rule = f"name tasks of the run ({', '.join(tasks)})"
                raise InvalidInputError.of("bayes_n", "choice", rule, unknown[0])


# -- groups ---------------------------------------------------------------------------------------


def _groups(task_dict: Mapping[str, Any]) -> list[Any]:
    groups: Iterable[Any] = task_dict["groups"].values() if "groups" in task_dict else task_dict
    return [group for group in groups if hasattr(group, "get_all_tasks")]


def name_group_rows(groups: Iterable[Any]) -> None:
    """Replace the :class:`RowName` entries of groups by the names at the N of their tasks.

    Raises
    ------
    InvalidInputError
        If the tasks of a group have several N.
    """
    for group in groups:
        settings = [getattr(task, "settings", None) for task in group.get_all_tasks()]
        several = sorted({s.n for s in settings if s is not None})
        if len(several) > 1:
            rule = f"be the same for all tasks of the group {getattr(group, 'name', '?')}"
            raise InvalidInputError.of("bayes_n", "mismatch", rule, several)
        n = several[0] if several else None
        for entry in group.aggregate_metric_list or ():
            if n is not None and isinstance(entry.metric, RowName):
                entry.metric = entry.metric.at(n)


def _add_group_rows(results: Mapping[str, Any], groups: Iterable[Any]) -> None:
    """Give groups with tasks of this package the means over them, in both places of the results."""
    rows, rows_of_groups = results["results"], results.get("groups", {})
    for group in groups:
        if group.name in rows_of_groups and any(map(_samples_repeatedly, group.get_all_tasks())):
            replace_group_rows(group, rows[group.name], rows)
            rows_of_groups[group.name] = dict(rows[group.name])


# -- results --------------------------------------------------------------------------------------


def _add_stderrs(results: Mapping[str, Any]) -> None:
    """Put the sd that a number of an aggregation carries beside it, where the harness has none."""
    for rows in results.get("results", {}).values():
        for key, value in list(rows.items()):
            if isinstance(value, Mean):
                row, _, pipeline = key.partition(",")
                rows[f"{row}_stderr,{pipeline}"] = value.sigma


def _add_provenance(results: Mapping[str, Any], tasks: Mapping[str, Any]) -> None:
    """Put this package's version and the identity of the questions into the tasks' metadata.

    Where a metric of a task has no number the error stands beside them, by its name.
    """
    for name, task in tasks.items():
        config = results.get("configs", {}).get(name)
        if config is not None and _samples_repeatedly(task):
            errors = getattr(task, "metric_errors", {})
            config["metadata"] = {
                **(config.get("metadata") or {}),
                "lm_eval_bayes": {
                    "version": __version__,
                    **questions.identity(task),
                    **({"errors": errors} if errors else {}),
                },
            }


def check_results(results: Mapping[str, Any], tracker: Any) -> None:
    """Raise an error where the first metric of a task has no number.

    With a tracker, as on the command line, the harness saves and prints the results first.

    Raises
    ------
    TaskConfigError
        If there is such a task; its `results` are those of the run.
    """
    error = error_of_run(results)
    if tracker is None and error:
        failed = TaskConfigError(error, "failed")
        failed.results = results
        raise failed
