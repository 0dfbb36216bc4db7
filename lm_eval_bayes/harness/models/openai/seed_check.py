"""Whether a server honours the seeds of requests, asked before anything is sampled.

Per round a server is asked for three short texts at temperature 1: two with one seed, and one with
another. A round speaks for seeds where the texts of one seed are equal and the other is not.
Numerical noise between batches may change a text in spite of its seed, so it also does where the
texts of one seed part much later than those of two seeds. Three rounds that speak for seeds show
that they are honoured, as a chance agreement does not; four that do not, that they are ignored.
All texts equal, in three rounds, is what a server with one fixed seed gives, for which all trials
of a question would be one text.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from enum import Enum
from itertools import takewhile

#: The maximal number of tokens of each text.
TOKENS = 16
#: The most rounds, those that must speak for seeds, and those after which equal or empty texts are
#: a verdict.
ROUNDS, _SPEAK, _EQUAL = 6, 3, 3

#: Continued or answered in many ways, so that texts of different draws rarely agree.
PROMPTS = (
    "Write a list of random words, separated by commas:",
    "Make up the name of a town, and tell something about it:",
    "Write the first sentence of a story that nobody has told:",
)

#: In a round without equal texts those of one seed must agree for more than this many times the
#: characters that those of two seeds share, and so many of them more: texts often begin alike, with
#: a line break or a quote.
_TIMES_AS_LONG, _LIKE_BEGINNING = 3, 2


class Verdict(Enum):
    """What the check of a server's seeds found."""

    HONOURED = "honoured"
    IGNORED = "ignored"
    ONE_TEXT = "one text"
    UNKNOWN = "unknown"


def check_seeds(text_of: Callable[[str, int], str], seed: int) -> Verdict:
    """Ask a server for texts, and return whether it honours seeds.

    Parameters
    ----------
    text_of : callable
        Returns the server's text for a prompt and a seed.
    seed : int
        The seeds are `seed`, `seed` + 1, and so on.

    Returns
    -------
    Verdict
        UNKNOWN if the server gives empty texts.

    Examples
    --------
    >>> from random import Random
    >>> check_seeds(lambda prompt, seed: str(Random(seed).random()), 1).value
    'honoured'
    >>> check_seeds(lambda prompt, seed: str(Random().random()), 1).value
    'ignored'
    """
    rounds: list[tuple[str, str, str]] = []
    for number in range(ROUNDS):
        prompt, own = PROMPTS[number % len(PROMPTS)], seed + 2 * number
        first, again, other = (text_of(prompt, s) for s in (own, own, own + 1))
        rounds.append((first, again, other))
        verdict = verdict_of(rounds)
        if verdict is not None:
            return verdict
    return Verdict.UNKNOWN


def verdict_of(rounds: Sequence[tuple[str, str, str]]) -> Verdict | None:
    """Judge the rounds so far; None if they do not suffice.

    Parameters
    ----------
    rounds : sequence of (str, str, str)
        The first and the second text of one seed, and the text of another.

    Examples
    --------
    >>> verdict_of([("oak, red", "ash, sky", "oak, sea")] * 4).value
    'ignored'
    >>> verdict_of([("oak, red, sky", "oak, red, sea", "ash, tin, fog")] * 3).value
    'honoured'
    >>> verdict_of([('"Oak, red', '"Oak, sky', '"ash, tin')] * 4).value
    'ignored'
    >>> verdict_of([("oak", "oak", "oak")] * 3).value
    'one text'
    """
    texts = [round_ for round_ in rounds if any(round_)]
    differing = [round_ for round_ in texts if len(set(round_)) > 1]
    honoured = sum(_speaks_for_seeds(*round_) for round_ in differing)
    if honoured == _SPEAK:
        return Verdict.HONOURED
    if len(differing) - honoured > ROUNDS - _SPEAK:
        return Verdict.IGNORED
    if not differing and len(rounds) >= _EQUAL:
        return Verdict.ONE_TEXT if texts else Verdict.UNKNOWN
    if len(rounds) < ROUNDS:
        return None
    return Verdict.HONOURED if honoured == len(differing) else Verdict.IGNORED


def _speaks_for_seeds(first: str, again: str, other: str) -> bool:
    """Return whether the texts of one seed agree, or part much later than those of two seeds."""
    by_chance = _TIMES_AS_LONG * (_common(first, other) + _LIKE_BEGINNING)
    return first == again != other or _common(first, again) > by_chance


def _common(first: str, second: str) -> int:
    """Return the number of characters at the start that two texts share."""
    pairs = zip(first, second, strict=False)
    return sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], pairs))
