from __future__ import annotations

import copy
import pickle
from dataclasses import FrozenInstanceError

import numpy as np
import pytest

from lm_eval_bayes import InvalidInputError, Outcomes

TERNARY = [0, 0.5, 1]


def test_counts_weights_and_prior_of_a_matrix():
    outcomes = Outcomes.from_matrix(
        [[0, 1, 2, 2, 1], [1, 1, 0, 2, 2]], weights=TERNARY, R0=[[2], [1]], prior_strength=0.25
    )
    assert outcomes.counts.tolist() == [[1, 2, 2], [1, 2, 2]]
    assert outcomes.prior_counts.tolist() == [[0, 0, 1], [0, 1, 0]]
    assert outcomes.weights.tolist() == [0.0, 0.5, 1.0]
    assert outcomes.prior_strength == 0.25
    assert outcomes.n_questions == 2
    assert outcomes.n_categories == 3
    assert outcomes.n_trials.tolist() == [5, 5]
    assert outcomes.counts.dtype == np.int64


@pytest.mark.parametrize(
    "R",
    [
        [[0, 1], [1, 1]],
        [[0.0, 1.0], [1.0, 1.0]],
        [[False, True], [True, True]],
        np.array([[0, 1], [1, 1]], dtype=np.uint8),
        np.array([[0, 1], [1, 1]], dtype=np.float32),
    ],
)
def test_whole_numbers_and_booleans_are_one_thing(R):
    assert Outcomes.from_matrix(R).counts.tolist() == [[1, 1], [0, 2]]


def test_the_caller_s_arrays_stay_his_and_ours_are_read_only():
    R = np.array([[0, 1]])
    counts = np.array([[1, 2]])
    weights = np.array([0.0, 1.0])
    from_matrix = Outcomes.from_matrix(R, weights=weights)
    from_counts = Outcomes.from_counts(counts, weights=weights)
    counts[0, 0] = 9
    weights[1] = 9.0
    assert from_counts.counts.tolist() == [[1, 2]]
    assert from_matrix.weights.tolist() == [0.0, 1.0]
    for array in (from_matrix.counts, from_matrix.weights, from_matrix.prior_counts):
        with pytest.raises(ValueError, match="read-only"):
            array[...] = 0
    with pytest.raises(FrozenInstanceError, match="cannot assign"):
        from_matrix.counts = counts


def test_ragged_counts_and_default_weights():
    outcomes = Outcomes.from_counts([[1, 0, 0], [2, 3, 4], [0, 0, 0]])
    assert outcomes.n_trials.tolist() == [1, 9, 0]
    assert outcomes.weights.tolist() == [0.0, 0.5, 1.0]
    assert Outcomes.from_counts([[3, 5]]).weights.tolist() == [0.0, 1.0]


def test_matrix_and_its_counts_agree():
    rng = np.random.default_rng(3)
    R = rng.integers(0, 4, size=(7, 11))
    expected = [[int((row == k).sum()) for k in range(4)] for row in R]
    outcomes = Outcomes.from_matrix(R, weights=[0, 1, 2, 5])
    assert outcomes.counts.tolist() == expected


def test_question_ids_are_kept_as_a_tuple():
    assert Outcomes.from_matrix([[0], [1]], question_ids=["a", 2]).question_ids == ("a", 2)
    ids = np.array(["q1", "q2"])
    assert Outcomes.from_counts([[0, 1], [1, 1]], question_ids=ids).question_ids == ("q1", "q2")


def test_an_empty_prior_matrix_is_no_prior():
    outcomes = Outcomes.from_matrix([[0], [1]], R0=np.empty((2, 0), dtype=int))
    assert outcomes.prior_counts.tolist() == [[0, 0], [0, 0]]


