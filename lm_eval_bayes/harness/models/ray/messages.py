"""What the driver and the workers send each other: plain records."""

from __future__ import annotations

import traceback
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from lm_eval_bayes import errors
from lm_eval_bayes.errors import LmEvalBayesError, Rule
from lm_eval_bayes.harness.instances import new_instance
from lm_eval_bayes.harness.models.interface import TrialRequest
from lm_eval_bayes.store.trial import Trial

#: The most characters of an exception's message that are shown.
_LONGEST = 400


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
class Failure:
    """An exception in a worker.

    Attributes
    ----------
    kind : str
        The name of its class.
    message : str
        Its message.
    fatal : bool
        Whether it ends the run, as an error of the configuration does.
    rule, argument : str or None
        The id of the broken rule and the argument, for an error of this package.
    details : str
        The traceback.
    """

    kind: str
    message: str
    fatal: bool
    rule: Rule | None = None
    argument: str | None = None
    details: str = field(default="", repr=False)

    @classmethod
    def of(cls, error: BaseException, fatal: bool) -> Failure:
        """Describe an exception."""
        details = "".join(traceback.format_exception(error))
        rule, argument = getattr(error, "rule", None), getattr(error, "argument", None)
        return cls(type(error).__name__, str(error), fatal, rule, argument, details)

    def __str__(self) -> str:
        message = " ".join(self.message.split())
        shown = message if len(message) <= _LONGEST else f"{message[: _LONGEST - 3]}..."
        return f"{self.kind}: {shown}" if shown else self.kind

    def error(self, where: str) -> LmEvalBayesError:
        """Return the exception for the driver; one of this package keeps its class.

        Parameters
        ----------
        where : str
            The beginning of the sentence about any other exception.
        """
        kind = getattr(errors, self.kind, None)
        if isinstance(kind, type) and issubclass(kind, LmEvalBayesError):
            return kind(self.message, self.rule, self.argument)
        return WorkerFailedError(f"{where}: {self}")


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


@dataclass(frozen=True)
class Taken:
    """What a worker has finished since it was last asked.

    Attributes
    ----------
    trials : sequence of (int, Trial)
        Trials with the numbers of their requests.
    failure : Failure or None
        Why it samples no further trial.
    """

    trials: Sequence[tuple[int, Trial]]
    failure: Failure | None = None
