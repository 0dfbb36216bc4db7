"""Switches between consecutive trials, against all orders and simulated repeats."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

from lm_eval_bayes.stats.independence import serial_dependence, serial_note


def repeating(rng, m, n, p_repeat):
    """0/1 trials, each of which repeats the last one with a probability."""
    p = rng.beta(1, 1, m)[:, None]
    trials = (rng.random((m, n)) < p).astype(int)
    for j in range(1, n):
        again = rng.random(m) < p_repeat
        trials[again, j] = trials[again, j - 1]
    return trials


def switches(order):
    return sum(a != b for a, b in itertools.pairwise(order))


def test_moments_and_p_value_by_all_orders():
    trials = [[0, 0, 0, 1, 1, 1], [2, 2, 1, 1, 0, 0]]
    by_question = [[switches(order) for order in itertools.permutations(each)] for each in trials]
    result = serial_dependence(trials)
    assert (result.switches, result.expected) == (3, pytest.approx(sum(map(np.mean, by_question))))
    total = np.add.outer(*by_question)
    few = total <= 3
    assert result.p_value == pytest.approx(few.mean(), rel=0.15)


def test_trials_that_cannot_switch_otherwise():
    assert serial_dependence([[1, 1, 1], [0, 1], [0], []]) is None
    assert serial_note([[1, 0]] * 50) is None


@pytest.mark.parametrize(
    "n_runs", [60, pytest.param(1_000, marks=pytest.mark.slow)], ids=["few", "many"]
)
def test_repeats_have_a_note_and_independent_trials_have_none(n_runs):
    rng = np.random.default_rng(2)
    repeats = [serial_note(repeating(rng, 30, 16, 0.4)) is not None for _ in range(n_runs)]
    independent = [serial_note(repeating(rng, 30, 16, 0.0)) is not None for _ in range(n_runs)]
    assert np.mean(repeats) > 0.98
    # 1 of 1,000 is nominal: 2 or more of 60 have a probability of .2%, 5 or more of 1,000 of .4%
    assert sum(independent) <= (1 if n_runs < 100 else 4)


def test_the_note_names_both_numbers():
    note = serial_note([[0] * 8 + [1] * 8] * 10)
    assert "more often" in note
    assert "(10 switches, 80 expected)" in note
    # trials that alternate make intervals too wide
    assert serial_dependence([[0, 1] * 8] * 10).p_value == pytest.approx(1)
    # unequal numbers of trials, and so many that random questions stand for all
    rng = np.random.default_rng(0)
    many = repeating(rng, 3_000, 16, 0.4)
    assert serial_note([*many, *many[:, :9]]) is not None
