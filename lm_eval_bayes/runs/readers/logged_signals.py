"""The signals of a samples file: of its texts, its grades, the model and the verdicts."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from types import MappingProxyType
from typing import Any

import numpy as np

from lm_eval_bayes.errors import InvalidInputError
from lm_eval_bayes.rubric.signals import completion_limit, trial_signals
from lm_eval_bayes.runs.log_fields import right_answers
from lm_eval_bayes.runs.provenance import LoggedTask
from lm_eval_bayes.runs.readers.log_line import LogLine, is_right_or_wrong
from lm_eval_bayes.runs.readers.protocol import Query
from lm_eval_bayes.runs.trials import floats
from lm_eval_bayes.runs.verdicts import case_hash, read_verdicts, verdicts_path, verifier_inputs
from lm_eval_bayes.stats import FloatArray

#: By a label of a verdicts file, the signal that is its probability.
VERDICTS = MappingProxyType({"a": "verifier_a", "b": "verifier_b", "c": "verifier_c"})

#: What a rubric task of this package logs of every trial, besides what a model recorded.
_LOGGED = frozenset({"outcome", "has_box", "text_loop"})


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
    verifiers : tuple of mapping
        The verifier that has judged this file, if one has.

    Raises
    ------
    VerdictsError
        If the file of verdicts cannot be read.
    """

    def __init__(self, task: LoggedTask, query: Query) -> None:
        self.task = task
        self.error: InvalidInputError | None = None
        path = verdicts_path(task.samples)
        self.verdicts = read_verdicts(path) if query.verdicts and path.is_file() else None
        self.verifiers: tuple[Mapping[str, Any], ...] = ()
        if self.verdicts is not None:
            header = self.verdicts.header
            self.verifiers = (header.verifier,)
            if header.samples != task.samples.name:
                rule, got = f"have verdicts on {task.samples} in {path}", header.samples
                self.error = InvalidInputError.of("RUN", "missing", rule, got)

    def signals(self, line: LogLine) -> dict[str, FloatArray]:
        """Return the signals of one question.

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
            columns = {**self._columns(line), **self._verdict_columns(line)}
        except InvalidInputError as error:
            self.error = error
            return {}
        arrays = {name: floats(values) for name, values in columns.items()}
        return {name: array for name, array in arrays.items() if array is not None}

    def _columns(self, line: LogLine) -> Mapping[str, Sequence[Any]]:
        texts, grades = line.texts, line.row["outcomes"]
        if texts is None:
            raise line.broken("`resps` holds no list of texts", "mismatch")
        # verdicts count only from their own file, which holds the hashes of the texts
        logged = line.recorded(len(grades)).items()
        recorded = {name: values for name, values in logged if name not in VERDICTS.values()}
        if recorded.keys() >= _LOGGED:
            # a rubric task computed them already, from the texts before they were cut off
            return recorded
        outcomes: list[Any] = [np.nan if grade is None else grade for grade in grades]
        token, sent = self.task.metadata.get("think_end_token"), self.task.config
        limit = completion_limit(line.sent[1]) or completion_limit(sent.get("generation_kwargs"))
        more: dict[str, Any] = {"think_end_token": token if isinstance(token, str) else None}
        more |= {"binary": is_right_or_wrong(self.task.weights), "max_gen_toks": limit}
        try:
            return trial_signals(texts, outcomes, recorded, **more)
        except (InvalidInputError, TypeError, ValueError) as error:
            raise line.broken(str(error), "mismatch") from None

    def _verdict_columns(self, line: LogLine) -> dict[str, Sequence[Any]]:
        if self.verdicts is None:
            return {}
        where, right = f"question {line.doc_id} of {line.file.name}", right_answers(line.row)
        cases = verifier_inputs(line.question_text, right, line.texts, where)
        verdict_of = partial(self.verdicts.verdict_of, line.doc_id)
        verdicts = [verdict_of(trial, case_hash(case)) for trial, case in enumerate(cases)]
        return {n: [v and getattr(v, label) for v in verdicts] for label, n in VERDICTS.items()}
