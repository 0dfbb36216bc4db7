"""How a command ends when something is wrong: one sentence, an exit code, no traceback."""

from __future__ import annotations

import errno
import os
import signal
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any

import typer
from typer.core import TyperGroup

from lm_eval_bayes.cli.ui.exit_codes import ERROR, INTERRUPTED, UNREAD
from lm_eval_bayes.cli.ui.output import discard, warn
from lm_eval_bayes.errors import InvalidInputError, LmEvalBayesError


class PlainErrorsGroup(TyperGroup):
    """A group of commands that tells every deliberate error of this package in one sentence."""

    def make_context(self, *args: Any, **extra: Any) -> Any:
        """Read the arguments; `--help` and `--version` print here."""
        try:
            with _printed(), _plain():
                return super().make_context(*args, **extra)
        except KeyboardInterrupt:
            warn("stopped")
            raise typer.Exit(INTERRUPTED) from None

    def invoke(self, ctx: Any) -> Any:
        """Run a command."""
        with _printed():
            try:
                with _terminated(), _plain():
                    return super().invoke(ctx)
            except LmEvalBayesError as error:
                warn(f"error: {error}")
                raise typer.Exit(ERROR) from None
            except KeyboardInterrupt:
                warn("stopped")
                raise typer.Exit(INTERRUPTED) from None
            except _Terminated as ended:
                warn("stopped")
                raise typer.Exit(128 + ended.signum) from None


class _Terminated(BaseException):
    """A signal that ends a program, so that what it began is tidied up."""

    def __init__(self, signum: int) -> None:
        super().__init__(signum)
        self.signum = signum


@contextmanager
def _plain() -> Iterator[None]:
    """Leave out of what is said of a wrong option how the library found it."""
    try:
        yield
    except typer.BadParameter as error:
        error.message = error.message.replace("Value error, ", "")
        raise


@contextmanager
def _terminated() -> Iterator[None]:
    """Let SIGTERM and SIGHUP leave as an exception does, where nobody else minds them."""

    here = os.getpid()

    def leave(signum: int, frame: FrameType | None) -> None:
        if os.getpid() != here:  # a worker, forked from here: it just ends
            signal.signal(signum, signal.SIG_DFL)
            os.kill(os.getpid(), signum)
            return
        raise _Terminated(signum)

    minded = []
    if threading.current_thread() is threading.main_thread():
        wanted = (signal.SIGTERM, getattr(signal, "SIGHUP", None))
        minded = [s for s in wanted if s is not None and signal.getsignal(s) is signal.SIG_DFL]
    for signum in minded:
        signal.signal(signum, leave)
    try:
        yield
    finally:
        for signum in minded:
            signal.signal(signum, signal.SIG_DFL)


@contextmanager
def _printed() -> Iterator[None]:
    """Tell where standard output cannot be written; end quietly where nobody reads it."""
    try:
        try:
            yield
        except (typer.Exit, SystemExit):
            _flush()
            raise
        # Here rather than when the interpreter ends, which could tell nobody in one sentence.
        _flush()
    except OSError as error:
        broken = _fault_of_output(error)
        if broken is None:
            if error.errno != errno.EPIPE:
                raise
            # Somebody else's pipe, as to a server: typer would end with 1 and say nothing.
            warn(f"error: a pipe or connection was closed by the other side: {error.strerror}")
            raise typer.Exit(ERROR) from None
        discard(sys.stdout)
        if broken.errno == errno.EPIPE:
            raise typer.Exit(UNREAD) from None
        warn(f"error: standard output cannot be written: {broken.strerror}")
        raise typer.Exit(ERROR) from None


def _flush() -> None:
    if sys.stdout is not None:
        sys.stdout.flush()


def _fault_of_output(error: OSError) -> OSError | None:
    """Return what happens when standard output is written, None where it is not to blame."""
    if sys.stdout is None or error.filename is not None:
        return None
    try:
        # What failed before is still in the buffer, unless there is none: then one character.
        sys.stdout.flush()
        sys.stdout.write("\n")
        sys.stdout.flush()
    except OSError as again:
        return again
    return None


@contextmanager
def named_as_options(*arguments: str) -> Iterator[None]:
    """Let errors call an argument of the Python API by the option it was given as."""
    try:
        yield
    except InvalidInputError as error:
        text = str(error)
        for name in arguments:
            if text.startswith(f"`{name}` "):
                text = f"`--{name.replace('_', '-')}` {text[len(name) + 3 :]}"
        raise InvalidInputError(text) from None
