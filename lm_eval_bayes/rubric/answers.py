r"""What a response gives as its answer: the text after thinking, the last box, the plain number.

A response is up to tens of thousands of characters of untrusted model output: nothing of it is
evaluated, and every step takes time linear in its length.
"""

from __future__ import annotations

import re
import unicodedata

#: The marker that closes the thinking part of most reasoning models.
THINK_END = "</think>"
#: Markers that close the thinking; the last are harmony's, with and without special tokens.
_THINK_ENDS = (
    *(THINK_END, "</thinking>", "</reasoning>", "</seed:think>", "[/THINK]", "◁/think▷"),
    *("<|channel|>final<|message|>", "assistantfinal"),
)
#: Those that open it.
_THINK_STARTS = [end.replace("/", "").replace("final", "analysis") for end in _THINK_ENDS]

#: Boxes on one line further apart than this are not one answer: the later one replaces the earlier.
BOX_GAP = 100

# One pass over the text: a box command, an escaped character, or a brace.
_TOKEN = re.compile(r"\\{1,4}(?:boxed|fbox)(?![A-Za-z])\s*|\\.|[{}]", re.DOTALL)
# `\boxed 5`: a number, one letter, or a command with its simple arguments.
_BARE = re.compile(
    r"[+-]?(?:\d+(?:[.,/]\d+)*|\\[A-Za-z]+(?:\s*\{[^{}]{0,200}\})*|[A-Za-z](?![A-Za-z]))"
)


def final_part(text: str, think_end_token: str | int | None = None) -> str:
    r"""Return the answer part of a response: what follows its thinking.

    The thinking ends at the last marker that closes one. A response that opens another and does
    not close it, such as one that was cut off, has no answer part. The content of the answer
    box of GLM's models stands in a ``\boxed{…}``.

    Parameters
    ----------
    text : str
        A whole response.
    think_end_token : str, int or None
        The model's own marker, looked for besides the known ones. The number of a
        token, which the harness allows too, says nothing about text and is ignored.

    Examples
    --------
    >>> final_part("maybe 4? </think> It is 5."), final_part("<think> maybe 4?")
    (' It is 5.', '')
    """
    if think_end_token and isinstance(think_end_token, str):
        text = text.rpartition(think_end_token)[2]
    for end in _THINK_ENDS:
        text = text.rpartition(end)[2]
    if any(start in text for start in _THINK_STARTS):
        return ""
    return text.replace("<|begin_of_box|>", r"\boxed{").replace("<|end_of_box|>", "}")


# Signs that Unicode does not decompose, as LaTeX.
_SIGNS = {
    "\u2010": "-", "\u2011": "-", "\u2012": "-", "\u2013": "-", "\u2212": "-", "\u3002": ".",
    "×": r"\times ", "·": r"\cdot ", "÷": r"\div ", "\u2215": "/", "∞": r"\infty ", "π": r"\pi ",
    "√": r"\sqrt ", "±": r"\pm ", "≈": r"\approx ", "≤": r"\le ", "≥": r"\ge ", "≠": r"\ne ",
    "≡": r"\equiv ", "∈": r"\in ", "∪": r"\cup ",
}  # fmt: skip
_SPACED_THOUSANDS = re.compile(r"(?<=\d)[\u00a0\u2009\u202f](?=\d{3}(?!\d))")
_ROOT = re.compile(r"√\s*(\d+)")
_SCRIPTS = re.compile("[²³¹⁰ⁱ⁴-ⁿ]+|[₀-₎]+|[^\x00-\x7f]")


def _as_latex(match: re.Match[str]) -> str:
    """Return what NFKC makes of a sign, with the place or the fraction that NFKC forgets."""
    sign = match.group()
    form = unicodedata.decomposition(sign[0]).partition(">")[0]
    plain = "".join(_SIGNS.get(c, c) for c in unicodedata.normalize("NFKC", sign))
    if form in ("<super", "<sub"):  # NFKC would turn 10² into 102
        return ("^{" if form == "<super" else "_{") + plain + "}"
    if form == "<fraction":
        return r"\frac{{{}}}{{{}}}".format(*plain.split("\u2044"))
    return plain if form in ("<font", "<wide", "<narrow") or sign in _SIGNS else sign


def clean(text: str) -> str:
    """Drop invisible characters (NUL, direction marks, joiners); write signs as ASCII has them.

    Examples
    --------
    >>> clean("\\u202e\\uff13\\uff13\\x00")
    '33'
    """
    if not text.isascii():
        text = _ROOT.sub(r"\\sqrt{\1}", _SPACED_THOUSANDS.sub("", text))
        text = _SCRIPTS.sub(_as_latex, text)
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


#: "and" or "or" between the values of an answer.
AND = re.compile(
    r"\\(?:text|mathrm|textrm)\s*\{\s*,?\s*(?:and|or)\s*\}|(?<![\\A-Za-z])(?:and|or)(?![A-Za-z])"
)
# What may stand between two boxes of one answer, on other lines too.
_SPACING = re.compile(r"\\q?quad(?![A-Za-z])|\\[,;:! \[\]()]|[\s,;$&]|\\\\")


