"""Many jobs at once in an event loop of their own, their results one by one as they end."""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections.abc import Awaitable, Callable, Iterable, Iterator
from queue import SimpleQueue
from typing import NamedTuple, TypeAlias, TypeVar

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
    in their order. The loop runs in a thread, so it goes on while the caller works on a
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
