"""Text for people: numbers, durations, counts, probabilities, lists, and untrusted text.

Every terminal line, table, page and exported file formats its numbers with these functions, so
that one number reads the same everywhere.
"""

from __future__ import annotations

import re
import unicodedata
from collections import Counter
from collections.abc import Sequence
from datetime import datetime, timezone
from typing import Any

#: Shown where there is no number.
NO_VALUE = "-"

#: Unicode categories of control, format, surrogate, private and unassigned characters and of
#: line separators: everything that is not a visible character.
_INVISIBLE = frozenset({"Cc", "Cf", "Cs", "Co", "Cn", "Zl", "Zp"})
#: Commands to a runner of CI jobs, up to where a blank breaks them.
_COMMAND = re.compile(r"^\s*:(?=:)|##(vso)?(?=\[)", re.IGNORECASE)
#: Format characters that embed, override or isolate the direction of the text around them.
_BIDIRECTIONAL = frozenset("\u202a\u202b\u202c\u202d\u202e\u2066\u2067\u2068\u2069")


# -- scores and intervals ------------------------------------------------------------------------


def format_score(value: float | None) -> str:
    """Return a score with three decimals.

    The value is rounded to nine decimals first, so that the order of summation does not show.

    Examples
    --------
    >>> format_score(0.9625), format_score(0.9625 + 2e-16), format_score(-1e-16)
    ('0.963', '0.963', '0.000')
    >>> format_score(None), format_score(float("nan"))
    ('-', '-')
    """
    if value is None or value != value:
        return NO_VALUE
    return f"{round(value, 9) + 0.0:.3f}"


def format_mean_sd(mu: float, sigma: float | None) -> str:
    """Return a mean with its standard deviation.

    Examples
    --------
    >>> format_mean_sd(0.38817, 0.02488), format_mean_sd(0.5, None)
    ('0.388 ± 0.025', '0.500')
    """
    mean = format_score(mu)
    return mean if sigma is None else f"{mean} ± {format_score(sigma)}"


def format_interval(interval: Any) -> str:
    """Return the ends of an interval, its attributes `low` and `high`.

    Examples
    --------
    >>> from lm_eval_bayes.stats.intervals import Interval
    >>> format_interval(Interval(-0.0412, 0.26, level=0.95, method="exact", scope="benchmark"))
    '-0.041 to 0.260'
    """
    return f"{format_score(interval.low)} to {format_score(interval.high)}"


def interval_label(level: float, method: str) -> str:
    """Return the heading of a column of intervals.

    Examples
    --------
    >>> interval_label(0.95, "exact"), interval_label(0.999, "beta")
    ('95% interval', '99.9% beta interval')
    """
    return f"{100 * level:g}% " + ("" if method == "exact" else f"{method} ") + "interval"


def scope_label(scope: str, n_clusters: int | None = None) -> str:
    """Return what a posterior of this scope is about, with the number of clusters if there are any.

    Examples
    --------
    >>> scope_label("benchmark", 12), scope_label("population")
    ('these questions', 'the population of questions')
    >>> scope_label("population", 12)
    'the population of questions, sampled in 12 clusters'
    """
    if scope == "benchmark":
        return "these questions"
    clusters = f", sampled in {plural(n_clusters, 'cluster')}" if n_clusters else ""
    return f"the population of questions{clusters}"


# -- probabilities -------------------------------------------------------------------------------


def format_probability(p: float) -> str:
    """Return a probability with three decimals that is never shown as certain.

    Examples
    --------
    >>> [format_probability(p) for p in (0.99987, 0.9994, 0.25, 0.0001)]
    ['>0.999', '0.999', '0.250', '<0.001']
    """
    if p > 0.9995:
        return ">0.999"
    return "<0.001" if p < 0.0005 else f"{p:.3f}"


def probability_statement(event: str, p: float) -> str:
    """Return the probability of an event as an equation.

    Examples
    --------
    >>> probability_statement("P(A > B)", 1.0), probability_statement("P(A > B)", 0.25)
    ('P(A > B) > 0.999', 'P(A > B) = 0.250')
    """
    text = format_probability(p)
    return f"{event} {text[0]} {text[1:]}" if text[0] in "<>" else f"{event} = {text}"


def format_percent(p: float) -> str:
    """Return a probability in percent, without the sign, that is never shown as certain.

    Examples
    --------
    >>> [format_percent(p) for p in (0.0, 0.004, 0.031, 0.5, 0.996, 1.0)]
    ['<1', '<1', '3', '50', '>99', '>99']
    """
    if p < 0.01:
        return "<1"
    return ">99" if p > 0.99 else f"{100.0 * p:.0f}"


# -- counts, sizes, durations --------------------------------------------------------------------


