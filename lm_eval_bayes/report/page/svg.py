"""SVG elements, axes and ticks.

Horizontal positions are percentages, so that a figure scales with the page and its text does not.
Colours are classes, which the style sheet defines for the light and the dark scheme.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence

import numpy as np
from markupsafe import Markup, escape

#: Width in SVG units of the inside of a stretched figure.
VIEW_WIDTH = 1000


def element(tag: str, *children: object, **attributes: object) -> Markup:
    """Return an element; children and values that are not markup are escaped.

    Examples
    --------
    >>> print(element("text", "a < b", x="5%", class_="tick", aria_hidden="true"))
    <text x="5%" class="tick" aria-hidden="true">a &lt; b</text>
    """
    attribute_text = Markup("").join(
        Markup(' {}="{}"').format(_attribute(name), _value(value))
        for name, value in attributes.items()
        if value is not None
    )
    if not children:
        return Markup("<{}{}/>").format(Markup(tag), attribute_text)
    content = Markup("").join(escape(child) for child in children)
    return Markup("<{0}{1}>{2}</{0}>").format(Markup(tag), attribute_text, content)


def line(x1: object, x2: object, y1: object, y2: object, kind: str) -> Markup:
    """Return a line of a class of the style sheet."""
    return element("line", x1=x1, x2=x2, y1=y1, y2=y2, class_=kind)


def tick_label(text: object, x: object, y: object, anchor: str) -> Markup:
    """Return the label of a tick; the anchor is "start", "middle" or "end"."""
    return element("text", text, x=x, y=y, class_=f"tick {anchor}")


def labelled_figure(
    parts: Iterable[Markup], *, id: str, title: str, description: str, height: int, kind: str = ""
) -> Markup:
    """Return a figure with a title and a description for screen readers.

    Parameters
    ----------
    parts : iterable of Markup
        Its content.
    id : str
        Prefix of the element ids, unique on the page and never an untrusted text.
    title, description : str
        The alternative text.
    height : int
        In CSS pixels; the width is that of the container.
    kind : str
        A class of the style sheet.
    """
    return element(
        "svg",
        element("title", title, id=f"{id}-title"),
        element("desc", description, id=f"{id}-desc"),
        *parts,
        role="img",
        aria_labelledby=f"{id}-title {id}-desc",
        class_=f"figure {kind}".strip(),
        width="100%",
        height=height,
    )


def stretched(parts: Iterable[Markup], height: int) -> Markup:
    """Return the inside of a figure, stretched to its width."""
    return element(
        "svg",
        *parts,
        width="100%",
        height=height,
        viewBox=f"0 0 {VIEW_WIDTH} {height}",
        preserveAspectRatio="none",
        class_="stretched",
    )


def percent(share: float) -> str:
    """Return a share of the width as a percentage.

    Examples
    --------
    >>> percent(0.5), percent(1 / 3)
    ('50%', '33.33%')
    """
    return f"{100.0 * share:.2f}".rstrip("0").rstrip(".") + "%"


def polyline(points: Sequence[tuple[float, float]]) -> str:
    """Return points as the value of a `points` attribute.

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


def _step(minimum: float) -> float:
    """Return the smallest round step of at least this size."""
    power = 10.0 ** math.floor(math.log10(minimum))
    return next(power * m for m in (1.0, 2.0, 2.5, 5.0, 10.0) if power * m >= minimum * 0.999)


def round_range(low: float, high: float, bounds: tuple[float, float]) -> tuple[float, float]:
    """Return a range with round ends that contains another, within the possible scores.

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


def doubling_ticks(n_max: int) -> list[int]:
    """Return numbers of trials for a logarithmic axis: powers of two, and the last one.

    Examples
    --------
    >>> doubling_ticks(8), doubling_ticks(80), doubling_ticks(6), doubling_ticks(1)
    ([1, 2, 4, 8], [1, 2, 4, 8, 16, 32, 80], [1, 2, 6], [1])
    >>> doubling_ticks(1000)
    [1, 4, 16, 64, 256, 1000]
    """
    step = 1
    while n_max.bit_length() > 7 * step:
        step += 1
    ticks = [2**power for power in range(0, n_max.bit_length(), step)]
    # the last power of two would overlap the last number
    if ticks[-1] < n_max and 1.7 * ticks[-1] > n_max:
        ticks.pop()
    return ticks if ticks[-1] == n_max else [*ticks, n_max]


def log_ticks(low: float, high: float, n_max: int = 6) -> list[float]:
    """Return round numbers for a logarithmic axis.

    Examples
    --------
    >>> log_ticks(1, 80)
    [1.0, 2.0, 5.0, 10.0, 20.0, 50.0]
    >>> log_ticks(300, 9000)
    [500.0, 1000.0, 2000.0, 5000.0]
    """
    first, last = math.floor(math.log10(low)), math.ceil(math.log10(high))
    for steps in ((1, 2, 5), (1, 3), (1,)):
        numbers = [float(m * 10.0**e) for e in range(first, last + 1) for m in steps]
        numbers = [number for number in numbers if low * 0.999 <= number <= high * 1.001]
        if len(numbers) <= n_max:
            return numbers
    return numbers[:: math.ceil(len(numbers) / n_max)]


def log_share(value: float, low: float, high: float) -> float:
    """Return the position of a value on a logarithmic axis, 0 to 1."""
    if not high > low > 0.0:
        return 0.5
    return float(np.clip(math.log(value / low) / math.log(high / low), 0.0, 1.0))


def _attribute(name: str) -> str:
    camel_case = {"viewBox", "preserveAspectRatio"}
    return name if name in camel_case else name.rstrip("_").replace("_", "-")


def _value(value: object) -> object:
    return _short(value) if isinstance(value, float) else value


def _short(value: float) -> str:
    return f"{value:.1f}".removesuffix(".0")
