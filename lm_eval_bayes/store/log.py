"""The write-ahead log of a store: its size, and whether commits in it are lost by damage.

The log is a header of 32 bytes and frames of 24 bytes and a page, with cumulative checksums
(https://www.sqlite.org/fileformat2.html#walformat). SQLite reads it up to the first frame with
another checksum, without a word, and removes it.
"""

from __future__ import annotations

import time
from pathlib import Path

import numpy as np
import numpy.typing as npt

from lm_eval_bayes._util.text import plural
from lm_eval_bayes.store.errors import StoreFileError


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
