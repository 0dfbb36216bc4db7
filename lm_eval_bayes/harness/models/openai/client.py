"""HTTP client of one OpenAI-compatible endpoint: concurrent requests with retries."""

from __future__ import annotations

import asyncio
import contextlib
import inspect
import json
import socket
import ssl
import threading
import time
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from queue import SimpleQueue
from types import TracebackType
from typing import TYPE_CHECKING, Any, Generic, NamedTuple, TypeAlias, TypeVar

from lm_eval_bayes._util.retry import Backoff, capped, retry_after
from lm_eval_bayes.harness.logs import get_logger
from lm_eval_bayes.harness.models.openai.answers import (
    ExchangeFailed,
    error_object,
    refusal,
    unreadable,
)
from lm_eval_bayes.runs.model_arguments import secret_texts, without_secrets

if TYPE_CHECKING:
    import aiohttp

log = get_logger(__name__)

#: First sign after a minute of silence, then every quarter; four without a reply end it.
_SIGNS_OF_LIFE = {"TCP_KEEPIDLE": 60, "TCP_KEEPINTVL": 15, "TCP_KEEPCNT": 4}


@dataclass(frozen=True)
class Endpoint:
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
        """What of the headers and the address must not be logged."""
        return secret_texts(self.headers, self.url)

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


_Value = TypeVar("_Value")

_CONNECT_S = 30.0


@dataclass(frozen=True)
class Exchange(Generic[_Value]):
    """A request that was answered, and how long that took.

    Attributes
    ----------
    value : object
        What was read from the answer.
    waited_s : float
        Seconds from the first wish to send it to the attempt that was answered.
    took_s : float
        Seconds from that attempt's start to its end.
    under_way : int
        Requests under way when it ended, itself included.
    """

    value: _Value
    waited_s: float
    took_s: float
    under_way: int


class Connection:
    """A session of aiohttp that tries again where that may help."""

    def __init__(self, endpoint: Endpoint, at_once: int) -> None:
        self._endpoint = endpoint
        self._at_once = at_once
        self._backoff = Backoff(endpoint.seed)
        self._under_way = 0
        self._answered = 0
        self._open_again = 0.0
        self._session: aiohttp.ClientSession | None = None

    async def __aenter__(self) -> Connection:
        import aiohttp

        self._session = aiohttp.ClientSession(
            connector=aiohttp.TCPConnector(
                limit=self._at_once,
                ssl=self._endpoint.tls(),
                **watched_sockets(aiohttp.TCPConnector),
            ),
            timeout=aiohttp.ClientTimeout(total=self._endpoint.timeout_s, sock_connect=_CONNECT_S),
            headers=dict(self._endpoint.headers),
        )
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._session is not None:
            await self._session.close()

    async def ask(
        self,
        payload: Callable[[], dict[str, Any]],
        read: Callable[[Any], _Value],
        relent: Callable[[ExchangeFailed], bool],
        attempts: int | None = None,
    ) -> Exchange[_Value]:
        """Send a request until it is answered or there is no hope.

        A server that asks for patience (HTTP 429, or a time to wait) has it for as long as it
        answers others meanwhile: then the attempt does not count.

        Parameters
        ----------
        payload : callable
            Builds the request, afresh for every attempt.
        read : callable
            Reads the answer's JSON; raises ExchangeFailed if it is none.
        relent : callable
            Told of every failure; returns whether `payload` has become one that the server
            may take, in which case the attempt does not count.
        attempts : int, optional
            Fewer attempts than the endpoint's.

        Raises
        ------
        ExchangeFailed
            With what the last attempt said.
        """
        began, failures, tries, answered = time.monotonic(), 0, 0, self._answered
        while True:
            await self._until_open()
            sent = time.monotonic()
            self._under_way += 1
            try:
                value = read(await self._post(payload()))
                took = time.monotonic() - sent
                self._answered += 1
                return Exchange(value, sent - began, took, self._under_way)
            except ExchangeFailed as problem:
                failure = problem
            finally:
                self._under_way -= 1
            if relent(failure):
                continue
            tries += 1
            failures += not (failure.busy and self._answered > answered)
            answered = self._answered
            if not failure.retry:
                raise failure
            if failures >= min(attempts or self._endpoint.attempts, self._endpoint.attempts):
                raise ExchangeFailed(f"{failure} (attempts: {tries})", retry=False) from failure
            pause = self._pause_after(failure, tries)
            log.info("%s; trying again in %.1f s", failure, pause)
            await asyncio.sleep(pause)

    async def _until_open(self) -> None:
        while (left := self._open_again - time.monotonic()) > 0:
            await asyncio.sleep(left)

    def _pause_after(self, failure: ExchangeFailed, tries: int) -> float:
        if failure.wait_s is not None:
            # The server means all requests of this connection.
            self._open_again = max(self._open_again, time.monotonic() + capped(failure.wait_s))
        return self._backoff.pause_s(tries, failure.wait_s)

    async def _post(self, payload: dict[str, Any]) -> Any:
        import aiohttp

        session = self._session
        if session is None:
            raise RuntimeError("the connection is not open")
        try:
            async with session.post(self._endpoint.url, json=payload) as response:
                status, raw = response.status, await response.read()
                wait_s = retry_after(response.headers.get("Retry-After"))
        except asyncio.TimeoutError as error:
            seconds = f"{self._endpoint.timeout_s:.0f} s"
            raise ExchangeFailed(f"no answer within {seconds} (timeout=)", retry=True) from error
        except aiohttp.ClientPayloadError as error:
            raise ExchangeFailed("the answer broke off before its end", retry=True) from error
        except (aiohttp.InvalidURL, aiohttp.ClientSSLError) as error:
            raise self._failed(error, hopeless=True) from error
        except (aiohttp.ClientError, OSError) as error:
            raise self._failed(error, hopeless=False) from error
        if status != 200:
            failure = refusal(status, raw, wait_s)
            failure.args = (without_secrets(str(failure), self._endpoint.secrets),)
            raise failure
        try:
            body = json.loads(raw)
        except ValueError as error:
            raise unreadable(raw) from error
        if isinstance(body, dict) and body.get("error"):
            failure = error_object(body["error"])
            failure.args = (without_secrets(str(failure), self._endpoint.secrets),)
            raise failure
        return body

    def _failed(self, error: Exception, hopeless: bool) -> ExchangeFailed:
        said = without_secrets(str(error) or type(error).__name__, self._endpoint.secrets)
        return ExchangeFailed(f"no connection: {said}", retry=not hopeless, hopeless=hopeless)


