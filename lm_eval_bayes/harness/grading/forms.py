r"""The values that an answer states, as texts: without names, words, chains of "=" and braces.

What an answer may say besides its value is decided by the gold: a name before "=" where the gold
has no relation, a unit where it has no letters, a list without brackets where it has several.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import lru_cache
from itertools import takewhile

from lm_eval_bayes.rubric.answers import AND, plain_integer, tidy

_SETS = (("{", "}"), (r"\{", r"\}"))
_BRACKETS = (*_SETS, ("(", ")"), ("[", "]"), ("[", ")"), ("(", "]"))
_TOKEN = re.compile(r"\\[A-Za-z]+|\\.|.", re.DOTALL)
_COMMA = re.compile(r"[,;]")
_IS = re.compile(r"=|\\(?:in|equiv|Rightarrow|implies|iff)")
_APPROXIMATELY = re.compile(r"\\(?:approx|simeq|cong|doteq)")
_ABOUT = re.compile(
    r"\\text\s*\{\s*\(?\s*(?:or about|about|approx|roughly|i\.e|since)[^{}]*\}|\(\s*(?=\\approx)"
)
_RELATION = re.compile(r"[=<>]|\\(?:in|equiv|leq?|geq?|ne)(?![A-Za-z])")
_SIGNS = re.compile(r"\\(?:pm|mp)(?![A-Za-z])")
_THOUSANDS = re.compile(r"(?<![\d.,])[1-9]\d{0,2}(?:,\d{3})+(?![\d,])")
_T = r"\\text\s*\{([^{}]*)\}"
_TEXT = re.compile(_T)
_WORDS_AROUND = re.compile(rf"^\s*{_T}\s*:?|{_T}\s*(?:\^\s*\{{?[23]\}}?)?\s*$")
# Words of plain text, as in "204 minutes" and "Answer: 5".
_WORDS = re.compile(
    r"\\text\s*\{[^{}]*\}|(?<![\\A-Za-z{_^])[A-Za-z]{2,}(?:[ .]+[A-Za-z]+)*(?![A-Za-z(])"
)
# Words that say more than the name or the unit of a value.
_CHANGES = re.compile(
    r"\d|(?i:\b(?:not?|none|without|except|least|most|more|less|fewer|greater|than|above|below"
    r"|under|over|up|hundred|thousand|[mbtr]+illion|dozen|half|double|twice|triple|times|plus"
    r"|minus|negative|base|squared|cubed|factorial|conjugate)s?\b)"
)
_MODULUS = re.compile(r"\\pmod\s*\{[^{}]*\}|\(\W*(?:text\W+)?b?mod[^()]*\)")
_ENVIRONMENT = re.compile(r"\\(?:begin|end)\s*\{[a-z]+\*?\}(?:\s*\{[lcr|]*\})?|&")
_VALUE = re.compile(r"(?<!_)(?<!_\{)\d|\\(?:pi|infty)")
_DECIMAL = re.compile(r"\.\d|\\[lc]?dots|\.{3}")


def _letters(latex: str) -> bool:
    """Return whether a formula has letters of its own, commands and words in it apart."""
    return re.search(r"[A-Za-z]", re.sub(r"\\[A-Za-z]+", "", _TEXT.sub("", latex))) is not None


def _at_depth(text: str) -> Iterator[tuple[re.Match[str], int]]:
    """Return every token of a text, and how many brackets are open behind it."""
    depth = 0
    for token in _TOKEN.finditer(text):
        sign = token.group()[-1]
        depth += (sign in "{([") - (sign in "})]")
        yield token, depth


def cut(text: str, mark: re.Pattern[str] = _COMMA) -> list[str]:
    """Cut a text at the marks, commas or semicolons, that stand inside no bracket."""
    marks = [t for t, depth in _at_depth(text) if depth <= 0 and mark.fullmatch(t.group())]
    ends = zip([0, *(t.end() for t in marks)], [*(t.start() for t in marks), None], strict=True)
    return [part for start, end in ends if (part := text[start:end].strip())] or [""]


def unwrapped(text: str) -> tuple[tuple[str, str], str] | None:
    """Return the brackets around all of a text, and its inside; None if there are none."""
    for left, right in _BRACKETS:
        if text.startswith(left) and text.endswith(right) and len(text) > len(left + right):
            inside = text[len(left) : -len(right)]
            if all(depth >= 0 for _, depth in _at_depth(inside)):
                return (left, right), inside.strip()
    return None


@lru_cache(maxsize=1000)
def has_several_values(gold: str) -> bool:
    """Return whether a tidy gold is a list or a tuple."""
    inner = unwrapped(gold)
    inside = AND.sub(",", inner[1] if inner else gold)
    return not _THOUSANDS.fullmatch(inside) and (len(cut(inside)) > 1 or bool(_SIGNS.search(gold)))


def values(text: str, gold: str) -> list[str]:
    r"""Return the values that a tidy answer lists: "2 and 3", "\{2, 3\}", "1 \pm \sqrt 2".

    A tuple or an interval is one value; in a value with ``\pm`` (and ``\mp``) all signs go
    together. What has words that change a value ("at least 5", "5 million") is the value "".

    Examples
    --------
    >>> values(r"x = 2, (3, 4) \text{ and } \pm 5", "1")
    ['2', '(3, 4)', '+ 5', '- 5']
    """
    text = AND.sub(",", text)
    if "matrix" not in gold:
        text = re.sub(r"\\\\(?![A-Za-z])", ",", _ENVIRONMENT.sub("", text))
    if "mod" not in gold:
        text = _MODULUS.sub("", text)
    if not _letters(gold):
        text = _WORDS.sub(lambda m: m[0] if m[0][0] == "\\" else rf"\text{{{m[0]}}}", text)
    if not has_several_values(gold):
        text = _THOUSANDS.sub(lambda match: match[0].replace(",", ""), text)
    parts: list[str] = []
    for part in cut(_ABOUT.sub(r"\\approx ", text)):
        value = _without_words(_stated(part, gold), gold)
        while (inner := unwrapped(value)) and len(cut(inner[1])) == 1:
            value = inner[1]
        if inner and inner[0] in _SETS:
            parts += values(inner[1], gold)
        elif _SIGNS.search(value):
            for up, down in ("+-", "-+"):
                signed = re.sub(r"\\pm(?![A-Za-z])", up, value)
                parts.append(re.sub(r"\\mp(?![A-Za-z])", down, signed))
        else:
            parts.append(value)
    return parts


def _stated(part: str, gold: str) -> str:
    """Return the value of "name = value ≈ decimal": of several the last exact one.

    Where the gold is a plain integer, the last that is one.
    """
    exact = cut(part, _APPROXIMATELY)[0]
    sides = [exact] if _RELATION.search(gold) else cut(exact, _IS)[::-1]
    if not _letters(gold):
        sides = [*takewhile(lambda s: _VALUE.search(s) and not _letters(s), sides)] or sides[:1]
        sides = [side for side in sides if not _DECIMAL.search(side)] or sides
    if plain_integer(gold):
        sides = [side for side in sides if plain_integer(side)] or sides
    return sides[0]


def _without_words(value: str, gold: str) -> str:
    r"""Return a value without the ``\text{…}`` before and behind it."""
    gold_words = [words.strip() for words in _TEXT.findall(gold)]
    while around := _WORDS_AROUND.search(value):
        words = around.group(1) or around.group(2) or ""
        rest = (value[: around.start()] + value[around.end() :]).strip(" .,;:")
        if not rest:
            return value
        is_function = around.start() == 0 and rest[0] == "(" and words[-1:] not in (" ", ":")
        is_unlike = words.strip() not in gold_words if gold_words else _CHANGES.search(words)
        if is_unlike or is_function:
            return ""
        value = rest
    return value if gold_words or "\\text" not in value else ""


@lru_cache(maxsize=1000)
def integer(text: str) -> str | None:
    r"""Return the digits of the one plain integer that an answer states, or None.

    Read as 33: ``033``, ``33.0``, ``[33]``, ``x = 33``, ``33^\circ``, ``33\text{ cm}``. Not read:
    a fraction, a sum, several numbers, ``33!``, ``33\%``.

    Examples
    --------
    >>> [integer(text) for text in ("033", "m+n = 33", r"33\text{ cm}", "1,024", "33!")]
    ['33', '33', '33', '1024', None]
    """
    parts = {*values(tidy(text), "1")}
    value = re.sub(r"\^\{\\circ\}$|\.0*$", "", parts.pop()).strip()
    return None if parts else plain_integer(value)
