"""The processes of an inference engine: known again by id and start time, ended when orphaned.

An engine runs in processes of its own. When the run that started them is killed they may live
on and hold the accelerator's memory, and the run that is to resume finds none left. So a run
notes its engine's processes in a small file beside its store, and the next one ends those
that were left behind. A process id is used again sooner or later; together with the start
time, the boot and the namespace it is not.

Linux only: elsewhere nothing is noted and nothing is ended.
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
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from lm_eval_bayes._util.files import write_atomic
from lm_eval_bayes.harness.logs import get_logger

log = get_logger(__name__)

#: Helpers of Python's own, which end by themselves when the last process that uses them has.
_NOT_THE_ENGINE = (b"multiprocessing.resource_tracker", b"multiprocessing.forkserver")


@dataclass(frozen=True)
class Process:
    """A process that cannot be mistaken for another one.

    Attributes
    ----------
    pid : int
        Its id.
    started : int
        When it started, in clock ticks since the computer did.
    name : str
        What it calls itself, for messages.
    """

    pid: int
    started: int
    name: str = field(default="", compare=False)

    @property
    def alive(self) -> bool:
        """Whether this very process still runs; a zombie does not."""
        now = process(self.pid)
        return now is not None and now.started == self.started

    def send(self, signum: int) -> bool:
        """Send a signal to this process and to no other; return whether it was sent."""
        if not hasattr(os, "pidfd_open"):
            if self.alive:
                os.kill(self.pid, signum)
                return True
            return False
        try:
            # The handle is taken first and the start time read after it: from then on the
            # signal reaches the process that was looked at, or none.
            handle = os.pidfd_open(self.pid)
        except ProcessLookupError:
            return False
        try:
            if not self.alive:
                return False
            signal.pidfd_send_signal(handle, signum)
            return True
        except ProcessLookupError:
            return False
        finally:
            os.close(handle)


def process(pid: int) -> Process | None:
    """Return a running process; None if there is none, or only a zombie."""
    fields = _stat(pid)
    return None if fields is None or fields[2] == "Z" else Process(pid, int(fields[21]), fields[1])


def _stat(pid: int) -> list[str] | None:
    try:
        with open(f"/proc/{pid}/stat", encoding="utf-8", errors="replace") as file:
            text = file.read()
    except OSError:
        return None
    # The name stands in parentheses and may itself hold some, and spaces.
    head, _, rest = text.rpartition(")")
    number, _, name = head.partition("(")
    return [number.strip(), name, *rest.split()]


def descendants(pid: int) -> list[Process]:
    """Return the running children of a process, their children, and so on."""
    children: dict[int, list[Process]] = {}
    for entry in os.listdir("/proc") if os.path.isdir("/proc/self") else []:
        fields = _stat(int(entry)) if entry.isdigit() else None
        if fields is not None and fields[2] != "Z":
            child = Process(int(entry), int(fields[21]), fields[1])
            children.setdefault(int(fields[3]), []).append(child)
    found: list[Process] = []
    parents = [pid]
    while parents:
        for child in children.get(parents.pop(), []):
            if not any(name in _command(child.pid) for name in _NOT_THE_ENGINE):
                found.append(child)
                parents.append(child.pid)
    return found


def _command(pid: int) -> bytes:
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:
        return b""


def end(processes: Iterable[Process], patience_s: float = 5.0) -> list[Process]:
    """End processes: ask, wait, then insist.

    Parameters
    ----------
    processes : iterable of Process
        Those that have ended already are passed over.
    patience_s : float
        Seconds to wait for the polite way; 0 to insist at once.

    Returns
    -------
    list of Process
        Those that live on, because they belong to somebody else or hang in the kernel.
    """
    left = [p for p in processes if p.alive]
    for signum, seconds in ((signal.SIGTERM, patience_s), (signal.SIGKILL, 5.0)):
        if not left or (signum == signal.SIGTERM and patience_s <= 0):
            continue
        for each in left:
            with suppress(PermissionError):
                each.send(signum)
        deadline = time.monotonic() + seconds
        while left and time.monotonic() < deadline:
            time.sleep(0.02)
            left = [p for p in left if p.alive]
    return left


class ProcessFile:
    """The note that one run keeps of its engine's processes.

    Parameters
    ----------
    beside : Path
        What such notes are called, as ``aime.sqlite.processes.json``. Each run adds a word of
        its own to the name, because several may use one store.
    """

    def __init__(self, beside: Path) -> None:
        self.beside = beside
        self.owner = process(os.getpid())
        who = self.owner and (self.owner.pid, self.owner.started)
        mine = hashlib.blake2b(repr((_here(), who)).encode(), digest_size=4).hexdigest()
        self.path = beside.with_name(f"{beside.stem}.{mine}{beside.suffix}")

    def write(self, processes: Collection[Process]) -> None:
        """Note the processes, replacing what was noted; without any, remove the note."""
        if self.owner is None or not processes:
            self.remove()
            return
        note = {**_here(), "owner": asdict(self.owner), "processes": [asdict(p) for p in processes]}
        try:
            write_atomic(self.path, json.dumps(note).encode("ascii"), parents=False)
        except OSError as error:
            log.debug("the engine's processes could not be noted: %s", error)

    def remove(self) -> None:
        """Remove the note, if there is one and this process wrote it."""
        if self.owner is not None and self.owner.pid == os.getpid():
            with suppress(OSError):
                self.path.unlink(missing_ok=True)


def end_leftovers(beside: Path, patience_s: float = 3.0) -> list[Process]:
    """End the engine processes of runs that were killed, and remove their notes.

    Only a process whose id, start time, boot and namespace are those of a note is ended, with
    its own children, and only if the run that wrote the note is gone, so that the process is
    nobody's child any more.

    Parameters
    ----------
    beside : Path
        What such notes are called, see `ProcessFile`.
    patience_s : float
        Seconds to wait before insisting.

    Returns
    -------
    list of Process
        Those that were ended.
    """
    ended: list[Process] = []
    pattern = f"{glob.escape(beside.stem)}.*{glob.escape(beside.suffix)}"
    for path in sorted(beside.parent.glob(pattern)):
        note = _read(path)
        if note is None or (orphans := _orphans(note)) is None:
            continue
        left = end(orphans, patience_s)
        ended += [p for p in orphans if p not in left]
        if left:
            log.warning(
                "processes %s of an engine that a killed run left behind cannot be ended; they "
                "may hold the accelerator's memory",
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


def _orphans(note: dict[str, Any]) -> list[Process] | None:
    """Return the processes of a note that may be ended; None if the note is none of ours."""
    here = _here()
    if note["host"] != here["host"]:
        return None
    if note["boot"] != here["boot"]:
        return []  # the computer was started again: nothing of it is left
    if note["namespace"] != here["namespace"] or Process(**note["owner"]).alive:
        return None
    left = [p for p in (Process(**each) for each in note["processes"]) if p.alive]
    family = {q.pid: q for p in left for q in [p, *descendants(p.pid)]}
    return list(family.values())


def _read(path: Path) -> dict[str, Any] | None:
    try:
        note = json.loads(path.read_text(encoding="utf-8"))
        Process(**note["owner"])
        [Process(**each) for each in note["processes"]]
        return {"host": str(note["host"]), **note} if note["boot"] and note["namespace"] else None
    except (OSError, ValueError, TypeError, LookupError):
        return None  # somebody else's file


def _here() -> dict[str, str]:
    """Return what process ids are relative to."""
    try:
        boot = Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip()
        namespace = os.readlink("/proc/self/ns/pid")
    except OSError:
        boot = namespace = "unknown"
    return {"host": platform.node(), "boot": boot, "namespace": namespace}
