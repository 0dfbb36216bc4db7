"""The checks of a gate for continuous integration: is a model worse, or below a score?

A check has three outcomes: it fails, it passes, or the trials do not suffice to know. It also fails
where questions of A have no trial that counts.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Literal, NamedTuple, TypeAlias

import numpy as np

from lm_eval_bayes._util.plain import Record
from lm_eval_bayes._util.text import (
    first_names,
    format_score,
    plural,
    questions_in_words,
    shorten_middle,
)
from lm_eval_bayes.analysis.comparability import ARE_COPIES
from lm_eval_bayes.analysis.comparison import RunComparison, TaskComparison
from lm_eval_bayes.analysis.plan import apart_sentence, pair_forecast
from lm_eval_bayes.analysis.settings import settings_posterior
from lm_eval_bayes.errors import InvalidInputError
from lm_eval_bayes.runs.task_run import TaskRun
from lm_eval_bayes.stats import (
    CONFIDENCE,
    Interval,
    IntervalSpec,
    Outcomes,
    Posterior,
    Summary,
    TrialsForecast,
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
#: Outcomes, the one that decides on all checks first.
_WORST_FIRST: tuple[GateOutcome, ...] = ("failed", "not known yet", "passed")
#: Ids of questions that a sentence names.
_NAMED = 5


@dataclass(frozen=True)
class GateCheck(Record):
    """The outcome of one check.

    Attributes
    ----------
    check : {"worse", "below"}
        Whether A is worse than B, or below a score.
    quantity : str
        "score", the mean over questions, "pass^k", or "question": every question by itself.
    where : str
        What it is about, such as "on these 40 questions".
    outcome : {"failed", "passed", "not known yet"}
        "failed" where the 95% interval of A − B, or of A, lies below the limit, and "passed" where
        it lies above. Of scores A is worse, and without a margin better, only where A and B are
        distinguishable.
    probability : float
        The posterior probability of the failure: P(A < B − margin), or P(A < limit), of questions
        the largest.
    limit : float
        The margin of "worse", at least 0, or the score of "below".
    estimate : float
        Posterior mean of A − B, or of A, of questions the lowest.
    interval : Interval
        The 95% interval of A − B, or of A.
    forecast : TrialsForecast or None
        The trials after which scores may be distinguishable; see `pair_forecast`.
    without_trials : int
        Questions of A without a trial that counts, as where an agent ended in an error. A check
        with such questions fails: what is missing may be what A cannot do.
    copies : bool
        Whether the two runs are identical on every task, see `identical_runs`.
    extrapolated_from : int or None
        The smallest number of trials of a question with trials where k of "pass^k" exceeds it.
    questions : tuple of str
        Of "question", the ids of those below the limit, or where there is none, of those that are
        not known to reach it.
    settings : Summary or None
        A − B, or A, in settings like these, of a score and several settings; see
        `settings_difference`. The outcome is about these settings alone.
    """

    check: Literal["worse", "below"]
    quantity: str
    where: str
    outcome: GateOutcome
    probability: float
    limit: float
    estimate: float
    interval: Interval
    forecast: TrialsForecast | None = None
    without_trials: int = 0
    copies: bool = False
    extrapolated_from: int | None = None
    questions: tuple[str, ...] = ()
    settings: Summary | None = None

    @property
    def _like_these(self) -> str:
        """That an outcome in these settings is not known in settings like these; else ""."""
        ends, limit = self.settings, -self.limit if self.check == "worse" else self.limit
        is_open = ends is not None and ends.low <= limit <= ends.high
        return ", not known in settings like these" * (is_open and self.outcome != "not known yet")

    def sentence(self, a: str, b: str) -> str:
        """Return the outcome in words, of models with these names."""
        if self.without_trials:
            return (
                f"{plural(self.without_trials, 'question')} without a trial of {a} that counts "
                "(--unscored wrong counts trials without a score as wrong)"
            )
        if self.quantity == "question":
            return self._of_questions(a)
        known = self.outcome != "not known yet"
        be = "may be" if not known else "is" if self.outcome == "failed" else "is not"
        where = f"in {self.quantity} " * (self.quantity != "score") + self.where + self._like_these
        if self.check == "below":
            return f"{a} {be} below {self.limit:g} {where}"
        if self.limit or self.quantity != "score":
            margin = f" by more than {self.limit:g}" if self.limit else ""
            return f"{a} {be} worse than {b}{margin} {where}"
        if known:
            better = "worse" if self.outcome == "failed" else "better"
            return f"{a} is {better} than {b}: distinguishable {where}"
        if self.copies:
            return f"{a} and {b} {ARE_COPIES}"
        forecast = "" if self.forecast is None else f". {apart_sentence(self.forecast)}"
        return f"{a} and {b} are not distinguishable {where}{forecast.removesuffix('.')}"

    def _of_questions(self, a: str) -> str:
        n = len(self.questions)
        if not n:
            return f"no question of {a} is below {self.limit:g}"
        be = "may be" if self.outcome == "not known yet" else "is" if n == 1 else "are"
        first = first_names([shorten_middle(question, 20) for question in self.questions], _NAMED)
        return f"{plural(n, 'question')} of {a} {be} below {self.limit:g}: {first}"

    def numbers(self) -> str:
        """Return the estimate with its interval, and when the check fails."""
        what, fails = ("A - B", -self.limit) if self.check == "worse" else ("A", self.limit)
        what = "lowest question" if self.quantity == "question" else what
        values = [self.estimate, self.interval.low, self.interval.high]
        if self.settings is not None:
            values += [self.settings.low, self.settings.high]
        estimate, low, high, *like = (
            "+" * (what == "A - B" and value > 0) + format_score(value) for value in values
        )
        k = self.extrapolated_from
        return (
            f"{what} {estimate} (95%: {low} to {high}"
            + (f"; in settings like these {' to '.join(like)}" if like else "")
            + "); fails "
            + ("if distinguishable and negative" if fails == 0.0 else f"below {fails:g}")
            + ("" if k is None else f"; extrapolated from N = {k}")
        )


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
    if every_question and (margin is not None or floor is None):
        rule = "be score or pass^K with a margin; a question is compared with a floor"
        raise InvalidInputError.of("on", "conflict", rule, "question")
    family = None if pass_hat_k is None else _pass_hat_k(comparison, pass_hat_k)
    checks = []
    if margin is not None:
        checks.append(_worse(comparison, margin, family))
    if floor is not None:
        checks += _below(comparison, floor, family, every_question)
    without = sum(int((task.a.outcomes.n_trials == 0).sum()) for task in comparison.tasks)
    if without:
        checks = [replace(check, outcome="failed", without_trials=without) for check in checks]
    return tuple(checks)


def gate_outcome(outcomes: Iterable[GateOutcome]) -> GateOutcome:
    """Return the outcome of all checks: failed if one is, passed if all are."""
    return min(outcomes, key=_WORST_FIRST.index)


def _worse(comparison: RunComparison, margin: float, family: _Family | None) -> GateCheck:
    """Check whether A is worse than B."""
    where = comparison.where
    if family is not None:
        check = _checked("worse", family.quantity, where, family.difference, -margin)
        return replace(check, extrapolated_from=family.extrapolated_from)
    check = _checked("worse", "score", where, comparison.summary.posterior, -margin)
    check = replace(check, settings=comparison.settings_at_95)
    if margin == 0.0 and comparison.distinguishable:
        return replace(check, outcome="failed" if check.estimate < 0.0 else "passed")
    if not comparison.distinguishable and (margin == 0.0 or check.outcome == "failed"):
        check = replace(check, outcome="not known yet")
    forecast = pair_forecast(comparison) if margin == 0.0 else None
    return replace(check, forecast=forecast, copies=comparison.copies)


def _below(
    comparison: RunComparison, floor: float, family: _Family | None, every_question: bool
) -> list[GateCheck]:
    """Check on every task whether A, its Pass^k or one of its questions is below a score."""
    checks, at_95 = [], replace(comparison.spec, level=CONFIDENCE)
    for task in comparison.tasks:
        low, high = task.a.outcomes.bounds if family is None else (0.0, 1.0)
        quantity = "score" if family is None else family.quantity
        if not low < floor <= high:
            rule = f"be above {low:g} and at most {high:g}, the bounds of the {quantity}"
            raise InvalidInputError.of("floor", "range", rule, floor)
        where = _where(comparison, task)
        if every_question:
            checks.append(_every_question(task.a, floor, where))
            continue
        score = task.comparison.a if family is None else family.a
        check = _checked("below", quantity, where, score, floor)
        k = None if family is None else family.extrapolated_from
        posterior, _ = settings_posterior(task.a, at_95)
        settings = None if family or posterior is None else posterior.like.get(at_95.scope)
        checks.append(replace(check, extrapolated_from=k, settings=settings))
    return checks


def _where(comparison: RunComparison, task: TaskComparison) -> str:
    """Return what a score is about: "on these 40 questions", of several tasks with the name."""
    of_task = "" if comparison.overall is None else f" of {task.task}"
    scope, n = comparison.spec.scope, task.comparison.n_questions
    return f"on {questions_in_words(scope, n)}{of_task}"


def _checked(
    check: Literal["worse", "below"],
    quantity: str,
    where: str,
    posterior: Posterior,
    threshold: float,
) -> GateCheck:
    """Check whether a score, or a difference, is below a threshold."""
    p_below = 1.0 - p_above(posterior, threshold)
    outcome: GateOutcome = "not known yet"
    if p_below >= _LIMIT:
        outcome = "failed"
    elif 1.0 - p_below >= _LIMIT:
        outcome = "passed"
    interval = posterior.interval_by(IntervalSpec(CONFIDENCE, posterior.scope))
    limit = abs(threshold) if check == "worse" else threshold
    return GateCheck(check, quantity, where, outcome, p_below, limit, posterior.mu, interval)


class _Family(NamedTuple):
    """Pass^k of A and of A − B; and the fewest trials of a question, where k exceeds them."""

    quantity: str
    a: Posterior
    difference: Posterior
    extrapolated_from: int | None


def _pass_hat_k(comparison: RunComparison, k: int) -> _Family:
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
    fewest = int(n_trials[n_trials > 0].min())
    return _Family(f"pass^{k}", a, difference_posterior(a, b), fewest if k > fewest else None)


def _every_question(run: TaskRun, floor: float, where: str) -> GateCheck:
    """Check whether every question with trials reaches a score, by its own trials."""
    if run.scored:
        rule = "be left out where trials have scores"
        raise InvalidInputError.of("on", "unsupported", rule, "question")
    rows = np.flatnonzero(run.outcomes.n_trials).tolist()
    counts, weights = run.outcomes.counts, run.outcomes.weights
    checks = [
        _checked(
            *("below", "question", where),
            *(bayes_at_n(Outcomes.from_counts(counts[[row]], weights=weights)), floor),
        )
        for row in rows
    ]
    p_below = np.array([check.probability for check in checks])
    below = p_below >= 1.0 - (1.0 - _LIMIT) / len(rows)
    named = np.flatnonzero(below if below.any() else 1.0 - p_below < _LIMIT).tolist()
    outcome: GateOutcome = "failed" if below.any() else "not known yet" if named else "passed"
    questions = tuple(run.question_name(rows[i]) for i in named)
    return replace(checks[int(p_below.argmax())], outcome=outcome, questions=questions)
