r"""The worker that compares two formulas.

It runs as a process of its own, because sympy can be stopped in no other way:
one JSON object a line comes in, one goes out. Only the standard library is
imported at the top, and nothing of this package, so that the process is ready
in half a second and never loads the harness. ``python -m
lm_eval_bayes.harness.grading.equivalence`` starts it by hand.

Model output is untrusted. It reaches sympy through math-verify's LaTeX grammar;
the one ``eval`` behind it (``Number("12")`` and ``parse_expr`` go through sympy's
own parser) is restricted to plain numbers and symbols by `_restrict_eval`.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import sys
from functools import lru_cache, partial
from typing import Any

#: The most memory a worker may map, in bytes: 9^{9^{9^9}} would take all memory.
MEMORY_LIMIT = 2 << 30
#: Relative distances up to which two numbers are equal: exact ones, and with a decimal.
EXACT_TOLERANCE, DECIMAL_TOLERANCE = 1e-30, 1e-10
#: Exact numbers within the tolerance are equal if so many digits do not tell them apart, or if the
#: logarithm of their size is larger than this, which is that of 100,000 digits.
MAX_DIGITS, MAX_LOG_OF_EXACT = 400, 230_000

# A base, as in 12_3, and a letter that is a variable and no unit.
_BASE = re.compile(r"[\d}]\s*_\s*\{?\s*(\w+)")
_LONE_LETTER = re.compile(r"(?<![\\A-Za-z])[A-Za-z](?![A-Za-z])")
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


@lru_cache(maxsize=1000)
def _parsed(latex: str, units: bool) -> Any:
    """Return the sympy object of one formula, or None if the grammar cannot parse it."""
    import sympy
    from latex2sympy2_extended.math_normalization import NormalizationConfig, normalize_latex
    from math_verify.parser import parse_latex_cached

    # not every parser runtime reads percentages, and to math-verify 9 and 9% are one answer
    latex = re.sub(r"(\d[\d,.]*|\\frac\{\d+\}\{\d+\})\s*\\%", r"\\frac{\1}{100}", latex)
    # degrees are numbers of their own except in what takes an angle
    is_angle = re.search(r"\\(?:sin|cos|tan|cot|sec|csc)(?![A-Za-z])", latex)
    latex = latex.replace(r"^{\circ}", r"\cdot\frac{\pi}{180}" if is_angle else "")
    config = NormalizationConfig(units=units, nits=True, boxed="none")
    try:
        parsed = parse_latex_cached(normalize_latex(latex.strip().rstrip("\\"), config))
    except Exception:  # whatever the grammar raises
        return None
    letters = getattr(parsed, "free_symbols", ())
    if [letter.name for letter in letters] == ["i"]:  # without other letters the imaginary unit
        return parsed.xreplace(dict.fromkeys(letters, sympy.I))
    return parsed


def _equal_numbers(gold: Any, answer: Any) -> bool | None:
    """Compare two numbers by their relative distance, and exact ones by their difference too.

    None, which leaves the verdict to math-verify, where one is no number or has no 60 digits.
    """
    import sympy

    if not (isinstance(gold, sympy.Expr) and isinstance(answer, sympy.Expr)):
        return None
    pair = sympy.Tuple(gold, answer)
    if pair.free_symbols:  # a number equals no formula with variables
        return None if gold.free_symbols and answer.free_symbols else False
    is_rounded = any(decimal % 1 for decimal in pair.atoms(sympy.Float))
    tolerance = DECIMAL_TOLERANCE if is_rounded else EXACT_TOLERANCE
    try:
        x, y = (number.evalf(60, strict=True) for number in pair)
        if not (x.is_finite and y.is_finite):
            return None
        if abs(x - y) > tolerance * max(abs(x), abs(y)):
            return False
        if is_rounded or gold == answer or abs(sympy.log(x)) > MAX_LOG_OF_EXACT:
            return True
    except (ArithmeticError, TypeError, ValueError, AttributeError):
        return None
    if gold.is_rational and answer.is_rational:
        gold, answer = pair.doit()
    try:  # 60 digits do not tell 2^{2025} from 2^{2025} + 1
        return bool((gold - answer).evalf(2, maxn=MAX_DIGITS, strict=True) == 0)
    except sympy.core.evalf.PrecisionExhausted:
        return True


def equivalent(gold: str, answer: str) -> bool:
    """Compare two single formulas: numbers by their digits, others by math-verify.

    Raises
    ------
    ValueError
        If the gold cannot be parsed. What sympy raises passes through too.
    """
    from math_verify import verify

    # math-verify drops the base of a number, and its list of units holds single letters
    if _BASE.findall(gold) != _BASE.findall(answer):
        return False
    units = not _LONE_LETTER.search(gold + " " + answer)
    g, a = _parsed(gold, units), _parsed(answer, units)
    if g is None:
        raise ValueError(f"the gold answer is no formula that math-verify can read: {gold[:80]}")
    if a is None:
        return False
    are_equal = _equal_numbers(g, a)
    if are_equal is not None:
        return are_equal
    precision = {"float_rounding": 10, "numeric_precision": 30}
    options = {"allow_set_relation_comp": True, "timeout_seconds": None, "raise_on_error": True}
    return bool(verify([g], [a], **precision, **options))


def extract_by_math_verify(text: str) -> str | None:
    """Return the text that math-verify's own patterns point at in an unboxed response, or None.

    The patterns and their priorities are math-verify's ("final answer is", then
    "answer:", then the last formula or number).
    """
    from math_verify import ExprExtractionConfig, LatexExtractionConfig
    from math_verify.parser import extract_match, get_extraction_regexes

    configs = [LatexExtractionConfig(boxed_match_priority=-1), ExprExtractionConfig()]
    patterns = [(r, p, c) for group, c in get_extraction_regexes(configs) for p, r in group]
    for rank in sorted({rank for rank, _, _ in patterns}):
        matches = [(m, c) for r, p, c in patterns if r == rank for m in p.finditer(text)]
        matches.sort(key=lambda entry: (entry[0].end(), -entry[0].start()), reverse=True)
        for match, config in matches:
            answer = extract_match(match, config)[1].replace(" and ", ", ")
            answer = " ".join(answer.split()).rstrip(" .")
            if answer and _parsed(answer, False) is not None:
                return answer + "\\%" if match.groupdict().get("percent") else answer
    return None


_JOBS: dict[str, Any] = {"extract": extract_by_math_verify, "compare": equivalent}


def _reply(job: dict[str, Any]) -> dict[str, Any]:
    try:
        return {"value": _JOBS[job["op"]](*job["texts"])}
    except Exception as error:  # a failing comparison is a reply too
        return _failure("error", error)


def _failure(key: str, error: Exception) -> dict[str, Any]:
    return {key: f"{type(error).__name__}: {' '.join(str(error).split())[:200]}"}


def main() -> None:
    """Answer jobs until the input ends."""
    import logging
    import signal

    out = os.fdopen(os.dup(1), "w", encoding="ascii")
    os.dup2(os.open(os.devnull, os.O_WRONLY), 1)  # nothing else may speak on the answers' pipe
    logging.disable(logging.CRITICAL)
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is the parent's to handle
    # where a system has no such limit, or a lower one, that and the time limit remain
    with contextlib.suppress(ImportError, OSError, ValueError):
        import resource

        hard = resource.getrlimit(resource.RLIMIT_AS)[1]
        resource.setrlimit(resource.RLIMIT_AS, (MEMORY_LIMIT, hard))
    try:
        import math_verify.parser  # noqa: F401

        _restrict_eval()
        reply: dict[str, Any] = {"ready": True}
    except Exception as error:
        reply = _failure("fatal", error)
    print(json.dumps(reply), file=out, flush=True)
    # SIGPROF ends the process, also one whose parent was killed; Windows has no such timer
    set_timer = getattr(signal, "setitimer", lambda which, seconds: None)
    limit_cpu_time = partial(set_timer, getattr(signal, "ITIMER_PROF", None))
    for line in sys.stdin:
        job = json.loads(line)
        limit_cpu_time(job["limit"])
        reply = _reply(job)
        limit_cpu_time(0)
        print(json.dumps(reply), file=out, flush=True)


if __name__ == "__main__":
    main()
