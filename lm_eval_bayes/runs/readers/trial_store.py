"""Trial stores: the outcomes that its trials were graded as, and what was measured of them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np

from lm_eval_bayes._util.hashing import canonical_json, model_hash
from lm_eval_bayes._util.text import format_date, plural
from lm_eval_bayes.errors import InvalidInputError
from lm_eval_bayes.runs.log_fields import number
from lm_eval_bayes.runs.logged_texts import TrialText
from lm_eval_bayes.runs.model_arguments import flat, keyed, model_name
from lm_eval_bayes.runs.provenance import LoggedTask
from lm_eval_bayes.runs.readers.harness_log import Samples, runs_of_samples
from lm_eval_bayes.runs.readers.protocol import FileContents, Query
from lm_eval_bayes.runs.readers.tables import LogFile
from lm_eval_bayes.runs.readers.trial_texts import Records
from lm_eval_bayes.runs.settings import RECORDED
from lm_eval_bayes.runs.task_run import Provenance
from lm_eval_bayes.runs.trials import PartialRun
from lm_eval_bayes.store.errors import NotAStoreError
from lm_eval_bayes.store.file import lacks_log
from lm_eval_bayes.store.locations import is_store
from lm_eval_bayes.store.outcomes import GradedQuestion, GradedTask, GradedTrial
from lm_eval_bayes.store.samples_export import generation_kwargs, logged_signals, setting_of
from lm_eval_bayes.store.trial import Trial, TrialId, TrialKey, list_first
from lm_eval_bayes.store.trial_store import TrialStore


def is_mine(file: LogFile) -> bool:
    """Return whether a file is a trial store, which only SQLite opens."""
    try:
        return is_store(file.path.resolve())
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
    runs, warnings = list[PartialRun](), list[str]()
    with TrialStore.open(file, mode="read") as store:
        if store.file.lacks_log:
            warnings.append(lacks_log(file))
        by_task: dict[str, list[GradedTask]] = {}
        for graded in store.outcomes_of():
            by_task.setdefault(graded.task, []).append(graded)
        chosen = [_choose(file, several, query, warnings) for several in by_task.values()]
        for graded in chosen:
            for of_settings in _by_settings(store, graded):
                runs += _runs(file, store, of_settings, query, warnings)
        n_ungraded = store.n_ungraded()
    ungraded = f"{plural(n_ungraded, 'trial')} without a grade"
    if not runs:
        rule = "hold graded trials: a run grades them at its end, started again if it was stopped; "
        rule += "scores within bayes_bounds stand in its samples and not in the store"
        raise InvalidInputError.of("RUN", "missing", rule, f"{ungraded} in {file.name}")
    if n_ungraded:
        warnings.append(f"{file}: {ungraded} left out; the command that sampled them grades them")
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
    newest = max(candidates, key=lambda t: (number(t.version) or 0.0, t.version, len(t.questions)))
    if len(tasks) > 1:
        by = f"version {newest.version}, {newest.categories} categories, filter {filter} (--filter)"
        warnings.append(f"{path}: of {len(tasks)} gradings of task {name} that of {by} counts")
    return newest


def _by_settings(store: TrialStore, graded: GradedTask) -> Iterator[GradedTask]:
    """Yield the trials of each model and sampling, those of its labelled settings together."""
    series: dict[tuple[str, str], list[str]] = {}
    for model, sampling in graded.series:
        described = store.sampling(sampling)
        setting = setting_of(described)
        described["setting"] = [bool(setting), *setting[:-1]]  # of these the last is the label
        series.setdefault((model, canonical_json(described)), []).append(sampling)
    for (model, _), samplings in series.items():
        yield graded.of(model, *samplings)


#: When trials were made and with which versions, by the number of the question, their own and the
#: label of their setting.
_Made: TypeAlias = dict[tuple[int | None, int, str | None], tuple[float, Mapping[str, Any]]]


class StoredTexts(Records):
    """The texts of a store's trials: those of a question are a record."""

    def __init__(self, store: Path) -> None:
        super().__init__([store])
        self.trials: list[list[GradedTrial]] = []

    def record(self, number: int) -> list[TrialText]:
        """Return the texts of a question."""
        with TrialStore.open(self.files[0], mode="read") as store:
            stored = _stored(store, self.trials[number], [])
        missing = TrialText(None, damaged=True)
        return [missing if trial is None else TrialText(trial.text) for trial in stored]


