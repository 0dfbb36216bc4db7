"""Where further trials are worth most: the questions that still carry the variance."""

from __future__ import annotations

import heapq

import numpy as np

from lm_eval_bayes.errors import InvalidInputError
from lm_eval_bayes.stats.outcomes import Outcomes, check_outcomes
from lm_eval_bayes.stats.results import Posterior
from lm_eval_bayes.stats.validation import IntArray, check_count, check_integer, read_only

#: More trials than this are not given one by one.
_MOST_TRIALS = 1_000_000


def allocate_trials(
    posterior: Posterior, outcomes: Outcomes, n_trials: int, most: int | None = None
) -> IntArray:
    """Share further trials out among the questions so that the score's variance falls most.

    With v_α the posterior variance of question α and ν_α the weight behind it (its trials and
    those that its prior is worth), one more trial is expected to leave v_α ν_α / (ν_α + 1), as
    for any Beta or Dirichlet posterior. Trials are given one by one to the question with the
    largest expected gain v_α / (ν_α + 1). What a posterior says of a question does not depend
    on why it was asked again, so unequal numbers of trials need no correction.

    Parameters
    ----------
    posterior : Posterior
        Of scope "benchmark", from `outcomes`.
    outcomes : Outcomes
        M questions.
    n_trials : int
        Trials to give, 1 to 10⁶.
    most : int, optional
        No question shall have more than this, the trials it has included.

    Returns
    -------
    array of int, shape (M,)
        Further trials of each question. They sum to `n_trials`, or to less where `most` ends it.

    Raises
    ------
    InvalidInputError
        If the posterior has another number of questions or scope, or a number breaks its rule.

    Examples
    --------
    >>> from lm_eval_bayes.stats.hierarchical.hbayes_at_n import hbayes_at_n
    >>> outcomes = Outcomes.from_counts([[8, 0], [4, 4], [0, 8], [7, 1]])
    >>> allocate_trials(hbayes_at_n(outcomes), outcomes, 8)
    array([0, 6, 0, 2])
    """
    check_outcomes("outcomes", outcomes)
    if not isinstance(posterior, Posterior):
        raise InvalidInputError.of("posterior", "be a Posterior", posterior)
    sigma = posterior.per_question.sigma
    if posterior.scope != "benchmark" or sigma.size != outcomes.counts.shape[0]:
        rule = f'be of scope "benchmark" and of {outcomes.counts.shape[0]} questions'
        raise InvalidInputError.of("posterior", rule, f"{posterior.scope}, {sigma.size} questions")
    if posterior.quantity not in ("bayes@N", "hbayes@N"):
        rule = "be one of bayes@N or hbayes@N"
        raise InvalidInputError.of("posterior", rule, f"a posterior of {posterior.quantity}")
    n_trials = check_integer("n_trials", n_trials, 1, _MOST_TRIALS)
    have = outcomes.counts.sum(axis=1).astype(np.int64)
    if posterior.trials_range not in (None, (have.min(), have.max())):
        rule = "rest on the trials of `outcomes`"
        raise InvalidInputError.of("posterior", rule, f"one of {posterior.trials_range} trials")
    room = np.full(have.size, n_trials)
    if most is not None:
        room = np.clip(check_count("most", most, 1) - have, 0, n_trials)
    variance = sigma.astype(np.float64) ** 2
    behind = have + _prior_weight(posterior, outcomes)
    given = np.zeros(have.size, dtype=np.int64)
    queue = [
        (-variance[i] / (behind[i] + 1.0), behind[i], i) for i in range(have.size) if room[i] > 0
    ]
    heapq.heapify(queue)
    for _ in range(n_trials):
        if not queue:
            break
        _, _, i = heapq.heappop(queue)
        variance[i] *= behind[i] / (behind[i] + 1.0)
        behind[i] += 1.0
        given[i] += 1
        if given[i] < room[i]:
            heapq.heappush(queue, (-variance[i] / (behind[i] + 1.0), behind[i], i))
    return read_only(given, np.int64)


def _prior_weight(posterior: Posterior, outcomes: Outcomes) -> float:
    """Return how many trials a question's prior is worth."""
    if posterior.learned is not None:
        return posterior.learned.strength
    each = 1.0 if posterior.prior is None else posterior.prior
    return float(each * outcomes.counts.shape[1])
