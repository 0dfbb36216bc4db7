"""The retry policy of requests over HTTP: which are retried, and after which pause."""

from __future__ import annotations

import email.utils
import random
import time

#: Seconds before the second attempt; doubled before each further one, up to the longest.
FIRST_PAUSE_S = 1.0
_LONGEST_PAUSE_S = 60.0
#: The longest pause that a server may ask for by Retry-After.
_LONGEST_RETRY_AFTER_S = 600.0
#: Jitter: requests that failed together should not be repeated together.
_JITTER = (0.75, 1.25)

_RETRIED = frozenset({408, 409, 425, 429})


def is_retried(status: int) -> bool:
    """Return whether a request with this HTTP status may succeed later.

    Examples
    --------
    >>> [status for status in (400, 404, 429, 500, 501, 503) if is_retried(status)]
    [429, 500, 503]
    """
    return status in _RETRIED or (status >= 500 and status != 501)  # which is not implemented


class Backoff:
    """Exponential backoff with jitter.

    Parameters
    ----------
    seed : int
        Seeds the jitter.
    first_s : float, optional
        Seconds before the second attempt.
    longest_s : float
        The longest pause in seconds.
    """

    def __init__(
        self, seed: int, first_s: float | None = None, longest_s: float = _LONGEST_PAUSE_S
    ) -> None:
        self._rng = random.Random(seed)
        self._first_s = FIRST_PAUSE_S if first_s is None else first_s
        self._longest_s = longest_s

    def pause_s(self, attempt: int, retry_after_s: float | None = None) -> float:
        """Return the seconds to wait after a failed attempt.

        Parameters
        ----------
        attempt : int
            The number of the attempt that failed, from 1.
        retry_after_s : float or None
            The server's Retry-After: the pause is at least that long, up to ten minutes.

        Examples
        --------
        >>> backoff = Backoff(seed=0)
        >>> 0.75 <= backoff.pause_s(1) <= 1.25, backoff.pause_s(1, retry_after_s=30.0)
        (True, 30.0)
        """
        doubled = min(self._first_s * 2.0 ** min(attempt - 1, 20), self._longest_s)
        pause = doubled * self._rng.uniform(*_JITTER)
        return max(pause, min(retry_after_s or 0.0, _LONGEST_RETRY_AFTER_S))


def retry_after(header: str | None) -> float | None:
    """Parse the header Retry-After: seconds, or a date.

    Examples
    --------
    >>> retry_after("1.5"), retry_after("soon"), retry_after(None)
    (1.5, None, None)
    >>> retry_after("Wed, 21 Oct 2015 07:28:00 GMT")
    0.0
    """
    try:
        seconds = float(header or "")
    except ValueError:
        try:
            date = email.utils.parsedate_to_datetime(header or "")
        except (TypeError, ValueError):
            return None
        seconds = date.timestamp() - time.time()
    # Neither the past nor NaN is a time to wait.
    return seconds if seconds > 0 else 0.0
