"""Ports for servers that cannot choose one themselves."""

from __future__ import annotations

import random
import socket


def free_port() -> int:
    """Return a port that nothing uses; none of those that the system gives away by itself."""
    while True:
        port = random.SystemRandom().randrange(15_000, 32_000)
        with socket.socket() as probe:
            try:
                probe.bind(("127.0.0.1", port))
            except OSError:
                continue
            return port
