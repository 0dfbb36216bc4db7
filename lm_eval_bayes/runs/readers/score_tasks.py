"""Samples of the harness's SCORE tasks, which ask every question in several ways.

A document is a question with one of the prompts, or with its right answer at one of the options,
and these are the settings. Its value of the metric `3_accuracy`, or `per_option_accuracy_C`, is a
list that holds the answer and the right one, in MATH whether they are equal; the consistency rate
is left out. A run of `non_greedy_accuracy` asks once with a seed: a trial, and no setting.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import reduce
from pathlib import Path
from string import ascii_uppercase
from typing import Any

from lm_eval_bayes._util.hashing import sha256_text
from lm_eval_bayes._util.text import plural
from lm_eval_bayes.errors import InvalidInputError
from lm_eval_bayes.runs.log_fields import lookup, mapping
from lm_eval_bayes.runs.logged_texts import TextLog
from lm_eval_bayes.runs.readers.log_line import LogLine
from lm_eval_bayes.runs.readers.logged_trials import metric_names
from lm_eval_bayes.runs.readers.protocol import NothingToCountError
from lm_eval_bayes.runs.trials import Part, PartialRun, Question, Trials, objects

#: The metric of a prompt, of a place of the right answer, or of a seed.
_METRIC = re.compile(
    r"(?:(\d{1,4})|non_greedy)_(?:macro_)?accuracy|per_option_(?:macro_)?accuracy_([A-Z])"
)


@dataclass(frozen=True)
class ScoreLine(LogLine):
    """A line of a question that was asked in one of several settings.

    Attributes
    ----------
    setting : str
        The label of the setting; "" where the question has no such option, and was asked as it is.
    number : int
        The number of the setting.
    """

    setting: str = ""
    number: int = 0

    def question(self, *arguments: Any, **columns: Any) -> Part:
        """Return the question, identified by its id and its text, with its trials in a setting."""
        question, trials = super().question(*arguments, **columns)
        named = [lookup(self.row, "doc", key) for key in ("question_id", "question")]
        n = trials.number.size
        setting = objects([self.setting] * n)
        trials = replace(trials, number=trials.number + self.number * n, setting=setting)
        return replace(question, id=sha256_text(json.dumps(named))), trials


def line_of(row: Mapping[str, Any], file: Path, record: int, cluster: str | None) -> LogLine:
    """Return a line of samples, with an accuracy of 0 or 1 where it is of a SCORE task.

    In MATH a line of a seed does not say whether its answer is right, and stays as it is.

    Raises
    ------
    InvalidInputError
        If the value of the metric is another one.

    Examples
    --------
    >>> doc = {"question_id": 7, "question": "1+1?", "options": ["2", "3"]}
    >>> row = {"doc_id": 3, "doc": doc, "metrics": ["3_accuracy"], "3_accuracy": [7, 3, "A", "A"]}
    >>> line = line_of(row, Path("samples.jsonl"), 0, None)
    >>> line.setting, line.row["accuracy"]
    ('prompt 3', 1)
    """
    line, document = LogLine(row, file, record, cluster), mapping(row, "doc")
    options, matches = document.get("options"), map(_METRIC.fullmatch, metric_names(row))
    metric = next((match for match in matches if match and type(row[match[0]]) is list), None)
    if metric is None or "question_id" not in document:
        return line
    value, (prompt, letter) = row[metric[0]], metric.groups()
    n_options, is_varied = len(options) if isinstance(options, list) else 0, prompt or letter
    if not (is_varied or n_options):
        return line
    pair = (value[2:4] or [*value[1:2], 1]) if is_varied else value[1:3]
    if [*map(type, pair)] != [str, str] and pair not in ([0, 1], [1, 1]):
        raise line.broken(f"{metric[0]} = {value!r:.80}")
    plain = {**row, "metrics": ["accuracy"], "accuracy": int(pair[0] == pair[1])}
    if not is_varied:
        return replace(line, row=plain)
    number = int(prompt) if prompt else ascii_uppercase.index(letter)
    setting = f"prompt {prompt}" if prompt else f"answer at {letter}" if number < n_options else ""
    return ScoreLine(plain, file, record, cluster, setting, number)


def by_question(
    run: PartialRun, parts: Sequence[Part], texts: TextLog
) -> tuple[PartialRun, list[Part]]:
    """Return a run, and its questions with their trials in all settings.

    Parameters
    ----------
    run : PartialRun
        What is known of the run.
    parts : sequence of Part
        What the lines hold. A further line of a document, as of a log that was copied, is a part
        of a question's further occurrence.
    texts : TextLog
        Where the texts of the trials are.

    Raises
    ------
    NothingToCountError
        If no trial is left.
    InvalidInputError
        If two documents ask a question in one setting.
    """
    n_lines, groups = Counter[int | None](), dict[tuple[str, int], dict[str | None, Part]]()
    doc_ids, n_repeated = dict[str, int | None](), 0
    for question, trials in parts:
        label = None if trials.setting is None else next(iter(trials.setting), "")
        if label == "":
            n_repeated += trials.number.size
            continue
        n_lines[question.doc_id] += 1
        of_question = groups.setdefault((question.id, n_lines[question.doc_id]), {})
        if label in of_question:
            rule = f"ask every question once in a setting ({run.source})"
            raise InvalidInputError.of("RUN", "duplicate", rule, f"{label} in {question.doc_id}")
        doc_id = doc_ids.setdefault(question.id, question.doc_id)
        table = replace(trials, logged=trials.logged and replace(trials.logged, logs=(texts,)))
        of_question[label] = replace(question, doc_id=doc_id, prompt=""), table
    if not groups:
        raise NothingToCountError.of("RUN", "empty", f"hold a trial ({run.source})", "none")
    columns = (zip(*of_question.values(), strict=True) for of_question in groups.values())
    joined = [(reduce(Question.joined, several), Trials.joined(t)) for several, t in columns]
    again = f"{plural(n_repeated, 'trial')} with the right answer at an option that the question "
    again += "has not, which repeat its own order, left out"
    notes = (*run.notes, *([again] if n_repeated else ()))
    # the harness counts documents
    provenance = replace(run.provenance, n_questions=None)
    return replace(run, provenance=provenance, notes=notes), joined
