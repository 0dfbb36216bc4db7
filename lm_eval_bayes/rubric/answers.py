r"""What a response gives as its answer: the text after thinking, the last box, the plain number.

A response is up to tens of thousands of characters of untrusted model output: nothing of it is
evaluated, and every step takes time linear in its length.
"""

from __future__ import annotations

import re
import unicodedata

#: The marker that closes the thinking part of most reasoning models.
THINK_END = "</think>"

#: Boxes on one line further apart than this are not one answer: the later one replaces the earlier.
BOX_GAP = 100

# One pass over the text: a box command, an escaped character, or a brace.
_TOKEN = re.compile(r"\\{1,4}(?:boxed|fbox)(?![A-Za-z])\s*|\\.|[{}]", re.DOTALL)
# `\boxed 5`: a number, one letter, or a command with its simple arguments.
_BARE = re.compile(
    r"[+-]?(?:\d+(?:[.,/]\d+)*|\\[A-Za-z]+(?:\s*\{[^{}]{0,200}\})*|[A-Za-z](?![A-Za-z]))"
)


def final_part(text: str, think_end_token: str | int | None = None) -> str:
    """Return what follows the last end-of-thinking marker, or all of the text without one.

    Parameters
    ----------
    text : str
        A whole response.
    think_end_token : str, int or None
        The model's own marker, looked for besides ``</think>``. The number of a
        token, which the harness allows too, says nothing about text and is ignored.

    Examples
    --------
    >>> final_part("maybe 4? </think> It is 5.")
    ' It is 5.'
    """
    if think_end_token and isinstance(think_end_token, str):
        text = text.rpartition(think_end_token)[2]
    return text.rpartition(THINK_END)[2]


# Full-width signs, the minus sign, and signs with a LaTeX command. NFKC would turn 10² into 102.
_PLAIN = {wide: wide - 0xFEE0 for wide in range(0xFF01, 0xFF5F)} | {
    ord(sign): plain
    for sign, plain in {
        "\u2212": "-",
        "²": "^{2}",
        "³": "^{3}",
        "×": "\\times ",
        "·": "\\cdot ",
        "∞": "\\infty ",
    }.items()
}


def clean(text: str) -> str:
    """Drop invisible characters (NUL, direction marks, joiners); write full-width signs in ASCII.

    Examples
    --------
    >>> clean("\\u202e\\uff13\\uff13\\x00")
    '33'
    """
    if not text.isascii():
        text = text.translate(_PLAIN)
    if text.isprintable():
        return text
    return "".join(
        " " if c.isspace() else c for c in text if c.isspace() or unicodedata.category(c)[0] != "C"
    )


def _boxes(text: str) -> list[tuple[int, int, str]]:
    """Return every closed, non-empty innermost box as (start, end, content), in order."""
    boxes: list[tuple[int, int, str]] = []
    starts = [start for start in map(text.find, ("boxed", "fbox")) if start >= 0]
    if not starts:
        return boxes
    open_braces: list[tuple[int, int] | None] = []  # (start of command, start of content) of a box
    # a brace opened before the first box ends none; backslashes are read in pairs from the left
    skip_to = len(text[: min(starts)].rstrip("\\"))
    for token in _TOKEN.finditer(text, skip_to):
        start, end = token.span()
        if start < skip_to:
            continue
        word = token.group()
        if word == "{":
            open_braces.append(None)
        elif word == "}":
            box = open_braces.pop() if open_braces else None
            # a box around another one only repeats it: the inner one is the answer
            if box and text[box[1] : start].strip() and not (boxes and boxes[-1][0] >= box[1]):
                boxes.append((box[0], start + 1, text[box[1] : start]))
        elif len(word) > 2:  # a box command; an escaped character has two
            if text.startswith("{", end):
                open_braces.append((start, end + 1))
                skip_to = end + 1
            elif bare := _BARE.match(text, end):
                boxes.append((start, bare.end(), bare.group()))
                skip_to = bare.end()
    return boxes


def boxed_answer(text: str, several: bool = False) -> str | None:
    r"""Return the content of the last ``\boxed{…}`` or ``\fbox{…}``, or None.

    Braces are balanced, escaped braces left alone, unclosed and empty boxes
    ignored. Boxes with nothing but spaces between them are joined by ", " (equal
    ones once).

    Parameters
    ----------
    text : str
        A response after its thinking.
    several : bool
        Whether the answer has several values: all boxes on the last line that has one
        are then joined, unless more than ``BOX_GAP`` characters stand between them.

    Examples
    --------
    >>> [boxed_answer(r"So $\boxed{2}$ and $\boxed{-2}$.", several) for several in (False, True)]
    ['-2', '2, -2']
    """
    boxes = _boxes(text)
    if not boxes:
        return None
    last_boxes = [boxes[-1]]
    for box in reversed(boxes[:-1]):
        between = text[box[1] : last_boxes[-1][0]]
        if len(between) > BOX_GAP or "\n" in between or (between.strip() and not several):
            break
        last_boxes.append(box)
    parts = [" ".join(clean(content).split()) for _, _, content in reversed(last_boxes)]
    return ", ".join(dict.fromkeys(part for part in parts if part)) or None


