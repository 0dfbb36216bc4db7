"""Trial stores: the outcomes that its trials were graded as, and what was measured of them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from lm_eval_bayes._util.hashing import distinct_ids, model_hash, sha256_text
from lm_eval_bayes._util.text import plural
from lm_eval_bayes.errors import InvalidInputError
from lm_eval_bayes.rubric.signals import completion_limit, numbers, trial_signals
from lm_eval_bayes.runs.logged_texts import LoggedTexts, TrialText
from lm_eval_bayes.runs.model_arguments import flat, keyed, model_name
from lm_eval_bayes.runs.provenance import generation, greedy
from lm_eval_bayes.runs.readers.log_line import is_right_or_wrong
from lm_eval_bayes.runs.readers.protocol import FileContents, Query
from lm_eval_bayes.runs.task_run import Provenance
from lm_eval_bayes.runs.trials import PartialRun, Question, Trials, floats, questions_of
from lm_eval_bayes.stats import FloatArray
from lm_eval_bayes.store.errors import NotAStoreError
from lm_eval_bayes.store.file import lacks_log
from lm_eval_bayes.store.locations import is_store
from lm_eval_bayes.store.outcomes import GradedQuestion, GradedTask, GradedTrial
from lm_eval_bayes.store.samples_export import MEASURED, generation_kwargs
from lm_eval_bayes.store.trial import Trial, TrialId, TrialKey, list_first
from lm_eval_bayes.store.trial_store import TrialStore

#: What is measured of every trial and is a number.
_NUMBERS = tuple(
    name for name in MEASURED if name not in ("trial", "seed", "finish_reason", "stop_reason")
)


def is_mine(file: Path) -> bool:
    """Return whether a file is a trial store, which only SQLite opens."""
    try:
        return is_store(file.resolve())
    except NotAStoreError:
        return False


def read(file: Path, query: Query) -> FileContents:
    """Read the graded trials of every model, sampling and task in a store.

    Of several versions of a task the newest counts. A store keeps no scores of categories, so
    those of more than two are spaced evenly.

    Raises
    ------
    InvalidInputError
        If no task has graded its trials.
    StoreError
        If the store cannot be read.
    """
    runs: list[PartialRun] = []
    warnings: list[str] = []
    with TrialStore.open(file, mode="read") as store:
        if store.file.lacks_log:
            warnings.append(lacks_log(file))
        by_task: dict[str, list[GradedTask]] = {}
        for graded in store.outcomes_of():
            by_task.setdefault(graded.task, []).append(graded)
        texts = StoredTexts(file)
        chosen = [_choose(file, several, query, warnings) for several in by_task.values()]
        bytes_each = file.stat().st_size // max(1, sum(len(task.questions) for task in chosen))
        for graded in chosen:
            for model, sampling in graded.series:
                of_series = graded.of(model, sampling)
                runs.append(_read_series(store, of_series, model, sampling, query, warnings, texts))
            query.advance(bytes_each * len(graded.questions))
        n_trials = sum(store.trial_counts().values())
    if not runs:
        rule = (
            "hold graded trials: a run grades them at its end, started again if it was stopped; "
            "scores within bayes_bounds stand in its samples and not in the store"
        )
        got = f"{n_trials:,} trials without a grade in {file.name}"
        raise InvalidInputError.of(query.argument, "missing", rule, got)
    return FileContents(runs, tuple(by_task), warnings=tuple(warnings))


def _choose(
    path: Path, tasks: Sequence[GradedTask], query: Query, warnings: list[str]
) -> GradedTask:
    """Return the version and filter of a task that counts."""
    name = tasks[0].task
    filters = list(dict.fromkeys(task.filter for task in tasks))
    if query.filter is not None and query.filter not in filters:
        rule = f"be a filter that graded task {name} in {path}, {' or '.join(filters)}"
        raise InvalidInputError.of("filter", "choice", rule, query.filter)
    filter = query.filter or filters[0]
    candidates = [task for task in tasks if task.filter == filter]
    newest = max(candidates, key=lambda task: (_version(task.version), len(task.questions)))
    for task in candidates:
        if task is not newest:
            warnings.append(
                f"{path}: the grades of task {name} in version {task.version} with "
                f"{task.categories} categories were left out; version {newest.version} with "
                f"{newest.categories} counts"
            )
    if len(filters) > 1 and query.filter is None:
        warnings.append(f"{path}: filter {filter} of task {name} was counted (--filter)")
    return newest


def _version(text: str) -> tuple[float, str]:
    try:
        return float(text), text
    except ValueError:
        return float("-inf"), text


class StoredTexts:
    """The texts of a store's trials, which are read again when they are asked for."""

    def __init__(self, store: Path) -> None:
        self.files = (store,)
        self._trials: list[tuple[TrialKey, int]] = []

    def places(self, key: TrialKey, numbers: Sequence[int]) -> range:
        """Return the places of some trials of a question."""
        first = len(self._trials)
        self._trials += [(key, number) for number in numbers]
        return range(first, len(self._trials))

    def read(self, places: Sequence[int]) -> list[TrialText]:
        """Return the texts at some places.

        Raises
        ------
        InvalidInputError
            If a trial is no longer in the store.
        StoreError
            If the store cannot be read.
        """
        wanted = [self._trials[place] for place in places]
        damaged: list[TrialId] = []
        with TrialStore.open(self.files[0], mode="read") as store:
            found = store.trials_of(dict.fromkeys(key for key, _ in wanted), damaged=damaged)
        for key, number in wanted:
            if number not in found[key]:
                rule = f"be unchanged while it is read ({self.files[0]})"
                raise InvalidInputError.of(
                    "RUN", "damaged", rule, f"no trial {number} of a question"
                )
        return [TrialText(found[key][number].text) for key, number in wanted]


