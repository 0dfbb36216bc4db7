"""No engine outlives its run: its processes die with their parent, and signals shut it down."""

from __future__ import annotations

import ctypes
import importlib
import multiprocessing
import os
import signal
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any

_PR_SET_PDEATHSIG = 1

#: Where vLLM's processes start to run, and what replaces each while an engine is built.
_CORE = ("vllm.v1.engine.core", "EngineCoreProc", "run_engine_core")
_WORKER = ("vllm.v1.executor.multiproc_executor", "WorkerProc", "worker_main")

#: What was there before, in a process that was forked after it had been replaced.
_originals: dict[tuple[str, str, str], Callable[..., Any]] = {}


def die_with_parent() -> None:
    """Let the kernel kill this process as soon as the thread that started it is gone."""
    parent = multiprocessing.parent_process()
    try:
        libc = ctypes.CDLL(None, use_errno=True)
        libc.prctl(_PR_SET_PDEATHSIG, int(signal.SIGKILL), 0, 0, 0)
    except (OSError, AttributeError):
        return
    if parent is not None and os.getppid() != parent.pid:
        os._exit(1)  # it went before the kernel was asked


def run_core(*args: Any, **kwargs: Any) -> Any:
    """Run vLLM's engine core in this process, which then dies with its parent."""
    die_with_parent()
    _replace(_WORKER, run_worker)
    return _original(_CORE)(*args, **kwargs)


def run_worker(*args: Any, **kwargs: Any) -> Any:
    """Run a worker of vLLM's engine in this process, which then dies with its parent."""
    die_with_parent()
    return _original(_WORKER)(*args, **kwargs)


@contextmanager
def dying_with_us() -> Iterator[bool]:
    """Have the processes of an engine that is built meanwhile die with this one.

    Yields
    ------
    bool
        Whether they will. The kernel watches the thread that starts a process, so it is asked
        only in the main one, on Linux, where vLLM has the parts that this package knows.
    """
    usual = threading.current_thread() is threading.main_thread()
    bound = sys.platform == "linux" and usual and _replace(_CORE, run_core)
    try:
        yield bound
    finally:
        if bound:
            _restore(_CORE)


def _owner(place: tuple[str, str, str]) -> Any:
    return getattr(importlib.import_module(place[0]), place[1])


def _replace(place: tuple[str, str, str], ours: Callable[..., Any]) -> bool:
    try:
        owner = _owner(place)
        there = owner.__dict__[place[2]]
    except (ImportError, AttributeError, KeyError):
        return False
    if not isinstance(there, staticmethod):
        return False
    if there.__func__ is not ours:
        _originals[place] = there.__func__
        setattr(owner, place[2], staticmethod(ours))
    return True


def _restore(place: tuple[str, str, str]) -> None:
    setattr(_owner(place), place[2], staticmethod(_originals.pop(place)))


def _original(place: tuple[str, str, str]) -> Callable[..., Any]:
    # A spawned process imports vLLM afresh, and there nothing was replaced.
    found: Callable[..., Any] = _originals.get(place) or getattr(_owner(place), place[2])
    return found


@contextmanager
def ending_on_signals(shut_down: Callable[[], None]) -> Iterator[None]:
    """Shut an engine down when SIGINT or SIGTERM comes, then do what would have been done.

    A signal that is ignored, as SIGINT is in a background job, stays ignored. A handler that
    was there before is called after the engine is down; where there was none, the signal ends
    the process as it always did. Both are put back at the end. A process that is forked
    meanwhile leaves the engine alone.

    Parameters
    ----------
    shut_down : callable
        Called once more if a second signal comes while it is running: it should hurry then.
    """
    if threading.current_thread() is not threading.main_thread():
        yield  # Python takes signals in the main thread alone
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
            # Without its engine the run would wait for ever.
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
