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
from lm_eval_bayes.harness.plugin import metric_lists
from lm_eval_bayes.harness.plugin.aggregations import Mean
from lm_eval_bayes.harness.task import questions
from lm_eval_bayes.harness.task.final_results import check_group, finish
from lm_eval_bayes.harness.task.metrics import BY_METRIC
from lm_eval_bayes.harness.task.repeated_sampling import RepeatedSamplingTask

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
    _check_names(by_own_name)
    _warn_of_unused_settings(tasks)
    for group in groups:
        check_group(group)
    with (
        evaluating(arguments["lm"], tasks=by_own_name, named_tasks=tasks) as evaluation,
        seeded_trials(evaluation.model),
        _stored_trials_named(evaluation.model),
    ):
        results = original(**arguments)
        if results is not None:  # None on all ranks but the first
            if results.get("samples"):
                results["samples"] = read_later(results["samples"])
            _add_stderrs(results)
            _add_provenance(results, tasks, finish(results, tasks, groups))
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


def _check_names(tasks: Mapping[str, Any]) -> None:
    """Raise an error where a setting by task or by metric names one that no task has."""
    metrics = {name for task in tasks.values() for name in getattr(task, "_metric_fn_list", ())}
    known = {"bayes_n": set(tasks), **dict.fromkeys(BY_METRIC, metrics)}
    for task in tasks.values():
        for key, names in known.items() if isinstance(task, RepeatedSamplingTask) else ():
            given = _metadata_of(task).get(key)
            by_name = given if isinstance(given, Mapping) else {}
            unknown = [name for name in by_name if name not in names]
            if unknown:
                kind = "tasks" if key == "bayes_n" else "metrics"
                rule = f"name {kind} of the run ({', '.join(sorted(names))})"
                raise InvalidInputError.of(key, "choice", rule, unknown[0])


# -- groups ---------------------------------------------------------------------------------------


def _groups(task_dict: Mapping[str, Any]) -> list[Any]:
    groups: Iterable[Any] = task_dict["groups"].values() if "groups" in task_dict else task_dict
    return [group for group in groups if hasattr(group, "get_all_tasks")]


# -- results --------------------------------------------------------------------------------------


def _add_stderrs(results: Mapping[str, Any]) -> None:
    """Put the sd that a number of an aggregation carries beside it, where the harness has none."""
    for rows in results.get("results", {}).values():
        for key, value in list(rows.items()):
            if isinstance(value, Mean):
                row, _, pipeline = key.partition(",")
                rows[f"{row}_stderr,{pipeline}"] = value.sigma


def _add_provenance(
    results: Mapping[str, Any], tasks: Mapping[str, Any], recorded: Mapping[str, Any]
) -> None:
    """Put this package's version and the identity of the questions into the tasks' metadata.

    Beside them stands what is recorded of a task's metrics, see `finish`.
    """
    for name, task in tasks.items():
        config = results.get("configs", {}).get(name)
        if config is not None and _samples_repeatedly(task):
            config["metadata"] = {
                **(config.get("metadata") or {}),
                "lm_eval_bayes": {
                    "version": __version__,
                    **questions.identity(task),
                    "protocol": getattr(task, "protocol", None),
                    **recorded.get(name, {}),
                },
            }


def check_results(results: dict[str, Any], tracker: Any) -> None:
    """Raise an error where the first metric of a task has no number.

    The run is saved and printed before, as by the harness's command, which passes its tracker.

    Raises
    ------
    TaskConfigError
        If there is such a task; its `results` are those of the run.
    """
    error, samples = error_of_run(results), results.get("samples") or {}
    if not error:
        return
    if tracker is not None:
        from lm_eval.utils import make_table

        aggregated = {name: value for name, value in results.items() if name != "samples"}
        tracker.save_results_aggregated(aggregated, samples)
        for task, of_task in samples.items():
            tracker.save_results_samples(task, of_task)
        print(make_table(aggregated))
        if tracker.output_path and samples:
            error += (
                "; nothing is lost: `lm-eval-bayes summary "
                f"{tracker.output_path} --bounds LOW:HIGH` counts the saved scores"
            )
    failed = TaskConfigError(error, "failed")
    failed.results = results
    raise failed
