"""One line of a samples file: a question with its trials, and the signals of these."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from pathlib import Path
from types import MappingProxyType
from typing import Any

import numpy as np

from lm_eval_bayes._util.hashing import sha256_text
from lm_eval_bayes.errors import InvalidInputError, Rule
from lm_eval_bayes.rubric.signals import completion_limit, trial_signals
from lm_eval_bayes.runs.log_fields import generated_texts, lookup, right_answers
from lm_eval_bayes.runs.logged_texts import LoggedTexts
from lm_eval_bayes.runs.provenance import LoggedTask
from lm_eval_bayes.runs.readers.protocol import Query
from lm_eval_bayes.runs.readers.trial_texts import place_of
from lm_eval_bayes.runs.trials import SEVERAL, Part, Question, Trials, endings, floats, objects
from lm_eval_bayes.runs.verdicts import case_hash, read_verdicts, verdicts_path, verifier_inputs
from lm_eval_bayes.stats import FloatArray, IntArray

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
        setting = row.get("setting")
        if isinstance(setting, list) and len(texts) == n:
            setting = self.column("setting", setting, n)
        labels = [setting] * n if isinstance(setting, str) else setting
        if isinstance(labels, list) and len(labels) == n:
            labels = [None if label is None else str(label) for label in labels]
            columns["setting"] = objects(labels)
            if row.get("n_prompts", len({*labels})) > 1:
                prompt_hash = SEVERAL
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
