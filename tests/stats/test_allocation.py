"""Trials given to the questions that still carry the variance."""

import itertools

import numpy as np
import pytest
from _support.errors import refusals

from lm_eval_bayes import Outcomes, allocate_trials, bayes_at_n, hbayes_at_n, pass_at_k_posterior

COUNTS = [[8, 0], [4, 4], [0, 8], [7, 1]]
POPULATION = hbayes_at_n(Outcomes.from_counts(COUNTS), "population")


def expected_variance(posterior, behind, given):
    """Σ v ν / (ν + k): what k further trials are expected to leave of a Beta's variance."""
    return float(np.sum(posterior.per_question.sigma**2 * behind / (behind + given)))


@pytest.mark.parametrize("n_trials", [1, 7])
@pytest.mark.parametrize("counts", [COUNTS, [[1, 1], [2, 0], [3, 9]], [[2, 0, 0], [0, 4, 1]]])
def test_no_other_way_to_share_leaves_less_variance(counts, n_trials):
    outcomes = Outcomes.from_counts(counts)
    posterior = bayes_at_n(outcomes)
    behind = outcomes.counts.sum(axis=1) + float(outcomes.n_categories)
    ways = (
        way
        for way in itertools.product(range(n_trials + 1), repeat=len(counts))
        if sum(way) == n_trials
    )
    best = min(expected_variance(posterior, behind, np.array(way)) for way in ways)
    given = allocate_trials(posterior, outcomes, n_trials)
    assert given.sum() == n_trials
    assert expected_variance(posterior, behind, given) == pytest.approx(best, rel=1e-12)


def test_nobody_gets_more_than_the_most():
    outcomes = Outcomes.from_counts(COUNTS)
    given = allocate_trials(hbayes_at_n(outcomes), outcomes, 100, most=10)
    assert given.tolist() == [2, 2, 2, 2]
    assert allocate_trials(hbayes_at_n(outcomes), outcomes, 5, most=8).sum() == 0


A = Outcomes.from_counts(COUNTS)
OWN = bayes_at_n(A)
CHANCE = pass_at_k_posterior(A, 2)


test_bad_input_is_named = refusals(
    (lambda: allocate_trials(3, A, 4), "posterior", "type"),
    (lambda: allocate_trials(OWN, A, 0), "n_trials", "range"),
    (lambda: allocate_trials(OWN, A, 4, most=0), "most", "range"),
    (lambda: allocate_trials(CHANCE, A, 4), "posterior", "unsupported"),
    (lambda: allocate_trials(OWN, Outcomes.from_counts([[0, 4]] * 4), 4), "posterior", "mismatch"),
    (lambda: allocate_trials(POPULATION, A, 4), "posterior", "shape"),
)


def test_scores_that_are_certain_share_evenly():
    outcomes = Outcomes.from_counts(COUNTS, weights=[1, 1])
    assert allocate_trials(bayes_at_n(outcomes), outcomes, 8).tolist() == [2, 2, 2, 2]
