"""What differs between the harness's releases 0.4 and 0.5, under one set of names.

Everything else of this package uses the harness as 0.4 has it. ``ConfigurableTask``, which
`RepeatedSamplingTask` extends, is 0.4's own class, or the one of `release_0_5` on the tasks and
scorers of the preview 0.5.0.dev1.
"""

from __future__ import annotations

import importlib
import importlib.util
from collections.abc import MutableMapping, Sequence
from typing import Any

from lm_eval.api.instance import Instance

#: Whether ``metric: bayes`` can stand in a task's `metric_list`, which it can in 0.4 alone: a
#: metric of 0.5 cannot return rows with an aggregation of their own.
METRIC_FORM = importlib.util.find_spec("lm_eval.scorers") is None


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


def sample_size(task: Any, limit: float | None) -> int | None:
    """Return the number of questions that ``--limit`` leaves."""
    from lm_eval import evaluator_utils  # it imports the tasks

    name = "get_sample_size" if METRIC_FORM else "_get_sample_size"
    size: int | None = getattr(evaluator_utils, name)(task, limit)
    return size


def task_index(manager: Any) -> MutableMapping[str, Any]:
    """Return the index of tasks, groups and tags of a `TaskManager`."""
    index: MutableMapping[str, Any] = manager.task_index if METRIC_FORM else manager._index
    return index


def name_in_results(task: Any) -> str:
    """Return the name under which the results have a task; in 0.5 it begins with its group."""
    return str(task.task_name if METRIC_FORM else task._qualified_name)


def lists_bayes(task: Any) -> bool:
    """Return whether a task's `metric_list` has ``metric: bayes``."""
    if METRIC_FORM:
        return "bayes" in getattr(task, "_metric_fn_list", ())
    scorers = getattr(task, "scorers", None) or ()
    return any(metric.name == "bayes" for scorer in scorers for metric in scorer.metrics or ())


def postprocessed_text(raw: str, until: Sequence[str], think_end_token: str | None) -> str:
    """Return the response that the harness's backends return for a generated text.

    The think block is cut off by itself: 0.5.0.dev1 looks for stop strings in it as well.
    """
    from lm_eval.models.utils import postprocess_generated_text

    answer = postprocess_generated_text(raw, None, think_end_token)
    return str(postprocess_generated_text(answer, list(until), None))


def __getattr__(name: str) -> Any:
    """Return `ConfigurableTask` when it is first used: the harness may still be importing it."""
    if name != "ConfigurableTask":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    module = "lm_eval.api.task" if METRIC_FORM else f"{__name__}.release_0_5"
    return getattr(importlib.import_module(module), name)
