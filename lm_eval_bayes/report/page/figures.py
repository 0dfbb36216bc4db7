"""The page's SVG figures: interval bars, score curves, and score against tokens."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from markupsafe import Markup

from lm_eval_bayes._util.text import format_large, plural
from lm_eval_bayes.analysis.convergence import PrefixPosterior
from lm_eval_bayes.analysis.report_data import ModelCost, TaskPanel
from lm_eval_bayes.report.page.svg import (
    VIEW_WIDTH,
    doubling_ticks,
    element,
    labelled_figure,
    line,
    log_share,
    log_ticks,
    percent,
    polyline,
    round_range,
    stretched,
    tick_label,
    ticks,
)
from lm_eval_bayes.report.page.text import Scale, name
from lm_eval_bayes.stats import Interval

#: Heights in CSS pixels.
_BAR_HEIGHT, _AXIS_HEIGHT, _CURVE_HEIGHT, _COST_HEIGHT = 26, 18, 112, 300


@dataclass(frozen=True)
class Axis:
    """An axis of scores.

    Attributes
    ----------
    low, high : float
        Its ends.
    scale : Scale
        Format of the scores.
    """

    low: float
    high: float
    scale: Scale

    @classmethod
    def around(cls, low: float, high: float, scale: Scale) -> Axis:
        """Return an axis with round ends that contains the scores from low to high."""
        return cls(*round_range(low, high, (scale.low, scale.high)), scale)

    def share(self, value: float) -> float:
        """Return the position of a score, 0 to 1."""
        return Scale(self.low, self.high).share(value)

    def at(self, value: float) -> str:
        """Return the position of a score, in percent of the width."""
        return percent(self.share(value))

    def y(self, value: float, height: float) -> float:
        """Return the vertical position of a score in a figure of this height."""
        return height * (1.0 - self.share(value))

    def ticks(self, about: int = 4) -> list[float]:
        """Return about so many round scores."""
        return ticks(self.low, self.high, about)


def axis_above(axis: Axis) -> Markup:
    """Return the tick labels above interval bars."""
    # where space is scarce, the style sheet hides every second label
    labels = [
        tick_label(
            axis.scale.tick(tick),
            axis.at(tick),
            12,
            _text_anchor(axis, tick) + (" second" if i % 2 else ""),
        )
        for i, tick in enumerate(axis.ticks())
    ]
    return element(
        "svg",
        *labels,
        class_="figure axis",
        width="100%",
        height=_AXIS_HEIGHT,
        aria_hidden="true",
        focusable="false",
    )


def interval_bar(axis: Axis, mu: float, benchmark: Interval, population: Interval) -> Markup:
    """Return a model's bar: the mean, and the intervals of both scopes.

    Parameters
    ----------
    axis : Axis
        Shared by the bars of a table.
    mu : float
        Posterior mean.
    benchmark, population : Interval
        Drawn as a thick bar and as a thin line.
    """
    middle = _BAR_HEIGHT / 2
    label = (
        f"mean {axis.scale.with_unit(mu)}; benchmark {interval_text(benchmark, axis.scale)}; "
        f"population {interval_text(population, axis.scale)}"
    )
    grid = [line(axis.at(tick), axis.at(tick), 0, _BAR_HEIGHT, "grid") for tick in axis.ticks()]
    low, high, mean = axis.at(population.low), axis.at(population.high), axis.at(mu)
    width = percent(max(0.0, axis.share(benchmark.high) - axis.share(benchmark.low)))
    return element(
        "svg",
        *grid,
        line(low, high, middle, middle, "thin"),
        *(line(end, end, middle - 4, middle + 4, "thin") for end in (low, high)),
        element(
            "rect",
            x=axis.at(benchmark.low),
            y=middle - 5,
            width=width,
            height=10,
            rx=2,
            class_="thick",
        ),
        line(mean, mean, middle - 8, middle + 8, "at"),
        role="img",
        aria_label=label,
        class_="figure bar",
        width="100%",
        height=_BAR_HEIGHT,
    )


def _score_grid(axis: Axis, about: int, height: int, x: int) -> list[Markup]:
    """Return the horizontal grid lines of about so many scores, with labels at x."""
    parts = []
    for tick in axis.ticks(about):
        y = axis.y(tick, height)
        parts.append(line("0%", "100%", y, y, "grid"))
        parts.append(tick_label(axis.scale.tick(tick), x, y + 4, "end"))
    return parts


def interval_text(interval: Interval, scale: Scale) -> str:
    """Return an interval as text."""
    return f"{scale.short(interval.low)} to {scale.with_unit(interval.high)}"


# -- score curves --------------------------------------------------------------------------------


def background_curves(panel: TaskPanel) -> Markup:
    """Return the curves of all models, which are the background of every model's figure."""
    if not any(panel.curves):
        return Markup("")
    axis, n_max = _curve_axis(panel), _max_n(panel)
    means = [_curve_points(c, [p.mu for p in c], axis, n_max) for c in panel.curves if len(c) > 1]
    lines = [element("polyline", points=polyline(mean), class_="other") for mean in means]
    definition = element("defs", element("g", *lines, id=f"lines-{panel.number}"))
    return element("svg", definition, class_="defs", width=0, height=0, aria_hidden="true")


