"""The finished run that a new one is compared with."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

from lm_eval_bayes.errors import InvalidInputError
from lm_eval_bayes.harness.adaptive.graded import TaskTrials, graded_task
from lm_eval_bayes.runs.saved_tasks import SavedTask, distinct, saved_tasks
from lm_eval_bayes.store.locations import is_store
from lm_eval_bayes.store.trial_store import TrialStore

_RULE = "be a run's output folder, one of its results or samples files, or a trial store"


def read_rival(path: str) -> dict[str, TaskTrials]:
    """Read the graded trials of a finished run.

    Parameters
    ----------
    path : str
        A folder that the harness wrote into (of every task the newest samples in it count), one
        of its `results_*.json` or `samples_*.jsonl` files, or a trial store.

    Returns
    -------
    dict
        The tasks by name.

    Raises
    ------
    InvalidInputError
        If there is no such run, it has several models, or none of its tasks has graded trials.
    """
    place = Path(path).expanduser()
    if not place.exists():
        raise InvalidInputError.of("decide", _RULE, path)
    if place.is_file() and place.suffix not in (".json", ".jsonl"):
        return _of_store(place)
    # a task of the harness's own has a configuration and no settings of ours
    saved = [one for one in saved_tasks([path], "decide") if one.settings or not one.config]
    if not saved:
        rule = f"{_RULE}, with logged samples (--log_samples) of a task of this package"
        raise InvalidInputError.of("decide", rule, path)
    for task, times in Counter(one.task for one in saved).items():
        if times > 1:
            models = ", ".join(one.model for one in saved if one.task == task)
            rule = f"hold one model's run of task {task}; name the folder of one of them"
            raise InvalidInputError.of("decide", rule, models)
    return {one.task: _graded(one) for one in saved}


def _graded(saved: SavedTask) -> TaskTrials:
    graded = graded_task(saved.task, saved.rows("decide"), saved.weights)
    if any(category >= len(graded.weights) for trials in graded.trials for category in trials):
        rule = "lie beside its results file, which tells the score of each category"
        raise InvalidInputError.of("decide", rule, saved.samples.name)
    return graded


def _of_store(place: Path) -> dict[str, TaskTrials]:
    """Read the outcomes that a store keeps with its trials: of one model, one version a task."""
    if not is_store(place.resolve()):
        raise InvalidInputError.of("decide", _RULE, str(place))
    with TrialStore.open(place, mode="read") as store:
        stored = store.outcomes_of()
    tasks: dict[str, TaskTrials] = {}
    for task in stored:
        if len(task.series) > 1 or task.task in tasks:
            rule = (
                f"hold one graded run of task {task.task}; this store has several models, sampling "
                "settings, versions or filters (name the output folder of one run instead)"
            )
            raise InvalidInputError.of("decide", rule, place.name)
        top = task.categories - 1
        tasks[task.task] = TaskTrials(
            task=task.task,
            doc_ids=tuple(question.doc_id for question in task.questions),
            question_ids=distinct([question.doc_hash for question in task.questions]),
            trials=tuple(
                tuple(trial.outcome for trial in question.trials) for question in task.questions
            ),
            weights=tuple(k / top for k in range(task.categories)),
        )
    if not tasks:
        rule = "hold graded trials: run a task of this package on it once"
        raise InvalidInputError.of("decide", rule, place.name)
    return tasks
