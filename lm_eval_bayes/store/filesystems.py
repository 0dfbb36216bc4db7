"""File systems on which several processes must not share one SQLite file."""

from __future__ import annotations

import os
import re
from os import PathLike

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
