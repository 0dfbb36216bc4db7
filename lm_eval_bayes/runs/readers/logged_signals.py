"""The signals of a samples file: of its texts, its grades, the model and the verdicts."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Any

import numpy as np

from lm_eval_bayes.errors import InvalidInputError
from lm_eval_bayes.rubric.signals import completion_limit, trial_signals
from lm_eval_bayes.rubric.verifier_prompt import VerifierInput
from lm_eval_bayes.runs.log_fields import generated_texts, question_text, right_answers
from lm_eval_bayes.runs.provenance import LoggedTask, mapping
from lm_eval_bayes.runs.readers.log_line import LogLine, is_right_or_wrong
from lm_eval_bayes.runs.readers.protocol import Query
from lm_eval_bayes.runs.trials import floats
from lm_eval_bayes.runs.verdicts import (
    Verdicts,
    case_hash,
    read_verdicts,
    verdicts_path,
    verifier_inputs,
)
from lm_eval_bayes.stats import FloatArray

#: By a label of a verdicts file, the signal that is its probability.
VERDICTS = MappingProxyType({"a": "verifier_a", "b": "verifier_b", "c": "verifier_c"})

#: What a rubric task of this package logs of every trial, besides what a model recorded.
_LOGGED = frozenset({"outcome", "has_box", "text_loop"})


def _cases(line: LogLine) -> list[VerifierInput]:
    question, right = question_text(line.row, line.prompt), right_answers(line.row)
    where = f"question {line.doc_id} of {line.file_name}"
    return verifier_inputs(question, right, generated_texts(line.row), where)


class SignalReader:
    """Reads the signals of a samples file, line by line.

    The texts give has_box and text_loop, the grades is_correct, the log of a recording model the
    rest. Verdicts are those of the `verdicts_*.jsonl` beside the samples: they belong to the
    responses of this file by their index, and to texts by their hash.

    Parameters
    ----------
    task : LoggedTask
        The task of the file.
    query : Query
        What is read.

    Attributes
    ----------
    error : InvalidInputError or None
        Why the signals of this file cannot be read; nothing more is read then.
    verdicts : Verdicts or None
        The verdicts on this file.

    Raises
    ------
    VerdictsError
        If the file of verdicts cannot be read.
    """

    def __init__(self, task: LoggedTask, query: Query) -> None:
        self.task, self.argument = task, query.argument
        self.error: InvalidInputError | None = None
        self.verdicts: Verdicts | None = None
        path = verdicts_path(task.samples)
        if query.verdicts and path.is_file():
            self.verdicts = read_verdicts(path)
            judged = self.verdicts.header.samples
            if judged != task.samples.name:
                rule = f"have verdicts on {task.samples} in {path}"
                self.error = InvalidInputError.of(
                    self.argument, "missing", rule, f"verdicts on {judged}"
                )

    @property
    def verifiers(self) -> tuple[Mapping[str, Any], ...]:
        """The verifier that has judged this file, if one has."""
        return () if self.verdicts is None else (self.verdicts.header.verifier,)

    def signals(
        self, line: LogLine, recorded: Mapping[str, Sequence[Any]]
    ) -> dict[str, FloatArray]:
        """Return the signals of one question.

        Parameters
        ----------
        line : LogLine
            The line of the question.
        recorded : mapping of str to sequence, length N
            What a model recorded of every trial.

        Returns
        -------
        dict of str to array, shape (N,)
            By name; NaN where a trial lacks a signal. Empty once there was an error.

        Raises
        ------
        ChangedTrialError
            If a verdict is on another text than the one that is logged.
        """
        if self.error is not None:
            return {}
        try:
            columns = self._columns(line, recorded) | self._verdict_columns(line)
        except InvalidInputError as error:
            self.error = error
            return {}
        arrays = {name: floats(values) for name, values in columns.items()}
        return {name: array for name, array in arrays.items() if array is not None}

    def _columns(
        self, line: LogLine, recorded: Mapping[str, Sequence[Any]]
    ) -> dict[str, Sequence[Any]]:
        texts, grades = generated_texts(line.row), line.row["outcomes"]
        if texts is None:
            raise self._broken(line, "`resps` holds no list of texts")
        # verdicts count only from their own file, which holds the hashes of the texts
        recorded = {name: v for name, v in recorded.items() if name not in VERDICTS.values()}
        if recorded.keys() >= _LOGGED:
            # a rubric task computed them already, from the texts before they were cut off
            if len(texts) != len(grades):
                raise self._broken(line, f"{len(grades)} trials and {len(texts)} texts")
            return recorded
        outcomes: list[Any] = [np.nan if grade is None else grade for grade in grades]
        config = self.task.config
        token = mapping(config.get("metadata")).get("think_end_token")
        try:
            computed = trial_signals(
                texts,
                outcomes,
                recorded,
                binary=is_right_or_wrong(self.task.weights),
                max_gen_toks=completion_limit(line.settings)
                or completion_limit(config.get("generation_kwargs")),
                think_end_token=token if isinstance(token, str) else None,
            )
        except (InvalidInputError, TypeError, ValueError) as error:
            raise self._broken(line, str(error)) from None
        return dict(computed)

    def _verdict_columns(self, line: LogLine) -> dict[str, Sequence[Any]]:
        if self.verdicts is None:
            return {}
        verdicts = [
            self.verdicts.verdict_of(line.doc_id, trial, case_hash(case))
            for trial, case in enumerate(_cases(line))
        ]
        return {
            name: [None if verdict is None else getattr(verdict, label) for verdict in verdicts]
            for label, name in VERDICTS.items()
        }

    def _broken(self, line: LogLine, reason: str) -> InvalidInputError:
        rule = f"have one text, grade and signal per trial ({self.task.samples})"
        return InvalidInputError.of(
            self.argument, "mismatch", rule, f"question {line.doc_id}: {reason}"
        )
