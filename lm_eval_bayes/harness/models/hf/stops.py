"""Where a completion's tokens first spell a stop string."""

from __future__ import annotations

from collections.abc import Callable, Sequence


class StopFinder:
    """Finds the token with which one of some strings first stands in the text.

    Text is decoded with special tokens in it, as the harness does when it looks for stops.

    Parameters
    ----------
    stops : sequence of str
        The stop strings; empty ones never match.
    decode : callable
        Token ids to text, special tokens included.
    every : int
        After how many new tokens it is worth looking; tokens beyond the stop are given up.
    """

    def __init__(
        self, stops: Sequence[str], decode: Callable[[Sequence[int]], str], every: int = 4
    ) -> None:
        self.stops = tuple(dict.fromkeys(s for s in stops if s))
        self.every = every
        self._decode = decode
        longest = max((len(s.encode("utf-8", "surrogatepass")) for s in self.stops), default=0)
        # A token may be as little as one byte; the margin keeps away what the cut may garble.
        self._look_back = longest + 8

    def find(self, tokens: Sequence[int], checked: int = 0) -> tuple[int, str] | None:
        """Find the first stop.

        Parameters
        ----------
        tokens : sequence of int
            A completion's tokens.
        checked : int
            How many of them, from the start, are known to hold no stop.

        Returns
        -------
        (int, str) or None
            The number of tokens up to and with the one that completes a stop string, and that
            string; the one that begins first, where one token completes several.
        """
        if not self.stops or len(tokens) <= checked:
            return None
        recent = self._decode(tokens[max(0, checked - self._look_back) :])
        if not self._among(recent) or not self._among(self._decode(tokens)):
            return None
        without, having = checked, len(tokens)
        while having - without > 1:
            middle = (without + having) // 2
            if self._among(self._decode(tokens[:middle])):
                having = middle
            else:
                without = middle
        text = self._decode(tokens[:having])
        found = self._among(text) or self.stops
        return having, min(found, key=lambda s: (text.find(s), -len(s)))

    def _among(self, text: str) -> list[str]:
        return [s for s in self.stops if s in text]
