"""Results of promptfoo, `-o results.json` or `-o results.jsonl`: tests that were repeated.

`--repeat N` writes every test N times; rows of one test, provider and prompt are trials.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from lm_eval_bayes._util.compressed import plain_name
from lm_eval_bayes._util.hashing import distinct_ids, hash_text
from lm_eval_bayes._util.text import one_line, plural
from lm_eval_bayes.runs.logged_texts import TextLog, TrialText
from lm_eval_bayes.runs.provenance import mapping, number
from lm_eval_bayes.runs.readers.conversations import last_message
from lm_eval_bayes.runs.readers.file_access import sniff_files
from lm_eval_bayes.runs.readers.json_files import (
    beginning,
    broken,
    chosen_metric,
    json_text,
    load_json,
    name_of,
    score_of,
    timestamp,
)
from lm_eval_bayes.runs.readers.protocol import FileContents, Query, Sniffed
from lm_eval_bayes.runs.readers.text_files import JsonLines, first_line
from lm_eval_bayes.runs.readers.trial_columns import (
    TrialRow,
    columns_of,
    partial_runs,
    record_key,
)
from lm_eval_bayes.runs.readers.trial_texts import (
    SpooledRecords,
    lines_log,
    one_text,
    place,
)
from lm_eval_bayes.runs.task_run import Provenance

#: The first keys of results in JSON, and keys of a row.
_RESULTS = re.compile(
    rb'\s*\{\s*(?:"evalId"\s*:\s*(?:null|"[^"]*")\s*,\s*)?"results"\s*:\s*\{\s*"version"\s*:'
)
_KEYS = {"promptIdx", "provider", "success", "score", "testCase"}

#: Whether all assertions of a test passed, and their mean by weight.
_SUCCESS, _SCORE = "success", "score"

#: The reason of a failure that is an error of the provider or of an assertion.
_ERROR = 2

#: Assertions whose value is the right answer.
_EQUAL = ("equals", "iequals")

#: Variables that promptfoo adds to those of a test.
_ADDED = {"sessionId", "_conversation"}

#: The longest id of a question that shows its variables.
_LONGEST = 80


@dataclass(frozen=True, kw_only=True, slots=True)
class _Row(TrialRow):
    """A row, with its test, the prompt and its label, the scores by name and its place."""

    test: str
    prompt: str
    label: str
    scores: Mapping[str, float]
    order: int


def sniff(path: Path) -> Sniffed | None:
    """Return a file of results, or those in JSON in a folder."""
    return sniff_files(path, _is_results, "*.json")


def _is_results(file: Path) -> bool:
    if plain_name(file).suffix == ".jsonl":
        return (first_line(file) or {}).keys() >= _KEYS
    return plain_name(file).suffix == ".json" and _RESULTS.match(beginning(file)) is not None


def read(file: Path, query: Query) -> FileContents:
    """Read results.

    A test passed where all of its assertions did. One that ended in an error did not, as in the
    pass rate of promptfoo.

    Raises
    ------
    InvalidInputError
        If the file is cut off or broken, or the query names a score that there is not.
    """
    content: Mapping[str, Any] = {}
    warnings: tuple[str, ...] = ()
    texts: TextLog
    if plain_name(file).suffix == ".jsonl":
        lines = JsonLines(file, query.argument, query.advance)
        rows = [_row(row, record, query) for record, row in enumerate(lines)]
        warnings, texts = lines.warnings, lines_log(lines, _texts)
    else:
        content = mapping(load_json(file, query))
        rows = [
            _row(row, record, query) for record, row in enumerate(_listed(content, file, query))
        ]
        texts = SpooledRecords(file, records=partial(_texts_of_all, file, query.argument))
    description = name_of(mapping(content.get("config")).get("description"))
    task = one_line(description, 100) or query.task or ""
    if task and query.task not in (None, task):
        return FileContents((), (task,))
    rows.sort(key=lambda row: row.order)
    named = dict.fromkeys(name for row in rows for name in row.scores)
    names = [_SUCCESS, _SCORE, *(name for name in named if name not in ("", _SUCCESS, _SCORE))]
    metric, notes = chosen_metric(names, query, file, "score")
    n_failed = sum(row.failed and metric in row.scores for row in rows)
    if n_failed:
        ended = plural(n_failed, "trial") + " ended in an error"
        notes += (f"{ended}, and counted as wrong, as in the pass rate of promptfoo",)
    models, more = _models(rows)
    ids = _questions(rows)
    columns = columns_of(
        rows,
        [row.scores.get(metric, math.nan) for row in rows],
        query,
        f"the variables and the metadata of the tests in {file.name}",
        texts=texts,
        places=[place(row.record) for row in rows],
    )
    columns.question, columns.model = [ids[row.test] for row in rows], models
    columns.task = task
    runs = partial_runs(
        columns,
        file,
        query,
        metric=metric,
        source=name_of(content.get("evalId")),
        notes=(*notes, *more),
        provenance=_provenance(content),
    )
    tasks = tuple(dict.fromkeys(run.task for run in runs))
    return FileContents(runs, tasks, warnings=warnings)


def _listed(content: Mapping[str, Any], file: Path, query: Query) -> list[Mapping[str, Any]]:
    """Return the rows of results in JSON."""
    listed = mapping(content.get("results")).get("results")
    if not isinstance(listed, list) or not all(isinstance(row, Mapping) for row in listed):
        raise broken(file, query, "no list of results")
    return listed


def _texts_of_all(file: Path, argument: str) -> Iterator[Sequence[TrialText]]:
    query = Query(argument=argument)
    return map(_texts, _listed(mapping(load_json(file, query)), file, query))


def _texts(row: Mapping[str, Any]) -> Sequence[TrialText]:
    """Return the output of a provider; other than texts as JSON. Assertions name the answers."""
    output = mapping(row.get("response")).get("output")
    text = output if output is None or isinstance(output, str) else json_text(output)
    asserted = mapping(row.get("testCase")).get("assert")
    parts = [mapping(part) for part in (asserted if isinstance(asserted, list) else ())]
    return one_text(text, *(part.get("value") for part in parts if part.get("type") in _EQUAL))


def _row(row: Mapping[str, Any], record: int, query: Query) -> _Row:
    test, response = mapping(row.get("testCase")), mapping(row.get("response"))
    given = test.get("vars") if isinstance(test.get("vars"), Mapping) else row.get("vars")
    variables = {key: value for key, value in mapping(given).items() if key not in _ADDED}
    asserted = json_text([variables, test.get("assert")])
    prompt, provider = mapping(row.get("prompt")), row.get("provider")
    if isinstance(provider, Mapping):
        provider = name_of(provider.get("label")) or name_of(provider.get("id"))
    label = name_of(prompt.get("label"))
    success, named = row.get("success"), mapping(row.get("namedScores"))
    scores = {name_of(key): real for key in named if (real := score_of(named[key])) is not None}
    total = score_of(row.get("score"))
    scores |= {} if total is None else {_SCORE: total}
    scores |= {_SUCCESS: float(success)} if isinstance(success, bool) else {}
    order, milliseconds = row.get("testIdx"), number(row.get("latencyMs"))
    document = {**variables, **mapping(test.get("metadata"))}
    return _Row(
        test=hash_text(asserted),
        question=_question(test, variables),
        model=_provider(name_of(provider)),
        prompt=name_of(row.get("promptId")) or label,
        label=label,
        scores=scores,
        failed=row.get("failureReason") == _ERROR,
        text=last_message(prompt.get("raw")),
        document=document if query.cluster else {},
        order=order if type(order) is int else 0,
        tokens=mapping(response.get("tokenUsage")).get("completion"),
        time=None if milliseconds is None else milliseconds / 1000,
        cost=row.get("cost"),
        record=record,
        key=name_of(row.get("id")) or record_key(row),
    )


def _question(test: Mapping[str, Any], variables: Mapping[str, Any]) -> str:
    """Return the description of a test, else its variables, where they are short."""
    described = one_line(name_of(test.get("description")))
    plain = {key: name_of(value) or json_text(value) for key, value in variables.items()}
    shown = one_line(", ".join(f"{key}={plain[key]}" for key in sorted(plain)))
    for text in (described, shown):
        if 0 < len(text) <= _LONGEST:
            return text
    return hash_text(json_text(variables)).rpartition(":")[2][:16]


def _questions(rows: Iterable[_Row]) -> dict[str, str]:
    """Return the ids of the tests: tests of equal names, with other assertions, get a number."""
    names: dict[str, str] = {}
    for row in rows:
        names.setdefault(row.test, row.question)
    return dict(zip(names, distinct_ids(list(names.values())), strict=True))


def _provider(name: str) -> str:
    """Return a provider without what may hold a key: of an address the host, of a command its name.

    Examples
    --------
    >>> _provider("openai:gpt-4.1"), _provider("https://me:secret@example.org/v1?key=1")
    ('openai:gpt-4.1', 'example.org')
    >>> _provider("exec: python answer.py --key=1")
    'exec: python'
    """
    if "://" in name and not name.startswith("file://"):
        try:
            return urlsplit(name).hostname or "address"
        except ValueError:
            return "address"
    if name.startswith("exec:"):
        return " ".join(["exec:", *name.removeprefix("exec:").split()[:1]])
    return name


def _models(rows: Sequence[_Row]) -> tuple[list[str], tuple[str, ...]]:
    """Return the provider of every row; of several prompts with the number of its prompt."""
    labels = {row.prompt: row.label for row in sorted(rows, key=lambda row: row.order)[::-1]}
    order = list(dict.fromkeys(row.prompt for row in rows))
    if len(order) < 2:
        return [row.model for row in rows], ()
    numbers = {prompt: n for n, prompt in enumerate(sorted(order, key=lambda p: (labels[p], p)), 1)}
    notes = [f"prompt {n}: {one_line(labels[prompt], 100)}" for prompt, n in numbers.items()]
    return [f"{row.model} (prompt {numbers[row.prompt]})" for row in rows], tuple(notes)


def _provenance(content: Mapping[str, Any]) -> Provenance:
    version = name_of(mapping(content.get("metadata")).get("promptfooVersion"))
    results = mapping(content.get("results"))
    milliseconds = number(mapping(results.get("stats")).get("durationMs"))
    return Provenance(
        date=timestamp(results.get("timestamp")),
        versions={"promptfoo": version} if version else {},
        seconds=None if milliseconds is None else milliseconds / 1000,
    )
