"""How long a server asks to be left alone."""

from __future__ import annotations

import email.utils
import time


def retry_after(header: str | None) -> float | None:
    """Read the header Retry-After: seconds, or a date.

    Examples
    --------
    >>> retry_after("1.5"), retry_after("soon"), retry_after(None)
    (1.5, None, None)
    >>> retry_after("Wed, 21 Oct 2015 07:28:00 GMT")
    0.0
    """
    if header is None:
        return None
    try:
        seconds = float(header)
    except ValueError:
        try:
            seconds = email.utils.parsedate_to_datetime(header).timestamp() - time.time()
        except (TypeError, ValueError):
            return None
    # Neither the past nor NaN is a time to wait.
    return seconds if seconds > 0 else 0.0
