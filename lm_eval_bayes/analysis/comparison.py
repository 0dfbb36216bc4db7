"""Two models compared on the same questions: task by task, and on the mean over tasks."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from lm_eval_bayes._util.plain import NOT_IN_JSON, Record, json_name
from lm_eval_bayes._util.text import plural, questions_in_words
from lm_eval_bayes.analysis.comparability import (
    check_same_metric,
    check_same_questions,
    check_same_weights,
    identical_runs,
    question_rows,
)
from lm_eval_bayes.analysis.settings import settings_difference, settings_record
from lm_eval_bayes.analysis.summary import posterior_to_dict
from lm_eval_bayes.analysis.task_mean import mean_posterior
from lm_eval_bayes.errors import InvalidInputError
from lm_eval_bayes.runs.reader import consistency_warnings
from lm_eval_bayes.runs.task_run import TaskRun
from lm_eval_bayes.stats import (
    CONFIDENCE,
    DEFAULT_INTERVAL,
    Align,
    Aligned,
    Comparison,
    DifferenceSummary,
    IntervalSpec,
    PassCurveComparison,
    Posterior,
    Scope,
    SettingsDifference,
    TaskMeans,
    align_questions,
    are_distinguishable,
    compare,
    compare_pass_curves,
    difference_posterior,
    summarise_difference,
)


@dataclass(frozen=True)
class QuestionDifference(Record):
    """A question's contribution to the difference of two models.

    Attributes
    ----------
    question_id, text : str
        The question; the text is untrusted, and "" if it is unknown.
    a, b : tuple of int
        Trials in every category; of scores their number.
    mean_a, mean_b : float
        Mean score of the trials; NaN without trials.
    difference, sd : float
        Posterior mean and sd of A's score minus B's on this question.
    """

    question_id: str
    text: str
    a: tuple[int, ...]
    b: tuple[int, ...]
    mean_a: float
    mean_b: float
    difference: float
    sd: float


@dataclass(frozen=True, eq=False)
class TaskComparison(Record):
    """Two models on a task.

    Attributes
    ----------
    task : str
        The task.
    a, b : TaskRun
        The runs.
    comparison : Comparison
        Posterior of A − B.
    distinguishable : bool
        Whether `rank` separates the two models, and the interval of A − B excludes 0.
    questions : tuple of QuestionDifference
        The questions with the largest differences, largest first.
    curves : PassCurveComparison or None
        The Pass@k curves, if requested.
    differs : tuple of str
        Warnings: what else differs between the two runs.
    copies : bool
        Whether the runs are identical, see `identical_runs`.
    settings : SettingsDifference or None
        A − B in settings like these, see `settings_difference`.
    """

    task: str
    a: TaskRun = field(metadata=NOT_IN_JSON)
    b: TaskRun = field(metadata=NOT_IN_JSON)
    comparison: Comparison = field(metadata=NOT_IN_JSON)
    distinguishable: bool
    questions: tuple[QuestionDifference, ...]
    curves: PassCurveComparison | None = field(metadata=json_name("pass_at_k"))
    differs: tuple[str, ...] = ()
    copies: bool = False
    settings: SettingsDifference | None = None

    def to_dict(self) -> dict[str, Any]:
        """Return plain JSON types."""
        content = self.comparison.to_dict()
        spec = IntervalSpec(self.comparison.interval.level, seed=self.comparison.seed or 0)
        for side, run in (("a", self.a), ("b", self.b)):
            del content[side]["per_question"]
            content[side]["n_range"] = list(run.outcomes.trials_range)
            content[side]["settings"] = settings_record(run, spec)
        return {**super().to_dict(), **content}


@dataclass(frozen=True, eq=False)
class MeanDifference(DifferenceSummary):
    """The equally weighted mean of A − B over tasks.

    Attributes
    ----------
    tasks : tuple of str
        The tasks.
    posterior : Posterior
        Posterior of the mean difference.
    interval, z, rho, p_a_greater, mc_error, rope, p_rope, rule_z
        As in `Comparison`.
    distinguishable : bool
        As in `TaskComparison`.
    """

    tasks: tuple[str, ...]
    distinguishable: bool
    posterior: Posterior = field(metadata=NOT_IN_JSON)

    def to_dict(self) -> dict[str, Any]:
        """Return plain JSON types; an infinite z becomes None."""
        return posterior_to_dict(self.posterior, self.interval) | super().to_dict()


@dataclass(frozen=True, eq=False)
class RunComparison(Record):
    """Two models on all tasks that both have.

    Attributes
    ----------
    tasks : tuple of TaskComparison
        One per task.
    overall : MeanDifference or None
        The mean over tasks; None for a single one.
    spec : IntervalSpec
        Settings of the intervals.
    only_a, only_b : tuple of str
        Tasks that the other model lacks.
    """

    tasks: tuple[TaskComparison, ...]
    overall: MeanDifference | None
    spec: IntervalSpec = field(metadata=NOT_IN_JSON)
    only_a: tuple[str, ...] = ()
    only_b: tuple[str, ...] = ()

    @property
    def copies(self) -> bool:
        """Whether the two runs are identical on every task."""
        return all(task.copies for task in self.tasks)

    @property
    def summary(self) -> Comparison | MeanDifference:
        """A − B in the mean over tasks, or on the only task."""
        return self.overall or self.tasks[0].comparison

    @property
    def where(self) -> str:
        """What A − B is about: "on these 15 questions", or "in the mean of 4 tasks"."""
        if self.overall is not None:
            return f"in the mean of {plural(len(self.tasks), 'task')}"
        n_questions = self.tasks[0].comparison.n_questions
        return f"on {questions_in_words(self.spec.scope, n_questions)}"

    @property
    def settings_at_95(self) -> SettingsDifference | None:
        """A − B in settings like these with a 95% interval; None in the mean over tasks."""
        if self.overall is not None:
            return None
        (task,), at_95 = self.tasks, replace(self.spec, level=CONFIDENCE)
        return settings_difference(task.a, task.b, at_95, task.comparison.sd**2)

    @property
    def distinguishable(self) -> bool:
        """Whether the models are distinguishable in the mean over tasks, or on the only task."""
        return (self.overall or self.tasks[0]).distinguishable

    def to_dict(self) -> dict[str, Any]:
        """Return plain JSON types."""
        return {**super().to_dict(), "p_a_greater": self.summary.p_a_greater}


def compare_runs(
    a: Sequence[TaskRun],
    b: Sequence[TaskRun],
    spec: IntervalSpec = DEFAULT_INTERVAL,
    *,
    rope: float | None = None,
    align: Align = "strict",
    ks: Sequence[int] = (),
    n_questions: int = 5,
) -> RunComparison:
    """Compare two models task by task, and on the mean of the tasks that both have.

    Parameters
    ----------
    a, b : sequence of TaskRun
        The runs of either model, one per task.
    spec : IntervalSpec
        Settings of the intervals.
    rope : float, optional
        Half-width of the region of practical equivalence around 0. From a probability of .95 on
        the models are practically equal.
    align : {"strict", "intersection"}
        Whether a question that one side lacks is an error, or left out.
    ks : sequence of int
        The k at which Pass@k is compared too, rising.
    n_questions : int
        Number of questions listed, those with the largest differences.

    Returns
    -------
    RunComparison

    Raises
    ------
    InvalidInputError
        If there is no common task, the questions or weights do not match, or an argument breaks
        its rule.

    Examples
    --------
    >>> ids = ["p", "q"]
    >>> a = TaskRun.from_trials("a", "aime", [[1] * 8, [1, 1, 1, 1, 1, 1, 0, 0]], ids)
    >>> b = TaskRun.from_trials("b", "aime", [[1] * 8, [0] * 8], ids)
    >>> result = compare_runs([a], [b])
    >>> result.tasks[0].questions[0].question_id, result.tasks[0].distinguishable
    ('q', True)
    """
    spec.require_these()
    runs_a, runs_b = ({run.task: run for run in side} for side in (a, b))
    common = [task for task in runs_a if task in runs_b]
    if not common:
        rule = f"have a task in common with A ({', '.join(runs_a)})"
        raise InvalidInputError.of("B", "mismatch", rule, ", ".join(runs_b))
    tasks, pairs = [], {}
    for task in common:
        run_a, run_b = runs_a[task], runs_b[task]
        _check_pair(run_a, run_b, align, spec.scope)
        pairs[task] = align_questions(run_a.outcomes, run_b.outcomes, align)
        pair, about = (run_a.outcomes, run_b.outcomes), (spec.scope, spec.level)
        comparison = compare(
            *pair, *about, align=align, interval=spec.method, rope=rope, seed=spec.seed
        )
        tasks.append(
            TaskComparison(
                task=task,
                a=run_a,
                b=run_b,
                comparison=comparison,
                distinguishable=_distinguishable([comparison], comparison.posterior, spec.seed),
                questions=_largest_differences(run_a, run_b, comparison, n_questions),
                curves=_pass_curves(run_a, run_b, ks, spec, align) if ks else None,
                differs=tuple(consistency_warnings([run_a, run_b])),
                copies={*run_a.question_ids} == {*run_b.question_ids}
                and bool(identical_runs([run_a, run_b])),
                settings=settings_difference(run_a, run_b, spec, comparison.sd**2),
            )
        )
    comparisons = {task.task: task.comparison for task in tasks}
    return RunComparison(
        tasks=tuple(tasks),
        overall=None if len(tasks) == 1 else mean_difference(comparisons, pairs, spec),
        spec=spec,
        only_a=tuple(task for task in runs_a if task not in runs_b),
        only_b=tuple(task for task in runs_b if task not in runs_a),
    )


def _check_pair(a: TaskRun, b: TaskRun, align: Align, scope: Scope) -> None:
    """Raise if two runs cannot be compared, before any number is computed."""
    check_same_metric(a, b, "B")
    check_same_weights(a, b, "B")
    if align == "strict":
        check_same_questions(a, b, "B", " (--align intersection compares those of both)")
    n_common = len(set(a.question_ids) & set(b.question_ids))
    n_min = 2 if scope == "population" else 1
    if n_common < n_min:
        about = ' for scope "population"' if n_common else ""
        rule = f"have at least {n_min} of the questions of {a.task} in common with A{about}"
        raise InvalidInputError.of("B", "empty", rule, n_common)


def _largest_differences(
    a: TaskRun, b: TaskRun, comparison: Comparison, n_questions: int
) -> tuple[QuestionDifference, ...]:
    """Return the questions with the largest differences, largest first.

    A question whose observed scores are the same is left out: where the numbers of trials differ,
    the posterior means of the two models may differ all the same.
    """
    rows_a, rows_b = question_rows(a), question_rows(b)
    # the order of the comparison's alignment: that of A, without what B lacks
    ids = [question for question in a.question_ids if question in rows_b]
    mean, sd = comparison.posterior.per_question.mu, comparison.posterior.per_question.sigma
    questions: list[QuestionDifference] = []
    for i in np.argsort(-np.abs(mean), kind="stable").tolist():
        sides = ((a, rows_a[ids[i]]), (b, rows_b[ids[i]]))
        mean_a, mean_b = (run.outcomes.mean_score(row) for run, row in sides)
        if len(questions) == n_questions or mean[i] == 0.0:
            break
        if mean_a != mean_b:
            texts = (run.questions[row] for run, row in sides if row < len(run.questions))
            of_a, of_b = (_counts(run, row) for run, row in sides)
            numbers = (mean_a, mean_b, float(mean[i]), float(sd[i]))
            text = next(filter(None, texts), "")
            questions.append(QuestionDifference(ids[i], text, of_a, of_b, *numbers))
    return tuple(questions)


def _counts(run: TaskRun, row: int) -> tuple[int, ...]:
    outcomes = run.outcomes
    return tuple((outcomes.n_trials[[row]] if run.scored else outcomes.counts[row]).tolist())


def _pass_curves(
    a: TaskRun, b: TaskRun, ks: Sequence[int], spec: IntervalSpec, align: Align
) -> PassCurveComparison:
    of_a, of_b = a.right_or_wrong, b.right_or_wrong
    if of_a is None or of_b is None:
        rule = f"be left out for {a.task}, whose trials are not just right or wrong"
        got = "scores" if a.scored else f"{a.outcomes.n_categories} categories"
        raise InvalidInputError.of("k", "unsupported", rule, got)
    n_min = min(a.n_common, b.n_common)
    if not n_min:
        rule = f"be left out for {a.task}, where a question has no trial"
        raise InvalidInputError.of("k", "unsupported", rule, "0 trials")
    if spec.scope == "population" and max(ks) > n_min:
        rule = f'be at most N for scope "population" (N={n_min} on {a.task})'
        raise InvalidInputError.of("k", "range", rule, max(ks))
    return compare_pass_curves(
        of_a, of_b, ks, scope=spec.scope, level=spec.level, align=align, seed=spec.seed
    )


# -- the mean over tasks -------------------------------------------------------------------------


def mean_difference(
    comparisons: Mapping[str, Comparison], pairs: Mapping[str, Aligned], spec: IntervalSpec
) -> MeanDifference:
    """Return the posterior of the equally weighted mean of A − B over tasks.

    In scope "benchmark" it is the difference of two means over tasks, in each of which the
    model's tasks share a prior, see `lm_eval_bayes.mean_over_tasks`. In scope "population" a
    task's difference is that of the trials' own means, question by question; no prior pulls it,
    and the tasks are independent: the mean of T differences has the standard deviation
    sqrt(Σ σ²)/T.

    Parameters
    ----------
    comparisons : mapping of str to Comparison
        By task; all with the same scope, rope and confidence.
    pairs : mapping of str to Aligned
        The trials of both models by task, on the same questions.
    spec : IntervalSpec
        Settings of the interval; its seed is that of the draws, if there are any.

    Examples
    --------
    >>> from lm_eval_bayes.stats.outcomes import Outcomes
    >>> a, b = Outcomes.from_counts([[2, 6]] * 9), Outcomes.from_counts([[5, 3]] * 9)
    >>> pairs = {"x": align_questions(a, b), "y": align_questions(b, a)}
    >>> comparisons = {"x": compare(a, b), "y": compare(b, a)}
    >>> mean = mean_difference(comparisons, pairs, DEFAULT_INTERVAL)
    >>> abs(mean.posterior.mu) < 0.01, round(mean.p_a_greater, 1)
    (True, 0.5)
    """
    first = next(iter(comparisons.values()))
    if first.scope == "population":
        posterior = mean_posterior([comparison.posterior for comparison in comparisons.values()])
    else:
        means = [
            TaskMeans(
                {task: pair.a if side == 0 else pair.b for task, pair in pairs.items()},
                {task: (item.a, item.b)[side] for task, item in comparisons.items()},
                seed=spec.seed,
            ).posterior("equal", replace(spec, scope="benchmark"))
            for side in (0, 1)
        ]
        posterior = difference_posterior(*means)
    sides = [side for comparison in comparisons.values() for side in (comparison.a, comparison.b)]
    summary = summarise_difference(posterior, sides, spec, first.rope)
    return MeanDifference(
        tasks=tuple(comparisons),
        posterior=posterior,
        distinguishable=_distinguishable([*comparisons.values()], posterior, spec.seed),
        **vars(summary),
    )


def _distinguishable(comparisons: Sequence[Comparison], difference: Posterior, seed: int) -> bool:
    """Return whether two models are distinguishable, as `rank` says.

    `comparisons` has one entry per task, and `difference` is the posterior of the mean of A − B.
    """
    pairs = [(task.a, task.b) for task in comparisons]
    return are_distinguishable(pairs, CONFIDENCE, seed, difference)
