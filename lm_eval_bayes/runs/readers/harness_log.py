"""Samples of the harness: files with the results file beside them, and dumps of results."""

from __future__ import annotations

import itertools
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from glob import escape
from pathlib import Path
from typing import Any

from lm_eval_bayes._util.files import open_bytes, plain_name
from lm_eval_bayes._util.hashing import distinct_ids
from lm_eval_bayes._util.text import join_words
from lm_eval_bayes.errors import InvalidInputError
from lm_eval_bayes.runs.log_fields import (
    cluster_label,
    generated_texts,
    lookup,
    mapping,
    right_answers,
)
from lm_eval_bayes.runs.logged_texts import TextLog, TrialText
from lm_eval_bayes.runs.model_arguments import backend_and_arguments, model_name, plain_model_name
from lm_eval_bayes.runs.provenance import (
    LoggedTask,
    generation,
    greedy,
    groups_of,
    identifying_arguments,
    provenance_of,
)
from lm_eval_bayes.runs.readers.json_files import broken, clusters_of, load_json
from lm_eval_bayes.runs.readers.log_line import LogLine
from lm_eval_bayes.runs.readers.logged_trials import logged_trials
from lm_eval_bayes.runs.readers.protocol import (
    FileContents,
    Found,
    NothingToCountError,
    Query,
    choice_note,
    files_beside,
)
from lm_eval_bayes.runs.readers.score_tasks import ScoreLine, by_question, line_of
from lm_eval_bayes.runs.readers.tables import LogFile
from lm_eval_bayes.runs.readers.text_files import JsonLines
from lm_eval_bayes.runs.readers.trial_texts import SpooledRecords, texts_log
from lm_eval_bayes.runs.trials import Part, PartialRun, questions_of

#: Fields of a line, besides the number of its question.
_LOGGED = {"resps", "metrics", "outcomes", "filter"}

#: The name of a task and the time of a run, in the name of a samples file.
_NAME = re.compile(r"(.+)_(\d{4}-\d\d-\d\dT\d\d-\d\d-\d\d(?:\.\d+)?)")
#: The beginning of a results file, and the samples of a dump.
_RESULTS = re.compile(rb'\s*\{\s*"results"\s*:\s*\{')
_SAMPLES = re.compile(rb'"samples"\s*:\s*\{')


def samples_of(file: Path) -> list[Path]:
    """Return the samples beside a results file."""
    plain = plain_name(file)
    if plain.suffix != ".json":
        return []
    named = files_beside(file, f"samples_*_{escape(plain.stem.rpartition('_')[2])}.jsonl*")
    return [file for file in named if plain_name(file).suffix == ".jsonl"]


def is_mine(file: LogFile) -> bool:
    """Return whether a file is one of samples, by its name or its first line, or a dump."""
    if file.suffix == ".json" and _RESULTS.match(file.beginning):
        with open_bytes(file.path) as opened:
            return _SAMPLES.search(opened.read()) is not None
    if file.suffix == ".jsonl" and file.name.startswith("samples_"):
        return True
    first = file.first_line
    return "doc_id" in first and not first.keys().isdisjoint(_LOGGED)


def units(files: Sequence[Path], path: Path) -> Found:
    """Return the samples of a folder: those of the name samples_*, else other files of samples."""
    named = [file for file in files if file.name.startswith("samples_")]
    lines = [file for file in files if plain_name(file).suffix == ".jsonl"]
    read = named or lines or files
    left_out = [file for file in files if file not in read]
    warnings = (f"{file} was left out: there are other samples in the folder" for file in left_out)
    return Found(read, tuple(warnings))


def read(file: Path, query: Query) -> FileContents:
    """Read the trials of a file of samples, or of all tasks of a dump.

    Tasks of this package log the category of every trial. Of others one metric of zeros and ones
    counts, one trial per question; with `regrade`, every text that was generated is a trial.

    Raises
    ------
    NothingToCountError
        If no trial can be counted.
    InvalidInputError
        If a line contradicts itself or another one, or a name is none of those in the file.
    """
    samples = _dump(file) if plain_name(file).suffix == ".json" else [_lines(file)]
    groups = groups_of(samples[0].task.results)
    runs, warnings, skipped = list[PartialRun](), list[str](), list[NothingToCountError]()
    for of_task in samples:
        name = of_task.task.task
        if query.task in (None, name) or name in groups.get(query.task or "", ()):
            try:
                runs += runs_of_samples(of_task, query, warnings)
            except NothingToCountError as error:
                skipped.append(error)
    if skipped and not runs:
        raise skipped[0]
    warnings += [f"left out: {error}" for error in skipped]
    tasks = tuple(of_task.task.task for of_task in samples)
    return FileContents(runs, tasks, groups, tuple(warnings))


