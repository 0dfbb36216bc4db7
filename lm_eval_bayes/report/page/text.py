"""Untrusted names and texts for the page.

HTML is escaped by the template. The functions here escape what HTML escaping leaves: control
characters, direction overrides and lone surrogates; and they truncate long texts.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from markupsafe import Markup

from lm_eval_bayes._util.text import one_line, printable_lines, shorten_middle, shorten_names

#: Characters of a name, and of a setting.
MAX_NAME, MAX_SETTING = 160, 2000

#: A model's name with settings that distinguish it from other runs of the model.
_NAME_WITH_SETTINGS = re.compile(r"(?P<model>.+) \((?P<settings>[^()]+)\)", re.DOTALL)

#: A model's name with an organisation or folders before it.
_FOLDERS = re.compile(r"[\w.~:@+-]*(/[\w.~:@+ -]*)+")


class TruncatedText(NamedTuple):
    """The beginning of a text, and the number of characters left out."""

    shown: str
    left_out: int


def name(text: object) -> str:
    r"""Return a name on one line, with invisible characters escaped, of a long one both ends.

    Examples
    --------
    >>> print(name("a\x00b\u202ec"))
    a\x00b\u202ec
    >>> print(name("\ud800 数"))
    \ud800 数
    """
    return shorten_middle(one_line(shorten_middle(str(text), MAX_NAME)), MAX_NAME)


def short_names(names: Sequence[str]) -> tuple[str, ...]:
    """Return names without the part before the last slash, if they stay distinct.

    If all are settings of one model, only the settings are returned. Long names that are the same
    without their middle get a number each, of how many such names there are.

    Examples
    --------
    >>> short_names(["Qwen/Qwen3-8B", "google/gemma-3-4b-it"])
    ('Qwen3-8B', 'gemma-3-4b-it')
    >>> short_names(["<b>bold</b>", "a/model"])
    ('<b>bold</b>', 'model')
    >>> short_names(["a/model", "b/model"])
    ('a/model', 'b/model')
    >>> short_names(["a/one (user=x/y)", "b/two (user=x/z)"])
    ('one (user=x/y)', 'two (user=x/z)')
    >>> short_names(["phi (temperature=0.3)", "phi (temperature=1.2)"])
    ('temperature=0.3', 'temperature=1.2')
    >>> [text[-22:] for text in short_names(["x" * 100 + end + "y" * 100 for end in "ab"])]
    ['yyyyy (1 of 2 like it)', 'yyyyy (2 of 2 like it)']
    """
    matches = [_NAME_WITH_SETTINGS.fullmatch(full) for full in names]
    if len(names) > 1 and len({match and match["model"] for match in matches}) == 1:
        settings = [match["settings"] for match in matches if match is not None]
        if len(set(settings)) == len(names):
            return tuple(map(name, settings))
    short = [_without_folder(full) for full in names]
    for shown in (tuple(map(name, short)), tuple(map(name, names))):
        if len(set(shown)) == len(set(names)) and all(shown):
            return shown
    return shorten_names(shown, MAX_NAME)


def _without_folder(full: str) -> str:
    """Return a name without the part before the last slash, but with its settings."""
    model, bracket, settings = full.partition(" (")
    if _FOLDERS.fullmatch(model) is None:
        return full
    return model.rstrip("/").rpartition("/")[2].strip() + bracket + settings


def truncate(text: str, length: int) -> TruncatedText:
    r"""Return the first `length` characters of a text, which keeps its lines.

    Examples
    --------
    >>> truncate("2 + 2\x00 =\r\n?", 100)
    TruncatedText(shown='2 + 2\\x00 =\n?', left_out=0)
    >>> truncate("abcdef", 4)
    TruncatedText(shown='abcd', left_out=2)
    """
    return TruncatedText(printable_lines(text[:length]), max(0, len(text) - length))


def setting(value: object) -> TruncatedText:
    """Return a setting as text: a string unchanged, other values as JSON; truncated.

    Examples
    --------
    >>> setting({"model": "phi"}).shown, setting("greedy").shown
    ('{"model": "phi"}', 'greedy')
    """
    if isinstance(value, str):
        return truncate(value, MAX_SETTING)
    return truncate(json.dumps(shortened(value), ensure_ascii=False, default=str), MAX_SETTING)


def shortened(value: Any) -> Any:
    """Return settings as JSON types, with long strings truncated.

    Examples
    --------
    >>> len(shortened(["x" * 10_000])[0]), shortened({"top_p": float("inf")})
    (4001, {'top_p': 'inf'})
    """
    if isinstance(value, Mapping):
        return {str(key): shortened(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [shortened(item) for item in value]
    if isinstance(value, str):
        n_max = 2 * MAX_SETTING
        return value if len(value) <= n_max else f"{value[:n_max]}…"
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)
    return value


def json_island(value: Any) -> Markup:
    r"""Return JSON that can stand inside a script element.

    Examples
    --------
    >>> print(json_island({"a": "</script><!-- & \u2028"}))
    {"a":"\u003c/script\u003e\u003c!-- \u0026 \u2028"}
    """
    # ASCII only, so lone surrogates are escaped too
    text = json.dumps(value, separators=(",", ":"), allow_nan=False)
    for c in "<>&":
        text = text.replace(c, f"\\u{ord(c):04x}")
    return Markup(text)
