"""A run's posteriors, intervals and estimates, and those of the mean over a group of tasks."""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from types import MappingProxyType
from typing import Any

from lm_eval_bayes._util.plain import Record, json_name, to_plain
from lm_eval_bayes.analysis.pass_rows import family_notes, pass_rows, rows_to_dict, with_settings
from lm_eval_bayes.analysis.settings import settings_posterior, settings_to_dict
from lm_eval_bayes.analysis.task_mean import mean_posterior
from lm_eval_bayes.runs.task_run import SavedRuns, TaskRun
from lm_eval_bayes.stats import (
    DEFAULT_INTERVAL,
    SCOPES,
    TASK_WEIGHTS,
    Estimate,
    Interval,
    IntervalSpec,
    Outcomes,
    Posterior,
    Scope,
    SettingsPosterior,
    TaskMeans,
    avg_at_n,
    bayes_at_n,
    hbayes_by,
)

#: Name of the group of all tasks.
ALL_TASKS = "all tasks"


@dataclass(frozen=True, eq=False)
class ScorePosteriors:
    """The posteriors of a score: hbayes@N in both scopes, and bayes@N.

    Attributes
    ----------
    learned : mapping of scope to Posterior
        hbayes@N, the recommended posterior, in both scopes.
    paper : Posterior or None
        bayes@N, under the paper's uniform prior; None for scores, which have none.
    """

    learned: Mapping[Scope, Posterior]
    paper: Posterior | None

    @cached_property
    def intervals(self) -> Mapping[str, Interval]:
        """Credible intervals: "benchmark" and "population" of hbayes@N, "paper" of bayes@N."""
        posteriors = (*self.learned.items(), ("paper", self.paper))
        return {name: posterior.interval() for name, posterior in posteriors if posterior}

    def posteriors_to_dict(self) -> dict[str, Any]:
        """Return the posteriors with their intervals as plain JSON types."""
        learned = {scope: posterior_to_dict(self.learned[scope]) for scope in SCOPES}
        return {"hbayes": learned, "bayes": self.paper and posterior_to_dict(self.paper)}


@dataclass(frozen=True, eq=False)
class CategoryScore(ScorePosteriors):
    """A model's score on the questions of one category of a task, from their trials alone.

    Attributes
    ----------
    category : str
        The category.
    n_questions, n_trials : int
        Its questions and their trials.
    average : float or None
        avg@N; None if a question has no trial.
    notes : tuple of str
        Distinct notes of the posteriors, and one where clusters could not be used.
    """

    category: str
    n_questions: int
    n_trials: int
    average: float | None
    notes: tuple[str, ...]

    def to_dict(self) -> dict[str, Any]:
        """Return plain JSON types."""
        return {
            "category": self.category,
            "questions": self.n_questions,
            "trials": self.n_trials,
            **self.posteriors_to_dict(),
            "avg": self.average,
            "notes": list(self.notes),
        }