def plural(n: int, noun: str, plural_noun: str | None = None) -> str:
    """Return a count with its noun.

    Examples
    --------
    >>> plural(1, "trial"), plural(2400, "trial"), plural(2, "query", "queries")
    ('1 trial', '2,400 trials', '2 queries')
    """
    return f"{n:,} {noun if n == 1 else plural_noun or noun + 's'}"


def questions_in_words(scope: str, n: int) -> str:
    """Return what a score is about: these n questions, or others of the kind.

    Examples
    --------
    >>> questions_in_words("benchmark", 1), questions_in_words("benchmark", 15)
    ('this question', 'these 15 questions')
    >>> questions_in_words("population", 15)
    'other questions of the kind'
    """
    these = "this question" if n == 1 else f"these {plural(n, 'question')}"
    return "other questions of the kind" if scope == "population" else these


def format_integer(n: float | None) -> str:
    """Return a number without decimals, with commas.

    Examples
    --------
    >>> format_integer(48000.0), format_integer(None)
    ('48,000', '-')
    """
    return NO_VALUE if n is None else f"{n:,.0f}"


def format_number(n: float) -> str:
    """Return a number of things, or a mean of such numbers.

    Examples
    --------
    >>> format_number(4.5), format_number(12345.0)
    ('4.5', '12,345')
    """
    return f"{n:,.1f}".removesuffix(".0")


def format_range(ends: tuple[int, int] | None) -> str:
    """Return a range of whole numbers, or the number where both ends are equal.

    Examples
    --------
    >>> format_range((8, 8)), format_range((6, 1800)), format_range(None)
    ('8', '6 to 1,800', '-')
    """
    if ends is None:
        return NO_VALUE
    low, high = ends
    return f"{low:,}" if low == high else f"{low:,} to {high:,}"


def format_large(n: float | None) -> str:
    """Return a number with at least three significant digits, from 10,000 on with a prefix.

    Examples
    --------
    >>> [format_large(n) for n in (7, 2.25, 999.7, 1234, 48_000, 5_300_000, None)]
    ['7', '2.25', '1,000', '1,234', '48k', '5.3M', '-']
    """
    if n is None:
        return NO_VALUE
    if n < 10_000:
        return f"{n:,.0f}" if n >= 999.5 else f"{n:.3g}"
    for size, prefix in ((1e9, "G"), (1e6, "M")):
        if n >= 0.9995 * size:
            return f"{n / size:.3g}{prefix}"
    return f"{n / 1e3:.3g}k"


def format_bytes(n: int) -> str:
    """Return a number of bytes in decimal units.

    Examples
    --------
    >>> format_bytes(512), format_bytes(1_640_000)
    ('512 B', '1.6 MB')
    """
    value, units = float(n), ["B", "kB", "MB", "GB", "TB"]
    while value >= 1000 and len(units) > 1:
        value /= 1000
        units.pop(0)
    return f"{value:.0f} {units[0]}" if units[0] == "B" else f"{value:.1f} {units[0]}"


def format_duration(seconds: float | None) -> str:
    """Return a duration in its two largest units.

    Examples
    --------
    >>> [format_duration(s) for s in (0.04, 41.7, 180, 4_000, 200_000, None)]
    ['0.04 s', '41.7 s', '3 min', '1 h 6 min', '2 d 7 h', '-']
    """
    if seconds is None:
        return NO_VALUE
    rounded = round(seconds)
    if rounded < 60:
        return f"{seconds:.3g} s"
    units = ((86400, "d"), (3600, "h"), (60, "min"), (1, "s"))
    largest = next(i for i, (size, _) in enumerate(units) if rounded >= size)
    (size, unit), (next_size, next_unit) = units[largest : largest + 2]
    rest = rounded % size // next_size
    return f"{rounded // size:,} {unit}" + (f" {rest} {next_unit}" if rest else "")


def format_date(seconds: float | None, form: str = "%Y-%m-%d %H:%M UTC") -> str | None:
    """Return a time, in seconds since 1970 UTC, as a date; None if it is not one.

    Examples
    --------
    >>> format_date(0.0), format_date(None), format_date(1e300)
    ('1970-01-01 00:00 UTC', None, None)
    """
    if seconds is None:
        return None
    try:
        return datetime.fromtimestamp(seconds, timezone.utc).strftime(form)
    except (OverflowError, OSError, ValueError):
        return None


def join_words(words: Sequence[str], conjunction: str = "and") -> str:
    """Return words with commas, and a conjunction before the last.

    Examples
    --------
    >>> join_words(["a", "b", "c"]), join_words(["a", "b"], "or"), join_words(["a"])
    ('a, b and c', 'a or b', 'a')
    """
    if len(words) < 2:
        return "".join(words)
    return f"{', '.join(words[:-1])} {conjunction} {words[-1]}"


