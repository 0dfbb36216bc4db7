"""Where the texts of trials are logged: they are read question by question, on demand."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple, Protocol

import numpy as np

from lm_eval_bayes.stats import IntArray

#: Trials of a record of a log that have places.
PER_RECORD = 2**20


class TrialText(NamedTuple):
    """What a log holds of a trial.

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
    """A log of texts, which are read on demand."""

    @property
    def files(self) -> Sequence[Path]:
        """The files of the log."""

    def read(self, places: Sequence[int]) -> list[TrialText]:
        """Return the texts at some places, which the reader of the format numbered.

        Raises
        ------
        InvalidInputError
            If the log is no longer what was read before.
        """


@dataclass(frozen=True, eq=False)
class LoggedTexts:
    """Where the texts of trials are logged.

    Attributes
    ----------
    logs : tuple of TextLog
        The logs that hold them.
    log : array of int, shape (N,)
        For every trial the index of its log; -1 for a trial of which no text is logged.
    place : array of int, shape (N,)
        The place of the text in its log.
    """

    logs: tuple[TextLog, ...]
    log: IntArray
    place: IntArray

    @classmethod
    def at(cls, places: Sequence[int] | IntArray, *logs: TextLog) -> LoggedTexts:
        """Return texts at places of one log, which may be added later; -1 for none."""
        column = np.asarray(places, dtype=np.int64)
        return cls(logs, np.where(column < 0, -1, 0), column)

    @classmethod
    def joined(cls, parts: Sequence[LoggedTexts]) -> LoggedTexts:
        """Return the texts of all parts, one after the other."""
        logs = tuple({id(log): log for part in parts for log in part.logs}.values())
        number = {id(log): n for n, log in enumerate(logs)}
        codes = [np.array([*(number[id(log)] for log in part.logs), -1]) for part in parts]
        renumbered = [code[part.log] for code, part in zip(codes, parts, strict=True)]
        places = np.concatenate([part.place for part in parts])
        return cls(logs, np.concatenate(renumbered), places)

    def __getitem__(self, trials: Any) -> LoggedTexts:
        """Return the texts of these trials: a slice, indices or a mask."""
        return LoggedTexts(self.logs, self.log[trials], self.place[trials])

    def __iter__(self) -> Iterator[LoggedTexts]:
        """Yield where the text of each trial is."""
        return (self[row : row + 1] for row in range(self.log.size))

    def read(self) -> list[TrialText]:
        """Return the text of every trial.

        Raises
        ------
        InvalidInputError
            If a log is no longer what was read before.
        StoreError
            If a store cannot be read.
        """
        texts = [TrialText(None)] * self.log.size
        for number, log in enumerate(self.logs):
            rows = np.flatnonzero(self.log == number)
            rows = rows[np.argsort(self.place[rows], kind="stable")]
            of_log = log.read(self.place[rows].tolist()) if rows.size else []
            for row, text in zip(rows.tolist(), of_log, strict=True):
                texts[row] = text
        return texts
