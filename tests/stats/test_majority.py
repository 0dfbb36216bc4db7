from __future__ import annotations

from collections import Counter
from itertools import combinations

import numpy as np
import pytest
from _support.errors import refusals

from lm_eval_bayes import maj_at_k


def brute_force(answers, correct, k):
    """Vote over every k-subset, one by one."""
    credit = {}
    for answer in set(answers):
        marks = [c for a, c in zip(answers, correct, strict=True) if a == answer]
        credit[answer] = sum(marks) / len(marks)
    earned = []
    for subset in combinations(range(len(answers)), k):
        votes = Counter(answers[i] for i in subset if answers[i] is not None)
        if not votes:
            earned.append(0.0)
            continue
        lead = max(votes.values())
        winners = [a for a, n in votes.items() if n == lead]
        earned.append(sum(credit[a] for a in winners) / len(winners))
    return sum(earned) / len(earned)


@pytest.mark.parametrize("seed", range(20))
def test_random_banks(seed):
    rng = np.random.default_rng(seed)
    n = int(rng.integers(1, 12))
    names = ["7", "9", 12, (1, 2), "x", None]
    answers = [names[i] for i in rng.integers(0, rng.integers(1, 7), n)]
    # also graders that disagree with themselves about one answer
    correct = [bool(x) for x in rng.integers(0, 2, n)]
    for k in range(1, n + 1):
        estimate = maj_at_k([answers], [correct], k)
        assert estimate.value == pytest.approx(brute_force(answers, correct, k), abs=1e-12)


def test_questions_of_different_length_and_order():
    answers = [["a", "b", "a"], ["c", None, "c", "d", "d"]]
    correct = [[True, False, True], [False, False, False, True, True]]
    estimate = maj_at_k(answers, correct, 3)
    assert estimate.per_question == pytest.approx(
        [brute_force(a, c, 3) for a, c in zip(answers, correct, strict=True)]
    )
    turned = maj_at_k([row[::-1] for row in answers][::-1], [row[::-1] for row in correct][::-1], 3)
    assert turned.value == pytest.approx(estimate.value, abs=1e-15)
    assert (estimate.quantity, estimate.k) == ("maj@k", 3)


@pytest.mark.parametrize(("n", "k"), [(80, 8), (400, 200), (300, 299)])
def test_many_trials_agree_with_draws(n, k):
    rng = np.random.default_rng(5)
    answers = [[int(a) for a in rng.zipf(1.7, n) % 20] for _ in range(4)]
    correct = [[a in (1, 3) for a in row] for row in answers]
    draws = 4_000
    for row, value in zip(answers, maj_at_k(answers, correct, k).per_question, strict=True):
        sizes = np.bincount(row, minlength=20)
        votes = rng.multivariate_hypergeometric(sizes, k, draws)
        ahead = votes == votes.max(axis=1, keepdims=True)
        credit = ahead[:, [1, 3]].sum(axis=1) / ahead.sum(axis=1)
        assert value == pytest.approx(credit.mean(), abs=4 * credit.std() / np.sqrt(draws) + 1e-9)


test_refusals = refusals(
    (lambda: maj_at_k((["a"], ["b"]), ([True], [True, False]), 1), "correct", "shape"),
    (lambda: maj_at_k((), (), 1), "answers", "empty"),
    (lambda: maj_at_k(([],), ([],), 1), "correct", "shape"),
    (lambda: maj_at_k(("abc",), ([1, 1, 1],), 1), "answers", "type"),
    (lambda: maj_at_k(([["a"]],), ([True],), 1), "answers", "type"),
    (lambda: maj_at_k((["a"],), ([None],), 1), "correct", "type"),
    (lambda: maj_at_k((["a"],), ([True],), 2), "k", "range"),
)
