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
    Sequence,
)
from dataclasses import dataclass, replace
from queue import SimpleQueue
from types import TracebackType
from typing import TYPE_CHECKING, Any, Generic, NamedTuple, TypeAlias, TypeVar

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
    """A session of aiohttp that retries failed requests."""

    def __init__(self, endpoint: Endpoint, concurrency: int) -> None:
        self._endpoint = endpoint
        self._concurrency = concurrency
        self._backoff = Backoff(endpoint.seed)
        self._running = 0
        self._answered = 0
        self._retry_after = 0.0
        self._session: aiohttp.ClientSession | None = None

    async def __aenter__(self) -> Connection:
        import aiohttp

        self._session = aiohttp.ClientSession(
            connector=aiohttp.TCPConnector(
                limit=self._concurrency,
                ssl=self._endpoint.tls(),
                **keep_alive_sockets(aiohttp.TCPConnector),
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
            raise ExchangeFailed("the answer is incomplete", retry=True) from error
        except (aiohttp.InvalidURL, aiohttp.ClientSSLError) as error:
            raise self._failed(error, fatal=True) from error
        except (aiohttp.ClientError, OSError) as error:
            raise self._failed(error, fatal=False) from error
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

    def _failed(self, error: Exception, fatal: bool) -> ExchangeFailed:
        reason = without_secrets(str(error) or type(error).__name__, self._endpoint.secrets)
        return ExchangeFailed(f"no connection: {reason}", retry=not fatal, fatal=fatal)


_Job = TypeVar("_Job")
_Result = TypeVar("_Result")

#: Opens what the jobs share (a connection) and returns the function that does one job.
Opened: TypeAlias = Callable[
    [], contextlib.AbstractAsyncContextManager[Callable[[_Job], Awaitable[_Result]]]
]

_JOIN_TIMEOUT_S = 10.0


class _Ended(NamedTuple):
    error: BaseException | None


def concurrently(
    jobs: Iterable[_Job], opened: Opened[_Job, _Result], concurrency: int
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

    Yields
    ------
    object
        The function's results, in the order of their ends. An exception of the function
        cancels the other jobs and is raised here. Closing this generator cancels them too.
    """
    results: SimpleQueue[_Result | _Ended] = SimpleQueue()
    loop = asyncio.new_event_loop()
    main = loop.create_task(_do_all(jobs, opened, concurrency, results.put))

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
    measure : frozenset of str
        Prompts whose bits per token are wanted.
    concurrency : int
        Number of concurrent requests.
    think_end_token : str or None
        The token that ends a think block.
    warn_once : callable
        Logs a warning, the first time for its topic.
    """

    def __init__(
        self,
        payloads: Payloads,
        endpoint: Endpoint,
        messages: Mapping[str, Any],
        measure: frozenset[str],
        concurrency: int,
        think_end_token: str | None,
        warn_once: Callable[..., None],
    ) -> None:
        self._payloads = payloads
        self._endpoint = endpoint
        self._messages = messages
        self._to_measure = set(measure)
        self._concurrency = concurrency
        self._think_end_token = think_end_token
        self._consecutive_failures = 0
        self._given_up = False
        self._warn_once = warn_once

    def requests_until_given_up(self, requests: Sequence[TrialRequest]) -> Iterator[TrialRequest]:
        """Yield the requests until the server is given up."""
        for request in requests:
            if self._given_up:
                return
            yield request

    @contextlib.asynccontextmanager
    async def opened(self) -> AsyncIterator[Callable[[TrialRequest], Awaitable[Outcome]]]:
        """Open the connection and return the function that requests one trial."""
        async with Connection(self._endpoint, self._concurrency) as connection:

            async def send(request: TrialRequest) -> Outcome:
                return await self._send(connection, request)

            yield send

    async def _send(self, connection: Connection, request: TrialRequest) -> Outcome:
        measured = await self._measured(connection, request)
        sent: dict[str, Any] = {}

        def payload() -> dict[str, Any]:
            sent.clear()
            sent.update(self._payloads.of(request, self._messages[request.prompt]))
            return sent

        try:
            exchange = await connection.ask(
                payload,
                lambda body: read_trial(
                    request,
                    body,
                    self._payloads.chat,
                    sent.get("model"),
                    sent_tokens=token_count(self._messages[request.prompt]),
                    think_end_token=self._think_end_token,
                ),
                lambda failure: self._payloads.adapt(sent, failure),
            )
        except ExchangeFailed as failure:
            if measured is not None:
                self._to_measure.add(request.prompt)
            self._note(failure)
            return request, failure
        self._consecutive_failures = 0
        return request, self._completed(request, exchange, measured)

    def _note(self, failure: ExchangeFailed) -> None:
        self._consecutive_failures += 1
        limit = max(_MIN_CONSECUTIVE_FAILURES, self._concurrency)
        if failure.fatal or self._consecutive_failures >= limit:
            self._given_up = True

    async def _measured(
        self, connection: Connection, request: TrialRequest
    ) -> dict[str, float] | None:
        """Return the bits of the request's prompt, if it is the first with this prompt."""
        wanted = request.prompt in self._to_measure and not self._given_up
        if not wanted or not self._payloads.measures:
            return None
        self._to_measure.discard(request.prompt)
        try:
            exchange = await connection.ask(
                lambda: self._payloads.of_prompt(request, self._messages[request.prompt]),
                lambda body: read_prompt_bits(body, self._payloads.chat),
                lambda failure: False,
                attempts=_ATTEMPTS_TO_MEASURE,
            )
        except ExchangeFailed as failure:
            self._warn_once("prompt", "prompt_bpt is not recorded: %s", failure)
            bits = None
        else:
            bits = exchange.value
            if bits is None:
                self._warn_once("prompt", "prompt_bpt is not recorded: the server did not send it")
        if bits is None:
            # A server that does not send it for one prompt will not for the next.
            self._to_measure.clear()
            return None
        return {"prompt_bpt": bits}

    def _completed(
        self, request: TrialRequest, exchange: Exchange[Trial], measured: Mapping[str, float] | None
    ) -> Trial:
        answer = exchange.value
        signals = {**(answer.signals or {}), **(measured or {})}
        if self._payloads.measures and "completion_bpt" not in signals and answer.text:
            self._warn_once("bits", "completion_bpt is not recorded: the server sent none")
        if "content_missing" in signals:
            self._warn_once(
                "content",
                "the server sent an answer without content (%s); it is recorded as an empty one. "
                "A reasoning model at its max_gen_toks does that",
                answer.finish_reason,
            )
        if signals.get("prompt_truncated"):
            self._warn_once(
                "truncated",
                "the server truncates prompts: it read fewer tokens than were sent (%s of %s)",
                answer.prompt_tokens,
                token_count(self._messages[request.prompt]),
            )
        limit, used = max_gen_toks(request), answer.completion_tokens
        if answer.finish_reason == "length" and used is not None and used < limit:
            self._warn_once(
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
