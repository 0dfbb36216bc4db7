"""Models across tasks: one line a model, one column a task or a mean of tasks."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from lm_eval_bayes.analysis.report_data import ALL_TASKS, ReportData
from lm_eval_bayes.report.page import text as words
from lm_eval_bayes.report.page.text import Scale
from lm_eval_bayes.stats.intervals import Interval


@dataclass(frozen=True)
class Score:
    """A score with its interval."""

    mu: float
    sigma: float
    interval: Interval
    scale: Scale


@dataclass(frozen=True)
class Column:
    """A column: its head, what it is, and the panel it comes from, 0 where there is none."""

    head: str
    told: str
    panel: int


@dataclass(frozen=True)
class Overview:
    """The columns, and the models' names with their scores, None where there is none."""

    columns: tuple[Column, ...]
    rows: tuple[tuple[str, tuple[Score | None, ...]], ...]


def overview_of(contents: ReportData) -> Overview | None:
    """Return the table of models and tasks; None where there is one task.

    Best first by the first column: the mean of the first group where each question counts the
    same, or the mean over tasks where there is no group.
    """
    if len(contents.tasks) < 2:
        return None
    columns: list[Column] = []
    found: list[Callable[[str], Score | None]] = []
    for group in dict.fromkeys(one.group for one in contents.groups):
        own = {one.model: one for one in contents.groups if one.group == group}
        n_tasks = len(next(iter(own.values())).tasks)
        name = words.name(group)
        for weighting, each in (("size", "question"), ("equal", "task")):
            if group == ALL_TASKS and weighting == "size":
                continue
            told = f"mean of {n_tasks} tasks, every {each} counting the same"
            columns.append(Column(f"{name}, by {each}" if group != ALL_TASKS else name, told, 0))
            means = {model: one.means[weighting] for model, one in own.items()}
            scores = {
                model: Score(
                    mu=one.posteriors[contents.spec.scope].mu,
                    sigma=one.posteriors[contents.spec.scope].sigma,
                    interval=one.intervals[contents.spec.scope],
                    scale=Scale(*one.posteriors[contents.spec.scope].bounds),
                )
                for model, one in means.items()
            }
            found.append(scores.get)
    for panel in contents.panels:
        columns.append(Column(words.name(panel.task), "", panel.number))
        lines = {
            line.model: Score(
                line.posterior.mu, line.posterior.sigma, line.interval, Scale(*panel.bounds)
            )
            for line in panel.board.rows
        }
        found.append(lines.get)
    table = [(model, tuple(look(model) for look in found)) for model in contents.models]
    table.sort(key=lambda row: _order(row[1]))
    return Overview(tuple(columns), tuple((words.name(m), scores) for m, scores in table))


def _order(scores: tuple[Score | None, ...]) -> tuple[bool, float]:
    """Return what puts the best line first, and lines without the first column last."""
    if scores[0] is not None:
        return False, -scores[0].mu
    known = [one.scale.share(one.mu) for one in scores if one is not None]
    return True, -float(np.mean(known)) if known else 0.0