REFUSED_MATRICES = {
    "1-D": ([0, 1, 1], r"`R` must be 2-D.*shape \(3,\)"),
    "3-D": (np.zeros((2, 2, 2), int), r"`R` must be 2-D.*shape \(2, 2, 2\)"),
    "a scalar": (1, r"`R` must be 2-D"),
    "no question": (np.zeros((0, 3), int), r"`R` must not be empty.*\(0, 3\)"),
    "no trial": (np.zeros((3, 0), int), r"`R` must not be empty.*\(3, 0\)"),
    "an empty list": ([], r"`R` must be 2-D"),
    "NaN": ([[0.0, np.nan]], r"`R` must hold whole categories.*nan \(question 0, trial 1\)"),
    "infinity": ([[0.0, np.inf]], r"`R` must hold whole categories.*inf"),
    "negative": ([[0, 1], [1, -1]], r"`R` must hold whole.*-1 \(question 1, trial 1\)"),
    "fractional": ([[0.5, 1.0]], r"`R` must hold whole categories in 0\.\.1.*0\.5"),
    "boolean objects": (np.array([[True, None]], dtype=object), r"`R` must be a rect.*object"),
    "strings": ([["0", "1"]], r"`R` must be a rectangular array of numbers; got dtype <U1"),
    "complex": ([[1j]], r"`R` must be a rectangular array of numbers; got dtype complex"),
    "ragged rows": ([[0, 1], [1]], r"`R` must be a rectangular array of numbers"),
    "masked": (np.ma.array([[0, 1]], mask=[[0, 1]]), r"`R` must.*without masked entries"),
    "a third category": ([[0, 2]], r"`R` must hold only 0 and 1 when `weights` is left out; give"),
    "a huge unsigned": (np.array([[2**63]], dtype=np.uint64), r"`R` must hold whole.*9223372036"),
}


@pytest.mark.parametrize(("R", "match"), REFUSED_MATRICES.values(), ids=REFUSED_MATRICES)
def test_refused_matrices(R, match):
    with pytest.raises(InvalidInputError, match=match):
        Outcomes.from_matrix(R)


REFUSED_ARGUMENTS = {
    "category beyond": ({"R": [[0, 3]], "weights": TERNARY}, r"`R` must hold categories in 0\.\.2"),
    "bool, ternary": ({"R": [[True]], "weights": TERNARY}, r"`R` must hold the cat.*not booleans"),
    "NaN weight": ({"R": [[0]], "weights": [0, np.nan]}, r"`weights` must be finite.*nan"),
    "inf weight": ({"R": [[0]], "weights": [0, np.inf]}, r"`weights` must be finite.*inf"),
    "vast weight": ({"R": [[0]], "weights": [0, 1e200]}, r"`weights` must lie within"),
    "2-D weights": ({"R": [[0]], "weights": [[0, 1]]}, r"`weights` must be 1-D.*\(1, 2\)"),
    "one weight": ({"R": [[0]], "weights": [1]}, r"`weights` must be 1-D with at least two"),
    "bool weights": ({"R": [[0]], "weights": [False, True]}, r"`weights` must be numbers, not"),
    "text weights": ({"R": [[0]], "weights": ["a", "b"]}, r"`weights` must be a rectangular"),
    "R0 rows": ({"R": [[0], [1]], "R0": [[1]]}, r"`R0` must have one row per question \(2.*1 rows"),
    "R0 1-D": ({"R": [[0]], "R0": [1]}, r"`R0` must be 2-D"),
    "R0 category": ({"R": [[0]], "R0": [[2]]}, r"`R0` must hold only 0 and 1"),
    "R0 NaN": ({"R": [[0]], "R0": [[np.nan]]}, r"`R0` must hold whole categories"),
    "strength < 0": ({"R": [[0]], "prior_strength": -0.5}, r"`prior_strength` must be.*-0\.5"),
    "strength NaN": ({"R": [[0]], "prior_strength": np.nan}, r"`prior_strength` must be.*nan"),
    "strength inf": ({"R": [[0]], "prior_strength": np.inf}, r"`prior_strength` must be.*inf"),
    "strength text": (
        {"R": [[0]], "prior_strength": "1"},
        r"`prior_strength` must be a number from 0",
    ),
    "strength bool": (
        {"R": [[0]], "prior_strength": True},
        r"`prior_strength` must be a number from 0",
    ),
    "ids twice": ({"R": [[0], [1]], "question_ids": ["a", "a"]}, r"`question_ids` must be dist.*a"),
    "ids too few": ({"R": [[0], [1]], "question_ids": ["a"]}, r"`question_ids` must have one.*2"),
    "ids a string": ({"R": [[0], [1]], "question_ids": "ab"}, r"`question_ids` must be a seq"),
    "ids a number": ({"R": [[0]], "question_ids": 3}, r"`question_ids` must be a sequence.*3"),
    "ids unhashable": ({"R": [[0]], "question_ids": [[1]]}, r"`question_ids` must be hashable"),
}


