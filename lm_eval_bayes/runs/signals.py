"""The signals of logged trials: computed from texts and grades, recorded, or a verifier's."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType
from typing import Any

import numpy as np

from lm_eval_bayes.errors import InvalidInputError
from lm_eval_bayes.rubric.trial_signals import completion_limit, trial_signals
from lm_eval_bayes.rubric.verifier_prompt import THINK_END
from lm_eval_bayes.runs.partial_run import floats
from lm_eval_bayes.runs.verdicts import TrialVerdict, Verdicts, read_verdicts, verdicts_path
from lm_eval_bayes.runs.verifier_inputs import verifier_inputs
from lm_eval_bayes.stats.validation import FloatArray

#: By a label of a verdicts file, the signal that is its probability.
VERDICTS = MappingProxyType({"a": "verifier_a", "b": "verifier_b", "c": "verifier_c"})

#: What a rubric task of this package logs of every trial, besides what a model recorded.
_LOGGED = frozenset({"outcome", "has_box", "text_loop"})


@dataclass
class SignalReader:
    """Reads the signals of a samples file, line by line.

    The texts give has_box and text_loop, the grades is_correct, the log of a recording model the
    rest. Verdicts are those of the `verdicts_*.jsonl` beside the samples: they belong to the
    responses of this file by their index, and to texts by their hash.

    Attributes
    ----------
    samples : Path
        The samples file.
    config : mapping
        The configuration of the task.
    weights : sequence of float
        The score of each category.
    argument : str
        What to call the run in an error.
    use_verdicts : bool
        Whether the verdicts of a verifier are read.
    error : InvalidInputError or None
        Why the signals of this file cannot be read; nothing more is read then.
    verdicts : Verdicts or None
        The verdicts on this file.

    Raises
    ------
    VerdictsError
        If the file of verdicts cannot be read.
    """

    samples: Path
    config: Mapping[str, Any]
    weights: Sequence[float]
    argument: str
    use_verdicts: bool = True
    error: InvalidInputError | None = field(default=None, init=False)
    verdicts: Verdicts | None = field(default=None, init=False)

    def __post_init__(self) -> None:
        path = verdicts_path(self.samples)
        if not self.use_verdicts or not path.is_file():
            return
        self.verdicts = read_verdicts(path)
        judged = self.verdicts.header.samples
        if judged != self.samples.name:
            rule = f"have verdicts on {self.samples} in {path}"
            self.error = InvalidInputError.of(self.argument, rule, f"verdicts on {judged}")

    @property
    def verifiers(self) -> tuple[Mapping[str, Any], ...]:
        """The verifier that has judged this file, if one has."""
        return () if self.verdicts is None else (self.verdicts.header.verifier,)

    def signals(self, row: Mapping[str, Any]) -> dict[str, FloatArray]:
        """Return the signals of one question.

        Parameters
        ----------
        row : mapping
            A line of the samples file.

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
            columns = self._columns(row) | self._verdict_columns(row)
        except InvalidInputError as error:
            self.error = error
            return {}
        arrays = {name: floats(values) for name, values in columns.items()}
        return {name: array for name, array in arrays.items() if array is not None}

    def _columns(self, row: Mapping[str, Any]) -> dict[str, Sequence[Any]]:
        responses = row.get("resps")
        texts = responses[0] if isinstance(responses, list) and responses else None
        if not isinstance(texts, list) or not all(isinstance(text, str) for text in texts):
            raise self._broken(row, "`resps` holds no list of texts")
        recorded = row.get("signals") or {}
        if not isinstance(recorded, Mapping) or not all(
            isinstance(values, list) for values in recorded.values()
        ):
            raise self._broken(row, "`signals` holds no lists")
        # verdicts count only from their own file, which holds the hashes of the texts
        recorded = {name: v for name, v in recorded.items() if name not in VERDICTS.values()}
        if recorded.keys() >= _LOGGED:
            # a rubric task computed them already, from the texts before they were cut off
            for name, values in recorded.items():
                if len(values) != len(texts):
                    raise self._broken(row, f"{name} has {len(values)} values")
            return recorded
        metadata = self.config.get("metadata")
        token = metadata.get("think_end_token") if isinstance(metadata, Mapping) else None
        grades: list[Any] = [np.nan if grade is None else grade for grade in row["outcomes"]]
        try:
            computed = trial_signals(
                texts,
                grades,
                recorded,
                binary=is_right_or_wrong(self.weights),
                max_gen_toks=_sent_limit(row)
                or completion_limit(self.config.get("generation_kwargs")),
                think_end_token=token if isinstance(token, str) else None,
            )
        except (InvalidInputError, TypeError, ValueError) as error:
            raise self._broken(row, str(error)) from None
        return dict(computed)

    def _verdict_columns(self, row: Mapping[str, Any]) -> dict[str, Sequence[Any]]:
        if self.verdicts is None:
            return {}
        think_end = str(self.verdicts.header.verifier.get("think_end", THINK_END))
        found: list[TrialVerdict | None] = [
            self.verdicts.verdict_of(trial.doc_id, trial.trial, trial.text)
            for trial in verifier_inputs(row, self.samples.name, think_end)
        ]
        return {
            name: [None if verdict is None else getattr(verdict, label) for verdict in found]
            for label, name in VERDICTS.items()
        }

    def _broken(self, row: Mapping[str, Any], why: str) -> InvalidInputError:
        rule = f"have one text, grade and signal per trial ({self.samples})"
        return InvalidInputError.of(self.argument, rule, f"question {row['doc_id']}: {why}")


def is_right_or_wrong(weights: Sequence[float]) -> bool:
    """Return whether category 1 means right and 0 wrong.

    Examples
    --------
    >>> is_right_or_wrong((0.0, 1.0)), is_right_or_wrong((0.0, 0.5, 1.0))
    (True, False)
    """
    return len(weights) == 2 and weights[0] < weights[1]


def _sent_limit(row: Mapping[str, Any]) -> int | None:
    arguments = row.get("arguments")
    first = arguments.get("gen_args_0") if isinstance(arguments, Mapping) else None
    return completion_limit(first.get("arg_1")) if isinstance(first, Mapping) else None
