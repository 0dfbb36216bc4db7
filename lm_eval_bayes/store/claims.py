"""Claims of blocks of work by processes that share a folder.

Each process that works writes a file of its own again and again, its heartbeat, and claims a block
by creating a file. Creation is exclusive also on NFS (a hard link to a finished file), and neither
locks nor clocks of different computers are compared. A claim is valid as long as its process lives:
it has expired once the heartbeat has not changed for the length of a lease, as this process itself
observed it, or if its process has said that it ended or is known to be gone from this computer.
An expired claim is taken over by creating the file of the next generation, which again only one
process can.

The folder has ``workers/WORKER.json``, the heartbeats, and ``claims/BLOCK.GENERATION`` with the
name of the worker. Files are created and heartbeats replaced, and nothing is removed. What is no
regular file, or holds something else, is of an unknown worker, whose claims expire.
"""

from __future__ import annotations

import errno
import json
import os
import platform
import re
import secrets
import threading
import time
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from lm_eval_bayes._util.files import write_atomic
from lm_eval_bayes._util.processes import Process, process, process_scope
from lm_eval_bayes.errors import InvalidInputError
from lm_eval_bayes.stats.validation import as_real
from lm_eval_bayes.store.errors import StoreFileError

#: Seconds without a change of its heartbeat after which a process has lost its claims.
LEASE_S = 120.0
#: The shortest lease: a heartbeat takes a write to a shared folder.
SHORTEST_LEASE_S = 0.5

#: Heartbeats in a lease.
_BEATS = 6
#: The time between two looks at a heartbeat counts at most as this share of the lease: whoever did
#: not look, or could not because the file system hung, has not seen that nothing changed.
_LONGEST_GAP = 0.25

_GOES_ON = "the trials sampled so far are stored, and the same command goes on from them"

_UNKNOWN = "unknown-"
_CLAIM = re.compile(r"(\d+)\.(\d+)")
_WORKER = re.compile(r"([\w-]+)-(\d+)-[0-9a-f]{8}", re.ASCII)


@dataclass
class _Observed:
    """What was seen of a worker: its heartbeat, for how long unchanged, and when last."""

    heartbeat: str
    unchanged_s: float
    looked: float


