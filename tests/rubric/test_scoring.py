"""Scores of runs whose categories are counted by hand."""

from __future__ import annotations

import numpy as np
import pytest
from _support.errors import refused

from lm_eval_bayes import Outcomes, hbayes_at_n
from lm_eval_bayes.rubric.schemata import SCHEMATA
from lm_eval_bayes.rubric.scoring import score
from lm_eval_bayes.rubric.signals import SignalTable
from lm_eval_bayes.rubric.thresholds import TaskThresholds

#: Three questions with 4, 3 and 2 trials; two trials cannot be told.
QUESTIONS = [
    {"is_correct": [1, 1, 0, 0], "has_box": [1, 0, 1, 0], "repeated_pattern": [0, 0, 0, 0]},
    {"is_correct": [1, 1, 1], "has_box": [1, 1, None], "repeated_pattern": [0, 1, 0]},
    {"is_correct": [0, None], "has_box": [1, 0], "repeated_pattern": [0, 0]},
]
COUNTS = [[0, 1, 1, 1, 1], [1, 0, 0, 0, 1], [0, 0, 1, 0, 0]]


@pytest.fixture
def table():
    return SignalTable.from_questions(QUESTIONS)


def test_counts_by_hand(table):
    found = score(SCHEMATA["format_aware"], table, TaskThresholds())
    assert found.outcomes.counts.tolist() == COUNTS
    assert found.missing == 2
    assert found.categories == {
        "invalid": 1,
        "wrong, unboxed": 1,
        "wrong, boxed": 2,
        "correct, unboxed": 1,
        "correct, boxed": 2,
        "missing": 2,
    }
    assert sum(found.categories.values()) == table.n_trials
    assert found.outcomes.weights.tolist() == [0, 0, 1 / 3, 2 / 3, 1]


def test_the_posterior_is_that_of_the_counts(table):
    result = score(SCHEMATA["format_aware"], table, TaskThresholds())
    by_hand = Outcomes.from_counts(COUNTS, weights=[0, 0, 1 / 3, 2 / 3, 1])
    learned = hbayes_at_n(by_hand, seed=5)
    assert result.posterior("hbayes", 5).mu == learned.mu
    assert result.posterior("hbayes", 5).interval() == learned.interval()
    assert result.posterior(seed=6).sigma != learned.sigma, "the seed is not passed on"


def test_bayes_at_n_by_hand(table):
    """[Hariri 2026, Alg. 1] on the counts above, with a uniform prior of five categories."""
    weights = np.array([0, 0, 1 / 3, 2 / 3, 1])
    nu = np.array(COUNTS) + 1.0
    total = nu.sum(axis=1)
    mean = nu @ weights / total
    variance = (nu @ weights**2 / total - mean**2) / (total + 1)
    found = score(SCHEMATA["format_aware"], table, TaskThresholds()).posterior("bayes")
    assert found.mu == pytest.approx(mean.mean(), abs=1e-14)
    assert found.sigma == pytest.approx(np.sqrt(variance.sum()) / 3, abs=1e-14)


def test_categories_by_their_names(table):
    found = score(SCHEMATA["strict_compliance"], table, TaskThresholds())
    expected = {"invalid": 1, "wrong or unboxed": 5, "correct, boxed": 2, "missing": 1}
    assert found.categories == expected


# --- what is refused ---


def test_missing_signals_are_named(table):
    with refused("schema", "missing", "no completion_bpt"):
        score(SCHEMATA["conf_calibrated"], table, TaskThresholds())
