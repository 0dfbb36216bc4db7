"""The runs that a trial store keeps: what its trials were graded as, and what was measured."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from lm_eval_bayes._util.hashing import model_hash, sha256_text
from lm_eval_bayes.errors import InvalidInputError
from lm_eval_bayes.rubric.trial_signals import completion_limit, trial_signals
from lm_eval_bayes.runs.model_arguments import flat, model_name, normalised
from lm_eval_bayes.runs.partial_runs import Part, PartQuestion, floats
from lm_eval_bayes.runs.provenance import generation, greedy
from lm_eval_bayes.runs.readers.harness_log import Wanted
from lm_eval_bayes.runs.readers.logged_rows import Advance
from lm_eval_bayes.runs.task_run import Made, distinct_ids
from lm_eval_bayes.stats.validation import FloatArray
from lm_eval_bayes.store.outcomes import GradedQuestion, GradedTask, GradedTrial
from lm_eval_bayes.store.samples_export import MEASURED, generation_kwargs
from lm_eval_bayes.store.trial import Trial
from lm_eval_bayes.store.trial_store import TrialStore

#: Questions whose texts are held at a time.
_BATCH = 100

#: What is measured of every trial and is a number.
_NUMBERS = tuple(
    name for name in MEASURED if name not in ("trial", "seed", "finish_reason", "stop_reason")
)


def read_store(
    path: Path, wanted: Wanted, told: list[str], advance: Advance | None = None
) -> list[Part]:
    """Read the graded trials of every model, sampling and task in a store.

    Of several versions of a task the newest counts. A store keeps no scores of categories, so
    those of more than two are spaced evenly.

    Parameters
    ----------
    path : Path
        The store.
    wanted : Wanted
        What counts.
    told : list of str
        Gets what was left out.
    advance : callable, optional
        Gets the bytes that were read, as a share of the file.

    Raises
    ------
    InvalidInputError
        If no task has graded its trials.
    StoreError
        If it cannot be read.
    """
    parts = []
    with TrialStore.open(path, mode="read") as store:
        by_task: dict[str, list[GradedTask]] = {}
        for graded in store.outcomes_of():
            by_task.setdefault(graded.task, []).append(graded)
        chosen = [_chosen(path, here, wanted, told) for here in by_task.values()]
        bytes_each = path.stat().st_size // max(1, sum(len(one.questions) for one in chosen))
        for graded in chosen:
            notes = _notes(graded)
            for model, sampling in graded.series:
                read = list(
                    _questions(store, graded.of(model, sampling), told, wanted.signals is not None)
                )
                parts.append(_part(store, path, graded, (model, sampling), read, notes))
            if advance is not None:
                advance(bytes_each * len(graded.questions))
    if not parts:
        rule = "hold graded trials: run a task of this package on it once"
        raise InvalidInputError.of(wanted.argument, rule, path.name)
    return parts


def _chosen(path: Path, tasks: Sequence[GradedTask], wanted: Wanted, told: list[str]) -> GradedTask:
    """Return what counts of a task's versions and filters."""
    name = tasks[0].task
    filters = sorted({one.filter for one in tasks}, key=lambda one: (one != "none", one))
    if wanted.filter is not None and wanted.filter not in filters:
        rule = f"be a filter that graded task {name} in {path}, {' or '.join(filters)}"
        raise InvalidInputError.of("filter", rule, wanted.filter)
    pipeline = wanted.filter or filters[0]
    fitting = [one for one in tasks if one.filter == pipeline]
    newest = max(fitting, key=lambda one: (_version(one.version), len(one.questions)))
    for one in fitting:
        if one is not newest:
            told.append(
                f"{path}: what task {name} was graded as in version {one.version} with "
                f"{one.categories} categories was left out, version {newest.version} with "
                f"{newest.categories} counts"
            )
    if len(filters) > 1 and wanted.filter is None:
        told.append(f"{path}: filter {pipeline} of task {name} was counted (--filter)")
    return newest


def _version(text: str) -> tuple[float, str]:
    try:
        return float(text), text
    except ValueError:
        return float("-inf"), text


def _notes(graded: GradedTask) -> tuple[str, ...]:
    if graded.categories == 2:
        return ()
    return (
        f"a trial store keeps no scores of the {graded.categories} categories: they were spaced "
        "evenly from 0 to 1",
    )


