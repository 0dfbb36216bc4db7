"""Processes that are told from others: by id, start time, boot and namespace.

Process ids are reused; an id together with the start time, the boot and the namespace is not.
"""

from __future__ import annotations

import os
import platform
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

import psutil

from lm_eval_bayes._util.plain import Record


@dataclass(frozen=True)
class Process(Record):
    """A process, identified by its id and its start time.

    Attributes
    ----------
    pid : int
        Its id.
    started : float
        When it started, in seconds since the boot, to the clock's tick of 10 ms.
    name : str
        Its name, for messages.
    """

    pid: int
    started: float
    name: str = field(default="", compare=False)

    @property
    def alive(self) -> bool:
        """Whether this very process is running; a zombie is not."""
        return process(self.pid) == self

    def send(self, signum: int) -> bool:
        """Send a signal to this process and to no other; return whether it was sent."""
        with suppress(psutil.NoSuchProcess):
            handle = psutil.Process(self.pid)
            if process_record(handle) == self:
                handle.send_signal(signum)  # which checks again that the id was not reused
                return True
        return False


def process(pid: int) -> Process | None:
    """Return a running process; None if there is none, or only a zombie."""
    try:
        return process_record(psutil.Process(pid))
    except psutil.NoSuchProcess:
        return None


def process_record(handle: psutil.Process) -> Process | None:
    """Return a process of psutil as a record; None for a zombie."""
    with handle.oneshot():
        if handle.status() == psutil.STATUS_ZOMBIE:
            return None
        return Process(handle.pid, _started(handle), handle.name())


def _started(handle: psutil.Process) -> float:
    """Return when a process started, in seconds since the boot.

    Linux tells it in ticks. The time of psutil is one of the system's clock, whose changes may
    reach its two parts at different moments.
    """
    try:
        stat = Path(f"/proc/{handle.pid}/stat").read_bytes()
        return round(int(stat.rpartition(b")")[2].split()[19]) / os.sysconf("SC_CLK_TCK"), 2)
    except ProcessLookupError:  # it ended while the file was read
        raise psutil.NoSuchProcess(handle.pid) from None
    except FileNotFoundError:
        if Path("/proc/self/stat").exists():
            raise psutil.NoSuchProcess(handle.pid) from None
        return round(float(handle.create_time() - psutil.boot_time()), 2)


def process_scope() -> dict[str, str] | None:
    """Return where this computer's process ids are valid; None if it is not Linux.

    Returns
    -------
    dict
        ``host``, ``boot`` (the id of this boot) and ``namespace`` (of process ids).
    """
    try:
        boot = Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip()
        namespace = os.readlink("/proc/self/ns/pid")
    except OSError:
        return None
    return {"host": platform.node(), "boot": boot, "namespace": namespace}
