"""Grading several programs at a time, each in a process of its own.

A metric such as `code_eval` runs a program in a process with a time limit. It gets one program in
a call, so N programs that reach the limit would take N times as long. The harness itself hands all
N to the metric, which runs four at a time; so do we.
"""

from __future__ import annotations

import json
import multiprocessing
import sys
from collections import deque
from collections.abc import Callable, Sequence
from functools import partial
from multiprocessing.connection import Connection, wait
from typing import Any

from lm_eval_bayes.errors import LmEvalBayesError, TaskConfigError

#: Programs that run at a time, as in `code_eval`.
AT_A_TIME = 4

#: Seconds after which processes are asked whether they have ended.
_PATIENCE_S = 1.0

#: A result, or the text of an error, by its kind.
_Reply = tuple[str, Any]


class ProgramGradingError(Exception):
    """Grading a program failed; the message has the type of the error."""


def graders(grade: Callable[[Any], Any], responses: Sequence[Any]) -> list[Callable[[], Any]]:
    """Grade the responses to one question.

    Parameters
    ----------
    grade : callable
        Takes one response; it runs in a forked process of its own, where the platform has them.
    responses : sequence
        The programs.

    Returns
    -------
    list of callable
        One for each response. It returns what `grade` returned, as it is read back from JSON.

    Raises
    ------
    TaskConfigError
        By a callable, where `grade` raised an error of this package.
    ProgramGradingError
        By a callable, where it raised another one, or its process ended without a result.

    Examples
    --------
    >>> [result() for result in graders(len, ["a", "ab", "abc"])]
    [1, 2, 3]
    """
    if sys.platform != "linux":
        return [partial(grade, response) for response in responses]
    return [partial(_result, reply) for reply in _replies(grade, responses)]


def _replies(grade: Callable[[Any], Any], responses: Sequence[Any]) -> list[_Reply]:
    """Run a process for each response, a few at a time."""
    context = multiprocessing.get_context("fork")
    replies: list[_Reply] = [("error", "")] * len(responses)
    waiting = deque(enumerate(responses))
    running: dict[Any, tuple[int, Any]] = {}
    receiver: Any
    try:
        while waiting or running:
            while waiting and len(running) < AT_A_TIME:
                number, response = waiting.popleft()
                receiver, sender = context.Pipe(duplex=False)
                process = context.Process(target=_send_grade, args=(sender, grade, response))
                process.start()
                sender.close()
                running[receiver] = number, process
            ended = [r for r, (_, process) in running.items() if not process.is_alive()]
            for receiver in ended or wait([*running], timeout=_PATIENCE_S):
                number, process = running.pop(receiver)
                try:
                    # a program may have left a process behind, which holds the pipe open
                    kind, value = json.loads(receiver.recv_bytes() if receiver.poll() else b"")
                    replies[number] = kind, value
                    process.join()
                except (EOFError, ValueError, TypeError):
                    process.join()
                    message = f"the program ended its process, with exit code {process.exitcode}"
                    replies[number] = "error", message
                receiver.close()
    finally:
        for _, process in running.values():
            process.kill()
    return replies


def _send_grade(sender: Connection, grade: Callable[[Any], Any], response: Any) -> None:
    """Grade one response; errors become text, which can be sent."""
    try:
        reply: _Reply = ("result", grade(response))
    except LmEvalBayesError as error:
        reply = ("configuration", (str(error), error.rule, error.argument))
    except (Exception, SystemExit) as error:
        reply = ("error", f"{type(error).__name__}: {error}")
    # no pickle: a program may write into the pipe
    sender.send_bytes(json.dumps(reply, default=_plain).encode())


def _plain(value: Any) -> Any:
    """Return a number or an array of numpy as JSON has it, anything else as text."""
    return value.tolist() if hasattr(value, "tolist") else str(value)


def _result(reply: _Reply) -> Any:
    kind, value = reply
    if kind == "configuration":
        sentence, rule, argument = value
        raise TaskConfigError(sentence, rule, argument)
    if kind == "error":
        raise ProgramGradingError(value)
    return value
