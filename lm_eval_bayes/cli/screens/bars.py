"""Interval bars in character cells: a thin line, a thick line and a point on one axis.

A cell has two halves, so that a bar of 30 cells shows 60 steps.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass

#: Signs of a cell by the weights of its halves: nothing, thin, thick.
_SIGNS = {
    (0, 0): " ", (1, 0): "╴", (0, 1): "╶", (1, 1): "─", (2, 0): "╸", (0, 2): "╺",
    (2, 2): "━", (1, 2): "╼", (2, 1): "╾",
}  # fmt: skip
#: Share of an axis within which all intervals lie where it is drawn for them alone.
_ZOOMED = 1 / 3
#: Columns for one label of an axis.
_LABEL = 7

Ends = tuple[float, float]


@dataclass(frozen=True)
class Axis:
    """The axis of a column of bars.

    Attributes
    ----------
    low, high : float
        Its ends.
    width : int
        Cells.
    drawn : bool
        Whether bars are box characters; plain ASCII otherwise.
    zero : bool
        Whether 0 is marked in every bar.
    """

    low: float
    high: float
    width: int
    drawn: bool
    zero: bool = False

    @classmethod
    def of(
        cls,
        intervals: Iterable[Ends],
        width: int,
        drawn: bool,
        bounds: Ends = (0.0, 1.0),
        zero: bool = False,
    ) -> Axis:
        """Return the axis of scores within bounds, or of differences, which shows 0.

        That of scores is as long as the bounds, unless all intervals lie within a third of them.

        Examples
        --------
        >>> Axis.of([(0.5, 0.6), (0.55, 0.65)], 30, drawn=False)
        Axis(low=0.5, high=0.65, width=30, drawn=False, zero=False)
        """
        ends = [end for interval in intervals for end in interval if math.isfinite(end)]
        low, high = min([*ends, *[0.0] * zero]), max([*ends, *[0.0] * zero])
        if not zero and high - low > _ZOOMED * (bounds[1] - bounds[0]):
            return cls(*bounds, width, drawn)
        if low == high:
            low, high = bounds
        step = _step(high - low, max(width // _LABEL, 2))
        first, last = math.floor(low / step + 1e-9), math.ceil(high / step - 1e-9)
        return cls(_rounded(first * step, step), _rounded(last * step, step), width, drawn, zero)

    def heading(self) -> str:
        """Return the numbers of the axis, as the heading of the column.

        Examples
        --------
        >>> Axis(0.0, 1.0, 30, drawn=False).heading()
        '0     .25      .5    .75     1'
        """
        step = _step(self.high - self.low, max(self.width // _LABEL, 2))
        first, last = math.ceil(self.low / step - 1e-9), math.floor(self.high / step + 1e-9)
        cells = [" "] * self.width
        for multiple in range(first, last + 1):
            value = _rounded(multiple * step, step)
            label = f"{value:g}".replace("0.", ".") if 0 < abs(value) < 1 else f"{value:g}"
            start = self._half(value) // 2 - (len(label) - 1) // 2
            start = max(0, min(start, self.width - len(label)))
            if "".join(cells[max(0, start - 1) : start + len(label)]).strip():
                continue  # no room beside the label before
            cells[start : start + len(label)] = label
        return "".join(cells).rstrip()

    def bar(self, point: float, thick: Ends, thin: Ends | None = None) -> str:
        """Return a bar: a thin line below a thick one, and a point.

        Examples
        --------
        >>> Axis(0.0, 1.0, 20, drawn=True).bar(0.5, (0.4, 0.6), (0.2, 0.7))
        '    ────━━●━╾─╴'
        >>> Axis(0.0, 1.0, 20, drawn=False).bar(0.5, (0.4, 0.6), (0.2, 0.7))
        '    ----==o==--'
        """
        halves = [0] * (2 * self.width)
        for weight, ends in ((1, thin), (2, thick)):
            if ends is not None:
                first, last = map(self._half, ends)
                halves[first : last + 1] = [weight] * (last + 1 - first)
        at_point, at_zero = self._half(point) // 2, self._half(0.0) // 2 if self.zero else None
        cells = []
        for cell in range(self.width):
            pair = halves[2 * cell], halves[2 * cell + 1]
            if cell == at_point:
                cells.append("●" if self.drawn else "o")
            elif cell == at_zero:
                cells.append("│┼┿"[max(pair)] if self.drawn else "|++"[max(pair)])
            else:
                cells.append(_SIGNS[pair] if self.drawn else " -="[max(pair)])
        return "".join(cells).rstrip()

    def _half(self, value: float) -> int:
        n = 2 * self.width
        return max(0, min(n - 1, int((value - self.low) / (self.high - self.low) * n)))


def filled_bar(share: float, width: int, drawn: bool, rest: bool = True) -> str:
    """Return a bar from 0 to a share of the width, with the rest of it in points.

    Examples
    --------
    >>> filled_bar(0.5, 8, drawn=True), filled_bar(0.5, 8, drawn=False, rest=False)
    ('━━━━····', '====')
    """
    n = round(share * width)
    return ("━" if drawn else "=") * n + ("·" if drawn else ".") * (width - n) * rest


def rank_strip(low: int, high: int, n_models: int, drawn: bool) -> str:
    """Return a set of ranks as a strip with a cell for every rank.

    Examples
    --------
    >>> rank_strip(2, 4, 6, drawn=True), rank_strip(2, 4, 6, drawn=False)
    ('·━━━··', '.===..')
    """
    empty, full = ("·", "━") if drawn else (".", "=")
    return "".join(full if low <= rank <= high else empty for rank in range(1, n_models + 1))


def _step(span: float, most: int) -> float:
    """Return the smallest distance 1, 2, 2.5 or 5 x 10^k that divides a span in at most so many."""
    exponent = math.floor(math.log10(span / most))
    for factor in (1.0, 2.0, 2.5, 5.0, 10.0):
        step = float(factor * 10.0**exponent)
        if span / step <= most * (1 + 1e-9):
            return step
    return float(10.0 ** (exponent + 1))


def _rounded(value: float, step: float) -> float:
    """Return a multiple of a step without the error of floating point."""
    return round(value, max(0, 2 - math.floor(math.log10(step)))) + 0.0
