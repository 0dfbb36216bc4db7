"""What a look at a run is: a number of trials a question, and posteriors that rest on it."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import pairwise

from lm_eval_bayes.errors import InvalidInputError
from lm_eval_bayes.stats.results import Posterior
from lm_eval_bayes.stats.validation import check_count, check_sequence

#: More planned looks than this are refused: the thresholds of so many take minutes.
_MOST_LOOKS = 10_000


def check_look(trials: object, posteriors: object) -> int:
    """Return the number of trials of a look, once the posteriors rest on as many.

    Prior trials are not counted. Where questions differ in their numbers of trials, as when
    some failed, `trials` may be any number from the fewest to the most. A posterior that does
    not tell its trials is taken at the caller's word.

    Parameters
    ----------
    trials : int
        Trials a question, at least 1.
    posteriors : mapping of str to Posterior
        What else it may be is for the rules to refuse.

    Raises
    ------
    InvalidInputError
        If `trials` is no count, or a posterior rests on another number of trials.

    Examples
    --------
    >>> from lm_eval_bayes.stats.outcomes import Outcomes
    >>> from lm_eval_bayes.stats.bayes_at_n import bayes_at_n
    >>> posterior = bayes_at_n(Outcomes.from_counts([[3, 5], [6, 2]]))
    >>> check_look(8, {"a": posterior})
    8
    >>> check_look(16, {"a": posterior})
    Traceback (most recent call last):
    lm_eval_bayes.errors.InvalidInputError: `trials` must be the trials a question that the \
posteriors rest on (8 for "a"); got 16
    """
    number = check_count("trials", trials, 1)
    for name, posterior in posteriors.items() if isinstance(posteriors, Mapping) else ():
        if not isinstance(posterior, Posterior) or posterior.trials_range is None:
            continue
        fewest, most = posterior.trials_range
        if not fewest <= number <= most:
            behind = f"{most}" if fewest == most else f"{fewest} to {most}"
            rule = f'be the trials a question that the posteriors rest on ({behind} for "{name}")'
            raise InvalidInputError.of("trials", rule, number)
    return number


def check_looks(looks: object) -> tuple[int, ...]:
    """Return planned looks as a rising tuple of numbers of trials.

    Raises
    ------
    InvalidInputError
        If they are none.

    Examples
    --------
    >>> check_looks(range(4, 7))
    (4, 5, 6)
    """
    rule = "be numbers of trials, at least 1 and rising"
    entries = check_sequence("looks", looks, rule, _MOST_LOOKS)
    checked = tuple(check_count("looks", n, 1) for n in entries)
    if not checked or any(b <= a for a, b in pairwise(checked)):
        raise InvalidInputError.of("looks", rule, list(checked))
    return checked
