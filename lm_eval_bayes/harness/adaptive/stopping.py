"""The goal and the budget of a run that raises N round by round, checked after every round.

The stopping rules themselves are those of :mod:`lm_eval_bayes.stats.sequential`; :attr:`Goal.rule`
is the one that a goal sets.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

from lm_eval_bayes._util.plain import Record
from lm_eval_bayes._util.validation import check_count, check_level, check_option
from lm_eval_bayes.errors import InvalidInputError
from lm_eval_bayes.runs.task_run import TaskRun
from lm_eval_bayes.stats import (
    CONFIDENCE,
    CORRECTIONS,
    LEAST_TRIALS,
    Correction,
    DecisionReached,
    Outcomes,
    Posterior,
    WidthReached,
    are_distinguishable,
    batches,
    hbayes_at_n,
    pair_posterior,
    trials_needed,
)

_FORM = re.compile(r"(\d+(?:\.\d+)?(?:e\d+)?)\s*([a-z]*)", re.IGNORECASE)
_UNITS = {
    "": ("trials", 1.0),
    "trials": ("trials", 1.0),
    "tokens": ("tokens", 1.0),
    "ktokens": ("tokens", 1e3),
    "mtokens": ("tokens", 1e6),
    "s": ("hours", 1 / 3600),
    "min": ("hours", 1 / 60),
    "h": ("hours", 1.0),
    "hours": ("hours", 1.0),
}


@dataclass(frozen=True)
class Budget:
    """An amount of trials, tokens or hours.

    Attributes
    ----------
    amount : float
        Above 0.
    unit : str
        "trials" (per question), "tokens" (of all completions) or "hours" (of this run).
    """

    amount: float
    unit: str

    @classmethod
    def parse(cls, text: str) -> Budget:
        """Read "64", "64trials", "2e6tokens", "8h" or "90min".

        Raises
        ------
        InvalidInputError
            If the text has another form, or is less than one trial.

        Examples
        --------
        >>> Budget.parse("90min"), Budget.parse("64")
        (Budget(amount=1.5, unit='hours'), Budget(amount=64.0, unit='trials'))
        >>> print(Budget.parse("2e6tokens"))
        2,000,000 tokens
        """
        match = _FORM.fullmatch(text.strip())
        unit = _UNITS.get(match[2].lower()) if match else None
        if match is None or unit is None or not 0 < float(match[1]) < 1e15:
            rule = "be a number of trials, tokens or hours, such as 64, 2e6tokens, 8h or 90min"
            raise InvalidInputError.of("budget", "format", rule, text)
        amount = float(match[1]) * unit[1]
        if unit[0] == "trials" and amount < 1.0:
            raise InvalidInputError.of(
                "budget", "range", "be at least one trial per question", text
            )
        return cls(amount, unit[0])

    def __str__(self) -> str:
        return f"{self.amount:,.10g} {self.unit}" + (
            " per question" if self.unit == "trials" else ""
        )


@dataclass(frozen=True)
class InterimAnalysis(Record):
    """One task after one round: its posterior, and whether the goal is reached.

    Attributes
    ----------
    task : str
        The task.
    n_trials : float
        Trials per question, the mean where questions differ.
    fewest, most : int
        Trials of the question with the fewest, and with the most.
    mu, sigma, low, high : float
        Posterior mean, sd and credible interval of the score.
    reached : bool
        Whether the goal is reached.
    reason : str
        The quantity and the threshold that it was compared with.
    further : int or None
        Trials per question that are still needed, by forecast; None where there is none.
    further_low, further_high : int or None
        The central 90% interval of that forecast.
    note : str or None
        The stopping rule's own note: how often it errs, or where its error rate does not hold.
    distinguishable : bool or None
        Whether `compare` would call the two runs distinguishable now; None without a baseline.
    """

    task: str
    n_trials: float
    fewest: int
    most: int
    mu: float
    sigma: float
    low: float
    high: float
    reached: bool
    reason: str
    further: int | None = None
    further_low: int | None = None
    further_high: int | None = None
    note: str | None = None
    distinguishable: bool | None = None


@dataclass(frozen=True)
class Goal:
    """When a run stops, and how its trials are allocated.

    Attributes
    ----------
    width : float or None
        Stop once every task's credible interval is at most so wide.
    baseline : mapping of str to TaskRun, or None
        Stop once every task's score is above or below that of this finished run.
    baseline_name : str
        The name of that run in messages.
    budget : Budget or None
        Stop before a round would exceed it.
    batch_trials, max_trials : int
        Trials per question in a round, and in all.
    level : float
        Of the credible interval.
    correction : str
        The correction for a test after every round.
    allocate : bool
        Whether further trials go to the questions that still carry the variance.
    """

    width: float | None = None
    baseline: Mapping[str, TaskRun] | None = None
    baseline_name: str = "the baseline run"
    budget: Budget | None = None
    batch_trials: int = 4
    max_trials: int = 80
    level: float = 0.95
    correction: Correction = "pocock"
    allocate: bool = False

    def __post_init__(self) -> None:
        if self.width is None and self.baseline is None and self.budget is None:
            rule = "have a goal: --width, --decide or --budget"
            raise InvalidInputError.of("run", "missing", rule, "none of them")
        if self.width is not None and self.baseline is not None:
            raise InvalidInputError.of(
                "run", "conflict", "be given --width or --decide, not both", "both"
            )
        check_count("batch_trials", self.batch_trials, 1)
        check_count("max_trials", self.max_trials, 1)
        if self.batch_trials > self.max_trials:
            rule = f"be at most max_trials ({self.max_trials})"
            raise InvalidInputError.of("batch_trials", "range", rule, self.batch_trials)
        check_level(self.level)
        check_option("correction", self.correction, CORRECTIONS)
        corrected = self.baseline is not None and self.correction != "none"
        if corrected and self.rounds[-1] < LEAST_TRIALS[self.correction]:
            sentence = (
                f"a decision with a correction needs at least {LEAST_TRIALS[self.correction]} "
                "trials per "
                f"question; --max-trials or --budget allows {self.rounds[-1]}"
            )
            raise InvalidInputError(sentence, "range", "max_trials", self.rounds[-1])
        _ = self.rule

    @property
    def rounds(self) -> list[int]:
        """The trials per question after each round; an interim analysis follows every one."""
        most = self.max_trials
        if self.budget is not None and self.budget.unit == "trials":
            most = max(1, min(most, int(self.budget.amount)))
        return batches(self.batch_trials, most)

    @property
    def most_trials(self) -> int:
        """The most trials that a question can get; with allocation more than the last round's."""
        return self.max_trials if self.allocate else self.rounds[-1]

    @property
    def min_trials(self) -> int:
        """Trials per question before which no run stops: after one, hbayes@N rests on its prior."""
        return min(2, self.max_trials)

    @cached_property
    def rule(self) -> WidthReached | DecisionReached | None:
        """The stopping rule of the interim analyses; None where only the budget ends the run."""
        if self.width is not None:
            return WidthReached(self.width, self.level, "exact", self.min_trials)
        if self.baseline is None:
            return None
        if self.correction == "none":
            return DecisionReached(CONFIDENCE, min_trials=self.min_trials)
        if self.correction == "anytime":
            return DecisionReached(CONFIDENCE, correction=self.correction)
        return DecisionReached(CONFIDENCE, correction=self.correction, analyses=tuple(self.rounds))

    def posterior(self, outcomes: Outcomes) -> Posterior:
        """Return the posterior of the interim analyses."""
        return hbayes_at_n(outcomes, level=self.level)

    def analyze(self, graded: TaskRun, planned: int) -> InterimAnalysis:
        """Evaluate the stopping rule for one task after `planned` trials per question.

        A baseline run has the same questions; the preflight has verified that.
        """
        outcomes = graded.outcomes
        fewest, most = outcomes.trials_range
        posterior = self.posterior(outcomes)
        interval = posterior.interval(self.level, "exact")
        posteriors, estimate = {"this run": posterior}, ""
        further: dict[str, Any] = {}
        if self.baseline is not None:
            baseline = self.posterior(self.baseline[graded.task].outcomes)
            # it is finished, so its number of trials is not that of the interim analysis
            posteriors[self.baseline_name] = replace(baseline, trials_range=None)
            gap = pair_posterior(posterior, baseline)
            sides = posterior, posteriors[self.baseline_name]
            further["distinguishable"] = are_distinguishable([sides], CONFIDENCE)
            estimate = f"difference {gap.mu:+.4f} (sd {gap.sigma:.4f}), "
        verdict = None if self.rule is None else self.rule.evaluate(planned, posteriors)
        if self.width is not None and verdict is not None and not verdict.stop:
            further = self._forecast(posterior)
        return InterimAnalysis(
            task=graded.task,
            n_trials=graded.n_trials / graded.n_questions,
            fewest=fewest,
            most=most,
            mu=posterior.mu,
            sigma=posterior.sigma,
            low=interval.low,
            high=interval.high,
            reached=verdict is not None and verdict.stop,
            reason="until the budget is used" if verdict is None else estimate + verdict.reason,
            note=None if verdict is None else verdict.note,
            **further,
        )

    def _forecast(self, posterior: Posterior) -> dict[str, Any]:
        """Forecast the further trials until the width is reached; their central 90% interval."""
        try:
            forecast = trials_needed(posterior, width=self.width or 0.0, max_trials=4096)
        except InvalidInputError:
            return {}
        return {
            "further": forecast.additional,
            "further_low": forecast.additional_low,
            "further_high": forecast.additional_high,
        }
