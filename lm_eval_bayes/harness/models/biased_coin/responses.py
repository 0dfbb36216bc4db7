"""The draws of the simulated model: how probable a right answer is, and its text in words."""

from __future__ import annotations

import hashlib
import json
import math
import re
from bisect import bisect
from collections.abc import Mapping
from decimal import Decimal
from typing import Any

from scipy.special import betaincinv

from lm_eval_bayes._util.validation import as_real
from lm_eval_bayes.errors import ModelConfigError


def uniforms(*key: object) -> tuple[float, float, float, float]:
    """Draw four numbers in [0, 1) that depend on the key alone.

    A digest, not a generator's stream: the same key gives the same numbers in every
    process, on every rank, in any order and under any version of any library.

    Examples
    --------
    >>> uniforms("trial", 1234, "demo", "What is 7 + 5?", 0) == uniforms(
    ...     "trial", 1234, "demo", "What is 7 + 5?", 0)
    True
    """
    digest = hashlib.sha256(json.dumps(key).encode()).digest()
    words = (int.from_bytes(digest[i : i + 8], "big") >> 11 for i in (0, 8, 16, 24))
    a, b, c, d = (word / 2**53 for word in words)
    return a, b, c, d


def law_of(p: object, beta: object) -> dict[str, Any]:
    """Return the distribution of questions' success probabilities, as the run's JSON records it.

    Parameters
    ----------
    p : float or None
        The same probability for every question.
    beta : str or None
        ``a:b``, for example ``0.2:2``.
    """
    if (p is None) == (beta is None):
        got = "neither" if p is None else "both"
        sentence = f"biased_coin takes one of p (p=0.6) and beta (beta=2:3); got {got}"
        raise ModelConfigError(sentence, "conflict", "p, beta", got)
    if beta is None:
        return {"kind": "p", "p": probability_of(p, "p")}
    try:
        a, b = map(float, str(beta).split(":"))
    except ValueError:
        a = b = math.nan
    if not (0 < a < math.inf and 0 < b < math.inf):
        rule = 'be "a:b", two numbers above 0, for example beta=0.2:2 (quoted in a YAML file)'
        raise ModelConfigError.of("beta", "format", rule, beta)
    return {"kind": "beta", "a": a, "b": b}


def success_probability(law: Mapping[str, Any], seed: int, task: str, prompt: str) -> float:
    """Return the success probability of a question, of Beta(a, b) by inversion of a digest."""
    if law["kind"] == "p":
        return float(law["p"])
    return float(betaincinv(law["a"], law["b"], uniforms("question", seed, task, prompt)[0]))


def probability_of(value: object, name: str) -> float:
    """Return a probability in [0, 1]; `name` is what the error calls it."""
    number = as_real(value)
    if number is None or not 0.0 <= number <= 1.0:
        raise ModelConfigError.of(name, "range", "be a number in [0, 1]", value)
    return number


# No digits here: a grader that reads prose must find one number, the answer.
_OPENINGS = (
    "Let me work through the problem step by step.",
    "First I write down what is given and what is asked.",
    "I translate the statement into an equation and solve it.",
    "We begin by simplifying the expression in the problem.",
)
_SENTENCES = (
    "Substituting the known values leaves a single unknown.",
    "Collecting like terms and simplifying gives the value directly, "
    "and checking it against the statement shows that nothing was left out.",
    "Each condition in the statement has now been used.",
    "The remaining computation is short, and doing it a second time gives the same value.",
)

#: The share of each of a question's wrong answers among its wrong responses. They are
#: unequal, so that one wrong answer can win a majority vote.
SHARES = (8 / 15, 4 / 15, 2 / 15, 1 / 15)
_BOUNDS = (8 / 15, 12 / 15, 14 / 15)