def _part(
    store: TrialStore,
    path: Path,
    graded: GradedTask,
    series: tuple[str, str],
    read: Sequence[tuple[PartQuestion, Trial | None]],
    notes: tuple[str, ...],
) -> Part:
    fingerprint, sampling = normalised(store.model(series[0])), store.sampling(series[1])
    backend, arguments = str(fingerprint.get("backend") or ""), flat(fingerprint)
    newest = max((one for _, one in read if one is not None), key=lambda t: t.created, default=None)
    top = graded.categories - 1
    made = Made(
        backend=backend,
        model_args=arguments,
        generation_kwargs=generation_kwargs(sampling),
        date=None if newest is None else newest.created,
        versions={**(newest.versions if newest is not None else {}), "task": graded.version},
    )
    return Part(
        model=model_name(fingerprint, backend),
        task=graded.task,
        sources=(str(path),),
        questions={question.id: question for question, _ in read},
        weights=tuple(k / top for k in range(graded.categories)),
        filter=graded.filter,
        made=made,
        notes=notes,
        settings=generation(made.generation_kwargs),
        arguments={k: v for k, v in arguments.items() if k not in ("backend", "pretrained")},
        fingerprint=model_hash(fingerprint),
        version=graded.version,
        sampled=not greedy(made.generation_kwargs),
    )


def _questions(
    store: TrialStore, graded: GradedTask, told: list[str], with_signals: bool
) -> Iterator[tuple[PartQuestion, Trial | None]]:
    """Return every question with its trials, and the trial of each that was made last."""
    ids = distinct_ids([question.doc_hash for question in graded.questions])
    left_out = 0
    for start in range(0, len(ids), _BATCH):
        batch = [_of_one_prompt(q) for q in graded.questions[start : start + _BATCH]]
        there = store.trials_of({trial.key for one in batch for trial in one})
        for id, question, trials in zip(ids[start:], graded.questions[start:], batch, strict=False):
            left_out += len(question.trials) - len(trials)
            made = [there[one.key].get(one.trial) for one in trials]
            newest = max((t for t in made if t), key=lambda t: t.created, default=None)
            prompt = trials[0].key.prompt
            read = _question(id, store.prompt(prompt), trials, made)
            if with_signals:
                signals = _signals(store, trials, made, graded.categories == 2)
                read = replace(read, signals=signals)
            yield replace(read, doc_id=question.doc_id), newest
    if left_out:
        told.append(
            f"{store.path}: {left_out:,} trials of task {graded.task} were left out, for "
            "their questions have more trials with another prompt"
        )


def _of_one_prompt(question: GradedQuestion) -> list[GradedTrial]:
    """Return the trials of the prompt that has most of them, by number."""
    by_prompt: dict[str, list[GradedTrial]] = {}
    for trial in question.trials:
        by_prompt.setdefault(trial.key.prompt, []).append(trial)
    most = max(by_prompt.values(), key=lambda trials: len(trials))
    return sorted(most, key=lambda trial: trial.trial)


def _question(
    id: str, prompt: str, trials: Sequence[GradedTrial], made: Sequence[Trial | None]
) -> PartQuestion:
    signals = [_measured(one) for one in made]
    names = dict.fromkeys(name for one in signals for name in one)
    measured = {name: floats([one.get(name) for one in signals]) for name in names}
    whole = all(one is not None for one in made)
    return PartQuestion(
        id=id,
        trials=np.array([one.outcome for one in trials], dtype=np.int64),
        numbers=np.array([one.trial for one in trials], dtype=np.int64),
        text=prompt.strip(),
        prompt=sha256_text(prompt),
        answers=tuple(one.answer for one in trials),
        seeds=tuple(None if one is None else one.seed for one in made),
        digests=np.array([hash(one.text) for one in made if one], dtype=np.int64)
        if whole
        else None,
        measured={name: found for name, found in measured.items() if found is not None},
    )


def _signals(
    store: TrialStore,
    trials: Sequence[GradedTrial],
    stored: Sequence[Trial | None],
    binary: bool,
) -> dict[str, FloatArray]:
    """Compute the signals of the trials of one question, as from a log of the same trials."""
    key = trials[0].key
    of_prompt = store.prompt_signals(key.model, [key.prompt]).get(key.prompt, {})
    limit = completion_limit(generation_kwargs(store.sampling(key.sampling)))
    intact = [i for i, trial in enumerate(stored) if trial is not None]
    there = [trial for trial in stored if trial is not None]
    recorded = [
        {**{name: getattr(t, name) for name in MEASURED}, **(t.signals or {}), **of_prompt}
        for t in there
    ]
    names = dict.fromkeys(name for row in recorded for name in row)
    computed = trial_signals(
        [trial.text for trial in there],
        [trials[i].outcome for i in intact],
        {name: [row.get(name) for row in recorded] for name in names},
        binary=binary,
        max_gen_toks=limit,
    )
    signals = {}
    for name, values in computed.items():
        column = np.full(len(trials), np.nan)
        column[intact] = [np.nan if value is None else value for value in values]
        signals[name] = column
    return signals


def _measured(trial: Trial | None) -> dict[str, Any]:
    if trial is None:
        return {}
    return {**{name: getattr(trial, name) for name in _NUMBERS}, **(trial.signals or {})}
