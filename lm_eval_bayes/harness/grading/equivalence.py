r"""The worker that compares two formulas, and the pieces of it that need no mathematics.

It runs as a process of its own, because sympy can be stopped in no other way:
one JSON object a line comes in, one goes out. Only the standard library is
imported at the top, and nothing of this package, so that the process is ready
in half a second and never loads the harness. ``python -m
lm_eval_bayes.harness.grading.equivalence`` starts it by hand.

Model output is untrusted. It reaches sympy through math-verify's LaTeX grammar
only; the one ``eval`` behind that grammar (``Number("12")`` goes through sympy's
own parser) is restricted by `_restrict_eval`, and math-verify's other extraction,
which hands text to ``parse_expr``, is never called.
"""

from __future__ import annotations

import json
import os
import re
import sys
from functools import lru_cache
from typing import Any

#: More parts than this are no answer to a contest question.
MAX_PARTS = 40
#: The most memory a worker may map, in bytes: 9^{9^{9^9}} would take all memory.
MEMORY_LIMIT = 2 << 30
#: Relative distances up to which two numbers are equal: exact ones, and with a decimal.
EXACT_TOLERANCE, DECIMAL_TOLERANCE = 1e-30, 1e-10
#: Exact numbers within the tolerance are equal if so many digits do not tell them apart, or if the
#: logarithm of their size is larger than this, which is that of 100,000 digits.
MAX_DIGITS, MAX_LOG_OF_EXACT = 400, 230_000

_AND = re.compile(
    r"\\(?:text|mathrm|textrm)\s*\{\s*,?\s*(?:and|or)\s*\}|(?<![\\A-Za-z])(?:and|or)(?![A-Za-z])"
)
_NUMBER_WITH_COMMAS = re.compile(r"\s*[+-]?\d{1,3}(,\d{3})+(\.\d+)?\s*")
_NAMED = re.compile(r"\s*\\?[A-Za-z]+(?:_\{?\w+\}?)?\s*(?:=|\\in(?![A-Za-z]))\s*(?=\\?\{)")
_SETS = (("\\{", "\\}"), ("{", "}"))
_PAIRS = (*_SETS, ("(", ")"), ("[", "]"))


def _top_level(text: str) -> list[str]:
    """Cut at the commas and semicolons that stand inside no bracket."""
    parts, depth, start = [], 0, 0
    for token in re.finditer(r"\\.|[{}()\[\],;]", text, re.DOTALL):
        sign = token.group()[-1]
        if sign in "{([" and token.group() not in ("\\(", "\\["):
            depth += 1
        elif sign in "})]" and token.group() not in ("\\)", "\\]"):
            depth = max(0, depth - 1)
        elif token.group() in ",;" and depth == 0:
            parts.append(text[start : token.start()])
            start = token.end()
    parts.append(text[start:])
    return [part.strip() for part in parts if part.strip()]


def _unwrapped(text: str, pairs: tuple[tuple[str, str], ...]) -> str | None:
    """Return the inside of one pair of brackets around the whole text, or None."""
    for left, right in pairs:
        if text.startswith(left) and text.endswith(right) and len(text) > len(left + right):
            inside = text[len(left) : -len(right)]
            depth = 0
            for token in re.finditer(r"\\.|[{}()\[\]]", inside, re.DOTALL):
                depth += (token.group() == left) - (token.group() == right)
                if depth < 0:
                    return None
            return inside
    return None


def split_answers(text: str) -> list[str]:
    r"""Return the answers that one text lists: "2 and 3", "\{2, 3\}", "1 \pm \sqrt 2".

    A number with thousands commas is one answer, a tuple or interval is one
    answer, and in an answer with ``\pm`` (and ``\mp``) all signs go together.

    Examples
    --------
    >>> split_answers(r"2, (3, 4) \text{ and } \pm 5")
    ['2', '(3, 4)', '+ 5', '- 5']
    """
    text = text.strip()
    if _NUMBER_WITH_COMMAS.fullmatch(text):
        return [text]
    text = _NAMED.sub("", text)
    text = _unwrapped(text, _SETS) or text
    parts: list[str] = []
    for part in _top_level(_AND.sub(",", text)):
        if re.search(r"\\(?:pm|mp)(?![A-Za-z])|±", part):
            for up, down in (("+", "-"), ("-", "+")):
                signed = re.sub(r"\\pm(?![A-Za-z])|±", up, part)
                parts.append(re.sub(r"\\mp(?![A-Za-z])", down, signed))
        else:
            parts.append(part)
    return parts


def has_several_values(answer: str) -> bool:
    """Return whether an answer is a list or a tuple."""
    return len(split_answers(_unwrapped(answer, _PAIRS) or answer)) > 1


def has_letters(latex: str) -> bool:
    r"""Return whether a formula has letters of its own, commands and ``\text{…}`` apart."""
    latex = re.sub(r"\\(?:text\w*|mbox|mathrm)\s*\{[^{}]*\}", "", latex)
    return re.search(r"[A-Za-z]", re.sub(r"\\[A-Za-z]+", "", latex)) is not None


