"""Reviews of evalscope, one file per model and subset of a dataset, and output folders of them.

Every generation of a sample is a trial. A sample that could not be generated or scored has no
score, and does not count, as in evalscope's own means.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping, Sequence
from glob import escape
from pathlib import Path
from typing import Any

from lm_eval_bayes._util.hashing import hash_text
from lm_eval_bayes._util.text import plural
from lm_eval_bayes.errors import InvalidInputError
from lm_eval_bayes.runs.logged_texts import TrialText
from lm_eval_bayes.runs.provenance import mapping
from lm_eval_bayes.runs.readers.conversations import last_message, written
from lm_eval_bayes.runs.readers.file_access import files_below, files_beside
from lm_eval_bayes.runs.readers.json_files import (
    after_last,
    chosen_metric,
    clusters_of,
    load_json,
    name_of,
    nothing_to_count,
    score_of,
)
from lm_eval_bayes.runs.readers.protocol import (
    FileContents,
    Query,
    Sniffed,
)
from lm_eval_bayes.runs.readers.text_files import JsonLines, first_line
from lm_eval_bayes.runs.readers.trial_columns import TrialColumns, numbers_in_run, partial_runs
from lm_eval_bayes.runs.readers.trial_texts import PER_RECORD, lines_log, one_text, place
from lm_eval_bayes.runs.task_run import Provenance

#: The most generations of a sample among which one without a review is looked for.
_MOST_GENERATIONS = 2**16

#: The place of a text that is not logged.
_NO_TEXT = place(0, PER_RECORD - 1)

#: The folders of an evaluation.
_REVIEWS, _PREDICTIONS, _REPORTS = "reviews", "predictions", "reports"


def sniff(path: Path) -> Sniffed | None:
    """Return a file of reviews, that beside a file of predictions, or those in a folder."""
    if path.is_dir():
        below = sorted(files_below(path))
        files = [f for f in below if f.suffix == ".jsonl" and _REVIEWS in f.absolute().parts]
    else:
        files = [path] if path.suffix == ".jsonl" else []
    found = [file for file in files if _is_reviews(file)]
    if not found and len(files) == 1 and _PREDICTIONS in files[0].absolute().parts:
        beside = _beside(files[0], _PREDICTIONS, _REVIEWS)
        found = [beside] if _is_reviews(beside) else []
    return Sniffed(found) if found else None


def _is_reviews(file: Path) -> bool:
    first = first_line(file) if file.is_file() else None
    return first is not None and {"index", "sample_score"} <= first.keys()


def _beside(file: Path, folder: str, other: str) -> Path:
    """Return the path in another folder of the evaluation."""
    split = after_last(folder, file)
    return file if split is None else split[0] / other / split[1]


def _model(file: Path) -> str:
    """Return the name of the model, which is the path of its folder in that of the reviews."""
    split = after_last(_REVIEWS, file)
    if split is None:
        return file.absolute().parent.name
    return "/".join(split[1].parts[:-1]) or file.stem


def read(file: Path, query: Query) -> FileContents:
    """Read reviews.

    Raises
    ------
    NothingToCountError
        If no sample has a score.
    InvalidInputError
        If the file is broken, or the query names a metric or a field that it does not have.
    """
    task, model = file.stem, _model(file)
    dataset, report = _report(file, query)
    groups = {dataset: (task,)} if dataset and _has_siblings(file, dataset) else {}
    wanted = query.task in (None, task) or query.task in groups
    if not wanted:
        return FileContents((), (task,), groups)
    lines = JsonLines(file, query.argument, query.advance)
    rows: dict[tuple[str, str], Mapping[str, Any]] = {}
    records: dict[tuple[str, str], int] = {}
    for number, row in enumerate(lines):
        question, sample = _place(row)
        if not question:
            continue
        first = rows.setdefault((question, sample), row)
        line = records.setdefault((question, sample), number)
        if mapping(first.get("sample_score")) != mapping(row.get("sample_score")):
            rule = f"hold every sample once ({file})"
            got = f"sample {sample} in rows {line + 1} and {number + 1}, with another score"
            raise InvalidInputError.of(query.argument, "duplicate", rule, got)
    subsets = mapping(mapping(report.get("execution_summary")).get("subsets"))
    n_errors = mapping(subsets.get(task.removeprefix(f"{dataset}_"))).get("errored")
    failed = _failed(list(rows.values()), n_errors)
    for without_review in failed:
        rows[_place(without_review)] = without_review
        records[_place(without_review)] = -1
    scores = [mapping(mapping(row.get("sample_score")).get("score")) for row in rows.values()]
    metrics = _metrics(scores)
    if not metrics:
        got = f"{len(rows):,} samples without one"
        raise nothing_to_count(file, query, "scores of samples", got)
    metric, notes = chosen_metric(metrics, query, file, "metric")
    columns = _columns(list(rows.values()), scores, metric, file, query)
    columns.model, columns.task = model, task
    columns.texts = lines_log(lines, _texts)
    columns.places = [place(n) if n >= 0 else _NO_TEXT for n in records.values()]
    if type(n_errors) is int and n_errors > 0 and (query.unscored == "left-out" or not failed):
        reason = "as in evalscope's own means"
        if query.unscored == "wrong":
            reason = "because the reviews do not tell of which questions"
        ended = f"{plural(n_errors, 'trial')} ended in an error"
        notes = (*notes, f"{ended}, and did not count, {reason}")
    runs = partial_runs(
        columns,
        file,
        query,
        metric=metric,
        notes=notes,
        provenance=Provenance(dataset=dataset),
    )
    return FileContents(runs, (task,), groups, warnings=lines.warnings)


def _failed(rows: Sequence[Mapping[str, Any]], n_errors: object) -> list[Mapping[str, Any]]:
    """Return rows for the generations without a review, where they are all that had an error."""
    generations: dict[str, set[int]] = {}
    for about in (mapping(row.get("sample_score")) for row in rows):
        number = about.get("generation_index")
        if type(number) is not int or not 0 <= number < _MOST_GENERATIONS:
            return []
        generations.setdefault(name_of(about.get("group_id")), set()).add(number)
    n_generations = max(map(len, generations.values()), default=0)
    missing = [
        (question, number)
        for question, reviewed in generations.items()
        for number in range(n_generations)
        if number not in reviewed
    ]
    if len(missing) != n_errors or "" in generations:
        return []
    return [
        {
            "index": f"{question}, generation {number}",
            "sample_score": {"group_id": question, "generation_index": number},
        }
        for question, number in missing
    ]


def _place(row: Mapping[str, Any]) -> tuple[str, str]:
    """Return the question and the sample of a review."""
    about = mapping(row.get("sample_score"))
    sample = name_of(row.get("index")) or name_of(about.get("sample_id"))
    return name_of(about.get("group_id")) or sample, sample


def _texts(row: Mapping[str, Any]) -> Sequence[TrialText]:
    """Return what the model wrote, and the right answers."""
    text = written(row.get("messages"))
    if text is None:
        about = mapping(mapping(row.get("sample_score")).get("score"))
        text = about.get("prediction")
    return one_text(text, row.get("target"))


def _metrics(scores: Sequence[Mapping[str, Any]]) -> list[str]:
    """Return the names of the scores, the main one first."""
    names = dict.fromkeys(key for score in scores for key in mapping(score.get("value")))
    mains = Counter(name_of(score.get("main_score_name")) for score in scores)
    main = next((name for name, _ in mains.most_common() if name in names), None)
    return sorted(names, key=lambda name: name != main)


def _columns(
    rows: Sequence[Mapping[str, Any]],
    scores: Sequence[Mapping[str, Any]],
    metric: str,
    file: Path,
    query: Query,
) -> TrialColumns:
    messages = rows[0].get("messages")
    run = hash_text(json.dumps([file.stem, messages], default=str))
    abouts = [mapping(row.get("sample_score")) for row in rows]
    places = [_place(row) for row in rows]
    questions, samples = [question for question, _ in places], [sample for _, sample in places]
    numbers = numbers_in_run(run, [about.get("generation_index") for about in abouts], questions)
    fields = (about.get("sample_metadata") for about in abouts)
    clusters = clusters_of(fields, query, f"the samples' metadata in {file.name}")
    usage = _usage(file, query)
    tokens, seconds = zip(*(usage.get(sample, (None, None)) for sample in samples), strict=True)
    return TrialColumns(
        question=questions,
        score=[score_of(mapping(score.get("value")).get(metric)) for score in scores],
        trial=numbers,
        cluster=clusters,
        text=[last_message(row.get("messages")) for row in rows],
        answer=[name_of(score.get("extracted_prediction")) for score in scores],
        measured={"tokens": list(tokens), "time": list(seconds)},
    )


def _usage(file: Path, query: Query) -> dict[str, tuple[Any, Any]]:
    """Return the tokens and the seconds of samples, where the predictions have them."""
    predictions = _beside(file, _REVIEWS, _PREDICTIONS)
    if _REVIEWS not in file.absolute().parts or not predictions.is_file():
        return {}
    outputs = (
        (name_of(row.get("index")), mapping(row.get("model_output")))
        for row in JsonLines(predictions, query.argument)
    )
    return {
        sample: (mapping(output.get("usage")).get("output_tokens"), output.get("time"))
        for sample, output in outputs
    }


def _report(file: Path, query: Query) -> tuple[str, Mapping[str, Any]]:
    """Return the dataset of reviews and its report; "" and none where there is no report."""
    if _REVIEWS not in file.absolute().parts:
        return "", {}
    reports = files_beside(_beside(file, _REVIEWS, _REPORTS), "*.json")
    of_dataset = [report for report in reports if file.stem.startswith(f"{report.stem}_")]
    if not of_dataset:
        return "", {}
    report = max(of_dataset, key=lambda report: len(report.stem))
    return report.stem, mapping(load_json(report, query))


def _has_siblings(file: Path, dataset: str) -> bool:
    return len(files_beside(file, f"{escape(dataset)}_*.jsonl")) > 1
