"""Small pieces of SVG. Places along a line are given in percent, so that a picture becomes wide
or narrow while its letters stay as large as the text around it.

Colours are classes, which the style sheet gives a meaning in light and in dark.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence

import numpy as np
from markupsafe import Markup, escape

#: The SVG units across the inside of a figure whose lines are stretched to its width.
ACROSS = 1000


def element(tag: str, *inside: object, **attributes: object) -> Markup:
    """Return an element; whatever is no markup already is escaped.

    Examples
    --------
    >>> print(element("text", "a < b", x="5%", class_="tick", aria_hidden="true"))
    <text x="5%" class="tick" aria-hidden="true">a &lt; b</text>
    """
    told = Markup("").join(
        Markup(' {}="{}"').format(_attribute(name), _value(value))
        for name, value in attributes.items()
        if value is not None
    )
    if not inside:
        return Markup("<{}{}/>").format(Markup(tag), told)
    content = Markup("").join(escape(one) for one in inside)
    return Markup("<{0}{1}>{2}</{0}>").format(Markup(tag), told, content)


def group(parts: Iterable[Markup], **attributes: object) -> Markup:
    """Return several elements as one."""
    return element("g", *parts, **attributes)


def picture(
    parts: Iterable[Markup], *, name: str, title: str, description: str, height: int, kind: str = ""
) -> Markup:
    """Return a figure that a screen reader tells about: its title and its description.

    Parameters
    ----------
    parts : iterable of Markup
        What is drawn.
    name : str
        An id of our own making, unique on the page.
    title, description : str
        The alternative text.
    height : int
        In CSS pixels; the width is that of the place it stands in.
    kind : str
        A class of the style sheet.
    """
    return element(
        "svg",
        element("title", title, id=f"{name}-title"),
        element("desc", description, id=f"{name}-desc"),
        *parts,
        role="img",
        aria_labelledby=f"{name}-title {name}-desc",
        class_=f"figure {kind}".strip(),
        width="100%",
        height=height,
    )


def stretched(parts: Iterable[Markup], height: int) -> Markup:
    """Return the inside of a figure whose lines are stretched to its width."""
    return element(
        "svg",
        *parts,
        width="100%",
        height=height,
        viewBox=f"0 0 {ACROSS} {height}",
        preserveAspectRatio="none",
        class_="stretched",
    )


def percent(share: float) -> str:
    """Return a share of the width.

    Examples
    --------
    >>> percent(0.5), percent(1 / 3)
    ('50%', '33.33%')
    """
    return f"{100.0 * share:.2f}".rstrip("0").rstrip(".") + "%"


def polyline(points: Sequence[tuple[float, float]]) -> str:
    """Return points for `points` or, after an M, for `d`.

    Examples
    --------
    >>> polyline([(0.0, 1.25), (10.04, 2.0)])
    '0,1.2 10,2'
    """
    return " ".join(f"{_short(x)},{_short(y)}" for x, y in points)


def ticks(low: float, high: float, about: int = 5) -> list[float]:
    """Return round numbers from low to high.

    Examples
    --------
    >>> ticks(0.0, 1.0)
    [0.0, 0.2, 0.4, 0.6, 0.8, 1.0]
    >>> ticks(0.43, 0.71)
    [0.5, 0.6, 0.7]
    """
    span = high - low
    if not span > 0.0:
        return [low]
    step = _step(span / about)
    first, last = math.ceil(low / step - 1e-9), math.floor(high / step + 1e-9)
    return [float(f"{i * step:.12g}") for i in range(first, last + 1)]


def _step(least: float) -> float:
    """Return the smallest round step of at least this size."""
    size = 10.0 ** math.floor(math.log10(least))
    return next(size * m for m in (1.0, 2.0, 2.5, 5.0, 10.0) if size * m >= least * 0.999)


def round_range(low: float, high: float, bounds: tuple[float, float]) -> tuple[float, float]:
    """Return a range with round ends that holds another, inside the possible scores.

    Examples
    --------
    >>> round_range(0.413, 0.688, (0.0, 1.0))
    (0.4, 0.7)
    >>> round_range(0.97, 1.0, (0.0, 1.0))
    (0.965, 1.0)
    """
    span = max(high - low, 0.02 * (bounds[1] - bounds[0]), 1e-9)
    step = _step(span / 6.0)
    first = max(bounds[0], float(f"{math.floor(low / step - 0.1) * step:.12g}"))
    last = min(bounds[1], float(f"{math.ceil(high / step + 0.1) * step:.12g}"))
    return (first, last) if last > first else bounds


def log_ticks(low: float, high: float, most: int = 6) -> list[float]:
    """Return round numbers for an axis of powers.

    Examples
    --------
    >>> log_ticks(1, 80)
    [1.0, 2.0, 5.0, 10.0, 20.0, 50.0]
    >>> log_ticks(300, 9000)
    [500.0, 1000.0, 2000.0, 5000.0]
    """
    first, last = math.floor(math.log10(low)), math.ceil(math.log10(high))
    for steps in ((1, 2, 5), (1, 3), (1,)):
        found = [float(m * 10.0**e) for e in range(first, last + 1) for m in steps]
        found = [mark for mark in found if low * 0.999 <= mark <= high * 1.001]
        if len(found) <= most:
            return found
    return found[:: math.ceil(len(found) / most)]


def log_share(value: float, low: float, high: float) -> float:
    """Return where a value lies on an axis of powers, 0 to 1."""
    if not high > low > 0.0:
        return 0.5
    return float(np.clip(math.log(value / low) / math.log(high / low), 0.0, 1.0))


def _attribute(name: str) -> str:
    known = {"viewBox", "preserveAspectRatio"}
    return name if name in known else name.rstrip("_").replace("_", "-")


def _value(value: object) -> object:
    return _short(value) if isinstance(value, float) else value


def _short(value: float) -> str:
    return f"{value:.1f}".removesuffix(".0")