def score_curve(panel: TaskPanel, i: int) -> Markup:
    """Return the figure of the i-th model's posterior mean and interval as functions of n."""
    curve = panel.curves[i]
    if not curve:
        return Markup("")
    axis, n_max, height = _curve_axis(panel), _max_n(panel), _CURVE_HEIGHT
    parts = _score_grid(axis, 4, height, -7)
    for n in doubling_ticks(n_max):
        x = log_share(n, 1, n_max)
        anchor = "middle"
        if n_max > 1 and not 0.03 <= x <= 0.97:
            anchor = "end" if x > 0.97 else "start"
        parts.append(tick_label(format_large(n), percent(x), height + 15, anchor))
        parts.append(line(percent(x), percent(x), height, height + 3, "grid"))
    lines: list[Markup] = []
    if len(panel.curves) > 1:
        lines.append(element("use", href=f"#lines-{panel.number}"))
    if len(curve) > 1:
        upper = _curve_points(curve, [point.interval.high for point in curve], axis, n_max)
        lower = _curve_points(curve, [point.interval.low for point in curve], axis, n_max)
        mean = _curve_points(curve, [point.mu for point in curve], axis, n_max)
        lines.append(element("polygon", points=polyline([*upper, *lower[::-1]]), class_="band"))
        lines.append(element("polyline", points=polyline(mean), class_="own"))
    end, interval = curve[-1], curve[-1].interval
    last = percent(log_share(end.n, 1, n_max))
    low, mu, high = (axis.y(value, height) for value in (interval.low, end.mu, interval.high))
    final = [
        line(last, last, low, high, "whisker"),
        element("circle", cx=last, cy=mu, r=3.5, class_="mean"),
    ]
    scale = axis.scale
    description = "; ".join(
        f"after {plural(point.n, 'trial')} {scale.with_unit(point.mu)} "
        f"({scale.short(point.interval.low)} to {scale.short(point.interval.high)})"
        for point in dict.fromkeys((curve[0], curve[len(curve) // 2], end))
    )
    model = name(panel.board.models[i])
    return labelled_figure(
        [*parts, stretched(lines, height), *final],
        id=f"convergence-{panel.number}-{i + 1}",
        title=f"Posterior mean and interval of {model} by trials per question",
        description=description,
        height=height + 20,
        kind="curve",
    )


def _curve_axis(panel: TaskPanel) -> Axis:
    intervals = [point.interval for curve in panel.curves for point in curve]
    low, high = min(i.low for i in intervals), max(i.high for i in intervals)
    return Axis.around(low, high, Scale(*panel.bounds))


def _max_n(panel: TaskPanel) -> int:
    return max(curve[-1].n for curve in panel.curves if curve)


def _curve_points(
    curve: Sequence[PrefixPosterior], values: Sequence[float], axis: Axis, n_max: int
) -> list[tuple[float, float]]:
    return [
        (VIEW_WIDTH * log_share(point.n, 1, n_max), axis.y(value, _CURVE_HEIGHT))
        for point, value in zip(curve, values, strict=True)
    ]


# -- score against tokens ------------------------------------------------------------------------


def score_against_tokens(panel: TaskPanel) -> Markup:
    """Return every model's score against its tokens per trial."""
    costs, height = panel.costs, _COST_HEIGHT
    intervals = [cost.row.interval for cost in costs]
    low, high = min(i.low for i in intervals), max(i.high for i in intervals)
    axis = Axis.around(low, high, Scale(*panel.bounds))
    tokens = [cost.tokens for cost in costs]
    low, high = min(tokens) / 1.12, max(tokens) * 1.12
    parts = _score_grid(axis, 5, height, -8)
    for tick in _token_ticks(low, high):
        x = percent(log_share(tick, low, high))
        parts.append(line(x, x, 0, height, "grid"))
        parts.append(tick_label(format_large(tick), x, height + 17, "middle"))
    frontier = sorted((cost for cost in costs if cost.frontier), key=lambda cost: cost.tokens)
    steps: list[tuple[float, float]] = []
    for cost in frontier:
        step_x = VIEW_WIDTH * log_share(cost.tokens, low, high)
        if steps:
            steps.append((step_x, steps[-1][1]))
        steps.append((step_x, axis.y(cost.row.mu, height)))
    if len(steps) > 1:
        steps_line = element("polyline", points=polyline(steps), class_="frontier")
        parts.append(stretched([steps_line], height))
    for cost in reversed(costs):
        mu, interval = cost.row.mu, cost.row.interval
        x = percent(log_share(cost.tokens, low, high))
        y, y_low, y_high = (axis.y(v, height) for v in (mu, interval.low, interval.high))
        parts.append(
            element(
                "g",
                line(x, x, y_low, y_high, "whisker"),
                element("circle", cx=x, cy=y, r=9.5, class_="spot"),
                element("text", cost.position, x=x, y=y + 3.5, class_="spot-number"),
                class_="on-frontier" if cost.frontier else "off-frontier",
            )
        )
    return labelled_figure(
        parts,
        id=f"cost-{panel.number}",
        title="Score against tokens per trial",
        description="; ".join(_cost_text(cost, axis.scale) for cost in costs),
        height=height + 24,
        kind="cost",
    )


def _cost_text(cost: ModelCost, scale: Scale) -> str:
    tokens = f"{format_large(cost.tokens)} tokens per trial"
    return f"{cost.position}. {name(cost.row.model)}: {tokens}, {scale.with_unit(cost.row.mu)}"


def _token_ticks(low: float, high: float) -> list[float]:
    """Return ticks for tokens: round numbers if there are not two of the logarithmic axis."""
    logarithmic = log_ticks(low, high, 6)
    if len(logarithmic) > 1:
        return logarithmic
    return [tick for tick in ticks(low, high, 3) if tick > 0.0]


def _text_anchor(axis: Axis, tick: float) -> str:
    """Return the anchor of a tick's label that keeps it inside the figure."""
    share = axis.share(tick)
    return "start" if share < 0.02 else "end" if share > 0.98 else "middle"
