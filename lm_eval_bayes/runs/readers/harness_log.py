"""Samples files of the harness, with the results files beside them."""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import lru_cache
from glob import escape
from pathlib import Path
from typing import Any

from lm_eval_bayes._util.compressed import plain_name
from lm_eval_bayes._util.hashing import distinct_ids
from lm_eval_bayes._util.text import join_words
from lm_eval_bayes.errors import InvalidInputError
from lm_eval_bayes.runs.log_fields import (
    cluster_label,
    field_names,
    fields_in_words,
    generated_texts,
    prompt_and_settings,
    right_answers,
)
from lm_eval_bayes.runs.logged_texts import TrialText
from lm_eval_bayes.runs.merging import by_number, merge_trials
from lm_eval_bayes.runs.model_arguments import backend_and_arguments, model_name, plain_model_name
from lm_eval_bayes.runs.provenance import (
    LoggedTask,
    generation,
    greedy,
    groups_of,
    identifying_arguments,
    mapping,
    provenance_of,
)
from lm_eval_bayes.runs.readers.file_access import files_below, files_beside
from lm_eval_bayes.runs.readers.json_files import load_json
from lm_eval_bayes.runs.readers.log_line import LogLine
from lm_eval_bayes.runs.readers.logged_trials import logged_trials
from lm_eval_bayes.runs.readers.protocol import (
    FileContents,
    NothingToCountError,
    Query,
    Sniffed,
)
from lm_eval_bayes.runs.readers.text_files import JsonLines, first_line
from lm_eval_bayes.runs.readers.trial_texts import lines_log
from lm_eval_bayes.runs.trials import PartialRun, Question, Trials, questions_of

#: A question with its trials.
Part = tuple[Question, Trials]

#: The name of a task and the time of a run, in the name of a samples file.
_NAME = re.compile(r"(.+)_(\d{4}-\d\d-\d\dT\d\d-\d\d-\d\d(?:\.\d+)?)")


def sniff(path: Path) -> Sniffed | None:
    """Return a samples file, those in a folder, or those beside a results file.

    In a folder they are recognised by their names; a single file by its name or its first line.
    """
    if path.is_dir():
        below = [file for file in files_below(path) if plain_name(file).suffix == ".jsonl"]
        files = sorted(file for file in below if file.match("samples_*"))
        files = files or sorted(filter(_is_of_first_releases, below))
        others = (file for file in below if file.match("*?samples_*") and file.name[0] != ".")
        warnings = tuple(
            f"{file} was left out: the name of a samples file begins with samples_"
            for file in sorted(others)
            if file not in files and _is_samples_file(file)
        )
        return Sniffed(files, warnings) if files else None
    plain = plain_name(path)
    if plain.suffix == ".json":
        stamp = plain.stem.rpartition("_")[2]
        named = files_beside(path, f"samples_*_{escape(stamp)}.jsonl*")
        files = [file for file in named if plain_name(file).suffix == ".jsonl"]
        return Sniffed(files) if files else None
    return Sniffed([path]) if plain.suffix == ".jsonl" and _is_samples_file(path) else None


def _is_of_first_releases(file: Path) -> bool:
    """Return whether a file is one of the samples that releases up to 0.4.2 wrote."""
    return file.with_name("results.json").is_file() and _is_samples_file(file)


def _is_samples_file(file: Path) -> bool:
    named, first = file.name.startswith("samples_"), first_line(file)
    if first is None:
        return named
    fields = {"resps", "metrics", "outcomes", "filter"}
    return "doc_id" in first and (named or not fields.isdisjoint(first))


