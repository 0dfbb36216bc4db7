"""Processes of an inference engine: identified by id and start time, ended when orphaned.

An engine runs in processes of its own. When the run that started them is killed, they may stay
alive and hold the accelerator's memory, which the resumed run needs. So a run records its
engine's processes in a small file beside its store, and the next run ends those that are left.
Process ids are reused; an id together with the start time, the boot and the namespace is not.

Linux only: elsewhere nothing is recorded and nothing is ended.
"""

from __future__ import annotations

import glob
import hashlib
import json
import os
import platform
import signal
import time
from collections.abc import Collection, Iterable
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import psutil

from lm_eval_bayes._util.files import write_atomic
from lm_eval_bayes._util.plain import Record
from lm_eval_bayes.harness import get_logger

log = get_logger(__name__)

#: Helpers of Python's multiprocessing, which end with the last process that uses them.
_NOT_THE_ENGINE = ("multiprocessing.resource_tracker", "multiprocessing.forkserver")


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
        try:
            handle = psutil.Process(self.pid)
            if _record(handle) != self:
                return False
            handle.send_signal(signum)  # which checks again that the id was not reused
        except psutil.NoSuchProcess:
            return False
        return True


def process(pid: int) -> Process | None:
    """Return a running process; None if there is none, or only a zombie."""
    try:
        return _record(psutil.Process(pid))
    except psutil.NoSuchProcess:
        return None


def _record(handle: psutil.Process) -> Process | None:
    with handle.oneshot():
        if handle.status() == psutil.STATUS_ZOMBIE:
            return None
        # The difference does not change with the system's clock, as create_time alone does.
        since_boot = handle.create_time() - psutil.boot_time()
        return Process(handle.pid, round(since_boot, 2), handle.name())


def descendants(pid: int) -> list[Process]:
    """Return the running children of a process, their children, and so on."""
    running: list[Process] = []
    parents = [pid]
    while parents:
        with suppress(psutil.NoSuchProcess):
            for child in psutil.Process(parents.pop()).children():
                with suppress(psutil.NoSuchProcess):
                    record = _record(child)
                    if record is not None and not _is_helper(child):
                        running.append(record)
                        parents.append(record.pid)
    return running


def _is_helper(handle: psutil.Process) -> bool:
    try:
        command = " ".join(handle.cmdline())
    except psutil.AccessDenied:
        return False
    return any(name in command for name in _NOT_THE_ENGINE)


def end(processes: Iterable[Process], patience_s: float = 5.0) -> list[Process]:
    """End processes by SIGTERM and, those that are left, by SIGKILL.

    Parameters
    ----------
    processes : iterable of Process
        The processes; those that have ended already are skipped.
    patience_s : float
        Seconds between the two signals; 0 for SIGKILL at once.

    Returns
    -------
    list of Process
        Those still alive, because they belong to another user or hang in the kernel.
    """
    left = [p for p in processes if p.alive]
    for signum, seconds in ((signal.SIGTERM, patience_s), (signal.SIGKILL, 5.0)):
        if not left or (signum == signal.SIGTERM and patience_s <= 0):
            continue
        for running in left:
            with suppress(psutil.AccessDenied):
                running.send(signum)
        deadline = time.monotonic() + seconds
        while left and time.monotonic() < deadline:
            time.sleep(0.02)
            left = [p for p in left if p.alive]
    return left


class ProcessFile:
    """The file in which a run records its engine's processes.

    Parameters
    ----------
    base : Path
        The common name of such files, as ``aime.sqlite.processes.json``. Each run adds a hash to
        the name, because several runs may use one store.
    """

    def __init__(self, base: Path) -> None:
        self.owner = process(os.getpid())
        self._scope = _scope()
        owner = self.owner and (self.owner.pid, self.owner.started)
        identity = repr((platform.node(), self._scope, owner)).encode()
        suffix = hashlib.blake2b(identity, digest_size=4).hexdigest()
        self.path = base.with_name(f"{base.stem}.{suffix}{base.suffix}")

    def write(self, processes: Collection[Process]) -> None:
        """Record the processes in place of earlier ones; without any, remove the file."""
        if self.owner is None or self._scope is None or not processes:
            self.remove()
            return
        content = {
            "host": platform.node(),
            **self._scope,
            "owner": self.owner.to_dict(),
            "processes": [p.to_dict() for p in processes],
        }
        try:
            write_atomic(self.path, json.dumps(content).encode())
        except OSError as error:
            log.debug("the engine's processes could not be recorded: %s", error)

    def remove(self) -> None:
        """Remove the file, if it exists and this process wrote it."""
        if self.owner is not None and self.owner.pid == os.getpid():
            with suppress(OSError):
                self.path.unlink(missing_ok=True)


def end_leftovers(base: Path, patience_s: float = 3.0) -> list[Process]:
    """End the engine processes of runs that were killed, and remove the files that record them.

    A process is ended, with its children, only if its id, start time, boot and namespace are
    the recorded ones and the run that recorded it is gone.

    Parameters
    ----------
    base : Path
        The common name of the files, see `ProcessFile`.
    patience_s : float
        See :func:`end`.

    Returns
    -------
    list of Process
        Those that were ended.
    """
    ended: list[Process] = []
    pattern = f"{glob.escape(base.stem)}.*{glob.escape(base.suffix)}"
    for path in sorted(base.parent.glob(pattern)):
        content = _read(path)
        if content is None or (orphans := _orphans(content)) is None:
            continue
        left = end(orphans, patience_s)
        ended += [p for p in orphans if p not in left]
        if left:
            log.warning(
                "processes %s of the engine of a killed run cannot be ended; they may hold the "
                "accelerator's memory",
                ", ".join(str(p.pid) for p in left),
            )
        else:
            with suppress(OSError):
                path.unlink(missing_ok=True)
    if ended:
        log.warning(
            "ended %d processes of an engine that a killed run had left behind (%s)",
            len(ended),
            ", ".join(f"{p.name} {p.pid}" for p in ended),
        )
    return ended


def _orphans(content: dict[str, Any]) -> list[Process] | None:
    """Return the recorded processes that may be ended; None if the file must stay."""
    scope = _scope()
    if scope is None or content["host"] != platform.node():
        return None
    if content["boot"] != scope["boot"]:
        return []  # the computer was restarted, so none of them is left
    if content["namespace"] != scope["namespace"] or Process(**content["owner"]).alive:
        return None
    left = [p for p in (Process(**record) for record in content["processes"]) if p.alive]
    with_children = {q.pid: q for p in left for q in [p, *descendants(p.pid)]}
    return list(with_children.values())


def _read(path: Path) -> dict[str, Any] | None:
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
        Process(**content["owner"])
        [Process(**record) for record in content["processes"]]
        complete = content["boot"] and content["namespace"]
        return {"host": str(content["host"]), **content} if complete else None
    except (OSError, ValueError, TypeError, LookupError):
        return None  # not one of these files


def _scope() -> dict[str, str] | None:
    """Return the boot and the namespace of this computer's process ids; None if not on Linux."""
    try:
        boot = Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip()
        return {"boot": boot, "namespace": os.readlink("/proc/self/ns/pid")}
    except OSError:
        return None