@pytest.mark.parametrize(("kwargs", "match"), REFUSED_ARGUMENTS.values(), ids=REFUSED_ARGUMENTS)
def test_refused_arguments(kwargs, match):
    with pytest.raises(InvalidInputError, match=match):
        Outcomes.from_matrix(**kwargs)


REFUSED_COUNTS = {
    "1-D": ({"counts": [1, 2]}, r"`counts` must be 2-D"),
    "one column": ({"counts": [[1], [2]]}, r"`counts` must have at least two columns"),
    "empty": ({"counts": np.zeros((0, 2), int)}, r"`counts` must be 2-D with at least one"),
    "negative": ({"counts": [[1, -2]]}, r"`counts` must hold whole counts.*-2 \(question 0, cat"),
    "fractional": ({"counts": [[1.5, 2]]}, r"`counts` must hold whole counts.*1\.5"),
    "NaN": ({"counts": [[np.nan, 2]]}, r"`counts` must hold whole counts.*nan"),
    "a slip of the keyboard": ({"counts": [[10**13, 2]]}, r"`counts` must hold at most 1e\+12 tr"),
    "beyond 2^53": ({"counts": [[1e300, 2]]}, r"`counts` must hold whole counts.*1e\+300"),
    "booleans": ({"counts": [[True, False]]}, r"`counts` must hold counts, not booleans"),
    "objects": ({"counts": np.array([[1, 2]], object)}, r"`counts` must be a rectangular"),
    "columns": ({"counts": [[1, 2]], "weights": TERNARY}, r"`counts` must have one column.*2 col"),
    "prior columns": ({"counts": [[1, 2]], "prior_counts": [[1]]}, r"`prior_counts` must have one"),
    "prior rows": (
        {"counts": [[1, 2]], "prior_counts": [[1, 0], [0, 1]]},
        r"`prior_counts` must have one row per question \(1\); got 2 rows",
    ),
    "prior negative": (
        {"counts": [[1, 2]], "prior_counts": [[-1, 0]]},
        r"`prior_counts` must hold",
    ),
}


@pytest.mark.parametrize(("kwargs", "match"), REFUSED_COUNTS.values(), ids=REFUSED_COUNTS)
def test_refused_counts(kwargs, match):
    with pytest.raises(InvalidInputError, match=match):
        Outcomes.from_counts(**kwargs)


def test_the_constructor_is_the_same_door():
    with pytest.raises(InvalidInputError, match=r"`counts` must hold whole counts"):
        Outcomes(np.array([[-1, 2]]), np.array([0.0, 1.0]), np.array([[0, 0]]))


@pytest.mark.parametrize(
    "copied", [copy.copy, copy.deepcopy, lambda one: pickle.loads(pickle.dumps(one))]
)
def test_copies_are_as_safe_as_the_original(copied):
    outcomes = Outcomes.from_counts([[1, 3], [2, 2]], question_ids=["p", "q"])
    one = copied(outcomes)
    for name in ("counts", "weights", "prior_counts"):
        assert np.array_equal(getattr(one, name), getattr(outcomes, name))
        with pytest.raises(ValueError, match="read-only"):
            getattr(one, name)[...] = 0
    assert one.question_ids == outcomes.question_ids
