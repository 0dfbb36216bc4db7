"""The evaluation under way: the model that answers, and which requests are repeated trials.

The harness builds a task's requests without telling the task which model will answer them. While
the harness's `evaluate` runs, :func:`current_evaluation` returns that model; the wrapper around
`evaluate` (`lm_eval_bayes.harness.plugin.wrappers`) sets it in a context variable.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Any

from lm_eval.api.instance import Instance


@dataclass
class RepeatedInstance(Instance):
    """A request that the harness sends N times and whose responses are N trials."""


@dataclass(frozen=True)
class Evaluation:
    """One call of the harness's `evaluate`.

    Attributes
    ----------
    model : LM
        The model, without the wrapper of `--use_cache`.
    response_cache : bool
        Whether that wrapper is in use.
    """

    model: Any
    response_cache: bool = False

    @property
    def unrecorded(self) -> tuple[str, ...] | None:
        """What the model cannot record of a trial; None if it records no trials."""
        names: tuple[str, ...] | None = getattr(self.model, "cannot_record", None)
        return names


_current: ContextVar[Evaluation | None] = ContextVar("lm_eval_bayes_evaluation", default=None)


def current_evaluation() -> Evaluation | None:
    """Return the evaluation under way, None outside of the harness's `evaluate`."""
    return _current.get()


@contextmanager
def evaluating(lm: Any) -> Iterator[Evaluation]:
    """Make `lm` the model of the evaluation under way.

    Parameters
    ----------
    lm : LM or CachingLM
        What `evaluate` is called with.
    """
    from lm_eval.api.model import CachingLM

    cached = isinstance(lm, CachingLM)
    evaluation = Evaluation(lm.lm if cached else lm, cached)
    token = _current.set(evaluation)
    try:
        yield evaluation
    finally:
        _current.reset(token)
