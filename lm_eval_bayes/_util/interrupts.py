"""Ctrl-C while modules are imported: it waits until the import is complete.

An extension module whose import is interrupted may turn the KeyboardInterrupt into an ImportError
of its own, print a traceback, or stay half imported.
"""

from __future__ import annotations

import _thread
import signal
import threading
from types import FrameType

#: Seconds until an interrupt within an import is raised again.
_AGAIN_S = 0.02
#: The file of the frames of an import.
_IMPORT = "<frozen importlib._bootstrap>"


def wait_for_imports() -> None:
    """Let Ctrl-C wait for imports from now on, where Python's own handler of SIGINT is set."""
    is_main = threading.current_thread() is threading.main_thread()
    if is_main and signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        signal.signal(signal.SIGINT, _raised_after_import)


def _raised_after_import(signum: int, frame: FrameType | None) -> None:
    while frame is not None and frame.f_code.co_filename != _IMPORT:
        frame = frame.f_back
    if frame is None:
        raise KeyboardInterrupt
    threading.Timer(_AGAIN_S, _thread.interrupt_main).start()
