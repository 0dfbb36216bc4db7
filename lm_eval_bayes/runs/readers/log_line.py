"""One line of a samples file: a question with what is logged of its trials."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from lm_eval_bayes.errors import InvalidInputError, Rule
from lm_eval_bayes.runs.log_fields import (
    document_hash,
    generated_texts,
    prompt_and_settings,
    prompt_hash,
    question_text,
)
from lm_eval_bayes.runs.logged_texts import LoggedTexts
from lm_eval_bayes.runs.readers.trial_texts import place
from lm_eval_bayes.runs.trials import Question, Trials, floats


@dataclass(frozen=True)
class LogLine:
    """One line of a samples file.

    Attributes
    ----------
    row : mapping
        Its content.
    file : Path
        The samples file.
    record : int
        The number of the line among the objects of the file.
    argument : str
        The name of the argument in an error.
    cluster : str or None
        The cluster of the question; None where it is not known.
    """

    row: Mapping[str, Any]
    file: Path
    record: int
    argument: str
    cluster: str | None = None

    @cached_property
    def doc_id(self) -> int:
        """The number of the question."""
        doc_id = self.row.get("doc_id")
        if type(doc_id) is not int:
            rule = f"number its questions (`doc_id` in every line of {self.file})"
            raise InvalidInputError.of(self.argument, "missing", rule, doc_id)
        return doc_id

    @property
    def settings(self) -> Mapping[str, Any] | None:
        """The generation settings that were sent; None where nothing was generated."""
        return prompt_and_settings(self.row)[1]

    @property
    def texts(self) -> list[str] | None:
        """The texts that were generated."""
        return generated_texts(self.row)

    def column(self, name: str, values: object, n: int | None = None) -> list[Any]:
        """Return a list that holds a value per trial, of which there are n, or one per text."""
        n = n if self.texts is None else len(self.texts) if n is None else n
        if not isinstance(values, list) or n not in (None, len(values)):
            got = f"{len(values)}" if isinstance(values, list) else "no list"
            raise self.broken(f"{got} in `{name}`" + ("" if n is None else f" of {n:,} trials"))
        return values

    def recorded(self, n: int) -> dict[str, list[Any]]:
        """Return what a model recorded of n trials, by name."""
        signals = self.row.get("signals") or {}
        if not isinstance(signals, Mapping):
            raise self.broken("`signals` holds no lists")
        return {name: self.column(name, values, n) for name, values in signals.items()}

    def question(
        self, categories: Sequence[int], counts: tuple[int, ...] | None = None, **columns: Any
    ) -> tuple[Question, Trials]:
        """Return the question, identified by its document, with its trials or counts of them."""
        prompt, _ = prompt_and_settings(self.row)
        question = Question(
            id=document_hash(self.row),
            text=question_text(self.row, prompt),
            prompt=prompt_hash(self.row, prompt),
            doc_id=self.doc_id,
            cluster=self.cluster,
            counts=counts,
        )
        n, texts = len(categories), self.texts or ()
        recorded = self.recorded(n)
        numbers: Sequence[int] | None = recorded.pop("trial", None)
        if not all(type(number) is int and 0 <= number < 2**62 for number in numbers or ()):
            numbers = None
        if "seed" in recorded:
            columns["seeds"] = [s if type(s) is int else None for s in recorded.pop("seed")]
        if len(texts) == n:
            columns["digest"] = np.array([hash(text) for text in texts], dtype=np.int64)
            columns["logged"] = LoggedTexts.at([place(self.record, i) for i in range(n)])
        elif n == 1:
            columns["digest"] = np.array([hash(repr(self.row.get("resps")))], dtype=np.int64)
        measured = {name: floats(values) for name, values in recorded.items()}
        columns["measured"] = {name: c for name, c in measured.items() if c is not None}
        return question, Trials.of_question(categories, numbers, **columns)

    def broken(self, reason: str, rule_id: Rule = "damaged") -> InvalidInputError:
        """Return the error of a line."""
        rule = f"log one outcome, text and signal per trial ({self.file})"
        got = f"question {self.doc_id}: {reason}"
        return InvalidInputError.of(self.argument, rule_id, rule, got)


def is_right_or_wrong(weights: Sequence[float]) -> bool:
    """Return whether category 1 means right and 0 wrong.

    Examples
    --------
    >>> is_right_or_wrong((0.0, 1.0)), is_right_or_wrong((0.0, 0.5, 1.0))
    (True, False)
    """
    return len(weights) == 2 and weights[0] < weights[1]