def _read_series(
    store: TrialStore,
    graded: GradedTask,
    model: str,
    sampling: str,
    query: Query,
    warnings: list[str],
    texts: StoredTexts,
) -> PartialRun:
    """Return the trials of one model and sampling, by their hashes, on one task."""
    fingerprint, kwargs = store.model(model), generation_kwargs(store.sampling(sampling))
    identifying, _ = keyed(fingerprint)
    backend = str(fingerprint.get("backend") or "")
    weights = tuple(k / (graded.categories - 1) for k in range(graded.categories))
    field, notes = _cluster_field(graded, query)
    parts: list[tuple[Question, Trials]] = []
    newest: Trial | None = None
    damaged: list[TrialId] = []
    ids = distinct_ids([question.doc_hash for question in graded.questions])
    for id, question in zip(ids, graded.questions, strict=True):
        trials = _of_one_prompt(question)
        key = trials[0].key
        by_number = store.trials_of([key], damaged=damaged)[key]
        stored = [by_number.get(trial.trial) for trial in trials]
        signals: dict[str, FloatArray] = {}
        if query.signals is not None:
            own = store.prompt_signals(model, [key.prompt]).get(key.prompt, {})
            signals = _signals(trials, stored, own, kwargs, is_right_or_wrong(weights))
        read, table = _question(id, question, trials, stored, store.prompt(key.prompt), texts)
        label = question.cluster
        cluster = label.label if label is not None and label.field == field else None
        parts.append((replace(read, cluster=cluster), replace(table, signals=signals)))
        newest = max(
            (trial for trial in (newest, *stored) if trial is not None),
            key=lambda trial: trial.created,
            default=None,
        )
    if damaged:
        warnings.append(
            f"{store.path}: {plural(len(damaged), 'text')} of task {graded.task} damaged and "
            f"not read; the grades count ({list_first(damaged, 1)}); the command that sampled "
            "them samples them again"
        )
    n_left_out = sum(len(question.trials) for question in graded.questions)
    n_left_out -= sum(table.number.size for _, table in parts)
    if n_left_out:
        warnings.append(
            f"{store.path}: {n_left_out:,} trials of task {graded.task} were left out, because "
            "their questions have more trials with another prompt"
        )
    if graded.categories > 2:
        notes.append(
            f"a trial store keeps no scores of the {graded.categories} categories: they were "
            "spaced evenly from 0 to 1"
        )
    questions, trials_of_all = questions_of(parts)
    return PartialRun(
        model=model_name(fingerprint, backend),
        task=graded.task,
        sources=(str(texts.files[0]),),
        questions=questions,
        trials=trials_of_all,
        weights=weights,
        filter=graded.filter,
        provenance=Provenance(
            backend=backend,
            model_args=flat(fingerprint),
            generation_kwargs=kwargs,
            date=None if newest is None else newest.created,
            versions={**(newest.versions if newest is not None else {}), "task": graded.version},
        ),
        notes=tuple(notes),
        settings=generation(kwargs),
        arguments={k: v for k, v in flat(identifying).items() if k != "pretrained"},
        fingerprint=model_hash(identifying),
        version=graded.version,
        sampled=not greedy(kwargs),
    )


