"""Reading of saved runs of every format: the one way from files to runs."""

from __future__ import annotations

import os
from collections.abc import Callable, Container, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from lm_eval_bayes._util.text import first_names, join_words, one_line, plural
from lm_eval_bayes.errors import InvalidInputError
from lm_eval_bayes.runs.merging import merge_runs
from lm_eval_bayes.runs.provenance import differing_keys, generation
from lm_eval_bayes.runs.query import Query
from lm_eval_bayes.runs.readers import trial_table
from lm_eval_bayes.runs.readers.formats import RunFile, files_at
from lm_eval_bayes.runs.readers.protocol import (
    UNREADABLE_RULES,
    FileContents,
    NothingToCountError,
    errors_of,
)
from lm_eval_bayes.runs.regrading import regraded_runs
from lm_eval_bayes.runs.settings import FACTORS
from lm_eval_bayes.runs.task_run import SavedRuns, TaskRun
from lm_eval_bayes.runs.trials import PartialRun, with_scores

#: Called with the bytes that were read, and with those of all files.
Progress = Callable[[int, int], None]


def read_runs(
    paths: str | Path | Iterable[str | Path],
    *,
    merge: bool = True,
    progress: Progress | None = None,
    **options: Any,
) -> SavedRuns:
    """Read runs.

    Every file is read once, a line at a time. Texts are not held in memory.

    Parameters
    ----------
    paths : str, Path, or iterable of them
        Folders that the harness wrote into, its `results_*.json` or `samples_*.jsonl` files,
        trial stores, tables of trials, of counts and of outcomes, logs of other tools: see
        :data:`lm_eval_bayes.runs.readers.formats.FORMATS`.
    merge : bool
        Whether runs of one model and task at several paths are merged; otherwise the runs of each
        path stay apart, for a comparison of two paths, see :meth:`SavedRuns.of_path`.
    progress : callable, optional
        Called after every file with the bytes that have been read and the bytes of all files.
    **options
        What is read, and how: attributes of :class:`~lm_eval_bayes.runs.query.Query`.

    Returns
    -------
    SavedRuns
        The runs in the order of the paths, with the warnings of reading and merging.

    Raises
    ------
    InvalidInputError
        If a path holds no run, a file is broken, or runs contradict each other.
    """
    query = Query(**options)
    if query.unscored not in ("left-out", "wrong"):
        raise InvalidInputError.of("unscored", "choice", "be left-out or wrong", query.unscored)
    listed = [paths] if isinstance(paths, (str, Path)) else list(paths)
    if "" in listed:
        raise InvalidInputError.of(query.argument, "empty", "be a path", "")
    is_column = query.settings is not None and query.settings not in FACTORS
    if is_column:
        query = replace(query, columns={**query.columns, "setting": str(query.settings)})
    files, file_warnings = files_at(listed, query, merge=merge)
    if is_column and not any(file.reader is trial_table for file in files):
        rule = f"be {join_words(FACTORS, 'or')}, or a column of a table that is read"
        raise InvalidInputError.of("settings", "missing-column", rule, query.settings)
    contents, read_warnings = _read_files(_shown(files, progress), query)
    partials = _of_one_kind([run for content in contents for run in content.runs])
    _check_names(partials, query)
    _check_paths(partials, query)
    _check_lines(partials, query)
    runs, run_paths, merge_warnings = merge_runs(
        partials,
        dedupe=query.dedupe,
        by_path=not merge,
        argument=query.argument,
        settings=query.settings,
        same_seeds=query.same_seeds,
    )
    runs = share_clusters(runs, required=query.cluster)
    tasks = {run.task for run in runs}
    groups, group_warnings = _tasks_of_groups([c.groups for c in contents], tasks, query)
    notes = dict.fromkeys(note for content in contents for note in content.notes)
    saved = SavedRuns(tuple(runs), groups, paths=tuple(run_paths), notes=tuple(notes))
    for compared in [saved] if merge else map(saved.of_path, dict.fromkeys(run_paths)):
        merge_warnings += consistency_warnings(compared.runs)
    warnings = dict.fromkeys([*file_warnings, *read_warnings, *merge_warnings, *group_warnings])
    return replace(saved, warnings=tuple(warnings))


