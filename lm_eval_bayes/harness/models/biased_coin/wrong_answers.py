"""Plausible wrong answers, for the trials that the simulated model answers wrongly."""

from __future__ import annotations

import re
from decimal import Decimal

#: The share of each of a question's wrong answers among its wrong responses. They are
#: unequal, so that one wrong answer can win a majority vote.
SHARES = (8 / 15, 4 / 15, 2 / 15, 1 / 15)

_INTEGER = re.compile(r"[+-]?(\d{1,100}|\d{1,3}(,\d{3})+)")
_DECIMAL = re.compile(r"[+-]?(\d{1,50}\.\d{0,50}|\.\d{1,50})")
_LETTER = re.compile(r"[A-J]")
# One pair of brackets around everything: a tuple, an interval, a set.
_BRACKETED = re.compile(
    r"(?P<body>(\\left)?(\(|\[|\\\{).*,.*?)(?P<close>(\\right)?(\)|\]|\\\}))", re.S
)

_STEPS = (1, -1, 2, -2, 10, -10, 5, -5)


def wrong_answers(gold: str, turn: int = 0) -> tuple[str, ...]:
    r"""Write four different answers, none of which equals the gold one.

    Whole numbers and decimals change by a little, choice letters become other letters.
    Any other expression E becomes E + 1, E - 1 and so on (in a list or tuple, its last
    part does), which differs from E if E is finite; for an expression
    with an infinity the wrong answers are plain numbers.

    Parameters
    ----------
    gold : str
        The right answer, a number or a LaTeX expression, without ``\boxed``.
    turn : int, default 0
        Rotates the request, so that the most frequent wrong answer differs between.

    Returns
    -------
    tuple of str, length 4
        Most frequent first, see `SHARES`.

    Examples
    --------
    >>> wrong_answers("70")
    ('71', '69', '72', '68')
    >>> wrong_answers("033", turn=4)
    ('43', '23', '38', '28')
    >>> wrong_answers(r"\frac{1}{9}")[0]
    '\\frac{1}{9}+1'
    >>> wrong_answers(r"(2, \sqrt{3})")[0]
    '(2, \\sqrt{3}+1)'
    """
    if _INTEGER.fullmatch(gold):
        candidates = _near_integers(int(gold.replace(",", "")))
    elif _DECIMAL.fullmatch(gold):
        candidates = [format(Decimal(gold) + step, "f") for step in _STEPS]
    elif _LETTER.fullmatch(gold):
        candidates = [letter for letter in "ABCDEFGHIJ"[: max(5, ord(gold) - 64)] if letter != gold]
    elif "infty" in gold:
        candidates = [str(step) for step in _STEPS]
    else:
        candidates = [_moved(gold, step) for step in _STEPS]
    turn %= len(candidates)
    return tuple((candidates[turn:] + candidates[:turn])[: len(SHARES)])


def _near_integers(value: int) -> list[str]:
    # A count stays a count and a contest's three-digit answer keeps to three digits.
    top = 999 if abs(value) <= 999 else None
    near = [value + step for step in _STEPS]
    return [str(v) for v in near if (v >= 0 or value < 0) and (top is None or abs(v) <= top)]


def _moved(gold: str, step: int) -> str:
    bracketed = _BRACKETED.fullmatch(gold)
    if bracketed:
        return f"{bracketed['body']}{step:+d}{bracketed['close']}"
    return f"{gold}{step:+d}"


def pick(answers: tuple[str, ...], u: float) -> str:
    """Pick one of four answers by its share, from a number u in [0, 1).

    Examples
    --------
    >>> pick(("a", "b", "c", "d"), 0.5), pick(("a", "b", "c", "d"), 0.99)
    ('a', 'd')
    """
    for answer, share in zip(answers, SHARES, strict=True):
        if u < share:
            return answer
        u -= share
    return answers[-1]
