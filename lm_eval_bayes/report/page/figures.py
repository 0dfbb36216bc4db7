"""The figures of a panel: interval bars, curves and costs, as SVG."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from markupsafe import Markup

from lm_eval_bayes._util.text import format_large, plural
from lm_eval_bayes.analysis.cost import ModelCost
from lm_eval_bayes.analysis.prefix_posteriors import ScoreCurve
from lm_eval_bayes.analysis.report_data import TaskPanel
from lm_eval_bayes.report.page import text as words
from lm_eval_bayes.report.page.svg import (
    ACROSS,
    element,
    group,
    log_share,
    log_ticks,
    percent,
    picture,
    polyline,
    round_range,
    stretched,
    ticks,
)
from lm_eval_bayes.report.page.text import Scale
from lm_eval_bayes.stats.intervals import Interval

_BAR, _AXIS, _CURVE, _COST = 26, 18, 112, 300


@dataclass(frozen=True)
class Axis:
    """A part of the range of scores, along a line.

    Attributes
    ----------
    low, high : float
        Its ends.
    scale : Scale
        How scores are written.
    """

    low: float
    high: float
    scale: Scale

    @classmethod
    def around(cls, intervals: Sequence[Interval], scale: Scale) -> Axis:
        """Return an axis that holds these intervals."""
        low = min(one.low for one in intervals)
        high = max(one.high for one in intervals)
        return cls(*round_range(low, high, (scale.low, scale.high)), scale)

    def share(self, value: float) -> float:
        """Return where a score lies, 0 to 1."""
        span = self.high - self.low
        return 0.5 if span <= 0.0 else min(1.0, max(0.0, (value - self.low) / span))

    def at(self, value: float) -> str:
        """Return where a score lies, in percent of the width."""
        return percent(self.share(value))

    def ticks(self, about: int = 4) -> list[float]:
        """Return round scores on it."""
        return ticks(self.low, self.high, about)


def axis_above(axis: Axis) -> Markup:
    """Return the numbers that stand above interval bars."""
    marks = axis.ticks()
    # where there is little room, the style sheet leaves every second one out
    parts = [
        element(
            "text",
            axis.scale.tick(mark),
            x=axis.at(mark),
            y=12,
            class_=f"tick {_side(axis, mark)}{' second' if place % 2 else ''}",
        )
        for place, mark in enumerate(marks)
    ]
    return element(
        "svg",
        *parts,
        class_="figure axis",
        width="100%",
        height=_AXIS,
        aria_hidden="true",
        focusable="false",
    )


def interval_bar(axis: Axis, mu: float, thick: Interval, thin: Interval) -> Markup:
    """Return the bar of a model: the mean, the interval, and that of the other scope.

    Parameters
    ----------
    axis : Axis
        Shared by the bars of a table.
    mu : float
        Posterior mean.
    thick, thin : Interval
        About these questions, and about questions like these.
    """
    middle = _BAR / 2
    told = (
        f"mean {axis.scale.whole(mu)}; these questions {between(thick, axis.scale)}; "
        f"questions like these {between(thin, axis.scale)}"
    )
    lines = [
        element("line", x1=axis.at(mark), x2=axis.at(mark), y1=0, y2=_BAR, class_="grid")
        for mark in axis.ticks()
    ]
    width = percent(max(0.0, axis.share(thick.high) - axis.share(thick.low)))
    return element(
        "svg",
        *lines,
        element(
            "line", x1=axis.at(thin.low), x2=axis.at(thin.high), y1=middle, y2=middle, class_="thin"
        ),
        *(
            element(
                "line", x1=axis.at(e), x2=axis.at(e), y1=middle - 4, y2=middle + 4, class_="thin"
            )
            for e in (thin.low, thin.high)
        ),
        element(
            "rect", x=axis.at(thick.low), y=middle - 5, width=width, height=10, rx=2, class_="thick"
        ),
        element("line", x1=axis.at(mu), x2=axis.at(mu), y1=middle - 8, y2=middle + 8, class_="at"),
        role="img",
        aria_label=told,
        class_="figure bar",
        width="100%",
        height=_BAR,
    )


def between(interval: Interval, scale: Scale) -> str:
    """Return an interval in words."""
    return f"{scale.short(interval.low)} to {scale.whole(interval.high)}"


# -- convergence ---------------------------------------------------------------------------------


def shared_lines(panel: TaskPanel) -> Markup:
    """Return the curves of all models, which stand in the background of each one's picture."""
    axis, most = _curve_axis(panel), _most(panel)
    lines = [
        element("polyline", points=polyline(_line(found, axis, most)), class_="other")
        for found in panel.curves
        if found is not None and len(found.n) > 1
    ]
    marked = group(lines, id=f"lines-{panel.number}")
    return element(
        "svg", element("defs", marked), class_="defs", width=0, height=0, aria_hidden="true"
    )


