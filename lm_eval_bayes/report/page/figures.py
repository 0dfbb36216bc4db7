"""The page's SVG figures: interval bars, strips of ranks, curves, and score against tokens."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from markupsafe import Markup

from lm_eval_bayes._util.text import (
    format_interval,
    format_large,
    format_score,
    plural,
    shorten_middle,
)
from lm_eval_bayes.analysis.convergence import PrefixPosterior
from lm_eval_bayes.analysis.plan import SeparationPlan
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
from lm_eval_bayes.report.page.text import name
from lm_eval_bayes.stats import Interval, Posterior, SettingsPosterior, Summary

#: Heights in CSS pixels.
_BAR, _STRIP, _AXIS, _CURVE, _COST, _PLAN, _PASS = 22, 14, 18, 80, 300, 140, 240
#: Share of the width of a Pass@k figure that the curves take; labels take the rest.
_CURVES = 0.5
#: Labelled models of a Pass@k figure, and the least distance of two labels.
_LABELS, _LABEL_HEIGHT = 8, 16
#: Characters of a label.
_LABEL = 18


@dataclass(frozen=True)
class Axis:
    """An axis of scores: its ends."""

    low: float
    high: float

    @classmethod
    def around(cls, shown: Sequence[float], bounds: tuple[float, float]) -> Axis:
        """Return the axis of all possible scores, or of those shown within a third of them."""
        low, high = min(shown), max(shown)
        if 3.0 * (high - low) > bounds[1] - bounds[0]:
            return cls(*bounds)
        return cls(*round_range(low, high, bounds))

    def share(self, value: float) -> float:
        """Return the position of a score, 0 to 1."""
        return min(1.0, max(0.0, (value - self.low) / (self.high - self.low)))

    def at(self, value: float) -> str:
        """Return the position of a score, in percent of the width."""
        return percent(self.share(value))

    def y(self, value: float, height: float) -> float:
        """Return the vertical position of a score in a figure of this height."""
        return height * (1.0 - self.share(value))

    def ticks(self, about: int = 5) -> list[float]:
        """Return about so many round scores."""
        return ticks(self.low, self.high, about)


def _tick(value: float) -> str:
    return f"{value:g}".replace("0.", ".") if 0.0 < abs(value) < 1.0 else f"{value:g}"


def _anchor(share: float) -> str:
    return "start" if share < 0.02 else "end" if share > 0.98 else "middle"


def axis_above(axis: Axis) -> Markup:
    """Return the tick labels above interval bars."""
    labels = [
        tick_label(_tick(tick), axis.at(tick), 12, _anchor(axis.share(tick)))
        for tick in axis.ticks()
    ]
    return element(
        "svg", *labels, class_="figure axis", width="100%", height=_AXIS, aria_hidden="true"
    )


def interval_bar(
    axis: Axis, mu: float, thick: Interval, thin: Interval | None, zero: bool = False
) -> Markup:
    """Return a bar: a thin line below a thick one, and a point at the mean.

    Parameters
    ----------
    axis : Axis
        Shared by the bars of a table.
    mu : float
        Posterior mean.
    thick, thin : Interval
        About these questions, and about others of the kind.
    zero : bool
        Whether 0 is marked.
    """
    middle = _BAR / 2
    label = f"{format_score(mu)}; these questions {format_interval(thick)}"
    label += "" if thin is None else f"; other questions {format_interval(thin)}"
    parts = [line(axis.at(tick), axis.at(tick), 0, _BAR, "grid") for tick in axis.ticks()]
    if zero:
        parts.append(line(axis.at(0.0), axis.at(0.0), 0, _BAR, "zero"))
    for interval, height, kind in ((thin, 3, "thin"), (thick, 9, "thick")):
        if interval is not None:
            width = percent(max(0.0, axis.share(interval.high) - axis.share(interval.low)))
            low, top = axis.at(interval.low), middle - height / 2
            parts.append(
                element("rect", x=low, y=top, width=width, height=height, rx=2, class_=kind)
            )
    parts.append(element("circle", cx=axis.at(mu), cy=middle, r=4.5, class_="dot"))
    return _labelled_bar(parts, label, _BAR)


def settings_strip(axis: Axis, posterior: SettingsPosterior | None) -> Markup:
    """Return a bracket, the interval about settings like these, with a dot for each setting.

    Nothing for a model whose score over settings is not known.
    """
    if posterior is None:
        return Markup("")
    like, middle = posterior.like["benchmark"], _STRIP / 2
    low, high = axis.at(like.low), axis.at(like.high)
    parts = [line(axis.at(tick), axis.at(tick), 0, _STRIP, "grid") for tick in axis.ticks()]
    parts += [line(end, end, 2, _STRIP - 2, "bracket") for end in (low, high)]
    parts.append(line(low, high, middle, middle, "bracket"))
    scores = posterior.scores.tolist()
    parts += [
        element("circle", cx=axis.at(score), cy=middle, r=3.5, class_="setting") for score in scores
    ]
    lowest, highest = (format_score(end) for end in (min(scores), max(scores)))
    label = f"settings like these {format_interval(like)}; "
    label += f"{plural(len(scores), 'setting')} score {lowest} to {highest}"
    return _labelled_bar(parts, label, _STRIP)


def _labelled_bar(parts: Sequence[Markup], label: str, height: int) -> Markup:
    """Return a figure of the width of its cell; the label is its alternative text."""
    kind = "figure bar"
    return element(
        "svg", *parts, role="img", aria_label=label, class_=kind, width="100%", height=height
    )


def ends_of(intervals: Sequence[Interval | Summary]) -> list[float]:
    """Return the ends of all intervals."""
    return [end for interval in intervals for end in (interval.low, interval.high)]


def rank_strip(low: int, high: int, n_models: int) -> Markup:
    """Return a set of ranks as a part of a strip, on which every rank has the same room."""
    rect = element(
        "rect",
        x=percent((low - 1) / n_models),
        y=0,
        width=percent((high - low + 1) / n_models),
        height=7,
        rx=2,
        class_="thick",
    )
    return element("svg", rect, class_="figure strip", width="100%", height=7, aria_hidden="true")


def _score_grid(axis: Axis, about: int, height: int, x: int) -> list[Markup]:
    """Return the horizontal grid lines of about so many scores, with labels at x."""
    parts = []
    for tick in axis.ticks(about):
        y = axis.y(tick, height)
        parts.append(line("0%", "100%", y, y, "grid"))
        parts.append(tick_label(_tick(tick), x, y + 4, "end"))
    return parts


# -- further trials ------------------------------------------------------------------------------


def plan_curve(plan: SeparationPlan, number: int) -> Markup:
    """Return the distinguishable pairs after more and more trials, by forecast."""
    counts = plan.counts()
    first, last = counts[0][0], counts[-1][0]
    axis = Axis(*round_range(counts[0][1], plan.n_pairs, (0.0, float(plan.n_pairs))))
    parts = _score_grid(axis, 4, _PLAN, -7)
    points = []
    for trials, n in counts:
        share = log_share(trials, first, last)
        points.append((VIEW_WIDTH * share, axis.y(n, _PLAN)))
        label = tick_label(f"{trials:,.0f}", percent(share), _PLAN + 15, _anchor(share))
        parts += [
            label,
            element("circle", cx=percent(share), cy=axis.y(n, _PLAN), r=3.5, class_="mean"),
        ]
    parts.insert(0, stretched([element("polyline", points=polyline(points), class_="own")], _PLAN))
    return labelled_figure(
        parts,
        id=f"plan-{number}",
        title="Distinguishable pairs by trials per question",
        description="; ".join(f"after {trials:,.0f} trials {n:,}" for trials, n in counts),
        height=_PLAN + 20,
        kind="plan",
    )


# -- k trials ------------------------------------------------------------------------------------


def pass_curves(panel: TaskPanel, names: Sequence[str], family: str) -> Markup:
    """Return the posterior means of all models by k; `family` is "hpass@" or "hpass^".

    Some models are labelled, at least as far apart as a label is high, and get the intervals of
    their largest k.
    """
    curves = [_family_curve(summary.family, family) for summary in panel.summaries]
    ks = sorted({k for curve in curves for k in curve})
    if len(ks) < 2:
        return Markup("")
    axis, height, most = Axis(0.0, 1.0), _PASS, ks[-1]
    parts = _score_grid(axis, 4, height, -7)
    for k in doubling_ticks(most):
        x = _CURVES * log_share(k, 1, most)
        parts.append(tick_label(f"{k:,}", percent(x), height + 15, "middle" if x else "start"))
    ends = [(curve[max(curve)].mu, i) for i, curve in enumerate(curves) if curve]
    labelled = _spaced([(axis.y(mu, height), i) for mu, i in ends])
    lines = []
    for i, curve in enumerate(curves):
        points = [
            (VIEW_WIDTH * log_share(k, 1, most), axis.y(curve[k].mu, height)) for k in sorted(curve)
        ]
        kind = "own" if i == 0 else "labelled" if i in labelled else "other"
        lines.append(element("polyline", points=polyline(points), class_=kind))
    inner = element(
        "svg",
        *reversed(lines),
        width=percent(_CURVES),
        height=height,
        viewBox=f"0 0 {VIEW_WIDTH} {height}",
        preserveAspectRatio="none",
        class_="stretched",
    )
    parts.append(inner)
    for order, i in enumerate(labelled):
        end = curves[i][max(curves[i])]
        interval, y = end.interval(), axis.y(end.mu, height)
        at = percent(_CURVES + 0.012 * (1 + order % 5))
        parts += [
            line(at, at, axis.y(interval.low, height), axis.y(interval.high, height), "whisker"),
            element("circle", cx=at, cy=y, r=3, class_="mean"),
            element(
                "text",
                f"{format_score(end.mu)} {shorten_middle(name(names[i]), _LABEL)}",
                x=percent(_CURVES + 0.08),
                y=y + 4,
                class_="label lead" if i == 0 else "label",
            ),
        ]
    sign = "at least one" if family.endswith("@") else "all"
    described = "; ".join(
        f"k = {k}: {format_score(posterior.mu)}" for k, posterior in sorted(curves[0].items())
    )
    return labelled_figure(
        parts,
        id=f"pass-{panel.number}-{'any' if family.endswith('@') else 'all'}",
        title=f"Probability that {sign} of k trials is right, by k",
        description=f"{name(names[0])}: {described}",
        height=height + 20,
        kind="pass",
    )


def _family_curve(family: Mapping[str, Posterior], start: str) -> dict[int, Posterior]:
    rows = ((row.removeprefix(start), p) for row, p in family.items() if row.startswith(start))
    curve = {int(k): posterior for k, posterior in rows if k.isdecimal()}
    if start == "hpass^" and "hpass@1" in family:
        curve[1] = family["hpass@1"]
    return curve


def _spaced(heights: Sequence[tuple[float, int]]) -> list[int]:
    """Return the first model and others whose labels do not overlap, from the top."""
    chosen: list[tuple[float, int]] = []
    for y, i in sorted(heights, key=lambda entry: entry[1] != 0):
        if len(chosen) < _LABELS and all(abs(y - other) >= _LABEL_HEIGHT for other, _ in chosen):
            chosen.append((y, i))
    return [i for _, i in sorted(chosen)]


# -- convergence ---------------------------------------------------------------------------------


def convergence_curve(panel: TaskPanel, i: int) -> Markup:
    """Return the i-th model's posterior mean and interval as functions of n."""
    curve = panel.curves[i]
    intervals = [point.interval for of_model in panel.curves for point in of_model]
    axis, height = Axis.around(ends_of(intervals), panel.bounds), _CURVE
    n_max = max(of_model[-1].n for of_model in panel.curves if of_model)
    parts = _score_grid(axis, 3, height, -7)
    for n in doubling_ticks(n_max):
        share = log_share(n, 1, n_max)
        parts.append(tick_label(format_large(n), percent(share), height + 15, _anchor(share)))

    def points(values: Sequence[float]) -> list[tuple[float, float]]:
        return [
            (VIEW_WIDTH * log_share(point.n, 1, n_max), axis.y(value, height))
            for point, value in zip(curve, values, strict=True)
        ]

    upper = points([point.interval.high for point in curve])
    lower = points([point.interval.low for point in curve])
    lines = [
        element("polygon", points=polyline([*upper, *lower[::-1]]), class_="band"),
        element("polyline", points=polyline(points([p.mu for p in curve])), class_="own"),
    ]
    return labelled_figure(
        [*parts, stretched(lines, height)],
        id=f"convergence-{panel.number}-{i + 1}",
        title=f"Score and interval of {name(panel.board.models[i])} by trials per question",
        description="; ".join(map(_point_text, dict.fromkeys((curve[0], curve[-1])))),
        height=height + 20,
        kind="curve",
    )