# -- contents ------------------------------------------------------------------------------------


def _shown(files: Sequence[RunFile], progress: Progress | None) -> Iterator[RunFile]:
    """Yield the files, and show the progress after each."""
    sizes = [os.path.getsize(file.file) if file.file.exists() else 0 for file in files]
    for number, file in enumerate(files, 1):
        yield file
        if progress is not None:
            progress(sum(sizes[:number]), sum(sizes))


def _read_files(files: Iterable[RunFile], query: Query) -> tuple[list[FileContents], list[str]]:
    """Return what the files hold of the query, and warnings.

    Raises
    ------
    InvalidInputError
        If a file is broken, nothing can be counted, or a path does not hold the task.
    """
    read, warnings, skipped = list[FileContents](), list[str](), list[NothingToCountError]()
    unreadable, matched, tasks = list[str](), set[str](), dict[str, set[str]]()
    for file in files:
        try:
            with errors_of(query.argument, file.file):
                contents = file.reader.read(file.file, query)
            wanted = {query.task, *contents.groups.get(query.task or "", ())}
            runs = [run for run in contents.runs if query.task is None or run.task in wanted]
            matched.update([file.path] if runs else ())
            if query.regrade is not None:
                runs = regraded_runs(runs, query.regrade, skipped)
        except NothingToCountError as error:
            skipped.append(error)
            matched.add(file.path)
            continue
        except InvalidInputError as error:
            if not (query.skip_unreadable and error.rule in UNREADABLE_RULES):
                raise
            unreadable.append(f"{file.file} was not read: {error}")
            continue
        except RecursionError:
            rule = f"hold no values nested hundreds deep ({file.file})"
            got = "one, in it or in a file beside it"
            raise InvalidInputError.of(query.argument, "range", rule, got) from None
        tasks.setdefault(file.path, set()).update(contents.tasks)
        if runs:
            named = [_named(replace(run, path=file.number), query) for run in runs]
            read.append(replace(contents, runs=named))
            warnings += contents.warnings
    for path, names in tasks.items():
        if path not in matched:
            rule = f"hold task {query.task}; there is {', '.join(sorted(names))}"
            raise InvalidInputError.of(query.argument, "choice", rule, path)
    if skipped and not read:
        raise skipped[0]
    if unreadable and not read:
        rule = "hold a file that can be read"
        raise InvalidInputError.of(query.argument, "damaged", rule, unreadable[0])
    warnings += [f"left out: {error}" for error in skipped]
    return read, [*warnings, *unreadable]


def _named(run: PartialRun, query: Query) -> PartialRun:
    """Return the run of the model and the setting that the user names for its file, or a folder.

    The trials of all runs of a model that was so named are merged, whatever their arguments.
    """
    model, label = (
        next((name for path, name in names.items() if _is_below(run.source, path)), "")
        for names in (query.models, query.labels)
    )
    if model:
        run = replace(run, model=model, arguments={}, settings={}, fingerprint="")
    return replace(run, label=label)


def _is_below(file: str, path: str) -> bool:
    return Path(os.path.realpath(file)).is_relative_to(os.path.realpath(path))


def _of_one_kind(partials: Sequence[PartialRun]) -> list[PartialRun]:
    """Return the runs with scores of 0 and 1 as scores where others of the task have others."""
    scored = {(p.task, p.metric) for p in partials if p.scored and p.weights == (0.0, 1.0)}
    return [with_scores(p) if (p.task, p.metric) in scored else p for p in partials]


def _check_names(partials: Sequence[PartialRun], query: Query) -> None:
    """Refuse a metric or a filter that nothing could be asked for."""
    for argument in ("metric", "filter"):
        name, names = getattr(query, argument), {getattr(run, argument) for run in partials}
        if name is not None and name not in names:
            rule = f"be left out: what was read holds {', '.join(sorted(names - {''})) or 'none'}"
            raise InvalidInputError.of(argument, "conflict", rule, name)


