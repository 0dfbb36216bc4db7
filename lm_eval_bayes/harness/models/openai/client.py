"""HTTP client of one OpenAI-compatible endpoint: concurrent requests for trials, with retries."""

from __future__ import annotations

import asyncio
import contextlib
import inspect
import json
import socket
import ssl
import threading
import time
from collections.abc import (
    AsyncIterator,
    Awaitable,
    Callable,
    Iterable,
    Iterator,
    Mapping,
)
from dataclasses import dataclass, replace
from functools import partial
from itertools import takewhile
from queue import Empty, SimpleQueue
from typing import TYPE_CHECKING, Any, Generic, TypeAlias, TypeVar

from lm_eval_bayes._util.retry import Backoff, capped, retry_after
from lm_eval_bayes.harness import get_logger
from lm_eval_bayes.harness.models.interface import TrialRequest
from lm_eval_bayes.harness.models.openai.request import Payloads, max_gen_toks, token_count
from lm_eval_bayes.harness.models.openai.responses import (
    ExchangeFailed,
    error_object,
    read_prompt_bits,
    read_trial,
    refusal,
    unreadable,
)
from lm_eval_bayes.runs.model_arguments import secret_texts, without_secrets
from lm_eval_bayes.store.trial import Trial

if TYPE_CHECKING:
    import aiohttp

log = get_logger(__name__)

#: TCP keep-alive: probes after a minute of silence, then every 15 s; four lost ones end it.
_KEEP_ALIVE = {"TCP_KEEPIDLE": 60, "TCP_KEEPINTVL": 15, "TCP_KEEPCNT": 4}


