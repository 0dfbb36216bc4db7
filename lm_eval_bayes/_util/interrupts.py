"""Ctrl-C while modules are imported: it waits until the import is complete.

An extension module whose import is interrupted may turn the KeyboardInterrupt into an ImportError
of its own, print a traceback, or stay half imported. So an interrupt that comes within an import is
raised after it. A second one ends the process at once.
"""

from __future__ import annotations

import _thread
import os
import signal
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

#: The exit code of a process that was interrupted.
INTERRUPTED = 130
#: Seconds between two looks whether the import is complete.
_EVERY_S = 0.02
#: The file of the frames of an import.
_IMPORT = "<frozen importlib._bootstrap>"


class _Handler:
    """The handler of SIGINT."""

    def __init__(self) -> None:
        self.waits = self.from_timer = False

    def __call__(self, signum: int, frame: FrameType | None) -> None:
        """Raise KeyboardInterrupt, or wait for the end of an import."""
        from_timer, self.from_timer = self.from_timer, False
        if not _in_import(frame):
            self.waits = False
            raise KeyboardInterrupt
        if from_timer:
            return
        if self.waits:
            os.write(2, b"stopped\n")
            os._exit(INTERRUPTED)
        self.waits = True
        threading.Thread(target=self._look_again, daemon=True).start()

    def _look_again(self) -> None:
        while self.waits:
            time.sleep(_EVERY_S)
            if self.waits:
                self.from_timer = True
                _thread.interrupt_main()


def _in_import(frame: FrameType | None) -> bool:
    while frame is not None:
        if frame.f_code.co_filename == _IMPORT:
            return True
        frame = frame.f_back
    return False


def wait_for_imports() -> None:
    """Let Ctrl-C wait for imports from now on, where Python's own handler of SIGINT is set."""
    _install()


@contextmanager
def imports_are_completed() -> Iterator[None]:
    """Let Ctrl-C wait for the imports in this block, and raise it after them."""
    handler = _install()
    try:
        yield
    finally:
        if handler is not None:
            signal.signal(signal.SIGINT, signal.default_int_handler)
            if handler.waits:
                handler.waits = False
                raise KeyboardInterrupt


def _install() -> _Handler | None:
    if threading.current_thread() is not threading.main_thread():
        return None
    if signal.getsignal(signal.SIGINT) is not signal.default_int_handler:
        return None
    handler = _Handler()
    signal.signal(signal.SIGINT, handler)
    return handler
