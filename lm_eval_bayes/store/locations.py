"""Paths of stores: what exists at a path, how a store is created, and network file systems."""

from __future__ import annotations

import os
import re
import sqlite3
from os import PathLike
from pathlib import Path

from lm_eval_bayes._util.files import irregular_kind
from lm_eval_bayes._util.sqlite import has_store_header
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


def log_bytes(path: Path) -> int:
    """Return the size of a store's write-ahead log, 0 if it has none."""
    try:
        return path.with_name(path.name + "-wal").stat().st_size
    except OSError:
        return 0


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