_Job = TypeVar("_Job")
_Result = TypeVar("_Result")

#: Opens what the jobs share (a connection) and gives what does one job.
Opened: TypeAlias = Callable[
    [], contextlib.AbstractAsyncContextManager[Callable[[_Job], Awaitable[_Result]]]
]

_PATIENCE_S = 10.0


class _Ended(NamedTuple):
    error: BaseException | None


def concurrently(
    jobs: Iterable[_Job], opened: Opened[_Job, _Result], at_once: int
) -> Iterator[_Result]:
    """Do jobs, `at_once` of them at a time, and yield each result as it comes.

    A job that ends makes room for the next one at once, without a barrier; jobs are begun
    in their request. The loop runs in a thread, so it goes on while the caller works on a
    result, and a caller that has a loop of its own (a notebook) is not disturbed.

    Parameters
    ----------
    jobs : iterable
        Read from the loop's thread, one when there is room for it.
    opened : callable
        Returns an asynchronous context manager around the function that does one job.
    at_once : int
        Jobs under way at a time, at least 1.

    Yields
    ------
    object
        What the function returned, in the order of ending. An exception that it raised
        cancels the other jobs and is raised here. Closing this generator cancels them too.
    """
    results: SimpleQueue[_Result | _Ended] = SimpleQueue()
    loop = asyncio.new_event_loop()
    main = loop.create_task(_work_off(jobs, opened, at_once, results.put))

    def run() -> None:
        error: BaseException | None = None
        try:
            loop.run_until_complete(main)
        except asyncio.CancelledError:
            pass
        except BaseException as problem:
            error = problem
        finally:
            try:
                loop.run_until_complete(loop.shutdown_asyncgens())
                loop.run_until_complete(loop.shutdown_default_executor())
            finally:
                loop.close()
                results.put(_Ended(error))

    thread = threading.Thread(target=run, name="lm-eval-bayes-requests", daemon=True)
    thread.start()
    ended = False
    try:
        while True:
            result = results.get()
            if isinstance(result, _Ended):
                ended = True
                if result.error is not None:
                    raise result.error
                return
            yield result
    finally:
        if not ended:
            with contextlib.suppress(RuntimeError):  # the loop may just have closed by itself
                loop.call_soon_threadsafe(main.cancel)
        thread.join(_PATIENCE_S)


async def _work_off(
    jobs: Iterable[_Job],
    opened: Opened[_Job, _Result],
    at_once: int,
    report: Callable[[_Result], None],
) -> None:
    source = iter(jobs)

    async def work(do: Callable[[_Job], Awaitable[_Result]]) -> None:
        for job in source:  # shared by all workers: each takes the next one
            report(await do(job))

    async with opened() as do:
        workers = [asyncio.ensure_future(work(do)) for _ in range(at_once)]
        try:
            await asyncio.gather(*workers)
        finally:
            for worker in workers:
                worker.cancel()
            await asyncio.gather(*workers, return_exceptions=True)