def convergence(panel: TaskPanel, place: int) -> Markup:
    """Return the curve of one model: mean and interval after n trials of every question."""
    found = panel.curves[place]
    if found is None:
        return Markup("")
    axis, most = _curve_axis(panel), _most(panel)
    grid: list[Markup] = []
    for mark in axis.ticks(4):
        y = _CURVE * (1.0 - axis.share(mark))
        grid.append(element("line", x1="0%", x2="100%", y1=y, y2=y, class_="grid"))
        grid.append(element("text", axis.scale.tick(mark), x=-7, y=y + 4, class_="tick end"))
    for n in _curve_marks(most):
        x = log_share(n, 1, most)
        side = "end" if x > 0.97 and most > 1 else "start" if x < 0.03 and most > 1 else "middle"
        grid.append(
            element("text", format_large(n), x=percent(x), y=_CURVE + 15, class_=f"tick {side}")
        )
        grid.append(
            element("line", x1=percent(x), x2=percent(x), y1=_CURVE, y2=_CURVE + 3, class_="grid")
        )
    inside: list[Markup] = []
    if len(panel.curves) > 1:
        inside.append(element("use", href=f"#lines-{panel.number}"))
    if len(found.n) > 1:
        there = _points(found.n, found.high, axis, most)
        back = _points(found.n, found.low, axis, most)[::-1]
        inside.append(element("polygon", points=polyline([*there, *back]), class_="band"))
        inside.append(element("polyline", points=polyline(_line(found, axis, most)), class_="own"))
    last = percent(log_share(found.n[-1], 1, most))
    ends = [_CURVE * (1.0 - axis.share(v)) for v in (found.low[-1], found.high[-1])]
    dots = [
        element("line", x1=last, x2=last, y1=ends[0], y2=ends[1], class_="whisker"),
        element(
            "circle", cx=last, cy=_CURVE * (1.0 - axis.share(found.mu[-1])), r=3.5, class_="mean"
        ),
    ]
    model = words.name(panel.models[place])
    scale = axis.scale
    told = "; ".join(
        f"after {plural(found.n[i], 'trial')} {scale.whole(found.mu[i])} "
        f"({scale.short(found.low[i])} to {scale.short(found.high[i])})"
        for i in sorted({0, len(found.n) // 2, len(found.n) - 1})
    )
    return picture(
        [*grid, stretched(inside, _CURVE), *dots],
        name=f"convergence-{panel.number}-{place + 1}",
        title=f"Mean and interval of {model} by trials of every question",
        description=told,
        height=_CURVE + 20,
        kind="curve",
    )


def _curve_marks(most: int) -> list[float]:
    if most <= 1:
        return [1.0]
    marks = [mark for mark in log_ticks(1, most, 5) if mark == int(mark)]
    if log_share(marks[-1], 1, most) < 0.88:
        marks.append(float(most))
    return marks


def _curve_axis(panel: TaskPanel) -> Axis:
    found = [one for one in panel.curves if one is not None]
    bounds = (Scale(*panel.bounds).low, Scale(*panel.bounds).high)
    if not found:
        return Axis(*bounds, Scale(*panel.bounds))
    low = min(min(one.low) for one in found)
    high = max(max(one.high) for one in found)
    return Axis(*round_range(low, high, bounds), Scale(*panel.bounds))


def _most(panel: TaskPanel) -> int:
    return max((one.n[-1] for one in panel.curves if one is not None), default=1)


def _points(
    n: Sequence[int], values: Sequence[float], axis: Axis, most: int
) -> list[tuple[float, float]]:
    return [
        (ACROSS * log_share(at, 1, most), _CURVE * (1.0 - axis.share(value)))
        for at, value in zip(n, values, strict=True)
    ]


def _line(found: ScoreCurve, axis: Axis, most: int) -> list[tuple[float, float]]:
    return _points(found.n, found.mu, axis, most)


# -- cost ----------------------------------------------------------------------------------------


def cost_against_score(panel: TaskPanel, costs: Sequence[ModelCost]) -> Markup:
    """Return every model's score against the tokens of a trial."""
    axis = Axis.around([one.interval for one in costs], Scale(*panel.bounds))
    tokens = [one.tokens for one in costs]
    low, high = min(tokens) / 1.12, max(tokens) * 1.12
    parts: list[Markup] = []
    for mark in axis.ticks(5):
        y = _COST * (1.0 - axis.share(mark))
        parts.append(element("line", x1="0%", x2="100%", y1=y, y2=y, class_="grid"))
        parts.append(element("text", axis.scale.tick(mark), x=-8, y=y + 4, class_="tick end"))
    for mark in _cost_marks(low, high):
        x = percent(log_share(mark, low, high))
        parts.append(element("line", x1=x, x2=x, y1=0, y2=_COST, class_="grid"))
        parts.append(element("text", format_large(mark), x=x, y=_COST + 17, class_="tick middle"))
    best = sorted((one for one in costs if one.frontier), key=lambda one: one.tokens)
    steps: list[tuple[float, float]] = []
    for one in best:
        along = ACROSS * log_share(one.tokens, low, high)
        if steps:
            steps.append((along, steps[-1][1]))
        steps.append((along, _COST * (1.0 - axis.share(one.mu))))
    if len(steps) > 1:
        line = element("polyline", points=polyline(steps), class_="frontier")
        parts.append(stretched([line], _COST))
    for one in reversed(costs):
        x = percent(log_share(one.tokens, low, high))
        y = _COST * (1.0 - axis.share(one.mu))
        ends = [_COST * (1.0 - axis.share(v)) for v in (one.interval.low, one.interval.high)]
        parts.append(
            group(
                [
                    element("line", x1=x, x2=x, y1=ends[0], y2=ends[1], class_="whisker"),
                    element("circle", cx=x, cy=y, r=9.5, class_="spot"),
                    element("text", one.position, x=x, y=y + 3.5, class_="spot-number"),
                ],
                class_="on-frontier" if one.frontier else "off-frontier",
            )
        )
    told = "; ".join(
        f"{one.position}. {words.name(one.model)}: {format_large(one.tokens)} tokens a trial, "
        f"{axis.scale.whole(one.mu)}"
        for one in costs
    )
    return picture(
        parts,
        name=f"cost-{panel.number}",
        title="Score against tokens of a trial",
        description=told,
        height=_COST + 24,
        kind="cost",
    )


def _cost_marks(low: float, high: float) -> list[float]:
    """Return marks for tokens; an axis that holds no two round powers gets round numbers."""
    marks = log_ticks(low, high, 6)
    return marks if len(marks) > 1 else [mark for mark in ticks(low, high, 3) if mark > 0.0]


def _side(axis: Axis, mark: float) -> str:
    """Return which side of a number stands at its place, so that none leaves the picture."""
    share = axis.share(mark)
    return "start" if share < 0.02 else "end" if share > 0.98 else "middle"
