"""Samples files of the harness, with the results files beside them."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from glob import escape
from pathlib import Path
from typing import Any

from lm_eval_bayes.errors import InvalidInputError
from lm_eval_bayes.runs.merging import merge_trials, same_numbers_same_texts
from lm_eval_bayes.runs.model_arguments import backend_and_arguments, model_name, plain_model_name
from lm_eval_bayes.runs.partial_run import PartialRun, QuestionTrials
from lm_eval_bayes.runs.provenance import (
    LoggedTask,
    generation,
    greedy,
    groups_of,
    identifying_arguments,
    provenance_of,
)
from lm_eval_bayes.runs.readers.logged_trials import (
    LoggedTrials,
    LogLine,
    alternatives,
    collector_for,
    document_hash,
    prompt_and_settings,
    prompt_hash,
    question_text,
)
from lm_eval_bayes.runs.readers.protocol import (
    FileContents,
    NothingToCountError,
    Query,
    Sniffed,
)
from lm_eval_bayes.runs.readers.text_files import JsonLines, first_line
from lm_eval_bayes.runs.task_run import LoggedLine, distinct_ids

#: The name of a task and the time of a run, in the name of a samples file.
_NAME = re.compile(r"(.+)_(\d{4}-\d\d-\d\dT\d\d-\d\d-\d\d(?:\.\d+)?)")


def sniff(path: Path) -> Sniffed | None:
    """Return a samples file, those in a folder, or those beside a results file.

    In a folder they are recognised by their names; a single file by its name or its first line.
    """
    if path.is_dir():
        files = sorted(file for file in path.rglob("samples_*.jsonl") if file.is_file())
        others = (file for file in path.rglob("*?samples_*.jsonl") if file.name[0] != ".")
        warnings = tuple(
            f"{file} was left out: the name of a samples file begins with samples_"
            for file in sorted(others)
            if file.is_file() and file not in files and _is_samples_file(file)
        )
        return Sniffed(files, warnings) if files else None
    if path.suffix == ".json":
        stamp = path.stem.rpartition("_")[2]
        files = sorted(path.parent.glob(f"samples_*_{escape(stamp)}.jsonl"))
        return Sniffed(files) if files else None
    return Sniffed([path]) if path.suffix == ".jsonl" and _is_samples_file(path) else None


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
    try:
        log = _read_log(task, query)
    except RecursionError:
        rule = f"hold no values nested hundreds deep ({file.name})"
        raise InvalidInputError.of(query.argument, rule, "one") from None
    return FileContents((log.partial_run(query),), (task.task,), groups, tuple(log.warnings))


# -- the files -----------------------------------------------------------------------------------


def logged_task(file: Path, argument: str) -> LoggedTask:
    """Return the task whose samples are in a file, with the results file beside it.

    Raises
    ------
    InvalidInputError
        If the results file cannot be read.
    """
    name, stamp = _task_and_stamp(file.stem.removeprefix("samples_"))
    results_file = _results_file(file, stamp)
    results: Mapping[str, Any] = {}
    if results_file.is_file():
        status = results_file.stat()
        results = _results(results_file, status.st_mtime_ns, status.st_size, argument)
    configs = results.get("configs")
    configs = configs if isinstance(configs, Mapping) else {}
    # the harness writes the slashes of a task as two underscores
    task = next((t for t in configs if t.replace("/", "__") == name), name)
    config = configs.get(task)
    config = config if isinstance(config, Mapping) else {}
    return LoggedTask(_model_name(results, file), task, file, config, stamp, results)


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
    usual = samples.with_name(f"results_{stamp}.json")
    if usual.is_file() or not stamp:
        return usual
    return min(samples.parent.glob(f"*_{escape(stamp)}.json"), default=usual)


@lru_cache(maxsize=4)
def _results(file: Path, modified: int, size: int, argument: str) -> Mapping[str, Any]:
    """Read a results file, which several samples files may share."""
    try:
        content = json.loads(file.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError) as error:
        raise InvalidInputError.of(argument, f"have a complete {file}", str(error)) from None
    return content if isinstance(content, dict) else {}


def _model_name(results: Mapping[str, Any], file: Path) -> str:
    """Return the name of the model: the harness names those without a path by a hash."""
    config = results.get("config")
    config = config if isinstance(config, Mapping) else {}
    recorded = str(results.get("model_name") or "") or file.parent.name
    if not isinstance(config.get("model_args"), (Mapping, str)):
        return plain_model_name(recorded)
    backend, arguments = backend_and_arguments(str(config.get("model") or ""), config["model_args"])
    return model_name(arguments, backend or file.parent.name, recorded)


# -- the lines -----------------------------------------------------------------------------------


@dataclass
class _Log:
    """A samples file, read.

    Attributes
    ----------
    task : LoggedTask
        Its task.
    filter : str
        The filter pipeline whose output counts.
    filters : tuple of str
        All that are logged.
    sent : mapping or None
        The generation settings that were logged; None where nothing was generated.
    doc_ids, hashes : list
        The number and the hash of every question, in the order of the lines.
    trials : LoggedTrials
        The trials.
    warnings : list of str
        What was left out.
    """

    task: LoggedTask
    filter: str
    filters: tuple[str, ...]
    sent: Mapping[str, Any] | None
    doc_ids: list[int]
    hashes: list[str]
    trials: LoggedTrials
    warnings: list[str] = field(default_factory=list)

    def partial_run(self, query: Query) -> PartialRun:
        """Return the trials with their provenance."""
        task, trials = self.task, self.trials
        notes = list(trials.notes)
        if len(self.filters) > 1 and query.filter is None:
            choice = alternatives(self.filters)
            notes.append(f"filter {self.filter} was counted; --filter chooses among {choice}")
        n, n_answered = len(set(self.doc_ids)), task.n_answered
        if n_answered is not None and n < n_answered:
            self.warnings.append(f"{task.samples} is cut off: it has {n} of {n_answered} questions")
        elif task.n_questions is not None and n < task.n_questions:
            notes.append(f"{n} of the task's {task.n_questions} questions were asked")
        if not task.results:
            self.warnings.append(
                f"{task.samples}: the name of the model, {task.model}, is a guess, that of the "
                f"folder, because results_{task.stamp}.json is missing; keep it beside the samples"
            )
        provenance = provenance_of(task, self.sent)
        sampled = self.sent is not None and not greedy(self.sent)
        return PartialRun(
            model=task.model,
            task=task.task,
            sources=(str(task.samples),),
            questions=self._questions(query, sampled),
            weights=trials.weights,
            metric=trials.metric,
            filter=self.filter,
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
        )

    def _questions(self, query: Query, sampled: bool) -> dict[str, QuestionTrials]:
        """Return the questions by their hashes, in the order of the task, each once."""
        lines: dict[int, list[int]] = {}
        for line, doc_id in enumerate(self.doc_ids):
            lines.setdefault(doc_id, []).append(line)
        order = sorted(lines)
        ids = distinct_ids([self.hashes[lines[doc_id][0]] for doc_id in order])
        questions = {}
        for doc_id, id in zip(order, ids, strict=True):
            several = [self.trials.questions[line] for line in lines[doc_id]]
            if len(several) > 1:
                counts = any(question.counts is not None for question in several)
                self._check_repeated(doc_id, {self.hashes[i] for i in lines[doc_id]}, counts, query)
                self.warnings.append(
                    f"{self.task.samples} has question {doc_id} {len(several)} times; each of its "
                    "trials was counted once"
                )
            pairs = [(several[0], question) for question in several[1:]]
            by_number = not sampled or same_numbers_same_texts(pairs)
            questions[id] = merge_trials(id, several, by_number)
        n_repeated = sum("#" in id for id in ids)
        if n_repeated:
            self.warnings.append(
                f"task {self.task.task} has {n_repeated:,} of its questions a second time; each "
                "was counted as a question of its own"
            )
        if not any(question.n_trials for question in questions.values()):
            lacking = f"task {self.task.task}, of which no trial was graded"
            rule = f"hold a graded trial of task {self.task.task}"
            got = self.task.samples.name
            raise NothingToCountError.of_task(query.argument, rule, got, lacking)
        return questions

    def _check_repeated(self, doc_id: int, hashes: set[str], counts: bool, query: Query) -> None:
        """Refuse a question that was logged twice, unless the same one may count once."""
        rule = f"log every question once ({self.task.samples})"
        if len(hashes) > 1:
            got = f"two documents for question {doc_id}"
            raise InvalidInputError.of(query.argument, rule, got)
        if not query.dedupe or counts:
            got = f"question {doc_id} twice"
            got += (
                ""
                if counts or query.dedupe is None
                else " (--dedupe counts each of its trials once)"
            )
            raise InvalidInputError.of(query.argument, rule, got)


def _read_log(task: LoggedTask, query: Query) -> _Log:
    filters: dict[str, None] = {}
    collector = None
    filter, sent = query.filter, None
    doc_ids, hashes = [], []
    lines = JsonLines(task.samples, query.argument, query.advance)
    for row in lines:
        name = row.get("filter")
        filters[name := name if isinstance(name, str) else ""] = None
        filter = name if filter is None else filter
        if name != filter:
            continue
        prompt, settings = prompt_and_settings(row)
        if collector is None:
            collector, sent = collector_for(task, row, query), settings
        doc_ids.append(doc_id := _doc_id(row, task, query))
        hashes.append(document_hash(row))
        collector.add(
            LogLine(
                row,
                question_text(row, prompt),
                prompt_hash(row, prompt),
                LoggedLine(str(task.samples), lines.offset, doc_id),
            )
        )
    if not filters:
        raise InvalidInputError.of(query.argument, "hold samples", str(task.samples))
    if collector is None or filter is None:
        rule = f"be a filter of {task.samples}: {alternatives([repr(name) for name in filters])}"
        raise InvalidInputError.of("filter", rule, query.filter)
    trials, warnings = collector.result(), list(lines.warnings)
    return _Log(task, filter, tuple(filters), sent, doc_ids, hashes, trials, warnings)


def _doc_id(row: Mapping[str, Any], task: LoggedTask, query: Query) -> int:
    doc_id = row.get("doc_id")
    if isinstance(doc_id, bool) or not isinstance(doc_id, int):
        rule = f"number its questions (`doc_id` in every line of {task.samples})"
        raise InvalidInputError.of(query.argument, rule, doc_id)
    return doc_id
