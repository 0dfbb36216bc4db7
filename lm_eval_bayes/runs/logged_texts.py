"""Where the texts of trials are logged: they are read question by question, on demand."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple, Protocol

import numpy as np
import numpy.typing as npt

from lm_eval_bayes._util.compressed import UNREADABLE, open_bytes
from lm_eval_bayes.errors import InvalidInputError
from lm_eval_bayes.store.trial import TrialId, TrialKey


class LoggedLine(NamedTuple):
    """One line of a samples file.

    Attributes
    ----------
    file : str
        The path of the file.
    offset : int
        The byte at which the line begins.
    doc_id : int
        The number of the question that the line is about.
    """

    file: str
    offset: int
    doc_id: int


class StoredTrials(NamedTuple):
    """The trials of one question in a store.

    Attributes
    ----------
    file : str
        The path of the store.
    key : TrialKey
        The hashes of model, prompt and sampling.
    numbers : tuple of int
        The numbers of the trials.
    doc_id : int
        The number of the question in its task.
    """

    file: str
    key: TrialKey
    numbers: tuple[int, ...]
    doc_id: int


class TrialText(NamedTuple):
    """What another tool's log holds of a trial.

    Attributes
    ----------
    text : str or None
        What the model wrote; of a conversation every message after the prompt. None where it is
        not logged.
    right_answers : tuple of str
        The right answers to the question; empty where none is logged.
    damaged : bool
        Whether the log holds something there that cannot be read.
    """

    text: str | None
    right_answers: tuple[str, ...] = ()
    damaged: bool = False


class TextLog(Protocol):
    """Another tool's log of texts, which are read on demand."""

    def read(self, places: Sequence[int]) -> list[TrialText]:
        """Return the texts at some places, which the reader of the format numbered.

        Raises
        ------
        InvalidInputError
            If the log is no longer what was read before.
        """


@dataclass(frozen=True, eq=False)
class ToolTrials:
    """The trials of one question in another tool's log.

    Attributes
    ----------
    log : TextLog
        The log.
    places : array of int, shape (N,)
        Where the text of every trial is.
    """

    log: TextLog
    places: npt.NDArray[np.int64]


#: Where texts are logged: a line of samples, trials of a store, or of another tool's log.
TextSource = LoggedLine | StoredTrials | ToolTrials


@dataclass(frozen=True, eq=False)
class LoggedTexts:
    """Where the texts of the trials of one question are logged.

    Attributes
    ----------
    lines : tuple of LoggedLine, StoredTrials or ToolTrials
        The lines, or the trials of a store or of another tool's log, that hold them.
    index : array of int, shape (N, 2)
        For every trial the index of its line in `lines`, and of its text among the responses in
        that line; -1 for a trial of which no text is logged.
    """

    lines: tuple[TextSource, ...]
    index: npt.NDArray[np.int32]

    @classmethod
    def of_line(cls, line: TextSource, n_trials: int) -> LoggedTexts:
        """Return the texts of the trials that one line logs as its responses, in order."""
        index = np.zeros((n_trials, 2), dtype=np.int32)
        index[:, 1] = np.arange(n_trials)
        return cls((line,), index)

    @classmethod
    def none(cls, n_trials: int) -> LoggedTexts:
        """Return that no text of so many trials is logged."""
        return cls((), np.full((n_trials, 2), -1, dtype=np.int32))

    def __getitem__(self, trials: Any) -> LoggedTexts:
        """Return the texts of these trials: a slice, indices or a mask."""
        return LoggedTexts(self.lines, self.index[trials])

    @classmethod
    def joined(cls, parts: Sequence[LoggedTexts]) -> LoggedTexts:
        """Return the texts of all parts, one after the other."""
        first = np.cumsum([0, *(len(part.lines) for part in parts)])
        indices = [part.index.copy() for part in parts]
        for index, before in zip(indices, first.tolist(), strict=False):
            index[index[:, 0] >= 0, 0] += before
        lines = tuple(line for part in parts for line in part.lines)
        return cls(lines, np.concatenate(indices))

    def by_line(self) -> Iterator[tuple[TextSource, npt.NDArray[np.intp]]]:
        """Yield every line with the trials whose texts it holds, in the order of its responses."""
        for number in np.unique(self.index[self.index[:, 0] >= 0, 0]).tolist():
            trials = np.flatnonzero(self.index[:, 0] == number)
            yield self.lines[number], trials[np.argsort(self.index[trials, 1], kind="stable")]


def read_line(line: LoggedLine | StoredTrials) -> Mapping[str, Any]:
    """Read one line of a samples file, or the trials of a store as if they were one.

    Raises
    ------
    InvalidInputError
        If it is no longer the line that was read before.
    StoreError
        If the store cannot be read.
    """
    if isinstance(line, StoredTrials):
        return _read_stored(line)
    try:
        with open_bytes(Path(line.file)) as file:
            file.seek(line.offset)
            raw = file.readline()
            if not line.offset and raw.lstrip(b"\xef\xbb\xbf \t").startswith(b"["):
                rows = json.loads((raw + file.read()).decode("utf-8-sig"))
                raw = json.dumps(next(r for r in rows if r["doc_id"] == line.doc_id)).encode()
        row = json.loads(raw.decode("utf-8" if line.offset else "utf-8-sig"))
    except (*UNREADABLE, ValueError, KeyError, StopIteration, TypeError, RecursionError) as error:
        rule = f"be unchanged while it is read ({line.file})"
        raise InvalidInputError.of("RUN", "damaged", rule, str(error)) from None
    if not isinstance(row, dict) or row.get("doc_id") != line.doc_id:
        rule = f"be unchanged while it is read ({line.file})"
        raise InvalidInputError.of("RUN", "damaged", rule, f"no line of question {line.doc_id}")
    return row


def _read_stored(line: StoredTrials) -> Mapping[str, Any]:
    """Return the texts of a store's trials as a samples file logs them."""
    from lm_eval_bayes.store.trial_store import TrialStore

    damaged: list[TrialId] = []
    with TrialStore.open(line.file, mode="read") as store:
        trials = store.trials_of([line.key], damaged=damaged)[line.key]
    missing = [number for number in line.numbers if number not in trials]
    if missing:
        rule = f"be unchanged while it is read ({line.file})"
        got = f"no trial {missing[0]} of question {line.doc_id}"
        raise InvalidInputError.of("RUN", "damaged", rule, got)
    return {"doc_id": line.doc_id, "resps": [[trials[number].text for number in line.numbers]]}
