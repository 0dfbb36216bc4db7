"""What a verifier said of the trials of a run: a file beside the run's samples.

One line says who judged and how, then every trial has a line with the calibrated probabilities
of A (correct), B (incorrect) and C (invalid). Lines are only ever added; where a trial has
several, the last one counts.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass
from os import PathLike
from pathlib import Path
from types import MappingProxyType
from typing import Any

from lm_eval_bayes._util.hashing import canonical_json, hash_json
from lm_eval_bayes.rubric.verifier import VerifierInput
from lm_eval_bayes.store.errors import StoreError, StoreFileError

FORMAT = "lm-eval-bayes-verdicts"
VERSION = 1

#: The probabilities of a trial add up to 1 but for this, after their way through JSON.
_ROUNDING = 1e-6


class VerdictsError(StoreError, ValueError):
    """A file of verdicts is broken, is none, or is not what it is taken for."""


class OtherVerifierError(VerdictsError):
    """A file of verdicts holds those of another verifier."""


class ChangedTrialError(VerdictsError):
    """A trial is not the one that was judged."""


@dataclass(frozen=True)
class TrialVerdict:
    """What was said of one trial.

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
        """Return plain JSON types, without what is not known."""
        fields = dict(vars(self))
        if self.scores is not None:
            fields["scores"] = list(self.scores)
        return {name: value for name, value in fields.items() if value is not None}


@dataclass(frozen=True)
class VerdictsHeader:
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
        return {
            "format": FORMAT,
            "version": VERSION,
            "samples": self.samples,
            "verifier": dict(self.verifier),
            "baseline": list(self.baseline),
        }


@dataclass(frozen=True)
class Verdicts:
    """A file of verdicts, read.

    Attributes
    ----------
    path : Path
        The file.
    header : VerdictsHeader
        Its first line.
    trials : mapping of (doc_id, trial) to TrialVerdict
        The last line of every trial.
    size : int
        Its bytes up to the end of the last whole line.
    """

    path: Path
    header: VerdictsHeader
    trials: Mapping[tuple[int, int], TrialVerdict]
    size: int

    def said_of(self, doc_id: int, trial: int, text: str) -> TrialVerdict | None:
        """Return what was said of a trial, see :func:`said_of`."""
        return said_of(self.path, self.trials, doc_id, trial, text)

    def check_verifier(self, samples: str, verifier: Mapping[str, Any]) -> None:
        """Refuse to go on with another verifier, or for other samples.

        Raises
        ------
        OtherVerifierError
            Naming what differs.
        """
        way = (
            "judge anew with --restart, which keeps these as .before, or write elsewhere with "
            "--out (rubrics only read what is beside the samples)"
        )
        if self.header.samples != samples:
            raise OtherVerifierError(
                f"{self.path} holds the verdicts on {self.header.samples}, not on {samples}; {way}"
            )
        mine, theirs = dict(verifier), dict(self.header.verifier)
        differ = [
            f"{name} {_shown(theirs.get(name))}, now {_shown(mine.get(name))}"
            for name in dict.fromkeys([*theirs, *mine])
            if canonical_json(theirs.get(name)) != canonical_json(mine.get(name))
        ]
        if differ:
            raise OtherVerifierError(
                f"{self.path} holds the verdicts of another verifier ({'; '.join(differ)}); {way}"
            )


def said_of(
    path: Path,
    trials: Mapping[tuple[int, int], TrialVerdict],
    doc_id: int,
    trial: int,
    text: str,
) -> TrialVerdict | None:
    """Return the verdict on a trial; None where there is none, or it could not be judged.

    Raises
    ------
    ChangedTrialError
        If something else was judged under this number.
    """
    found = trials.get((doc_id, trial))
    if found is None:
        return None
    if found.text != text:
        raise ChangedTrialError(
            f"{path} holds a verdict on another text of trial {trial} of question {doc_id} (or on "
            "another question or standard answer); judge anew with --restart"
        )
    return None if found.error is not None else found


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
    try:
        raw = path.read_bytes()
    except OSError as error:
        raise StoreFileError(f"{path} cannot be read: {error.strerror}") from error
    lines = raw.split(b"\n")
    size = len(raw) - len(lines.pop())  # what follows the last line's end is nothing, or torn
    if not lines:
        raise VerdictsError(f"{path} is no file of verdicts: it has no whole line")
    header = _header(path, lines[0])
    trials: dict[tuple[int, int], TrialVerdict] = {}
    for number, line in enumerate(lines[1:], 2):
        try:
            verdict = _trial(json.loads(line))
        except (ValueError, TypeError, KeyError, RecursionError) as error:
            raise VerdictsError(f"{path} is broken at line {number}: {error}") from error
        if trials.setdefault(verdict.key, verdict) != verdict and trials[verdict.key].error is None:
            where = f"trial {verdict.trial} of question {verdict.doc_id}"
            raise VerdictsError(f"{path} is broken at line {number}: {where} has other verdicts")
        trials[verdict.key] = verdict
    return Verdicts(path, header, MappingProxyType(trials), size)


def _header(path: Path, line: bytes) -> VerdictsHeader:
    try:
        found = json.loads(line)
        name, version = found["format"], found["version"]
    except (ValueError, TypeError, KeyError, RecursionError):
        name, version = None, None
    if name != FORMAT:
        raise VerdictsError(f"{path} is no file of verdicts: its first line says nothing of them")
    if version != VERSION:
        raise VerdictsError(
            f"{path} has version {_shown(version)} of the format, this release reads {VERSION}"
        )
    try:
        samples, verifier = found["samples"], found["verifier"]
        if not isinstance(samples, str) or not isinstance(verifier, dict):
            raise TypeError("samples or verifier is missing")
        return VerdictsHeader(samples, MappingProxyType(verifier), _three(found["baseline"]))
    except (ValueError, TypeError, KeyError) as error:
        raise VerdictsError(f"{path} is broken at line 1: {error}") from error


def _trial(found: Any) -> TrialVerdict:
    doc_id, trial, text = found["doc_id"], found["trial"], found["text"]
    if any(not isinstance(n, int) or isinstance(n, bool) or n < 0 for n in (doc_id, trial)):
        raise ValueError(f"question and trial are whole numbers from 0; got {doc_id}, {trial}")
    if not isinstance(text, str):
        raise TypeError("text is no hash")
    if "error" in found:
        return TrialVerdict(doc_id, trial, text, error=str(found["error"]))
    a, b, c = _three([found[label] for label in "abc"])
    if min(a, b, c) < 0 or abs(a + b + c - 1) > _ROUNDING:
        raise ValueError(f"probabilities are in [0, 1] and add up to 1; got {a}, {b}, {c}")
    scores = _three(found["scores"]) if "scores" in found else None
    return TrialVerdict(doc_id, trial, text, a, b, c, scores)


def _three(values: Any) -> tuple[float, float, float]:
    a, b, c = (float(value) for value in values)
    if not all(map(math.isfinite, (a, b, c))):
        raise ValueError(f"three finite numbers are needed; got {values}")
    return a, b, c


def _shown(value: Any) -> str:
    text = json.dumps(value) if not isinstance(value, str) else value
    return text if len(text) <= 80 else text[:77] + "..."