def _check_paths(partials: Sequence[PartialRun], query: Query) -> None:
    """Refuse a model or a label that is named for a path that was not read."""
    for argument, names in (("model", query.models), ("setting", query.labels)):
        for path, name in names.items():
            if not any(_is_below(run.source, path) for run in partials):
                rule = "be NAME=RUN of a path that is read, or of a file or a folder in one"
                raise InvalidInputError.of(argument, "path", rule, f"{name}={path}")


def _check_lines(partials: Sequence[PartialRun], query: Query) -> None:
    """Refuse runs of other questions than one whose questions are the lines of its file."""
    by_line = {run.task: run for run in reversed(partials) if run.by_line}
    for run in partials:
        first = by_line.get(run.task, run)
        if run.ids.keys() != first.ids.keys():
            rule = f"have the questions of {first.source} in {run.source}, "
            rule += "where lines are questions, for want of ids and texts"
            got = f"{len(run.questions)} in place of {plural(len(first.questions), 'question')}"
            raise InvalidInputError.of(query.argument, "mismatch", rule, got)


def _tasks_of_groups(
    groups: Sequence[Mapping[str, tuple[str, ...]]], tasks: Container[str], query: Query
) -> tuple[dict[str, tuple[str, ...]], list[str]]:
    """Return the groups whose tasks were read, and warnings of tasks that are missing of one."""
    members, warnings = dict[str, tuple[str, ...]](), list[str]()
    for of_file in groups:
        for group, names in of_file.items():
            missing = [name for name in names if name not in tasks]
            present = [name for name in names if name in tasks]
            if not present or (missing and query.task is not None):
                continue
            members[group] = tuple(dict.fromkeys([*members.get(group, ()), *present]))
            if missing:
                warnings.append(f"nothing was read of {first_names(missing)} in group {group}")
    return members, warnings


# -- runs that are compared ----------------------------------------------------------------------


def consistency_warnings(runs: Sequence[TaskRun]) -> list[str]:
    """Return what runs lack, what differs between them but should not, and similar names."""
    by_task: dict[str, list[TaskRun]] = {}
    for run in runs:
        by_task.setdefault(run.task, []).append(run)
    return [w for task, group in by_task.items() for w in _warnings_of(task, group)]


def _categories(runs: Sequence[TaskRun]) -> dict[str, dict[str, str]]:
    """Return the models by the different categories that runs have of a question, and by its id."""
    categories: dict[str, dict[str, str]] = {}
    for run in runs:
        for id, label in zip(run.question_ids, run.categories or (), strict=False):
            if label:
                categories.setdefault(id, {}).setdefault(label, run.model)
    return categories


def _warnings_of(task: str, runs: Sequence[TaskRun]) -> Iterator[str]:
    for run in runs:
        n_without = int((run.outcomes.n_trials == 0).sum())
        if n_without:
            share = f"{n_without:,} of {run.n_questions:,} questions"
            yield f"task {task}: {share} have no trial of {run.model}"
    versions = [(run, run.provenance.versions.get("task")) for run in runs]
    yield from _differing(task, "are of different versions", versions)
    protocols = [(run, run.provenance.protocol or None) for run in runs]
    yield from _differing(task, "were asked under different protocols", protocols)
    yield from _differing(task, "count different things", [(run, _counted(run)) for run in runs])
    sent = [
        {**generation(provenance.generation_kwargs), **(provenance.setup or {})}
        for provenance in (run.provenance for run in runs)
        if provenance.generation_kwargs or provenance.setup is not None
    ]
    if differing := differing_keys(sent):
        values = ((k, dict.fromkeys(str(s.get(k, "unset")) for s in sent)) for k in differing)
        listed = "; ".join(f"{key}: {', '.join(of_key)}" for key, of_key in values)
        yield f"task {task}: the runs were generated with different settings ({listed})"
    if several := {id: labels for id, labels in _categories(runs).items() if len(labels) > 1}:
        id, labels = next(iter(several.items()))
        both = [f"{one_line(text, 40)!r} ({model})" for text, model in labels.items()][:2]
        questions = f"{plural(len(several), 'question')} in different categories"
        example = f"{one_line(id, 40)} in {' and '.join(both)}"
        yield f"task {task}: the runs have {questions}, as {example}"


