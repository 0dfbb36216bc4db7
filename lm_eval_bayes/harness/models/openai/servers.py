"""Which server a request goes to: least outstanding requests first, failing servers left out.

The rules of :class:`ServerPool`, for one server as for several:

- A request goes to the server with the fewest running requests; after a failure to another one
  where there is one.
- A server that fails, and has answered nothing since the failed request was sent, is left out: for
  half a second, doubled each further time in a row up to 30 s. Then a single request tries it, and
  an answer lets it take part again. While it answers other requests it is not left out, so that
  single failures stop nobody.
- A server that is busy (HTTP 429, Retry-After) gets no request for as long as it asks for, up to
  ten minutes, and at least for the times above.
- A server that cannot be reached is first asked for its model, and given up if that is another.
- A server is given up when it refuses every request (a wrong key or path). When all are given up,
  or have been left out as often in a row as a request may be sent, no request is sent any more.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator, Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from lm_eval_bayes._util.addresses import host_of
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

#: Seconds for which a failing server is left out: the first time, and at most.
FIRST_LEFT_OUT_S = 0.5
LONGEST_LEFT_OUT_S = 30.0

#: Seconds before a request is sent again to a server that answers others: first, and at most.
_FIRST_AGAIN_S = 0.05
LONGEST_AGAIN_S = 1.0

#: Seconds for which an attempt does not count that failed as many of other requests did: longer
#: than a proxy takes to notice that one of its servers ended; and how many are many.
_PATIENCE_S = 60.0
_MANY_FAILURES = 3

#: So often in a row a server is left out, at least, before it is given up.
_FEWEST_TIMES = 3

_Value = TypeVar("_Value")


@dataclass(frozen=True)
class Exchange(Generic[_Value]):
    """An answered request and its times.

    Attributes
    ----------
    value : object
        The parsed answer.
    server : str
        Host and port of the server that answered.
    waited_s : float
        Seconds from the first attempt to the one that was answered.
    took_s : float
        Seconds of that attempt.
    running : int
        Number of requests that ran on that server at its end, this one included.
    """

    value: _Value
    server: str
    waited_s: float
    took_s: float
    running: int


@dataclass(eq=False)
class ServerState:
    """One server of a pool.

    Attributes
    ----------
    url : str
        Its address.
    running, sent : int
        The numbers of its running requests and of all that were sent to it.
    answered : int
        The number of its answers.
    answered_at : float
        The monotonic time of the last one.
    left_out : int
        How often in a row it was left out, with no answer between.
    left_out_at, closed_until : float
        The monotonic times of the last time, and of its end.
    busy : int
        How often in a row it was busy, with no answer between.
    busy_at, busy_until : float
        The monotonic times of the last time, and of its end.
    tried : bool
        Whether a single request tries it.
    unchecked : bool
        Whether its model has to be asked for before a request is sent.
    failure : ExchangeFailed or None
        Its last failure.
    given_up : bool
        Whether it gets no further request.
    """

    url: str
    running: int = 0
    sent: int = 0
    answered: int = 0
    answered_at: float = -1.0
    left_out: int = 0
    left_out_at: float = -1.0
    closed_until: float = 0.0
    busy: int = 0
    busy_at: float = -1.0
    busy_until: float = 0.0
    tried: bool = False
    unchecked: bool = False
    failure: ExchangeFailed | None = None
    given_up: bool = False
    backoff: Backoff = field(default_factory=lambda: Backoff(0))

    @property
    def name(self) -> str:
        """Host and port."""
        return host_of(self.url)

    @property
    def opens_at(self) -> float:
        """The monotonic time from which it takes requests."""
        return max(self.closed_until, self.busy_until)

    def is_open(self, now: float) -> bool:
        """Whether it takes a request now."""
        return not self.given_up and not self.tried and self.opens_at <= now


class ServerPool:
    """Requests to the servers of one model, with retries.

    Parameters
    ----------
    endpoint : Endpoint
        The servers' addresses and the settings of the requests.
    session : aiohttp.ClientSession
        Their connections.
    model : str or None
        The model's name in the requests.
    served : mapping or None
        What the servers are known to report of their model.
    unchecked : collection of str
        Addresses of the servers whose model is to be asked for before their first request.
    """

    def __init__(
        self,
        endpoint: Endpoint,
        session: aiohttp.ClientSession,
        model: str | None = None,
        served: Mapping[str, Any] | None = None,
        unchecked: Collection[str] = (),
    ) -> None:
        self._endpoint, self._session = endpoint, session
        self._model, self._served = model, served
        self.servers = [
            ServerState(
                url,
                unchecked=url in unchecked,
                backoff=Backoff(endpoint.seed + i, FIRST_LEFT_OUT_S, LONGEST_LEFT_OUT_S),
            )
            for i, url in enumerate(endpoint.urls)
        ]
        self._again = Backoff(endpoint.seed, _FIRST_AGAIN_S, LONGEST_AGAIN_S)
        self._changed = asyncio.Event()
        self._failed = 0
        self._dead: ExchangeFailed | None = None

    @classmethod
    @contextlib.asynccontextmanager
    async def opened(
        cls, endpoint: Endpoint, concurrency: int, **settings: Any
    ) -> AsyncIterator[ServerPool]:
        """Open connections for a number of concurrent requests."""
        async with endpoint.session(concurrency) as session:
            yield cls(endpoint, session, **settings)

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
        started, tries, failures, answered = time.monotonic(), 0, 0, self._answered()
        most = min(attempts or self._endpoint.attempts, self._endpoint.attempts)
        failed, first_failed = self._failed, 0.0
        failed_at: ServerState | None = None
        while True:
            server = await self._next(failed_at)
            trying = server.tried  # by this request
            try:
                if server.unchecked and not await self._is_up(server):
                    continue
                sent = time.monotonic()
                server.sent += 1
                try:
                    body = await post(
                        self._session, server.url, payload(), self._endpoint.timeout_s
                    )
                    value = read(body)
                except ExchangeFailed as problem:
                    problem.args = (without_secrets(str(problem), self._endpoint.secrets),)
                    failure = problem
                else:
                    self._note_answer(server)
                    took = time.monotonic() - sent
                    return Exchange(value, server.name, sent - started, took, server.running)
                if adapt(failure):
                    self._note_answer(server)
                    continue
                tries += 1
                self._failed += 1
                first_failed = first_failed or time.monotonic()
                n_answered, n_failed = self._answered() - answered, self._failed - failed - 1
                many = max(n_answered, _MANY_FAILURES)
                at_fault = n_failed >= many and time.monotonic() - first_failed < _PATIENCE_S
                failures += not (n_answered and (failure.busy or at_fault))
                answered, failed, failed_at = self._answered(), self._failed, server
                self._note_failure(server, failure, sent)
            finally:
                server.running -= 1
                server.tried &= not trying
                self._notify()
            if failure.fatal:
                continue  # another server may take it
            if not failure.retry:
                raise failure
            if failures >= most:
                raise ExchangeFailed(f"{failure} (attempts: {tries})", retry=False) from failure
            log.info("%s: %s; it is sent again", server.name, failure)
            await asyncio.sleep(self._again.pause_s(tries))

    async def _next(self, failed_at: ServerState | None) -> ServerState:
        """Wait for a server that takes a request, and take the one with the fewest running.

        Raises
        ------
        ExchangeFailed
            If no server is left.
        """
        while True:
            if self._dead is not None:
                raise ExchangeFailed(str(self._dead), retry=False, fatal=True)
            now = time.monotonic()
            server = min(
                (server for server in self.servers if server.is_open(now)),
                key=lambda server: (server is failed_at, server.running, server.sent),
                default=None,
            )
            if server is not None:
                server.running += 1
                server.tried = server.left_out > 0 or server.unchecked
                return server
            waiting = [s.opens_at for s in self.servers if not s.given_up and not s.tried]
            changed = self._changed
            with contextlib.suppress(asyncio.TimeoutError):
                left = max(min(waiting) - now, 0.0) if waiting else None
                await asyncio.wait_for(changed.wait(), left)

    async def _is_up(self, server: ServerState) -> bool:
        """Ask for a server's model; note a failure, or that it is another one."""
        asked = time.monotonic()
        try:
            model = served_model(await get(self._session, models_url(server.url)), self._model)
        except ExchangeFailed as failure:
            failure.args = (without_secrets(str(failure), self._endpoint.secrets),)
            self._note_failure(server, failure, asked)
            return False
        if model is not None and self._served is not None and model != self._served:
            sentence = other_model(self._served, "the others", model, server.url)
            self._give_up(server, ExchangeFailed(sentence, retry=False, fatal=True))
            return False
        self._served = self._served or model
        server.unchecked = False
        return True

    def _note_answer(self, server: ServerState) -> None:
        if server.left_out:
            log.info("%s answers again", server.name)
        server.answered += 1
        server.answered_at = time.monotonic()
        server.left_out, server.busy, server.closed_until, server.failure = 0, 0, 0.0, None

    def _note_failure(self, server: ServerState, failure: ExchangeFailed, sent: float) -> None:
        now = time.monotonic()
        server.failure = failure
        if failure.fatal:
            self._give_up(server, failure)
        elif not failure.retry:  # the request is at fault
            self._note_answer(server)
        elif failure.busy:
            server.busy += sent > server.busy_at
            server.busy_at = now
            pause = server.backoff.pause_s(max(server.busy, 1), failure.wait_s)
            server.busy_until = max(server.busy_until, now + pause)
        elif max(server.answered_at, server.left_out_at) < sent:
            server.left_out += 1
            server.left_out_at = now
            server.unchecked |= not failure.connected
            pause = server.backoff.pause_s(server.left_out)
            server.closed_until = now + pause
            log.info("%s is left out for %.1f s: %s", server.name, pause, failure)
            if server.left_out == 1 and len(self.servers) > 1:
                log.warning("%s is left out until it answers again: %s", server.name, failure)
        self._end_if_dead()

    def _give_up(self, server: ServerState, failure: ExchangeFailed) -> None:
        if not server.given_up and len(self.servers) > 1:
            log.warning("%s gets no further request: %s", server.name, failure)
        server.given_up, server.failure = True, failure
        self._end_if_dead()

    def _end_if_dead(self) -> None:
        """Send no further request if no server is left."""
        limit = max(self._endpoint.attempts, _FEWEST_TIMES)
        if self._dead is None and all(s.given_up or s.left_out >= limit for s in self.servers):
            self._dead = ExchangeFailed(_why(self.servers), retry=False, fatal=True)
            self._notify()

    def _notify(self) -> None:
        """Wake the requests that wait for a server."""
        self._changed.set()
        self._changed = asyncio.Event()

    def _answered(self) -> int:
        return sum(server.answered for server in self.servers)


def _why(servers: Sequence[ServerState]) -> str:
    if len(servers) == 1:
        return str(servers[0].failure)
    reasons = "; ".join(f"{server.name}: {server.failure}" for server in servers)
    return f"no server answers ({reasons})"