def read(file: Path, query: Query) -> FileContents:
    """Read the trials of a samples file.

    Tasks of this package log the category of every trial. Of others one metric of zeros and ones
    counts, one trial per question; with `regrade`, every text that was generated is a trial.

    Raises
    ------
    NothingToCountError
        If no trial can be counted.
    InvalidInputError
        If a line contradicts itself or another one, or a name is none of those in the file.
    """
    task = logged_task(file, query.argument)
    groups = groups_of(task.results)
    if query.task not in (None, task.task) and task.task not in groups.get(query.task or "", ()):
        query.advance(file.stat().st_size)
        return FileContents((), (task.task,), groups)
    warnings: list[str] = []
    run = _partial_run(task, query, warnings)
    return FileContents((run,), (task.task,), groups, tuple(warnings))


# -- the files -----------------------------------------------------------------------------------


def logged_task(file: Path, argument: str) -> LoggedTask:
    """Return the task whose samples are in a file, with the results file beside it.

    Raises
    ------
    InvalidInputError
        If the results file cannot be read.
    """
    name, stamp = _task_and_stamp(plain_name(file).stem.removeprefix("samples_"))
    results_file = _results_file(file, stamp)
    results: Mapping[str, Any] = {}
    if results_file.is_file():
        status = results_file.stat()
        results = _results(results_file, status.st_mtime_ns, status.st_size, argument)
    configs = mapping(results.get("configs"))
    # the harness writes the slashes of a task as two underscores
    task = next((t for t in configs if t.replace("/", "__") == name), name)
    if task not in configs:  # up to 0.4.2 the arguments of the model stand before the task
        stem = plain_name(file).stem
        ends = [t for t in configs if stem.endswith("_" + t.replace("/", "__"))]
        task = max(ends, key=len, default=task)
    config = mapping(configs.get(task))
    own = {} if results else first_line(file) or {}  # of samples that a store exported
    model = own["model_name"] if isinstance(own.get("model_name"), str) else ""
    return LoggedTask(
        model=model or _model_name(results, file),
        task=str(own.get("task_name") or task),
        samples=file,
        config=config,
        stamp=stamp,
        results=results,
        names_model=bool(model),
    )


def _task_and_stamp(stem: str) -> tuple[str, str]:
    """Split the name of a samples file; what the name of a copy has after the time is dropped.

    Examples
    --------
    >>> _task_and_stamp("aime25_2026-01-31T10-00-00.5 (1)")
    ('aime25', '2026-01-31T10-00-00.5')
    """
    match = _NAME.match(stem)
    if match is not None:
        return match[1], match[2]
    name, _, stamp = stem.rpartition("_")
    return (name, stamp) if name else (stamp, "")


def _results_file(samples: Path, stamp: str) -> Path:
    """Return the results file; with `--output_path x.json` its name begins with x."""
    if not samples.name.startswith("samples_") and samples.with_name("results.json").is_file():
        return samples.with_name("results.json")
    usual = samples.with_name(f"results_{stamp}.json")
    if usual.is_file() or not stamp:
        return usual
    named = files_beside(samples, f"*_{escape(stamp)}.json*")
    return min((file for file in named if plain_name(file).suffix == ".json"), default=usual)


@lru_cache(maxsize=4)
def _results(file: Path, modified: int, size: int, argument: str) -> Mapping[str, Any]:
    """Read a results file, which several samples files may share."""
    return mapping(load_json(file, Query(argument=argument)))


def _model_name(results: Mapping[str, Any], file: Path) -> str:
    """Return the name of the model: the harness names those without a path by a hash."""
    config = mapping(results.get("config"))
    recorded = ""  # up to 0.4.2 no name was recorded
    if "model_name" in results or not results:
        recorded = str(results.get("model_name") or "") or file.parent.name
    if not isinstance(config.get("model_args"), (Mapping, str)):
        return plain_model_name(recorded or file.parent.name)
    backend, arguments = backend_and_arguments(str(config.get("model") or ""), config["model_args"])
    return model_name(arguments, backend or file.parent.name, recorded)


# -- the lines -----------------------------------------------------------------------------------