_INTEGER = re.compile(r"[+-]?(\d{1,100}|\d{1,3}(,\d{3})+)")
_DECIMAL = re.compile(r"[+-]?(\d{1,50}\.\d{0,50}|\.\d{1,50})")
_LETTER = re.compile(r"[A-J]")
# One pair of brackets around everything: a tuple, an interval, a set.
_BRACKETED = re.compile(
    r"(?P<body>(\\left)?(\(|\[|\\\{).*,.*?)(?P<close>(\\right)?(\)|\]|\\\}))", re.S
)
#: Words, such as a name: no digits, and nothing that LaTeX is made of.
_WORDS = re.compile(r"(?=.*[^\W\d_]{2})[^\d_^=+<>|/\\{}()\[\]$]+", re.S)

_STEPS = (1, -1, 2, -2, 10, -10, 5, -5)

#: Wrong answers where the right one is in words.
_OTHER_WORDS = (
    *("nothing", "elsewhere", "somebody", "sometimes"),
    *("another", "several", "unknown", "neither", "whatever", "otherwise", "anything", "perhaps"),
)


def wrong_answers(gold: str, turn: int = 0) -> tuple[str, ...]:
    r"""Write four different answers, none of which equals the gold one.

    Whole numbers and decimals change by a little, choice letters become other letters, and words
    become another word, neither of which is part of the other. Any other expression E becomes
    E + 1, E - 1 and so on (in a list or tuple, its last part does), which differs from E if E is
    finite; for an expression with an infinity the wrong answers are plain numbers.

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
    >>> wrong_answers("Nothing at all")
    ('elsewhere', 'somebody', 'sometimes', 'another')
    """
    if _INTEGER.fullmatch(gold):
        value = int(gold.replace(",", ""))
        # a count stays a count, and a contest's three-digit answer keeps to three digits
        candidates = [
            str(near)
            for near in (value + step for step in _STEPS)
            if (near >= 0 or value < 0) and (abs(near) <= 999 or abs(value) > 999)
        ]
    elif _DECIMAL.fullmatch(gold):
        candidates = [format(Decimal(gold) + step, "f") for step in _STEPS]
    elif _LETTER.fullmatch(gold):
        candidates = [letter for letter in "ABCDEFGHIJ"[: max(5, ord(gold) - 64)] if letter != gold]
    elif _WORDS.fullmatch(gold):
        own = gold.casefold()
        candidates = [word for word in _OTHER_WORDS if word not in own and own not in word]
    elif "infty" in gold:
        candidates = [str(step) for step in _STEPS]
    else:
        bracketed = _BRACKETED.fullmatch(gold)
        body, close = (bracketed["body"], bracketed["close"]) if bracketed else (gold, "")
        candidates = [f"{body}{step:+d}{close}" for step in _STEPS]
    turn %= len(candidates)
    return tuple((candidates[turn:] + candidates[:turn])[: len(SHARES)])


def response_text(
    uniforms: tuple[float, float, float, float],
    gold: str,
    mistakes: tuple[str, ...],
    p: float,
    boxed: float,
) -> str:
    r"""Write the response to one trial of a question.

    Parameters
    ----------
    uniforms : tuple of float, length 4
        The trial's random numbers in [0, 1).
    gold : str
        The right answer.
    mistakes : tuple of str, length 4
        The wrong answers.
    p : float
        The probability of the right answer.
    boxed : float
        The probability that the answer is in ``\boxed{}``.
    """
    coin, mistake, box, words = uniforms
    answer = gold if coin < p else mistakes[bisect(_BOUNDS, mistake)]
    which = int(words * len(_OPENINGS) * len(_SENTENCES))
    opening, step = _OPENINGS[which % len(_OPENINGS)], _SENTENCES[which // len(_OPENINGS)]
    if box < boxed:
        return f"{opening} {step} Therefore the final answer is $\\boxed{{{answer}}}$."
    # The wording that math graders look for without a box.
    return f"{opening} {step} Therefore, the final answer is ${answer}$. I hope it is correct."
