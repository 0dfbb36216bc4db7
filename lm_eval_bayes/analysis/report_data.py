"""What a report shows, worked out once: every posterior, ranking and curve of a set of runs."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import cached_property, partial
from typing import Any

from lm_eval_bayes.analysis.leaderboard import Leaderboard, places_of
from lm_eval_bayes.analysis.comparability import counted_differently
from lm_eval_bayes.analysis.rubric_table import RubricTable
from lm_eval_bayes.analysis.summary import GroupSummary, TaskSummary, summarise, summarise_groups
from lm_eval_bayes.analysis.prefix_posteriors import Curve, curve, points_each
from lm_eval_bayes.report.page.text import Scale
from lm_eval_bayes.runs.task_run import SavedRuns, TaskRun
from lm_eval_bayes.stats.intervals import IntervalMethod, Scope
from lm_eval_bayes.stats.ranking.rank import rank

#: Runs that are worked on at a time: the work is numpy's, which lets other threads run.
_AT_ONCE = min(4, os.cpu_count() or 1)
#: What the mean of all tasks is called where no run says of a group.
ALL_TASKS = "all tasks"


@dataclass(frozen=True, eq=False)
class Panel:
    """Models that answered the same questions of a task, best first.

    Attributes
    ----------
    number : int
        From 1: the name by which other parts of a page refer to it.
    board : Leaderboard
        Their ranking.
    summaries : tuple of TaskSummary
        Their numbers, in the order of the ranking.
    curves : tuple of Curve or None
        How their scores became known, likewise.
    others : int
        Models that answered other questions of this task, or of which something else was
        counted, and that have a panel of their own.
    rubrics : RubricTable or None
        Scores under rubrics, where the runs recorded what these need.
    """

    number: int
    board: Leaderboard
    summaries: tuple[TaskSummary, ...]
    curves: tuple[Curve | None, ...]
    others: int = 0
    rubrics: RubricTable | None = None

    @property
    def task(self) -> str:
        """The name of the task."""
        return self.board.task

    @property
    def runs(self) -> tuple[TaskRun, ...]:
        """The runs, best first."""
        return tuple(one.run for one in self.summaries)

    @property
    def models(self) -> tuple[str, ...]:
        """The names, best first."""
        return self.board.models

    @property
    def n_questions(self) -> int:
        """M."""
        return self.board.n_questions

    @property
    def n_range(self) -> tuple[int, int]:
        """The fewest and the most trials of a question."""
        ranges = [one.n_range for one in self.summaries]
        return min(low for low, _ in ranges), max(high for _, high in ranges)

    @cached_property
    def scale(self) -> Scale:
        """How scores are written."""
        weights = self.summaries[0].run.outcomes.weights
        return Scale(float(weights.min()), float(weights.max()))


@dataclass(frozen=True, eq=False)
class Contents:
    """All that a report shows.

    Attributes
    ----------
    panels : tuple of Panel
        One a task, or more where models answered different questions of it.
    groups : tuple of GroupSummary
        Means over tasks.
    warnings : tuple of str
        Of the reading.
    rubric_notes : tuple of str
        Why a task has no scores under rubrics though its runs could have some.
    scope, level, method, seed
        Of the ranking and its intervals.
    """

    panels: tuple[Panel, ...]
    groups: tuple[GroupSummary, ...]
    warnings: tuple[str, ...]
    scope: Scope
    level: float
    method: IntervalMethod
    seed: int
    rubric_notes: tuple[str, ...] = ()

    @cached_property
    def models(self) -> tuple[str, ...]:
        """The names of all models, in the order in which they first appear."""
        return tuple(dict.fromkeys(model for panel in self.panels for model in panel.models))

    @cached_property
    def tasks(self) -> tuple[str, ...]:
        """The names of all tasks, in order."""
        return tuple(dict.fromkeys(panel.task for panel in self.panels))

    @property
    def summaries(self) -> tuple[TaskSummary, ...]:
        """Of all runs."""
        return tuple(one for panel in self.panels for one in panel.summaries)

    @property
    def n_questions(self) -> int:
        """Different questions of all tasks."""
        names = {(p.task, name) for p in self.panels for name in p.runs[0].question_ids}
        return len(names)

    @property
    def n_trials(self) -> int:
        """Trials of all runs."""
        return sum(one.run.n_trials for one in self.summaries)

    def to_dict(self) -> dict[str, Any]:
        """Return plain JSON types: the leaderboards, the summaries and the means."""
        return {
            "scope": self.scope,
            "level": self.level,
            "interval": self.method,
            "seed": self.seed,
            "leaderboards": [panel.board.to_dict() for panel in self.panels],
            "summaries": [one.to_dict() for one in self.summaries],
            "groups": [one.to_dict() for one in self.groups],
            "rubrics": [p.rubrics.to_dict() for p in self.panels if p.rubrics is not None],
            "warnings": list(self.warnings),
        }


def contents_of(
    saved: SavedRuns,
    *,
    scope: Scope = "benchmark",
    level: float = 0.95,
    method: IntervalMethod = "exact",
    seed: int = 0,
    rubrics: Mapping[str, RubricTable] | None = None,
    rubric_notes: Sequence[str] = (),
    done: Callable[[int], None] | None = None,
) -> Contents:
    """Work out what a report of these runs shows.

    Parameters
    ----------
    saved : SavedRuns
        The runs, at least one.
    scope, level, method, seed
        Of the ranking and its intervals.
    rubrics : mapping of str to RubricTable, optional
        Scores under rubrics, by task.
    rubric_notes : sequence of str
        Why a task has none.
    done : callable, optional
        Told of every run that is worked out, by the number of those so far.

    Raises
    ------
    InvalidInputError
        If an argument breaks its rule.
    """
    n_points = points_each(len(saved.runs))
    work = partial(
        _worked_out, scope=scope, level=level, method=method, seed=seed, n_points=n_points
    )
    found: list[tuple[TaskSummary, Curve | None]] = []
    with ThreadPoolExecutor(_AT_ONCE) as pool:
        for one in pool.map(work, saved.runs):
            found.append(one)
            if done is not None:
                done(len(found))
    panels: list[Panel] = []
    for task in saved.tasks:
        alike = _alike([one for one in found if one[0].run.task == task])
        largest = max(range(len(alike)), key=lambda i: len(alike[i]))
        for place, together in enumerate(alike):
            table = (rubrics or {}).get(task) if place == largest else None
            panel = _panel(len(panels) + 1, together, scope, level, method, seed, table)
            others = sum(map(len, alike)) - len(together)
            panels.append(panel if not others else _with_others(panel, others))
    summaries = [summary for summary, _ in found]
    groups: Mapping[str, Sequence[str]] = saved.groups
    if not groups and len(saved.tasks) > 1:
        groups = {ALL_TASKS: saved.tasks}
    return Contents(
        panels=tuple(panels),
        groups=summarise_groups(summaries, groups),
        warnings=tuple(saved.warnings),
        scope=scope,
        level=level,
        method=method,
        seed=seed,
        rubric_notes=tuple(rubric_notes),
    )


def _worked_out(
    run: TaskRun, *, scope: Scope, level: float, method: IntervalMethod, seed: int, n_points: int
) -> tuple[TaskSummary, Curve | None]:
    summary = summarise(run, level=level, method=method, seed=seed)
    return summary, curve(summary, scope, level, method, seed, n_points)


def _alike(
    found: Sequence[tuple[TaskSummary, Curve | None]],
) -> list[list[tuple[TaskSummary, Curve | None]]]:
    """Sort runs of a task into those that can be ranked together."""
    groups: dict[object, list[list[tuple[TaskSummary, Curve | None]]]] = {}
    for one in found:
        run = one[0].run
        same = (frozenset(run.question_ids), tuple(run.outcomes.weights.tolist()))
        among = groups.setdefault(same, [])
        alike = (group for group in among if counted_differently(group[0][0].run, run) is None)
        group = next(alike, None)
        if group is None:
            among.append([one])
        else:
            group.append(one)
    return [group for among in groups.values() for group in among]


def _panel(
    number: int,
    together: Sequence[tuple[TaskSummary, Curve | None]],
    scope: Scope,
    level: float,
    method: IntervalMethod,
    seed: int,
    rubrics: RubricTable | None,
) -> Panel:
    by_model = {summary.run.model: (summary, found) for summary, found in together}
    posteriors = {model: one.learned[scope] for model, (one, _) in by_model.items()}
    ranking = rank(posteriors, "leader", seed=seed)
    runs = {model: one.run for model, (one, _) in by_model.items()}
    first = together[0][0].run
    board = Leaderboard(
        task=first.task,
        tasks=(first.task,),
        n_questions=first.n_questions,
        level=level,
        ranking=ranking,
        places=places_of(ranking, posteriors, runs, level, method),
    )
    best_first = [by_model[model] for model in ranking.models]
    return Panel(
        number=number,
        board=board,
        summaries=tuple(one for one, _ in best_first),
        curves=tuple(found for _, found in best_first),
        rubrics=rubrics,
    )


def _with_others(panel: Panel, others: int) -> Panel:
    from dataclasses import replace

    return replace(panel, others=others)
