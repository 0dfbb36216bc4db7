"""Paths of stores: what exists at a path, network file systems, and the write-ahead log.

The log is a header of 32 bytes and frames of 24 bytes and a page, with cumulative checksums
(https://www.sqlite.org/fileformat2.html#walformat). SQLite reads it up to the first frame with
another checksum, without a word, and removes it.
"""

from __future__ import annotations

import os
import re
import sqlite3
import time
from os import PathLike
from pathlib import Path

import numpy as np
import numpy.typing as npt

from lm_eval_bayes._util.files import irregular_kind
from lm_eval_bayes._util.sqlite import has_store_header
from lm_eval_bayes._util.text import plural
from lm_eval_bayes.store.errors import NotAStoreError, StoreFileError

MOUNTS = "/proc/mounts"

_KERNEL = """
9p acfs afs auristorfs beegfs beegfs_nodev ceph cifs coda cvfs davfs fhgfs gfs gfs2 glusterfs gpfs
lustre lustre_lite mfs ncpfs nfs nfs4 ocfs2 orangefs panfs prl_fs pvfs2 smb2 smb3 smbfs vboxsf
virtiofs vmhgfs weka wekafs
"""
_FUSE = """
ceph ceph-fuse cvmfs davfs davfs2 gcsfuse glusterfs goofys juicefs mfs moosefs orangefs rclone s3fs
s3ql seaweedfs smbnetfs sshfs vmhgfs-fuse
"""

#: File systems that several computers use. The index of SQLite's write-ahead log is in memory that
#: only processes of one computer share, and locks on these file systems are often not reliable.
NETWORK = frozenset(_KERNEL.split()) | {f"fuse.{name}" for name in _FUSE.split()}

#: A store's name, and what is added to it.
_COMPANION = re.compile(r"(.+)(?:-wal|-shm|-journal|\.processes(?:\.\w+)?\.json)")


def is_store(path: Path) -> bool:
    """Whether `path` is a trial store, which may be damaged; False if nothing exists there.

    Raises
    ------
    NotAStoreError
        If it is something else.
    StoreFileError
        If it cannot be opened, or its folder is missing.
    """
    kind = irregular_kind(path)
    if kind is not None:
        raise NotAStoreError(f"{path} is {kind}, not a trial store")
    try:
        size = path.stat().st_size
        exists = has_store_header(path)
    except FileNotFoundError:
        if not path.parent.is_dir():
            raise StoreFileError(
                f"{path} cannot be opened: there is no folder {path.parent}", "path", "store", path
            ) from None
        return False
    except (OSError, sqlite3.OperationalError) as error:
        reason = getattr(error, "strerror", error)
        raise StoreFileError(
            f"{path} cannot be opened: {reason}", "failed", "store", path
        ) from error
    if not exists:
        empty = "" if size else ": it is empty"
        raise NotAStoreError(f"{path} is not a trial store{empty}")
    return True


def store_of(path: Path) -> Path | None:
    """Return the store beside `path` that it is a part or a companion of; None if it is of none.

    These are the files that SQLite keeps beside a store while it is used, and the list of the
    processes of an engine.
    """
    match = _COMPANION.fullmatch(path.name)
    if match is None:
        return None
    store = path.with_name(match[1])
    try:
        return store if is_store(store.resolve()) else None
    except (NotAStoreError, OSError):
        return None


def network_file_system(path: str | PathLike[str]) -> str | None:
    """Return the type of the network file system that `path` is on.

    None is known where there is no table of mounts, as on macOS and Windows.

    Parameters
    ----------
    path : path
        A path, which need not exist.

    Returns
    -------
    str or None
        The type, such as ``nfs4`` or ``fuse.sshfs``; None for a local or unknown file system.
    """
    real = os.path.realpath(os.fsdecode(path))
    try:
        with open(MOUNTS, encoding="utf-8", errors="surrogateescape") as table:
            lines = table.read().splitlines()
    except OSError:
        return None
    longest, kind = "", None
    for line in lines:
        fields = line.split(" ")
        if len(fields) < 3:
            continue
        point = _unescaped(fields[1])
        inside = real == point or real.startswith(point.rstrip("/") + "/")
        # Of two mounts on one point, the later one is visible.
        if inside and len(point) >= len(longest):
            longest, kind = point, fields[2]
    return kind if kind is not None and kind.lower() in NETWORK else None


