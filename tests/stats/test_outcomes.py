from __future__ import annotations

import copy
import pickle

import numpy as np
import pytest
from _support.errors import refusals

from lm_eval_bayes import Outcomes

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


@pytest.mark.parametrize("dtype", [float, bool, np.uint8])
def test_whole_numbers_and_booleans_are_one_thing(dtype):
    R = np.array([[0, 1], [1, 1]], dtype=dtype)
    assert Outcomes.from_matrix(R).counts.tolist() == [[1, 1], [0, 2]]


def test_the_arrays_of_the_caller_are_copied():
    counts, weights = np.array([[1, 2]]), np.array([0.0, 1.0])
    outcomes = Outcomes.from_counts(counts, weights=weights)
    counts[0, 0] = 9
    weights[1] = 9.0
    assert outcomes.counts.tolist() == [[1, 2]]
    assert outcomes.weights.tolist() == [0.0, 1.0]


def test_question_ids_are_kept_as_a_tuple():
    assert Outcomes.from_matrix([[0], [1]], question_ids=["a", 2]).question_ids == ("a", 2)
    ids = np.array(["q1", "q2"])
    assert Outcomes.from_counts([[0, 1], [1, 1]], question_ids=ids).question_ids == ("q1", "q2")


test_refused_matrices = refusals(
    (lambda: Outcomes.from_matrix([0, 1, 1]), "R", "shape"),
    (lambda: Outcomes.from_matrix(np.zeros((0, 3), int)), "R", "empty"),
    (lambda: Outcomes.from_matrix([[0.0, np.nan]]), "R", "range"),
    (lambda: Outcomes.from_matrix([[0, 1], [1, -1]]), "R", "range"),
    (lambda: Outcomes.from_matrix([[0.5, 1.0]]), "R", "range"),
    (lambda: Outcomes.from_matrix(np.array([[True, None]], dtype=object)), "R", "type"),
    (lambda: Outcomes.from_matrix(np.ma.array([[0, 1]], mask=[[0, 1]])), "R", "type"),
    (lambda: Outcomes.from_matrix([[0, 2]]), "R", "range"),
    (lambda: Outcomes.from_matrix(np.array([[2**63]], dtype=np.uint64)), "R", "range"),
)


test_refused_arguments = refusals(
    (lambda: Outcomes.from_matrix([[0, 3]], weights=TERNARY), "R", "range"),
    (lambda: Outcomes.from_matrix([[True]], weights=TERNARY), "R", "type"),
    (lambda: Outcomes.from_matrix([[0]], weights=[0, np.nan]), "weights", "range"),
    (lambda: Outcomes.from_matrix([[0]], weights=[False, True]), "weights", "type"),
    (lambda: Outcomes.from_matrix([[0], [1]], R0=[[1]]), "R0", "shape"),
    (lambda: Outcomes.from_matrix([[0]], R0=[[2]]), "R0", "range"),
    (lambda: Outcomes.from_matrix([[0]], prior_strength=-0.5), "prior_strength", "range"),
    (
        lambda: Outcomes.from_matrix([[0], [1]], question_ids=["a", "a"]),
        "question_ids",
        "duplicate",
    ),
    (lambda: Outcomes.from_matrix([[0], [1]], question_ids=["a"]), "question_ids", "shape"),
    (lambda: Outcomes.from_matrix([[0], [1]], question_ids="ab"), "question_ids", "type"),
    (lambda: Outcomes.from_matrix([[0]], weights=[0, 1e200]), "weights", "range"),
    (lambda: Outcomes.from_matrix([[0]], weights=[1]), "weights", "shape"),
    (lambda: Outcomes.from_matrix([[0]], prior_strength=np.nan), "prior_strength", "range"),
    (lambda: Outcomes.from_matrix([[0]], question_ids=[[1]]), "question_ids", "type"),
)


test_refused_counts = refusals(
    (lambda: Outcomes.from_counts([1, 2]), "counts", "shape"),
    (lambda: Outcomes.from_counts([[1, -2]]), "counts", "range"),
    (lambda: Outcomes.from_counts([[True, False]]), "counts", "type"),
    (lambda: Outcomes.from_counts([[1, 2]], weights=TERNARY), "counts", "shape"),
    (lambda: Outcomes.from_counts([[1, 2]], prior_counts=[[-1, 0]]), "prior_counts", "range"),
    (lambda: Outcomes.from_counts([[1], [2]]), "counts", "shape"),
    (lambda: Outcomes.from_counts(np.zeros((0, 2), int)), "counts", "shape"),
    (lambda: Outcomes.from_counts([[10**13, 2]]), "counts", "range"),
    (
        lambda: Outcomes.from_counts([[1, 2]], prior_counts=[[1, 0], [0, 1]]),
        "prior_counts",
        "shape",
    ),
)


@pytest.mark.parametrize(
    "copied", [copy.copy, lambda outcomes: pickle.loads(pickle.dumps(outcomes))]
)
def test_copies_are_as_safe_as_the_original(copied):
    outcomes = Outcomes.from_counts([[1, 3], [2, 2]], question_ids=["p", "q"])
    same = copied(outcomes)
    for name in ("counts", "weights", "prior_counts"):
        assert np.array_equal(getattr(same, name), getattr(outcomes, name))
        with pytest.raises(ValueError, match="read-only"):
            getattr(same, name)[...] = 0
    assert same.question_ids == outcomes.question_ids
