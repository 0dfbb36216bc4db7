"""What the driver and the workers send each other: plain records."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from lm_eval_bayes.errors import LmEvalBayesError, Rule
from lm_eval_bayes.harness.instances import new_instance
from lm_eval_bayes.harness.models.interface import TrialRequest


class WorkerFailedError(LmEvalBayesError, RuntimeError):
    """Workers cannot start, or die again and again."""

    rule: Rule | None = "failed"


@dataclass(frozen=True)
class WorkerSetup:
    """What a worker needs to build its engine.

    Attributes
    ----------
    backend : str
        The harness's name of the backend.
    arguments : mapping
        The arguments of the backend's class.
    folder : str
        The driver's working folder, which relative paths among the arguments start from.
    """

    backend: str
    arguments: Mapping[str, Any] = field(repr=False)
    folder: str


def question_of(request: TrialRequest) -> TrialRequest:
    """Return what the trials of a request's question share, without the task's own objects."""
    instance = request.instance
    plain = new_instance(
        getattr(instance, "doc", None),
        (request.context, request.kwargs),
        task=str(getattr(instance, "task_name", "")),
        doc_id=int(getattr(instance, "doc_id", 0) or 0),
    )
    return replace(request, instance=plain, kwargs=dict(request.kwargs))


@dataclass(frozen=True)
class WorkerRequest:
    """One trial that a worker is to sample.

    Attributes
    ----------
    number : int
        The number of the request in the session.
    question : int
        The position of its question.
    trial, seed : int
        The trial's number and its seed.
    measures : bool
        Whether the prompt is measured with it.
    """

    number: int
    question: int
    trial: int
    seed: int
    measures: bool


@dataclass(frozen=True)
class WorkerDescription:
    """What a worker that has loaded its model says of itself.

    Attributes
    ----------
    host : str
        The name of its computer.
    pid : int
        Its process id.
    slots : int
        How many trials it samples at once.
    fingerprint : mapping
        The fingerprint of its model.
    """

    host: str
    pid: int
    slots: int
    fingerprint: Mapping[str, Any] = field(repr=False)
