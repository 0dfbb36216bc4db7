"""The screen of `run`: a line for every task and round, while the run goes on."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from lm_eval_bayes._util.text import format_duration, format_range, format_score, one_line
from lm_eval_bayes.cli.screens.bars import Axis
from lm_eval_bayes.cli.screens.layout import Form

if TYPE_CHECKING:
    from lm_eval_bayes.harness.adaptive.rounds import Round
    from lm_eval_bayes.harness.adaptive.stopping import Goal, InterimAnalysis

#: Columns of a bar, and of a task's name.
_BAR, _NAME = 26, 18


class RoundLines:
    """The lines of a run's rounds.

    Parameters
    ----------
    goal : Goal
        What the run stops at.
    form : Form
        The form of the screen.
    """

    def __init__(self, goal: Goal, form: Form) -> None:
        self._goal, self._form = goal, form
        self._axis: Axis | None = None

    def of(self, event: Round) -> Iterator[str]:
        """Yield the lines of a round; before the first, the goal and the headings."""
        several = len(event.analyses) > 1
        if self._axis is None:
            intervals = [(analysis.low, analysis.high) for analysis in event.analyses]
            self._axis = Axis.of(intervals, _BAR, self._form.drawn)
            yield self._goal_line([analysis.task for analysis in event.analyses])
            head = f"{'N':>6}  score  {100 * self._goal.level:g}% interval  width  "
            head += f"{self._axis.heading():<{_BAR}}  more"
            yield f"{'task':<{_NAME}}  {head}" if several else head
        for analysis in event.analyses:
            line = self._line(analysis, self._axis)
            yield f"{one_line(analysis.task, _NAME):<{_NAME}}  {line}" if several else line

    def total(self, event: Round) -> str:
        """Return what the run has sampled so far."""
        tokens = "" if event.tokens is None else f", {self._form.number(event.tokens)} tokens"
        trials = f"{self._form.number(event.n_trials)} trials"
        return f"{trials}{tokens}, {format_duration(3600 * event.hours)}"

    def _goal_line(self, tasks: list[str]) -> str:
        goal, parts = self._goal, []
        if goal.width is not None:
            parts.append(f"an interval at most {goal.width:g} wide")
        if goal.baseline is not None:
            parts.append(f"distinguishable from {one_line(goal.baseline_name)}")
        if goal.budget is not None:
            parts.append(f"{goal.budget} at most")
        parts.append(f"at most {goal.rounds[-1]:,} trials per question")
        return f"Goal for {', '.join(map(one_line, tasks))}: {', '.join(parts)}"

    def _line(self, analysis: InterimAnalysis, axis: Axis) -> str:
        ends = analysis.low, analysis.high
        more = "done" if analysis.reached else ""
        if not analysis.reached and analysis.further is not None:
            more = self._form.number(analysis.further)
        elif self._goal.baseline is not None:
            more = f"{more} {one_line(analysis.reason)}".strip()
        n = format_range((analysis.fewest, analysis.most)).replace(" to ", "-")
        numbers = f"{n:>6}  {format_score(analysis.mu)}  {self._form.ends(ends):<12}"
        width = format_score(analysis.high - analysis.low)
        return f"{numbers}  {width}  {axis.bar(analysis.mu, ends):<{_BAR}}  {more}".rstrip()
