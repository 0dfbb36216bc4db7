"""The posterior of a mean over tasks, under a prior that the tasks share.

A learned prior of its own pulls each task's mean a little towards the middle. In a mean over T
tasks these pulls add up, while its standard deviation shrinks with √T. Here the tasks' means share
a prior. With z_t the normal score of task t's mean m_t, Φ(z_t) = F(m_t) where F is the
distribution function of m's prior in `hbayes_at_n`, Beta(.7, .7),

    z_t = √ρ g + √(1 − ρ) e_t,    g, e_t ~ N(0, 1),    ρ ~ U(0, 1).

So m_t alone has the prior Beta(.7, .7): with one task the result is hbayes@N. At ρ = 0 the tasks
are independent, at ρ = 1 their means are equal. The strengths s_t share a prior of the same kind,
with a correlation of their own. g and ρ of the means are integrated out on a grid; at a node of
the grid the tasks are independent. For the strengths, each task's prior is their predictive
distribution given the other tasks, and then s_t is integrated out for each task by itself.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Literal, TypeAlias

import numpy as np
from scipy import fft, special

from lm_eval_bayes.errors import InvalidInputError
from lm_eval_bayes.stats.arrays import FloatArray, blocks, read_only
from lm_eval_bayes.stats.distributions.base import CdfTable, FromTable
from lm_eval_bayes.stats.distributions.beta_mixture import (
    Cumulants,
    edgeworth_table,
    is_nearly_normal,
    wide_cells,
)
from lm_eval_bayes.stats.distributions.independent import tabulate
from lm_eval_bayes.stats.hierarchical.hbayes_at_n import (
    NO_TRIALS,
    hbayes_at_n,
    posterior_note,
    trials_by_weight,
)
from lm_eval_bayes.stats.hierarchical.row_grid import LogDensity, NodeCount, fit_grid
from lm_eval_bayes.stats.hierarchical.task_table import (
    BinaryTask,
    Likelihood,
    TaskTable,
    category_table,
    node_cumulants,
)
from lm_eval_bayes.stats.intervals import IntervalMethod, IntervalSpec, Scope
from lm_eval_bayes.stats.outcomes import Outcomes, check_outcomes
from lm_eval_bayes.stats.results import PerQuestion, Posterior, joined_notes
from lm_eval_bayes.stats.validation import as_real, check_option

TaskWeights: TypeAlias = Literal["equal", "size"]
#: The note that names the tasks of more than two distinct weights.
BY_MOMENTS = "Enter the mean over tasks by the mean and sd of their own posteriors:"
#: The quantity of the posteriors.
_QUANTITY = "mean of hbayes@N"

TASK_WEIGHTS: tuple[TaskWeights, ...] = ("equal", "size")

#: Even values of log(ρ / (1 − ρ)) over all of its range.
_LOG_ODDS = (-30.0, 45.0, 35)
_NODES = NodeCount(30, 90, 0.5)
#: Nodes whose posterior probability is below this share of the largest are left out.
_NEGLIGIBLE = 1e-7
#: The bracket of g, before it is fitted.
_FIRST_BRACKET = 9.0
#: Half the window of the inverted transform, in sds, and the number of its frequencies.
_WINDOW, _FREQUENCIES = 14.0, 256
#: How far the window goes beyond the possible scores, as a share of its half.
_MARGIN = 0.1
#: The logarithm of the transform's taper at the last frequency is minus half the square of this.
_TAPER = 4.0
_BLOCK = 2_000_000
#: The least sd at a node, in sds of the mean over tasks.
_POINT = 1e-3


@dataclass(frozen=True, eq=False)
class Nodes:
    """Likely values of the shared prior, z_t ~ N(centre, sd²), each array of shape (G,).

    Attributes
    ----------
    centre, sd : array
        √ρ g and √(1 − ρ).
    weight : array
        Posterior probability, sum 1.
    step : array
        Width of a node's cell in `centre`.
    """

    centre: FloatArray
    sd: FloatArray
    weight: FloatArray
    step: FloatArray

    @classmethod
    def of(cls, likelihoods: Sequence[Likelihood]) -> Nodes:
        """Put the posterior of the shared prior on a grid and return the nodes that matter."""
        grid = fit_grid(_SharedPriorDensity(likelihoods), np.linspace(*_LOG_ODDS), _NODES)
        likely = grid.weight > _NEGLIGIBLE * grid.weight.max()
        root, sd = _roots(grid.row[likely])
        weight = grid.weight[likely]
        centre, step = root * grid.column[likely], root * grid.steps[0, likely]
        return cls(centre, sd, weight / weight.sum(), step)


class _SharedPriorDensity(LogDensity):
    """The log posterior density of g and log(ρ / (1 − ρ)), up to a constant."""

    def __init__(self, likelihoods: Sequence[Likelihood]) -> None:
        self.likelihoods = likelihoods

    def __call__(self, column: FloatArray, row: FloatArray) -> FloatArray:
        """Evaluate for g of shape (L, Y) and the log odds of ρ of shape (L,)."""
        root, sd = (np.broadcast_to(part[:, None], column.shape) for part in _roots(row))
        centre, sd = (root * column).ravel(), sd.ravel()
        # ρ uniform, in terms of its log odds
        prior = -np.logaddexp(0.0, row) - np.logaddexp(0.0, -row)
        evidence = np.zeros(centre.size)
        for likelihood in self.likelihoods:
            for part in blocks(centre.size, likelihood.score.size, _BLOCK):
                evidence[part] += likelihood.products(centre[part], sd[part])[0]
        return np.asarray(
            evidence.reshape(column.shape) - 0.5 * column**2 + prior[:, None], dtype=np.float64
        )

    def first_bracket(self, row: FloatArray) -> tuple[FloatArray, FloatArray]:
        """Return the bracket of g, a standard normal a priori."""
        return np.full(row.size, -_FIRST_BRACKET), np.full(row.size, _FIRST_BRACKET)


def _roots(log_odds: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Return √ρ and √(1 − ρ)."""
    return np.sqrt(special.expit(log_odds)), np.sqrt(special.expit(-log_odds))


