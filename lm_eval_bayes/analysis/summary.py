"""What a model's trials on a task say: posteriors, intervals, and the numbers people know."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

from lm_eval_bayes.analysis.pass_rows import pass_rows
from lm_eval_bayes.analysis.task_mean import mean_posterior
from lm_eval_bayes.runs.task_run import TaskRun
from lm_eval_bayes.stats.bayes_at_n import avg_at_n, bayes_at_n
from lm_eval_bayes.stats.hierarchical.hbayes_at_n import hbayes_at_n
from lm_eval_bayes.stats.intervals import METHODS, SCOPES, Interval, IntervalMethod, Scope
from lm_eval_bayes.stats.results import Estimate, Posterior
from lm_eval_bayes.stats.validation import check_level, check_option, check_seed


@dataclass(frozen=True, eq=False)
class TaskSummary:
    """One model's numbers on one task.

    Attributes
    ----------
    run : TaskRun
        What was summarised.
    learned : mapping of scope to Posterior
        hbayes@N, whose interval is the one to trust, in both scopes.
    paper : Posterior
        bayes@N, under the paper's uniform prior.
    intervals : mapping of str to Interval
        Those of "benchmark", "population" and "paper".
    average : Estimate or None
        avg@N; None where a question has no trial.
    rows : mapping of str to float
        By the harness's names: pass@k, pass^k, g-pass@k_τ, mg-pass@k and maj@k, as far as the
        outcomes are right or wrong and N goes.
    n_range : tuple of int
        The fewest and the most trials of a question.
    tokens : int or None
        Tokens of all completions, where they were counted.
    seconds : float or None
        Seconds of the model's time, each trial by its share, where they were measured.
    """

    run: TaskRun
    learned: Mapping[Scope, Posterior]
    paper: Posterior
    intervals: Mapping[str, Interval]
    average: Estimate | None
    rows: Mapping[str, float]
    n_range: tuple[int, int]
    tokens: int | None
    seconds: float | None

    @property
    def n(self) -> str:
        """N as people write it: "8", or "6 to 8" where questions differ."""
        least, most = self.n_range
        return str(least) if least == most else f"{least} to {most}"

    @property
    def notes(self) -> tuple[str, ...]:
        """What a reader must know: of the run and of its posteriors, each thing once."""
        return tuple(dict.fromkeys((*self.run.notes, *self.posterior_notes)))

    @property
    def posterior_notes(self) -> tuple[str, ...]:
        """What a reader must know of the posteriors."""
        posteriors = (self.learned["benchmark"], self.learned["population"], self.paper)
        return tuple(dict.fromkeys(one.note for one in posteriors if one.note))

    def to_dict(self) -> dict[str, Any]:
        """Return plain JSON types."""
        run = self.run
        average = self.average
        return {
            "model": run.model,
            "task": run.task,
            "metric": run.metric,
            "filter": run.filter,
            "questions": run.n_questions,
            "trials": run.n_trials,
            "n_range": list(self.n_range),
            "hbayes": {
                scope: plain_posterior(self.learned[scope], self.intervals[scope])
                for scope in SCOPES
            },
            "bayes": plain_posterior(self.paper, self.intervals["paper"]),
            "avg": None if average is None else {"value": average.value, "sd": average.sigma},
            "rows": dict(self.rows),
            "tokens": self.tokens,
            "seconds": self.seconds,
            "sources": list(run.sources),
            "notes": list(self.notes),
        }


def plain_posterior(posterior: Posterior, interval: Interval) -> dict[str, Any]:
    """Return a posterior and its interval as plain JSON types, without single questions."""
    plain = posterior.to_dict(interval)
    del plain["per_question"]
    return plain


def summarise(
    run: TaskRun,
    *,
    level: float = 0.95,
    method: IntervalMethod = "exact",
    seed: int = 0,
    ks: Iterable[int] | None = None,
) -> TaskSummary:
    """Summarise one model's trials on one task.

    Parameters
    ----------
    run : TaskRun
        The trials.
    level : float
        Posterior mass of the intervals, strictly between 0 and 1.
    method : {"exact", "hdi", "beta", "normal"}
        How they are made.
    seed : int
        Seed of whatever is drawn.
    ks : iterable of int, optional
        The budgets k of the pass family, each at most N, the fewest trials of a question. Left
        out: powers of two up to N, and those that the run itself was given.

    Returns
    -------
    TaskSummary

    Raises
    ------
    InvalidInputError
        If an argument breaks its rule, or `ks` are asked for where the pass family does not
        exist, since outcomes are more than right and wrong.

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
    level = check_level(level)
    method = check_option("interval", method, METHODS)
    seed = check_seed(seed)
    outcomes = run.outcomes
    population = hbayes_at_n(outcomes, "population", level, method, seed=seed)
    benchmark = population.benchmark
    if benchmark is None:
        benchmark = hbayes_at_n(outcomes, "benchmark", level, method, seed=seed)
    paper = bayes_at_n(outcomes)
    posteriors = {"benchmark": benchmark, "population": population, "paper": paper}
    return TaskSummary(
        run=run,
        learned=MappingProxyType({"benchmark": benchmark, "population": population}),
        paper=paper,
        intervals=MappingProxyType(
            {name: one.interval(level, method, seed=seed) for name, one in posteriors.items()}
        ),
        average=avg_at_n(outcomes) if run.n_common else None,
        rows=MappingProxyType(pass_rows(run, ks, seed)),
        n_range=outcomes.trials_range,
        tokens=run.tokens,
        seconds=run.busy_seconds,
    )


