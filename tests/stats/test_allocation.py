"""Trials given to the questions that still carry the variance."""

import itertools

import numpy as np
import pytest

from lm_eval_bayes import Outcomes, allocate_trials, bayes_at_n, hbayes_at_n, pass_at_k_posterior
from lm_eval_bayes.errors import InvalidInputError

COUNTS = [[8, 0], [4, 4], [0, 8], [7, 1]]


def expected_variance(posterior, behind, given):
    """Σ v ν / (ν + k): what k further trials are expected to leave of a Beta's variance."""
    return float(np.sum(posterior.per_question.sigma**2 * behind / (behind + given)))


@pytest.mark.parametrize("n_trials", [1, 3, 7])
@pytest.mark.parametrize("counts", [COUNTS, [[1, 1], [2, 0], [3, 9]]])
def test_no_other_way_to_share_leaves_less_variance(counts, n_trials):
    outcomes = Outcomes.from_counts(counts)
    posterior = bayes_at_n(outcomes)
    behind = outcomes.counts.sum(axis=1) + 2.0
    ways = (
        way
        for way in itertools.product(range(n_trials + 1), repeat=len(counts))
        if sum(way) == n_trials
    )
    best = min(expected_variance(posterior, behind, np.array(way)) for way in ways)
    given = allocate_trials(posterior, outcomes, n_trials)
    assert given.sum() == n_trials
    assert expected_variance(posterior, behind, given) == pytest.approx(best, rel=1e-12)


def test_a_further_trial_leaves_what_is_expected_of_a_beta():
    # E[Var after one more trial] = v ν / (ν + 1), by summing over its two outcomes
    a, b = 3.0, 6.0

    def var(x, y):
        return x * y / ((x + y) ** 2 * (x + y + 1))

    after = a / (a + b) * var(a + 1, b) + b / (a + b) * var(a, b + 1)
    assert after == pytest.approx(var(a, b) * (a + b) / (a + b + 1), rel=1e-12)


def test_nobody_gets_more_than_the_most():
    outcomes = Outcomes.from_counts(COUNTS)
    given = allocate_trials(hbayes_at_n(outcomes), outcomes, 100, most=10)
    assert given.tolist() == [2, 2, 2, 2]
    assert allocate_trials(hbayes_at_n(outcomes), outcomes, 5, most=8).sum() == 0


def test_alike_questions_share_evenly():
    outcomes = Outcomes.from_counts([[2, 2]] * 5)
    given = allocate_trials(hbayes_at_n(outcomes), outcomes, 10)
    assert given.tolist() == [2] * 5


def test_rubrics_share_too():
    outcomes = Outcomes.from_counts([[8, 0, 0], [3, 2, 3], [0, 0, 8]])
    assert allocate_trials(bayes_at_n(outcomes), outcomes, 4).tolist() == [0, 4, 0]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"posterior": 3}, "`posterior` must be a Posterior"),
        ({"n_trials": 0}, "`n_trials` must"),
        ({"n_trials": 1.5}, "`n_trials` must"),
        ({"most": 0}, "`most` must"),
        ({"n_trials": 10**9}, "`n_trials` must"),
        ({"posterior": pass_at_k_posterior(Outcomes.from_counts(COUNTS), 2)}, "bayes@N or hbayes"),
        ({"outcomes": Outcomes.from_counts([[0, 4]] * 4)}, "rest on the trials of `outcomes`"),
        ({"outcomes": Outcomes.from_counts(COUNTS[:3])}, "of 3 questions"),
        ({"outcomes": [[1, 2]]}, "`outcomes` must"),
    ],
)
def test_bad_input_is_named(change, message):
    outcomes = Outcomes.from_counts(COUNTS)
    given = {"posterior": bayes_at_n(outcomes), "outcomes": outcomes, "n_trials": 4} | change
    with pytest.raises(InvalidInputError, match=message):
        allocate_trials(**given)


def test_a_population_has_no_questions_to_ask():
    outcomes = Outcomes.from_counts(COUNTS)
    with pytest.raises(InvalidInputError, match='scope "benchmark"'):
        allocate_trials(hbayes_at_n(outcomes, "population"), outcomes, 4)


def test_scores_that_are_certain_share_evenly():
    outcomes = Outcomes.from_counts(COUNTS, weights=[1, 1])
    assert allocate_trials(bayes_at_n(outcomes), outcomes, 8).tolist() == [2, 2, 2, 2]