# ---- below: inside the worker only ----------------------------------------------------------

_HARMLESS = re.compile(
    r"(?:\s|[-+*/()]|Integer\s*\(\s*\d+\s*\)|(?:Float|Rational)\s*\(\s*'[\d.eE+-]+'\s*\)"
    r"|Symbol\s*\(\s*'\w+'\s*\)|E\b)*",
    re.ASCII,
)


def _restrict_eval() -> None:
    """Let sympy's string parser evaluate numbers and symbols only."""
    from sympy.parsing import sympy_parser

    evaluate = sympy_parser.eval_expr

    def restricted(code: Any, local_dict: Any, global_dict: Any) -> Any:
        if not isinstance(code, str) or not _HARMLESS.fullmatch(code):
            raise ValueError("refused to evaluate text that is no plain number")
        return evaluate(code, local_dict, global_dict)

    sympy_parser.eval_expr = restricted


@lru_cache(maxsize=4)
def _latex_config(units: bool) -> Any:
    from latex2sympy2_extended.math_normalization import NormalizationConfig
    from math_verify import LatexExtractionConfig

    return LatexExtractionConfig(
        boxed_match_priority=-1,
        normalization_config=NormalizationConfig(
            basic_latex=True, units=units, malformed_operators=True, nits=True, boxed="none"
        ),
    )


@lru_cache(maxsize=1000)
def _parsed(latex: str, units: bool) -> Any:
    """Return the sympy object of one formula, or None if the grammar cannot parse it."""
    from math_verify import parse

    plain = re.sub(r"(?<!\\)\$|[\r\n]", " ", latex).strip().rstrip("\\")
    # not every parser runtime reads percentages, and to math-verify 9 and 9% are one answer
    plain = re.sub(r"(\d[\d,.]*)\s*(?:\\?%|percent\b)", r"\\frac{\1}{100}", plain)
    parsed = parse(f"${plain}$", [_latex_config(units)], parsing_timeout=None)
    return parsed[0] if parsed and not isinstance(parsed[0], str) else None


def _imaginary(expression: Any) -> Any:
    """Read the letter i as the imaginary unit in a formula without other letters."""
    import sympy

    letters: set[Any] = getattr(expression, "free_symbols", set())
    if [s.name for s in letters] == ["i"]:
        return expression.xreplace({next(iter(letters)): sympy.I})
    return expression


def _equal_numbers(gold: Any, answer: Any) -> bool | None:
    """Compare two numbers by their relative distance, and exact ones by their difference too.

    None, which leaves the verdict to math-verify, where one is no number or has no 60 digits.
    """
    import sympy

    if isinstance(answer, sympy.Eq) and answer.lhs.is_Symbol:
        answer = answer.rhs  # x = 5
    if not (isinstance(gold, sympy.Expr) and isinstance(answer, sympy.Expr)):
        return None
    pair = sympy.Tuple(gold, answer)
    if pair.free_symbols:
        return None
    try:
        x, y = (number.evalf(60, strict=True) for number in pair)
        if not (x.is_finite and y.is_finite):
            return None
        is_rounded = any(decimal % 1 for decimal in pair.atoms(sympy.Float))
        bound = DECIMAL_TOLERANCE if is_rounded else EXACT_TOLERANCE
        if abs(x - y) > bound * max(abs(x), abs(y)):
            return False
        size = abs(sympy.log(x))
    except (ArithmeticError, TypeError, ValueError, AttributeError):
        return None
    if is_rounded or gold == answer or size > MAX_LOG_OF_EXACT:
        return True
    # 60 digits do not tell 2^{2025} from 2^{2025} + 1
    if gold.is_rational and answer.is_rational:
        gold, answer = pair.doit()
    return not _differ(gold, answer)


def _differ(gold: Any, answer: Any) -> bool:
    """Return whether the difference of two exact numbers has a digit that is not zero."""
    from sympy.core.evalf import PrecisionExhausted

    try:
        return bool((gold - answer).evalf(2, maxn=MAX_DIGITS, strict=True) != 0)
    except PrecisionExhausted:
        return False


def _same(gold: str, answer: str) -> bool:
    """Compare two single formulas: numbers by their digits, others by math-verify."""
    from math_verify import verify

    # its list of units holds single letters (m, c, t): a gold with letters must keep them
    units = not has_letters(gold)
    g, a = _parsed(gold, units), _parsed(answer, units)
    if g is None:
        raise ValueError(f"the gold answer is no formula that math-verify can read: {gold[:80]}")
    if a is None:
        return False
    g, a = _imaginary(g), _imaginary(a)
    are_equal = _equal_numbers(g, a)
    if are_equal is not None:
        return are_equal
    return bool(verify([g], [a], timeout_seconds=None, raise_on_error=True))