def _partial_run(task: LoggedTask, query: Query, warnings: list[str]) -> PartialRun:
    """Read the trials of a samples file; warnings of what was left out are added to a list."""
    rows = JsonLines(task.samples, query.argument, query.advance, unique_keys=False)
    filters: dict[str, None] = {}
    lines = _lines_of_filter(task, rows, query, filters)
    first = next(lines, None)
    if first is None:
        if not filters:
            rule = f"hold a line per question ({task.samples})"
            raise InvalidInputError.of(query.argument, "empty", rule, "none")
        choice = join_words([repr(name) for name in filters], "or")
        rule = f"be a filter of {task.samples}: {choice}"
        lacking = f"task {task.task}, which has no filter {query.filter!r} but {choice}"
        raise NothingToCountError.of_task("filter", rule, query.filter, lacking, "choice")
    trials = logged_trials(task, first, itertools.chain([first], lines), query)
    filter = next(iter(filters)) if query.filter is None else query.filter
    fields = field_names([first.row.get("doc")])
    questions, cluster_notes = _with_clusters(task, trials.questions, query, fields)
    notes = [*trials.notes, *cluster_notes]
    if len(filters) > 1 and query.filter is None:
        choice = join_words(list(filters), "or")
        notes.append(f"filter {filter} was counted; --filter chooses among {choice}")
    warnings += rows.warnings
    n, n_answered = len({question.doc_id for question, _ in trials.questions}), task.n_answered
    if n_answered is not None and n < n_answered:
        warnings.append(f"{task.samples} is cut off: it has {n} of {n_answered} questions")
    elif task.n_questions is not None and n < task.n_questions:
        notes.append(f"{n} of the task's {task.n_questions} questions were asked")
    if not task.results and not task.names_model:
        warnings.append(
            f"{task.samples}: the name of the model, {task.model}, is a guess, that of the "
            f"folder, because results_{task.stamp}.json is missing; keep it beside the samples"
        )
    provenance = provenance_of(task, first.settings)
    sampled = first.settings is not None and not greedy(first.settings)
    run = PartialRun(
        model=task.model,
        task=task.task,
        sources=(str(task.samples),),
        questions=(),
        weights=trials.weights,
        metric=trials.metric,
        filter=filter,
        provenance=provenance,
        notes=tuple(notes),
        settings=generation(provenance.generation_kwargs),
        arguments=identifying_arguments(task),
        version=task.version,
        sampled=sampled,
        folder=task.samples.parent,
        stamp=task.stamp,
        unnamed=not task.results,
        signals_error=trials.signals_error,
        verifiers=trials.verifiers,
        threshold=trials.threshold,
    )
    texts = lines_log(rows, _texts)
    logged = [
        (question, replace(table, logged=table.logged and replace(table.logged, logs=(texts,))))
        for question, table in questions
    ]
    return _with_questions(run, task, logged, query, warnings)


def _texts(row: Mapping[str, Any]) -> list[TrialText]:
    """Return the texts of a line, and the right answers."""
    right = tuple(right_answers(row))
    return [TrialText(text, right) for text in generated_texts(row) or ()]


def _lines_of_filter(
    task: LoggedTask, rows: JsonLines, query: Query, filters: dict[str, None]
) -> Iterator[LogLine]:
    """Yield the lines of the filter of the query, else of the first; add the names of all."""
    for record, row in enumerate(rows):
        name = row.get("filter")
        filters[name := name if isinstance(name, str) else ""] = None
        if name != (next(iter(filters)) if query.filter is None else query.filter):
            continue
        doc_id = row.get("doc_id")
        if isinstance(doc_id, bool) or not isinstance(doc_id, int):
            rule = f"number its questions (`doc_id` in every line of {rows.file})"
            raise InvalidInputError.of(query.argument, "missing", rule, doc_id)
        sent, cluster = prompt_and_settings(row), _cluster(task, row, query)
        yield LogLine(row, rows.file, record, doc_id, *sent, cluster)


