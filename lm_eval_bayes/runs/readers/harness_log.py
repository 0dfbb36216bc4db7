"""The trials that a run of the harness logged on one task, whoever made the task."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

from lm_eval_bayes.errors import InvalidInputError
from lm_eval_bayes.runs.deduplication import same_numbers_same_texts, united
from lm_eval_bayes.runs.logged_texts import LoggedLine
from lm_eval_bayes.runs.partial_runs import Part, PartQuestion
from lm_eval_bayes.runs.provenance import arguments_of, generation, greedy, origin, version_of
from lm_eval_bayes.runs.readers import logged_rows as rows
from lm_eval_bayes.runs.readers.logged_counts import LoggedCounts, average_row
from lm_eval_bayes.runs.readers.logged_metric import LoggedMetric, either
from lm_eval_bayes.runs.readers.logged_trials import (
    GradedAgain,
    GradedTrials,
    NothingToCountError,
    Regrade,
    TrialLog,
)
from lm_eval_bayes.runs.saved_tasks import SavedTask
from lm_eval_bayes.runs.signals import SignalReader, is_right_or_wrong
from lm_eval_bayes.runs.task_run import distinct_ids


@dataclass(frozen=True)
class Wanted:
    """What of a source counts.

    Attributes
    ----------
    task : str or None
        Only this task, or this group's.
    metric, filter : str or None
        Named by the user; None for the first there is.
    dedupe : bool
        Whether a trial that stands twice counts once, or is refused.
    regrade : callable or None
        Grades the texts again.
    argument : str
        What to call the run in an error.
    signals : {"all", "recorded"} or None
        Whether the signals of all trials are read, or only of runs whose model recorded some.
    verdicts : bool
        Whether the verdicts of a verifier are among the signals.
    """

    task: str | None = None
    metric: str | None = None
    filter: str | None = None
    dedupe: bool = False
    regrade: Regrade | None = None
    argument: str = "RUN"
    signals: Literal["all", "recorded"] | None = None
    verdicts: bool = True


def read_samples(
    saved: SavedTask, wanted: Wanted, told: list[str], advance: rows.Advance | None = None
) -> Part:
    """Read the trials of a saved task, line by line.

    Our own tasks log the category of every trial. Of others one metric of zeros and ones counts,
    one trial a question; where `regrade` is given, every text that was generated is a trial.

    Parameters
    ----------
    saved : SavedTask
        One of :func:`lm_eval_bayes.runs.saved_tasks.found_tasks`.
    wanted : Wanted
        What counts.
    told : list of str
        Gets what was left out.
    advance : callable, optional
        Gets the bytes of every line.

    Raises
    ------
    NothingToCountError
        If no trial can be counted.
    InvalidInputError
        If a line contradicts itself or another one, or a name is none of those there are.
    """
    filters: dict[str, None] = {}
    log: TrialLog | None = None
    start = end = 0

    def count(n_bytes: int) -> None:
        nonlocal start, end
        start, end = end, end + n_bytes
        if advance is not None:
            advance(n_bytes)

    chosen, sent = wanted.filter, None
    doc_ids, hashes = [], []
    for row in rows.logged_rows(saved.samples, wanted.argument, told, count):
        name = row.get("filter")
        filters[name := name if isinstance(name, str) else ""] = None
        chosen = name if chosen is None else chosen
        if name != chosen:
            continue
        prompt, kwargs = rows.asked(row)
        if log is None:
            log, sent = _log_for(saved, wanted, row), kwargs
        doc_ids.append(doc_id := _doc_id(row, saved, wanted))
        hashes.append(rows.question_hash(row))
        line = LoggedLine(str(saved.samples), start, doc_id)
        log.add(row, rows.question_text(row, prompt), rows.prompt_hash(row, prompt), line)
    if not filters:
        raise InvalidInputError.of(wanted.argument, "hold samples", str(saved.samples))
    if log is None or chosen is None:
        rule = f"be a filter of {saved.samples}: {either([repr(name) for name in filters])}"
        raise InvalidInputError.of("filter", rule, wanted.filter)
    counted = log.counted()
    notes = list(counted.notes)
    if len(filters) > 1 and wanted.filter is None:
        notes.append(f"filter {chosen} was counted; --filter chooses among {either(filters)}")
    sampled = sent is not None and not greedy(sent)
    logged = _Logged(doc_ids, hashes, counted.questions)
    n, answered = len(set(doc_ids)), saved.n_answered
    if answered is not None and n < answered:
        told.append(f"{saved.samples} is cut off: it has {n} of {answered} questions")
    elif saved.n_there is not None and n < saved.n_there:
        notes.append(f"{n} of the task's {saved.n_there} questions were asked")
    made = origin(saved, sent)
    return Part(
        model=saved.model,
        task=saved.task,
        sources=(str(saved.samples),),
        questions=_in_order(logged, saved, wanted, sampled, told),
        weights=counted.weights,
        metric=counted.metric,
        filter=chosen,
        made=made,
        notes=tuple(notes),
        settings=generation(made.generation_kwargs),
        arguments=arguments_of(saved),
        version=version_of(saved),
        sampled=sampled,
        place=saved.samples.parent,
        stamp=saved.stamp,
        signals_error=counted.signals_error,
        verifiers=counted.verifiers,
    )


def _log_for(saved: SavedTask, wanted: Wanted, row: Mapping[str, Any]) -> TrialLog:
    """Tell by its first line what a file's trials are."""
    if wanted.regrade is not None:
        return GradedAgain(saved, wanted.argument, regrade=wanted.regrade)
    if "outcomes" in row:
        return GradedTrials(saved, wanted.argument, _signal_reader(saved, wanted, row))
    average = average_row(row)
    if average is not None:
        return LoggedCounts(saved, wanted.argument, average)
    return LoggedMetric(saved, wanted.argument, wanted.metric)


