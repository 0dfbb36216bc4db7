"""Requests to a server that are sent again until it answers, and the pauses between them.

The rules of :class:`RetryingClient`:

- A server that fails, and has answered nothing since the failed request was sent, gets no request
  for half a second, doubled each further time in a row up to 30 s. Then a single request tries it,
  and an answer ends the pauses. While it answers other requests there is no pause, so that single
  failures stop nobody.
- A server that is busy (HTTP 429, Retry-After) gets no request for as long as it asks for, up to
  ten minutes, and at least for the times above.
- A server that could not be reached is first asked for its model, and given up if that is another.
- A server is given up when it refuses every request (a wrong key or path), or paused as often in a
  row as a request may be sent. Then no request is sent any more.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from lm_eval_bayes._util.retry import Backoff
from lm_eval_bayes.harness import get_logger
from lm_eval_bayes.harness.models.openai.connection import Endpoint, get, post
from lm_eval_bayes.harness.models.openai.responses import ExchangeFailed
from lm_eval_bayes.harness.models.openai.served_models import (
    models_url,
    other_model,
    served_model,
)
from lm_eval_bayes.runs.model_arguments import without_secrets

if TYPE_CHECKING:
    import aiohttp

log = get_logger(__name__)

#: Seconds for which a failing server gets no request: the first time, and at most.
FIRST_PAUSE_S = 0.5
LONGEST_PAUSE_S = 30.0

#: Seconds before a request is sent again to a server that answers others: first, and at most.
_FIRST_AGAIN_S = 0.05
LONGEST_AGAIN_S = 1.0

#: Seconds for which an attempt does not count that failed as many of other requests did: longer
#: than a proxy takes to notice that one of its servers ended; and how many are many.
_PATIENCE_S = 60.0
_MANY_FAILURES = 3

#: So often in a row a server is paused, at least, before it is given up.
_FEWEST_PAUSES = 3

_Value = TypeVar("_Value")


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
        Number of requests that ran at its end, this one included.
    """

    value: _Value
    waited_s: float
    took_s: float
    running: int


