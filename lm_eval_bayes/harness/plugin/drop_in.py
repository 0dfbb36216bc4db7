"""Checks, before sampling, on tasks that use `- metric: bayes` without our class.

The harness calls a metric only after everything is sampled, and under some settings never. So a
task that lists `bayes` is checked when it is built. Tasks that do not list it are not changed.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

from lm_eval_bayes.errors import TaskConfigError
from lm_eval_bayes.harness import get_logger
from lm_eval_bayes.harness.plugin import evaluate, patches, plain_errors
from lm_eval_bayes.harness.task import pipelines
from lm_eval_bayes.harness.task.requests import (
    check_request_cache,
    receive_responses,
    repeat_requests,
)

log = get_logger(__name__)


def install() -> None:
    """Check every task that lists `bayes` as soon as the harness has built it.

    Any task of this package also has the harness's `evaluate` wrapped, for a process without
    start-up file.
    """
    plain_errors.install()
    problem = patches.install(patches.TASK_INIT, _checked)
    if problem is not None:
        log.warning("%s: tasks that list `metric: bayes` are not checked before sampling", problem)


def _checked(original: Callable[..., None]) -> Callable[..., None]:
    @functools.wraps(original)
    def __init__(self: Any, *args: Any, **kwargs: Any) -> None:
        original(self, *args, **kwargs)
        repeated = _has_our_class(self)
        if repeated or "bayes" in self._metric_fn_list:
            evaluate.install()
            if not repeated:
                _prepare(self)

    return __init__


def _has_our_class(task: Any) -> bool:
    from lm_eval_bayes.harness.task.repeated_sampling import RepeatedSamplingTask

    return isinstance(task, RepeatedSamplingTask)


def _prepare(task: Any) -> None:
    from lm_eval.api.task import ConfigurableTask

    from lm_eval_bayes.harness.plugin import aggregations
    from lm_eval_bayes.harness.plugin.metrics import USE_THE_CLASS, settings_of

    name, config = str(task.config.task), task.config
    if task.OUTPUT_TYPE != "generate_until":
        raise TaskConfigError(
            f"task {name}: metric bayes must have `output_type: generate_until`; "
            f"got {task.OUTPUT_TYPE}"
        )
    own = type(task).process_results is not ConfigurableTask.process_results
    if own or callable(config.process_results):
        raise TaskConfigError(
            f"task {name}: its `process_results` bypasses metric_list, so metric bayes would "
            f"never be computed; {USE_THE_CLASS}"
        )
    if task.multiple_target:
        raise TaskConfigError(
            f"task {name}: metric bayes must have one gold answer a question, and this task's "
            f"target is a list; {USE_THE_CLASS}"
        )
    if task._aggregation_list["bayes"] is not aggregations.bayes:
        raise TaskConfigError(f"task {name}: metric bayes must have `aggregation: bayes`")
    options = task._metric_fn_kwargs["bayes"]
    settings = settings_of(options, config.repeats)
    if config.filter_list is None:
        raise TaskConfigError(
            f"task {name}: metric bayes must have a `filter_list` that keeps all responses; the "
            "harness's default keeps the first of them. Add "
            "`filter_list: [{name: none, filter: [{function: keep_all}]}]`"
        )
    doc = task.task_docs[0]
    for pipeline in task._filters if settings.check else ():
        out = pipelines.probe_output(pipeline, settings.n, doc, ["0"], name)
        if not isinstance(out, (list, tuple)):
            raise TaskConfigError(
                f"task {name}: filter pipeline `{pipeline.name}` must end in "
                "`- function: keep_all` and hand metric bayes a list; it hands on one response "
                "of a question, which would be bayes@1"
            )
        pipelines.check_keeps_all(pipeline, out, settings.n, name)
    task._higher_is_better["grading_errors"] = False
    # Several ranks pad the last question; the metric needs N to drop what is too much.
    options["n"] = settings.n
    yaml_kwargs = dict(config.generation_kwargs or {})

    def repeated(build_all_requests: Callable[..., None]) -> Callable[..., None]:
        @functools.wraps(build_all_requests)
        def build(**kwargs: Any) -> None:
            check_request_cache(bool(kwargs.get("cache_requests")), kwargs.get("samples"), name)
            build_all_requests(**kwargs)
            repeat_requests(task, settings, yaml_kwargs)

        return build

    def received(apply_filters: Callable[[], None]) -> Callable[[], None]:
        @functools.wraps(apply_filters)
        def filters() -> None:
            receive_responses(task._instances, settings, name)
            apply_filters()

        return filters

    for row, wrap in ((patches.TASK_REQUESTS, repeated), (patches.TASK_FILTERS, received)):
        problem = patches.install(row, wrap, owner=task)
        if problem is not None:
            raise TaskConfigError(f"task {name}: {problem}; {USE_THE_CLASS}")
