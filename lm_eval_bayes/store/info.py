"""Count the contents of a store by model, sampling and task."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

from lm_eval_bayes._util.plain import Record
from lm_eval_bayes.store.file import StoreFile
from lm_eval_bayes.store.locations import log_bytes
from lm_eval_bayes.store.schema import MODELS, SAMPLINGS, SOURCES


@dataclass(frozen=True)
class SeriesInfo(Record):
    """The trials of one model under one sampling.

    Attributes
    ----------
    model, sampling : str
        Their hashes.
    prompts, trials : int
        Number of prompts with at least one trial, and of trials.
    fewest, most : int
        The smallest and the largest number of trials per prompt.
    completion_tokens : int
        Sum of the completions' token counts.
    first, last : float
        Creation times of the first and the last trial, in seconds since 1970 UTC.
    """

    model: str
    sampling: str
    prompts: int
    trials: int
    fewest: int
    most: int
    completion_tokens: int
    first: float
    last: float


@dataclass(frozen=True)
class TaskInfo(Record):
    """The graded trials of one model and sampling on one version of a task, through one filter.

    Attributes
    ----------
    model, sampling : str
        Their hashes.
    task, version, filter : str
        The task's name and version, and the filter's name.
    categories : int
        The number of categories that a trial may be graded as.
    questions, outcomes : int
        Number of questions, and of graded trials of all of them.
    fewest, most : int
        The smallest and the largest number of graded trials per question.
    """

    model: str
    sampling: str
    task: str
    version: str
    filter: str
    categories: int
    questions: int
    outcomes: int
    fewest: int
    most: int


@dataclass(frozen=True)
class StoreInfo(Record):
    """The contents of a store, counted.

    Attributes
    ----------
    path : str
        The file.
    file_bytes, log_bytes : int
        Size of the file and of its write-ahead log.
    trials, ungraded, prompts, prompt_signals, outcomes : int
        Number of trials, of those that no task graded, prompts, prompts with signals and graded
        outcomes.
    models, samplings : dict
        Fingerprints, with the first source of each, and generation settings, by hash.
    series : tuple of SeriesInfo
        One for each pair of model and sampling with trials.
    tasks : tuple of TaskInfo
        One for each pair, version of a task and filter with outcomes.
    """

    path: str
    file_bytes: int
    log_bytes: int
    trials: int
    ungraded: int
    prompts: int
    prompt_signals: int
    outcomes: int
    models: dict[str, dict[str, Any]]
    samplings: dict[str, dict[str, Any]]
    series: tuple[SeriesInfo, ...]
    tasks: tuple[TaskInfo, ...]


_SERIES = """
SELECT m.hash, s.hash, count(*), sum(n), min(n), max(n), sum(tokens), min(first), max(last) FROM (
    SELECT model, sampling, count(*) AS n, CAST(total(completion_tokens) AS INTEGER) AS tokens,
    min(created) AS first, max(created) AS last FROM trials GROUP BY model, sampling, prompt
) JOIN models AS m ON m.id = model JOIN samplings AS s ON s.id = sampling
GROUP BY 1, 2 ORDER BY 1, 2
"""

_TASKS = """
SELECT m.hash, s.hash, task, version, filter, categories, count(*), sum(n), min(n), max(n) FROM (
    SELECT model, sampling, question, count(*) AS n FROM outcomes GROUP BY 1, 2, 3
) JOIN models AS m ON m.id = model JOIN samplings AS s ON s.id = sampling
JOIN questions AS q ON q.id = question GROUP BY 1, 2, 3, 4, 5, 6 ORDER BY 1, 2, 3, 4, 5, 6
"""

COUNT_UNGRADED = """
SELECT count(*) FROM (SELECT model, sampling, prompt, trial FROM trials
EXCEPT SELECT model, sampling, prompt, trial FROM outcomes)
"""


def store_info(file: StoreFile) -> StoreInfo:
    """Count the contents of a store by model, sampling and task."""
    with file.reading(checked=True) as connection:
        n_prompts, n_signals, n_trials, n_outcomes = (
            connection.execute(f"SELECT count(*) FROM {table}").fetchone()[0]
            for table in ("prompts", "prompt_signals", "trials", "outcomes")
        )
        samplings = {
            row.digest: dict(json.loads(row.texts[0]))
            for row in file.intact(file.rows(connection, SAMPLINGS))
        }
        n_ungraded = connection.execute(COUNT_UNGRADED).fetchone()[0]
        series = connection.execute(_SERIES).fetchall()
        tasks = connection.execute(_TASKS).fetchall()
    return StoreInfo(
        path=str(file.path),
        file_bytes=file.path.stat().st_size,
        log_bytes=log_bytes(file.path),
        trials=n_trials,
        ungraded=n_ungraded,
        prompts=n_prompts,
        prompt_signals=n_signals,
        outcomes=n_outcomes,
        models=read_models(file),
        samplings=samplings,
        series=tuple(SeriesInfo(*row) for row in series),
        tasks=tuple(TaskInfo(*row) for row in tasks),
    )


def read_models(file: StoreFile, sources: bool = True) -> dict[str, dict[str, Any]]:
    """Return the fingerprints of models, see :meth:`TrialStore.models`."""
    with file.reading() as connection:
        models = {
            row.digest: dict(json.loads(row.texts[0]))
            for row in file.intact(file.rows(connection, MODELS, "ORDER BY t.id"))
        }
        first: dict[str, dict[str, Any]] = {}
        by_time = "ORDER BY t.created, t.description"
        for row in file.rows(connection, SOURCES, by_time) if sources else ():
            if row.is_intact():  # a damaged one is left out
                model, description, _ = row.values
                first.setdefault(model, dict(json.loads(description)))
    return {digest: {**first.get(digest, {}), **model} for digest, model in models.items()}