def _cluster_field(graded: GradedTask, query: Query) -> tuple[str | None, list[str]]:
    """Return the field whose clusters count, if all questions have one, and notes on why not.

    Clusters by another field than that of the query are no clusters; the reader of all runs
    refuses a run that has none.
    """
    fields = {question.cluster and question.cluster.field for question in graded.questions}
    if query.cluster is not None:
        return query.cluster if fields == {query.cluster} else None, []
    if len(fields) == 1:
        return fields.pop(), []
    n_without = sum(question.cluster is None for question in graded.questions)
    return None, [
        f"{n_without:,} of {len(graded.questions):,} questions have no cluster and the others one "
        f"by field {' or '.join(sorted(filter(None, fields)))}: all were taken as independent"
    ]


def _of_one_prompt(question: GradedQuestion) -> list[GradedTrial]:
    """Return the trials of the prompt that has most of them, by number."""
    by_prompt: dict[str, list[GradedTrial]] = {}
    for trial in question.trials:
        by_prompt.setdefault(trial.key.prompt, []).append(trial)
    most = max(by_prompt.values(), key=lambda trials: len(trials))
    return sorted(most, key=lambda trial: trial.trial)


def _question(
    id: str,
    question: GradedQuestion,
    trials: Sequence[GradedTrial],
    stored: Sequence[Trial | None],
    prompt: str,
    texts: StoredTexts,
) -> tuple[Question, Trials]:
    """Return the trials of one prompt; None stands for a stored trial that is missing."""
    measured = {n: floats(c) for n, c in _columns([_measured(t, _NUMBERS) for t in stored]).items()}
    present = [i for i, trial in enumerate(stored) if trial is not None]
    places = np.full(len(trials), -1)
    places[present] = texts.places(trials[0].key, [trials[i].trial for i in present])
    digests = [hash(trial.text) for trial in stored if trial is not None]
    read = Question(id, prompt.strip(), sha256_text(prompt), question.doc_id)
    return read, Trials.of_question(
        [trial.outcome for trial in trials],
        [trial.trial for trial in trials],
        answers=[trial.answer for trial in trials],
        seeds=[None if trial is None else trial.seed for trial in stored],
        digest=np.array(digests, dtype=np.int64) if len(digests) == len(trials) else None,
        logged=LoggedTexts.at(places, texts),
        measured={name: column for name, column in measured.items() if column is not None},
    )


def _signals(
    trials: Sequence[GradedTrial],
    stored: Sequence[Trial | None],
    of_prompt: Mapping[str, Any],
    kwargs: Mapping[str, Any],
    binary: bool,
) -> dict[str, FloatArray]:
    """Compute the signals of the trials of one question, as from a log of the same trials."""
    present = [i for i, trial in enumerate(stored) if trial is not None]
    computed = trial_signals(
        [trial.text for trial in stored if trial is not None],
        [trials[i].outcome for i in present],
        _columns([{**_measured(stored[i], MEASURED), **of_prompt} for i in present]),
        binary=binary,
        max_gen_toks=completion_limit(kwargs),
    )
    signals = {name: np.full(len(trials), np.nan) for name in computed}
    for name, values in computed.items():
        signals[name][present] = numbers(values)
    return signals


def _measured(trial: Trial | None, names: Sequence[str]) -> Mapping[str, Any]:
    if trial is None:
        return {}
    return {**{name: getattr(trial, name) for name in names}, **(trial.signals or {})}


def _columns(rows: Sequence[Mapping[str, Any]]) -> dict[str, list[Any]]:
    names = dict.fromkeys(name for row in rows for name in row)
    return {name: [row.get(name) for row in rows] for name in names}
