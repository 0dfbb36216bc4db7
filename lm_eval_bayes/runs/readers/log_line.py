"""One line of a samples file: a question with what is logged of its trials."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from types import MappingProxyType
from typing import Any

import numpy as np

from lm_eval_bayes._util.hashing import sha256_text
from lm_eval_bayes.errors import InvalidInputError, Rule
from lm_eval_bayes.runs.log_fields import generated_texts, lookup
from lm_eval_bayes.runs.logged_texts import LoggedTexts
from lm_eval_bayes.runs.readers.trial_texts import place_of
from lm_eval_bayes.runs.trials import Part, Question, Trials, endings, floats
from lm_eval_bayes.stats import IntArray

#: Fields of a document that hold the text of the question.
_QUESTION = ("problem", "question", "Question", "query", "goal", "sentence")


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
    cluster : str or None
        The cluster of the question; None where it is not known.
    """

    row: Mapping[str, Any]
    file: Path
    record: int
    cluster: str | None = None

    @cached_property
    def doc_id(self) -> int:
        """The number of the question."""
        doc_id = self.row.get("doc_id")
        if type(doc_id) is not int:
            rule = f"number its questions (`doc_id` in every line of {self.file})"
            raise InvalidInputError.of("RUN", "missing", rule, doc_id)
        return doc_id

    @cached_property
    def sent(self) -> tuple[str, Mapping[str, Any] | None]:
        """The prompt, and the generation settings; None where nothing was generated.

        Examples
        --------
        >>> named = {"arguments": {"gen_args_0": {"arg_0": "1+1=", "arg_1": {"until": []}}}}
        >>> LogLine(named, Path("samples.jsonl"), 0, "RUN").sent
        ('1+1=', {'until': []})
        >>> pairs = {"arguments": [["1+1=", " 2"], ["1+1=", " 3"]]}
        >>> LogLine(pairs, Path("samples.jsonl"), 0, "RUN").sent
        ('1+1=', None)
        """
        given = self.row.get("arguments")
        if isinstance(given, Mapping):
            given = [[lookup(given, "gen_args_0", key) for key in ("arg_0", "arg_1")]]
        first = given[0] if isinstance(given, list) and given else None
        prompt, settings = [*(first if isinstance(first, list) else ()), None, None][:2]
        prompt = prompt if isinstance(prompt, str) else ""
        return prompt, settings if isinstance(settings, Mapping) else None

    @property
    def generated(self) -> bool:
        """Whether texts were generated, and not likelihoods computed."""
        return self.sent[1] is not None

    @property
    def question_text(self) -> str:
        """The text of the question; of a document without one the prompt."""
        doc = self.row.get("doc")
        texts = (text for name in _QUESTION if isinstance(text := lookup(doc, name), str))
        return next((text.strip() for text in texts if text.strip()), self.sent[0].strip())

    @cached_property
    def texts(self) -> list[str] | None:
        """The texts that were generated; None where there are none."""
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
        self,
        categories: Sequence[int] | IntArray,
        recorded: Mapping[str, Sequence[Any]] = MappingProxyType({}),
        **columns: Any,
    ) -> Part:
        """Return the question, identified by its document, with its trials.

        The hash of a document is that of the harness, which older ones do not log.
        """
        row, prompt = self.row, self.sent[0]
        id, prompt_hash = row.get("doc_hash"), row.get("prompt_hash")
        if not isinstance(id, str) or not id:
            id = sha256_text(json.dumps(row.get("doc"), indent=2, ensure_ascii=False))
        if not isinstance(prompt_hash, str):
            prompt_hash = sha256_text(prompt) if prompt else ""
        n, texts, numbers = len(categories), self.texts or (), recorded.get("trial")
        if not all(type(number) is int and 0 <= number < 2**62 for number in numbers or ()):
            numbers = None
        if "seed" in recorded:
            columns["seeds"] = [s if type(s) is int else None for s in recorded["seed"]]
        measured = {k: floats(v) for k, v in recorded.items() if k not in ("trial", "seed")}
        columns["measured"] = {name: c for name, c in measured.items() if c is not None}
        if len(texts) == n:
            columns["digest"] = np.array([hash(text) for text in texts], dtype=np.int64)
            columns["logged"] = LoggedTexts.at([place_of(self.record, i) for i in range(n)])
            columns["measured"] |= endings(texts, recorded.get("finish_reason", ()))
        elif n == 1:
            columns["digest"] = np.array([hash(repr(row.get("resps")))], dtype=np.int64)
        question = Question(id, self.question_text, prompt_hash, self.doc_id, self.cluster)
        return question, Trials.of_question(categories, numbers, **columns)

    def broken(self, reason: str, rule_id: Rule = "damaged") -> InvalidInputError:
        """Return the error of a line."""
        rule = f"log one outcome, text and signal per trial ({self.file})"
        got = f"question {self.doc_id}: {reason}"
        return InvalidInputError.of("RUN", rule_id, rule, got)


def is_right_or_wrong(weights: Sequence[float]) -> bool:
    """Return whether category 1 means right and 0 wrong.

    Examples
    --------
    >>> is_right_or_wrong((0.0, 1.0)), is_right_or_wrong((0.0, 0.5, 1.0))
    (True, False)
    """
    return len(weights) == 2 and weights[0] < weights[1]
