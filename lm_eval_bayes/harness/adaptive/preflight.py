"""What a run is about to ask, known before a model is loaded and anything is sampled."""

from __future__ import annotations

import json
import random
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from lm_eval_bayes.errors import InvalidInputError, TaskConfigError
from lm_eval_bayes.runs.task_run import TaskRun, distinct_ids

if TYPE_CHECKING:
    from lm_eval_bayes.harness.task.repeated_sampling import RepeatedSamplingTask


@dataclass(frozen=True)
class AskedTask:
    """One task of a run that has not begun.

    Attributes
    ----------
    task : str
        The task's name.
    weights : tuple of float
        The score of each category.
    question_ids : tuple of str
        The hashes of its questions, as the harness will log them; empty if nobody needs them.
    """

    task: str
    weights: tuple[float, ...]
    question_ids: tuple[str, ...] = ()

    def check_width(self, width: float) -> None:
        """Refuse a width that every interval has reached.

        Raises
        ------
        InvalidInputError
            If no interval of the score can be wider.
        """
        low, high = min(self.weights), max(self.weights)
        if width >= high - low:
            rule = (
                f"be below {high - low:g}, for the score of task {self.task} goes from {low:g} to "
                f"{high:g} and no interval is wider"
            )
            raise InvalidInputError.of("--width", rule, width)

    def check_rival(self, run: str, rivals: Mapping[str, TaskRun]) -> None:
        """Refuse a finished run whose score is not about the same.

        Parameters
        ----------
        run : str
            What to call it.
        rivals : mapping of str to TaskRun
            Its graded trials.

        Raises
        ------
        InvalidInputError
            If it lacks the task, or has other questions or scores.
        """
        rival = rivals.get(self.task)
        if rival is None:
            raise InvalidInputError(
                f"--decide: {run} has no graded trials of {self.task}; "
                f"it has those of {', '.join(sorted(rivals)) or 'no task'}"
            )
        only_there = len(set(rival.question_ids) - set(self.question_ids))
        only_here = len(set(self.question_ids) - set(rival.question_ids))
        told = []
        if only_there:
            told.append(f"has {_many(only_there)} of {self.task} that this run does not ask")
        if only_here:
            told.append(f"lacks {_many(only_here)} of {self.task} that this run asks")
        if told:
            raise InvalidInputError(
                f"--decide: {run} {' and '.join(told)}; "
                "both must ask the same questions (the same --tasks, --limit and --samples)"
            )
        weights = tuple(rival.outcomes.weights.tolist())
        if weights != self.weights:
            raise InvalidInputError(
                f"--decide: {run} scores the categories of {self.task} with "
                f"{_listed(weights)}, and this run with {_listed(self.weights)}"
            )


def asked_tasks(arguments: Mapping[str, Any], *, hashed: bool) -> dict[str, AskedTask]:
    """Load the tasks that the harness is about to evaluate.

    Parameters
    ----------
    arguments : mapping
        Those of the harness's `simple_evaluate`.
    hashed : bool
        Whether the hashes of the questions are wanted.

    Returns
    -------
    dict
        The tasks by name.

    Raises
    ------
    InvalidInputError
        If `--limit` leaves no question, there is no task, or nothing is to be graded.
    TaskConfigError
        If a task was not sampled repeatedly by this package, or has no question.
    """
    from lm_eval_bayes.harness.task.repeated_sampling import RepeatedSamplingTask

    limit = arguments.get("limit")
    if limit is not None and not limit > 0:
        raise InvalidInputError.of("--limit", "leave at least one question to ask", limit)
    if not arguments["tasks"]:
        raise InvalidInputError.of("--tasks", "name at least one task", None)
    if arguments.get("predict_only"):
        rule = "be left out: a run looks at graded trials"
        raise InvalidInputError.of("--predict_only", rule, True)
    _seed_as_the_harness(arguments)
    loaded = arguments["task_manager"].load(arguments["tasks"])["tasks"]
    found = {}
    for name, task in loaded.items():
        if not isinstance(task, RepeatedSamplingTask):
            raise TaskConfigError(
                f"task {name} logs no graded trials, so nothing can be decided about it; use one "
                "of this package's tasks, or RepeatedSamplingTask as the class of your own"
            )
        questions = _questions(name, task, arguments)
        first = next(questions, None)
        if first is None:
            raise TaskConfigError(f"task {name}: there is no question to ask")
        ids: tuple[str, ...] = ()
        if hashed:
            ids = distinct_ids([_hash(doc) for doc in (first, *questions)])
        found[name] = AskedTask(name, tuple(task.settings.weights), ids)
    return found


def _seed_as_the_harness(arguments: Mapping[str, Any]) -> None:
    """Set the global seeds that the harness sets before it loads tasks.

    A task that shuffles choices from them has the same questions here as later.
    """
    if arguments.get("random_seed") is not None:
        random.seed(arguments["random_seed"])
    if arguments.get("numpy_random_seed") is not None:
        np.random.seed(arguments["numpy_random_seed"])  # noqa: NPY002


def _questions(
    name: str, task: RepeatedSamplingTask, arguments: Mapping[str, Any]
) -> Iterator[Mapping[str, Any]]:
    from lm_eval.evaluator_utils import get_sample_size

    limit = get_sample_size(task, arguments.get("limit"))
    chosen = (arguments.get("samples") or {}).get(name)
    for _, doc in task.doc_iterator(limit=limit, samples=chosen):
        yield doc


def _hash(doc: Mapping[str, Any]) -> str:
    """Return the `doc_hash` that the harness logs."""
    from lm_eval.utils import handle_non_serializable, hash_string

    text = json.dumps(doc, indent=2, default=handle_non_serializable, ensure_ascii=False)
    return str(hash_string(text))


def _many(n: int) -> str:
    return "1 question" if n == 1 else f"{n:,} questions"


def _listed(weights: tuple[float, ...]) -> str:
    return ", ".join(f"{weight:g}" for weight in weights)
