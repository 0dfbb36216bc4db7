"""One call of the harness's `evaluate` in which something of this package is in use.

Tasks see the model that answers. Groups average the rows of this package, YAMLs that list its
metrics or aggregations compute them, and the results hold the version and the identity of the
questions.
"""

from __future__ import annotations

import shlex
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from lm_eval.evaluator_utils import _handle_back_comp

from lm_eval_bayes import __version__
from lm_eval_bayes._util.text import plural
from lm_eval_bayes.errors import InvalidInputError, TaskConfigError
from lm_eval_bayes.harness import get_logger
from lm_eval_bayes.harness.evaluation import error_of_run, evaluating
from lm_eval_bayes.harness.models.api_seeds import seeded_trials
from lm_eval_bayes.harness.models.stored_texts import read_later
from lm_eval_bayes.harness.plugin import metrics
from lm_eval_bayes.harness.plugin.aggregations import Mean
from lm_eval_bayes.harness.task import questions
from lm_eval_bayes.harness.task.final_results import check_group, finish
from lm_eval_bayes.harness.task.metrics import BY_METRIC

log = get_logger(__name__)

#: The most scores that the harness's command prints in sentences.
_SHOWN = 5


def evaluate_with_trials(original: Callable[..., Any], **arguments: Any) -> tuple[Any, list[str]]:
    """Return what the harness's `evaluate` returns, with what this package adds.

    Beside it stand the scores in sentences.

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
    loaded = arguments["task_dict"]
    groups, tasks = loaded.get("groups", {}), loaded.get("tasks")
    if tasks is None:
        groups, tasks = _handle_back_comp(loaded)
    in_use = {name: task for name, task in tasks.items() if metrics.prepare(task)}
    # the name in a task's requests, which `task_dict` may call otherwise
    own_names = [
        str(getattr(_config_of(task), "task", None) or name) for name, task in tasks.items()
    ]
    _check_names(tasks, in_use, own_names)
    by_own_name = dict(zip(own_names, tasks.values(), strict=True))
    for group in groups.values():
        check_group(group)
    with (
        evaluating(arguments["lm"], tasks=by_own_name, named_tasks=tasks) as evaluation,
        seeded_trials(evaluation.model),
        _stored_trials_named(evaluation.model),
    ):
        results = original(**arguments)
        sentences: list[str] = []
        if results is not None:  # None on all ranks but the first
            if results.get("samples"):
                results["samples"] = read_later(results["samples"])
            _add_stderrs(results)
            recorded, sentences = finish(results, tasks, groups.values())
            _add_provenance(results, in_use, recorded)
    return results, sentences


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


def _config_of(task: Any) -> Any:
    return getattr(task, "config", None)


def _metadata_of(task: Any) -> Mapping[str, Any]:
    return getattr(_config_of(task), "metadata", None) or {}


def _check_names(
    tasks: Mapping[str, Any], in_use: Mapping[str, Any], own_names: Sequence[str]
) -> None:
    """Raise an error where a setting by task or by metric names one that no task has."""
    metrics = [name for task in tasks.values() for name in getattr(task, "_metric_fn_list", ())]
    allowed = {"bayes_n": own_names, **dict.fromkeys(BY_METRIC, metrics)}
    for task in in_use.values():
        for key, names in allowed.items():
            given = _metadata_of(task).get(key)
            unknown = [n for n in given if n not in names] if isinstance(given, Mapping) else []
            if unknown:
                kind = "tasks" if key == "bayes_n" else "metrics"
                rule = f"name {kind} of the run ({', '.join(dict.fromkeys(names))})"
                raise InvalidInputError.of(key, "choice", rule, unknown[0])
    unused = [n for n, task in tasks.items() if n not in in_use and "bayes_n" in _metadata_of(task)]
    if unused:
        log.warning(
            "bayes_n has no effect on %s, which %s not sampled repeatedly; %s_bayes is",
            *(", ".join(unused), "is" if len(unused) == 1 else "are", unused[0]),
        )


# -- results --------------------------------------------------------------------------------------


def _add_stderrs(results: Mapping[str, Any]) -> None:
    """Put the sd that a number of an aggregation carries beside it, where the harness has none."""
    for rows in results.get("results", {}).values():
        for key, value in list(rows.items()):
            if isinstance(value, Mean):
                row, _, pipeline = key.partition(",")
                rows[key] = float(value)
                if value.sigma is not None:
                    rows[f"{row}_stderr,{pipeline}"] = value.sigma


def _add_provenance(
    results: Mapping[str, Any], tasks: Mapping[str, Any], recorded: Mapping[str, Any]
) -> None:
    """Put this package's version and the identity of the questions into the tasks' metadata.

    Beside them stands what is recorded of a task's metrics, see `finish`.
    """
    for name, task in tasks.items():
        config = results.get("configs", {}).get(name)
        if config is not None:
            config["metadata"] = {
                **(config.get("metadata") or {}),
                "lm_eval_bayes": {
                    "version": __version__,
                    **questions.identity(task),
                    "protocol": getattr(task, "protocol", None),
                    **recorded.get(name, {}),
                },
            }


def with_next_step(scores: Sequence[str], arguments: Mapping[str, Any]) -> list[str]:
    """Return the sentences that the harness's command prints, with the command that shows more.

    Parameters
    ----------
    scores : sequence of str
        The scores; of many the first are shown.
    arguments : mapping
        Those of `simple_evaluate`; without saved samples there is nothing to show.
    """
    path = getattr(arguments.get("evaluation_tracker"), "output_path", None)
    if not path or not arguments.get("log_samples"):
        command = ""
    else:
        folder = Path(path).parent if Path(path).suffix == ".json" else Path(path)
        command = f"lm-eval-bayes summary {shlex.quote(str(folder))}"
    shown, more = [f"{text}." for text in scores[:_SHOWN]], len(scores) - _SHOWN
    if more > 0:
        return [*shown, f"{more} more" + (f": {command}" if command else "")]
    return [*shown[:-1], shown[-1] + (f" Next: {command}" if command else "")]


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
