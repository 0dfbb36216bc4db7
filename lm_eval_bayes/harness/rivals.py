"""The finished run that a new one is compared with."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from lm_eval_bayes.errors import InvalidInputError
from lm_eval_bayes.harness.graded import TaskTrials, distinct, graded_task
from lm_eval_bayes.store.locations import is_store
from lm_eval_bayes.store.trials import TrialStore

_RULE = "be a run's output folder, one of its results or samples files, or a trial store"


def read_rival(path: str) -> dict[str, TaskTrials]:
    """Read the graded trials of a finished run.

    Parameters
    ----------
    path : str
        A folder that the harness wrote into (the newest results in it count), one of its
        `results_*.json` or `samples_*.jsonl` files, or a trial store.

    Returns
    -------
    dict
        The tasks by name.

    Raises
    ------
    InvalidInputError
        If there is no such run, or none of its tasks has graded trials.
    """
    place = Path(path).expanduser()
    if place.is_file() and place.suffix not in (".json", ".jsonl"):
        return _of_store(place)
    if place.is_file() and place.name.startswith("samples_"):
        files = [place]
        results = _results_beside(place)
    else:
        results = place if place.is_file() else _newest(place, path)
        stamp = results.stem.removeprefix("results_")
        files = sorted(results.parent.glob(f"samples_*_{stamp}.jsonl"))
    configs = json.loads(results.read_text(encoding="utf-8")).get("configs", {}) if results else {}
    tasks = {}
    for file in files:
        name = _task_of(file, configs)
        config: Mapping[str, Any] = configs.get(name, {})
        settings = (config.get("metadata") or {}).get("bayes") or {}
        rows = list(_rows(file))
        if rows and "outcomes" in rows[0]:
            weights = tuple(settings.get("weights") or (0.0, 1.0))
            tasks[name] = graded_task(name, rows, weights)
    if not tasks:
        rule = f"{_RULE}, with logged samples (--log_samples) of a task of this package"
        raise InvalidInputError.of("decide", rule, path)
    return tasks


def _newest(folder: Path, path: str) -> Path:
    found = sorted(folder.rglob("results_*.json"), key=lambda file: file.stat().st_mtime)
    if not found:
        raise InvalidInputError.of("decide", _RULE, path)
    return found[-1]


def _results_beside(samples: Path) -> Path | None:
    stamp = samples.stem.rpartition("_")[2]
    results = samples.with_name(f"results_{stamp}.json")
    return results if results.is_file() else None


def _task_of(samples: Path, configs: Mapping[str, Any]) -> str:
    name = samples.stem.removeprefix("samples_").rpartition("_")[0]
    return (
        name
        if name in configs or not configs
        else next((task for task in configs if name == task.replace("/", "__")), name)
    )


def _rows(file: Path) -> Iterator[dict[str, Any]]:
    with file.open(encoding="utf-8") as lines:
        for number, line in enumerate(lines, 1):
            try:
                yield json.loads(line)
            except json.JSONDecodeError as error:
                rule = f"be a whole samples file; line {number} of {file.name} is cut off"
                raise InvalidInputError.of("decide", rule, str(error)) from error


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
