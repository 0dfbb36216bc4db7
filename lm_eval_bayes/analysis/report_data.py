"""All results that a report shows: posteriors, rankings, curves and costs of a set of runs."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from lm_eval_bayes._util.plain import to_plain
from lm_eval_bayes.analysis.board import Board, mean_board, task_board
from lm_eval_bayes.analysis.comparability import aligned_rows, metric_difference
from lm_eval_bayes.analysis.convergence import PrefixPosterior, prefix_posteriors
from lm_eval_bayes.analysis.leaderboard import Leaderboard, LeaderboardRow
from lm_eval_bayes.analysis.plan import SeparationPlan, plan_separation
from lm_eval_bayes.analysis.settings import settings_to_dict
from lm_eval_bayes.analysis.summary import TaskSummary, summarise
from lm_eval_bayes.runs.task_run import SavedRuns, TaskRun
from lm_eval_bayes.stats import (
    DEFAULT_INTERVAL,
    SCOPES,
    FloatArray,
    IntArray,
    IntervalSpec,
    Posterior,
    SettingsPosterior,
)

#: The most models of a panel whose pairs get a forecast of further trials, and all of which get
#: curves of convergence; of more the first few do.
_MANY_MODELS, _CURVES_OF_MANY = 25, 8


@dataclass(frozen=True, eq=False)
class QuestionScores:
    """Posterior means and sds of single questions, model by model.

    Attributes
    ----------
    rows : tuple of array of int, each of shape (M,)
        By model, the row of every question in the run's outcomes.
    mu, sigma : array, shape (M, L)
        Posterior means and standard deviations of hbayes@N.
    """

    rows: tuple[IntArray, ...]
    mu: FloatArray
    sigma: FloatArray

    @classmethod
    def of(cls, summaries: Sequence[TaskSummary]) -> QuestionScores:
        """Return the scores of models on the same questions, in the order of the first run."""
        rows = tuple(aligned_rows(summary.run, summaries[0].run) for summary in summaries)
        scores = [summary.learned["benchmark"].per_question for summary in summaries]
        mu = [score.mu[of_run] for score, of_run in zip(scores, rows, strict=True)]
        sigma = [score.sigma[of_run] for score, of_run in zip(scores, rows, strict=True)]
        return cls(rows, np.stack(mu, axis=1), np.stack(sigma, axis=1))

    def select(self, n_questions: int) -> tuple[IntArray, str]:
        """Return at most so many questions, hardest first, and in words which; "" for all.

        If there are more questions, those are selected on which models differ most; for a
        single model the hardest.
        """
        total, selection = len(self.mu), ""
        selected: IntArray = np.arange(total, dtype=np.int64)
        if total > n_questions:
            key = self.mu.mean(axis=1)
            selection = f"the {n_questions:,} hardest of {total:,}"
            if self.mu.shape[1] > 1:
                key = -self.mu.std(axis=1)
                selection = f"the {n_questions:,} of {total:,} on which models differ most"
            selected = np.argsort(key, kind="stable")[:n_questions]
        return selected[np.argsort(self.mu[selected].mean(axis=1), kind="stable")], selection


@dataclass(frozen=True)
class ModelCost:
    """A model's tokens per trial beside its score.

    Attributes
    ----------
    position : int
        Its row of the leaderboard, from 1.
    row : LeaderboardRow
        That row.
    tokens : float
        Mean number of completion tokens of a trial.
    frontier : bool
        Whether no other model has an equal or higher score with fewer tokens.
    """

    position: int
    row: LeaderboardRow
    tokens: float
    frontier: bool


def model_costs(board: Leaderboard, runs: Sequence[TaskRun]) -> tuple[ModelCost, ...]:
    """Return the costs of the models whose tokens were recorded, best score first.

    Costs are means over trials, since models may have different numbers of trials.

    Parameters
    ----------
    board : Leaderboard
        The ranking.
    runs : sequence of TaskRun
        The runs in the order of the ranking.
    """
    recorded = [
        (position, row, row.tokens / run.n_trials)
        for position, (row, run) in enumerate(zip(board.rows, runs, strict=True), 1)
        if row.tokens and run.n_trials
    ]
    points = {(row.mu, -tokens) for _, row, tokens in recorded}
    costs = []
    for position, row, tokens in recorded:
        own = (row.mu, -tokens)
        beaten = any(p != own and p[0] >= own[0] and p[1] >= own[1] for p in points)
        costs.append(ModelCost(position, row, tokens, frontier=not beaten))
    return tuple(costs)


@dataclass(frozen=True, eq=False)
class TaskPanel:
    """Models that answered the same questions of a task, best first.

    Attributes
    ----------
    number : int
        From 1; identifies the panel in a report.
    scores : Board
        Their ranking in both scopes.
    summaries : tuple of TaskSummary
        Their summaries, in the order of the ranking.
    curves : tuple of tuple of PrefixPosterior
        hbayes@n after the first n trials, in the order of the ranking, of the best 8 of more than
        25 models; empty where the order of the trials is unknown.
    question_scores : QuestionScores
        Posterior means and sds of every question, in the order of the best model's run.
    costs : tuple of ModelCost
        Costs of the models whose tokens were recorded, best first.
    n_other_models : int
        Models in other panels of this task: they answered other questions, or have another
        metric or filter.
    plan : SeparationPlan or None
        Trials until more pairs are distinguishable; None where a forecast takes too long.
    """

    number: int
    scores: Board
    summaries: tuple[TaskSummary, ...]
    curves: tuple[tuple[PrefixPosterior, ...], ...]
    question_scores: QuestionScores
    costs: tuple[ModelCost, ...]
    n_other_models: int = 0
    plan: SeparationPlan | None = None

    @property
    def board(self) -> Leaderboard:
        """The ranking in the scope of the report."""
        return self.scores.leaderboard

    @property
    def runs(self) -> tuple[TaskRun, ...]:
        """The runs, best first."""
        return tuple(summary.run for summary in self.summaries)

    @property
    def over_settings(self) -> dict[str, SettingsPosterior]:
        """By model, best first, the scores over settings of those that have several."""
        posteriors = {summary.run.model: summary.over_settings[0] for summary in self.summaries}
        return {model: posterior for model, posterior in posteriors.items() if posterior}

    @property
    def compares_costs(self) -> bool:
        """Whether models have different numbers of tokens, which a figure can show."""
        tokens = [cost.tokens for cost in self.costs]
        return len(tokens) > 1 and max(tokens) > 1.01 * min(tokens)

    @property
    def bounds(self) -> tuple[float, float]:
        """The lowest and the highest possible score."""
        return self.summaries[0].run.outcomes.bounds


@dataclass(frozen=True, eq=False)
class ReportData:
    """All results that a report shows.

    Attributes
    ----------
    panels : tuple of TaskPanel
        One per task, or more if models answered different questions of it.
    warnings : tuple of str
        Warnings of the reader.
    spec : IntervalSpec
        Settings of the intervals; its scope is that of the rankings.
    overall : Board or None
        The ranking by the mean of all tasks, if there are several and every model has all.
    """

    panels: tuple[TaskPanel, ...]
    warnings: tuple[str, ...]
    spec: IntervalSpec
    overall: Board | None = None

    @cached_property
    def models(self) -> tuple[str, ...]:
        """The names of all models, in the order in which they first appear."""
        return tuple(dict.fromkeys(model for panel in self.panels for model in panel.board.models))

    @cached_property
    def tasks(self) -> tuple[str, ...]:
        """The names of all tasks."""
        return tuple(dict.fromkeys(panel.board.task for panel in self.panels))

    @property
    def summaries(self) -> tuple[TaskSummary, ...]:
        """The summaries of all runs."""
        return tuple(summary for panel in self.panels for summary in panel.summaries)

    @property
    def n_questions(self) -> int:
        """Number of distinct questions of all tasks."""
        firsts = [panel.runs[0] for panel in self.panels]
        return len({(run.task, question) for run in firsts for question in run.question_ids})

    @property
    def n_trials(self) -> int:
        """Number of trials of all runs."""
        return sum(summary.run.n_trials for summary in self.summaries)

    def to_dict(self) -> dict[str, Any]:
        """Return the numbers of the page as plain JSON types."""
        return {
            "scope": self.spec.scope,
            "level": self.spec.level,
            "interval": self.spec.method,
            "seed": self.spec.seed,
            "leaderboards": [_board_to_dict(panel.scores) for panel in self.panels],
            "overall": self.overall and _board_to_dict(self.overall),
            "summaries": [_summary_to_dict(summary) for summary in self.summaries],
            "warnings": list(self.warnings),
        }


def _board_to_dict(board: Board) -> dict[str, Any]:
    rows = zip(board.leaderboard.rows, board.intervals, strict=True)
    return {
        "task": board.leaderboard.task,
        "questions": board.leaderboard.n_questions,
        "places": [
            row.to_dict() | {"intervals": to_plain(dict(zip(SCOPES, pair, strict=True)))}
            for row, pair in rows
        ],
        "distinguishable": board.leaderboard.ranking.distinguishable.tolist(),
        "notes": list(board.leaderboard.notes),
    }


def _summary_to_dict(summary: TaskSummary) -> dict[str, Any]:
    return {
        "model": summary.run.model,
        "task": summary.run.task,
        "avg": summary.average and summary.average.value,
        "bayes": summary.paper and _moments(summary.paper),
        "rows": dict(summary.rows),
        "settings": settings_to_dict(summary.over_settings[0]),
        "posterior_rows": {row: _moments(member) for row, member in summary.family.items()},
    }


def _moments(posterior: Posterior) -> dict[str, float]:
    return {"mu": posterior.mu, "sigma": posterior.sigma}


def report_data(
    saved: SavedRuns,
    spec: IntervalSpec = DEFAULT_INTERVAL,
    *,
    progress: Callable[[int], None] | None = None,
) -> ReportData:
    """Compute all results that a report of these runs shows.

    Parameters
    ----------
    saved : SavedRuns
        At least one run.
    spec : IntervalSpec
        Settings of the intervals; its scope is that of the rankings.
    progress : callable, optional
        Called after every run with the number of runs done.
    """
    summaries = []
    for run in saved.runs:
        summaries.append(summarise(run, spec, thresholds=False))
        if progress is not None:
            progress(len(summaries))
    panels: list[TaskPanel] = []
    for task in saved.tasks:
        of_task = [summary for summary in summaries if summary.run.task == task]
        comparable = _comparable_groups(of_task)
        for group in comparable:
            n_other_models = len(of_task) - len(group)
            panels.append(_panel(len(panels) + 1, group, spec, n_other_models))
    return ReportData(
        panels=tuple(panels),
        warnings=tuple(saved.warnings),
        spec=spec,
        overall=_overall(panels),
    )


def _overall(panels: Sequence[TaskPanel]) -> Board | None:
    """Return the ranking by the mean of several tasks, if every panel has all models."""
    boards, bounds = [panel.scores for panel in panels], {panel.bounds for panel in panels}
    models = {frozenset(board.models) for board in boards}
    tasks = {panel.board.task for panel in panels}
    ranked = len(models) == len(bounds) == 1 < len(boards[0].models)
    return mean_board(boards) if ranked and len(tasks) == len(boards) > 1 else None


def _comparable_groups(summaries: Sequence[TaskSummary]) -> list[list[TaskSummary]]:
    """Partition a task's runs into groups that can be ranked together."""
    by_questions: dict[object, list[list[TaskSummary]]] = {}
    for summary in summaries:
        run = summary.run
        key = (frozenset(run.question_ids), run.scored, tuple(run.outcomes.weights.tolist()))
        groups = by_questions.setdefault(key, [])
        for group in groups:
            if metric_difference(group[0].run, run) is None:
                group.append(summary)
                break
        else:
            groups.append([summary])
    return [group for groups in by_questions.values() for group in groups]


def _panel(
    number: int,
    summaries: Sequence[TaskSummary],
    spec: IntervalSpec,
    n_other_models: int,
) -> TaskPanel:
    by_model = {summary.run.model: summary for summary in summaries}
    posteriors = {
        scope: {model: summary.learned[scope] for model, summary in by_model.items()}
        for scope in SCOPES
    }
    runs = [summary.run for summary in summaries]
    scores = task_board(runs, spec, posteriors=posteriors)
    best_first = tuple(by_model[model] for model in scores.models)
    with_curve = best_first if len(runs) <= _MANY_MODELS else best_first[:_CURVES_OF_MANY]
    return TaskPanel(
        number=number,
        scores=scores,
        summaries=best_first,
        question_scores=QuestionScores.of(best_first),
        costs=model_costs(scores.leaderboard, [summary.run for summary in best_first]),
        curves=tuple(
            prefix_posteriors(summary.run, spec, of_all=summary.learned[spec.scope])
            for summary in with_curve
        ),
        n_other_models=n_other_models,
        plan=plan_separation(runs, spec) if 1 < len(runs) <= _MANY_MODELS else None,
    )