def predictive_ratios(likelihoods: Sequence[Likelihood]) -> list[FloatArray]:
    """Return the log of the prior that each task gets from the others, over its own.

    Parameters
    ----------
    likelihoods : sequence of Likelihood
        Of one variable of each task, a standard normal under its own prior.

    Returns
    -------
    list of array
        For every task at the points of its likelihood: the predictive density given the other
        tasks over the standard normal.
    """
    nodes = Nodes.of(likelihoods)
    ratios = []
    for likelihood in likelihoods:
        evidence, _, sd = likelihood.products(nodes.centre, nodes.sd)
        # the posterior of the nodes given the other tasks
        log_weight = np.log(nodes.weight) - evidence - np.log(sd)
        distance = (likelihood.score[:, None] - nodes.centre) / sd
        density = special.logsumexp(log_weight - 0.5 * distance**2, axis=1)
        ratios.append(density + 0.5 * likelihood.score**2)
    return ratios


@dataclass(frozen=True, eq=False)
class SharedMean(FromTable):
    """The posterior of low + (high − low) Σ c_t b_t for the scores b_t of tasks in [0, 1].

    Parameters
    ----------
    tables : tuple of TaskTable
        The tasks.
    nodes : Nodes
        The prior that they share.
    coefficients : array, shape (T,)
        c_t, which sum to 1.
    scope : {"benchmark", "population"}
        What each b_t is the mean of.
    low, high : float
        Smallest and largest possible score.
    """

    tables: tuple[TaskTable, ...]
    nodes: Nodes
    coefficients: FloatArray
    scope: Scope
    low: float
    high: float
    mean: float = field(init=False)
    sd: float = field(init=False)
    at_node: Cumulants = field(init=False, repr=False)
    movement: FloatArray = field(init=False, repr=False)

    def __post_init__(self) -> None:
        (at_node, movement), weight = self._cumulants(), self.nodes.weight
        mean = float(weight @ at_node.mean)
        sd = float(np.sqrt(weight @ (at_node.variance + (at_node.mean - mean) ** 2)))
        span = self.high - self.low
        score = float(np.clip(self.low + span * mean, self.low, self.high))
        object.__setattr__(self, "at_node", at_node)
        object.__setattr__(self, "movement", movement)
        object.__setattr__(self, "mean", score)
        object.__setattr__(self, "sd", span * sd)

    def _cumulants(self) -> tuple[Cumulants, FloatArray]:
        """Return the cumulants of Σ c_t b_t at every node, and how its mean changes over cells.

        The changes, (1, G), are 0 where the sd at the node is larger.
        """
        nodes = self.nodes
        sums = np.zeros((6, nodes.weight.size))
        slope = np.zeros(nodes.weight.size)
        for table, coefficient in zip(self.tables, self.coefficients, strict=True):
            given = table.given(self.scope)
            moments, z = given.raw_moments(), table.mean.score
            values = np.column_stack([moments, z, z * moments[:, 1]])
            for part in blocks(nodes.weight.size, table.mean.score.size, _BLOCK):
                _, integrand, sd = table.mean.products(nodes.centre[part], nodes.sd[part])
                raw = integrand @ values
                cumulants = node_cumulants(raw[:, :5], float(coefficient), given.centre)
                sums[:, part] += np.stack(cumulants)
                # d E b / d centre = Cov(b, z) / sd²
                first, score, product = (raw[:, [1, 5, 6]] / raw[:, :1]).T
                slope[part] += coefficient * (product - first * score) / sd**2
        # a spread below this is a point; its higher cumulants are rounding errors
        deviation = nodes.weight @ (sums[0] - nodes.weight @ sums[0]) ** 2
        total = float(nodes.weight @ sums[1] + deviation)
        sums[1] = np.maximum(sums[1], _POINT**2 * total)
        at_node = Cumulants(*sums)
        return at_node, wide_cells((np.abs(slope) * nodes.step)[None], at_node)

    @cached_property
    def table(self) -> CdfTable:  # type: ignore[override]  # an attribute, computed once
        """The distribution function of the mean."""
        span = self.high - self.low
        if span == 0.0 or self.sd == 0.0:
            return CdfTable(np.array([0.0, 1.0]), np.full(2, self.mean))
        mu, sigma = (self.mean - self.low) / span, self.sd / span
        weight = self.nodes.weight
        if is_nearly_normal(weight, self.at_node, sigma):
            unit = edgeworth_table(weight, self.at_node, self.movement, mu, sigma)
        else:
            unit = self._inverted(mu, sigma)
        return unit.scaled(self.low, self.high)

    def _inverted(self, mu: float, sigma: float) -> CdfTable:
        """Tabulate the distribution function of Σ c_t b_t by inverting its Fourier transform.

        The transform is that of the sum plus a small normal variable, which keeps its masses
        from oscillating where a density begins at 0 or 1; the table has the exact sd.
        """
        nodes = self.nodes
        length = min(2.0 * _WINDOW * sigma, 1.0 + 2.0 * _MARGIN * _WINDOW * sigma)
        # the scores are within [0, 1]
        start = max(mu - 0.5 * length, -_MARGIN * _WINDOW * sigma)
        start = min(start, 1.0 + _MARGIN * _WINDOW * sigma - length)
        frequency = np.arange(_FREQUENCIES + 1) * (2.0 * np.pi / length)
        centres = [table.given(self.scope).centre for table in self.tables]
        shift = float(self.coefficients @ centres) - start
        by_task = [
            table.given(self.scope).transform(frequency * coefficient)
            for table, coefficient in zip(self.tables, self.coefficients, strict=True)
        ]
        total = np.zeros(frequency.size, dtype=np.complex128)
        for part in blocks(nodes.weight.size, frequency.size, _BLOCK):
            # sinc(x) is sin(πx)/(πx), the transform of an even spread over the cell
            spread = np.sinc(self.movement[0, part, None] * frequency / (2.0 * np.pi))
            product = (spread * nodes.weight[part, None]).astype(np.complex128)
            for table, transform in zip(self.tables, by_task, strict=True):
                _, integrand, _ = table.mean.products(nodes.centre[part], nodes.sd[part])
                integrand /= integrand.sum(axis=1, keepdims=True)
                product *= integrand @ transform.real + 1j * (integrand @ transform.imag)
            total += product.sum(axis=0)
        total *= np.exp(1j * frequency * shift - 0.5 * (_TAPER * frequency / frequency[-1]) ** 2)
        density: FloatArray = np.asarray(
            fft.irfft(total.conj(), n=2 * _FREQUENCIES), dtype=np.float64
        )
        mass: FloatArray = np.maximum(density, 0.0)
        points: FloatArray = start + np.arange(2.0 * _FREQUENCIES) * (length / (2 * _FREQUENCIES))
        return tabulate(mass / mass.sum(), points, mu, sigma).clipped(0.0, 1.0)