def boxed_answer(text: str, several: bool = False) -> str | None:
    r"""Return the content of the last ``\boxed{…}`` or ``\fbox{…}``, or None.

    Braces are balanced, escaped braces left alone, unclosed and empty boxes ignored. Boxes with
    nothing but spaces between them are joined by ", " (equal ones once).

    Parameters
    ----------
    text : str
        A response after its thinking.
    several : bool
        Whether the answer has several values: all boxes on the last line that has one, and those
        before with only "and", "or" and spacing between them, are then joined too, unless more
        than ``BOX_GAP`` characters stand between them.

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
        words = _SPACING.sub("", AND.sub("", between)) if several else between.strip(" \t")
        if len(between) > BOX_GAP or (words and ("\n" in between or not several)):
            break
        last_boxes.append(box)
    parts = [" ".join(clean(content).split()) for _, _, content in reversed(last_boxes)]
    return ", ".join(dict.fromkeys(part for part in parts if part)) or None


_GROUP = r"\{(?:[^{}]|\{(?:[^{}]|\{[^{}]*\})*\})*\}"
_ARGUMENT = r"\s*(\\(?!sqrt|frac|binom)[A-Za-z]+|[A-Za-z0-9])"
_FIRST_ARGUMENT = re.compile(r"\\(frac|binom|sqrt(?:\s*\[[^\]]*\])?)(?![A-Za-z])" + _ARGUMENT)
_SECOND_ARGUMENT = re.compile(r"(\\(?:frac|binom)\s*" + _GROUP + ")" + _ARGUMENT)
_STYLE = re.compile(
    r"\\(?:left|right|[bB]igg?[lrm]?)(?![A-Za-z])\s*\.?"
    r"|\\(?:(?:display|text|script)style|boldsymbol|bm|math(?:bf|it|sf|tt)|underline|normalsize"
    r"|small|large|Large|LARGE|huge|Huge)(?![A-Za-z])"
    r"|\\(?:(?:text)?color|tag\*?|label)\s*\{[^{}]*\}|\\[()\[\]!]|(?<!\\)\$|\\\$"
)
_TEXT = re.compile(r"\\(?:text(?:bf|it|rm|tt|sf|normal)?|mbox|mathrm)\s*(" + _GROUP + ")")
_REPEATING = re.compile(r"(\d{1,30})\.(\d{0,30})\\overline\s*\{(\d{1,30})\}")
_THOUSANDS_SPACE = re.compile(r"(?<=\d)(?:\\,|~|\\ )(?=\d{3}(?!\d))")
_FORMS = (
    (r"(?<!\\)\\[,;: ]|~|\\q?quad(?![A-Za-z])|\\h?space\*?\{[^{}]*\}", " "),
    (r"\\[dtc](frac|binom)(?![A-Za-z])", r"\\\1"),
    (r"\\operatorname\*?\s*\{\s*([A-Za-z]+)\s*\}", r"\\\1 "),
    (r"\^\s*\\circ|\^\s*\{\s*\\circ\s*\}|\\degrees?(?![A-Za-z])|°", r"^{\\circ}"),
    (r"\\text\s*\{\s*(?:percent\w*)\s*\}|\bpercent\w*|(?<!\\)%", r"\\%"),
    (r"(?<![\\A-Za-z])(sqrt|pi|ln|log|exp|sin|cos|tan|infty)(?![A-Za-z])", r"\\\1 "),
    (r"(\\sqrt\s*|\^\s*)(\([^()]*\))", r"\1{\2}"),
    (r"\\log\s*_\s*\{?e(?![A-Za-z])\}?", r"\\ln "),
    (r"<=", r"\\le "),
    (r">=", r"\\ge "),
    (r"!=|\\not\s*=", r"\\ne "),
)


def _text_or_content(match: re.Match[str]) -> str:
    r"""Return ``\text{…}`` for words, and the content where it has none, as in ``\text{5}``."""
    content = match.group(1)[1:-1]
    is_formula = match.group().startswith(r"\mathrm") and len(content.strip()) == 1
    if is_formula or not re.search(r"[A-Za-z]", re.sub(r"\\[A-Za-z]+", "", content)):
        return " " + content
    return rf"\text{{{content}}}"


def _fraction(match: re.Match[str]) -> str:
    r"""Return a repeating decimal, such as ``0.\overline{4}``, as a fraction."""
    head, repeated = match.group(1) + match.group(2), match.group(3)
    top = int(head + repeated) - int(head)
    return rf"\frac{{{top}}}{{{'9' * len(repeated) + '0' * len(match.group(2))}}}"


def tidy(answer: str) -> str:
    r"""Remove formatting from an answer and write each form in one way.

    Dollar signs, sizes, colours, spacing and a final stop go; a command without braces gets them;
    words stand in ``\text{…}``.

    Examples
    --------
    >>> tidy(r"$\left( 1, \dfrac\pi2 \right)$.")
    '( 1, \\frac{\\pi}{2} )'
    """
    answer = _THOUSANDS_SPACE.sub("", clean(answer).replace("{,}", ","))
    answer = _TEXT.sub(_text_or_content, _STYLE.sub("", answer))
    for pattern, form in _FORMS:
        answer = re.sub(pattern, form, answer)
    for _ in range(3):  # fractions in fractions
        answer = _FIRST_ARGUMENT.sub(r"\\\1{\2}", answer)
        answer = _SECOND_ARGUMENT.sub(r"\1{\2}", answer)
    answer = _REPEATING.sub(_fraction, answer)
    return answer.rstrip(" .,;:\t\r\n").lstrip()


def squeeze(answer: str) -> str:
    """Return :func:`tidy` without spaces, except between digits or letters, for comparisons."""
    return re.sub(r"(?<![0-9A-Za-z,])\s+|\s+(?![0-9A-Za-z])", "", tidy(answer))


_INTEGER = re.compile(r"[+-]?(?:[0-9]+|[0-9]{1,3}(?:,[0-9]{3})+)")


def plain_integer(answer: str) -> str | None:
    """Return the canonical digits of a plain integer ("007", "1,024"), or None for anything else.

    A string, because Python refuses to read integers of thousands of digits.
    """
    text = squeeze(answer)
    if not _INTEGER.fullmatch(text):
        return None
    digits = text.replace(",", "").lstrip("+-").lstrip("0") or "0"
    return "-" + digits if text[0] == "-" and digits != "0" else digits
