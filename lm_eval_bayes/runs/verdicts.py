"""The verdicts of a verifier on the trials of a run.

Verdicts are a file beside the samples file. The first line describes the verifier; every trial
then has a line with the calibrated probabilities of A (correct), B (incorrect) and C (invalid).
Lines are only added; where a trial has several, the last one counts.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from os import PathLike
from pathlib import Path
from typing import Any

from lm_eval_bayes._util.hashing import hash_json
from lm_eval_bayes._util.plain import Record
from lm_eval_bayes.errors import InvalidInputError
from lm_eval_bayes.rubric.verifier_prompt import VerifierInput, after_reasoning
from lm_eval_bayes.store.errors import StoreError, StoreFileError

FORMAT, VERSION = "lm-eval-bayes-verdicts", 1
#: What a verifier judges, for errors.
TEXTS = "the generated texts"

#: The probabilities of a trial add up to 1 but for this, after their way through JSON.
_ROUNDING = 1e-6


class VerdictsError(StoreError, ValueError):
    """A file of verdicts is broken, or is not the one that is needed."""


class ChangedTrialError(VerdictsError):
    """A trial is not the one that was judged."""


@dataclass(frozen=True)
class TrialVerdict(Record):
    """The verdict on one trial.

    Attributes
    ----------
    doc_id, trial : int
        The question's number in its task, and the trial's number, both from 0.
    text : str
        The hash of what was judged, see :func:`case_hash`.
    a, b, c : float or None
        Probabilities that the answer is correct, incorrect, invalid; None where it could not be
        judged.
    scores : tuple of float, or None
        The verifier's scores of the labels, before calibration.
    error : str or None
        Why it could not be judged.
    """

    doc_id: int
    trial: int
    text: str
    a: float | None = None
    b: float | None = None
    c: float | None = None
    scores: tuple[float, float, float] | None = None
    error: str | None = None

    @property
    def key(self) -> tuple[int, int]:
        """The question's number and the trial's."""
        return (self.doc_id, self.trial)

    def to_dict(self) -> dict[str, Any]:
        """Return plain JSON types, without fields that are None."""
        return {name: value for name, value in super().to_dict().items() if value is not None}


@dataclass(frozen=True)
class VerdictsHeader(Record):
    """Who judged, how, and what.

    Attributes
    ----------
    samples : str
        The name of the run's samples file.
    verifier : mapping
        All that the verdicts depend on.
    baseline : tuple of float
        The scores of the three labels without content.
    """

    samples: str
    verifier: Mapping[str, Any]
    baseline: tuple[float, float, float]

    def to_dict(self) -> dict[str, Any]:
        """Return plain JSON types."""
        return {"format": FORMAT, "version": VERSION, **super().to_dict()}


@dataclass
class Verdicts:
    """A file of verdicts, read.

    Attributes
    ----------
    path : Path
        The file.
    header : VerdictsHeader
        Its first line.
    trials : dict of (doc_id, trial) to TrialVerdict
        The last line of every trial.
    size : int
        Its bytes up to the end of the last whole line.
    """

    path: Path
    header: VerdictsHeader
    trials: dict[tuple[int, int], TrialVerdict]
    size: int

    def verdict_of(self, doc_id: int, trial: int, text: str) -> TrialVerdict | None:
        """Return the verdict on a trial; None where there is none, or it could not be judged.

        Raises
        ------
        ChangedTrialError
            If something else was judged under this number.
        """
        verdict = self.trials.get((doc_id, trial))
        if verdict is not None and verdict.text != text:
            sentence = f"{self.path} holds a verdict on another text of trial {trial} of question "
            sentence += f"{doc_id} (or on another question or answer); judge anew with --restart"
            raise ChangedTrialError(sentence, "mismatch", str(self.path), (doc_id, trial))
        return None if verdict is None or verdict.error is not None else verdict


def verdicts_path(samples: str | PathLike[str]) -> Path:
    """Return where the verdicts on a file of samples are kept.

    Examples
    --------
    >>> verdicts_path("run/samples_aime25_2026-01-31T10-00-00.5.jsonl").as_posix()
    'run/verdicts_aime25_2026-01-31T10-00-00.5.jsonl'
    """
    path = Path(samples)
    return path.with_name(f"verdicts_{path.name.removeprefix('samples_')}")


def case_hash(case: VerifierInput) -> str:
    """Hash what is judged: question, standard answer and the candidate's text, unshortened.

    Examples
    --------
    >>> first = VerifierInput("6*7?", "42", "It is 42.")
    >>> case_hash(first) == case_hash(VerifierInput("6*7?", "41", "It is 42."))
    False
    """
    return hash_json([case.question, case.gold, case.answer])


def lacking(what: str, where: str) -> InvalidInputError:
    """Return the error of a run that lacks what a verifier reads."""
    return InvalidInputError.of("RUN", "missing", f"hold {what} of every question", where)


def verifier_inputs(
    question: str, right_answers: Sequence[str], texts: Sequence[str] | None, where: str
) -> list[VerifierInput]:
    """Return the inputs of a verifier for some trials of a question.

    Parameters
    ----------
    question : str
        Its text.
    right_answers : sequence of str
        The right answers.
    texts : sequence of str or None
        What was generated.
    where : str
        The question, for errors.

    Raises
    ------
    InvalidInputError
        If there are no generated texts, no question or no standard answer.
    """
    gold = " or ".join(right_answers).strip()
    needed = {"the text": question, "the standard answer": gold, TEXTS: texts is not None}
    for what, value in needed.items():
        if not value:
            raise lacking(what, where)
    return [VerifierInput(question, gold, after_reasoning(text)) for text in texts or ()]


def read_verdicts(path: str | PathLike[str]) -> Verdicts:
    """Read a file of verdicts; a last line that was cut off by a kill does not count.

    Raises
    ------
    StoreFileError
        If it cannot be read.
    VerdictsError
        If it is no such file, or broken elsewhere than at its end.
    """
    path = Path(path)
    with file_errors(path, "read"):
        raw = path.read_bytes()
    *lines, torn = raw.split(b"\n")
    trials: dict[tuple[int, int], TrialVerdict] = {}
    number = 1
    try:
        header = _header(json.loads(lines[0]))
        for line in lines[1:]:
            number += 1
            verdict = _trial(json.loads(line))
            earlier = trials.get(verdict.key, verdict)
            if earlier.error is None and earlier != verdict:
                raise ValueError(f"trial {verdict.key} of question and number has other verdicts")
            trials[verdict.key] = verdict
    except (ValueError, TypeError, LookupError, RecursionError) as error:
        sentence = f"{path} is no file of verdicts, or is broken at line {number}: {error}"
        raise VerdictsError(sentence, "damaged", str(path), number) from error
    return Verdicts(path, header, trials, len(raw) - len(torn))


def _header(row: Any) -> VerdictsHeader:
    """Return the first line as a header that holds what it must."""
    if (row["format"], row["version"]) != (FORMAT, VERSION):
        raise ValueError(f"no header of version {VERSION}")
    if not isinstance(row["samples"], str) or not isinstance(row["verifier"], dict):
        raise TypeError("samples or verifier is missing")
    return VerdictsHeader(row["samples"], row["verifier"], _three(row["baseline"]))


def _trial(row: Any) -> TrialVerdict:
    """Return a line as a verdict that holds what it must."""
    verdict = TrialVerdict(**row)
    if not all(type(number) is int and number >= 0 for number in verdict.key):
        raise ValueError(f"question and trial are whole numbers from 0; got {verdict.key}")
    if not isinstance(verdict.text, str):
        raise TypeError("text is no hash")
    if verdict.error is not None:
        return verdict
    a, b, c = _three((verdict.a, verdict.b, verdict.c))
    if min(a, b, c) < 0 or abs(a + b + c - 1) > _ROUNDING:
        raise ValueError(f"probabilities are in [0, 1] and add up to 1; got {a}, {b}, {c}")
    scores = None if verdict.scores is None else _three(verdict.scores)
    return replace(verdict, a=a, b=b, c=c, scores=scores)


def _three(values: Any) -> tuple[float, float, float]:
    a, b, c = map(float, values)
    if not all(map(math.isfinite, (a, b, c))):
        raise ValueError(f"three finite numbers are needed; got {values}")
    return a, b, c


@contextmanager
def file_errors(path: Path, done: str) -> Iterator[None]:
    """Raise errors of the operating system as those of a file of verdicts."""
    try:
        yield
    except OSError as error:
        sentence = f"{path} cannot be {done}: {error.strerror}"
        raise StoreFileError(sentence, "path", str(path), error.strerror) from error