class TaskMeans:
    """Tasks that share a prior on their means, and the posteriors of weighted means over them.

    Parameters
    ----------
    tasks : mapping of str to Outcomes
        At least one.
    posteriors : mapping of str to Posterior, optional
        hbayes@N of each task, in either scope; computed if left out.
    seed : int
        Seed of the draws, where there are any.

    Raises
    ------
    InvalidInputError
        If `tasks` are not a mapping to outcomes.
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
    def _tables(self) -> tuple[TaskTable, ...]:
        tasks = {name: trials for name, task in self.tasks.items() if (trials := _trials(task))}
        binary = {name: BinaryTask.of(*trials) for name, trials in tasks.items()}
        ratios = predictive_ratios([task.strength for task in binary.values()]) if binary else []
        by_name = {
            name: task.table(ratio)
            for (name, task), ratio in zip(binary.items(), ratios, strict=True)
        }
        for (name, task), own in zip(self.tasks.items(), self.posteriors, strict=True):
            if name not in by_name:
                population = own
                if own.scope != "population":
                    population = hbayes_at_n(task, "population", seed=self.seed)
                by_name[name] = category_table(population, task)
        return tuple(by_name[name] for name in self.tasks)

    @cached_property
    def _nodes(self) -> Nodes:
        return Nodes.of([table.mean for table in self._tables])

    def weights(self, weights: TaskWeights | Mapping[str, float]) -> FloatArray:
        """Return the weights of the tasks, in their order, which sum to 1.

        Raises
        ------
        InvalidInputError
            If they break their rule.
        """
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
        low, high = share @ np.array([task.bounds for task in outcomes])
        spans = share * np.array([task.bounds[1] - task.bounds[0] for task in outcomes])
        spans = spans if spans.sum() > 0.0 else share
        distribution = SharedMean(
            self._tables,
            self._nodes,
            read_only(spans / spans.sum(), np.float64),
            spec.scope,
            float(low),
            float(high),
        )
        sizes = np.array([task.n_questions for task in outcomes], dtype=np.float64)
        ranges = [task.trials_range for task in outcomes]
        own = [posterior.per_question for posterior in self.posteriors]
        sample_sizes = [post.ess for post in self.posteriors if post.ess is not None]
        return Posterior(
            quantity=_QUANTITY,
            mu=distribution.mean,
            sigma=distribution.sd,
            per_question=PerQuestion(
                read_only(np.concatenate([task.mu for task in own]), np.float64),
                read_only(np.concatenate([task.sigma for task in own]), np.float64),
            ),
            bounds=(float(low), float(high)),
            prior=None,
            distribution=distribution,
            scope=spec.scope,
            level=spec.level,
            method=spec.method,
            n_trials=float(sizes @ [task.mean_trials for task in outcomes] / sizes.sum()),
            trials_range=(min(least for least, _ in ranges), max(most for _, most in ranges)),
            ess=min(sample_sizes) if sample_sizes else None,
            seed=spec.seed if sample_sizes else None,
            note=self._note(spec.scope),
        )

    def _note(self, scope: Scope) -> str | None:
        """Return the warnings of the tasks, and which have no trials."""
        without = [name for name, task in self.tasks.items() if task.mean_trials == 0.0]
        if len(without) == len(self.tasks):
            return NO_TRIALS
        notes: list[str | None] = [
            posterior_note(task, scope, post.ess)
            for (name, task), post in zip(self.tasks.items(), self.posteriors, strict=True)
            if name not in without
        ]
        rubrics = [name for name, task in self.tasks.items() if task.top_categories() is None]
        if rubrics:
            notes.append(f"{BY_MOMENTS} {', '.join(rubrics)}.")
        bounds = sorted({task.bounds for task in self.tasks.values()})
        if len(bounds) > 1:
            ranges = ", ".join(f"{low:g} to {high:g}" for low, high in bounds)
            notes.append(f"The tasks' scores have different bounds, {ranges}: so has their mean.")
        if without:
            notes.append(f"Predicted from the other tasks, without trials: {', '.join(without)}.")
        return joined_notes(notes)


def _trials(outcomes: Outcomes) -> tuple[FloatArray, FloatArray] | None:
    """Return the trials of the larger and of the smaller weight, prior ones by theirs, each (M,).

    None for more than two distinct weights.
    """
    at_top = outcomes.top_categories()
    return None if at_top is None else trials_by_weight(outcomes, at_top)


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
        the task's are a sample of. The tasks themselves are these in both.
    level : float
        Posterior mass of the result's `interval()`, strictly between 0 and 1.
    interval : {"exact", "normal", "beta", "hdi"}
        Its method.
    seed : int
        Seed of draws, where there are any.

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
    With z_t the normal score of task t's mean m_t, Φ(z_t) = F(m_t) where F is the distribution
    function of the prior of m in `hbayes_at_n`, z_t = √ρ g + √(1 − ρ) e_t with g and e_t standard
    normal and ρ uniform on (0, 1). The normal scores of the strengths s_t share a prior of the
    same kind; each task's is replaced by its predictive distribution given the other tasks. g, ρ
    and the strengths are integrated out by quadrature. The mean over tasks is a mixture over g
    and ρ of sums of independent scores, by Edgeworth's expansion or, where that is not accurate,
    by inversion of the Fourier transform.

    A task of more than two distinct weights enters by moments: the likelihood of its mean is that
    of a binomial with the mean and sd of its own posterior, its strength is its own, and the
    `note` names it. Weights need not be on one scale; the means share their prior as shares of
    the range of each task's weights.

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
