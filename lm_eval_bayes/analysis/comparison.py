"""Two models side by side: which is better, how surely, and on which questions."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from lm_eval_bayes.analysis.mean_difference import MeanDifference, mean_difference
from lm_eval_bayes.analysis.comparability import (
    check_counted_alike,
    check_same_questions,
    check_same_scores,
    question_number,
)
from lm_eval_bayes.analysis.wording import verdict_in_words
from lm_eval_bayes.errors import InvalidInputError
from lm_eval_bayes.runs.consistency import check_together
from lm_eval_bayes.runs.task_run import TaskRun
from lm_eval_bayes.stats.comparison.alignment import Align
from lm_eval_bayes.stats.comparison.compare import Comparison, compare
from lm_eval_bayes.stats.comparison.pass_curves import PassCurveComparison, compare_pass_curves
from lm_eval_bayes.stats.comparison.single_trial import SingleTrialComparison, compare_paired
from lm_eval_bayes.stats.intervals import IntervalMethod, Scope


@dataclass(frozen=True)
class QuestionDifference:
    """One question's part in a difference.

    Attributes
    ----------
    question_id, text : str
        The question; its text is somebody else's words, "" where it is not known.
    a, b : tuple of int
        How many trials ended in every category.
    difference, sd : float
        Posterior mean and sd of A's score minus B's on this question.
    share : float
        What it adds to the difference of the benchmark's scores: `difference` / M.
    """

    question_id: str
    text: str
    a: tuple[int, ...]
    b: tuple[int, ...]
    difference: float
    sd: float
    share: float

    def to_dict(self) -> dict[str, Any]:
        """Return plain JSON types."""
        return {
            "question_id": self.question_id,
            "text": self.text,
            "a": list(self.a),
            "b": list(self.b),
            "difference": self.difference,
            "sd": self.sd,
            "share": self.share,
        }


@dataclass(frozen=True, eq=False)
class TaskComparison:
    """Two models on one task.

    Attributes
    ----------
    task : str
        The task.
    a, b : TaskRun
        The runs.
    comparison : Comparison
        What the trials say of A − B.
    questions : tuple of QuestionDifference
        Those that drive the difference most, the largest first.
    paired : SingleTrialComparison or None
        The paired model of [Bowyer 2025, §3.4], for one trial a question in scope "population".
    curves : PassCurveComparison or None
        The whole Pass@k curves, where they were asked for.
    differs : tuple of str
        What else is not the same in the two runs, one sentence each.
    """

    task: str
    a: TaskRun
    b: TaskRun
    comparison: Comparison
    questions: tuple[QuestionDifference, ...]
    paired: SingleTrialComparison | None
    curves: PassCurveComparison | None
    differs: tuple[str, ...] = ()

    @property
    def verdict(self) -> str:
        """The verdict in words."""
        c = self.comparison
        return verdict_in_words(c.p_a_greater, c.confidence, c.rope, c.p_rope)

    def to_dict(self) -> dict[str, Any]:
        """Return plain JSON types."""
        plain = self.comparison.to_dict()
        for side, run in (("a", self.a), ("b", self.b)):
            del plain[side]["per_question"]
            plain[side]["n_range"] = list(run.outcomes.trials_range)
        return {
            "task": self.task,
            **plain,
            "verdict": self.verdict,
            "questions": [one.to_dict() for one in self.questions],
            "paired": None if self.paired is None else self.paired.to_dict(),
            "pass_at_k": None if self.curves is None else self.curves.to_dict(),
            "differs": list(self.differs),
        }


@dataclass(frozen=True, eq=False)
class RunComparison:
    """Two models on all tasks that both have.

    Attributes
    ----------
    tasks : tuple of TaskComparison
        One a task.
    overall : MeanDifference or None
        The mean over tasks; None for a single one.
    only_a, only_b : tuple of str
        Tasks that the other side lacks.
    """

    tasks: tuple[TaskComparison, ...]
    overall: MeanDifference | None
    only_a: tuple[str, ...] = ()
    only_b: tuple[str, ...] = ()

    @property
    def p_a_greater(self) -> float:
        """P(A > B) + ½ P(A = B): on the mean over tasks, or on the only one."""
        if self.overall is not None:
            return self.overall.p_a_greater
        return self.tasks[0].comparison.p_a_greater

    def to_dict(self) -> dict[str, Any]:
        """Return plain JSON types."""
        return {
            "tasks": [one.to_dict() for one in self.tasks],
            "overall": None if self.overall is None else self.overall.to_dict(),
            "only_a": list(self.only_a),
            "only_b": list(self.only_b),
            "p_a_greater": self.p_a_greater,
        }


def compare_runs(
    a: Sequence[TaskRun],
    b: Sequence[TaskRun],
    *,
    scope: Scope = "benchmark",
    level: float = 0.95,
    method: IntervalMethod = "exact",
    rope: float | None = None,
    confidence: float = 0.95,
    align: Align = "strict",
    ks: Sequence[int] | None = None,
    pass_curves: bool = False,
    n_questions: int = 5,
    seed: int = 0,
) -> RunComparison:
    """Compare two models task by task, and on the mean of the tasks that both have.

    Parameters
    ----------
    a, b : sequence of TaskRun
        The runs of either model, one a task.
    scope : {"benchmark", "population"}
        About these questions, or about questions like these.
    level, method
        Of the intervals.
    rope : float, optional
        Differences up to this, either way, do not matter.
    confidence : float
        In [0.5, 1): from this probability on the verdict calls a model better.
    align : {"strict", "intersection"}
        Whether a question that one side lacks is an error, or left out.
    ks : sequence of int, optional
        Budgets of the Pass@k curves; left out, powers of two up to N, and N.
    pass_curves : bool
        Whether to compare whole Pass@k curves.
    n_questions : int
        How many of the questions that drive the difference are listed.
    seed : int
        Seed of whatever is drawn.

    Returns
    -------
    RunComparison

    Raises
    ------
    InvalidInputError
        If no task is common, the questions or scores do not match, or an argument breaks its
        rule.

    Examples
    --------
    >>> ids = ["p", "q"]
    >>> a = TaskRun.from_trials("a", "aime", [[1] * 8, [1, 1, 1, 1, 1, 1, 0, 0]], ids)
    >>> b = TaskRun.from_trials("b", "aime", [[1] * 8, [0, 0, 0, 0, 0, 0, 1, 1]], ids)
    >>> result = compare_runs([a], [b])
    >>> result.tasks[0].questions[0].question_id, result.tasks[0].verdict[:15]
    ('q', 'A is better tha')
    """
    of_a, of_b = ({run.task: run for run in side} for side in (a, b))
    common = [task for task in of_a if task in of_b]
    if not common:
        rule = f"have a task in common with A ({', '.join(of_a)})"
        raise InvalidInputError.of("B", rule, ", ".join(of_b))
    tasks = []
    for task in common:
        first, second = of_a[task], of_b[task]
        _check(first, second, align, scope)
        result = compare(
            first.outcomes,
            second.outcomes,
            scope,
            level,
            align=align,
            interval=method,
            rope=rope,
            confidence=confidence,
            seed=seed,
        )
        tasks.append(
            TaskComparison(
                task=task,
                a=first,
                b=second,
                comparison=result,
                questions=_drivers(first, second, result, n_questions),
                paired=_paired(first, second, scope, level, align, seed),
                curves=_curves(first, second, ks, scope, level, align, seed)
                if pass_curves
                else None,
                differs=tuple(check_together([first, second])),
            )
        )
    found = {one.task: one.comparison for one in tasks}
    overall = None if len(tasks) == 1 else mean_difference(found, level, method, seed)
    return RunComparison(
        tasks=tuple(tasks),
        overall=overall,
        only_a=tuple(task for task in of_a if task not in of_b),
        only_b=tuple(task for task in of_b if task not in of_a),
    )


# -- the parts -----------------------------------------------------------------------------------


def _check(a: TaskRun, b: TaskRun, align: Align, scope: Scope) -> None:
    """Refuse runs that cannot be compared, before any number is computed."""
    check_counted_alike(a, b, "B")
    check_same_scores(a, b, "B")
    if align == "strict":
        check_same_questions(a, b, "B")
    common = len(set(a.question_ids) & set(b.question_ids))
    least = 2 if scope == "population" else 1
    if common < least:
        rule = f"have at least {least} of the questions of {a.task} in common with A"
        rule += " to speak of questions like these" if common else ""
        raise InvalidInputError.of("B", rule, common)


def _drivers(
    a: TaskRun, b: TaskRun, found: Comparison, most: int
) -> tuple[QuestionDifference, ...]:
    """Return the questions with the largest differences, largest first."""
    place_a, place_b = question_number(a), question_number(b)
    # as in the core's alignment: A's order, and only what both have
    names = [name for name in a.question_ids if name in place_b]
    mean, sd = found.posterior.per_question.mu, found.posterior.per_question.sigma
    largest = np.argsort(-np.abs(mean), kind="stable")[:most].tolist()
    return tuple(
        QuestionDifference(
            question_id=names[row],
            text=_text(a, place_a[names[row]]) or _text(b, place_b[names[row]]),
            a=tuple(a.outcomes.counts[place_a[names[row]]].tolist()),
            b=tuple(b.outcomes.counts[place_b[names[row]]].tolist()),
            difference=float(mean[row]),
            sd=float(sd[row]),
            share=float(mean[row]) / len(names),
        )
        for row in largest
        if mean[row] != 0.0
    )


def _text(run: TaskRun, place: int) -> str:
    return run.questions[place] if place < len(run.questions) else ""


def _paired(
    a: TaskRun, b: TaskRun, scope: Scope, level: float, align: Align, seed: int
) -> SingleTrialComparison | None:
    """Return the paired model where it applies: one trial a question, right or wrong."""
    single = all(run.binary and run.outcomes.trials_range == (1, 1) for run in (a, b))
    ordered = bool(a.outcomes.weights[0] < a.outcomes.weights[1])
    if scope != "population" or not (single and ordered):
        return None
    return compare_paired(a.outcomes, b.outcomes, level, align=align, seed=seed)


def _curves(
    a: TaskRun,
    b: TaskRun,
    ks: Sequence[int] | None,
    scope: Scope,
    level: float,
    align: Align,
    seed: int,
) -> PassCurveComparison:
    if not (a.binary and a.outcomes.weights[0] < a.outcomes.weights[1]):
        rule = f"be left out for {a.task}, whose trials are more than right or wrong"
        raise InvalidInputError.of("pass_at_k", rule, f"{a.outcomes.n_categories} categories")
    smallest = min(a.n_common, b.n_common)
    if not smallest:
        rule = f"be left out for {a.task}, where a question has no trial"
        raise InvalidInputError.of("pass_at_k", rule, "0 trials")
    if ks is not None and scope == "population" and max(ks) > smallest:
        rule = f"be at most N about questions like these (N={smallest} on {a.task})"
        raise InvalidInputError.of("k", rule, max(ks))
    if ks is None:
        ks = sorted({2**i for i in range(smallest.bit_length()) if 2**i <= smallest} | {smallest})
    return compare_pass_curves(
        a.outcomes, b.outcomes, ks, scope=scope, level=level, align=align, seed=seed
    )
