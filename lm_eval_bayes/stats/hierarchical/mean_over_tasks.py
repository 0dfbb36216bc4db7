"""The posterior of a mean over tasks, whose questions are of the same kinds."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from functools import cached_property
from typing import Literal, NamedTuple, TypeAlias

import numpy as np
import numpy.typing as npt

from lm_eval_bayes._util.validation import as_real, check_option
from lm_eval_bayes.errors import InvalidInputError
from lm_eval_bayes.stats.arrays import FloatArray, IntArray, read_only
from lm_eval_bayes.stats.hierarchical.hbayes_at_n import (
    NO_TRIALS,
    data_note,
    distinct_weights,
    hbayes_at_n,
)
from lm_eval_bayes.stats.intervals import IntervalMethod, IntervalSpec, Scope
from lm_eval_bayes.stats.mixture import learn_mixture
from lm_eval_bayes.stats.outcomes import LearnedShift, Outcomes, check_outcomes, scaled_weights
from lm_eval_bayes.stats.results import PerQuestion, Posterior, joined_notes
from lm_eval_bayes.stats.states import StateDistribution, score_moments, state_moments

TaskWeights: TypeAlias = Literal["equal", "size"]
TASK_WEIGHTS: tuple[TaskWeights, ...] = ("equal", "size")
#: The warning of scope "benchmark" at one trial a question.
SINGLE_TRIALS = (
    "At one trial per question the score of these questions is not known: this is that of their "
    "population."
)
#: The quantity of the posteriors.
_QUANTITY = "mean of hbayes@N"
#: The note on a mean over tasks with earlier runs whose shift is learned.
NO_EARLIER_RUN = "The mean over tasks does not use the earlier runs."


class _TaskStates(NamedTuple):
    """Moments of the tasks' scores in [0, 1] in P states, (T, P) each, and the states' chains."""

    mean: FloatArray
    variance: FloatArray
    population: FloatArray
    chain: IntArray


class TaskMeans:
    """Tasks whose questions are of the same kinds, and the posteriors of means over them.

    Parameters
    ----------
    tasks : mapping of str to Outcomes
        The outcomes of at least one task by its name.
    posteriors : mapping of str to Posterior, optional
        The posteriors of `hbayes_at_n` of the same tasks, of either scope.
    seed : int
        Of the states.
    """

    def __init__(
        self,
        tasks: Mapping[str, Outcomes],
        posteriors: Mapping[str, Posterior] | None = None,
        seed: int = 0,
    ) -> None:
        if not isinstance(tasks, Mapping) or not tasks:
            rule = "be a mapping of at least one task's name to its Outcomes"
            raise InvalidInputError.of("tasks", "empty", rule, tasks if tasks else "none")
        for name, outcomes in tasks.items():
            check_outcomes(f"tasks[{name!r}]", outcomes, scores=True)
        self.tasks = dict(tasks)
        if posteriors is None:
            posteriors = {
                name: hbayes_at_n(outcomes, seed=seed) for name, outcomes in tasks.items()
            }
        self.posteriors = [posteriors[name] for name in tasks]
        self.seed = seed

    @cached_property
    def _states(self) -> _TaskStates:
        """The states of all tasks; those of other weights are independent of each other."""
        groups: dict[tuple[float, ...], list[int]] = {}
        of_task = [distinct_weights(outcomes) for outcomes in self.tasks.values()]
        for index, (weights, _) in enumerate(of_task):
            unit_weights = np.round(scaled_weights(weights)[2], 12)
            groups.setdefault(tuple(unit_weights.tolist()), []).append(index)
        rng = np.random.default_rng([self.seed, 2])
        outcomes = list(self.tasks.values())
        parts, chain = np.zeros((3, len(outcomes), 0)), np.zeros(0, dtype=np.int64)
        for unit, members in groups.items():
            counts = [outcomes[i].weighted_counts @ of_task[i][1] for i in members]
            task = np.repeat(np.arange(len(members)), [len(rows) for rows in counts])
            mixture = learn_mixture(np.concatenate(counts), task, seed=self.seed)
            moments = state_moments(mixture, score_moments(np.array(unit)))
            own = np.stack([moments.mean[0], moments.variance[0], moments.population[0]])
            if not chain.size:
                parts = np.empty((3, len(outcomes), own.shape[2]))
                chain = mixture.chain
                parts[:, members] = own
            else:
                parts[:, members] = own[..., rng.permutation(own.shape[2])]
        mean, variance, population = parts
        return _TaskStates(mean, variance, population, chain)

    @property
    def _is_single(self) -> npt.NDArray[np.bool_]:
        """Which tasks have at most one trial of each question, (T,)."""
        return np.array([task.most_trials == 1 for task in self.tasks.values()])

    def weights(self, weights: TaskWeights | Mapping[str, float]) -> FloatArray:
        """Return the weights of the tasks, in their order, which sum to 1."""
        if isinstance(weights, Mapping):
            numbers = [as_real(weights.get(name)) for name in self.tasks]
            positive = [w for w in numbers if w is not None and 0.0 < w < np.inf]
            if set(weights) != set(self.tasks) or len(positive) < len(numbers):
                rule = f"have a finite number above 0 for each of {', '.join(self.tasks)}"
                raise InvalidInputError.of("weights", "range", rule, dict(weights))
        elif check_option("weights", weights, TASK_WEIGHTS) == "equal":
            positive = [1.0] * len(self.tasks)
        else:
            positive = [float(outcomes.n_questions) for outcomes in self.tasks.values()]
        return np.array(positive) / sum(positive)

    def posterior(
        self, weights: TaskWeights | Mapping[str, float], spec: IntervalSpec
    ) -> Posterior:
        """Return the posterior of a weighted mean, see `mean_over_tasks`."""
        share = self.weights(weights)
        outcomes = list(self.tasks.values())
        if len(outcomes) == 1:
            only = hbayes_at_n(outcomes[0], spec.scope, spec.level, spec.method, seed=spec.seed)
            return replace(only, quantity=_QUANTITY)
        distribution = self._distribution(share, spec)
        sizes = np.array([task.n_questions for task in outcomes], dtype=np.float64)
        ranges = [task.trials_range for task in outcomes]
        own = [posterior.per_question for posterior in self.posteriors]
        return Posterior(
            quantity=_QUANTITY,
            mu=distribution.mean,
            sigma=distribution.sd,
            per_question=PerQuestion(
                read_only(np.concatenate([task.mu for task in own]), np.float64),
                read_only(np.concatenate([task.sigma for task in own]), np.float64),
            ),
            bounds=distribution.bounds,
            prior=None,
            distribution=distribution,
            scope=spec.scope,
            level=spec.level,
            method=spec.method,
            n_trials=float(sizes @ [task.mean_trials for task in outcomes] / sizes.sum()),
            trials_range=(min(least for least, _ in ranges), max(most for _, most in ranges)),
            ess=distribution.ess,
            seed=spec.seed,
            note=self._note(spec.scope),
            benchmark=None
            if spec.scope == "benchmark"
            else self.posterior(weights, replace(spec, scope="benchmark")),
        )

    def _distribution(self, share: FloatArray, spec: IntervalSpec) -> StateDistribution:
        """Return the distribution of the mean with these weights."""
        lows, highs = np.array([task.bounds for task in self.tasks.values()]).T
        span, states = share * (highs - lows), self._states
        low, high = float(share @ lows), float(share @ highs)
        if spec.scope == "population":
            mean = low + span @ states.population
            return StateDistribution(
                mean, np.zeros_like(mean), states.chain, (low, high), spec.seed
            )
        is_single = self._is_single[:, None]
        mean = low + span @ np.where(is_single, states.population, states.mean)
        variance = span**2 @ np.where(is_single, 0.0, states.variance)
        return StateDistribution(mean, variance, states.chain, (low, high), spec.seed)

    def _note(self, scope: Scope) -> str | None:
        """Return the warnings of the tasks, and which have no trials."""
        without = [name for name, task in self.tasks.items() if task.mean_trials == 0.0]
        if len(without) == len(self.tasks):
            return NO_TRIALS
        is_single = self._is_single if scope == "benchmark" else np.zeros(len(self.tasks), bool)
        notes = [SINGLE_TRIALS if is_single.any() else None]
        notes += [data_note(task) for name, task in self.tasks.items() if name not in without]
        bounds = sorted({task.bounds for task in self.tasks.values()})
        if len(bounds) > 1:
            ranges = ", ".join(f"{low:g} to {high:g}" for low, high in bounds)
            notes.append(f"The tasks' scores have different bounds, {ranges}: so has their mean.")
        if any(isinstance(task.prior_strength, LearnedShift) for task in self.tasks.values()):
            notes.append(NO_EARLIER_RUN)
        if without:
            notes.append(f"Predicted from the other tasks, without trials: {', '.join(without)}.")
        return joined_notes(notes)


def mean_over_tasks(
    tasks: Mapping[str, Outcomes],
    weights: TaskWeights | Mapping[str, float] = "equal",
    scope: Scope = "benchmark",
    level: float = 0.95,
    interval: IntervalMethod = "exact",
    *,
    seed: int = 0,
) -> Posterior:
    """Return the posterior of a weighted mean of a model's scores on several tasks.

    The means of the tasks share a prior that is learned from all of them. A prior for each task
    by itself pulls every task's mean a little towards the middle; the pulls add up over tasks,
    so that the interval of their mean misses the truth where tasks are many. The posterior of a
    single task is not changed by this.

    Parameters
    ----------
    tasks : mapping of str to Outcomes
        The outcomes of at least one task by its name. Tasks may differ in numbers of questions
        and of trials; one without trials is predicted from the others.
    weights : {"equal", "size"} or mapping of str to float
        "equal": every task has the same weight; "size": every question has; or a positive number
        for every task. Scaled to sum to 1.
    scope : {"benchmark", "population"}
        What a task's score is the mean of: these questions, or the population of questions that
        the task's are a sample of. The tasks themselves are these in both. A task with one trial
        of each question enters by its population in both, as no data tell the other.
    level : float
        Posterior mass of the result's `interval()`, strictly between 0 and 1.
    interval : {"exact", "normal", "beta"}
        Its method.
    seed : int
        Seed of the states and draws that represent the posterior.

    Returns
    -------
    Posterior
        With the questions of all tasks in `per_question`, task by task, as by `hbayes_at_n`. For
        one task it is that of `hbayes_at_n`.

    Raises
    ------
    InvalidInputError
        If an argument breaks its rule.

    Notes
    -----
    The tasks' questions are of the same two kinds, in each task with weights of its own, which are
    learned together; see :mod:`lm_eval_bayes.stats.mixture`. Tasks whose categories have other
    weights, as shares of their range, have kinds of their own.

    Examples
    --------
    Twenty hard tasks of 30 questions with one trial each, 0 or 1 of them right: the mean of the
    trials is 1/60.

    >>> tasks = {f"t{i}": Outcomes.from_counts([[1, 0]] * 29 + [[1 - i % 2, i % 2]])
    ...          for i in range(20)}
    >>> mean = mean_over_tasks(tasks, scope="population")
    >>> round(mean.mu, 3), round(mean.sigma, 3)
    (0.018, 0.005)
    """
    spec = IntervalSpec.of(level, scope, interval, seed)
    return TaskMeans(tasks, seed=spec.seed).posterior(weights, spec)