@dataclass(frozen=True, eq=False)
class TaskSummary(ScorePosteriors):
    """A model's posteriors and estimates on a task.

    Attributes
    ----------
    run : TaskRun
        The run.
    spec : IntervalSpec
        Settings of the intervals.
    average : Estimate or None
        avg@N; None if a question has no trial.
    rows : mapping of str to float
        Estimates by the harness's row names: pass@k, pass^k, g-pass@k_τ, mg-pass@k, maj@k. Empty
        unless trials are right or wrong, or have scores and a threshold.
    family : mapping of str to Posterior
        The posteriors of the pass family and of maj@k, about these questions: hpass@k, ….
    n_range : tuple of int
        The fewest and the most trials of a question.
    """

    run: TaskRun
    spec: IntervalSpec
    average: Estimate | None
    rows: Mapping[str, float]
    family: Mapping[str, Posterior]
    n_range: tuple[int, int]

    @property
    def n(self) -> str:
        """N as text: "8", or "6 to 8" if questions have different numbers of trials."""
        fewest, most = self.n_range
        return str(fewest) if fewest == most else f"{fewest} to {most}"

    @property
    def n_clusters(self) -> int | None:
        """Number of clusters of the questions; None without clusters."""
        clusters = self.learned["population"].clusters
        return None if clusters is None else clusters.n_clusters

    @cached_property
    def category_scores(self) -> tuple[CategoryScore, ...]:
        """The scores of the categories of the questions, in their order; empty without categories.

        Each has a prior that is learned of its own questions. Questions without a category are in
        none.
        """
        labels = [label for label in self.run.categories or () if label is not None]
        return tuple(_category_score(self.run, n, self.spec) for n in dict.fromkeys(labels))

    @cached_property
    def over_settings(self) -> tuple[SettingsPosterior | None, str]:
        """The score over several settings, else a note on why there is none; neither of one."""
        return settings_posterior(self.run, self.spec) if self.run.settings else (None, "")

    @property
    def notes(self) -> tuple[str, ...]:
        """Distinct notes of the run and of its posteriors."""
        return tuple(dict.fromkeys((*self.run.notes, *self.posterior_notes)))

    @property
    def posterior_notes(self) -> tuple[str, ...]:
        """Distinct notes of the posteriors, those of the rows with their names."""
        notes = _distinct_notes(*self.learned.values(), self.paper)
        family = {name: row for name, row in self.family.items() if row.note not in notes}
        return notes + family_notes(family) + tuple(filter(None, self.over_settings[1:]))

    def to_dict(self) -> dict[str, Any]:
        """Return plain JSON types."""
        run, average = self.run, self.average
        return {
            "model": run.model,
            "task": run.task,
            "metric": run.metric,
            "filter": run.filter,
            "protocol": run.provenance.protocol,
            "score_bounds": list(run.outcomes.bounds) if run.scored else None,
            "threshold": run.threshold,
            "questions": run.n_questions,
            "clusters": self.n_clusters,
            "trials": run.n_trials,
            "n_range": list(self.n_range),
            **self.posteriors_to_dict(),
            # one trial of each question has no sd where scores are no 0 and 1
            "avg": average and to_plain({"value": average.value, "sd": average.sigma}),
            "rows": dict(self.rows),
            "shares": run.shares,
            "settings": settings_to_dict(self.over_settings[0]),
            "posterior_rows": rows_to_dict(self.family),
            "categories": [s.to_dict() for s in self.category_scores],
            "tokens": run.tokens,
            "seconds": run.busy_seconds,
            "cost": run.cost,
            "sources": list(run.sources),
            "notes": list(self.notes),
        }


def posterior_to_dict(posterior: Posterior, interval: Interval | None = None) -> dict[str, Any]:
    """Return a posterior and its interval as plain JSON types, without single questions."""
    content = posterior.to_dict(interval)
    del content["per_question"]
    return content


def summarise(
    run: TaskRun,
    spec: IntervalSpec = DEFAULT_INTERVAL,
    *,
    ks: Iterable[int] | None = None,
    thresholds: bool = True,
) -> TaskSummary:
    """Summarise a model's trials on a task.

    Parameters
    ----------
    run : TaskRun
        The trials.
    spec : IntervalSpec
        Settings of the intervals. Both scopes are summarised, whichever it names.
    ks : iterable of int, optional
        The k of the pass family, each at most N, the fewest trials of a question. By default
        powers of two up to N and those of the run's own settings.
    thresholds : bool
        Whether the pass family has G-Pass and mG-Pass.

    Returns
    -------
    TaskSummary

    Raises
    ------
    InvalidInputError
        If `ks` break their rule, or are given for trials that are not right or wrong.

    Examples
    --------
    >>> run = TaskRun.from_trials("A", "aime", [[0, 1, 1, 0], [0, 0, 0, 0]], ["q1", "q2"])
    >>> summary = summarise(run)
    >>> round(summary.paper.mu, 3), summary.average.value, round(summary.rows["pass@2"], 3)
    (0.333, 0.25, 0.417)
    >>> interval = summary.intervals["benchmark"]
    >>> 0 < interval.low < summary.learned["benchmark"].mu < interval.high < 1
    True
    """
    outcomes = run.outcomes
    learned, paper = _posteriors(outcomes, spec)
    of_questions, score = replace(spec, scope="benchmark"), learned["benchmark"]
    rows, family = pass_rows(run, of_questions, ks, thresholds=thresholds, score=score)
    average, n_range = avg_at_n(outcomes) if run.n_common else None, outcomes.trials_range
    return TaskSummary(learned, paper, run, spec, average, rows, family, n_range)


