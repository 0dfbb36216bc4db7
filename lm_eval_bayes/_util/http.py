"""Requests to one OpenAI-compatible server: concurrent, and sent again until they are answered.

The rules of :class:`Client`:

- A request that fails is sent again after half a second, doubled each further time up to 30 s, at
  most `attempts` times.
- Where nothing was answered since a failed request was sent, no request at all is sent for such a
  time; nor where the server is busy (HTTP 429, or a Retry-After), at least for as long as it asks
  for, up to ten minutes. Being busy is no attempt of the request.
- After a pause for anything but HTTP 429 the server is asked whether it still is the same one.
- The server is given up, so that no request is sent any more, when it refuses every request (a
  wrong key or path), or after `attempts` pauses without an answer.
"""

from __future__ import annotations

import asyncio
import contextlib
import inspect
import json
import logging
import random
import re
import socket
import ssl
import threading
import time
from collections.abc import Awaitable, Callable, Coroutine, Iterable, Iterator, Mapping
from dataclasses import KW_ONLY, InitVar, dataclass, field, replace
from queue import Empty, SimpleQueue
from typing import Any, Generic, TypeVar
from urllib.parse import urlsplit
from urllib.request import getproxies, proxy_bypass

from lm_eval_bayes._util.files import ALWAYS_BYTES
from lm_eval_bayes._util.text import one_line, without_commands

#: A child of the harness's logger, which formats and filters what is logged.
log = logging.getLogger("lm_eval.bayes.server")

#: Seconds of the first pause, doubled up to the longest; and the longest that a server may ask for.
FIRST_PAUSE_S, LONGEST_PAUSE_S, _LONGEST_RETRY_AFTER_S = 0.5, 30.0, 600.0
#: Pauses of at least this many seconds are warned of.
_WARNED_S = 5.0

#: So many pauses without an answer, at least, before a server is given up.
_FEWEST_PAUSES = 3

#: Seconds to connect, for the answer to a question about the server, and for the end of the thread.
_CONNECT_S, _ABOUT_S, _JOIN_S = 30.0, 10.0, 10.0
_ATTEMPTS_ABOUT = 3

#: TCP keep-alive: probes after a minute of silence, then every 15 s; four lost ones end it. An
#: answer may take an hour without a byte, and a router drops a silent connection.
_KEEP_ALIVE = {"TCP_KEEPIDLE": 60, "TCP_KEEPINTVL": 15, "TCP_KEEPCNT": 4}

_RETRIED = frozenset({408, 409, 425, 429})
#: Statuses with which every request would fail.
_FATAL = {
    401: "does not accept the key (OPENAI_API_KEY, or the model argument header=)",
    403: "does not allow this key to use the model",
    404: "knows no such path or model",
    405: "takes no completions at this path",
    **dict.fromkeys((301, 302, 303, 307, 308), "redirects to another address; give that one"),
}

#: Colours of a terminal, which Ray has in its messages, and the tags of a web page.
_MARKUP = re.compile(r"\x1b\[[0-9;]*m|<[^<>]*>")
_MAX_QUOTED = 300

_jitter = random.Random()

_Job = TypeVar("_Job")
_Value = TypeVar("_Value")


@dataclass(eq=False, repr=False)
class RequestFailed(Exception):
    """A request that was not answered.

    Attributes
    ----------
    status : int or None
        The HTTP status; None without one.
    reason : str
        All that the server says of it; empty without a status.
    wait_s : float or None
        The server's Retry-After.
    retry, fatal : bool
        Whether the same request may succeed later, and whether no request can succeed.
    """

    sentence: InitVar[str]
    _: KW_ONLY
    status: int | None = None
    reason: str = ""
    wait_s: float | None = None
    retry: bool = True
    fatal: bool = False

    def __post_init__(self, sentence: str) -> None:
        super().__init__(sentence)

    @property
    def busy(self) -> bool:
        """Whether the server only takes no request at present."""
        return self.retry and (self.status == 429 or self.wait_s is not None)


@dataclass(frozen=True)
class Answer(Generic[_Value]):
    """What was read of an answer, and its times.

    Attributes
    ----------
    value : object
        What was read.
    waited_s, took_s : float
        Seconds from the first attempt to the one that was answered, and of that one.
    running : int
        Number of requests that ran at its end, this one included.
    """

    value: _Value
    waited_s: float
    took_s: float
    running: int