def _counted(run: TaskRun) -> str:
    """Return what is counted: the metric, of categories with scores of their own with these."""
    weights = run.outcomes.weights.tolist()
    own = "" if run.scored or weights == [0.0, 1.0] else ", ".join(f"{w:g}" for w in weights)
    return f"{run.counted} of scores {own}" if own else run.counted


def _differing(task: str, differ: str, of_runs: Iterable[tuple[TaskRun, object]]) -> Iterator[str]:
    """Yield a warning where what runs have is not the same, as far as it is known."""
    values = {str(value): run.model for run, value in of_runs if value is not None}
    if len(values) > 1:
        listed = ", ".join(f"{value} ({model})" for value, model in values.items())
        yield f"task {task}: the runs {differ}, {listed}"


#: What a field of clusters has to be, for errors.
_RULE = (
    "divide the questions of every run of right and wrong trials into clusters, at least two: a "
    "field of the documents in samples of the harness, or in the `metadata: cluster:` of a task "
    "with a trial store, or a column of counts"
)


def share_clusters(runs: Sequence[TaskRun], required: str | None = None) -> list[TaskRun]:
    """Give the runs of a task the clusters of its questions, where all of a run's are known.

    A cluster is recorded with the logged samples and in the trial store, and a matrix holds none:
    its questions get the clusters that another run of the task recorded, matched by id. Scores have
    no clusters.

    Parameters
    ----------
    runs : sequence of TaskRun
        Runs of any models and tasks.
    required : str, optional
        The field that was asked for by name; every run then has to have clusters, at least two.

    Returns
    -------
    list of TaskRun
        In the same order. Without `required`, a run whose questions are of one cluster has none,
        and a note.

    Raises
    ------
    InvalidInputError
        If runs of one task put a question into different clusters, or `required` cannot be met, as
        for scores.

    Examples
    --------
    >>> ids, trials = ["p", "q", "r"], [[1], [0], [1]]
    >>> known = TaskRun.from_trials("A", "aime", trials, ids, clusters=["I", "I", "II"])
    >>> other = TaskRun.from_trials("B", "aime", trials, ids)
    >>> share_clusters([known, other])[1].clusters
    ('I', 'I', 'II')
    """
    by_task: dict[str, dict[str, tuple[str, TaskRun]]] = {}
    for run in runs:
        by_question = by_task.setdefault(run.task, {})
        for question, label in zip(run.question_ids, run.clusters or (), strict=False):
            first, other = by_question.setdefault(question, (label, run))
            if label != first:
                rule = f"put a question of {run.task} into the same cluster: {other.model} has "
                rule += f"question {question} in {first} (--cluster names a field for all runs)"
                raise InvalidInputError.of("RUN", "mismatch", rule, f"{label} for {run.model}")
    return [_with_clusters(run, by_task[run.task], required) for run in runs]


def _with_clusters(
    run: TaskRun, by_question: dict[str, tuple[str, TaskRun]], required: str | None
) -> TaskRun:
    sources = [by_question[id] for id in run.question_ids if id in by_question]
    labels = tuple(label for label, _ in sources)
    reason = ""
    if run.scored:
        reason = "has scores, whose questions are taken as independent"
    elif len(labels) < run.n_questions or not labels:
        reason = "lacks it"
    elif len(set(labels)) == 1 < len(labels):
        reason = f"has only {labels[0]}"
    if reason and required is not None:
        got = f"{required}, which {run.label} {reason} on {run.task}"
        raise InvalidInputError.of("cluster", "missing", _RULE, got)
    if reason.startswith("has only"):
        note = f"all questions are of one cluster ({labels[0]}), which says nothing about others: "
        note += "for the population of questions they were taken as independent"
        return replace(run, outcomes=replace(run.outcomes, clusters=None), notes=(*run.notes, note))
    if reason or labels == run.clusters:
        return run
    recorded = join_words(list(dict.fromkeys(source.label for _, source in sources)))
    note = f"the run records no clusters of its questions: those of {recorded} were used"
    return replace(run, outcomes=replace(run.outcomes, clusters=labels), notes=(*run.notes, note))
