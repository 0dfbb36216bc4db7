"""Where the texts of a question's trials are logged, so that they can be read on demand."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from lm_eval_bayes.errors import InvalidInputError


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


@dataclass(frozen=True, eq=False)
class LoggedTexts:
    """Where the texts of the trials of one question are logged.

    Attributes
    ----------
    lines : tuple of LoggedLine
        The lines that hold them.
    index : array of int, shape (N, 2)
        For every trial the index of its line in `lines`, and of its text among the responses in
        that line; -1 for a trial of which no text is logged.
    """

    lines: tuple[LoggedLine, ...]
    index: npt.NDArray[np.int32]

    @classmethod
    def of_line(cls, line: LoggedLine, n_trials: int) -> LoggedTexts:
        """Return the texts of the trials that one line logs as its responses, in order."""
        index = np.zeros((n_trials, 2), dtype=np.int32)
        index[:, 1] = np.arange(n_trials)
        return cls((line,), index)

    @classmethod
    def none(cls, n_trials: int) -> LoggedTexts:
        """Return that no text of so many trials is logged."""
        return cls((), np.full((n_trials, 2), -1, dtype=np.int32))

    def select(self, trials: npt.NDArray[np.intp]) -> LoggedTexts:
        """Return the texts of these trials, in their order."""
        return LoggedTexts(self.lines, self.index[trials])

    def __add__(self, other: LoggedTexts) -> LoggedTexts:
        """Return these texts followed by those of another."""
        index = other.index.copy()
        index[index[:, 0] >= 0, 0] += len(self.lines)
        return LoggedTexts((*self.lines, *other.lines), np.concatenate([self.index, index]))

    def by_line(self) -> Iterator[tuple[LoggedLine, npt.NDArray[np.intp]]]:
        """Yield every line with the trials whose texts it holds, in the order of its responses."""
        for number, line in enumerate(self.lines):
            trials = np.flatnonzero(self.index[:, 0] == number)
            if trials.size:
                yield line, trials[np.argsort(self.index[trials, 1], kind="stable")]


def read_line(line: LoggedLine) -> Mapping[str, Any]:
    """Read one line of a samples file.

    Raises
    ------
    InvalidInputError
        If it is no longer the line that was read before.
    """
    try:
        with open(line.file, "rb") as file:
            file.seek(line.offset)
            raw = file.readline()
        row = json.loads(raw.decode("utf-8" if line.offset else "utf-8-sig"))
    except (OSError, ValueError) as error:
        rule = f"be unchanged while it is read ({line.file})"
        raise InvalidInputError.of("RUN", rule, str(error)) from None
    if not isinstance(row, dict) or row.get("doc_id") != line.doc_id:
        rule = f"be unchanged while it is read ({line.file})"
        raise InvalidInputError.of("RUN", rule, f"no line of question {line.doc_id}")
    return row