@dataclass(eq=False)
class Client:
    """Sends requests to one address.

    Parameters
    ----------
    url : str
        The address of the completions.
    headers : mapping
        The headers, with the key; never shown.
    secrets : sequence of str
        What of them and the address a server may quote and nobody may read.
    verify : bool
        Whether to verify the server's certificate.
    ca_cert_path : str or None
        A file of further trusted certificates.
    timeout_s : float
        Seconds for one request, from sending it to the last byte of the answer.
    attempts : int
        How often one request is sent at most.
    changed : callable
        Returns in a sentence how the server is another one than before, by its list of models; None
        where it is the same.
    unchecked : bool
        Whether the server is asked for its models before the first request.
    """

    url: str
    headers: Mapping[str, str]
    secrets: tuple[str, ...] = ()
    verify: bool = True
    ca_cert_path: str | None = None
    timeout_s: float = 300.0
    attempts: int = 10
    changed: Callable[[Any], str | None] = lambda models: None
    unchecked: bool = False
    given_up: RequestFailed | None = field(default=None, init=False)
    #: Requests that run, and pauses since the last answer.
    _running = _pauses = 0
    #: The times of the last answer, and of the begin and the end of the last pause.
    _answered_at = _paused_at = _resumes_at = -1.0

    def results(
        self,
        jobs: Iterable[_Job],
        do: Callable[[_Job], Awaitable[_Value]],
        concurrency: int,
        deadline: Callable[[], float | None] = lambda: None,
    ) -> Iterator[_Value]:
        """Do jobs concurrently and yield each result as it comes.

        The end of a job starts the next one, in order and without batches. The event loop runs in
        a thread, so it continues while the caller handles a result, and the caller may have a loop
        of its own (a notebook).

        Parameters
        ----------
        jobs : iterable
            Read lazily, in the loop's thread.
        do : callable
            Does one job by :meth:`ask`.
        concurrency : int
            Number of concurrent jobs, at least 1.
        deadline : callable
            Called before every wait for a result; returns the monotonic time at which the running
            jobs are cancelled, None for never.

        Yields
        ------
        object
            In the order of their ends. An exception of `do` cancels the other jobs and is raised
            here. Closing this generator cancels them too.
        """
        results: SimpleQueue[Any] = SimpleQueue()
        shared = iter(jobs)

        async def work() -> None:
            for job in shared:  # by all workers: each takes the next one
                results.put(await do(job))

        loop = asyncio.new_event_loop()
        main = loop.create_task(self._in_session([work] * concurrency))

        def run() -> None:
            try:
                loop.run_until_complete(asyncio.wait([main]))
                loop.run_until_complete(loop.shutdown_default_executor())
            finally:
                loop.close()
                results.put(main)

        thread = threading.Thread(target=run, name="lm-eval-bayes-requests", daemon=True)
        thread.start()
        try:
            while True:
                ends = deadline()
                wait_s = None if ends is None else max(ends - time.monotonic(), 0.0)
                try:
                    result = results.get(timeout=wait_s)
                except Empty:
                    return
                if result is main:
                    break
                yield result
            main.result()
        finally:
            if not main.done():
                with contextlib.suppress(RuntimeError):  # the loop may just have closed
                    loop.call_soon_threadsafe(main.cancel)
            thread.join(_JOIN_S)

    async def _in_session(self, work: Iterable[Callable[[], Coroutine[Any, Any, None]]]) -> None:
        import aiohttp

        tls: ssl.SSLContext | bool = self.verify
        if self.verify and self.ca_cert_path:
            tls = ssl.create_default_context(cafile=self.ca_cert_path)
        keep_alive: Any = {}
        if "socket_factory" in inspect.signature(aiohttp.TCPConnector).parameters:  # since 3.12
            keep_alive["socket_factory"] = _keep_alive_socket
        self._turns = asyncio.Lock()
        connector = aiohttp.TCPConnector(limit=0, ssl=tls, **keep_alive)
        headers = dict(self.headers)
        async with aiohttp.ClientSession(connector=connector, headers=headers) as self._session:
            workers = [asyncio.ensure_future(begin()) for begin in work]
            try:
                await asyncio.gather(*workers)
            finally:
                for worker in workers:
                    worker.cancel()
                await asyncio.gather(*workers, return_exceptions=True)

    async def ask(
        self,
        payload: Callable[[], Mapping[str, Any]],
        read: Callable[[Any], _Value],
        adapt: Callable[[RequestFailed], bool] = lambda failure: False,
        attempts: int | None = None,
    ) -> Answer[_Value]:
        """Send a request until it is answered or refused.

        Parameters
        ----------
        payload : callable
            Returns the request, for every attempt anew.
        read : callable
            Reads the answer's JSON; raises RequestFailed if it is not valid.
        adapt : callable
            Called with every failure; returns whether `payload` was adapted to what the server
            accepts, in which case the attempt does not count.
        attempts : int, optional
            Fewer attempts than the client's.

        Raises
        ------
        RequestFailed
            The failure of the last attempt.
        """
        began, tries = time.monotonic(), 0
        while True:
            await self._turn()
            sent = time.monotonic()
            self._running += 1
            try:
                value = read(await self._exchange(self.url, payload()))
                self._note_answer()
                return Answer(value, sent - began, time.monotonic() - sent, self._running)
            except RequestFailed as problem:
                failure = problem
            finally:
                self._running -= 1
            if adapt(failure):
                self._note_answer()
                continue
            self._note_failure(failure, sent)
            tries += not failure.busy
            if not failure.retry or tries >= min(attempts or self.attempts, self.attempts):
                raise failure
            await asyncio.sleep(_pause_s(tries))

    async def get(self, url: str, attempts: int = _ATTEMPTS_ABOUT) -> Any:
        """Return the JSON at an address of the server, None where it is up and has none.

        Raises
        ------
        RequestFailed
            If it does not answer, or is not ready.
        """
        for attempt in range(1, attempts + 1):
            try:
                return await self._exchange(url)
            except RequestFailed as failure:
                if not failure.retry:
                    return None
                if attempt == attempts:
                    raise
            await asyncio.sleep(_pause_s(attempt))

    async def _turn(self) -> None:
        """Wait until a request may be sent, one after the other.

        Raises
        ------
        RequestFailed
            If the server is given up.
        """
        async with self._turns:
            while self.given_up is None:
                wait_s = self._resumes_at - time.monotonic()
                if wait_s > 0:
                    await asyncio.sleep(wait_s)
                elif self.unchecked:
                    await self._check()
                else:
                    return
        failure = self.given_up
        raise replace(failure, sentence=str(failure), retry=False, fatal=True)

    async def _check(self) -> None:
        """Ask whether the server is the same one as before."""
        sent = time.monotonic()
        try:
            sentence = self.changed(await self.get(f"{api_of(self.url)}/models", attempts=1))
        except RequestFailed as failure:
            self._note_failure(failure, sent)
            return
        self.unchecked = False
        if sentence is not None:
            self.given_up = RequestFailed(self._shown(sentence), retry=False, fatal=True)

    async def _exchange(self, url: str, payload: Mapping[str, Any] | None = None) -> Any:
        """Send one request, a GET without payload, and return the JSON of its answer."""
        import aiohttp

        seconds = _ABOUT_S if payload is None else self.timeout_s
        try:
            async with self._session.request(
                "GET" if payload is None else "POST",
                url,
                json=payload,
                timeout=aiohttp.ClientTimeout(total=seconds, sock_connect=_CONNECT_S),
                allow_redirects=False,  # the key would go to another host
                proxy=_proxy(url),
            ) as response:
                raw = await _body(response)
            if response.status != 200:
                raise refusal(response.status, raw, response.headers.get("Retry-After"))
            body = _json(raw)
            error = body.get("error") if isinstance(body, dict) else None
            if error:
                code: Any = error.get("code") if isinstance(error, dict) else None
                raise refusal(code if code in range(400, 600) else 500, raw)
            return body
        except asyncio.TimeoutError as error:
            raise RequestFailed(f"no answer within {seconds:g} s") from error
        except (aiohttp.ClientError, OSError) as error:
            fatal = isinstance(error, (aiohttp.InvalidURL, aiohttp.ClientSSLError))
            text = self._shown(str(error) or type(error).__name__)
            raise RequestFailed(f"no connection: {text}", retry=not fatal, fatal=fatal) from error
        except RequestFailed as failure:
            failure.args = (self._shown(str(failure)),)
            raise

    def _shown(self, text: str) -> str:
        """Return what a server wrote as it may be printed."""
        for secret in self.secrets:
            text = text.replace(secret, "***")
        line = " ".join(_MARKUP.sub(" ", text).split())
        return without_commands(one_line(line, _MAX_QUOTED))

    def _note_answer(self) -> None:
        if self._pauses:
            log.info("the server answers again")
        self._answered_at = time.monotonic()
        self._pauses = 0

    def _note_failure(self, failure: RequestFailed, sent: float) -> None:
        now = time.monotonic()
        if failure.fatal:
            self.given_up = self.given_up or failure
        elif not failure.retry:  # the request is at fault
            self._note_answer()
        elif failure.busy or self._answered_at < sent:
            is_new = self._paused_at < sent  # otherwise it was sent before the last pause
            self._pauses += is_new
            pause = _pause_s(self._pauses, failure.wait_s)
            self._resumes_at = max(self._resumes_at, now + pause)
            self.unchecked |= failure.status != 429
            if is_new:
                self._paused_at = now
                level = logging.WARNING if pause >= _WARNED_S else logging.INFO
                log.log(level, "the server gets no request for %.1f s: %s", pause, failure)
            if self._pauses >= max(self.attempts, _FEWEST_PAUSES):
                self.given_up = self.given_up or failure
        else:
            log.info("%s; the request is sent again", failure)