@dataclass(frozen=True)
class Endpoint:
    """The address of a server and the settings of its requests.

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
        The maximal number of times that one request is sent.
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


_Value = TypeVar("_Value")

_CONNECT_S = 30.0


@dataclass(frozen=True)
class Exchange(Generic[_Value]):
    """An answered request and its times.

    Attributes
    ----------
    value : object
        The parsed answer.
    waited_s : float
        Seconds from the first attempt to the one that was answered.
    took_s : float
        Seconds of that attempt.
    running : int
        Number of running requests at its end, this one included.
    """

    value: _Value
    waited_s: float
    took_s: float
    running: int


class Connection:
    """Requests over one session of aiohttp, with retries."""

    def __init__(self, endpoint: Endpoint, session: aiohttp.ClientSession) -> None:
        self._endpoint = endpoint
        self._session = session
        self._backoff = Backoff(endpoint.seed)
        self._running = 0
        self._answered = 0
        self._retry_after = 0.0

    @classmethod
    @contextlib.asynccontextmanager
    async def opened(cls, endpoint: Endpoint, concurrency: int) -> AsyncIterator[Connection]:
        """Open a connection for a number of concurrent requests."""
        import aiohttp

        async with aiohttp.ClientSession(
            connector=aiohttp.TCPConnector(
                limit=concurrency, ssl=endpoint.tls(), **keep_alive_sockets(aiohttp.TCPConnector)
            ),
            timeout=aiohttp.ClientTimeout(total=endpoint.timeout_s, sock_connect=_CONNECT_S),
            headers=dict(endpoint.headers),
        ) as session:
            yield cls(endpoint, session)

    async def ask(
        self,
        payload: Callable[[], dict[str, Any]],
        read: Callable[[Any], _Value],
        adapt: Callable[[ExchangeFailed], bool],
        attempts: int | None = None,
    ) -> Exchange[_Value]:
        """Send a request until it is answered or refused.

        An attempt that a busy server (HTTP 429 or a Retry-After) refuses does not count if the
        server has answered other requests since the attempt before.

        Parameters
        ----------
        payload : callable
            Returns the request, for every attempt anew.
        read : callable
            Parses the answer's JSON; raises ExchangeFailed if it is not valid.
        adapt : callable
            Called with every failure; returns whether `payload` was adapted to what the server
            accepts, in which case the attempt does not count.
        attempts : int, optional
            Fewer attempts than the endpoint's.

        Raises
        ------
        ExchangeFailed
            The failure of the last attempt.
        """
        started, failures, tries, answered = time.monotonic(), 0, 0, self._answered
        while True:
            await self._wait_until_open()
            sent = time.monotonic()
            self._running += 1
            try:
                value = read(await self._post(payload()))
                took = time.monotonic() - sent
                self._answered += 1
                return Exchange(value, sent - started, took, self._running)
            except ExchangeFailed as problem:
                problem.args = (without_secrets(str(problem), self._endpoint.secrets),)
                failure = problem
            finally:
                self._running -= 1
            if adapt(failure):
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

    async def _wait_until_open(self) -> None:
        while (left := self._retry_after - time.monotonic()) > 0:
            await asyncio.sleep(left)

    def _pause_after(self, failure: ExchangeFailed, tries: int) -> float:
        if failure.wait_s is not None:
            # The server means all requests of this connection.
            self._retry_after = max(self._retry_after, time.monotonic() + capped(failure.wait_s))
        return self._backoff.pause_s(tries, failure.wait_s)

    async def _post(self, payload: dict[str, Any]) -> Any:
        import aiohttp

        try:
            async with self._session.post(self._endpoint.url, json=payload) as response:
                status, raw = response.status, await response.read()
                wait_s = retry_after(response.headers.get("Retry-After"))
        except asyncio.TimeoutError as error:
            seconds = f"{self._endpoint.timeout_s:.0f} s"
            raise ExchangeFailed(f"no answer within {seconds} (timeout=)", retry=True) from error
        except aiohttp.ClientPayloadError as error:
            raise ExchangeFailed("the answer is incomplete", retry=True) from error
        except (aiohttp.ClientError, OSError) as error:
            fatal = isinstance(error, (aiohttp.InvalidURL, aiohttp.ClientSSLError))
            reason = str(error) or type(error).__name__
            raise ExchangeFailed(
                f"no connection: {reason}", retry=not fatal, fatal=fatal
            ) from error
        if status != 200:
            raise refusal(status, raw, wait_s)
        try:
            body = json.loads(raw)
        except ValueError as error:
            raise unreadable(raw) from error
        if isinstance(body, dict) and body.get("error"):
            raise error_object(body["error"])
        return body


_Job = TypeVar("_Job")
_Result = TypeVar("_Result")

#: Opens what the jobs share (a connection) and returns the function that does one job.
Opened: TypeAlias = Callable[
    [], contextlib.AbstractAsyncContextManager[Callable[[_Job], Awaitable[_Result]]]
]

_JOIN_TIMEOUT_S = 10.0


def concurrently(
    jobs: Iterable[_Job],
    opened: Opened[_Job, _Result],
    concurrency: int,
    deadline: Callable[[], float | None] = lambda: None,
) -> Iterator[_Result]:
    """Do jobs concurrently and yield each result as it comes.

    The end of a job starts the next one, in order and without batches. The event loop runs in
    a thread, so it continues while the caller handles a result, and the caller may have a loop
    of its own (a notebook).

    Parameters
    ----------
    jobs : iterable
        Read lazily, in the loop's thread.
    opened : callable
        Returns an asynchronous context manager around the function that does one job.
    concurrency : int
        Number of concurrent jobs, at least 1.
    deadline : callable
        Called before every wait for a result; returns the monotonic time at which the running
        jobs are cancelled, None for never.

    Yields
    ------
    object
        The function's results, in the order of their ends. An exception of the function
        cancels the other jobs and is raised here. Closing this generator cancels them too.
    """
    results: SimpleQueue[_Result | asyncio.Task[None]] = SimpleQueue()
    loop = asyncio.new_event_loop()
    main = loop.create_task(_do_all(jobs, opened, concurrency, results.put))

    def run() -> None:
        try:
            loop.run_until_complete(asyncio.gather(main, return_exceptions=True))
            loop.run_until_complete(loop.shutdown_asyncgens())
            loop.run_until_complete(loop.shutdown_default_executor())
        finally:
            loop.close()
            results.put(main)

    thread = threading.Thread(target=run, name="lm-eval-bayes-requests", daemon=True)
    thread.start()
    try:
        while True:
            limit = deadline()
            wait_s = None if limit is None else max(limit - time.monotonic(), 0.0)
            try:
                result = results.get(timeout=wait_s)
            except Empty:
                return
            if isinstance(result, asyncio.Task):
                break
            yield result
        main.result()
    finally:
        if not main.done():
            with contextlib.suppress(RuntimeError):  # the loop may just have closed
                loop.call_soon_threadsafe(main.cancel)
        thread.join(_JOIN_TIMEOUT_S)


async def _do_all(
    jobs: Iterable[_Job],
    opened: Opened[_Job, _Result],
    concurrency: int,
    report: Callable[[_Result], None],
) -> None:
    source = iter(jobs)

    async def work(do: Callable[[_Job], Awaitable[_Result]]) -> None:
        for job in source:  # shared by all workers: each takes the next one
            report(await do(job))

    async with opened() as do:
        workers = [asyncio.ensure_future(work(do)) for _ in range(concurrency)]
        try:
            await asyncio.gather(*workers)
        finally:
            for worker in workers:
                worker.cancel()
            await asyncio.gather(*workers, return_exceptions=True)


#: The result of a request: a trial, or a failure.
Outcome: TypeAlias = tuple[TrialRequest, Trial | ExchangeFailed]

#: At least so many failures in a row, with no answer between them, end the sampling.
_MIN_CONSECUTIVE_FAILURES = 8

#: Attempts of a request that only measures a prompt.
_ATTEMPTS_TO_MEASURE = 2


@dataclass(eq=False)
class TrialClient:
    """Requests trials over one connection, as long as the server answers.

    Parameters
    ----------
    payloads : Payloads
        Builds the bodies of the requests.
    endpoint : Endpoint
        Their address.
    messages : mapping
        What is sent, by prompt: the context or its tokens.
    to_measure : set of str
        Prompts whose bits per token are wanted.
    concurrency : int
        Number of concurrent requests.
    think_end_token : str or None
        The token that ends a think block.
    warn_once : callable
        Logs a warning, the first time for its topic.
    """

    payloads: Payloads
    endpoint: Endpoint
    messages: Mapping[str, Any]
    to_measure: set[str]
    concurrency: int
    think_end_token: str | None
    warn_once: Callable[..., None]
    _consecutive_failures = 0
    _given_up = False

    def outcomes(self, requests: Iterable[TrialRequest]) -> Iterator[Outcome]:
        """Yield the result of each request as it comes, until the server is given up."""
        wanted = takewhile(lambda _: not self._given_up, requests)
        return concurrently(
            wanted,
            self._opened,
            self.concurrency,
            lambda: getattr(requests, "deadline", None),
        )

    @contextlib.asynccontextmanager
    async def _opened(self) -> AsyncIterator[Callable[[TrialRequest], Awaitable[Outcome]]]:
        """Open the connection and return the function that requests one trial."""
        async with Connection.opened(self.endpoint, self.concurrency) as connection:
            yield partial(self._send, connection)

    async def _send(self, connection: Connection, request: TrialRequest) -> Outcome:
        measured = await self._measured(connection, request)
        sent: dict[str, Any] = {}

        def payload() -> dict[str, Any]:
            sent.clear()
            sent.update(self.payloads.of(request, self.messages[request.prompt]))
            return sent

        try:
            exchange = await connection.ask(
                payload,
                lambda body: read_trial(
                    request,
                    body,
                    self.payloads.chat,
                    sent.get("model"),
                    sent_tokens=token_count(self.messages[request.prompt]),
                    think_end_token=self.think_end_token,
                ),
                lambda failure: self.payloads.adapt(sent, failure),
            )
        except ExchangeFailed as failure:
            if measured:
                self.to_measure.add(request.prompt)
            self._consecutive_failures += 1
            limit = max(_MIN_CONSECUTIVE_FAILURES, self.concurrency)
            self._given_up |= failure.fatal or self._consecutive_failures >= limit
            return request, failure
        self._consecutive_failures = 0
        return request, self._completed(request, exchange, measured)

    async def _measured(self, connection: Connection, request: TrialRequest) -> dict[str, float]:
        """Return the signals of the request's prompt, if it is the first with this prompt."""
        wanted = request.prompt in self.to_measure and not self._given_up
        if not wanted or not self.payloads.measures:
            return {}
        self.to_measure.discard(request.prompt)
        problem: object = "the server did not send it"
        bits = None
        try:
            exchange = await connection.ask(
                lambda: self.payloads.of_prompt(request, self.messages[request.prompt]),
                lambda body: read_prompt_bits(body, self.payloads.chat),
                lambda failure: False,
                attempts=_ATTEMPTS_TO_MEASURE,
            )
            bits = exchange.value
        except ExchangeFailed as failure:
            problem = failure
        if bits is None:
            self.warn_once("prompt", "prompt_bpt is not recorded: %s", problem)
            # A server that does not send it for one prompt will not for the next.
            self.to_measure.clear()
            return {}
        return {"prompt_bpt": bits}

    def _completed(
        self, request: TrialRequest, exchange: Exchange[Trial], measured: Mapping[str, float]
    ) -> Trial:
        answer = exchange.value
        signals = {**(answer.signals or {}), **measured}
        if self.payloads.measures and "completion_bpt" not in signals and answer.text:
            self.warn_once("bits", "completion_bpt is not recorded: the server sent none")
        if "content_missing" in signals:
            self.warn_once(
                "content",
                "the server sent an answer without content (%s); it is recorded as an empty one. "
                "A reasoning model at its max_gen_toks does that",
                answer.finish_reason,
            )
        if signals.get("prompt_truncated"):
            self.warn_once(
                "truncated",
                "the server truncates prompts: it read fewer tokens than were sent (%s of %s)",
                answer.prompt_tokens,
                token_count(self.messages[request.prompt]),
            )
        limit, used = max_gen_toks(request), answer.completion_tokens
        if answer.finish_reason == "length" and used is not None and used < limit:
            self.warn_once(
                "length",
                "the server ended an answer for its length after %d tokens of max_gen_toks=%d: its "
                "own limit is lower",
                used,
                limit,
            )
        return replace(
            answer,
            signals=signals,
            queued_s=exchange.waited_s + (answer.queued_s or 0.0),
            generated_s=exchange.took_s if answer.generated_s is None else answer.generated_s,
            concurrency=exchange.running,
        )
