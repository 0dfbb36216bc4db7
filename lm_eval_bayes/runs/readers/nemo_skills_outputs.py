"""Outputs of NeMo-Skills: `output-rs*.jsonl`, one file per random seed, and folders of them.

A file is one trial of every question, and its seed the number of the trial. As NeMo-Skills does,
questions without an id or a text are matched by their lines; files of other numbers of lines are
then refused. A judgement that is neither yes nor no counts as no.

`robust_eval` asks with several prompts, MODEL/BENCHMARK/PROMPT/eval-results/BENCHMARK, and writes
MODEL/summarize_robustness: every prompt is a setting of the model.
"""

from __future__ import annotations

import os
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

from lm_eval_bayes._util.hashing import distinct_ids, hash_text
from lm_eval_bayes.runs.log_fields import lookup
from lm_eval_bayes.runs.readers.json_files import name_of, score_of, text_of
from lm_eval_bayes.runs.readers.protocol import FileContents, Found, Query
from lm_eval_bayes.runs.readers.tables import LogFile
from lm_eval_bayes.runs.readers.tool_log import ToolLog, Trial
from lm_eval_bayes.runs.readers.trial_columns import record_key

_NAME = re.compile(r"output(?:-rs(\d{1,15}))?\.jsonl")

#: Fields that identify a question, and fields that hold its text.
_IDS = ("id", "problem_id", "question_id", "task_id", "instance_id")
_TEXTS = ("problem", "question", "prompt")

#: Folders of results, which are not called after a model.
_RESULTS = ("eval-results", "tmp-eval-results")

#: Metrics by their names in NeMo-Skills, with the field that holds each, or the field within one.
_METRICS = {
    "passing_base_tests": ("is_correct",),
    "passing_plus_tests": ("is_correct-plus",),
    "passed": ("passed",),
    "issues_resolved": ("swe-bench-metrics", "resolved"),
    "prompt_strict_accuracy": ("strict_eval", "follow_all_instructions"),
    "prompt_loose_accuracy": ("loose_eval", "follow_all_instructions"),
}

Row = Mapping[str, Any]


@dataclass(frozen=True, kw_only=True, slots=True)
class _Answer(Trial):
    """A trial with what may identify its question."""

    ids: tuple[str, ...]


def _scores(row: Row) -> dict[str, float | None]:
    """Return the metrics of which a row has the fields."""
    judged = _is_yes(row.get("judgement"))
    if {"judgement", "expected_judgement"} <= row.keys():  # of a judge, not of a judged model
        return {"correct_judgements": float(judged == _is_yes(row.get("expected_judgement")))}
    scores: dict[str, float | None] = {}
    if "symbolic_correct" in row:
        scores["symbolic_correct"] = score_of(row["symbolic_correct"])
    if "judgement" in row:
        scores["judge_correct"] = None if row["judgement"] is None else float(judged is True)
    if len(scores) == 2:
        both = [score for score in scores.values() if score is not None]
        scores["both_correct"] = min(both) if len(both) == 2 else None
        scores["any_correct"] = max(both) if len(both) == 2 else None
    for name, fields in _METRICS.items():
        if fields == ("is_correct",) and "is_correct-plus" not in row:
            name = "is_correct"
        if fields[0] in row:
            scores[name] = score_of(lookup(row, *fields))
    if isinstance(grades := row.get("graded_list"), list):
        scores["accuracy"] = score_of(grades[0]) if grades else None
    if "proof_status" in row:
        scores["lean4_correct"] = float(row["proof_status"] == "completed")
    return scores


def _is_yes(judgement: object) -> bool | None:
    """Return what a judge said; None where it said neither yes nor no."""
    _, sign, verdict = (judgement if isinstance(judgement, str) else "").rpartition("Judgement:")
    word = verdict.strip().lower() if sign else ""
    return True if word.startswith("yes") else False if word.startswith("no") else None


