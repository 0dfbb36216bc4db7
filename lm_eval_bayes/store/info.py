"""Count the contents of a store."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from itertools import groupby
from operator import itemgetter
from typing import Any

from lm_eval_bayes._util.plain import NOT_IN_JSON, Record
from lm_eval_bayes.store.errors import readable
from lm_eval_bayes.store.file import StoreFile, check_structure
from lm_eval_bayes.store.locations import log_bytes
from lm_eval_bayes.store.schema import SCHEMA
from lm_eval_bayes.store.sources import first_sources
from lm_eval_bayes.store.trial import TrialKey


@dataclass(frozen=True)
class SeriesInfo(Record):
    """The trials of one model under one sampling.

    Attributes
    ----------
    model, sampling : str
        Their hashes.
    prompts : int
        Number of prompts with at least one trial.
    trials : int
        Number of trials.
    fewest, most : int
        The smallest and the largest number of trials per question.
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
    """The outcomes of one version of a task through one filter.

    Attributes
    ----------
    task, version, filter : str
        The task's name and version, and the filter's name.
    categories : int
        The number of categories that a trial may be graded as.
    questions, outcomes : int
        Number of questions, and of graded trials of all of them.
    """

    task: str
    version: str
    filter: str
    categories: int
    questions: int
    outcomes: int


@dataclass(frozen=True)
class StoreInfo(Record):
    """The contents of a store, counted.

    Attributes
    ----------
    path : str
        The file.
    schema : int
        Its schema.
    file_bytes, log_bytes : int
        Size of the file and of its write-ahead log.
    trials, prompts, prompt_signals, outcomes : int
        Number of trials, prompts, prompts with signals and graded outcomes.
    models, samplings : dict
        Fingerprints, with the first source of each, and generation settings, by hash.
    series : tuple of SeriesInfo
        One for each pair of model and sampling with trials.
    tasks : tuple of TaskInfo
        One for each version of a task and filter with outcomes.
    counts : dict
        The number of trials of every key.
    """

    path: str
    schema: int
    file_bytes: int
    log_bytes: int
    trials: int
    prompts: int
    prompt_signals: int
    outcomes: int
    models: dict[str, dict[str, Any]]
    samplings: dict[str, dict[str, Any]]
    series: tuple[SeriesInfo, ...]
    tasks: tuple[TaskInfo, ...]
    counts: dict[TrialKey, int] = field(repr=False, metadata=NOT_IN_JSON)

    def to_dict(self) -> dict[str, Any]:
        """Return plain JSON types, with `counts` as a list of keys with their trials."""
        counts = [{**key.to_dict(), "trials": n} for key, n in self.counts.items()]
        return {**super().to_dict(), "counts": counts}


def store_info(file: StoreFile) -> StoreInfo:
    """Count the contents of a store by model, sampling and prompt."""
    with file.reading() as connection, readable(file.path, "a description"):
        check_structure(connection, file.path)

        def rows(statement: str) -> list[Any]:
            return connection.execute(statement).fetchall()

        models, samplings = (
            {
                d: dict(json.loads(text))
                for d, text in rows(f"SELECT hash, description FROM {table}")
            }
            for table in ("models", "samplings")
        )
        by_prompt = rows(
            "SELECT m.hash, s.hash, p.hash, n, tokens, first, last FROM "
            "(SELECT model, sampling, prompt, count(*) AS n, total(completion_tokens) AS tokens, "
            "min(created) AS first, max(created) AS last FROM trials GROUP BY 1, 2, 3) "
            "JOIN models AS m ON m.id = model JOIN samplings AS s ON s.id = sampling "
            "JOIN prompts AS p ON p.id = prompt ORDER BY 1, 2, 3"
        )
        for digest, source in first_sources(connection).items():
            models[digest] = {**source, **models[digest]}
        prompt_signals = rows("SELECT count(*) FROM prompt_signals")[0][0]
        tasks = rows(
            "SELECT task, version, filter, categories, count(DISTINCT question), count(*) "
            "FROM outcomes JOIN questions ON questions.id = question "
            "GROUP BY 1, 2, 3, 4 ORDER BY 1, 2, 3, 4"
        )
        prompts = rows("SELECT count(*) FROM prompts")[0][0]
    counts, series = {}, []
    for (model, sampling), group in groupby(by_prompt, itemgetter(0, 1)):
        digests, sizes, tokens, first, last = list(zip(*group, strict=True))[2:]
        for prompt, n in zip(digests, sizes, strict=True):
            counts[TrialKey(model=model, prompt=prompt, sampling=sampling)] = n
        measured = (int(sum(tokens)), min(first), max(last))
        numbers = (len(sizes), sum(sizes), min(sizes), max(sizes))
        series.append(SeriesInfo(model, sampling, *numbers, *measured))
    return StoreInfo(
        path=str(file.path),
        schema=SCHEMA,
        file_bytes=file.path.stat().st_size,
        log_bytes=log_bytes(file.path),
        trials=sum(counts.values()),
        prompts=prompts,
        prompt_signals=prompt_signals,
        outcomes=sum(task[-1] for task in tasks),
        models=models,
        samplings=samplings,
        series=tuple(series),
        tasks=tuple(TaskInfo(*row) for row in tasks),
        counts=counts,
    )