# -- groups of tasks -----------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class GroupMean:
    """One mean over the tasks of a group.

    Attributes
    ----------
    weighting : str
        "size": every question counts the same; "equal": every task does.
    weights : tuple of float
        Of the tasks; they sum to 1.
    posteriors, intervals : mapping by scope
        Of the mean of hbayes@N.
    paper, paper_interval
        Of the mean of bayes@N.
    """

    weighting: str
    weights: tuple[float, ...]
    posteriors: Mapping[Scope, Posterior]
    intervals: Mapping[Scope, Interval]
    paper: Posterior
    paper_interval: Interval
    average: float

    def to_dict(self) -> dict[str, Any]:
        """Return plain JSON types."""
        return {
            "weights": list(self.weights),
            "hbayes": {
                scope: plain_posterior(self.posteriors[scope], self.intervals[scope])
                for scope in SCOPES
            },
            "bayes": plain_posterior(self.paper, self.paper_interval),
            "avg": self.average if math.isfinite(self.average) else None,
        }


@dataclass(frozen=True, eq=False)
class GroupSummary:
    """One model's numbers on a group of tasks.

    Attributes
    ----------
    group, model : str
        Names.
    tasks : tuple of str
        The tasks, each with independent trials.
    n_questions : int
        Questions of all of them.
    means : mapping of str to GroupMean
        By weighting: "size" and "equal".
    """

    group: str
    model: str
    tasks: tuple[str, ...]
    n_questions: int
    means: Mapping[str, GroupMean]

    def to_dict(self) -> dict[str, Any]:
        """Return plain JSON types."""
        return {
            "group": self.group,
            "model": self.model,
            "tasks": list(self.tasks),
            "questions": self.n_questions,
            "means": {name: one.to_dict() for name, one in self.means.items()},
        }


def summarise_groups(
    summaries: Sequence[TaskSummary], groups: Mapping[str, Iterable[str]]
) -> tuple[GroupSummary, ...]:
    """Summarise groups of tasks: the posteriors of two means of the tasks' scores.

    Given the trials, the tasks' posteriors are independent. A mean with weights w therefore has
    mean Σ w μ and standard deviation sqrt(Σ w² σ²); its law is the convolution of theirs.
    Averaging the sds themselves would not give the sd of anything.

    Parameters
    ----------
    summaries : sequence of TaskSummary
        Of any number of models and tasks.
    groups : mapping of str to iterable of str
        The tasks of every group; the name of another group stands for its tasks.

    Returns
    -------
    tuple of GroupSummary
        Of every model that has all tasks of a group, group by group. Level, method and seed of
        the intervals are those of the summaries.

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
    found = []
    for group in groups:
        tasks = _tasks_of(group, groups)
        for model in dict.fromkeys(one.run.model for one in summaries):
            own = {one.run.task: one for one in summaries if one.run.model == model}
            if tasks and all(task in own for task in tasks):
                found.append(_group(group, [own[task] for task in tasks]))
    return tuple(found)


def _tasks_of(group: str, groups: Mapping[str, Iterable[str]]) -> list[str]:
    """Return a group's tasks, each once, with the tasks of groups in it."""
    tasks: dict[str, None] = {}
    seen, waiting = {group}, list(groups[group])
    while waiting:
        name = waiting.pop(0)
        if name not in groups:
            tasks[name] = None
        elif name not in seen:
            seen.add(name)
            waiting = [*groups[name], *waiting]
    return list(tasks)


def _group(group: str, summaries: Sequence[TaskSummary]) -> GroupSummary:
    sizes = [one.run.n_questions for one in summaries]
    shares = {
        "size": tuple(size / sum(sizes) for size in sizes),
        "equal": (1.0 / len(sizes),) * len(sizes),
    }
    return GroupSummary(
        group=group,
        model=summaries[0].run.model,
        tasks=tuple(one.run.task for one in summaries),
        n_questions=sum(sizes),
        means=MappingProxyType({w: _mean(w, own, summaries) for w, own in shares.items()}),
    )


def _mean(
    weighting: str, weights: tuple[float, ...], summaries: Sequence[TaskSummary]
) -> GroupMean:
    like = summaries[0].intervals["benchmark"]
    drawn = (one.seed for summary in summaries for one in summary.intervals.values())
    seed = next((one for one in drawn if one is not None), 0)
    posteriors = {
        scope: mean_posterior([one.learned[scope] for one in summaries], weights)
        for scope in SCOPES
    }
    paper = mean_posterior([one.paper for one in summaries], weights)
    averages = [math.nan if one.average is None else one.average.value for one in summaries]
    return GroupMean(
        weighting=weighting,
        weights=weights,
        posteriors=MappingProxyType(posteriors),
        intervals=MappingProxyType(
            {
                scope: one.interval(like.level, like.method, seed=seed)
                for scope, one in posteriors.items()
            }
        ),
        paper=paper,
        paper_interval=paper.interval(like.level, like.method, seed=seed),
        average=sum(w * a for w, a in zip(weights, averages, strict=True)),
    )