def _cluster(task: LoggedTask, row: Mapping[str, Any], query: Query) -> str | None:
    """Return the cluster of a question: by `--cluster`, as logged, or by the task's metadata."""
    if query.cluster is not None:
        return cluster_label(row.get("doc"), query.cluster)
    logged = row.get("cluster")
    if isinstance(logged, str) and logged:
        return logged
    return None if task.cluster_field is None else cluster_label(row.get("doc"), task.cluster_field)


def _with_clusters(
    task: LoggedTask, parts: Sequence[Part], query: Query, fields: Iterable[str]
) -> tuple[Sequence[Part], list[str]]:
    """Return the questions, without clusters unless they are usable, and notes on why not.

    Raises
    ------
    InvalidInputError
        If the field of `--cluster` is missing in a document.
    """
    missing = [question.doc_id for question, _ in parts if question.cluster is None]
    if not missing:
        return parts, []
    if query.cluster is not None:
        choice = fields_in_words(fields) or "a text or a number"
        rule = f"be a field of every logged question of task {task.task}, {choice}"
        got = f"{query.cluster}, which {len(missing):,} of {len(parts):,} questions lack"
        raise InvalidInputError.of(
            "cluster", "choice", rule, f"{got} (the first is question {missing[0]})"
        )
    notes = []
    if task.cluster_field is not None or len(missing) < len(parts):
        name = "cluster" if task.cluster_field is None else f"field {task.cluster_field}"
        notes.append(
            f"{len(missing):,} of {len(parts):,} questions have no {name}: all were taken as "
            "independent"
        )
    return [(replace(question, cluster=None), trials) for question, trials in parts], notes


def _with_questions(
    run: PartialRun, task: LoggedTask, parts: Sequence[Part], query: Query, warnings: list[str]
) -> PartialRun:
    """Return the run with its questions by their hashes, in the order of the task, each once."""
    ordered = sorted(parts, key=lambda part: part[0].doc_id or 0)
    by_question = [
        list(several) for _, several in itertools.groupby(ordered, lambda p: p[0].doc_id)
    ]
    ids = distinct_ids([several[0][0].id for several in by_question])
    for several in by_question:
        if len(several) > 1:
            _check_repeated(task, several, query)
            warnings.append(
                f"{task.samples} has question {several[0][0].doc_id} {len(several)} times; each of "
                "its trials was counted once"
            )
    merged = run
    for layer in range(max(map(len, by_question))):
        questions, trials = questions_of(
            (replace(several[layer][0], id=id), several[layer][1])
            for id, several in zip(ids, by_question, strict=True)
            if layer < len(several)
        )
        of_layer = replace(run, questions=questions, trials=trials)
        if layer:
            questions, trials = merge_trials(merged, of_layer, by_number(merged, of_layer))
        merged = replace(run, questions=questions, trials=trials)
    n_repeated = sum("#" in id for id in ids)
    if n_repeated:
        warnings.append(
            f"task {task.task} has {n_repeated:,} of its questions a second time; each was "
            "counted as a question of its own"
        )
    if not merged.n_trials:
        lacking = f"task {task.task}, of which no trial was graded"
        rule = f"hold a graded trial of task {task.task}"
        raise NothingToCountError.of_task(query.argument, rule, task.samples.name, lacking)
    return merged


def _check_repeated(task: LoggedTask, several: Sequence[Part], query: Query) -> None:
    """Refuse a question that was logged twice, unless the same one may count once."""
    rule, doc_id = f"log every question once ({task.samples})", several[0][0].doc_id
    if len({question.id for question, _ in several}) > 1:
        got = f"two documents for question {doc_id}"
        raise InvalidInputError.of(query.argument, "duplicate", rule, got)
    only_counts = any(question.counts is not None for question, _ in several)
    if not query.dedupe or only_counts:
        advice = " (--dedupe counts each of its trials once)"
        got = f"question {doc_id} twice"
        got += "" if only_counts or query.dedupe is None else advice
        raise InvalidInputError.of(query.argument, "duplicate", rule, got)
