"""Grading several programs at a time, each in a process of its own.

A metric such as `code_eval` runs a program in a process with a time limit. It gets one program in
a call, so N programs that reach the limit would take N times as long. The harness itself hands all
N to the metric, which runs four at a time; so do we.
"""

from __future__ import annotations

import multiprocessing
import sys
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ProcessPoolExecutor
from functools import partial
from typing import Any

from lm_eval_bayes.errors import LmEvalBayesError, TaskConfigError

#: Programs that run at a time, as in `code_eval`.
AT_A_TIME = 4

#: What the processes of a pool inherit: it cannot be pickled.
_grade: Callable[[Any], Any] | None = None


class ProgramGradingError(Exception):
    """The metric failed on a program; the message has the type of the error."""


def graders(grade: Callable[[Any], Any], responses: Sequence[Any]) -> list[Callable[[], Any]]:
    """Start the grading of the responses to one question.

    Parameters
    ----------
    grade : callable
        Takes one response; it runs in forked processes, where the platform has them.
    responses : sequence
        The programs.

    Returns
    -------
    list of callable
        One for each response. It returns what `grade` returns.

    Raises
    ------
    TaskConfigError
        By a callable, where `grade` raises an error of this package.
    ProgramGradingError
        By a callable, where it raises another one, or its process was killed.

    Examples
    --------
    >>> [result() for result in graders(len, ["a", "ab", "abc"])]
    [1, 2, 3]
    """
    global _grade
    if len(responses) < 2 or sys.platform != "linux":
        return [partial(grade, response) for response in responses]
    _grade = grade
    context = multiprocessing.get_context("fork")
    try:
        with ProcessPoolExecutor(min(AT_A_TIME, len(responses)), mp_context=context) as pool:
            futures = [pool.submit(_graded, response) for response in responses]
    finally:
        _grade = None
    return [partial(_result, future) for future in futures]


def _graded(response: Any) -> tuple[str, Any]:
    """Grade one response in a process of the pool; errors become text, which can be pickled."""
    if _grade is None:
        raise RuntimeError("the process has inherited no grader")
    try:
        return "result", _grade(response)
    except LmEvalBayesError as error:
        return "configuration", str(error)
    except Exception as error:
        return "error", f"{type(error).__name__}: {error}"


def _result(future: Future[tuple[str, Any]]) -> Any:
    try:
        kind, value = future.result()
    except Exception as error:
        message = f"the process of the program ended ({type(error).__name__})"
        raise ProgramGradingError(message) from None
    if kind == "configuration":
        raise TaskConfigError(value)
    if kind == "error":
        raise ProgramGradingError(value)
    return value