class Claims:
    """The claims of this process, and its view of those of others.

    Use it as a context manager: the heartbeat runs in a thread until :meth:`close`.

    Parameters
    ----------
    folder : Path
        The folder that the processes share; it is created. All of them must mean the same work by
        the number of a block, so the folder belongs to one list of work.
    lease_s : float
        The lease in seconds. Between two processes the longer of their leases counts.
    clock : callable
        Returns seconds that never run backwards.

    Attributes
    ----------
    worker : str
        The name of this process, which no other has.
    n_workers : int
        The number of processes that were at work at the last look, with this one.
    """

    def __init__(
        self, folder: Path, lease_s: float = LEASE_S, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self.lease_s, self._clock = check_lease("lease_s", lease_s), clock
        self._claims, self._workers = folder / "claims", folder / "workers"
        for path in (self._claims, self._workers):
            with _in_sentence(folder):
                path.mkdir(parents=True, exist_ok=True)
        host = re.sub(r"[^A-Za-z0-9-]", "_", platform.node())[:40] or "host"
        self.worker = f"{host}-{os.getpid()}-{secrets.token_hex(4)}"
        self._scope, self._process = process_scope(), process(os.getpid())
        self._held: dict[int, int] = {}
        # generation and worker of the last known claim of each block
        self._latest: dict[int, tuple[int, str]] = {}
        self._observed: dict[str, _Observed] = {}
        self._gone: set[str] = set()
        self._overruled: set[str] = set()
        self.n_workers = 1
        self._lock = threading.Lock()
        self._beats, self._last_beat = 0, -float("inf")
        self._closing = threading.Event()
        self._thread = threading.Thread(
            target=self._beat_on, name="lm-eval-bayes-heartbeat", daemon=True
        )

    def __enter__(self) -> Claims:
        self.beat()
        self._thread.start()
        self.refresh()
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def close(self) -> None:
        """End the heartbeat, and tell the others that the claims of this process are free."""
        self._closing.set()
        if self._thread.is_alive():
            self._thread.join()
        with suppress(StoreFileError):  # without it they wait for the lease
            self._write_heartbeat(ended=True)

    # -- claims ------------------------------------------------------------------------------

    def refresh(self) -> None:
        """Look at the claims and the heartbeats of all processes.

        Raises
        ------
        StoreFileError
            If the folder cannot be read.
        """
        with self._lock, _in_sentence(self._claims.parent):
            names = os.listdir(self._claims)
            workers = [
                name.removesuffix(".json")
                for name in os.listdir(self._workers)
                if name.endswith(".json") and _WORKER.fullmatch(name.removesuffix(".json"))
            ]
            self._check_held(names)
            for name in names:
                match = _CLAIM.fullmatch(name)
                if match is not None:
                    self._note(int(match[1]), int(match[2]))
            owners = {worker for _, worker in self._latest.values()}
            self._gone = {worker for worker in owners.union(workers) if self._is_gone(worker)}
            self._gone |= self._overruled
            self.n_workers = len({*workers, self.worker} - self._gone)

    def _check_held(self, names: Collection[str]) -> None:
        """Refuse to go on if claims of this process were removed: others may have taken the work.

        Raises
        ------
        StoreFileError
            If one of them is missing.
        """
        present = set(names)
        for block, generation in self._held.items():
            path = self._path(block, generation)
            if path.name not in present and not path.exists():
                raise StoreFileError(
                    f"the folder of claims {self._claims.parent} cannot be used: {path.name} was "
                    f"removed while this process uses it; {_GOES_ON}"
                )

    def owner(self, block: int) -> str | None:
        """Return the worker of the last known claim of a block."""
        return self._latest[block][1] if block in self._latest else None

    def overrule(self, worker: str, overruled: bool = True) -> bool:
        """From the next look on, take the claims of another process as expired though it lives.

        Returns
        -------
        bool
            Whether this changes something.
        """
        if overruled == (worker in self._overruled):
            return False
        (self._overruled.add if overruled else self._overruled.discard)(worker)
        return True

    def is_new(self, block: int) -> bool:
        """Return whether no claim of the block is known."""
        return block not in self._latest

    def is_expired(self, block: int) -> bool:
        """Return whether the last claim of the block had expired at the last look."""
        _, worker = self._latest.get(block, (0, ""))
        return block in self._latest and worker in self._gone

    def claim(self, block: int, only_new: bool = False) -> bool:
        """Claim a block that is new or whose claim has expired.

        Parameters
        ----------
        block : int
            The number of the block.
        only_new : bool
            Claim it only if nobody has claimed it yet. What a process whose claim has expired did
            in a block must be read after the claim: a caller that does not read it needs this,
            for a look in another thread may come between :meth:`is_new` and the claim.

        Returns
        -------
        bool
            Whether this process holds it now; also where it did before, but with `only_new`.

        Raises
        ------
        StoreFileError
            If the file of the claim cannot be written.
        """
        with self._lock, _in_sentence(self._claims.parent):
            generation, worker = self._latest.get(block, (-1, ""))
            if only_new and generation >= 0:
                return False
            if worker == self.worker:
                return True
            if generation >= 0 and worker not in self._gone:
                return False
            path = self._path(block, generation + 1)
            created = write_atomic(path, self.worker.encode(), replace=False, parents=False)
            # An NFS server may have created the link although its answer was lost.
            if created or self._read_claim(path) == self.worker:
                self._held[block] = generation + 1
                self._latest[block] = generation + 1, self.worker
                return True
            self._note(block, generation + 1)
            return False

    def holds(self, block: int) -> bool:
        """Return whether this process still holds a block: nobody has taken it over.

        Raises
        ------
        StoreFileError
            If the heartbeat has failed for half of the lease, and fails again.
        """
        if block not in self._held:
            return False
        if self._clock() - self._last_beat > 0.5 * self.lease_s:
            self.beat()  # this process was stopped; from now on nobody takes its claims
        if not self._path(block, self._held[block] + 1).exists():
            return True
        with self._lock:
            self._note(block, self._held.pop(block) + 1)
        return False

    def _path(self, block: int, generation: int) -> Path:
        return self._claims / f"{block:06d}.{generation}"

    def _note(self, block: int, generation: int) -> None:
        """Record a claim that exists, unless a later one is known."""
        known, worker = self._latest.get(block, (-1, ""))
        if generation > known or (generation == known and worker.startswith(_UNKNOWN)):
            self._latest[block] = generation, self._read_claim(self._path(block, generation))
            if self._held.get(block, generation) < generation:
                del self._held[block]

    @staticmethod
    def _read_claim(path: Path) -> str:
        """Return the worker of a claim, unknown while a system without hard links writes it."""
        worker = _text_of(path)
        return worker if _WORKER.fullmatch(worker) else f"{_UNKNOWN}{path.name}"

    # -- heartbeats --------------------------------------------------------------------------

    def beat(self) -> None:
        """Write the heartbeat.

        Raises
        ------
        StoreFileError
            If it cannot be written.
        """
        before = self._clock()
        self._write_heartbeat()
        self._last_beat = before

    def _beat_on(self) -> None:
        while not self._closing.wait(self.lease_s / _BEATS):
            # The next one may succeed. If none does, `holds` raises the error.
            with suppress(StoreFileError):
                self.beat()

    def _write_heartbeat(self, ended: bool = False) -> None:
        self._beats += 1
        content: dict[str, Any] = {"beat": self._beats, "lease_s": self.lease_s, "ended": ended}
        if self._scope is not None and self._process is not None:
            content |= {**self._scope, "process": self._process.to_dict()}
        path = self._workers / f"{self.worker}.json"
        with _in_sentence(self._claims.parent):
            write_atomic(path, json.dumps(content).encode(), parents=False)

    def _is_gone(self, worker: str) -> bool:
        """Return whether a process has lost its claims, as far as this one has observed it."""
        if worker == self.worker:
            return False
        now = self._clock()
        try:
            heartbeat = _text_of(self._workers / f"{worker}.json")
        except OSError as error:
            if error.errno != errno.ESTALE:  # on NFS: it was replaced while it was read
                raise
            return False
        lease_s = self.lease_s
        try:
            content = json.loads(heartbeat)
            lease_s = max(lease_s, check_lease("lease_s", content["lease_s"]))
            if content["ended"] or self._has_died_here(content):
                return True
        except (ValueError, TypeError, LookupError, RecursionError):
            pass  # not one of these files, so only the time counts
        seen = self._observed.get(worker)
        if seen is None or seen.heartbeat != heartbeat:
            self._observed[worker] = _Observed(heartbeat, 0.0, now)
            return False
        seen.unchanged_s += min(now - seen.looked, _LONGEST_GAP * lease_s)
        seen.looked = now
        return seen.unchanged_s >= lease_s

    def _has_died_here(self, content: dict[str, Any]) -> bool:
        """Return whether a process of this computer has ended, which needs no lease to know."""
        scope = self._scope
        if scope is None or any(content.get(name) != scope[name] for name in ("host", "boot")):
            return False
        if content["namespace"] != scope["namespace"]:
            return False
        return not Process(**content["process"]).alive


def place_of(worker: str) -> str:
    """Return the process and the computer of a worker, for messages.

    Examples
    --------
    >>> place_of("node7-4711-0a1b2c3d"), place_of("unknown-000003.0")
    ('process 4711 on node7', 'an unknown process')
    """
    match = _WORKER.fullmatch(worker)
    return "an unknown process" if match is None else f"process {match[2]} on {match[1]}"


def _text_of(path: Path) -> str:
    """Return the text of a regular file; "" if there is none."""
    if not path.is_file():
        return ""
    try:
        return path.read_text(encoding="utf-8", errors="replace")
    except FileNotFoundError:
        return ""


@contextmanager
def _in_sentence(folder: Path) -> Iterator[None]:
    """Raise errors of the system as errors of the folder of claims."""
    try:
        yield
    except StoreFileError:
        raise
    except OSError as error:
        raise StoreFileError(
            f"the folder of claims {folder} cannot be used: {error.strerror}; {_GOES_ON}"
        ) from error


def check_lease(name: str, seconds: object) -> float:
    """Return a lease in seconds.

    Raises
    ------
    InvalidInputError
        If it is no number of at least half a second.
    """
    number = as_real(seconds)
    if number is None or not SHORTEST_LEASE_S <= number < float("inf"):
        raise InvalidInputError.of(
            name, "choice", f"be a number of seconds of at least {SHORTEST_LEASE_S}", seconds
        )
    return number
