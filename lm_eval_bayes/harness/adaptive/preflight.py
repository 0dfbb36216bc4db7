"""The preflight of a run: tasks, questions and the baseline run, checked before the model loads."""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from lm_eval_bayes._util.hashing import distinct_ids
from lm_eval_bayes._util.text import plural
from lm_eval_bayes.errors import InvalidInputError, TaskConfigError
from lm_eval_bayes.harness.adaptive.stopping import Goal
from lm_eval_bayes.runs.task_run import GRADED, TaskRun


def preflight(arguments: Mapping[str, Any], goal: Goal) -> None:
    """Load the tasks that the harness will evaluate, and check the goal of the run against them.

    Parameters
    ----------
    arguments : mapping
        Those of the harness's `simple_evaluate`.
    goal : Goal
        When the run stops.

    Raises
    ------
    InvalidInputError
        If `--limit` leaves no question, there is no task, or nothing is to be graded; if every
        interval has the width; or if the baseline run lacks a task or has other questions or
        scores.
    TaskConfigError
        If a task was not sampled repeatedly by this package, has scores, or has no question; or if
        trials are to be allocated over more than one task.
    """
    from lm_eval.evaluator_utils import get_sample_size  # it imports the tasks

    from lm_eval_bayes.harness.task.repeated_sampling import RepeatedSamplingTask
    from lm_eval_bayes.harness.task.requests import doc_hash

    limit = arguments.get("limit")
    if limit is not None and not limit > 0:
        raise InvalidInputError.of("--limit", "empty", "leave at least one question", limit)
    if not arguments["tasks"]:
        raise InvalidInputError.of("--tasks", "empty", "name at least one task", None)
    if arguments.get("predict_only"):
        rule = "be left out: interim analyses need graded trials"
        raise InvalidInputError.of("--predict_only", "conflict", rule, True)
    _seed_as_the_harness(arguments)
    tasks = arguments["task_manager"].load(arguments["tasks"])["tasks"]
    for name, task in tasks.items():
        if not isinstance(task, RepeatedSamplingTask):
            sentence = (
                f"task {name} logs no graded trials, so nothing can be decided about it; use one "
                "of this package's tasks, or RepeatedSamplingTask as the class of your own"
            )
            raise TaskConfigError(sentence, "unsupported", "task", name)
        if task.settings.bounds is not None:
            sentence = (
                f"task {name} has scores within bayes_bounds, for which there is no stopping rule; "
                "sample it with lm_eval"
            )
            raise TaskConfigError(sentence, "unsupported", "bayes_bounds", task.settings.bounds)
        chosen = (arguments.get("samples") or {}).get(name)
        questions = list(task.doc_iterator(limit=get_sample_size(task, limit), samples=chosen))
        if not questions:
            raise TaskConfigError(f"task {name}: there is no question", "empty", "task", name)
        weights = tuple(task.settings.weights)
        if goal.width is not None:
            _check_width(goal.width, name, weights)
        if goal.baseline is not None:
            ids = distinct_ids([doc_hash(doc) for _, doc in questions])
            _check_baseline(goal, name, weights, set(ids))
    if goal.allocate and len(tasks) != 1:
        sentence = (
            f"--allocate questions works on one task at a time; there are {len(tasks)}: "
            f"{', '.join(tasks)}"
        )
        raise TaskConfigError(sentence, "unsupported", "--allocate", list(tasks))


def _check_width(width: float, task: str, weights: Sequence[float]) -> None:
    """Raise an error for a width that every interval has."""
    low, high = min(weights), max(weights)
    if width >= high - low:
        rule = (
            f"be below {high - low:g}, since the score of task {task} goes from {low:g} "
            f"to {high:g} and no interval is wider"
        )
        raise InvalidInputError.of("--width", "range", rule, width)


def _check_baseline(goal: Goal, task: str, weights: tuple[float, ...], ids: set[str]) -> None:
    """Raise an error if the baseline run lacks a task, or has other questions or scores."""
    run, baselines = f"the run {goal.baseline_name}", goal.baseline or {}
    baseline = baselines.get(task)
    if baseline is None:
        sentence = (
            f"--decide: {run} has no graded trials of {task}; "
            f"it has those of {', '.join(sorted(baselines)) or 'no task'}"
        )
        raise InvalidInputError(sentence, "missing", "--decide", task)
    baseline_ids = set(baseline.question_ids)
    differences = [
        f"{verb} {plural(len(questions), 'question')} of {task} that this run {rest}"
        for verb, questions, rest in (
            ("has", baseline_ids - ids, "does not ask"),
            ("lacks", ids - baseline_ids, "asks"),
        )
        if questions
    ]
    if differences:
        sentence = (
            f"--decide: {run} {' and '.join(differences)}; "
            "both must ask the same questions (the same --tasks, --limit and --samples)"
        )
        raise InvalidInputError(sentence, "mismatch", "--decide", differences)
    scores = tuple(baseline.outcomes.weights.tolist())
    if scores != weights:
        listed, own = (", ".join(map("{:g}".format, each)) for each in (scores, weights))
        sentence = (
            f"--decide: {run} scores the categories of {task} with {listed}, and this run with "
            f"{own}"
        )
        raise InvalidInputError(sentence, "mismatch", "--decide", scores)


def _seed_as_the_harness(arguments: Mapping[str, Any]) -> None:
    """Set the global seeds that the harness sets before it loads tasks.

    A task that shuffles choices from them has the same questions now as in the evaluation.
    """
    if arguments.get("random_seed") is not None:
        random.seed(arguments["random_seed"])
    if arguments.get("numpy_random_seed") is not None:
        np.random.seed(arguments["numpy_random_seed"])  # noqa: NPY002


def baseline_runs(runs: Sequence[TaskRun], path: str) -> dict[str, TaskRun]:
    """Return the graded trials of a finished run, task by task.

    Parameters
    ----------
    runs : sequence of TaskRun
        What was read at the path.
    path : str
        The path, for errors.

    Returns
    -------
    dict
        The runs by the names of their tasks.

    Raises
    ------
    InvalidInputError
        If there are runs of several models, or none with graded trials.
    """
    graded = [run for run in runs if run.metric == GRADED and run.trials is not None]
    if not graded:
        rule = "hold graded trials of a task of this package (a run with --log_samples, or a store)"
        raise InvalidInputError.of("--decide", "missing", rule, path)
    by_task = {run.task: run for run in graded}
    for task in by_task:
        models = [run.model for run in graded if run.task == task]
        if len(models) > 1:
            rule = f"hold one model's run of task {task}; name the folder of one of them"
            raise InvalidInputError.of("--decide", "mismatch", rule, ", ".join(models))
    return by_task