def _posteriors(
    outcomes: Outcomes, spec: IntervalSpec
) -> tuple[Mapping[Scope, Posterior], Posterior | None]:
    """Return hbayes@N in both scopes, and bayes@N."""
    population = hbayes_by(outcomes, replace(spec, scope="population"))
    paper = None if outcomes.scored else with_settings(bayes_at_n(outcomes), spec)
    return _both_scopes(population), paper


def _both_scopes(population: Posterior) -> Mapping[Scope, Posterior]:
    return {"benchmark": population.benchmark or population, "population": population}


def _distinct_notes(*posteriors: Posterior | None) -> tuple[str, ...]:
    """Return the notes of posteriors, each once."""
    notes = (posterior.note for posterior in posteriors if posterior is not None)
    return tuple(dict.fromkeys(note for note in notes if note))


def _category_score(run: TaskRun, category: str, spec: IntervalSpec) -> CategoryScore:
    """Return the score of the questions of one category."""
    rows = [row for row, label in enumerate(run.categories or ()) if label == category]
    outcomes = run.outcomes.take(rows)
    notes: tuple[str, ...] = ()
    if len(rows) > 1 and len(set(outcomes.clusters or ())) == 1:
        outcomes = replace(outcomes, clusters=None)
        notes = ("all questions are of one cluster: they were taken as independent",)
    learned, paper = _posteriors(outcomes, spec)
    notes += _distinct_notes(*learned.values(), paper)
    average = avg_at_n(outcomes).value if outcomes.trials_range[0] else None
    n_trials = int(outcomes.n_trials.sum())
    return CategoryScore(learned, paper, category, len(rows), n_trials, average, notes)


# -- groups of tasks -----------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class GroupMean(ScorePosteriors):
    """A weighted mean over the tasks of a group.

    Attributes
    ----------
    weights : tuple of float
        Weights of the tasks; they sum to 1.
    average : float
        Weighted mean of avg@N; NaN if a question has no trial.
    """

    weights: tuple[float, ...]
    average: float

    def to_dict(self) -> dict[str, Any]:
        """Return plain JSON types."""
        return {
            "weights": list(self.weights),
            **self.posteriors_to_dict(),
            "avg": self.average if math.isfinite(self.average) else None,
        }


@dataclass(frozen=True, eq=False)
class GroupSummary(Record):
    """A model's means over a group of tasks.

    Attributes
    ----------
    group, model : str
        Names.
    tasks : tuple of str
        The tasks, whose trials are independent.
    n_questions : int
        Questions of all tasks.
    means : mapping of str to GroupMean
        By weighting: "size", where every question has the same weight, and "equal", where every
        task has.
    """

    group: str
    model: str
    tasks: tuple[str, ...]
    n_questions: int = field(metadata=json_name("questions"))
    means: Mapping[str, GroupMean]


def all_groups(saved: SavedRuns) -> dict[str, Sequence[str]]:
    """Return the groups of tasks, and one of all tasks if there are several and none has them."""
    groups: dict[str, Sequence[str]] = {name: tuple(tasks) for name, tasks in saved.groups.items()}
    has_all = any(set(saved.tasks) <= set(tasks) for tasks in groups.values())
    if len(saved.tasks) > 1 and not has_all:
        groups[ALL_TASKS] = saved.tasks
    return groups