def first_names(names: Sequence[str], shown: int = 3) -> str:
    """Return the first names with commas, and the number of the others.

    Examples
    --------
    >>> first_names(["a", "b", "c"]), first_names(["a", "b", "c"], 2)
    ('a, b, c', 'a, b and 1 more')
    """
    more = len(names) - shown
    return ", ".join(names[:shown]) + (f" and {more:,} more" if more > 0 else "")


# -- untrusted text ------------------------------------------------------------------------------


def error_line(error: BaseException) -> str:
    """Return the message of an error on one line; without a message, the name of its type."""
    return " ".join(str(error).split()) or type(error).__name__


def one_line(text: object, longest: int | None = None) -> str:
    r"""Return a text on one line, with every invisible character escaped.

    Parameters
    ----------
    text : object
        The text; anything else is converted by ``str``.
    longest : int, optional
        The largest number of characters returned; the last is "…" where text was cut.

    Examples
    --------
    >>> print(one_line("a\x1b[31m\u202e b\n"))
    a\x1b[31m\u202e b\n
    >>> print(one_line("Größe 數 [bold]"))
    Größe 數 [bold]
    >>> one_line("a long story", 7)
    'a long…'
    """
    characters = str(text) if longest is None else str(text)[: longest + 1]
    escaped = "".join(map(_escaped, characters))
    if longest is None:
        return escaped
    return escaped if len(escaped) <= longest else escaped[: longest - 1] + "…"


def without_commands(line: str) -> str:
    """Return a line that is no command to a runner of CI jobs, by a blank within one.

    Those of GitHub Actions and Azure Pipelines obey "::" at the beginning of a line, also behind
    blanks, and "##[" and "##vso[" anywhere.

    Examples
    --------
    >>> without_commands("::add-mask::x"), without_commands("a ##[error]b")
    (': :add-mask::x', 'a ## [error]b')
    """
    return _COMMAND.sub(r"\g<0> ", line)


def begins_with_count(sentence: str) -> bool:
    """Return whether a sentence is about a number of things, of one of several that it is said of.

    Examples
    --------
    >>> begins_with_count("1 trial ended early"), begins_with_count("in all 1,024 trials ended")
    (True, True)
    >>> begins_with_count("every epoch is a trial")
    False
    """
    return re.match(r"(in all )?\d", sentence) is not None


def shorten_middle(text: str, longest: int) -> str:
    """Return a text of at most so many characters, with "…" in place of its middle.

    Examples
    --------
    >>> shorten_middle("sha256:0123456789abcdef", 13), shorten_middle("phi", 13)
    ('sha256…abcdef', 'phi')
    """
    if len(text) <= longest:
        return text
    end = max(0, longest - 1) // 2
    return f"{text[: max(0, longest - 1 - end)]}…{text[len(text) - end :]}"


def shorten_names(names: Sequence[str], longest: int) -> tuple[str, ...]:
    """Return names without their middles where they are long; different names stay different.

    Names that are the same without their middle get a number each, of how many there are.

    Examples
    --------
    >>> shorten_names(["phi", "a-long-name-v1", "a-long-name-v2"], 9)
    ('phi', 'a-lo…e-v1', 'a-lo…e-v2')
    >>> shorten_names(["model-1-chat", "model-2-chat"], 9)
    ('mode…chat (1 of 2 like it)', 'mode…chat (2 of 2 like it)')
    """
    shown = [shorten_middle(one_line(text), longest) for text in names]
    alike, seen = Counter(shown), Counter[str]()
    numbered = []
    for text in shown:
        seen[text] += 1
        number = f" ({seen[text]} of {alike[text]} like it)" if alike[text] > 1 else ""
        numbered.append(text + number)
    return tuple(numbered)


def printable_lines(text: str) -> str:
    r"""Return a text with its line ends and tabs, and control characters escaped.

    Format characters stay, except those that change the direction of the text around them.

    Examples
    --------
    >>> print(printable_lines("2 + 2\x00 =\r\n?"))
    2 + 2\x00 =
    ?
    """
    lines = text.replace("\r\n", "\n").replace("\r", "\n")
    return "".join(
        c
        if c in "\n\t" or (unicodedata.category(c) == "Cf" and c not in _BIDIRECTIONAL)
        else _escaped(c)
        for c in lines
    )


def replace_surrogates(text: str) -> str:
    r"""Return a text that can be written as UTF-8: lone surrogates become U+FFFD.

    Examples
    --------
    >>> replace_surrogates("a\ud800b\n")
    'a\ufffdb\n'
    """
    return re.sub("[\ud800-\udfff]", "\ufffd", text)


def _escaped(c: str) -> str:
    if unicodedata.category(c) in _INVISIBLE:
        return c.encode("unicode_escape").decode("ascii")
    return c
