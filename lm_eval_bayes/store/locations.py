"""What lies at a path, found out without touching it, and new files that appear whole."""

from __future__ import annotations

import os
import re
import sqlite3
import stat
import time
from collections.abc import Callable
from contextlib import closing, suppress
from os import PathLike
from pathlib import Path

from lm_eval_bayes._util.files import publish, temporary_name
from lm_eval_bayes._util.sqlite import CORRUPT, TRIAL_STORE_ID, connect_unlocked, primary_code
from lm_eval_bayes.store.errors import NotAStoreError, StoreDamagedError, StoreFileError

#: Bytes of an SQLite file's header.
HEADER = 100

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

#: File systems that other computers reach too. SQLite's write-ahead log keeps an index in memory
#: that processes share and computers do not, and locks on them are often only pretended.
NETWORK = frozenset(_KERNEL.split()) | {f"fuse.{name}" for name in _FUSE.split()}

#: How often a file that seems torn is looked at, and the seconds between two looks.
_LOOKS, _BETWEEN_LOOKS_S = 20, 0.01


def is_store(path: Path) -> bool:
    """Whether a trial store is at `path`; False where there is nothing yet.

    Raises
    ------
    NotAStoreError
        If something else is there.
    StoreFileError
        If nothing can be there, because the folder is missing or closed to us.
    """
    try:
        status = path.stat()
    except FileNotFoundError:
        if not path.parent.is_dir():
            raise StoreFileError(
                f"{path} cannot be opened: there is no folder {path.parent}"
            ) from None
        return False
    except OSError as error:
        raise StoreFileError(f"{path} cannot be opened: {error.strerror}") from error
    if stat.S_ISDIR(status.st_mode):
        raise NotAStoreError(f"{path} is a directory, not a trial store")
    if not stat.S_ISREG(status.st_mode):
        raise NotAStoreError(f"{path} is not a regular file, so it is no trial store")
    if status.st_size == 0:
        raise NotAStoreError(
            f"{path} is an empty file, not a trial store: remove it or choose another name"
        )
    _check_application(path)
    return True


def store_at(path: Path) -> bool:
    """Whether a trial store is at `path`, see :func:`is_store`.

    Raises
    ------
    StoreDamagedError
        Also where an SQLite file is cut off before it tells whose it is.
    """
    try:
        return is_store(path)
    except NotAStoreError as error:
        # Without a cause: SQLite itself took the first bytes for those of a file of its own.
        if error.__cause__ is None and path.is_file():
            size = path.stat().st_size
            if 0 < size < HEADER:
                raise StoreDamagedError(
                    f"{path} is damaged: it is cut off after its first {size} bytes"
                ) from error
        raise


def log_bytes(path: Path) -> int:
    """Return the size of the write-ahead log beside a store, 0 where there is none."""
    try:
        return path.with_name(path.name + "-wal").stat().st_size
    except OSError:
        return 0


def _check_application(path: Path) -> None:
    """Refuse files of other applications, and ours where it was cut short."""
    try:
        found, whole = _settled(path)
    except sqlite3.OperationalError as error:
        raise StoreFileError(f"{path} cannot be opened: {error}") from error
    except sqlite3.DatabaseError as error:
        if primary_code(error) == CORRUPT:
            raise StoreDamagedError(
                f"{path} is a damaged SQLite file, perhaps cut short: {error}"
            ) from error
        raise NotAStoreError(f"{path} is not a trial store: {error}") from error
    if found not in (TRIAL_STORE_ID, None):
        raise NotAStoreError(f"{path} is an SQLite file of another application, not a trial store")
    if not whole:
        raise StoreDamagedError(f"{path} is damaged: its last page is cut short")


def _settled(path: Path) -> tuple[int | None, bool]:
    """Look again where a file seems torn: a last writer may be folding its log in right now."""
    for _ in range(_LOOKS - 1):
        try:
            found, whole = _probe(path)
        except sqlite3.DatabaseError as error:
            if primary_code(error) not in (CORRUPT, 0):
                raise
        else:
            if whole:
                return found, whole
        time.sleep(_BETWEEN_LOOKS_S)
    return _probe(path)


def _probe(path: Path) -> tuple[int | None, bool]:
    """Return the file's application, and whether it ends with a whole page.

    A store whose log was not folded in completely may look torn by itself; then both answers
    are left to SQLite, which opens file and log together: (None, True).
    """
    try:
        with closing(connect_unlocked(path)) as connection:
            found = connection.execute("PRAGMA application_id").fetchone()[0]
            page = connection.execute("PRAGMA page_size").fetchone()[0]
    except sqlite3.DatabaseError:
        if log_bytes(path):
            return None, True
        raise
    return int(found), path.stat().st_size % int(page) == 0 or log_bytes(path) > 0


def create_whole(path: Path, fill: Callable[[Path], None]) -> bool:
    """Make a file under another name and give it its own once it is complete.

    Parameters
    ----------
    path : Path
        The file to be; nothing that is there already is replaced.
    fill : callable
        Writes the file whose path it gets, and closes it.

    Returns
    -------
    bool
        False where somebody else made a file of this name meanwhile.
    """
    temporary = temporary_name(path)
    try:
        fill(temporary)
        return publish(temporary, path)
    except OSError as error:
        if isinstance(error, StoreFileError):
            raise
        raise StoreFileError(f"{path} cannot be created: {error.strerror}") from error
    finally:
        for leftover in ("", "-journal", "-wal", "-shm"):
            with suppress(OSError):
                os.unlink(f"{temporary}{leftover}")


def network_file_system(path: str | PathLike[str], mounts: str | None = None) -> str | None:
    """Return the type of the network file system that `path` is on.

    Parameters
    ----------
    path : path
        It need not exist.
    mounts : str, optional
        The table of mounts, :data:`MOUNTS` by default. Where it cannot be read, as on macOS
        and Windows, only Windows' own names of network shares are known.

    Returns
    -------
    str or None
        Such as ``nfs4`` or ``fuse.sshfs``; None for a local or an unknown file system.
    """
    real = os.path.realpath(os.fsdecode(path))
    if os.path.splitdrive(real)[0].startswith("\\\\"):
        return "network share"
    try:
        with open(mounts or MOUNTS, encoding="utf-8", errors="surrogateescape") as table:
            lines = table.read().splitlines()
    except OSError:
        return None
    best, kind = "", None
    for line in lines:
        fields = line.split(" ")
        if len(fields) < 3:
            continue
        point = _unescaped(fields[1])
        inside = real == point or real.startswith(point.rstrip("/") + "/")
        # Of two mounts on one point the later one is seen.
        if inside and len(point) >= len(best):
            best, kind = point, fields[2]
    return kind if kind is not None and kind.lower() in NETWORK else None


def network_warning(path: str | PathLike[str], mounts: str | None = None) -> str | None:
    """Return a sentence to warn with, or None where there is nothing to warn of."""
    kind = network_file_system(path, mounts)
    if kind is None:
        return None
    return (
        f"{os.fsdecode(path)} is on a network file system ({kind}), where SQLite cannot keep "
        "several computers apart: let each process write a file of its own, best on a local "
        "disk, and merge them afterwards"
    )


def _unescaped(field: str) -> str:
    # The table writes blanks, tabs, newlines and backslashes as octal numbers of bytes.
    return re.sub(r"\\([0-7]{3})", lambda match: chr(int(match.group(1), 8)), field)
