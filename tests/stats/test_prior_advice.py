from __future__ import annotations

import numpy as np
import pytest

from lm_eval_bayes import Outcomes
from lm_eval_bayes.stats.bayes_at_n import check_prior_weight, prior_advice
from lm_eval_bayes.stats.hierarchical.hbayes_at_n import hbayes_at_n


def outcomes(n=4, d=8, strength=1.0, questions=3, seed=0):
    rng = np.random.default_rng(seed)
    R, R0 = (rng.integers(0, 2, (questions, size)) for size in (n, d))
    return Outcomes.from_matrix(R, R0=R0, prior_strength=strength)


@pytest.mark.parametrize(
    ("n", "d", "strength", "warned"),
    [
        (4, 4, 1.0, False),
        (4, 5, 1.0, True),
        (4, 16, 0.25, False),
        (4, 17, 0.25, True),
    ],
)
def test_it_warns_exactly_where_the_prior_outweighs_the_trials(n, d, strength, warned):
    note = check_prior_weight(outcomes(n, d, strength))
    assert (note is not None) == warned


def test_what_it_advises_no_longer_warns():
    case = outcomes(3, 7)
    advised = prior_advice(case).advised_strength
    again = Outcomes(case.counts, case.weights, case.prior_counts, advised)
    assert check_prior_weight(again) is None
    assert prior_advice(again).note is None


def test_prior_advice_learns_from_the_new_trials_alone():
    counts = np.array([[10, 0], [0, 10], [9, 1], [1, 9], [10, 0], [0, 10]])
    new = Outcomes.from_counts(counts)
    case = Outcomes.from_counts(counts, prior_counts=counts[:, ::-1] // 2)
    advice = prior_advice(case)
    assert advice.learned_strength == hbayes_at_n(new).learned.strength
    assert advice.learned_strength < 2  # questions are nearly all or nothing
    assert advice.prior_trials == 5.0
    assert advice.n_trials == 10
    # λD = 5 against s
    assert f"at most {advice.learned_strength / 5:.3g}" in advice.to_dict()["note"]


def test_ragged_counts_name_the_worst_question():
    case = Outcomes.from_counts(
        [[5, 5], [1, 1], [0, 0]], prior_counts=[[4, 4], [3, 0], [0, 0]], prior_strength=1.0
    )
    advice = prior_advice(case)
    assert (advice.question, advice.prior_trials, advice.n_trials) == (1, 3.0, 2)
    assert "D = 3" in advice.note


def test_a_question_without_trials_rests_on_its_prior():
    case = Outcomes.from_counts([[5, 5], [0, 0]], prior_counts=[[1, 1], [1, 0]])
    note = check_prior_weight(case)
    assert "N = 0" in note
    assert "at most 0" in note
