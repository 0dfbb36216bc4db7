"""Concurrent requests for trials to an OpenAI-compatible server."""

from __future__ import annotations

import asyncio
import contextlib
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
from typing import Any, TypeAlias, TypeVar

from lm_eval_bayes._util.text import join_words
from lm_eval_bayes.harness.models.interface import TrialRequest
from lm_eval_bayes.harness.models.openai.connection import Endpoint
from lm_eval_bayes.harness.models.openai.request import Payloads, token_count
from lm_eval_bayes.harness.models.openai.responses import (
    ExchangeFailed,
    read_prompt_bits,
    read_trial,
)
from lm_eval_bayes.harness.models.openai.retrying import Exchange, RetryingClient
from lm_eval_bayes.store.trial import Trial

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
    deadline: Callable[[], float | None],
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

#: Fields of a trial that a server may not send.
_COUNTED = ("prompt_tokens", "completion_tokens", "finish_reason")

#: Attempts of a request that only measures a prompt.
_ATTEMPTS_TO_MEASURE = 2


@dataclass(eq=False)
class TrialClient:
    """Requests trials from a server, as long as it answers.

    Parameters
    ----------
    payloads : Payloads
        Builds the bodies of the requests.
    endpoint : Endpoint
        Its address.
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
    served : mapping or None
        What the server is known to report of its model.
    unchecked : bool
        Whether the server has not been asked for its model.
    """

    payloads: Payloads
    endpoint: Endpoint
    messages: Mapping[str, Any]
    to_measure: set[str]
    concurrency: int
    think_end_token: str | None
    warn_once: Callable[..., None]
    served: Mapping[str, Any] | None = None
    unchecked: bool = False
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
        """Open the connections and return the function that requests one trial."""
        async with self.endpoint.session(self.concurrency) as session:
            server = RetryingClient(
                self.endpoint, session, self.payloads.model_name, self.served, self.unchecked
            )
            yield partial(self._send, server)

    async def _send(self, server: RetryingClient, request: TrialRequest) -> Outcome:
        measured = await self._measured(server, request)
        sent: dict[str, Any] = {}

        def payload() -> dict[str, Any]:
            sent.clear()
            sent.update(self.payloads.of(request, self.messages[request.prompt]))
            return sent

        try:
            exchange = await server.ask(
                payload,
                lambda body: read_trial(
                    request,
                    body,
                    self.payloads.chat,
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

    async def _measured(self, server: RetryingClient, request: TrialRequest) -> dict[str, float]:
        """Return the signals of the request's prompt, if it is the first with this prompt."""
        wanted = request.prompt in self.to_measure and not self._given_up
        if not wanted or not self.payloads.measures:
            return {}
        self.to_measure.discard(request.prompt)
        problem: object = "the server did not send it"
        bits = None
        try:
            exchange = await server.ask(
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
        missing = [name for name in _COUNTED if getattr(answer, name) is None]
        if self.payloads.measures and "completion_bpt" not in signals and answer.text:
            if self.payloads.tempers(request):
                self.warn_once(
                    "tempered",
                    "completion_bpt is not recorded: SGLang's log-probabilities are those of the "
                    "request's temperature, %s, and the signal is of temperature 1",
                    request.kwargs.get("temperature"),
                )
            else:
                missing.append("completion_bpt")
        if missing:
            self.warn_once(
                "missing signals",
                "%s %s not recorded: the server sent none",
                join_words(missing),
                "is" if len(missing) == 1 else "are",
            )
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
        limit, used = request.kwargs["max_gen_toks"], answer.completion_tokens
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
            seed=answer.seed if self.payloads.seeded else None,
            signals=signals,
            queued_s=exchange.waited_s + (answer.queued_s or 0.0),
            generated_s=exchange.took_s if answer.generated_s is None else answer.generated_s,
            concurrency=exchange.running,
        )
