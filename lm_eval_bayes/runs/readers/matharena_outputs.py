"""Outputs of MathArena: `.json` and `.json.zst`, one file per problem, and folders of them.

A run of a problem is a trial. Files are in COMPETITION/PROVIDER/MODEL; the table that MathArena
publishes is read as a table of trials.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from lm_eval_bayes._util.compressed import plain_name
from lm_eval_bayes._util.text import plural
from lm_eval_bayes.runs.logged_texts import TrialText
from lm_eval_bayes.runs.provenance import mapping
from lm_eval_bayes.runs.readers.conversations import written
from lm_eval_bayes.runs.readers.file_access import files_below
from lm_eval_bayes.runs.readers.json_files import (
    after_last,
    beginning,
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
from lm_eval_bayes.runs.readers.trial_columns import TrialColumns, partial_runs
from lm_eval_bayes.runs.readers.trial_texts import SpooledRecords, one_text, place

#: How a file begins: the number of the problem and its text.
_BEGINNING = re.compile(rb'\s*\{\s*"idx"\s*:\s*\d+\s*,\s*"problem"\s*:\s*(null|")')


def sniff(path: Path) -> Sniffed | None:
    """Return a file of a problem, or the folders of models in a folder."""
    if not path.is_dir():
        return Sniffed([path]) if _is_problem(path) else None
    folders = dict.fromkeys(file.parent for file in sorted(files_below(path)) if _is_problem(file))
    return Sniffed(list(folders)) if folders else None


def _is_problem(file: Path) -> bool:
    if plain_name(file).suffix != ".json":
        return False
    return _BEGINNING.match(beginning(file)) is not None


def read(file: Path, query: Query) -> FileContents:
    """Read the problems of a model, or one of them.

    Raises
    ------
    NothingToCountError
        If no run was graded.
    InvalidInputError
        If a file is broken, or the query names a field that no problem has.
    """
    folder = file if file.is_dir() else file.parent
    model, task = _names(folder)
    if query.task not in (None, task):
        return FileContents((), (task,))
    problems: dict[str, Mapping[str, Any]] = {}
    files: dict[str, Path] = {}
    for path in filter(_is_problem, sorted(folder.iterdir()) if file.is_dir() else [file]):
        problems[plain_name(path).stem] = _problem(path, query)
        files[plain_name(path).stem] = path
    if not problems:
        raise broken(file, query, "no problem")
    metric, notes = chosen_metric(["correct"], query, file, "metric")
    columns = _columns(problems, file, query)
    columns.model, columns.task = model, task
    again = Query(argument=query.argument)
    columns.texts = SpooledRecords(
        *files.values(),
        records=lambda: (_texts(_problem(path, again)) for path in files.values()),
    )
    records = {id: number for number, id in enumerate(files)}
    ids_and_runs = zip(columns.question, columns.trial or (), strict=True)
    columns.places = [place(records[id], run) for id, run in ids_and_runs]
    if all(score is None for score in columns.score):
        got = plural(len(columns), "run") + " without a grade"
        raise nothing_to_count(file, query, "graded runs", got)
    runs = partial_runs(columns, file, query, metric=metric, notes=notes, first_label=1)
    return FileContents(runs, (task,))


def _names(folder: Path) -> tuple[str, str]:
    """Return the model with its provider, and the competition."""
    parts = folder.absolute().parts[1:]
    model = "/".join(parts[-2:]) or folder.name
    before = parts[:-2]
    split = after_last("outputs", folder.absolute().parent)
    if split is not None:
        return model, split[1].parent.as_posix() if len(split[1].parts) > 1 else before[-1]
    return model, before[-1] if before else "MathArena"


def _problem(path: Path, query: Query) -> Mapping[str, Any]:
    content = mapping(load_json(path, query))
    if not isinstance(content.get("correct"), list):
        raise broken(path, query, "no list of grades (correct)")
    return content


def _texts(problem: Mapping[str, Any]) -> Sequence[TrialText]:
    """Return what the model wrote in every run of a problem, and the right answer."""
    grades, messages = problem.get("correct"), problem.get("messages")
    n_runs = len(grades) if isinstance(grades, list) else 0
    texts = [written(_item(messages, i)) for i in range(n_runs)]
    return [one_text(text, problem.get("gold_answer"))[0] for text in texts]


def _columns(problems: Mapping[str, Mapping[str, Any]], file: Path, query: Query) -> TrialColumns:
    rows: list[tuple[Any, ...]] = []
    for id in sorted(problems, key=_by_number):
        problem = problems[id]
        answers, costs = problem.get("answers"), problem.get("detailed_costs")
        text = text_of(problem.get("problem"))
        for i, correct in enumerate(problem["correct"]):
            cost = mapping(_item(costs, i))
            answer = name_of(_item(answers, i))
            answer = "" if answer == "None" else answer  # where none was extracted
            score = None if isinstance(correct, str) else score_of(correct)
            measured = (cost.get("output_tokens"), cost.get("cost"), cost.get("time"))
            rows.append((id, score, i, answer, text, *measured))
    if not rows:
        raise broken(file, query, "no runs of problems")
    ids, scores, trials, extracted, texts, tokens, prices, times = map(
        list, zip(*rows, strict=True)
    )
    documents = [
        {**problem, "types": _label(problem.get("types"))} for problem in problems.values()
    ]
    clusters = clusters_of(documents, query, f"the problems in {file.name}")
    by_problem = dict(zip(problems, clusters or (), strict=False))
    return TrialColumns(
        question=ids,
        score=scores,
        trial=trials,
        cluster=None if clusters is None else [by_problem[id] for id in ids],
        text=texts,
        answer=extracted,
        measured={"tokens": tokens, "cost": prices, "time": times},
    )


def _by_number(id: str) -> tuple[int, str]:
    return (int(id) if id.isascii() and id.isdigit() and len(id) < 19 else 2**63, id)


def _item(values: object, i: int) -> Any:
    return values[i] if isinstance(values, Sequence) and i < len(values) else None


def _label(value: object) -> str:
    """Return the name of a cluster; several in one text, as the types of a problem are."""
    if isinstance(value, list):
        return ", ".join(filter(None, map(name_of, value)))
    return name_of(value)
