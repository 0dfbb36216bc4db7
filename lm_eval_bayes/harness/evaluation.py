"""The evaluation under way: the model that answers, and which requests are repeated trials.

The harness builds a task's requests without telling the task which model will answer them. While
the harness's `evaluate` runs, :func:`current_evaluation` returns that model; the wrapper around
`evaluate` (`lm_eval_bayes.harness.plugin.wrappers`) sets it in a context variable. What is cached
for the rows of an evaluation (:func:`cached_in_evaluation`) ends with it.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import Any, TypeVar

from lm_eval.api.instance import Instance


def new_instance(
    doc: Any,
    arguments: tuple[Any, ...] = ("", {}),
    *,
    task: str = "",
    doc_id: int = 0,
    repeats: int = 1,
    resps: Sequence[Any] = (),
    original: Any = None,
    kind: Callable[..., Any] = Instance,
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
    kind : callable
        Its class.
    """
    idx = 0
    if original is not None:
        task, doc_id, idx = original.task_name, original.doc_id, original.idx
    return kind(
        request_type="generate_until",
        doc=doc,
        arguments=arguments,
        idx=idx,
        metadata=(task, doc_id, repeats),
        resps=list(resps),
    )


_Function = TypeVar("_Function", bound=Callable[..., Any])


@dataclass
class RepeatedInstance(Instance):
    """A request that the harness sends several times and whose responses are trials.

    Attributes
    ----------
    trials : range
        The numbers of these trials among those of their question: all, or with K variants of its
        prompt every K-th.
    setting : tuple of str
        In which setting the model is run: `bayes_setting` and the name of the variant, of which the
        last one is the label.
    labels : sequence of str
        The label of every trial's setting; empty where there is none.
    """

    trials: range = range(0)
    setting: tuple[str, ...] = ()
    labels: Sequence[str] = ()


def trials_of(request: Any, first: int) -> range:
    """Return the numbers of a request's trials; others than ours have N from `first` on."""
    own: range = getattr(request, "trials", range(0))
    return own or range(first, first + int(request.repeats or 1))


def setting_of(request: Any) -> tuple[str, ...]:
    """Return the setting of a request, empty where there is none."""
    return getattr(request, "setting", ())


@dataclass(frozen=True)
class Evaluation:
    """One call of the harness's `evaluate`.

    Attributes
    ----------
    model : LM
        The model, without the wrapper of `--use_cache`.
    response_cache : bool
        Whether that wrapper is in use.
    caches : dict
        The functions of :func:`cached_in_evaluation`, with the results of this evaluation.
    tasks : mapping
        The evaluated tasks, by the name in their requests.
    named_tasks : mapping
        The evaluated tasks, by their names in the results.
    """

    model: Any
    response_cache: bool = False
    caches: dict[Callable[..., Any], Callable[..., Any]] = field(default_factory=dict)
    tasks: Mapping[str, Any] = field(default_factory=dict)
    named_tasks: Mapping[str, Any] = field(default_factory=dict)

    def grades(self, task_name: str, doc: Any, text: str) -> list[float]:
        """Return the score that a task gives to a response, once for every filter.

        NaN where grading fails or gives no number.
        """
        task = self.tasks[task_name]
        instance = new_instance(doc, task=task_name, resps=[text] * task.config.repeats)
        scores = []
        for pipeline in task._filters:
            try:
                pipeline.apply([instance])
                result = task.process_results(doc, [instance.filtered_resps[pipeline.name]])
                average = [value for row, value in result.items() if row.startswith("avg@")]
                scores.append(float((average or list(result.values()))[0]))
            except Exception:
                scores.append(math.nan)
        return scores


_current: ContextVar[Evaluation | None] = ContextVar("lm_eval_bayes_evaluation", default=None)


def current_evaluation() -> Evaluation | None:
    """Return the evaluation under way, None outside of the harness's `evaluate`."""
    return _current.get()


def cached_in_evaluation(maxsize: int) -> Callable[[_Function], _Function]:
    """Return a decorator that caches a function's results until the evaluation ends.

    Outside of an evaluation nothing is cached.

    Parameters
    ----------
    maxsize : int
        The number of results that are cached, as in :func:`functools.lru_cache`.
    """

    def decorate(function: _Function) -> _Function:
        @functools.wraps(function)
        def call(*args: Any) -> Any:
            evaluation = current_evaluation()
            if evaluation is None:
                return function(*args)
            if function not in evaluation.caches:
                evaluation.caches[function] = functools.lru_cache(maxsize)(function)
            return evaluation.caches[function](*args)

        return call  # type: ignore[return-value]

    return decorate


def error_of_run(results: Mapping[str, Any]) -> str:
    """Return why the first metrics of tasks of this package have no number, "" if all have.

    Parameters
    ----------
    results : mapping
        What `simple_evaluate` returns.
    """
    errors_of_run: dict[str, None] = {}
    for config in results.get("configs", {}).values():
        metadata = (config or {}).get("metadata") or {}
        errors = (metadata.get("lm_eval_bayes") or {}).get("errors") or {}
        settings = metadata.get("bayes") or {}
        others = (settings.get("metrics") or [])[1:]
        errors_of_run |= dict.fromkeys(text for name, text in errors.items() if name not in others)
    return "; ".join(errors_of_run)


@contextmanager
def evaluating(lm: Any, **further: Any) -> Iterator[Evaluation]:
    """Make `lm` the model of the evaluation under way.

    Parameters
    ----------
    lm : LM or CachingLM
        What `evaluate` is called with.
    **further
        Further attributes of the evaluation.
    """
    from lm_eval.api.model import CachingLM

    cached = isinstance(lm, CachingLM)
    evaluation = Evaluation(lm.lm if cached else lm, cached, **further)
    token = _current.set(evaluation)
    try:
        yield evaluation
    finally:
        _current.reset(token)