def _stored(
    store: TrialStore, graded: Sequence[GradedTrial], damaged: list[TrialId]
) -> list[Trial | None]:
    """Return the trials of a store, None for those that cannot be read."""
    trials = store.trials_of(dict.fromkeys(trial.key for trial in graded), damaged=damaged)
    return [trials[trial.key].get(trial.trial) for trial in graded]


def _runs(
    file: Path, store: TrialStore, graded: GradedTask, query: Query, warnings: list[str]
) -> list[PartialRun]:
    """Return the trials of one model and sampling on one task, read as a log of them is."""
    key = graded.questions[0].trials[0].key
    fingerprint, kwargs = store.model(key.model), generation_kwargs(store.sampling(key.sampling))
    identifying, _ = keyed(fingerprint)
    backend = str(fingerprint.get("backend") or "")
    weights = [k / (graded.categories - 1) for k in range(graded.categories)]
    task = LoggedTask(
        model=model_name(fingerprint, backend),
        task=graded.task,
        samples=file,
        config={"metadata": {"bayes": {"weights": weights}}},
        results={"versions": {graded.task: graded.version}},
    )
    texts, made, damaged = StoredTexts(file), _Made(), list[TrialId]()
    rows = _rows(store, graded, kwargs, texts, made, damaged)
    runs = runs_of_samples(Samples(task, rows, lambda: texts), query, warnings)
    if damaged:
        listed = f"{plural(len(damaged), 'text')} of task {graded.task} ({list_first(damaged, 1)})"
        again = "the command that sampled them samples them again"
        warnings.append(f"{file}: {listed} damaged and not read; the grades count; {again}")
    n_left_out = sum(len(q.trials) for q in graded.questions) - sum(map(len, texts.trials))
    if n_left_out:
        more = f"their questions have more trials with another prompt (task {graded.task})"
        warnings.append(f"{file}: {n_left_out:,} trials were left out, because {more}")
    notes = []
    if graded.categories > 2:
        spaced = f"the scores of the {graded.categories} categories were spaced evenly from 0 to 1"
        notes.append(f"{spaced}: a trial store keeps none")
    if _cluster_field(graded) is None and any(question.cluster for question in graded.questions):
        independent = "all were taken as independent"
        notes.append(f"not all questions have a cluster by one field: {independent}")
    date, versions = max(made.values(), key=lambda of_trial: of_trial[0], default=(None, {}))
    provenance = Provenance(
        backend=backend,
        model_args=flat(fingerprint),
        generation_kwargs=kwargs,
        date=date,
        versions={**versions, "task": graded.version},
    )
    common: dict[str, Any] = {
        "provenance": provenance,
        "arguments": {k: v for k, v in flat(identifying).items() if k != "pretrained"},
        "fingerprint": model_hash(identifying),
    }
    runs = [replace(run, **common, notes=(*notes, *run.notes)) for run in runs]
    if query.settings not in RECORDED:
        return runs
    return [part for run in runs for part in _parts(run, made)]


def _parts(run: PartialRun, made: _Made) -> Iterator[PartialRun]:
    """Yield the trials of one day and of the same versions, as a run that was resumed has several.

    Trials that are damaged have none.
    """
    parts: dict[object, tuple[Provenance, list[int]]] = {}
    table = run.trials
    labels = [None] * table.number.size if table.setting is None else table.setting.tolist()
    trials = zip(table.question.tolist(), table.number.tolist(), labels, strict=True)
    for row, (question, trial, label) in enumerate(trials):
        date, versions = made.get((run.questions[question].doc_id, trial, label), (None, {}))
        key = (format_date(date, "%Y-%m-%d"), repr(versions))
        if key not in parts:
            of_part = {**versions, "task": run.version}
            parts[key] = replace(run.provenance, date=date, versions=of_part), []
        parts[key][1].append(row)
    for provenance, rows in parts.values():
        yield replace(run, trials=table.take(np.array(rows)), provenance=provenance)


