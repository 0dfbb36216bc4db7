"""The results of an evaluation: printed rows in their order, all rows in the block `posterior`.

The harness's table sorts the rows of a task by the keys of its results, and prints all. So the
results of a task of this package hold the printed rows alone, under keys that sort in their order;
``results["posterior"][TASK][FILTER]`` holds every row.

A group that averages a row of this package has the rows of a task. Those of `hbayes@N` are computed
from the trials of its tasks under a prior that the tasks share: in the mean over many tasks the
pulls of their own priors would add up, see :mod:`lm_eval_bayes.stats.hierarchical.mean_over_tasks`.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any, cast

import numpy as np

from lm_eval_bayes._util.text import format_score, one_line, questions_in_words
from lm_eval_bayes.analysis.task_mean import mean_posterior
from lm_eval_bayes.errors import InvalidInputError, TaskConfigError
from lm_eval_bayes.harness import get_logger
from lm_eval_bayes.harness.task.result_rows import (
    Result,
    RowNumber,
    Table,
    TrialTable,
    four_rows,
)
from lm_eval_bayes.stats import Estimate, IntervalSpec, Posterior, TaskMeans, TaskWeights

log = get_logger(__name__)

#: Rows of this package in the list of a group, at an N or with `{n}` in its place.
_OURS = re.compile(r"(h?(?:bayes|avg|pass|maj)@)(\d+|\{n\})(.*)")

#: Settings that the tasks of a group have in common.
_COMMON = ("n", "level", "interval")


class _OrderedKey(str):
    """A key of a task's results that sorts by its position; the harness sorts by name."""

    position: int

    def __new__(cls, key: str, position: int = 0) -> _OrderedKey:
        self = super().__new__(cls, key)
        self.position = position
        return self

    def __lt__(self, other: str) -> bool:
        if isinstance(other, _OrderedKey):
            return self.position < other.position
        return str(self) < other


def finish(
    results: dict[str, Any], tasks: Mapping[str, Any], groups: Iterable[Any]
) -> tuple[dict[str, dict[str, Any]], list[str]]:
    """Put the printed rows and the block `posterior` into what the harness's `evaluate` returns.

    Parameters
    ----------
    results : dict
        What `evaluate` returns; it is changed.
    tasks : mapping
        The evaluated tasks.
    groups : iterable of Group
        The evaluated groups.

    Returns
    -------
    recorded : dict
        By task what readers of its samples need: ``bounds`` of the scores of its metrics, and
        ``errors`` of metrics without numbers.
    sentences : list of str
        The score of every group and task in two lines, groups first.
    """
    tables = {name: _tables_of(rows) for name, rows in results["results"].items()}
    recorded = {name: _recorded(tasks[name], tables[name]) for name in tasks}
    for group in groups:
        weighting = _weighting(group)
        tables[group.name] = {} if weighting is None else _of_group(group, tables, weighting)
    for name, by_filter in tables.items():
        if by_filter:
            rows = _ordered(results["results"][name], by_filter)
            for column in ("results", "groups"):
                if name in results.get(column, {}):
                    results[column][name] = rows
            results.setdefault("posterior", {})[name] = {
                pipeline: {row: n for table in of_filter for row, n in table.rows.items()}
                for pipeline, of_filter in by_filter.items()
            }
    by_name = sorted(tables.items(), key=lambda item: item[0] in tasks)
    return recorded, [text for item in by_name for text in _sentences(*item)]


def _sentences(name: str, by_filter: Mapping[str, Sequence[Table]]) -> Iterator[str]:
    """Yield the score of a task or group under each filter, with the numbers of its rows."""
    for pipeline, of_filter in by_filter.items():
        for table in of_filter:
            settings, rows = table.settings, cast("dict[str, float]", table.rows)
            row = f"hbayes@{settings.n}"
            score, _, *ends = (rows.get(key) for key in four_rows(row))
            if not isinstance(table, (TrialTable, GroupTable)) or score is None or score != score:
                continue  # of rubrics, of a further metric, or without a number
            others = [rows[key] for key in four_rows(f"{row}_population")[2:]]
            label = one_line(name if len(by_filter) == 1 else f"{name}, filter {pipeline}")
            where = questions_in_words("benchmark", table.n_questions)
            low, high, other_low, other_high = map(format_score, (*ends, *others))
            yield (
                f"{label}: {format_score(score)} on {where}, {100 * settings.level:g}%: {low} to "
                f"{high}\n  ({other_low} to {other_high} on {questions_in_words('population', 0)})"
            )


def _tables_of(rows: Mapping[str, Any]) -> dict[str, list[Table]]:
    """Return the tables that the rows of a task stand in, by filter."""
    tables: dict[str, dict[int, Table]] = {}
    for key, number in rows.items():
        if isinstance(number, RowNumber):
            of_filter = tables.setdefault(key.partition(",")[2], {})
            of_filter[id(number.table)] = number.table
    return {pipeline: list(of_filter.values()) for pipeline, of_filter in tables.items()}


def _recorded(task: Any, by_filter: Mapping[str, Sequence[Table]]) -> dict[str, Any]:
    by_kind: dict[str, dict[str, Any]] = {"bounds": {}, "errors": {}}
    for table in [table for tables in by_filter.values() for table in tables]:
        if isinstance(table, TrialTable) and hasattr(task, "outcomes"):
            metric = table.metric or task.outcomes[0].name
            if table.problem is not None:
                by_kind["errors"][metric] = table.problem
            elif table.bounds is not None:
                by_kind["bounds"][metric] = list(table.bounds)
    return {name: of_metrics for name, of_metrics in by_kind.items() if of_metrics}


