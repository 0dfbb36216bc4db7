"""Signal handling: an engine's processes die with their parent, and signals shut it down."""

from __future__ import annotations

import ctypes
import multiprocessing
import os
import signal
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any

from lm_eval_bayes.harness.plugin import patches

_PR_SET_PDEATHSIG = 1


def die_with_parent() -> None:
    """Have the kernel kill this process when the thread that started it ends."""
    parent = multiprocessing.parent_process()
    try:
        libc = ctypes.CDLL(None, use_errno=True)
        libc.prctl(_PR_SET_PDEATHSIG, int(signal.SIGKILL), 0, 0, 0)
    except (OSError, AttributeError):
        return
    if parent is not None and os.getppid() != parent.pid:
        os._exit(1)  # it ended before prctl was called


def run_core(*args: Any, **kwargs: Any) -> Any:
    """Run vLLM's engine core in this process, which then dies with its parent."""
    die_with_parent()
    patches.install(patches.VLLM_WORKER, lambda original: run_worker)
    return patches.original(patches.VLLM_CORE)(*args, **kwargs)


def run_worker(*args: Any, **kwargs: Any) -> Any:
    """Run a worker of vLLM's engine in this process, which then dies with its parent."""
    die_with_parent()
    return patches.original(patches.VLLM_WORKER)(*args, **kwargs)


@contextmanager
def bound_to_this_process() -> Iterator[bool]:
    """Let the processes of an engine that is built inside the block die with this process.

    Yields
    ------
    bool
        Whether they will: in the main thread, since the kernel watches the thread that starts a
        process, on Linux, with a vLLM that has the replaced functions.
    """
    if sys.platform != "linux" or threading.current_thread() is not threading.main_thread():
        yield False
        return
    with patches.applied(patches.VLLM_CORE, lambda original: run_core) as problem:
        yield problem is None


@contextmanager
def shut_down_on_signals(shut_down: Callable[[], None]) -> Iterator[None]:
    """Shut an engine down on SIGINT or SIGTERM, then handle the signal as before.

    An ignored signal, as SIGINT is in a background job, stays ignored. An earlier handler is
    called after the shutdown; without one, the signal ends the process. The earlier handlers
    are restored at the end. A process that is forked inside the block does not shut the engine
    down.

    Parameters
    ----------
    shut_down : callable
        Called again if a second signal arrives while it runs; it should then end at once.
    """
    if threading.current_thread() is not threading.main_thread():
        yield  # Python handles signals in the main thread only
        return
    owner = os.getpid()
    earlier: dict[int, Any] = {}

    def restore() -> None:
        for signum, handler in earlier.items():
            if signal.getsignal(signum) is handle:
                signal.signal(signum, handler)

    def handle(signum: int, frame: FrameType | None) -> None:
        if os.getpid() == owner:
            shut_down()
        restore()
        handler = earlier[signum]
        if not callable(handler):
            signal.raise_signal(signum)
            return
        handler(signum, frame)
        if os.getpid() == owner:
            # Without its engine the run would wait forever.
            raise KeyboardInterrupt(f"stopped by {signal.Signals(signum).name}")

    for signum in (signal.SIGINT, signal.SIGTERM):
        handler = signal.getsignal(signum)
        if handler is not None and handler is not signal.SIG_IGN:
            earlier[signum] = handler
            signal.signal(signum, handle)
    try:
        yield
    finally:
        restore()