def _rows(
    store: TrialStore,
    graded: GradedTask,
    kwargs: Mapping[str, Any],
    texts: StoredTexts,
    made: _Made,
    damaged: list[TrialId],
) -> Iterator[dict[str, Any]]:
    """Yield the questions as lines of a log; add when trials were made, and the damaged ones."""
    field = _cluster_field(graded)
    labels = _labels(store, graded)
    for question in graded.questions:
        keys = {trial.key for trial in question.trials}
        are_settings = len({labels[key] for key in keys}) == len(keys)
        chosen = question.trials if are_settings else _of_one_prompt(question)
        trials = sorted(chosen, key=lambda trial: trial.trial)
        key, numbers = trials[0].key, [trial.trial for trial in trials]
        texts.trials.append(trials)
        stored = _stored(store, trials, damaged)
        present = [trial for trial in stored if trial is not None]
        prompts = {trial.key.prompt for trial in trials}
        of_trials = [labels[trial.key] for trial in trials]
        for label, trial in zip(of_trials, stored, strict=True):
            if trial is not None:
                made[question.doc_id, trial.trial, label] = trial.created, trial.versions
        own = store.prompt_signals(key.model, prompts)
        row: dict[str, Any] = {
            "doc_id": question.doc_id,
            "doc_hash": question.doc_hash,
            "arguments": [[store.prompt(key.prompt), kwargs]],
            "filter": graded.filter,
            "outcomes": [trial.outcome for trial in trials],
            "answers": [trial.answer for trial in trials],
            "grading_error_notes": {
                str(i): t.error for i, t in enumerate(trials) if t.error is not None
            },
            "signals": {**logged_signals(stored, own), "trial": numbers},
        }
        if any(of_trials):
            row |= {"setting": of_trials, "n_prompts": len(prompts)}
        if len(present) == len(stored):
            row["resps"] = [[trial.text for trial in present]]
        if question.cluster and field:
            row |= {"doc": {field: question.cluster.label}, "cluster": question.cluster.label}
        yield row


def _labels(store: TrialStore, graded: GradedTask) -> dict[TrialKey, str | None]:
    """Return the label of the setting of every series of trials, None where there is none.

    Prompts of one setting are "prompt 1", "prompt 2", … if every question has as many, and all
    trials of one were made before those of the next; else it is not known which belong together.
    """
    labels: dict[TrialKey, str | None] = {}
    for sampling in dict.fromkeys(sampling for _, sampling in graded.series):
        setting = setting_of(store.sampling(sampling))
        keys = [
            dict.fromkeys(t.key for t in question.trials if t.key.sampling == sampling)
            for question in graded.questions
        ]
        asked = [list(of_question) for of_question in keys if of_question]
        label = setting[-1] if setting else None
        labels |= dict.fromkeys((key for of_question in asked for key in of_question), label)
        if {*map(len, asked)} == {1} or len({*map(len, asked)}) > 1:
            continue
        spans: list[list[tuple[float, float]]] = [[] for _ in asked[0]]
        named = {}
        for of_question in asked:
            stored = store.trials_of(of_question)
            times = [sorted(t.created for t in stored[k].values()) or [0.0] for k in of_question]
            by_time = sorted(zip(times, range(len(times)), of_question, strict=True))
            for i, (of_key, _, key) in enumerate(by_time):
                spans[i].append((of_key[0], of_key[-1]))
                named[key] = f"{label or 'prompt'} {i + 1}"
        ends = [(min(a for a, _ in of), max(b for _, b in of)) for of in spans]
        if all(first[1] < second[0] for first, second in pairwise(ends)):
            labels |= named
    return labels


def _cluster_field(graded: GradedTask) -> str | None:
    """Return the field of the documents that names the clusters; None where there are several."""
    fields = {question.cluster and question.cluster.field for question in graded.questions}
    return fields.pop() if len(fields) == 1 else None


def _of_one_prompt(question: GradedQuestion) -> list[GradedTrial]:
    """Return in each setting the trials of the prompt that has most of them, by number."""
    most = Counter(trial.key for trial in question.trials).most_common()
    best = {key.sampling: key for key, _ in reversed(most)}
    trials = (trial for trial in question.trials if trial.key == best[trial.key.sampling])
    return sorted(trials, key=lambda trial: trial.trial)
