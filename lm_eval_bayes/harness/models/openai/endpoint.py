"""The line to a server: where it leads, and small things that keep it in order."""

from __future__ import annotations

import inspect
import socket
import ssl
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

#: First sign after a minute of silence, then every quarter; four without a reply end it.
_SIGNS_OF_LIFE = {"TCP_KEEPIDLE": 60, "TCP_KEEPINTVL": 15, "TCP_KEEPCNT": 4}


@dataclass(frozen=True)
class Line:
    """Where a server is and how to speak to it.

    Attributes
    ----------
    url : str
        The address that takes the requests.
    headers : mapping
        With the key; never logged.
    verify : bool
        Whether to check the server's certificate.
    ca_cert_path : str or None
        A file of further certificates to trust.
    timeout_s : float
        Seconds for one request, from sending it to the last byte of the answer.
    attempts : int
        How often one request is sent at most.
    """

    url: str
    headers: Mapping[str, str]
    verify: bool
    ca_cert_path: str | None
    timeout_s: float
    attempts: int

    @property
    def secrets(self) -> list[str]:
        """What of the headers must not be logged."""
        words = [word for value in self.headers.values() for word in str(value).split()]
        return [word for word in words if len(word) >= 8]

    def tls(self) -> ssl.SSLContext | bool:
        """Return what aiohttp takes as `ssl`."""
        if not self.verify:
            return False
        if self.ca_cert_path:
            return ssl.create_default_context(cafile=self.ca_cert_path)
        return True


def watched_sockets(connector: Any) -> dict[str, Any]:
    """Return what makes a connection notice, between two bytes, that the other side is gone.

    An answer may take an hour in which nothing is sent; without a sign of life a router would
    forget the connection, and a server that lost its power would be waited for to the end.
    """
    if "socket_factory" not in inspect.signature(connector).parameters:
        return {}  # before aiohttp 3.12

    def watched(address: Any) -> socket.socket:
        family, kind, protocol = address[:3]
        made = socket.socket(family, kind, protocol)
        made.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        for option, value in _SIGNS_OF_LIFE.items():
            if hasattr(socket, option):
                made.setsockopt(socket.IPPROTO_TCP, getattr(socket, option), value)
        return made

    return {"socket_factory": watched}