@dataclass(frozen=True)
class Samples:
    """The rows of a task, its texts once these are read, and the number of its first record."""

    task: LoggedTask
    rows: Iterable[Mapping[str, Any]]
    texts: Callable[[], TextLog]
    begin: int = 0


def _lines(file: Path) -> Samples:
    """Return the rows of a samples file."""
    rows = JsonLines(file, unique_keys=False)
    return Samples(_logged_task(file), rows, lambda: texts_log(file, rows, _texts))


def _dump(file: Path) -> list[Samples]:
    """Return the rows of the tasks in what `lm_eval.simple_evaluate` returned."""
    results = mapping(load_json(file))

    def of_rows() -> Iterator[list[TrialText]]:
        return (_texts(row) for rows in load_json(file)["samples"].values() for row in rows)

    texts = SpooledRecords(file, records=of_rows)
    samples, begin = list[Samples](), 0
    for name, rows in mapping(results, "samples").items():
        if not isinstance(rows, list) or not all(isinstance(row, dict) for row in rows):
            raise broken(file, "samples that are no lists of objects")
        samples.append(Samples(_task_of(results, name, file), rows, lambda: texts, begin))
        begin += len(rows)
    if not samples:
        raise broken(file, "no samples of a task")
    return samples


def _texts(row: Mapping[str, Any]) -> list[TrialText]:
    """Return the texts of a line, and the right answers."""
    right = tuple(right_answers(row))
    return [TrialText(text, right) for text in generated_texts(row) or ()]


# -- the files -----------------------------------------------------------------------------------


def _logged_task(file: Path) -> LoggedTask:
    """Return the task whose samples are in a file, with the results file beside it.

    Raises
    ------
    InvalidInputError
        If the results file cannot be read.
    """
    stem = plain_name(file).stem
    name, stamp = _task_and_stamp(stem.removeprefix("samples_"))
    results: Mapping[str, Any] = {}
    if results_file := _results_file(file, stamp):
        status = results_file.stat()
        results = _results(results_file, status.st_mtime_ns, status.st_size)
    # the harness writes the slashes of a task as two underscores
    names = {task.replace("/", "__"): task for task in mapping(results, "configs")}
    # up to 0.4.2 the arguments of the model stand before the task
    ends = [short for short in names if f"{name}/{stem}/".count(f"_{short}/")]
    task = names.get(name) or names.get(max(ends, key=len, default=""), name)
    own = {} if results else LogFile(file).first_line  # of samples that a store exported
    logged = replace(_task_of(results, str(own.get("task_name") or task), file), stamp=stamp)
    model = own["model_name"] if isinstance(own.get("model_name"), str) else ""
    return replace(logged, model=model, names_model=True) if model else logged


def _task_of(results: Mapping[str, Any], name: str, file: Path) -> LoggedTask:
    """Return a task of a results file, with the name of the model."""
    given, logged_backend = (lookup(results, "config", key) for key in ("model_args", "model"))
    backend, arguments = backend_and_arguments(str(logged_backend or ""), given)
    recorded, folder = "", file.parent.name  # up to 0.4.2 and in dumps no name is recorded
    if "model_name" in results or not results:
        recorded = str(results.get("model_name") or "") or folder
    if isinstance(given, (Mapping, str)):
        model = model_name(arguments, backend or folder, recorded)
    else:  # of an object, its class or its path
        model = plain_model_name(recorded or str(logged_backend or "") or folder)
    config = mapping(results, "configs", name)
    return LoggedTask(model, name, file, config, "", results, backend, arguments)


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


def _results_file(samples: Path, stamp: str) -> Path | None:
    """Return the results file; with `--output_path x.json` its name begins with x."""
    files = [samples.with_name(f"results_{stamp}.json")]
    if not samples.name.startswith("samples_"):
        files.insert(0, samples.with_name("results.json"))
    if stamp:
        files += files_beside(samples, f"*_{escape(stamp)}.json*")
    return next((f for f in files if f.is_file() and plain_name(f).suffix == ".json"), None)


@lru_cache(maxsize=4)
def _results(file: Path, modified: int, size: int) -> Mapping[str, Any]:
    """Read a results file, which several samples files may share."""
    return mapping(load_json(file))


# -- the lines -----------------------------------------------------------------------------------