def _signal_reader(saved: SavedTask, wanted: Wanted, row: Mapping[str, Any]) -> SignalReader | None:
    if wanted.signals is None or (wanted.signals == "recorded" and not row.get("signals")):
        return None
    binary = is_right_or_wrong(saved.weights)
    return SignalReader(saved.samples, saved.config, binary, wanted.argument, wanted.verdicts)


def _doc_id(row: Mapping[str, Any], saved: SavedTask, wanted: Wanted) -> int:
    doc_id = row.get("doc_id")
    if isinstance(doc_id, bool) or not isinstance(doc_id, int):
        rule = f"number its questions (`doc_id` in every line of {saved.samples})"
        raise InvalidInputError.of(wanted.argument, rule, doc_id)
    return doc_id


@dataclass(frozen=True)
class _Logged:
    """What the lines said, one entry a line."""

    doc_ids: list[int]
    hashes: list[str]
    questions: list[PartQuestion]


def _in_order(
    logged: _Logged, saved: SavedTask, wanted: Wanted, sampled: bool, told: list[str]
) -> dict[str, PartQuestion]:
    """Name the questions by their hashes, in the order of the task, those logged twice united."""
    lines: dict[int, list[int]] = {}
    for line, doc_id in enumerate(logged.doc_ids):
        lines.setdefault(doc_id, []).append(line)
    order = sorted(lines)
    ids = distinct_ids([logged.hashes[lines[doc_id][0]] for doc_id in order])
    found = {}
    for doc_id, id in zip(order, ids, strict=True):
        here = [logged.questions[line] for line in lines[doc_id]]
        if len(here) > 1:
            counts = any(question.counts is not None for question in here)
            hashes = {logged.hashes[line] for line in lines[doc_id]}
            _check_twice(doc_id, hashes, counts, saved, wanted)
            times = f"{len(here)} times; each of its trials was counted once"
            told.append(f"{saved.samples} has question {doc_id} {times}")
        by_number = not sampled or same_numbers_same_texts([(here[0], one) for one in here[1:]])
        found[id] = united(id, here, by_number).question
    again = sum("#" in id for id in ids)
    if again:
        told.append(
            f"task {saved.task} has {again:,} of its questions a second time; each was counted as "
            "a question of its own"
        )
    if not any(question.n_trials for question in found.values()):
        what = f"task {saved.task}, of which no trial was graded"
        rule = f"hold a graded trial of task {saved.task}"
        raise NothingToCountError.of_task(wanted.argument, rule, saved.samples.name, what)
    return found


def _check_twice(
    doc_id: int, hashes: set[str], counts: bool, saved: SavedTask, wanted: Wanted
) -> None:
    """Refuse a question that was logged twice, unless the same one may count once."""
    rule = f"log every question once ({saved.samples})"
    if len(hashes) > 1:
        got = f"two documents for question {doc_id}"
        raise InvalidInputError.of(wanted.argument, rule, got)
    if not wanted.dedupe or counts:
        got = f"question {doc_id} twice"
        got += "" if counts else " (--dedupe counts each of its trials once)"
        raise InvalidInputError.of(wanted.argument, rule, got)
