"""One exchange with an OpenAI-compatible server over HTTP: a request and its answer, or why not."""

from __future__ import annotations

import asyncio
import contextlib
import inspect
import json
import socket
import ssl
from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from lm_eval_bayes._util.retry import is_retried, retry_after
from lm_eval_bayes.harness.models.openai.responses import (
    ExchangeFailed,
    error_object,
    refusal,
    unreadable,
)
from lm_eval_bayes.runs.model_arguments import secret_texts

if TYPE_CHECKING:
    import aiohttp

#: TCP keep-alive: probes after a minute of silence, then every 15 s; four lost ones end it.
_KEEP_ALIVE = {"TCP_KEEPIDLE": 60, "TCP_KEEPINTVL": 15, "TCP_KEEPCNT": 4}

_CONNECT_S = 30.0

#: Bytes of the body of an answer at most.
MAX_BODY = 64 * 2**20

#: Seconds for the answer of a server to whether it is up.
_IS_UP_S = 10.0


@dataclass(frozen=True)
class Endpoint:
    """The address of a server and the settings of the requests.

    Attributes
    ----------
    url : str
        The address for the requests.
    headers : mapping
        The headers, with the key; never logged.
    verify : bool
        Whether to verify the server's certificate.
    ca_cert_path : str or None
        A file of further trusted certificates.
    timeout_s : float
        Seconds for one request, from sending it to the last byte of the answer.
    attempts : int
        The maximal number of times that one request is sent; as often in a row a server may be
        paused before it is given up.
    seed : int
        Seeds the jitter of the pauses between attempts.
    """

    url: str
    headers: Mapping[str, str]
    verify: bool
    ca_cert_path: str | None
    timeout_s: float
    attempts: int
    seed: int

    @property
    def secrets(self) -> tuple[str, ...]:
        """The parts of the headers and the address that must not be logged."""
        return secret_texts(self.headers, self.url)

    def tls(self) -> ssl.SSLContext | bool:
        """Return aiohttp's argument `ssl`."""
        if not self.verify:
            return False
        if self.ca_cert_path:
            return ssl.create_default_context(cafile=self.ca_cert_path)
        return True

    @contextlib.asynccontextmanager
    async def session(self, concurrency: int) -> AsyncIterator[aiohttp.ClientSession]:
        """Open connections for a number of concurrent requests."""
        import aiohttp

        async with aiohttp.ClientSession(
            connector=aiohttp.TCPConnector(
                # one more for the question whether a server is up
                limit=concurrency + 1,
                ssl=self.tls(),
                **keep_alive_sockets(aiohttp.TCPConnector),
            ),
            timeout=aiohttp.ClientTimeout(total=self.timeout_s, sock_connect=_CONNECT_S),
            headers=dict(self.headers),
        ) as session:
            yield session


def keep_alive_sockets(connector: Any) -> dict[str, Any]:
    """Return the arguments of a connector that switch TCP keep-alive on.

    An answer may take an hour without a byte. Without keep-alive a router may drop the
    connection, and the loss of the server is noticed only by the time-out.
    """
    if "socket_factory" not in inspect.signature(connector).parameters:
        return {}  # before aiohttp 3.12

    def keep_alive(address: Any) -> socket.socket:
        family, kind, protocol = address[:3]
        connection = socket.socket(family, kind, protocol)
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        for option, value in _KEEP_ALIVE.items():
            if hasattr(socket, option):
                connection.setsockopt(socket.IPPROTO_TCP, getattr(socket, option), value)
        return connection

    return {"socket_factory": keep_alive}


async def post(
    session: aiohttp.ClientSession, url: str, payload: Mapping[str, Any], timeout_s: float
) -> Any:
    """Send a request and return the JSON of its answer.

    Parameters
    ----------
    session : aiohttp.ClientSession
        Of :meth:`Endpoint.session`.
    url : str
        The server's address.
    payload : mapping
        The request.
    timeout_s : float
        The time-out of the session, for the error.

    Raises
    ------
    ExchangeFailed
        If no answer came, or one that is not JSON, or an error.
    """
    import aiohttp

    try:
        async with session.post(url, json=payload) as response:
            status, raw = response.status, await _body(response)
            wait_s = retry_after(response.headers.get("Retry-After"))
    except asyncio.TimeoutError as error:
        seconds = f"{timeout_s:.0f} s"
        raise ExchangeFailed(f"no answer within {seconds} (timeout=)", retry=True) from error
    except aiohttp.ClientPayloadError as error:
        raise ExchangeFailed("the answer is incomplete", retry=True) from error
    except (aiohttp.ClientError, OSError) as error:
        raise _no_connection(error) from error
    if 200 < status < 300 or (status == 200 and not raw.strip()):
        raise ExchangeFailed(f"HTTP {status} without an answer", retry=True)
    if status != 200:
        raise refusal(status, raw, wait_s)
    try:
        body = json.loads(raw)
    except ValueError as error:
        raise unreadable(raw) from error
    except RecursionError as error:
        raise ExchangeFailed("the answer's JSON is nested too deeply", retry=True) from error
    if isinstance(body, dict) and body.get("error"):
        raise error_object(body["error"])
    return body


async def get(session: aiohttp.ClientSession, url: str) -> Any:
    """Return the JSON at an address of a server; None if the server is up and has none there.

    Raises
    ------
    ExchangeFailed
        If the server does not answer within ten seconds, or is not ready.
    """
    import aiohttp

    try:
        timeout = aiohttp.ClientTimeout(total=_IS_UP_S)
        async with session.get(url, timeout=timeout) as response:
            status, raw = response.status, await _body(response)
    except asyncio.TimeoutError as error:
        raise ExchangeFailed(f"no answer within {_IS_UP_S:.0f} s", retry=True) from error
    except (aiohttp.ClientError, OSError) as error:
        raise _no_connection(error) from error
    if is_retried(status):
        raise ExchangeFailed(f"HTTP {status}", retry=True)
    with contextlib.suppress(ValueError, RecursionError):
        return json.loads(raw) if status == 200 else None
    return None


async def _body(response: aiohttp.ClientResponse) -> bytes:
    """Return the body of an answer.

    Raises
    ------
    ExchangeFailed
        If it has too many bytes; the rest is not read.
    """
    body = bytearray()
    async for part in response.content.iter_any():
        body += part
        if len(body) > MAX_BODY:
            raise ExchangeFailed(f"the answer has more than {MAX_BODY:,} bytes", retry=True)
    return bytes(body)


def _no_connection(error: Exception) -> ExchangeFailed:
    import aiohttp

    fatal = isinstance(error, (aiohttp.InvalidURL, aiohttp.ClientSSLError))
    reason = str(error) or type(error).__name__
    return ExchangeFailed(f"no connection: {reason}", retry=not fatal, fatal=fatal, connected=False)
