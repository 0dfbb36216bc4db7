"""Ctrl-C while modules are imported: it waits until the import is complete.

An extension module whose import is interrupted may turn the KeyboardInterrupt into an ImportError
of its own, print a traceback, or stay half imported.
"""

from __future__ import annotations

import _thread
import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

#: Seconds until an interrupt within an import is raised again.
_AGAIN_S = 0.02
#: The file of the frames of an import.
_IMPORT = "<frozen importlib._bootstrap>"


def wait_for_imports() -> None:
    """Let Ctrl-C wait for imports from now on, where Python's own handler of SIGINT is set."""
    if _has_default_handler():
        signal.signal(signal.SIGINT, _raised_after_import)


@contextmanager
def imports_are_completed() -> Iterator[None]:
    """Hold back Ctrl-C in this block, where Python's own handler is set, and raise it after it."""
    held: list[int] = []
    is_held = _has_default_handler()
    if is_held:
        signal.signal(signal.SIGINT, lambda signum, frame: held.append(signum))
    try:
        yield
    finally:
        if is_held:
            signal.signal(signal.SIGINT, signal.default_int_handler)
    if held:
        raise KeyboardInterrupt


def _has_default_handler() -> bool:
    is_main = threading.current_thread() is threading.main_thread()
    return is_main and signal.getsignal(signal.SIGINT) is signal.default_int_handler


def _raised_after_import(signum: int, frame: FrameType | None) -> None:
    while frame is not None and frame.f_code.co_filename != _IMPORT:
        frame = frame.f_back
    if frame is None:
        raise KeyboardInterrupt
    threading.Timer(_AGAIN_S, _thread.interrupt_main).start()