def network_warning(path: str | PathLike[str]) -> str | None:
    """Return a warning if `path` is on a network file system, else None."""
    kind = network_file_system(path)
    if kind is None:
        return None
    return (
        f"{os.fsdecode(path)} is on a network file system ({kind}), where SQLite "
        "cannot coordinate several computers: this process uses it alone, without a write-ahead "
        "log; let each process write its own file, preferably on a local disk, and merge them "
        "with `lm-eval-bayes store merge`"
    )


def _unescaped(field: str) -> str:
    # The table has spaces, tabs, newlines and backslashes as octal escapes.
    return re.sub(r"\\([0-7]{3})", lambda match: chr(int(match.group(1), 8)), field)


def log_of(path: Path) -> Path:
    """Return the path of a store's write-ahead log."""
    return path.with_name(f"{path.name}-wal")


def log_bytes(path: Path) -> int:
    """Return the size of a store's write-ahead log, 0 if it has none."""
    try:
        return log_of(path).stat().st_size
    except OSError:
        return 0


def damaged_log(path: Path) -> str | None:
    """Return a sentence about commits that SQLite would drop from a store's log, None without any.

    Raises
    ------
    StoreFileError
        If the log cannot be read.
    """
    log = log_of(path)
    try:
        n_intact, n_lost = read_log(log)
        if n_lost:
            # again, as another process may have been writing it: then more frames are intact now
            time.sleep(0.05)
            n_intact_again, n_lost = read_log(log)
    except FileNotFoundError:
        return None
    except OSError as error:
        raise StoreFileError(
            f"{log} cannot be read: {error.strerror}", "failed", "store", log
        ) from error
    if not n_lost or n_intact_again != n_intact:
        return None
    return f"{log} is damaged: at least {plural(n_lost, 'commit')} behind the damage cannot be read"


def read_log(log: Path) -> tuple[int, int]:
    """Return how many frames of a log are intact, and how many commits lie behind them.

    Frames with other salts than the header's are left from an earlier use of the file. A kill may
    cut off a frame, which is then not complete, or has frames of an earlier use behind it.
    """
    data = np.frombuffer(log.read_bytes(), np.uint8)
    if data.size < 32:
        return 0, 0
    order, salts = (">" if data[3] & 1 else "<"), data[16:24]
    start = _checksums(data[None, :24], order, (0, 0))
    if (start != data[24:32].view(">u4")).any():
        return 0, int(data.size > 32)  # its salts do not tell which frames are of its last use
    size = 24 + int(data[8:12].view(">u4")[0])
    n_frames = (data.size - 32) // size
    frames = data[32 : 32 + n_frames * size].reshape(n_frames, size)
    is_of_last_use = (frames[:, 8:16] == salts).all(axis=1)
    ends_commit = frames[:, 4:8].any(axis=1)
    states = _checksums(np.delete(frames, np.s_[8:24], axis=1), order, tuple(start[0].tolist()))
    stored = np.ascontiguousarray(frames[:, 16:24]).view(">u4")
    is_intact = is_of_last_use & (states == stored).all(axis=1)
    n_intact = int(np.append(is_intact, False).argmin())
    is_last = n_intact == n_frames - 1 and data.size == 32 + n_frames * size
    n_kept = n_intact if is_last else n_intact + 1
    return n_intact, int((is_of_last_use & ends_commit)[n_kept:].sum())


def _checksums(
    blocks: npt.NDArray[np.uint8], order: str, start: tuple[int, int]
) -> npt.NDArray[np.uint32]:
    """Return the checksum after each of several blocks of bytes, shape (n, 2).

    With words w, both numbers of a checksum are sums modulo 2**32: first += w[i] + second, then
    second += w[i + 1] + first. So each word counts with a Fibonacci number.
    """
    words = np.ascontiguousarray(blocks).view(f"{order}u4").astype(np.uint32)
    fibonacci = [0, 1]
    while len(fibonacci) < words.shape[1] + 2:
        fibonacci.append((fibonacci[-1] + fibonacci[-2]) % 2**32)
    weights = np.array(fibonacci[::-1], np.uint32)
    sums = np.stack([words @ weights[2:], words @ weights[1:-1]], axis=1)
    (c, b, a), (x, y) = fibonacci[:-4:-1], start
    states = np.empty_like(sums)
    for i, (first, second) in enumerate(sums.tolist()):
        x, y = (a * x + b * y + first) % 2**32, (b * x + c * y + second) % 2**32
        states[i] = x, y
    return states
