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
from multiprocessing.connection import Connection, wait
from typing import Any, TypeAlias

from lm_eval_bayes.errors import LmEvalBayesError, TaskConfigError

#: Programs that run at a time, as in `code_eval`.
AT_A_TIME = 4

#: Seconds after which processes are asked whether they have ended.
_PATIENCE_S = 1.0

#: "result" and what grading gave, or "error" and a text.
Reply: TypeAlias = tuple[str, Any]


def reply(grade: Callable[[Any], Any], response: Any) -> Reply:
    """Grade one response.

    Examples
    --------
    >>> reply(int, "7"), reply(int, "x")[0]
    (('result', 7), 'error')
    """
    try:
        return "result", grade(response)
    except LmEvalBayesError:
        raise
    except (Exception, SystemExit) as error:
        return "error", f"{type(error).__name__}: {error}"


def replies(grade: Callable[[Any], Any], responses: Sequence[Any]) -> list[Reply]:
    """Grade the responses to one question, each in a process of its own where they can be forked.

    Parameters
    ----------
    grade : callable
        Takes one response.
    responses : sequence
        The programs.

    Returns
    -------
    list of Reply
        One for each response; a result is as it is read back from JSON.

    Raises
    ------
    TaskConfigError
        Where `grade` raised an error of this package.

    Examples
    --------
    >>> replies(len, ["a", "ab", "abc"])
    [('result', 1), ('result', 2), ('result', 3)]
    """
    if sys.platform != "linux":
        return [reply(grade, response) for response in responses]
    received = _in_processes(grade, responses)
    for kind, value in received:
        if kind == "configuration":
            sentence, rule, argument = value
            raise TaskConfigError(sentence, rule, argument)
    return received


def _in_processes(grade: Callable[[Any], Any], responses: Sequence[Any]) -> list[Reply]:
    """Run a process for each response, a few at a time."""
    context = multiprocessing.get_context("fork")
    received: list[Reply] = [("error", "")] * len(responses)
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
                    received[number] = kind, value
                    process.join()
                except (EOFError, ValueError, TypeError):
                    process.join()
                    message = f"the program ended its process, with exit code {process.exitcode}"
                    received[number] = "error", message
                receiver.close()
    finally:
        for _, process in running.values():
            process.kill()
    return received


def _send_grade(sender: Connection, grade: Callable[[Any], Any], response: Any) -> None:
    """Grade one response; errors become text, which can be sent."""
    try:
        sent = reply(grade, response)
    except LmEvalBayesError as error:
        sent = ("configuration", (str(error), error.rule, error.argument))
    # no pickle: a program may write into the pipe
    sender.send_bytes(json.dumps(sent, default=_plain).encode())


def _plain(value: Any) -> Any:
    """Return a number or an array of numpy as JSON has it, anything else as text."""
    return value.tolist() if hasattr(value, "tolist") else str(value)