def runs_of_samples(samples: Samples, query: Query, warnings: list[str]) -> list[PartialRun]:
    """Read the trials of a task; warnings of what was left out are added to a list.

    Questions that are there again, which `dedupe` allows, are a run of their own to be merged.
    """
    task, filters = samples.task, dict[str, None]()
    lines = _lines_of_filter(samples, query, filters)
    first = next(lines, None)
    if first is None:
        if not filters:
            rule = f"hold a line per question of {task.task} ({task.samples})"
            raise InvalidInputError.of("RUN", "empty", rule, "none")
        choice = join_words([repr(name) for name in filters], "or")
        rule = f"be a filter of {task.samples}: {choice}"
        raise NothingToCountError.of("filter", "choice", rule, query.filter)
    provenance = provenance_of(task, first.sent[1])
    run = PartialRun(
        model=task.model,
        task=task.task,
        sources=(str(task.samples),),
        questions=(),
        filter=next(iter(filters)) if query.filter is None else query.filter,
        provenance=provenance,
        settings=generation(provenance.generation_kwargs),
        arguments=identifying_arguments(task),
        version=task.version,
        sampled=first.sent[1] is not None and not greedy(first.sent[1]),
        folder=task.samples.parent if plain_name(task.samples).suffix == ".jsonl" else None,
        stamp=task.stamp,
    )
    parts, run = logged_trials(run, task, first, itertools.chain([first], lines), query)
    notes = list(run.notes)
    if not any(question.cluster for question, _ in parts):
        clusters_of([first.row.get("doc")], query, f"the logged questions of task {task.task}")
        if (field := task.cluster_field) is not None:
            notes.append(f"no question has the field {field}: all were taken as independent")
    notes += choice_note("filter", list(filters), query.filter)
    n, texts = len({question.doc_id for question, _ in parts}), samples.texts()
    documents = "documents" if isinstance(first, ScoreLine) else "questions"
    if n < (n_answered := task.n_questions("effective") or 0):
        warnings.append(f"{task.samples} is cut off: it has {n} of {n_answered} {documents}")
    elif n < (n_questions := task.n_questions("original") or 0):
        notes.append(f"{n} of the task's {n_questions} {documents} were asked")
    run = replace(run, notes=tuple(notes))
    if not task.results and not task.names_model:
        guess = f"{task.samples}: the name of the model, {task.model}, is a guess by the folder"
        missing = f"results_{task.stamp}.json is missing; keep it beside the samples"
        warnings.append(f"{guess}, because {missing}")
    warnings += getattr(samples.rows, "warnings", ())
    if isinstance(first, ScoreLine):
        run, parts = by_question(run, parts, texts)
    runs = list(_with_questions(run, parts, texts, query, warnings))
    if query.regrade is None and not any(run.n_trials for run in runs):
        rule = f"hold a graded trial of task {task.task}"
        raise NothingToCountError.of("RUN", "missing", rule, task.samples.name)
    return runs


def _lines_of_filter(samples: Samples, query: Query, filters: dict[str, None]) -> Iterator[LogLine]:
    """Yield the lines of the filter of the query, else of the first; add the names of all."""
    task = samples.task
    for record, row in enumerate(samples.rows, samples.begin):
        name = row.get("filter")
        filters[name := name if isinstance(name, str) else ""] = None
        if name == (next(iter(filters)) if query.filter is None else query.filter):
            yield line_of(row, task.samples, record, _cluster(task, row, query))


def _cluster(task: LoggedTask, row: Mapping[str, Any], query: Query) -> str | None:
    """Return the cluster of a question: by `--cluster`, as logged, or by the task's metadata."""
    logged, field = row.get("cluster"), query.cluster or task.cluster_field
    if query.cluster is None and isinstance(logged, str) and logged:
        return logged
    return None if field is None else cluster_label(row.get("doc"), field)


def _with_questions(
    run: PartialRun, read: Sequence[Part], texts: TextLog, query: Query, warnings: list[str]
) -> Iterator[PartialRun]:
    """Yield the run with its questions by their hashes, in the order of the task, each once."""
    parts = sorted(read, key=lambda part: part[0].doc_id or 0)
    groups = [list(several) for _, several in itertools.groupby(parts, lambda p: p[0].doc_id)]
    for several in groups:
        question, same = several[0][0], len({other.id for other, _ in several}) == 1
        if len(several) > 1 and not (query.dedupe and same):
            rule, got = f"log every question once ({run.source})", f"question {question.doc_id}"
            got += f" {len(several)} times" if same else " with several documents"
            if same and query.dedupe is False:
                got += " (--dedupe counts each of its trials once)"
            raise InvalidInputError.of("RUN", "duplicate", rule, got)
    ids = distinct_ids([several[0][0].id for several in groups])
    if n_repeated := sum("#" in id for id in ids):
        again = f"task {run.task} has {n_repeated:,} of its questions a second time"
        warnings.append(f"{again}; each was counted as a question of its own")
    for layer in range(max(map(len, groups))):
        listed, trials = questions_of(
            (replace(question, id=id), replace(table, logged=logged))
            for id, several in zip(ids, groups, strict=True)
            for question, table in several[layer : layer + 1]
            for logged in [table.logged and replace(table.logged, logs=(texts,))]
        )
        folder = None if layer else run.folder
        yield replace(run, questions=listed, trials=trials, folder=folder)
