"""Processes of an inference engine: identified, ended when orphaned and on signals.

An engine runs in processes of its own. When the run that started them is killed, they may stay
alive and hold the accelerator's memory, which the resumed run needs. So a run records its
engine's processes in a small file beside its store, and the next run ends those that are left.
Process ids are reused; an id together with the start time, the boot and the namespace is not.
On Linux alone: elsewhere nothing is recorded and no orphan is ended.

The sockets in the file system through which an engine is reached stay in the temporary folder when
its processes are killed. They are recorded too, by path and inode, and the next run removes them.

An engine's processes also die with their parent, and SIGINT and SIGTERM shut the engine down.
"""

from __future__ import annotations

import ctypes
import glob
import hashlib
import json
import multiprocessing
import os
import signal
import stat
import sys
import threading
import time
from collections.abc import Callable, Collection, Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from types import FrameType
from typing import Any

import psutil

from lm_eval_bayes._util.files import write_atomic
from lm_eval_bayes._util.plain import Record
from lm_eval_bayes._util.processes import Process, process, process_record, process_scope
from lm_eval_bayes.harness import get_logger
from lm_eval_bayes.harness.plugin import patches

log = get_logger(__name__)

#: Helpers of Python's multiprocessing, which end with the last process that uses them.
_NOT_THE_ENGINE = ("multiprocessing.resource_tracker", "multiprocessing.forkserver")


def descendants(pid: int) -> list[Process]:
    """Return the running children of a process, their children, and so on."""
    running: list[Process] = []
    parents = [pid]
    while parents:
        with suppress(psutil.NoSuchProcess):
            for child in psutil.Process(parents.pop()).children():
                with suppress(psutil.NoSuchProcess):
                    record = process_record(child)
                    if record is not None and not _is_helper(child):
                        running.append(record)
                        parents.append(record.pid)
    return running


def _is_helper(handle: psutil.Process) -> bool:
    with suppress(psutil.AccessDenied):
        command = " ".join(handle.cmdline())
        return any(name in command for name in _NOT_THE_ENGINE)
    return False


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


@dataclass(frozen=True)
class SocketFile(Record):
    """A socket in the file system, identified by its path, device and inode.

    Attributes
    ----------
    path : str
        Its path.
    device, inode : int
        The numbers of the file system and the file.
    changed : float
        When the file was last changed, in seconds since 1970: inodes are reused.
    """

    path: str
    device: int
    inode: int
    changed: float

    @classmethod
    def at(cls, path: str) -> SocketFile | None:
        """Return the socket at a path; None if there is none."""
        try:
            status = os.lstat(path)
        except OSError:
            return None
        if not stat.S_ISSOCK(status.st_mode):
            return None
        return cls(path, status.st_dev, status.st_ino, status.st_ctime)

    def remove(self) -> None:
        """Remove this very file, if it exists."""
        if SocketFile.at(self.path) == self:
            with suppress(OSError):
                os.unlink(self.path)


def sockets_of(processes: Iterable[Process]) -> set[SocketFile]:
    """Return the socket files that processes have bound."""
    sockets: set[SocketFile] = set()
    for running in processes:
        with suppress(psutil.NoSuchProcess, psutil.AccessDenied):
            handle = psutil.Process(running.pid)
            # psutil 6 renamed it
            connections = getattr(handle, "net_connections", None) or handle.connections
            paths = {connection.laddr for connection in connections(kind="unix")}
            found = (SocketFile.at(p) for p in paths if isinstance(p, str) and os.path.isabs(p))
            sockets.update(socket for socket in found if socket is not None)
    return sockets


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
        self._scope = process_scope()
        owner = self.owner and (self.owner.pid, self.owner.started)
        identity = repr((self._scope, owner)).encode()
        suffix = hashlib.blake2b(identity, digest_size=4).hexdigest()
        self.path = base.with_name(f"{base.stem}.{suffix}{base.suffix}")

    def write(self, processes: Collection[Process], sockets: Collection[SocketFile] = ()) -> None:
        """Record processes and sockets in place of earlier ones; without any, remove the file."""
        if self.owner is None or self._scope is None or not (processes or sockets):
            self.remove()
            return
        content = {
            **self._scope,
            "owner": self.owner.to_dict(),
            "processes": [p.to_dict() for p in processes],
            "sockets": [s.to_dict() for s in sockets],
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


def end_leftovers(base: Path) -> list[Process]:
    """End the engine processes of runs that were killed, and remove what they left.

    A process is ended, with its children, only if its id, start time, boot and namespace are
    the recorded ones and the run that recorded it is gone. Then the recorded sockets are removed,
    each if it is the recorded file, and the file that records both.

    Parameters
    ----------
    base : Path
        The common name of the files, see `ProcessFile`.

    Returns
    -------
    list of Process
        Those that were ended.
    """
    ended: list[Process] = []
    pattern = f"{glob.escape(base.stem)}.*{glob.escape(base.suffix)}"
    for path in sorted(base.parent.glob(pattern)):
        found = _orphans(path)
        if found is None:
            continue
        orphans, sockets = found
        left = end(orphans, patience_s=3.0)
        ended += [p for p in orphans if p not in left]
        if left:
            log.warning(
                "processes %s of the engine of a killed run cannot be ended; they may hold the "
                "accelerator's memory",
                ", ".join(str(p.pid) for p in left),
            )
        else:
            for socket in sockets:
                socket.remove()
            with suppress(OSError):
                path.unlink(missing_ok=True)
    if ended:
        log.warning(
            "ended %d processes of an engine that a killed run had left behind (%s)",
            len(ended),
            ", ".join(f"{p.name} {p.pid}" for p in ended),
        )
    return ended


def _orphans(path: Path) -> tuple[list[Process], list[SocketFile]] | None:
    """Return the processes of a file that may be ended, and the sockets that may be removed.

    None if the file must stay.
    """
    scope = process_scope()
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
        owner, *recorded = [Process(**p) for p in (content["owner"], *content["processes"])]
        sockets = [SocketFile(**s) for s in content.get("sockets", [])]
        host, boot, namespace = (content[name] for name in ("host", "boot", "namespace"))
    except (OSError, ValueError, TypeError, LookupError, AttributeError):
        return None  # not one of these files
    if scope is None or host != scope["host"] or not (boot and namespace):
        return None
    if boot != scope["boot"]:
        return [], sockets  # the computer was restarted, so no process is left
    if namespace != scope["namespace"] or owner.alive:
        return None
    left = [p for p in recorded if p.alive]
    return list({q.pid: q for p in left for q in [p, *descendants(p.pid)]}.values()), sockets


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
