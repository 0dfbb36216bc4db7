"""The finished run that a new one is compared with."""

from __future__ import annotations

from collections.abc import Sequence

from lm_eval_bayes.errors import InvalidInputError
from lm_eval_bayes.runs.task_run import GRADED, TaskRun


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
        raise InvalidInputError.of("--decide", rule, path)
    by_task: dict[str, list[TaskRun]] = {}
    for run in graded:
        by_task.setdefault(run.task, []).append(run)
    for task, several in by_task.items():
        if len(several) > 1:
            rule = f"hold one model's run of task {task}; name the folder of one of them"
            raise InvalidInputError.of("--decide", rule, ", ".join(run.model for run in several))
    return {task: run for task, (run,) in by_task.items()}
