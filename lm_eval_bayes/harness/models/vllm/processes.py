"""The engine's process dies with the run.

An engine runs in a process of its own, which vLLM leaves alive for minutes, with the accelerator's
memory, where the run is killed. Here the kernel kills it when the run ends; the engine's own
workers watch it, as vLLM has them do. On Linux alone, and for engines of the main thread.
"""

from __future__ import annotations

import ctypes
import multiprocessing
import os
import signal
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from lm_eval_bayes.harness.plugin import patches

_PR_SET_PDEATHSIG = 1


def die_with_parent() -> None:
    """Have the kernel kill this process when the thread that started it ends."""
    parent = multiprocessing.parent_process()
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, int(signal.SIGKILL), 0, 0, 0)
    if parent is not None and os.getppid() != parent.pid:
        os._exit(1)  # it ended before prctl was called


def run_core(*args: Any, **kwargs: Any) -> Any:
    """Run vLLM's engine core in this process, which then dies with its parent."""
    die_with_parent()
    return patches.original(patches.VLLM_CORE)(*args, **kwargs)


@contextmanager
def bound_to_this_process() -> Iterator[None]:
    """Let the process of an engine that is built inside the block die with this one.

    In the main thread, since the kernel watches the thread that starts a process.
    """
    if sys.platform != "linux" or threading.current_thread() is not threading.main_thread():
        yield
        return
    with patches.applied(patches.VLLM_CORE, lambda original: run_core):
        yield
