"""Waiting for what another thread or process does."""

from __future__ import annotations

import time
from pathlib import Path

#: Seconds after which nothing is waited for any more: many times what a busy machine needs.
PATIENCE_S = 1500.0


def wait_until(condition):
    """Return once a condition holds."""
    deadline = time.monotonic() + PATIENCE_S
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.01)


def is_alive(pid):
    """Whether a process runs; one that only waits to be reaped does not."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_bytes()
    except OSError:
        return False
    return stat.rpartition(b")")[2].split()[0] not in (b"Z", b"X")


def wait_until_gone(pids):
    """Return once none of the processes runs."""
    wait_until(lambda: not any(map(is_alive, pids)))
