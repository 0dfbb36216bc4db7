"""The signals of a saved run: one table for a task, from its samples and a verifier's verdicts."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import Any

from lm_eval_bayes.errors import InvalidInputError
from lm_eval_bayes.rubric.schemata import Schema
from lm_eval_bayes.rubric.signals import SignalTable
from lm_eval_bayes.rubric.trial_signals import completion_limit, trial_signals
from lm_eval_bayes.rubric.verifier import THINK_END
from lm_eval_bayes.runs.saved_tasks import SavedTask, distinct
from lm_eval_bayes.runs.verdicts import TrialVerdict, Verdicts, read_verdicts, verdicts_path
from lm_eval_bayes.runs.verifier_inputs import saved_cases

#: What a verdicts file calls a label's probability, and what its signal is called.
VERDICTS = MappingProxyType({"a": "verifier_a", "b": "verifier_b", "c": "verifier_c"})

#: What a rubric task of this package logs of every trial, besides what a model recorded.
_LOGGED = frozenset({"outcome", "has_box", "text_loop"})


@dataclass(frozen=True, eq=False)
class RunSignals:
    """What is known of every trial of one run on one task.

    Attributes
    ----------
    model, task : str
        Names.
    samples : str
        The name of the file that the trials are from.
    doc_ids : tuple of int, length M
        The questions' numbers in the task.
    question_ids : tuple of str, length M
        Their hashes, made distinct; they depend on neither model nor prompt.
    table : SignalTable
        The signals, one row a trial.
    own : tuple of Schema
        The rubrics of its own that the task ran with.
    verifier : mapping or None
        What a verifier's verdicts come from; None where none has judged the run.
    judged : int
        Trials with a verdict.
    """

    model: str
    task: str
    samples: str
    doc_ids: tuple[int, ...]
    question_ids: tuple[str, ...]
    table: SignalTable
    own: tuple[Schema, ...] = ()
    verifier: Mapping[str, Any] | None = None
    judged: int = 0

    @property
    def name(self) -> str:
        """The run, for people: its model and its file."""
        return f"{self.model} ({self.samples})"

    def without_verdicts(self) -> RunSignals:
        """Return the run as if no verifier had judged it."""
        columns = {n: c for n, c in self.table.columns.items() if n not in VERDICTS.values()}
        table = SignalTable(self.table.question, columns, self.table.n_questions)
        return replace(self, table=table, verifier=None, judged=0)


def run_signals(saved: SavedTask, argument: str = "run") -> RunSignals:
    """Read a saved task and compute the signals of all its trials.

    The texts give has_box and text_loop, the grades is_correct, a recording model's log the
    rest; verdicts are taken from the `verdicts_*.jsonl` beside the samples.

    Parameters
    ----------
    saved : SavedTask
        One of :func:`lm_eval_bayes.runs.saved_tasks.saved_tasks`.
    argument : str
        What to call the run in an error.

    Raises
    ------
    InvalidInputError
        If the samples or the verdicts cannot be read, or do not belong together.
    """
    rows = saved.rows(argument)
    texts = [_texts(row, saved, argument) for row in rows]
    verdicts = _verdicts(saved, argument)
    binary = _says_right_or_wrong(saved.weights, rows)
    questions = [
        _of_question(row, found, saved, binary, argument)
        for row, found in zip(rows, texts, strict=True)
    ]
    judged = 0
    if verdicts is not None:
        said = _said(saved, verdicts)
        for row, columns in zip(rows, questions, strict=True):
            found = [said.get((row["doc_id"], trial)) for trial in range(len(row["outcomes"]))]
            judged += sum(one is not None and one.c is not None for one in found)
            columns |= {name: _probabilities(found, label) for label, name in VERDICTS.items()}
    try:
        table = SignalTable.from_questions(questions)
    except InvalidInputError as error:
        rule = f"have signals that can be; {saved.samples}"
        raise InvalidInputError.of(argument, rule, str(error)) from None
    return RunSignals(
        model=saved.model,
        task=saved.task,
        samples=saved.samples.name,
        doc_ids=tuple(int(row["doc_id"]) for row in rows),
        question_ids=distinct([row["doc_hash"] for row in rows]),
        table=table,
        own=saved.own_rubrics,
        verifier=None if verdicts is None else verdicts.header.verifier,
        judged=judged,
    )


def _of_question(
    row: Mapping[str, Any],
    texts: Sequence[str],
    saved: SavedTask,
    binary: bool,
    argument: str,
) -> dict[str, list[float | None]]:
    recorded = row.get("signals") or {}
    if not isinstance(recorded, Mapping) or not all(isinstance(c, list) for c in recorded.values()):
        raise _broken(argument, saved, row, "`signals` holds no lists")
    # what a verifier said stands in a file of its own, with the texts that it was said of
    recorded = {name: c for name, c in recorded.items() if name not in VERDICTS.values()}
    if recorded.keys() >= _LOGGED:
        # a rubric task has computed them already, from the texts before anything was cut off
        uneven = next((n for n, values in recorded.items() if len(values) != len(texts)), None)
        if uneven is not None:
            raise _broken(argument, saved, row, f"{uneven} has {len(recorded[uneven])} values")
        return {name: list(values) for name, values in recorded.items()}
    # a trial that nobody graded is null in a store's export, and its grade is missing
    grades: list[Any] = [math.nan if one is None else one for one in row["outcomes"]]
    try:
        return trial_signals(
            texts,
            grades,
            recorded,
            binary=binary,
            max_gen_toks=_max_gen_toks(row, saved.config),
            think_end_token=_think_end_token(saved.config),
        )
    except (InvalidInputError, TypeError, ValueError) as error:
        raise _broken(argument, saved, row, str(error)) from None


def _verdicts(saved: SavedTask, argument: str) -> Verdicts | None:
    path = verdicts_path(saved.samples)
    if not path.is_file():
        return None
    found = read_verdicts(path)
    if found.header.samples != saved.samples.name:
        rule = f"have verdicts on {saved.samples} in {path}"
        raise InvalidInputError.of(argument, rule, f"verdicts on {found.header.samples}")
    return found


def _said(saved: SavedTask, verdicts: Verdicts) -> dict[tuple[int, int], TrialVerdict | None]:
    """Return the verdict on every trial, and refuse one that was given on another text."""
    think_end = str(verdicts.header.verifier.get("think_end", THINK_END))
    return {
        (one.doc_id, one.trial): verdicts.said_of(one.doc_id, one.trial, one.text)
        for one in saved_cases(saved, think_end)
    }


def _probabilities(found: Sequence[TrialVerdict | None], label: str) -> list[float | None]:
    return [None if one is None else getattr(one, label) for one in found]


def _says_right_or_wrong(weights: Sequence[float], rows: Sequence[Mapping[str, Any]]) -> bool:
    """Return whether grade 1 means right and 0 wrong."""
    if len(weights) != 2 or not weights[0] < weights[1]:
        return False
    return all(one in (0, 1, None) for row in rows for one in row["outcomes"])


def _texts(row: Mapping[str, Any], saved: SavedTask, argument: str) -> list[str]:
    lists = row.get("resps")
    texts = lists[0] if isinstance(lists, list) and lists else None
    if not isinstance(texts, list) or not all(isinstance(text, str) for text in texts):
        raise _broken(argument, saved, row, "`resps` holds no list of texts")
    if not isinstance(row["outcomes"], list):
        raise _broken(argument, saved, row, "`outcomes` is no list")
    if not isinstance(row.get("doc_hash"), str):
        raise _broken(argument, saved, row, "there is no `doc_hash` to know the question by")
    return texts


def _broken(argument: str, saved: SavedTask, row: Mapping[str, Any], why: str) -> InvalidInputError:
    rule = f"have one text, grade and signal a trial ({saved.samples})"
    return InvalidInputError.of(argument, rule, f"question {row['doc_id']}: {why}")


def _max_gen_toks(row: Mapping[str, Any], config: Mapping[str, Any]) -> int | None:
    asked = row.get("arguments")
    first = asked.get("gen_args_0") if isinstance(asked, Mapping) else None
    sent = first.get("arg_1") if isinstance(first, Mapping) else None
    return completion_limit(sent) or completion_limit(config.get("generation_kwargs"))


def _think_end_token(config: Mapping[str, Any]) -> str | None:
    metadata = config.get("metadata")
    token = metadata.get("think_end_token") if isinstance(metadata, Mapping) else None
    return token if isinstance(token, str) else None
