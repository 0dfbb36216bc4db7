"""Details of lighteval: Parquet files, one per task, and output folders of them.

lighteval keeps one value of a metric per question. Of avg@n, and of pass@k with k=1, the value is
the mean of n samples: where all of them are numbers of right samples divided by n, these numbers
are counted, in no order. Of other metrics the value is one trial.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from lm_eval_bayes._util.text import plural
from lm_eval_bayes.runs.logged_texts import LoggedTexts, TextLog, TrialText
from lm_eval_bayes.runs.provenance import generation, mapping
from lm_eval_bayes.runs.readers import tables
from lm_eval_bayes.runs.readers.file_access import sniff_files
from lm_eval_bayes.runs.readers.json_files import (
    after_last,
    broken,
    chosen_metric,
    clusters_of,
    load_json,
    name_of,
    nothing_to_count,
    score_of,
    text_of,
)
from lm_eval_bayes.runs.readers.protocol import (
    FileContents,
    Query,
    Sniffed,
)
from lm_eval_bayes.runs.readers.tool_settings import call_settings
from lm_eval_bayes.runs.readers.trial_columns import (
    TrialColumns,
    first_number,
    partial_runs,
)
from lm_eval_bayes.runs.readers.trial_texts import PER_RECORD, SpooledRecords, one_text, place
from lm_eval_bayes.runs.task_run import Provenance
from lm_eval_bayes.runs.trials import PartialRun, Question

_COLUMNS = frozenset(("doc", "metric", "model_response"))
_DETAILS, _RESULTS = "details", "results"

#: Metrics that are means over samples, as "avg@n:n=4" and "pass@k:k=1&n=4".
_MEAN = re.compile(r"(?:[\w-]*:)?(?:avg@n|avg@\d+|[\w-]*pass@(?:k:k=)?1)\b.*", re.I)
#: The number of samples in the name of a metric.
_SAMPLES = re.compile(r"\bn=(\d{1,6})\b|^avg@(\d{1,6})\b")
_SLACK = 1e-6


def sniff(path: Path) -> Sniffed | None:
    """Return a file of details, or those in a folder."""
    return sniff_files(path, _is_details, "*.parquet")


def _is_details(file: Path) -> bool:
    return file.suffix == ".parquet" and set(tables.header(file)) >= _COLUMNS


@dataclass(frozen=True)
class _Question:
    """A question with the values of its metrics, and how many samples there were."""

    record: int
    id: str
    task: str
    text: str
    values: Mapping[str, Any]
    n_samples: int
    answer: str
    tokens: float | None


def read(file: Path, query: Query) -> FileContents:
    """Read details.

    Raises
    ------
    NothingToCountError
        If no question has a value of a metric.
    InvalidInputError
        If the file is broken, or the query names a metric or a field that it does not have.
    """
    rows = list(tables.arrow_rows(file, sorted(_COLUMNS), query.argument))
    query.advance(file.stat().st_size)
    questions = [_question(row, number) for number, row in enumerate(rows)]
    tasks = tuple(dict.fromkeys(q.task for q in questions if q.task)) or (query.task or file.stem,)
    wanted = [q for q in questions if query.task in (None, q.task or tasks[0])]
    if not wanted:
        return FileContents((), tasks)
    names = list(dict.fromkeys(name for question in wanted for name in question.values))
    if not names:
        got = plural(len(wanted), "question") + " without one"
        raise nothing_to_count(file, query, "values of metrics", got)
    names.sort(key=lambda name: not (_is_mean(name) and any(q.n_samples > 1 for q in wanted)))
    metric, notes = chosen_metric(names, query, file, "metric")
    clusters = _clusters(rows, questions, file, query)
    texts = SpooledRecords(file, records=partial(_texts, file, query.argument))
    runs = []
    for task in dict.fromkeys(question.task or tasks[0] for question in wanted):
        of_task = [question for question in wanted if (question.task or tasks[0]) == task]
        with_value = [question for question in of_task if metric in question.values]
        if with_value:
            runs += _runs(with_value, clusters, metric, task, notes, texts, file, query)
    return FileContents(runs, tasks)


def _question(row: Mapping[str, Any], place: int) -> _Question:
    doc, response = mapping(row["doc"]), mapping(row["model_response"])
    texts = response.get("text")
    texts = texts if isinstance(texts, list) else []
    counted = response.get("output_tokens")
    counts = [len(part) for part in counted if isinstance(part, list)] if counted else []
    given = doc.get("num_samples")
    values = {key: value for key, value in mapping(row["metric"]).items() if value is not None}
    return _Question(
        record=place,
        id=name_of(doc.get("id")) or str(place),
        task=name_of(doc.get("task_name")),
        text=text_of(doc.get("query")),
        values=values,
        n_samples=len(texts) or (given if type(given) is int else 1),
        answer=name_of(texts[0]) if len(texts) == 1 else "",
        tokens=float(sum(counts)) if counts else None,
    )


def _texts(file: Path, argument: str) -> Iterator[Sequence[TrialText]]:
    """Yield the texts of the samples of every question, and its right answers."""
    for row in tables.arrow_rows(file, ("doc", "model_response"), argument):
        doc, texts = mapping(row["doc"]), mapping(row["model_response"]).get("text")
        choices, gold = doc.get("choices"), doc.get("gold_index")
        numbers = gold if isinstance(gold, list) else [gold]
        right = [
            choices[number]
            for number in numbers
            if isinstance(choices, list) and type(number) is int and 0 <= number < len(choices)
        ]
        listed = texts if isinstance(texts, list) else []
        yield [text for part in listed or [None] for text in one_text(part, right)]


def _logged(question: _Question, n: int, texts: TextLog) -> LoggedTexts:
    """Return where the texts of the samples of a question are."""
    return LoggedTexts.at(place(question.record) + np.arange(n), texts)


def _is_mean(metric: str) -> bool:
    return _MEAN.fullmatch(metric) is not None


def _clusters(
    rows: Sequence[Mapping[str, Any]], questions: Sequence[_Question], file: Path, query: Query
) -> dict[str, str]:
    """Return the clusters of questions: a field of what the task kept of the document."""
    fields = (mapping(row["doc"]).get("specific") for row in rows)
    clusters = clusters_of(fields, query, f"doc.specific in {file.name}") or ()
    return {question.id: label for question, label in zip(questions, clusters, strict=False)}


def _runs(
    questions: Sequence[_Question],
    clusters: Mapping[str, str],
    metric: str,
    task: str,
    notes: Sequence[str],
    texts: TextLog,
    file: Path,
    query: Query,
) -> list[PartialRun]:
    model, provenance = _provenance(file, query)
    settings = generation(provenance.generation_kwargs)
    counts = _counts(questions, metric) if _is_mean(metric) and query.bounds is None else None
    if counts is not None:
        of_counts = {
            question.id: Question(
                question.id,
                text=question.text,
                counts=(n - c, c),
                cluster=clusters.get(question.id) or None,
            )
            for question, (c, n) in zip(questions, counts, strict=True)
        }
        if len(of_counts) < len(questions):
            raise broken(file, query, f"a question of {task} twice")
        note = f"{metric} is a mean of samples: the right ones were counted, their order is unknown"
        return [
            PartialRun(
                model,
                task,
                (str(file),),
                tuple(of_counts.values()),
                logged=tuple(
                    _logged(question, n, texts)
                    for question, (_, n) in zip(questions, counts, strict=True)
                ),
                metric=metric,
                notes=(*notes, note),
                provenance=provenance,
                settings=settings,
            )
        ]
    if _is_mean(metric) and any(question.n_samples > 1 for question in questions):
        notes = (*notes, f"{metric} is a mean of samples, and was counted as one trial a question")
    elif any(question.n_samples > 1 for question in questions):
        notes = (*notes, f"{metric} is one value of several samples, and was counted as one trial")
    columns = TrialColumns(
        question=[question.id for question in questions],
        score=[score_of(question.values[metric]) for question in questions],
        model=model,
        task=task,
        trial=[first_number(f"{model} {file.absolute().parent.name}")] * len(questions),
        cluster=[clusters.get(question.id, "") for question in questions] if clusters else None,
        text=[question.text for question in questions],
        answer=[question.answer for question in questions],
        measured={"tokens": [question.tokens for question in questions]},
        texts=texts,
        # the text of one of several samples is not that of the trial
        places=[place(q.record, PER_RECORD - 1 if q.n_samples > 1 else 0) for q in questions],
    )
    return partial_runs(
        columns,
        file,
        query,
        metric=metric,
        notes=notes,
        provenance=provenance,
        settings=settings,
        first_label=1,
    )


def _counts(questions: Sequence[_Question], metric: str) -> list[tuple[int, int]] | None:
    """Return how many samples were right of how many; None where the values do not tell."""
    named = _SAMPLES.search(metric)
    counts = []
    for question in questions:
        n = int(named[1] or named[2]) if named else question.n_samples
        value = score_of(question.values[metric])
        if value is None or not 0 < n <= 2**20 or not -_SLACK <= value <= 1 + _SLACK:
            return None
        c = round(value * n)
        if not math.isclose(value * n, c, abs_tol=_SLACK * n):
            return None
        counts.append((c, n))
    return counts


# -- the model ---------------------------------------------------------------------------------


def _provenance(file: Path, query: Query) -> tuple[str, Provenance]:
    """Return the name of the model, and what the results beside the details say of the run."""
    parts = file.absolute().parts
    model = parts[-3] if len(parts) > 3 else file.stem
    split = after_last(_DETAILS, file.absolute().parent)
    if split is None:
        return model, Provenance()
    folder, of_run = split
    results = folder / _RESULTS / of_run.parent / f"results_{parts[-2]}.json"
    content = mapping(load_json(results, query)) if results.is_file() else {}
    config = mapping(mapping(content.get("config_general")).get("model_config"))
    sent = call_settings(config.get("generation_parameters"))
    named = name_of(config.get("model_name")) or "/".join(of_run.parent.parts)
    return named or model, Provenance(generation_kwargs=sent)
