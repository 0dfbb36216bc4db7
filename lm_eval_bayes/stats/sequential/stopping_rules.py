"""Stopping rules: the width of an interval, and what all rules share.

A rule evaluates the posteriors at an interim analysis, after some number of trials per question.
Repeated analyses have repeated chances of an error. For decisions this inflates the error rate;
see :mod:`lm_eval_bayes.stats.sequential.decision` for its size and for corrections. For widths it
hardly matters: the width of an interval depends on the number of trials and on the distance of
the scores from ½, and is nearly independent of the side on which the true score lies.
``examples/stopping_error_rates.py`` measures both.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from lm_eval_bayes._util.plain import Record
from lm_eval_bayes._util.validation import (
    check_count,
    check_level,
    check_option,
    check_positive,
    check_rising,
)
from lm_eval_bayes.errors import InvalidInputError
from lm_eval_bayes.stats.intervals import METHODS, IntervalMethod
from lm_eval_bayes.stats.results import Posterior, check_leaderboard

#: The largest number of planned analyses: the thresholds of more take minutes.
_MOST_ANALYSES = 10_000


@dataclass(frozen=True)
class StopVerdict(Record):
    """The verdict of a rule at an interim analysis.

    Attributes
    ----------
    stop : bool
        Whether to stop sampling.
    rule : str
        The rule that says so.
    reason : str
        Why, in a sentence.
    trials : int
        Trials per question at this analysis.
    value, threshold : float or None
        The statistic of the rule, and the value at which it stops; None where this analysis is
        not a planned one.
    winner : str or None
        The better model, where the rule decided on one.
    note : str or None
        The effect of repeated analyses on this verdict.
    """

    stop: bool
    rule: str
    reason: str
    trials: int
    value: float | None = None
    threshold: float | None = None
    winner: str | None = None
    note: str | None = None


@dataclass(frozen=True)
class WidthReached:
    """Stop once every model's credible interval is at most `width` wide.

    Parameters
    ----------
    width : float
        Above 0, on the scale of the score.
    level : float
        Level of the intervals, in (0, 1).
    method : {"normal", "beta", "exact"}, optional
        Left out, each posterior's own.
    min_trials : int
        The least number of trials per question, however narrow the intervals are. With one
        trial the width of the interval under a learned prior depends on the prior alone.

    Raises
    ------
    InvalidInputError
        If an argument breaks its rule.

    Examples
    --------
    >>> from lm_eval_bayes.stats.outcomes import Outcomes
    >>> from lm_eval_bayes.stats.uniform_prior import bayes_at_n
    >>> posterior = bayes_at_n(Outcomes.from_counts([[3, 5], [6, 2], [4, 4]]))
    >>> WidthReached(0.2).evaluate(8, {"a": posterior}).reason
    'the widest interval ("a") is 0.329 wide, more than 0.2'
    """

    width: float
    level: float = 0.95
    method: IntervalMethod | None = None
    min_trials: int = 2

    def __post_init__(self) -> None:
        object.__setattr__(self, "width", check_positive("width", self.width))
        object.__setattr__(self, "level", check_level(self.level))
        if self.method is not None:
            object.__setattr__(self, "method", check_option("method", self.method, METHODS))
        object.__setattr__(self, "min_trials", check_count("min_trials", self.min_trials, 1))

    def evaluate(self, trials: int, posteriors: Mapping[str, Posterior]) -> StopVerdict:
        """Evaluate the posteriors of the models after `trials` trials per question.

        Raises
        ------
        InvalidInputError
            If the posteriors cannot be compared with each other, or `trials` is no count or not
            what they rest on.
        """
        trials = check_analysis(trials, posteriors)
        widths = {
            name: posteriors[name].interval(self.level, self.method).width
            for name in check_leaderboard(posteriors)
        }
        widest = max(widths, key=widths.__getitem__)
        narrow = widths[widest] <= self.width
        relation = "at most" if narrow else "more than"
        reason = f'the widest interval ("{widest}") is {widths[widest]:.3g} wide, {relation}'
        reason += f" {self.width:g}"
        if narrow and trials < self.min_trials:
            reason += f", but there are fewer than {self.min_trials} trials"
        stop = narrow and trials >= self.min_trials
        return StopVerdict(stop, "width reached", reason, trials, widths[widest], self.width)


def check_analysis(trials: object, posteriors: object) -> int:
    """Return the number of trials of an interim analysis, once the posteriors rest on as many.

    Prior trials are not counted. Where questions differ in their numbers of trials, as when
    some failed, `trials` may be any number from the fewest to the most. A posterior without
    `trials_range` is not checked.

    Parameters
    ----------
    trials : int
        Trials a question, at least 1.
    posteriors : mapping of str to Posterior
        Anything else is left to the rules to refuse.

    Raises
    ------
    InvalidInputError
        If `trials` is no count, or a posterior rests on another number of trials.

    Examples
    --------
    >>> from lm_eval_bayes.stats.outcomes import Outcomes
    >>> from lm_eval_bayes.stats.uniform_prior import bayes_at_n
    >>> posterior = bayes_at_n(Outcomes.from_counts([[3, 5], [6, 2]]))
    >>> check_analysis(8, {"a": posterior})
    8
    >>> check_analysis(16, {"a": posterior})
    Traceback (most recent call last):
    lm_eval_bayes.errors.InvalidInputError: `trials` must be the trials per question that the \
posteriors rest on (8 for "a"); got 16
    """
    number = check_count("trials", trials, 1)
    for name, posterior in posteriors.items() if isinstance(posteriors, Mapping) else ():
        if not isinstance(posterior, Posterior) or posterior.trials_range is None:
            continue
        fewest, most = posterior.trials_range
        if not fewest <= number <= most:
            behind = f"{most}" if fewest == most else f"{fewest} to {most}"
            rule = f'be the trials per question that the posteriors rest on ({behind} for "{name}")'
            raise InvalidInputError.of("trials", "mismatch", rule, number)
    return number


def check_analyses(analyses: object) -> tuple[int, ...]:
    """Return planned interim analyses as an increasing tuple of numbers of trials.

    Raises
    ------
    InvalidInputError
        If they are no such numbers.

    Examples
    --------
    >>> check_analyses(range(4, 7))
    (4, 5, 6)
    """
    rule = "be numbers of trials, at least 1 and increasing"
    return tuple(check_rising("analyses", analyses, rule, 1, _MOST_ANALYSES))


def batches(batch_trials: int, most: int) -> list[int]:
    """Return the trials per question after each batch; the last batch may be smaller.

    Examples
    --------
    >>> batches(4, 10)
    [4, 8, 10]
    """
    steps = list(range(batch_trials, most + 1, batch_trials))
    return steps if steps and steps[-1] == most else [*steps, most]
