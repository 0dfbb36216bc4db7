"""Instance-level records of Every Eval Ever: `<uuid>_samples.jsonl`, one line per trial.

The aggregate record beside, `<uuid>.json`, has the possible scores and the settings; it may be
missing. Both schemas are of version 0.3.0.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from lm_eval_bayes._util.compressed import plain_name
from lm_eval_bayes._util.text import join_words, plural
from lm_eval_bayes.errors import InvalidInputError
from lm_eval_bayes.runs.logged_texts import TextLog, TrialText
from lm_eval_bayes.runs.partial_run import PartialRun
from lm_eval_bayes.runs.provenance import generation, mapping, number
from lm_eval_bayes.runs.readers.conversations import last_message, written
from lm_eval_bayes.runs.readers.file_access import files_below
from lm_eval_bayes.runs.readers.json_files import (
    chosen_metric,
    load_json,
    name_of,
    score_of,
)
from lm_eval_bayes.runs.readers.protocol import FileContents, Query, Sniffed
from lm_eval_bayes.runs.readers.text_files import JsonLines, first_line
from lm_eval_bayes.runs.readers.tool_settings import call_settings
from lm_eval_bayes.runs.readers.trial_columns import (
    TrialRow,
    columns_of,
    first_number,
    partial_runs,
    record_key,
)
from lm_eval_bayes.runs.readers.trial_texts import lines_log, one_text, place
from lm_eval_bayes.runs.task_run import Provenance

#: Keys that every record has.
_KEYS = {"schema_version", "evaluation_id", "model_id", "evaluation_name", "sample_id"}
_KEYS |= {"evaluation"}

#: Keys of the metadata that number the trials of a question.
_TRIALS = ("trial", "epoch", "repeat", "repetition", "attempt")

#: A name of a file that identifies a run.
_UUID = re.compile(r"[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}", re.I)

#: The name of a mean over N trials, or N to N, in the records that this package exports.
_MEAN = re.compile(r"(avg|hbayes)@\d+(?: to \d+)?")


@dataclass(frozen=True, kw_only=True, slots=True)
class _Row(TrialRow):
    """A record, with the id of its result, of its run and the number of its trial."""

    result: str
    run: str
    trial: int | None
    score: float | None


def sniff(path: Path) -> Sniffed | None:
    """Return a file of records, that of an aggregate record, or the files in a folder."""
    if path.is_dir():
        files = sorted(file for file in files_below(path) if file.suffix == ".jsonl")
    elif path.suffix == ".json":
        files = [path.with_name(f"{path.stem}_samples.jsonl")]
    else:
        files = [path] if plain_name(path).suffix == ".jsonl" else []
    files = [file for file in files if (first_line(file) or {}).keys() >= _KEYS]
    return Sniffed(files) if files else None


def read(file: Path, query: Query) -> FileContents:
    """Read the records of a file.

    A record with an error counts by its score, unless it refers to no result while others do.

    Raises
    ------
    InvalidInputError
        If a line or the aggregate record cannot be read, or the query names a result that there
        is not.
    """
    aggregate = _aggregate(file, query)
    lines = JsonLines(file, query.argument, query.advance)
    by_task: dict[str, list[_Row]] = {}
    for place_of, record in enumerate(lines):
        row = _row(record, place_of, query)
        by_task.setdefault(row.task, []).append(row)
    wanted = {
        task: rows for task, rows in by_task.items() if query.task in (None, task or query.task)
    }
    if query.metric is not None and wanted:
        names = dict.fromkeys(row.result for rows in wanted.values() for row in rows)
        if query.metric not in names:
            rule = f"be a result of {file.name}, {join_words([n for n in names if n], 'or')}"
            raise InvalidInputError.of("metric", "choice", rule, query.metric)
    texts = lines_log(lines, _texts)
    runs = [run for rows in wanted.values() for run in _runs(rows, file, query, aggregate, texts)]
    warnings = [
        f"{file}: all trials of a question have one score, and some are no 0 or 1: the records may "
        "hold the mean over the trials, as those that are converted from inspect_ai do, and the "
        "intervals are too narrow then"
        for run in runs
        if _are_means(run)
    ]
    return FileContents(runs, tuple(by_task), warnings=(*lines.warnings, *warnings))


def _aggregate(file: Path, query: Query) -> Mapping[str, Any]:
    """Return the aggregate record beside a file; empty where there is none."""
    beside = file.with_name(f"{plain_name(file).stem.removesuffix('_samples')}.json")
    return mapping(load_json(beside, query)) if beside.is_file() else {}


def _row(record: Mapping[str, Any], place_of: int, query: Query) -> _Row:
    evaluation, metadata = mapping(record.get("evaluation")), mapping(record.get("metadata"))
    label = next((name_of(metadata[key]) for key in _TRIALS if key in metadata), "")
    performance = mapping(record.get("performance"))
    times = (number(performance.get(key)) for key in ("generation_time_ms", "latency_ms"))
    milliseconds = next((time for time in times if time is not None), None)
    attributions = record.get("answer_attribution")
    answers = [
        name_of(mapping(entry).get("extracted_value"))
        for entry in (attributions if isinstance(attributions, list) else ())
    ]
    return _Row(
        result=_MEAN.sub(r"\1@N", name_of(record.get("evaluation_result_id"))),
        model=name_of(record.get("model_id")),
        task=name_of(record.get("evaluation_name")),
        question=name_of(record.get("sample_id")),
        run=name_of(record.get("evaluation_id")),
        trial=int(label) if label.isascii() and label.isdigit() and len(label) < 7 else None,
        score=score_of(evaluation.get("score")),
        text=last_message(mapping(record.get("input")).get("raw")),
        answer=answers[-1] if answers else "",
        document=metadata if query.cluster else {},
        tokens=mapping(record.get("token_usage")).get("output_tokens"),
        time=None if milliseconds is None else milliseconds / 1000,
        failed=bool(record.get("error")),
        record=place_of,
        key=place_of if _texts(record)[0].text is None else record_key(record),
    )


def _texts(record: Mapping[str, Any]) -> Sequence[TrialText]:
    """Return what the model wrote, and the right answers."""
    raw = mapping(record.get("output")).get("raw")
    texts = [part for part in (raw if isinstance(raw, list) else [raw]) if isinstance(part, str)]
    text = "\n".join(texts) if texts else None
    messages = record.get("messages")
    if text is None or (isinstance(messages, list) and len(messages) > 2):
        text = written(messages) or text  # a conversation of several turns
    return one_text(text, mapping(record.get("input")).get("reference"))


def _runs(
    rows: Sequence[_Row],
    file: Path,
    query: Query,
    aggregate: Mapping[str, Any],
    texts: TextLog,
) -> list[PartialRun]:
    """Return the runs of one task, one per model."""
    names = [name for name in dict.fromkeys(row.result for row in rows) if name] or [""]
    if query.metric is not None and query.metric not in names:
        return []
    result, notes = chosen_metric(names, query, file, "result")
    chosen = [row for row in rows if row.result == result]
    n_without = sum(not row.result for row in rows) if result else 0
    if n_without:
        left_out = plural(n_without, "record")
        notes += (f"{left_out} without a result, as of errors, left out",)
    n_failed = sum(row.failed for row in chosen)
    if n_failed:
        notes += (f"{plural(n_failed, 'trial')} with an error counted by the recorded score",)
    config, settings = _result_of(result, chosen, aggregate)
    if config.get("lower_is_better") is True:
        notes += (f"of {result} lower scores are better",)
    bounds = number(config.get("min_score")), number(config.get("max_score"))
    if query.bounds is None and None not in bounds and bounds[0] < bounds[1]:  # type: ignore[operator]
        query = replace(query, bounds=bounds)  # type: ignore[arg-type]
    columns = columns_of(
        chosen,
        [row.score for row in chosen],
        query,
        f"the records' metadata in {file.name}",
        trial=_trials(chosen, file),
        texts=texts,
        places=[place(row.record) for row in chosen],
    )
    return partial_runs(
        columns,
        file,
        query,
        metric=result or "score",
        notes=notes,
        provenance=_provenance(aggregate, settings),
        settings=generation(settings),
    )


def _trials(rows: Sequence[_Row], file: Path) -> list[int]:
    """Return the numbers of the trials: those of the records, else by their order."""
    named, ids = _UUID.match(file.name), {row.run for row in rows}
    first = {id: first_number(named[0] if named and len(ids) == 1 else id) for id in ids}
    numbered = all(row.trial is not None for row in rows)
    counted: dict[tuple[str, str], int] = {}
    numbers = []
    for row in rows:
        key = row.model, row.question
        counted[key] = counted.get(key, 0) + 1
        number = row.trial if numbered and row.trial is not None else counted[key]
        numbers.append(first[row.run] + number)
    return numbers


def _are_means(run: PartialRun) -> bool:
    """Return whether every question has one score in all of its trials, and some are no 0 or 1."""
    scores = [q.scores[~np.isnan(q.scores)] for q in run.questions.values() if q.scores is not None]
    repeated = [of_question for of_question in scores if of_question.size > 1]
    constant = all(np.ptp(of_question) == 0 for of_question in repeated)
    partial = any(of_question[0] not in run.weights for of_question in repeated)
    return len(repeated) > 1 and constant and partial


def _result_of(
    result: str, rows: Sequence[_Row], aggregate: Mapping[str, Any]
) -> tuple[Mapping[str, Any], Mapping[str, Any]]:
    """Return the configuration of the metric and the generation settings of a result."""
    listed = aggregate.get("evaluation_results")
    entries = [mapping(entry) for entry in (listed if isinstance(listed, list) else ())]
    for entry in entries:
        name = _MEAN.sub(r"\1@N", name_of(entry.get("evaluation_result_id")))
        same = name == result if result else entry.get("evaluation_name") == rows[0].task
        if same:
            settings = mapping(entry.get("generation_config")).get("generation_args")
            return mapping(entry.get("metric_config")), call_settings(settings)
    return {}, {}


def _provenance(aggregate: Mapping[str, Any], settings: Mapping[str, Any]) -> Provenance:
    library = mapping(aggregate.get("eval_library"))
    name, version = name_of(library.get("name")), name_of(library.get("version"))
    known = name not in ("", "unknown") and version not in ("", "unknown")
    return Provenance(
        generation_kwargs=settings,
        date=number(aggregate.get("evaluation_timestamp")),
        versions={name: version.removeprefix(f"{name}:")} if known else {},
    )