def refusal(status: int, raw: bytes, retry_after: str | None = None) -> RequestFailed:
    r"""Return the failure of an answer with an HTTP status of an error.

    Examples
    --------
    >>> refused = refusal(400, b'{"error": {"message": "logprobs are off"}}')
    >>> str(refused), refused.retry
    ('HTTP 400: logprobs are off', False)
    >>> str(refusal(429, b'{"detail": "slow down"}', "7"))
    'HTTP 429: slow down (Retry-After: 7 s)'
    """
    reason, wait_s = _reason(raw), _seconds(retry_after)
    sentence = f"HTTP {status}" + (f", it {_FATAL[status]}" if status in _FATAL else "")
    if reason and status not in (401, 403):  # whose reason may quote the key
        sentence += f": {reason}"
    if wait_s is not None:
        sentence += f" (Retry-After: {wait_s:g} s)"
    no_quota = status == 429 and "insufficient_quota" in reason
    retry = status in _RETRIED or status < 300 or (status >= 500 and status != 501)
    return RequestFailed(
        sentence,
        status=status,
        reason=reason,
        wait_s=wait_s,
        retry=retry and not no_quota,
        fatal=status in _FATAL or no_quota,
    )


def _json(raw: bytes) -> Any:
    try:
        return json.loads(raw)
    except (ValueError, RecursionError) as error:
        text = raw[:_MAX_QUOTED].decode("utf-8", "replace")
        raise RequestFailed(f"the answer is no JSON: {text}") from error


