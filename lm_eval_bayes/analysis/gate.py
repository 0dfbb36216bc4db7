"""The checks of a gate for continuous integration: is a model worse, or below a score?

A check has three outcomes: it fails, it passes, or the trials do not suffice to know. It also fails
where questions of A have no trial that counts.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Literal, TypeAlias

import numpy as np
from scipy import stats

from lm_eval_bayes._util.plain import Record
from lm_eval_bayes._util.text import plural, probability_statement, shorten_middle
from lm_eval_bayes.analysis.comparison import RunComparison
from lm_eval_bayes.errors import InvalidInputError
from lm_eval_bayes.runs.task_run import TaskRun
from lm_eval_bayes.stats import (
    CONFIDENCE,
    Outcomes,
    Posterior,
    align_questions,
    bayes_at_n,
    difference_posterior,
    p_above,
    pass_hat_k_posterior,
)

#: The outcome of a check.
GateOutcome: TypeAlias = Literal["failed", "passed", "not known yet"]

#: The probability at which an end of the 95% interval is the limit.
_LIMIT = 0.5 + 0.5 * CONFIDENCE
#: More further trials per question, or questions, than this are not forecast.
_MOST_FURTHER = 100_000
#: Outcomes, the one that decides on all checks first.
_WORST_FIRST: tuple[GateOutcome, ...] = ("failed", "not known yet", "passed")


@dataclass(frozen=True)
class GateCheck(Record):
    """The outcome of one check.

    Attributes
    ----------
    check : {"worse", "below"}
        Whether A is worse than B, or below a score.
    quantity : str
        "score", the mean over questions, "pass^k", or "question": every question by itself.
    outcome : {"failed", "passed", "not known yet"}
        "failed" where the 95% interval of A − B, or of A, lies below the limit, and "passed" where
        it lies above. Of the score, A is worse only where A and B are distinguishable, too.
    probability : float
        The posterior probability of the failure: P(A < B − margin), or P(A < limit), of questions
        the largest.
    limit : float
        The margin of "worse", at least 0, or the score of "below".
    estimate, sd : float
        Posterior mean and standard deviation of A − B, or of A.
    further_trials : int or None
        About how many further trials of every question make the outcome known, if the estimate
        stays where it is; None where it is known, where it takes more than 100,000, and in scope
        "population".
    further_questions : int or None
        The same for further questions in scope "population".
    without_trials : int
        Questions of A without a trial that counts, as where an agent ended in an error. A check
        with such questions fails: what is missing may be what A cannot do.
    extrapolated_from : int or None
        The smallest number of trials of a question with trials where k of "pass^k" exceeds it.
    questions : tuple of str
        Of "question", the ids of those below the limit, or where there is none, of those that are
        not known to reach it.
    """

    check: Literal["worse", "below"]
    quantity: str
    outcome: GateOutcome
    probability: float
    limit: float
    estimate: float
    sd: float
    further_trials: int | None = None
    further_questions: int | None = None
    without_trials: int = 0
    extrapolated_from: int | None = None
    questions: tuple[str, ...] = ()

    @property
    def sentence(self) -> str:
        """The outcome in words."""
        event = f"A < {self.limit:g}" if self.check == "below" else "A < B"
        if self.check == "worse" and self.limit:
            event += f" - {self.limit:g}"
        quantity = "" if self.quantity == "score" else f" ({self.quantity})"
        if self.extrapolated_from is not None:
            quantity = f" ({self.quantity}, extrapolated from N = {self.extrapolated_from})"
        in_words = {"failed": self.check, "passed": f"not {self.check}"}
        outcome = in_words.get(self.outcome, self.outcome)
        statement = probability_statement(f"P({event})", self.probability)
        if self.without_trials:
            return (
                f"failed: {plural(self.without_trials, 'question')} without a trial of A that "
                "counts (--unscored wrong counts trials without a score as wrong); "
                f"{statement}{quantity}"
            )
        if self.questions:
            first = ", ".join(shorten_middle(question, 20) for question in self.questions[:5])
            return f"{outcome}: {plural(len(self.questions), 'question')}: {first}; {statement}"
        text = f"{outcome}: {statement}{quantity}"
        if self.outcome == "not known yet":
            text += f", between {1.0 - _LIMIT:.3g} and {_LIMIT:g}"
        if self.further_trials is not None:
            further = plural(self.further_trials, "further trial")
            text += f"; about {further} per question would tell"
        if self.further_questions is not None:
            text += f"; about {plural(self.further_questions, 'further question')} would tell"
        return text


def gate_checks(
    comparison: RunComparison,
    *,
    margin: float | None = None,
    floor: float | None = None,
    pass_hat_k: int | None = None,
    every_question: bool = False,
) -> tuple[GateCheck, ...]:
    """Check whether A is worse than B, and whether A is below a score.

    With several tasks the mean over tasks of A − B is checked, and every task's score of A.

    Parameters
    ----------
    comparison : RunComparison
        From `compare_runs`.
    margin : float, optional
        A is worse if it is below B by more than this, at least 0; left out, this is not checked.
    floor : float, optional
        The score that A must reach.
    pass_hat_k : int, optional
        Check Pass^k, the probability that k of k trials are right, in place of the score.
    every_question : bool
        Check in place of the score whether every question of A reaches `floor`, each by the
        posterior of its own trials under the uniform prior. One is below it where
        P(question < floor) >= 1 − .025/M, so that all M are wrongly refused with a probability of
        at most .025; the check passes where every P(question >= floor) >= .975.

    Returns
    -------
    tuple of GateCheck

    Raises
    ------
    InvalidInputError
        If Pass^k is asked of several tasks, of scores, or in scope "population", or if no score of
        a task can be below `floor`, or none can reach it; if `every_question` is asked of scores,
        or with a margin.

    Examples
    --------
    >>> from lm_eval_bayes.analysis.comparison import compare_runs
    >>> ids = [str(i) for i in range(30)]
    >>> a = TaskRun.from_trials("new", "aime", [[0, 1, 0, 0]] * 30, ids)
    >>> b = TaskRun.from_trials("old", "aime", [[1, 1, 1, 0]] * 30, ids)
    >>> (check,) = gate_checks(compare_runs([a], [b]), margin=0.0)
    >>> check.outcome, check.probability > 0.999
    ('failed', True)
    """
    quantity = "score" if pass_hat_k is None else f"pass^{pass_hat_k}"
    extrapolated_from = None
    if pass_hat_k is None:
        scores = [task.comparison.a for task in comparison.tasks]
        bounds = [task.a.outcomes.bounds for task in comparison.tasks]
        difference = comparison.tasks[0].comparison.posterior
        if comparison.overall is not None:
            difference = comparison.overall.posterior
    else:
        score, difference, fewest = _pass_hat_k(comparison, pass_hat_k)
        scores, bounds = [score], [(0.0, 1.0)]
        extrapolated_from = fewest if pass_hat_k > fewest else None
    runs = [run for task in comparison.tasks for run in (task.a, task.b)]
    checks = []
    if margin is not None:
        pair = comparison.overall or comparison.tasks[0]
        can_fail = pass_hat_k is not None or pair.distinguishable
        checks.append(_checked("worse", quantity, difference, -margin, margin, runs, can_fail))
    if floor is not None:
        for low, high in bounds:
            if not low < floor <= high:
                rule = f"be above {low:g} and at most {high:g}, the bounds of the {quantity}"
                raise InvalidInputError.of("floor", "range", rule, floor)
    if every_question:
        if margin is not None or floor is None:
            rule = "be score or pass^K with a margin; a question is compared with a floor"
            raise InvalidInputError.of("on", "conflict", rule, "question")
        checks += [_every_question(task.a, floor) for task in comparison.tasks]
    elif floor is not None:
        checks += [_checked("below", quantity, score, floor, floor, runs) for score in scores]
    without = sum(int((task.a.outcomes.n_trials == 0).sum()) for task in comparison.tasks)
    if without:
        checks = [replace(c, outcome="failed", without_trials=without) for c in checks]
    return tuple(replace(check, extrapolated_from=extrapolated_from) for check in checks)


def gate_outcome(checks: Sequence[GateCheck]) -> GateOutcome:
    """Return the outcome of all checks: failed if one is, passed if all are."""
    return min((check.outcome for check in checks), key=_WORST_FIRST.index)


def _pass_hat_k(comparison: RunComparison, k: int) -> tuple[Posterior, Posterior, int]:
    """Return the posteriors of Pass^k of A and of A − B, and the fewest trials of a question.

    Questions without trials are left out of the fewest.
    """
    if comparison.spec.scope != "benchmark" or len(comparison.tasks) > 1:
        rule = 'be of one task, in scope "benchmark"'
        got = f"{len(comparison.tasks)} tasks, scope {comparison.spec.scope}"
        raise InvalidInputError.of("on", "unsupported", rule, got)
    (task,) = comparison.tasks
    sides = [run.right_or_wrong for run in (task.a, task.b)]
    if sides[0] is None or sides[1] is None:
        rule = "be left out where trials are neither right nor wrong"
        raise InvalidInputError.of("on", "unsupported", rule, f"pass^{k}")
    aligned = align_questions(sides[0], sides[1], "intersection")
    a, b = (pass_hat_k_posterior(side, k) for side in (aligned.a, aligned.b))
    n_trials = np.concatenate([aligned.a.n_trials, aligned.b.n_trials])
    return a, difference_posterior(a, b), int(n_trials[n_trials > 0].min())


def _every_question(run: TaskRun, floor: float) -> GateCheck:
    """Check whether every question with trials reaches a score, by its own trials."""
    if not isinstance(run.outcomes, Outcomes):
        rule = "be left out where trials have scores"
        raise InvalidInputError.of("on", "unsupported", rule, "question")
    rows = np.flatnonzero(run.outcomes.n_trials).tolist()
    counts, weights = run.outcomes.counts, run.outcomes.weights
    scores = [bayes_at_n(Outcomes.from_counts(counts[[row]], weights=weights)) for row in rows]
    p_below = np.array([1.0 - p_above(score, floor) for score in scores])
    below = p_below >= 1.0 - (1.0 - _LIMIT) / len(rows)
    named = np.flatnonzero(below if below.any() else 1.0 - p_below < _LIMIT).tolist()
    outcome: GateOutcome = "failed" if below.any() else "not known yet" if named else "passed"
    worst = int(p_below.argmax())
    return GateCheck(
        *("below", "question", outcome, float(p_below[worst]), floor),
        *(scores[worst].mu, scores[worst].sigma),
        questions=tuple(run.question_name(rows[i]) for i in named),
    )


def _checked(
    check: Literal["worse", "below"],
    quantity: str,
    posterior: Posterior,
    threshold: float,
    limit: float,
    runs: Sequence[TaskRun],
    can_fail: bool = True,
) -> GateCheck:
    """Check whether a score, or a difference, is below a threshold."""
    p_below = 1.0 - p_above(posterior, threshold)
    outcome: GateOutcome = "not known yet"
    further_trials = further_questions = None
    if p_below >= _LIMIT and can_fail:
        outcome = "failed"
    elif 1.0 - p_below >= _LIMIT:
        outcome = "passed"
    elif posterior.scope == "population":
        further_questions = _further(posterior, threshold, runs[0].n_questions)
    else:
        n_trials = float(np.mean([run.outcomes.n_trials.mean() for run in runs]))
        further_trials = _further(posterior, threshold, n_trials)
    numbers = (p_below, limit, posterior.mu, posterior.sigma)
    return GateCheck(check, quantity, outcome, *numbers, further_trials, further_questions)


def _further(posterior: Posterior, threshold: float, n: float) -> int | None:
    """Return how much more of n, of which the variance is the reciprocal, makes an outcome known.

    n (z σ / |μ − threshold|)² − n with z = 1.96.
    """
    gap = abs(posterior.mu - threshold)
    if gap == 0.0:
        return None
    further = n * ((float(stats.norm.ppf(_LIMIT)) * posterior.sigma / gap) ** 2 - 1.0)
    return None if further > _MOST_FURTHER else max(1, math.ceil(further))
