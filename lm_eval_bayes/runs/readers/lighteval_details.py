"""Details of lighteval: Parquet files, one per task, and output folders of them.

lighteval keeps one value of a metric per question. Of avg@n, and of pass@k with k=1, the value is
the mean of n samples: where all of them are numbers of right samples divided by n, these numbers
are counted, in no order. Of other metrics the value is one trial.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from lm_eval_bayes._util.text import plural
from lm_eval_bayes.runs.log_fields import mapping
from lm_eval_bayes.runs.logged_texts import PER_RECORD, LoggedTexts
from lm_eval_bayes.runs.readers import tables
from lm_eval_bayes.runs.readers.json_files import after_last, load_json, name_of, text_of
from lm_eval_bayes.runs.readers.protocol import FileContents, Query
from lm_eval_bayes.runs.readers.tables import LogFile
from lm_eval_bayes.runs.readers.tool_log import ToolLog, Trial, call_settings
from lm_eval_bayes.runs.task_run import Provenance
from lm_eval_bayes.runs.trials import PartialRun, counted_trials, questions_of

_COLUMNS = frozenset(("doc", "metric", "model_response"))
_DETAILS, _RESULTS = "details", "results"

#: Metrics that are means over samples, as "avg@n:n=4" and "pass@k:k=1&n=4".
_MEAN = re.compile(r"(?:[\w-]*:)?(?:avg@n|avg@\d+|[\w-]*pass@(?:k:k=)?1)\b.*", re.I)
#: The number of samples in the name of a metric.
_SAMPLES = re.compile(r"\bn=(\d{1,6})\b|^avg@(\d{1,6})\b")


def is_mine(file: LogFile) -> bool:
    """Return whether a file is one of details."""
    return file.path.suffix == ".parquet" and set(file.columns) >= _COLUMNS


def read(file: Path, query: Query) -> FileContents:
    """Read details."""
    log = ToolLog(file, query, partial(_samples, _common(file)), partial(_rows, file))
    n_samples = Counter(sample.place // PER_RECORD for sample in log.trials)
    firsts = [sample for sample in log.trials if sample.place % PER_RECORD == 0]
    samples = {(s.task, s.question): (s.place, n_samples[s.place // PER_RECORD]) for s in firsts}
    # the text of one of several samples is not that of the trial
    both = zip(firsts, n_samples.values(), strict=True)
    log.trials = [s if n == 1 else replace(s, place=PER_RECORD - 1) for s, n in both]
    contents = log.contents("lighteval")
    runs = []
    for run in contents.runs:
        counted = query.bounds is None and _counted(run, samples, log)
        if not counted and len(n_samples) < n_samples.total():
            note = f"{run.metric} is one value of several samples, and was counted as one trial"
            run = replace(run, notes=(*run.notes, note))
        runs.append(counted or run)
    return replace(contents, runs=runs)


def _rows(file: Path, query: Query) -> Iterator[tuple[int, Mapping[str, Any]]]:
    yield from enumerate(tables.arrow_rows(file, sorted(_COLUMNS)))


def _common(file: Path) -> Trial:
    """Return what the results beside the details, and the folders, say of the run."""
    parts, split = file.absolute().parts, after_last(_DETAILS, file.absolute().parent)
    model, sent = parts[-3] if len(parts) > 3 else file.stem, {}
    if split is not None:
        folder = split[1].parent
        results = split[0] / _RESULTS / folder / f"results_{parts[-2]}.json"
        content = load_json(results) if results.is_file() else {}
        config = mapping(content, "config_general", "model_config")
        sent = call_settings(config.get("generation_parameters"))
        model = name_of(config.get("model_name")) or "/".join(folder.parts) or model
    provenance = Provenance(generation_kwargs=sent)
    run = f"{model} {file.absolute().parent.name}"
    return Trial(model=model, task=file.stem, run=run, label=0, provenance=provenance)


def _samples(common: Trial, numbered: tuple[int, Mapping[str, Any]]) -> Iterator[Trial]:
    """Yield a trial for each of the samples of a question; the first has its values."""
    doc, response = (mapping(numbered[1][name]) for name in ("doc", "model_response"))
    texts, tokens = response.get("text"), response.get("output_tokens")
    texts = texts if isinstance(texts, list) and texts else [None]
    counts = [len(part) for part in tokens or () if isinstance(part, list)]
    choices, gold = doc.get("choices"), doc.get("gold_index")
    by_number = dict(enumerate(choices)) if isinstance(choices, list) else {}
    numbers = gold if isinstance(gold, list) else [gold]
    values = mapping(numbered[1]["metric"])
    names = sorted(values, key=lambda name: len(texts) > 1 and not _MEAN.fullmatch(name))
    for text in texts:
        yield replace(
            common,
            question=name_of(doc.get("id")) or str(numbered[0]),
            task=name_of(doc.get("task_name")) or common.task,
            text=text_of(doc.get("query")),
            document=mapping(doc, "specific"),
            scores={name: values[name] for name in names},
            answer=name_of(text) if len(texts) == 1 else "",
            tokens=sum(counts) if counts else None,
            reply=text,
            right=[by_number.get(number) for number in numbers if type(number) is int],
        )


def _counted(
    run: PartialRun, samples: Mapping[tuple[str, str], tuple[int, int]], log: ToolLog
) -> PartialRun | None:
    """Return a run of means as one of counts; None where the values do not tell these."""
    if not _MEAN.fullmatch(run.metric):
        return None
    named, graded = _SAMPLES.search(run.metric), run.trials.graded()
    values = graded.category if graded.score is None else graded.score
    parts = []
    for number, value in zip(graded.question.tolist(), values.tolist(), strict=True):
        question = run.questions[number]
        first_place, n = samples[run.task, question.id]
        n = int(named[1] or named[2]) if named else n
        right = round(value * n)
        if not n or abs(value * n - right) > 1e-6 * n:
            return None
        logged = LoggedTexts.at(first_place + np.arange(n), log.texts) if log.texts else None
        parts.append((question, counted_trials(n - right, right, logged)))
    notes = [f"{run.metric} is a mean of samples: the right ones were counted, in no order"]
    if n_ungraded := run.trials.category.size - len(parts):
        notes.append(f"{plural(n_ungraded, 'question')} without a score left out")
    questions, trials = questions_of(parts)
    run = replace(run, questions=questions, trials=trials, ordered=False, weights=(0.0, 1.0))
    return replace(run, notes=(*run.notes, *notes))
