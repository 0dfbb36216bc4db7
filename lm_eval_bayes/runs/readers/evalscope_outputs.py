"""Reviews of evalscope, one file per model and subset of a dataset, and output folders of them.

Every generation of a sample is a trial. A sample that could not be generated or scored has no
score, and does not count, as in evalscope's own means.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import replace
from functools import partial
from glob import escape
from pathlib import Path
from typing import Any

from lm_eval_bayes._util.hashing import hash_text
from lm_eval_bayes._util.text import plural
from lm_eval_bayes.runs.log_fields import lookup, mapping
from lm_eval_bayes.runs.readers.json_files import after_last, load_json, name_of
from lm_eval_bayes.runs.readers.protocol import FileContents, Query, files_beside
from lm_eval_bayes.runs.readers.tables import LogFile
from lm_eval_bayes.runs.readers.text_files import JsonLines
from lm_eval_bayes.runs.readers.tool_log import ToolLog, Trial, begins_with
from lm_eval_bayes.runs.readers.trial_texts import last_message, written
from lm_eval_bayes.runs.task_run import Provenance

#: The folders of an evaluation.
_REVIEWS, _PREDICTIONS, _REPORTS = "reviews", "predictions", "reports"


is_mine = begins_with("index", "sample_score")


def _beside(file: Path, folder: str, other: str) -> Path:
    """Return the path in another folder of the evaluation; the file where it is in none."""
    split = after_last(folder, file)
    return file if split is None else split[0] / other / split[1]


def read(file: Path, query: Query) -> FileContents:
    """Read reviews."""
    task, split = file.stem, after_last(_REVIEWS, file)
    model = file.absolute().parent.name if split is None else "/".join(split[1].parts[:-1])
    dataset, report = _report(file)
    subsets = files_beside(file, f"{escape(dataset)}_*.jsonl") if dataset else []
    groups = {dataset: (task,)} if len(subsets) > 1 else {}
    if query.task not in (None, task, *groups):
        return FileContents((), (task,), groups)
    messages = LogFile(file).first_line.get("messages")
    run = hash_text(json.dumps([task, messages], default=str))
    common = Trial(model=model, task=task, run=run, provenance=Provenance(dataset=dataset))
    usage = _usage(file)
    log = ToolLog(file, replace(query, task=None), partial(_trials, common, usage))
    subset = task.removeprefix(f"{dataset}_")
    counts = mapping(report, "execution_summary", "subsets", subset)
    n_errors, requested = counts.get("errored"), counts.get("requested")
    if type(n_errors) is int and n_errors > 0:
        missing, failed = _missing(log.trials, n_errors), replace(common, error="an error")
        log.trials += [replace(failed, question=q, label=i, key=i) for q, i in missing]
        if not missing:
            ended = f"{plural(n_errors, 'trial')} of {file} ended in an error, and did not count"
            log.warnings.append(f"{ended}: the reviews do not tell of which questions")
    n = len(log.trials)
    if type(requested) is int and n < requested:
        log.warnings.append(f"{file} holds {n:,} of {requested:,} reviews that its report counts")
    return replace(log.contents("evalscope"), groups=groups)


def _trials(
    common: Trial, usage: Mapping[str, Mapping[str, Any]], row: Mapping[str, Any]
) -> Iterator[Trial]:
    about, score = mapping(row, "sample_score"), mapping(row, "sample_score", "score")
    values, main = mapping(score, "value"), score.get("main_score_name")
    sample = name_of(row.get("index")) or name_of(about.get("sample_id"))
    text, output = written(row.get("messages")), usage.get(sample, {})
    yield replace(
        common,
        question=name_of(about.get("group_id")) or sample,
        label=about.get("generation_index"),
        key=sample,
        scores=dict(sorted(values.items(), key=lambda named: named[0] != main)),
        answer=name_of(score.get("extracted_prediction")),
        text=last_message(row.get("messages")),
        document=mapping(about, "sample_metadata"),
        tokens=lookup(output, "usage", "output_tokens"),
        time=output.get("time"),
        reply=score.get("prediction") if text is None else text,
        right=row.get("target"),
    )


def _missing(trials: list[Trial], n_errors: int) -> list[tuple[str, int]]:
    """Return the generations without a review, where they are all that had an error."""
    reviewed = {(trial.question, trial.label) for trial in trials}
    questions = dict.fromkeys(trial.question for trial in trials)
    numbers = range(1 + max((i for _, i in reviewed if type(i) is int), default=-1))
    if len(numbers) * len(questions) != len(reviewed) + n_errors:
        return []
    return [(q, i) for q in questions for i in numbers if (q, i) not in reviewed]


def _usage(file: Path) -> dict[str, Mapping[str, Any]]:
    """Return the outputs of samples by their names, where there are predictions."""
    predictions = _beside(file, _REVIEWS, _PREDICTIONS)
    if predictions == file or not predictions.is_file():
        return {}
    rows = JsonLines(predictions)
    return {name_of(row.get("index")): mapping(row, "model_output") for row in rows}


def _report(file: Path) -> tuple[str, Mapping[str, Any]]:
    """Return the dataset of reviews and its report; "" and none where there is no report."""
    reports = files_beside(_beside(file, _REVIEWS, _REPORTS), "*.json")
    of_dataset = [report for report in reports if file.stem.startswith(f"{report.stem}_")]
    if not of_dataset or _REVIEWS not in file.absolute().parts:
        return "", {}
    report = max(of_dataset, key=lambda report: len(report.stem))
    return report.stem, mapping(load_json(report))