def units(files: Sequence[Path], path: Path) -> Found:
    """Return the outputs by their seeds; where there are some, those without are left out."""
    ordered = sorted(files, key=lambda file: (file.parent, _seed(file) or 0, file.name))
    seeded = {file.parent for file in files if _seed(file) is not None}
    read = [f for f in ordered if _seed(f) is not None or f.parent not in seeded]
    beside = "was left out: there are outputs with seeds beside it"
    return Found(read, tuple(f"{file} {beside}" for file in ordered if file not in read))


def _seed(file: Path) -> int | None:
    named = _NAME.fullmatch(file.name)
    return int(named[1]) if named and named[1] else None


def is_mine(file: LogFile) -> bool:
    """Return whether a file is one of outputs that were graded."""
    # such a name alone says little: what NeMo-Skills adds to every generation is looked for, too
    first = file.first_line if _NAME.fullmatch(file.name) else {}
    return bool(_scores(first)) and "doc_id" not in first


def read(file: Path, query: Query) -> FileContents:
    """Read the outputs of one seed."""
    model, task, prompt = _names(file, query)
    if query.task not in (None, task):
        return FileContents((), (task,))
    log = ToolLog(file, query, partial(_trials, model, task, prompt, _seed(file)))
    by_line = _name_questions(log)
    return log.contents("NeMo-Skills", by_line=by_line)


def _trials(model: str, task: str, prompt: str, seed: int | None, row: Row) -> Iterator[Trial]:
    yield _Answer(
        model=model,
        task=task,
        setting=prompt,
        label=seed or 0,
        ids=tuple(name_of(row.get(field)) for field in _IDS),
        key=record_key(row),
        text=next(filter(None, (text_of(row.get(name)) for name in _TEXTS)), ""),
        scores=_scores(row),
        answer=name_of(row.get("predicted_answer")),
        tokens=row.get("num_generated_tokens"),
        document=row,
        reply=row.get("generation"),
        right=row.get("expected_answer"),
    )


def _names(file: Path, query: Query) -> tuple[str, str, str]:
    """Return model, task and prompt: MODEL/[eval-results/]TASK/output-rs0.jsonl without a prompt.

    Outputs do not name the model. Where the query names a task, and neither the folder nor one
    beside it is called so, the folder is that of a model.
    """
    parts, beside = file.absolute().parts[:-1], file.absolute().parent.parent
    for model in beside.parents:
        names = [part for part in parts[len(model.parts) :] if part not in _RESULTS]
        if len(names) > 1 and os.path.isdir(model / "summarize_robustness"):
            return model.name, names[0 if len(names) == 2 else -1], names[1]
    is_task = query.task in (None, parts[-1]) or os.path.isdir(beside / str(query.task))
    if not is_task and beside.name not in _RESULTS:
        return parts[-1], str(query.task), ""
    above = [part for part in parts[1:-1] if part not in _RESULTS]
    return (above or parts)[-1], parts[-1], ""


def _name_questions(log: ToolLog) -> bool:
    """Name questions by ids, else by hashes of texts, else by lines; return whether by these.

    A field is an id where no two contents have it in common.
    """
    answers = [trial for trial in log.trials if isinstance(trial, _Answer)]
    records, texts = [a.key for a in answers], [a.text for a in answers]
    has_texts = all(texts)
    contents: list[Any] = texts if has_texts else records
    columns = (ids for ids in zip(*(a.ids for a in answers), strict=True) if all(ids))
    named = (c for c in columns if len(set(c)) == len(set(zip(c, contents, strict=True))))
    ids: Sequence[str] = next(named, ())
    by_line = not ids and not has_texts
    if not ids:
        # equal lines are one, without texts only where the file holds all of its lines again
        twice = min(Counter(records).values(), default=0) > 1
        is_told = has_texts or (twice and any(a.tokens is not None for a in answers))
        keys: Sequence[Any] = records if is_told else range(len(records))
        distinct = dict(zip(keys, texts, strict=True))
        names: Iterable[str] = map(str, range(len(distinct)))
        if has_texts:
            names = distinct_ids([hash_text(text) for text in distinct.values()])
        of_key = dict(zip(distinct, names, strict=True))
        ids = [of_key[key] for key in keys]
    log.trials = [replace(a, question=id) for a, id in zip(answers, ids, strict=True)]
    return by_line
