"""One connection to a server: requests, time-outs, and trying again with patience."""

from __future__ import annotations

import asyncio
import json
import random
import time
from collections.abc import Callable
from dataclasses import dataclass
from types import TracebackType
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from lm_eval_bayes._util.retry import retry_after
from lm_eval_bayes.harness.logs import get_logger
from lm_eval_bayes.harness.models.openai.endpoint import Line, watched_sockets
from lm_eval_bayes.harness.models.openai.errors import (
    ExchangeFailed,
    error_object,
    refusal,
    unreadable,
    without_secrets,
)

if TYPE_CHECKING:
    import aiohttp

log = get_logger(__name__)

_Value = TypeVar("_Value")

#: Seconds before a second attempt; doubled before each further one.
FIRST_PAUSE_S = 1.0
_LONGEST_PAUSE_S = 60.0
_LONGEST_ASKED_PAUSE_S = 600.0
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

    def __init__(self, line: Line, at_once: int) -> None:
        self._line = line
        self._at_once = at_once
        self._under_way = 0
        self._answered = 0
        self._open_again = 0.0
        self._session: aiohttp.ClientSession | None = None

    async def __aenter__(self) -> Connection:
        import aiohttp

        self._session = aiohttp.ClientSession(
            connector=aiohttp.TCPConnector(
                limit=self._at_once, ssl=self._line.tls(), **watched_sockets(aiohttp.TCPConnector)
            ),
            timeout=aiohttp.ClientTimeout(total=self._line.timeout_s, sock_connect=_CONNECT_S),
            headers=dict(self._line.headers),
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
            Fewer than the line's.

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
            if failures >= min(attempts or self._line.attempts, self._line.attempts):
                raise ExchangeFailed(f"{failure} (attempts: {tries})", retry=False) from failure
            pause = self._pause_after(failure, tries)
            log.info("%s; trying again in %.1f s", failure, pause)
            await asyncio.sleep(pause)

    async def _until_open(self) -> None:
        while (left := self._open_again - time.monotonic()) > 0:
            await asyncio.sleep(left)

    def _pause_after(self, failure: ExchangeFailed, tries: int) -> float:
        doubled = min(FIRST_PAUSE_S * 2.0 ** min(tries - 1, 20), _LONGEST_PAUSE_S)
        # Requests that failed together should not come back together.
        pause = doubled * random.uniform(0.75, 1.25)
        if failure.wait_s is None:
            return pause
        asked = min(failure.wait_s, _LONGEST_ASKED_PAUSE_S)
        # The server means all of us.
        self._open_again = max(self._open_again, time.monotonic() + asked)
        return max(asked, pause)

    async def _post(self, payload: dict[str, Any]) -> Any:
        import aiohttp

        session = self._session
        if session is None:
            raise RuntimeError("the connection is not open")
        try:
            async with session.post(self._line.url, json=payload) as response:
                status, raw = response.status, await response.read()
                wait_s = retry_after(response.headers.get("Retry-After"))
        except asyncio.TimeoutError as error:
            seconds = f"{self._line.timeout_s:.0f} s"
            raise ExchangeFailed(f"no answer within {seconds} (timeout=)", retry=True) from error
        except aiohttp.ClientPayloadError as error:
            raise ExchangeFailed("the answer broke off before its end", retry=True) from error
        except (aiohttp.InvalidURL, aiohttp.ClientSSLError) as error:
            raise self._failed(error, hopeless=True) from error
        except (aiohttp.ClientError, OSError) as error:
            raise self._failed(error, hopeless=False) from error
        if status != 200:
            failure = refusal(status, raw, wait_s)
            failure.args = (without_secrets(str(failure), self._line.secrets),)
            raise failure
        try:
            body = json.loads(raw)
        except ValueError as error:
            raise unreadable(raw) from error
        if isinstance(body, dict) and body.get("error"):
            failure = error_object(body["error"])
            failure.args = (without_secrets(str(failure), self._line.secrets),)
            raise failure
        return body

    def _failed(self, error: Exception, hopeless: bool) -> ExchangeFailed:
        said = without_secrets(str(error) or type(error).__name__, self._line.secrets)
        return ExchangeFailed(f"no connection: {said}", retry=not hopeless, hopeless=hopeless)