def _point_text(point: PrefixPosterior) -> str:
    trials = plural(point.n, "trial")
    return f"after {trials} {format_score(point.mu)} ({format_interval(point.interval)})"


# -- score against tokens ------------------------------------------------------------------------


def score_against_tokens(panel: TaskPanel) -> Markup:
    """Return every model's score against its tokens per trial."""
    costs, height = panel.costs, _COST
    axis = Axis.around(ends_of([cost.row.interval for cost in costs]), panel.bounds)
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
        x, interval = percent(log_share(cost.tokens, low, high)), cost.row.interval
        y, y_low, y_high = (axis.y(v, height) for v in (cost.row.mu, interval.low, interval.high))
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
        description="; ".join(map(_cost_text, costs)),
        height=height + 24,
        kind="cost",
    )


def _cost_text(cost: ModelCost) -> str:
    tokens = f"{format_large(cost.tokens)} tokens per trial"
    return f"{cost.position}. {name(cost.row.model)}: {tokens}, {format_score(cost.row.mu)}"


def _token_ticks(low: float, high: float) -> list[float]:
    """Return ticks for tokens: round numbers if there are not two of the logarithmic axis."""
    logarithmic = log_ticks(low, high, 6)
    if len(logarithmic) > 1:
        return logarithmic
    return [tick for tick in ticks(low, high, 3) if tick > 0.0]