def equivalent(gold: str, answer: str) -> bool:
    r"""Return whether an answer equals the gold: every part of either has its match in the other.

    Raises
    ------
    ValueError
        If the gold cannot be parsed. What sympy raises passes through too.
    """
    golds, answers = split_answers(gold), split_answers(answer)
    if len(golds) > 1 and len(answers) == 1:  # a list in round brackets
        answers = split_answers(_unwrapped(answers[0], _PAIRS) or answers[0])
    answers = list(dict.fromkeys(answers))
    if len(golds) > 1 and len(answers) <= 1:
        return False
    if len(golds) <= 1 and (len(answers) <= 1 or _unwrapped(gold, _PAIRS)):
        return _same(gold, answer)  # a tuple may come without its brackets
    if len(answers) > max(MAX_PARTS, 2 * len(golds)):
        return False
    table = [[_same(g, a) for a in answers] for g in golds]
    return all(any(row) for row in table) and all(any(column) for column in zip(*table))  # noqa: B905


def extract_by_math_verify(text: str) -> str | None:
    """Return the text that math-verify's own patterns point at in an unboxed response, or None.

    The patterns and their priorities are math-verify's ("final answer is", then
    "answer:", then the last formula or number); only its step from text to
    ``parse_expr`` is left out.
    """
    from math_verify import ExprExtractionConfig
    from math_verify.parser import extract_latex, lazy_expr_regex, lazy_latex_regex

    config = _latex_config(True)
    patterns = [(p, rank, True) for p, rank in lazy_latex_regex(config)]
    patterns += [(p, rank, False) for p, rank in lazy_expr_regex(ExprExtractionConfig())]
    for rank in sorted({rank for _, rank, _ in patterns}):
        matches = [
            (m, is_latex) for p, r, is_latex in patterns if r == rank for m in p.finditer(text)
        ]
        matches.sort(key=lambda entry: (entry[0].end(), -entry[0].start()), reverse=True)
        for match, is_latex in matches:
            if is_latex:
                expression, latex = extract_latex(match, config)
                if expression is not None:
                    return str(latex).replace(" and ", ", ")
            elif (number := _plain_match(match)) is not None:
                return number
    return None


def _plain_match(match: re.Match[str]) -> str | None:
    """Return the number or the arithmetic of a match outside LaTeX, as text."""
    groups = match.groupdict()
    if groups.get("expr"):
        expression = " ".join(groups["expr"].split()).rstrip(" .")
        return expression if _parsed(expression, False) is not None else None
    integer = next((v for k, v in groups.items() if k.startswith("integer") and v), "")
    decimal = next((v for k, v in groups.items() if k.startswith("decimal") and v), "")
    if not integer and not decimal:
        return None
    number = re.sub("[ ,]", "", integer) + decimal.replace(",", ".")
    return number + "\\%" if groups.get("percent") else number


def _answer_job(job: dict[str, Any]) -> dict[str, Any]:
    try:
        if job["op"] == "extract":
            return {"value": extract_by_math_verify(job["text"])}
        return {"value": equivalent(job["gold"], job["answer"])}
    except Exception as error:  # a failing comparison is a reply too
        message = " ".join(str(error).split())[:200]
        return {"error": f"{type(error).__name__}: {message}"}


def main() -> None:
    """Answer jobs until the input ends."""
    import logging
    import signal

    out = os.fdopen(os.dup(1), "w", encoding="ascii")
    os.dup2(os.open(os.devnull, os.O_WRONLY), 1)  # nothing else may speak on the answers' pipe
    logging.disable(logging.CRITICAL)
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is the parent's to handle
    timer = getattr(signal, "setitimer", None)
    if timer is not None:
        signal.signal(signal.SIGALRM, signal.SIG_DFL)
        signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGALRM})
    try:
        import resource

        hard = resource.getrlimit(resource.RLIMIT_AS)[1]
        soft = MEMORY_LIMIT if hard == resource.RLIM_INFINITY else min(MEMORY_LIMIT, hard)
        resource.setrlimit(resource.RLIMIT_AS, (soft, hard))
    except (ImportError, OSError, ValueError):
        pass  # no such limit on this system; the time limit remains
    try:
        import math_verify.parser  # noqa: F401

        _restrict_eval()
        out.write('{"ready": true}\n')
    except Exception as error:
        out.write(json.dumps({"fatal": f"{type(error).__name__}: {error}"}) + "\n")
        return
    finally:
        out.flush()
    for line in sys.stdin:
        job = json.loads(line)
        if timer is not None:  # the kernel ends a runaway even where the parent was killed
            timer(signal.ITIMER_REAL, job["limit"] + 5.0)
        reply = _answer_job(job)
        if timer is not None:
            timer(signal.ITIMER_REAL, 0)
        out.write(json.dumps(reply) + "\n")
        out.flush()


if __name__ == "__main__":
    main()
