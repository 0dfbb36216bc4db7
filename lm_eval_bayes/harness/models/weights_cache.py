"""Hashes of big files that were read before, kept in the user's cache folder."""

from __future__ import annotations

import contextlib
import json
import os
import tempfile
import time
from pathlib import Path
from typing import NamedTuple

from lm_eval_bayes._util.hashing import ALGORITHM, hash_text

#: A file that changed this short a time ago may change again within one tick of its clock.
SETTLED_NS = 2_000_000_000


class FileState(NamedTuple):
    """What tells a file that was swapped or rewritten from one that was not."""

    size: int
    mtime_ns: int
    ctime_ns: int
    inode: int
    device: int


def state_of(path: Path) -> FileState:
    """Look at a file without reading it."""
    stat = path.stat()
    return FileState(stat.st_size, stat.st_mtime_ns, stat.st_ctime_ns, stat.st_ino, stat.st_dev)


def cache_folder() -> Path:
    """Return where hashes are kept: ``$XDG_CACHE_HOME`` or ``~/.cache``, in a folder of ours."""
    home = os.environ.get("XDG_CACHE_HOME")
    return (Path(home) if home else Path.home() / ".cache") / "lm-eval-bayes" / "weights"


def cached_digest(path: Path, state: FileState) -> str | None:
    """Return the hash of a file that is unchanged since it was read, else None."""
    real = os.path.realpath(path)
    try:
        known = json.loads(_entry(real).read_bytes())
        same = known["path"] == real and known["state"] == list(state)
        digest = known["digest"]
    except (OSError, ValueError, KeyError, TypeError, RuntimeError):
        return None
    return digest if same and isinstance(digest, str) and digest.startswith(ALGORITHM) else None


def keep_digest(path: Path, state: FileState, digest: str) -> None:
    """Keep the hash of a file that has been at rest for a while; a full disk is no error."""
    if time.time_ns() - max(state.mtime_ns, state.ctime_ns) < SETTLED_NS:
        return
    real = os.path.realpath(path)
    text = json.dumps({"path": real, "state": list(state), "digest": digest})
    with contextlib.suppress(OSError, RuntimeError):
        entry = _entry(real)
        entry.parent.mkdir(parents=True, exist_ok=True)
        handle, draft = tempfile.mkstemp(dir=entry.parent, prefix=".draft-")
        try:
            with os.fdopen(handle, "w", encoding="utf-8", errors="surrogateescape") as file:
                file.write(text)
                file.flush()
                os.fsync(file.fileno())
            os.replace(draft, entry)
        except BaseException:
            with contextlib.suppress(OSError):
                os.unlink(draft)
            raise


def _entry(real: str) -> Path:
    name = hash_text(real).partition(":")[2]
    return cache_folder() / f"{name}.json"