def _ordered(rows: Mapping[str, Any], by_filter: Mapping[str, Sequence[Table]]) -> dict[str, Any]:
    """Return a task's results with the printed rows, each filter's together, behind all others."""
    own = {key for key, number in rows.items() if isinstance(number, RowNumber)}
    # the harness adds "N/A" as the sd of every row, also to those that are an sd themselves
    own |= {f"{row}_stderr,{pipeline}" for row, _, pipeline in (key.partition(",") for key in own)}
    ordered = {key: number for key, number in rows.items() if key not in own}
    for pipeline, tables in by_filter.items():
        for table in tables:
            ordered |= {f"{row},{pipeline}": n for row, n in table.printed_rows().items()}
    return {_OrderedKey(key, index): n for index, (key, n) in enumerate(ordered.items())}


# -- groups --------------------------------------------------------------------------------------


def check_group(group: Any) -> None:
    """Prepare a group that averages rows of this package, before anything is sampled.

    The harness does not average these rows itself: in the group's list they have no number N.

    Raises
    ------
    InvalidInputError
        If its tasks have several N, levels or methods of intervals, or its rows several weights.
    """
    entries = [e for e in group.aggregate_metric_list or () if _OURS.fullmatch(e.metric)]
    settings = [s for t in group.get_all_tasks() if (s := getattr(t, "settings", None)) is not None]
    if not entries or not settings:
        return
    for name in _COMMON:
        several = list(dict.fromkeys(getattr(task_settings, name) for task_settings in settings))
        if len(several) > 1:
            rule = f"be the same for all tasks of the group {group.name}"
            raise InvalidInputError.of(f"bayes_{name}", "mismatch", rule, several)
    if len({entry.weight_by_size for entry in entries}) > 1:
        sentence = f"group {group.name}: `weight_by_size` must be the same for all rows of @N"
        raise TaskConfigError(sentence, "conflict", "weight_by_size")
    for entry in entries:
        entry.metric = _OURS.sub(r"\1{n}\3", entry.metric)


def _weighting(group: Any) -> TaskWeights | None:
    """Return the weights of the tasks; None for a group that averages no row of this package."""
    entries = [e for e in group.aggregate_metric_list or () if _OURS.fullmatch(e.metric)]
    return ("size" if entries[0].weight_by_size else "equal") if entries else None


def _of_group(
    group: Any, tables: Mapping[str, Mapping[str, Sequence[Table]]], weighting: TaskWeights
) -> dict[str, list[Table]]:
    """Return the tables of a group, by filter: those of the tasks that have rows."""
    tasks = [task.task_name for task in group.get_all_tasks()]
    by_filter: dict[str, list[Table]] = {}
    for pipeline in dict.fromkeys(name for task in tasks for name in tables.get(task, ())):
        of_tasks = {
            task: table
            for task in tasks
            for table in tables.get(task, {}).get(pipeline, ())
            if isinstance(table, TrialTable) and not table.metric and table.problem is None
        }
        left_out = ", ".join(task for task in tasks if task not in of_tasks)
        if left_out:
            log.warning("group %s: its rows are without %s", group.name, left_out)
        if of_tasks:
            by_filter[pipeline] = [GroupTable(group.name, of_tasks, weighting)]
    return by_filter


class GroupTable(Table):
    """The rows of a weighted mean over tasks: those that all of the tasks have."""

    def __init__(self, name: str, tables: Mapping[str, TrialTable], weighting: TaskWeights) -> None:
        self.name, self.tables, self.weighting = name, list(tables.values()), weighting
        self.settings = self.tables[0].settings
        self.n_questions = sum(table.n_questions for table in self.tables)
        self.means = TaskMeans(
            {task: table.outcomes for task, table in tables.items()},
            {task: table.learned for task, table in tables.items()},
            seed=self.settings.seed,
        )
        self.weights = self.means.weights(weighting)
        s = self.settings
        spec = IntervalSpec(s.level, "population", s.interval, s.seed)
        self.learned = self.means.posterior(weighting, spec)

    def quantities(self) -> Mapping[str, Callable[[], Result]]:
        """Return what has rows, in their order, and how it is computed."""
        n, results = self.settings.n, [table.results for table in self.tables]
        names = list(dict.fromkeys(name for of_task in results for name in of_task))
        names = [name for name in names if not name.endswith("_settings")]  # of one task alone
        common = [name for name in names if all(name in of_task for of_task in results)]
        quantities: dict[str, Callable[[], Result]] = {
            name: partial(self._mean, name) for name in common
        }
        quantities[f"hbayes@{n}"] = lambda: self.learned.benchmark or self.learned
        quantities[f"hbayes@{n}_population"] = lambda: self.learned
        if lacking := ", ".join(name for name in names if name not in common):
            log.info("group %s: no rows of %s, which not all of its tasks have", self.name, lacking)
        return quantities

    def _mean(self, name: str) -> Result:
        results: list[Any] = [table.results[name] for table in self.tables]
        are_posteriors = [isinstance(result, Posterior) for result in results]
        if any(are_posteriors):
            return (
                mean_posterior(results, self.weights.tolist()) if all(are_posteriors) else math.nan
            )
        values = [getattr(result, "value", result) for result in results]
        sigmas = [getattr(result, "sigma", None) for result in results]
        sigma = None
        if None not in sigmas:
            sigma = float(np.linalg.norm(self.weights * np.array(sigmas, dtype=np.float64)))
        return Estimate(name, float(self.weights @ values), np.empty(0), sigma=sigma)

    def notes(self) -> Iterator[str]:
        """Yield warnings about the numbers."""
        if self.learned.note is not None:
            yield f"mean of hbayes@{self.settings.n} over tasks: {self.learned.note}"