def _reason(raw: bytes) -> str:
    """Return the texts in the body of an error, the message first."""
    try:
        body = json.loads(raw)
    except (ValueError, RecursionError):
        return raw[: 2 * _MAX_QUOTED].decode("utf-8", "replace")
    error = body.get("error", body) if isinstance(body, dict) else body
    if not isinstance(error, dict):
        return str(error)
    texts = [error.get(key) for key in ("message", "error", "detail", "param", "code", "type")]
    # FastAPI's list of errors of validation, without its `input`, which is the request itself
    parts = [p for text in texts if isinstance(text, list) for p in text if isinstance(p, dict)]
    texts += [f"{part.get('msg')}: {part.get('loc')}" for part in parts]
    return " ".join(text for text in texts if isinstance(text, str)) or json.dumps(body)


def _seconds(retry_after: str | None) -> float | None:
    """Return the seconds of the header Retry-After; None of a date, which few servers send."""
    try:
        seconds = float(retry_after or "")
    except ValueError:
        return None
    return seconds if seconds > 0 else 0.0  # not of NaN either


def api_of(url: str) -> str:
    """Return the address that all paths of a server begin with.

    Examples
    --------
    >>> api_of("http://127.0.0.1:8000/v1/chat/completions?key=x"), api_of("http://h/v1/")
    ('http://127.0.0.1:8000/v1', 'http://h/v1')
    """
    parts = urlsplit(url)
    path = parts.path.rstrip("/").removesuffix("/completions").removesuffix("/chat")
    return f"{parts.scheme}://{parts.netloc}{path}"


def _pause_s(attempt: int, wait_s: float | None = None) -> float:
    """Return the seconds to wait after a failed attempt; those that failed together are spread."""
    doubled = min(FIRST_PAUSE_S * 2.0 ** min(max(attempt, 1) - 1, 20), LONGEST_PAUSE_S)
    pause = doubled * _jitter.uniform(0.75, 1.25)
    return max(pause, min(wait_s or 0.0, _LONGEST_RETRY_AFTER_S))


async def _body(response: Any) -> bytes:
    """Return the body of an answer, decompressed; the rest of one that is too large is not read."""
    body = bytearray()
    async for part in response.content.iter_any():
        body += part
        if len(body) > ALWAYS_BYTES:
            raise RequestFailed(f"the answer has more than {ALWAYS_BYTES:,} bytes")
    return bytes(body)


def _proxy(url: str) -> str | None:
    """Return the proxy of the environment; none for this computer, which no proxy reaches."""
    parts = urlsplit(url)
    host = parts.hostname or ""
    is_here = host in ("localhost", "::1") or host.startswith("127.")
    return None if is_here or proxy_bypass(host) else getproxies().get(parts.scheme)


def _keep_alive_socket(address: Any) -> socket.socket:
    connection = socket.socket(*address[:3])
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    for option, value in _KEEP_ALIVE.items():
        if hasattr(socket, option):
            connection.setsockopt(socket.IPPROTO_TCP, getattr(socket, option), value)
    return connection
