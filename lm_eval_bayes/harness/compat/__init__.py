"""What differs between the harness's releases 0.4 and 0.5, under one set of names.

Everything else of this package uses the harness as 0.4 has it. `release_0_4` hands on its own
names; `release_0_5` puts the tasks and scorers of the preview 0.5.0.dev1 behind them.

- ``ConfigurableTask``: the class that `RepeatedSamplingTask` extends.
- ``new_instance``: make a request.
- ``sample_size``: the number of questions that ``--limit`` leaves.
- ``task_index``: the index of a `TaskManager`.
- ``name_in_results``: the name of a task in the results, with its group in 0.5.
- ``lists_bayes``, ``METRIC_FORM``: whether a task lists ``metric: bayes``, and whether it can.
"""

from __future__ import annotations

import importlib
import importlib.util
from collections.abc import Sequence
from typing import Any

from lm_eval.api.instance import Instance

#: Whether ``metric: bayes`` can stand in a task's `metric_list`, which it can in 0.4 alone: a
#: metric of 0.5 cannot return rows with an aggregation of their own.
METRIC_FORM = importlib.util.find_spec("lm_eval.scorers") is None

#: What is imported when it is first used: parts of this package are while the harness still is.
_OF_TASKS = ("ConfigurableTask", "lists_bayes", "name_in_results", "sample_size", "task_index")


def new_instance(
    doc: Any,
    arguments: tuple[Any, ...] = ("", {}),
    *,
    task: str = "",
    doc_id: int = 0,
    repeats: int = 1,
    resps: Sequence[Any] = (),
    original: Any = None,
    kind: type[Any] = Instance,
) -> Any:
    """Return a `generate_until` request.

    Parameters
    ----------
    doc : object
        The question.
    arguments : tuple
        Prompt and generation settings.
    task : str
        The name of the task.
    doc_id : int
        The number of the question.
    repeats : int
        How often the harness sends it.
    resps : sequence
        Its responses, for what is already answered.
    original : Instance, optional
        The request that it takes the place of, with its task and number.
    kind : type
        Its class.
    """
    fields: dict[str, Any] = {"task_name": task, "doc_id": doc_id, "repeats": repeats}
    if METRIC_FORM:
        if original is not None:
            task, doc_id = original.task_name, original.doc_id
        idx = 0 if original is None else original.idx
        fields = {"idx": idx, "metadata": (task, doc_id, repeats)}
    elif original is not None:
        names = ("task_name", "doc_id", "idx", "target", "additional_args")
        fields.update({name: getattr(original, name) for name in names})
    return kind(
        request_type="generate_until", doc=doc, arguments=arguments, resps=list(resps), **fields
    )


def __getattr__(name: str) -> Any:
    """Return a name of the release's module, which imports the harness's tasks."""
    if name not in _OF_TASKS:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    release = "release_0_4" if METRIC_FORM else "release_0_5"
    return getattr(importlib.import_module(f"{__name__}.{release}"), name)
