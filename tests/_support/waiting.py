"""Waiting for what another thread or process does."""

from __future__ import annotations

import time

#: Seconds after which nothing is waited for any more: many times what a busy machine needs.
PATIENCE_S = 300.0


def wait_until(condition):
    """Return once a condition holds."""
    deadline = time.monotonic() + PATIENCE_S
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.01)