_WRAPPERS = re.compile(
    r"\\(?:text|textbf|textit|textrm|mathrm|mathbf|mathit|mathsf|bm|operatorname)\s*\{([^{}]*)\}"
)
_NOTHING = re.compile(
    r"\\(?:left|right|displaystyle|boldsymbol)(?![A-Za-z])|\\[()\[\]!]|(?<!\\)\$|\\\$"
)
_THIN_THOUSANDS = re.compile(r"(?<=\d)(?:\\,|~|\\ )(?=\d{3}(?!\d))")
_SPACES = re.compile(r"\\[,;: ]|~|\\q?quad(?![A-Za-z])")
_DEGREES = re.compile(r"\^\s*\\circ|\^\s*\{\s*\\circ\s*\}|\\degrees?(?![A-Za-z])|°")


def tidy(answer: str) -> str:
    r"""Remove formatting from an answer: dollar signs, size commands, thin spaces, a final stop.

    Examples
    --------
    >>> tidy(r"$\left( 1, \dfrac{1}{2} \right)$.")
    '( 1, \\frac{1}{2} )'
    """
    answer = _THIN_THOUSANDS.sub("", clean(answer).replace("{,}", ","))
    answer = _SPACES.sub(" ", _NOTHING.sub("", answer))
    answer = re.sub(r"\\[dtc]frac(?![A-Za-z])", r"\\frac", answer)
    answer = _DEGREES.sub(r"^{\\circ}", answer)
    return answer.rstrip(" .,;:\t\r\n").lstrip()


def squeeze(answer: str) -> str:
    """Return :func:`tidy` without spaces, except between digits or letters, for comparisons."""
    return re.sub(r"(?<![0-9A-Za-z])\s+|\s+(?![0-9A-Za-z])", "", tidy(answer))


# "33 \text{ cm}": a unit behind the number
_UNIT = re.compile(r"\\(?:text|mathrm)\s*\{[A-Za-z. ]+\}(?:\^\{?\d\}?)?$")
_INTEGER = re.compile(r"[+-]?[0-9]+")
_THOUSANDS = re.compile(r"[+-]?[0-9]{1,3}(?:,[0-9]{3})+")


def plain_integer(answer: str) -> str | None:
    """Return the canonical digits of a plain integer ("007", "1,024"), or None for anything else.

    A string, because Python refuses to read integers of thousands of digits.
    """
    text = squeeze(answer)
    if _THOUSANDS.fullmatch(text):
        text = text.replace(",", "")
    if not _INTEGER.fullmatch(text):
        return None
    digits = text.lstrip("+-").lstrip("0") or "0"
    return "-" + digits if text[0] == "-" and digits != "0" else digits


def aime_integer(answer: str) -> int | None:
    r"""Return the integer in 0..999 that an answer states, or None.

    Read as 33: ``033``, ``33.``, ``33.0``, ``33,``, ``$33$``, ``\text{33}``,
    ``{33}``, ``(33)``, ``x = 33`` (what follows the last equals sign), and
    ``33^\circ``, ``33 degrees`` and ``33\text{ cm}``, because the contest asks
    for the bare number. Not read: a fraction, several numbers, ``33!``, ``33\%``, any
    negative number, anything above 999 (``1,024``).

    Examples
    --------
    >>> [aime_integer(a) for a in ("033", r"m+n = 33", "1,024", "33!")]
    [33, 33, None, None]
    """
    if len(answer) > 1000:  # no formula in front of three digits is that long
        return None
    text = _UNIT.sub("", answer.rstrip(" .$"))
    for _ in range(3):  # \mathbf{\text{33}}
        text = _WRAPPERS.sub(r"\1", text)
    text = tidy(text.rpartition("=")[2])
    text = re.sub(r"(?:\^\{\\circ\}|\bdegrees?)$", "", text).strip()
    while len(text) > 1 and text[0] + text[-1] in ("{}", "()"):
        text = text[1:-1].strip()
    digits = plain_integer(re.sub(r"\.0*$", "", text))
    if digits is None or digits.startswith("-") or len(digits) > 3:
        return None
    return int(digits)
