"""What the log of a run calls the trials of a question: the numbers of attempts on a page.

The trials of a log are numbered from a multiple of `PER_RUN` on, which depends on the run alone, so
that trials of several runs stay apart. What is left of such a number is the number in the log.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from lm_eval_bayes.stats import IntArray

#: The trials of a question that a run has room for.
PER_RUN = 2**20
#: From here on numbers within a run are those of trials that the log does not number.
UNNUMBERED = PER_RUN // 2


class Attempts(NamedTuple):
    """The trials of a question by their numbers in the log.

    Attributes
    ----------
    counted, without_grade : list of int
        The numbers of the trials that count, in their order, and of those without a grade.
    """

    counted: list[int]
    without_grade: list[int]


@dataclass(frozen=True, eq=False)
class AttemptNumbers:
    """The numbers of the trials of one question.

    Attributes
    ----------
    numbers : array of int, shape (N,)
        Of all trials, those without a grade included.
    is_graded : array of bool, shape (N,)
        Whether a trial has a grade.
    first : int or None
        What the log calls the trial of the number 0; None where it does not number trials.
    """

    numbers: IntArray
    is_graded: npt.NDArray[np.bool_]
    first: int | None = 1

    def attempts(self) -> Attempts | None:
        """Return the numbers in the log; None where it does not number the trials, or repeats one.

        Examples
        --------
        >>> numbers = 5 * PER_RUN + np.array([1, 2, 3])
        >>> AttemptNumbers(numbers, np.array([True, False, True]), first=0).attempts()
        Attempts(counted=[1, 3], without_grade=[2])
        >>> AttemptNumbers(np.array([0, PER_RUN]), np.array([True, True])).attempts() is None
        True
        """
        own = self.numbers % PER_RUN
        if self.first is None or (own >= UNNUMBERED).any() or np.unique(own).size < own.size:
            return None
        own = own + self.first
        return Attempts(own[self.is_graded].tolist(), own[~self.is_graded].tolist())