class RetryingClient:
    """Requests to a server, with retries.

    Parameters
    ----------
    endpoint : Endpoint
        The server's address and the settings of the requests.
    session : aiohttp.ClientSession
        The connections.
    model : str or None
        The model's name in the requests.
    served : mapping or None
        What the server is known to report of its model.
    unchecked : bool
        Whether the server has to be asked for its model before a request is sent.
    """

    def __init__(
        self,
        endpoint: Endpoint,
        session: aiohttp.ClientSession,
        model: str | None,
        served: Mapping[str, Any] | None,
        unchecked: bool,
    ) -> None:
        self._endpoint, self._session = endpoint, session
        self._model, self._served, self._unchecked = model, served, unchecked
        self._pause = Backoff(endpoint.seed, FIRST_PAUSE_S, LONGEST_PAUSE_S)
        self._again = Backoff(endpoint.seed, _FIRST_AGAIN_S, LONGEST_AGAIN_S)
        self._changed = asyncio.Event()
        self._given_up: ExchangeFailed | None = None
        self._running = self._answered = self._failed = 0
        self._answered_at = -1.0
        # how often in a row there was a pause, and when the last one began and ends
        self._pauses, self._paused_at, self._paused_until = 0, -1.0, 0.0
        # the same of the server being busy
        self._busy, self._busy_at, self._busy_until = 0, -1.0, 0.0
        self._is_tried = False  # by a single request, after a pause

    async def ask(
        self,
        payload: Callable[[], dict[str, Any]],
        read: Callable[[Any], _Value],
        adapt: Callable[[ExchangeFailed], bool],
        attempts: int | None = None,
    ) -> Exchange[_Value]:
        """Send a request until it is answered or refused.

        An attempt that a busy server (HTTP 429 or a Retry-After) refuses does not count if
        other requests have been answered since the attempt before; nor does, for a minute, one that
        failed while some other requests were answered and at least as many failed, three or more:
        the server is at fault then, and not the request.

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
        started, tries, failures, answered = time.monotonic(), 0, 0, self._answered
        most = min(attempts or self._endpoint.attempts, self._endpoint.attempts)
        failed, first_failed = self._failed, 0.0
        while True:
            tries_alone = await self._turn()
            try:
                if self._unchecked and not await self._is_up():
                    continue
                sent = time.monotonic()
                try:
                    body = await post(
                        self._session, self._endpoint.url, payload(), self._endpoint.timeout_s
                    )
                    value = read(body)
                except ExchangeFailed as problem:
                    failure = self._without_secrets(problem)
                else:
                    self._note_answer()
                    took = time.monotonic() - sent
                    return Exchange(value, sent - started, took, self._running)
                if adapt(failure):
                    self._note_answer()
                    continue
                tries += 1
                self._failed += 1
                first_failed = first_failed or time.monotonic()
                n_answered, n_failed = self._answered - answered, self._failed - failed - 1
                many = max(n_answered, _MANY_FAILURES)
                at_fault = n_failed >= many and time.monotonic() - first_failed < _PATIENCE_S
                failures += not (n_answered and (failure.busy or at_fault))
                answered, failed = self._answered, self._failed
                self._note_failure(failure, sent)
            finally:
                self._running -= 1
                self._is_tried &= not tries_alone
                self._notify()
            if not failure.retry:
                raise failure
            if failures >= most:
                raise ExchangeFailed(f"{failure} (attempts: {tries})", retry=False) from failure
            log.info("%s; the request is sent again", failure)
            await asyncio.sleep(self._again.pause_s(tries))

    async def _turn(self) -> bool:
        """Wait until a request may be sent; return whether it alone tries the server.

        Raises
        ------
        ExchangeFailed
            If the server is given up.
        """
        while True:
            if self._given_up is not None:
                raise ExchangeFailed(str(self._given_up), retry=False, fatal=True)
            wait_s = max(self._paused_until, self._busy_until) - time.monotonic()
            if wait_s <= 0 and not self._is_tried:
                self._running += 1
                self._is_tried = self._pauses > 0 or self._unchecked
                return self._is_tried
            changed = self._changed
            with contextlib.suppress(asyncio.TimeoutError):
                await asyncio.wait_for(changed.wait(), None if self._is_tried else wait_s)

    async def _is_up(self) -> bool:
        """Ask for the server's model; note a failure, or that it is another one."""
        url, asked = self._endpoint.url, time.monotonic()
        try:
            model = served_model(await get(self._session, models_url(url)), self._model)
        except ExchangeFailed as failure:
            self._note_failure(self._without_secrets(failure), asked)
            return False
        if model is not None and self._served is not None and model != self._served:
            sentence = other_model(self._served, model, url)
            self._give_up(ExchangeFailed(sentence, retry=False, fatal=True))
            return False
        self._served = self._served or model
        self._unchecked = False
        return True

    def _without_secrets(self, failure: ExchangeFailed) -> ExchangeFailed:
        failure.args = (without_secrets(str(failure), self._endpoint.secrets),)
        return failure

    def _note_answer(self) -> None:
        if self._pauses:
            log.info("the server answers again")
        self._answered += 1
        self._answered_at = time.monotonic()
        self._pauses, self._busy, self._paused_until = 0, 0, 0.0

    def _note_failure(self, failure: ExchangeFailed, sent: float) -> None:
        now = time.monotonic()
        if failure.fatal:
            self._give_up(failure)
        elif not failure.retry:  # the request is at fault
            self._note_answer()
        elif failure.busy:
            self._busy += sent > self._busy_at
            self._busy_at = now
            pause = self._pause.pause_s(max(self._busy, 1), failure.wait_s)
            self._busy_until = max(self._busy_until, now + pause)
        elif max(self._answered_at, self._paused_at) < sent:
            self._pauses += 1
            self._paused_at = now
            self._unchecked |= not failure.connected
            pause = self._pause.pause_s(self._pauses)
            self._paused_until = now + pause
            log.info("the server gets no request for %.1f s: %s", pause, failure)
            if self._pauses >= max(self._endpoint.attempts, _FEWEST_PAUSES):
                self._give_up(failure)

    def _give_up(self, failure: ExchangeFailed) -> None:
        """Send no further request."""
        self._given_up = self._given_up or failure
        self._notify()

    def _notify(self) -> None:
        """Wake the requests that wait for their turn."""
        self._changed.set()
        self._changed = asyncio.Event()
