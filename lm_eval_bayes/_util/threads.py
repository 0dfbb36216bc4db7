"""A map in threads that ends early when it is interrupted."""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

_Item = TypeVar("_Item")
_Result = TypeVar("_Result")


def map_in_threads(
    function: Callable[[_Item], _Result], items: Iterable[_Item], n_threads: int
) -> Generator[_Result, None, None]:
    """Yield `function(item)` of every item, in the order of the items.

    If the caller is interrupted, or a call raises, calls that have not begun are not made.
    Modules that `function` needs must have been imported before: an import that is interrupted
    while a thread waits for it may never release its lock.

    Parameters
    ----------
    function : callable
        Runs in `n_threads` threads.
    items : iterable
        What it is called with.
    n_threads : int
        At least 1.

    Examples
    --------
    >>> list(map_in_threads(abs, [-1, -2, -3], 2))
    [1, 2, 3]
    """
    pool = ThreadPoolExecutor(n_threads)
    try:
        for future in [pool.submit(function, item) for item in items]:
            yield future.result()
    finally:
        pool.shutdown(cancel_futures=True)
