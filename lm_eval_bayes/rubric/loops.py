"""Whether a text ends in a loop: the same words over and over, until the tokens ran out."""

from __future__ import annotations

#: The longest pattern that is looked for, in characters.
_LONGEST = 1500
#: How often it must stand at the end, and how many characters that must come to.
_TIMES = 4
_LEAST = 120


def text_loop(text: str) -> bool:
    """Return whether a text ends in one pattern, repeated.

    The last characters are a loop if they consist of at least four copies of one pattern of up
    to 1,500 characters, the last of them perhaps cut off, and are at least 120 characters long.
    It takes time linear in the last 6,000 characters.

    Parameters
    ----------
    text : str
        The whole response.

    Returns
    -------
    bool

    Examples
    --------
    >>> text_loop("So x = 3. " + "Wait, let me check again. " * 20 + "Wait, le")
    True
    >>> text_loop("So x = 3. Wait, let me check again. The answer is 3.")
    False
    """
    # Seen from its end, a loop is a prefix with a short period, and the Z array has all of them.
    end = text.rstrip()[::-1][: _LONGEST * _TIMES]
    matches = _matches(end)
    return any(
        length + period >= max(_TIMES * period, _LEAST)
        for period, length in enumerate(matches[: _LONGEST + 1])
        if period
    )


def _matches(text: str) -> list[int]:
    """Return for each place how many characters from there on equal the text's first ones."""
    found = [len(text)] + [0] * (len(text) - 1) if text else []
    left = right = 0
    for i in range(1, len(text)):
        length = min(right - i, found[i - left]) if i < right else 0
        while i + length < len(text) and text[length] == text[i + length]:
            length += 1
        found[i] = length
        if i + length > right:
            left, right = i, i + length
    return found
