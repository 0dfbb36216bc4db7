"""Outputs of MathArena: `.json` and `.json.zst`, one file per problem, and folders of them.

A run of a problem is a trial. Files are in COMPETITION/PROVIDER/MODEL; the table that MathArena
publishes is read as a table of trials.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from lm_eval_bayes._util.files import plain_name
from lm_eval_bayes.runs.log_fields import lookup, mapping
from lm_eval_bayes.runs.readers.json_files import after_last, broken, load_json, name_of, text_of
from lm_eval_bayes.runs.readers.protocol import FileContents, Found, Query
from lm_eval_bayes.runs.readers.tables import LogFile
from lm_eval_bayes.runs.readers.tool_log import ToolLog, Trial, matches

#: How a file begins: the number of the problem and its text.
_BEGINNING = re.compile(rb'\s*\{\s*"idx"\s*:\s*\d+\s*,\s*"problem"\s*:\s*(null|")')


def units(files: Sequence[Path], path: Path) -> Found:
    """Return the folders of the problems of a folder, one per model; the file of one problem."""
    return Found(list(dict.fromkeys(f.parent for f in files)) if path.is_dir() else files)


#: Whether a file is one of a problem.
is_mine = matches(_BEGINNING, ".json", ".json.gz", ".json.zst")


def read(file: Path, query: Query) -> FileContents:
    """Read the problems of a model, or one of them."""
    model, task = _names(file if file.is_dir() else file.parent)
    if query.task not in (None, task):
        return FileContents((), (task,))
    log = ToolLog(file, query, partial(_trials, model, task), partial(_problems, file))
    return log.contents("MathArena")


def _names(folder: Path) -> tuple[str, str]:
    """Return the model with its provider, and the competition."""
    parts = folder.absolute().parts[1:]
    competition = parts[-3] if len(parts) > 2 else "MathArena"
    split = after_last("outputs", folder.absolute().parent)
    if split is not None and len(split[1].parts) > 1:
        competition = split[1].parent.as_posix()
    return "/".join(parts[-2:]), competition


def _problems(file: Path, query: Query) -> Iterator[tuple[str, Mapping[str, Any]]]:
    """Yield the problems with their names, in the order of their numbers."""
    files = [path for path in file.iterdir() if is_mine(LogFile(path))] if file.is_dir() else [file]
    for path in sorted(files, key=lambda path: (len(path.name), path.name)):
        problem = mapping(load_json(path))
        if not isinstance(problem.get("correct"), list):
            raise broken(path, "no list of grades (correct)")
        lists = (problem.get(key) for key in ("correct", "answers", "messages"))
        if len({len(values) for values in lists if isinstance(values, list)}) > 1:
            raise broken(path, "lists of grades, answers and messages of other lengths")
        yield plain_name(path).stem, problem


def _trials(model: str, task: str, named: tuple[str, Mapping[str, Any]]) -> Iterator[Trial]:
    id, problem = named
    fields = {key: _label(value) for key, value in problem.items()}
    for i, grade in enumerate(problem["correct"]):
        answer, cost = name_of(_item(problem, "answers", i)), _item(problem, "detailed_costs", i)
        yield Trial(
            model=model,
            task=task,
            question=id,
            label=i,
            scores={"correct": None if isinstance(grade, str) else grade},  # "TODO"
            answer="" if answer == "None" else answer,  # where none was extracted
            text=text_of(problem.get("problem")),
            document=fields,
            reply=_item(problem, "messages", i),
            right=problem.get("gold_answer"),
            tokens=lookup(cost, "output_tokens"),
            cost=lookup(cost, "cost"),
            time=lookup(cost, "time"),
        )


def _item(problem: Mapping[str, Any], key: str, i: int) -> Any:
    values = problem.get(key)
    return values[i] if isinstance(values, Sequence) and i < len(values) else None


def _label(value: object) -> str:
    """Return the name of a cluster; several in one text, as the types of a problem are."""
    parts = value if isinstance(value, list) else [value]
    return ", ".join(filter(None, map(name_of, parts)))