def summarise_groups(
    summaries: Sequence[TaskSummary], groups: Mapping[str, Iterable[str]]
) -> tuple[GroupSummary, ...]:
    """Summarise groups of tasks: the posteriors of two weighted means of the tasks' scores.

    In those of hbayes@N the tasks share a prior, see `lm_eval_bayes.mean_over_tasks`. Those of
    bayes@N have a uniform prior for every question and are independent: a mean with weights w has
    mean Σ w μ and standard deviation sqrt(Σ w² σ²), and its distribution is their convolution.

    Parameters
    ----------
    summaries : sequence of TaskSummary
        Summaries of any models and tasks, with the same interval settings.
    groups : mapping of str to iterable of str
        The tasks of every group; the name of another group stands for its tasks.

    Returns
    -------
    tuple of GroupSummary
        For every group, those of the models that have all its tasks.

    Examples
    --------
    >>> runs = [
    ...     TaskRun.from_trials("A", "one", [[0, 1], [1, 1]], ["p", "q"]),
    ...     TaskRun.from_trials("A", "two", [[0, 0]] * 6, list("abcdef")),
    ... ]
    >>> (group,) = summarise_groups([summarise(run) for run in runs], {"both": ["one", "two"]})
    >>> group.means["size"].weights, group.means["equal"].average
    ((0.25, 0.75), 0.375)
    """
    by_model: dict[str, dict[str, TaskSummary]] = {}
    for summary in summaries:
        by_model.setdefault(summary.run.model, {})[summary.run.task] = summary
    group_summaries = []
    for group in groups:
        tasks = _tasks_of(group, groups)
        for by_task in by_model.values():
            if tasks and all(task in by_task for task in tasks):
                group_summaries.append(_group_summary(group, [by_task[task] for task in tasks]))
    return tuple(group_summaries)


def posteriors_of_means(
    groups: Iterable[GroupSummary], tasks: Collection[str]
) -> dict[Scope, dict[str, Posterior]] | None:
    """Return the equally weighted means of these tasks by scope and model; None without a group."""
    by_model = {group.model: group for group in groups if {*group.tasks} == {*tasks}}
    means = {model: group.means["equal"].learned for model, group in by_model.items()}
    of_scope = {scope: {m: learned[scope] for m, learned in means.items()} for scope in SCOPES}
    return of_scope if means else None


def _tasks_of(group: str, groups: Mapping[str, Iterable[str]]) -> list[str]:
    """Return the distinct tasks of a group, with those of the groups in it."""
    tasks: dict[str, None] = {}
    seen, pending = {group}, list(groups[group])
    while pending:
        name = pending.pop(0)
        if name not in groups:
            tasks[name] = None
        elif name not in seen:
            seen.add(name)
            pending = [*groups[name], *pending]
    return list(tasks)


def _group_summary(group: str, summaries: Sequence[TaskSummary]) -> GroupSummary:
    spec = replace(summaries[0].spec, scope="population")
    shared = TaskMeans(
        {summary.run.task: summary.run.outcomes for summary in summaries},
        {summary.run.task: summary.learned["population"] for summary in summaries},
        seed=spec.seed,
    )
    papers = [summary.paper for summary in summaries if summary.paper is not None]
    averages = [math.nan if s.average is None else s.average.value for s in summaries]
    means: dict[str, GroupMean] = {}
    for weighting in TASK_WEIGHTS[::-1]:
        weights = shared.weights(weighting)
        means[weighting] = GroupMean(
            _both_scopes(shared.posterior(weighting, spec)),
            mean_posterior(papers, weights.tolist()) if len(papers) == len(summaries) else None,
            weights=tuple(weights.tolist()),
            average=float(weights @ averages),
        )
    return GroupSummary(
        group=group,
        model=summaries[0].run.model,
        tasks=tuple(shared.tasks),
        n_questions=sum(summary.run.n_questions for summary in summaries),
        means=MappingProxyType(means),
    )
