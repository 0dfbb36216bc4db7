"""Which standard error a published ± is: formulas by hand, and the nearest of them."""

from __future__ import annotations

import numpy as np
import pytest

from lm_eval_bayes import InvalidInputError, Outcomes, ScoreOutcomes
from lm_eval_bayes.stats.published_error import audit_standard_error, standard_errors

RNG = np.random.default_rng(2)
M, N = 40, 6
R = (RNG.random((M, N)) < np.linspace(0.05, 0.95, M)[:, None]).astype(int)
RUNS = R.mean(axis=0)


def by_name(outcomes, runs=None):
    return {error.name: error for error in standard_errors(outcomes, runs)}


def test_formulas():
    errors = by_name(Outcomes.from_matrix(R), RUNS)
    p, means = R.mean(), R.mean(axis=1)
    expected = {
        # the harness's stderr of a task with these shares, sample_stddev / sqrt(n)
        "questions, one run": np.sqrt(p * (1 - p) / (M - 1)),
        "question means": means.std(ddof=1) / np.sqrt(M),
        "these questions": np.sqrt((R.var(axis=1, ddof=1) / N).sum()) / M,
        "pooled trials": R.ravel().std(ddof=1) / np.sqrt(M * N),
        "sd of runs": RUNS.std(ddof=1),
        "mean of runs": RUNS.std(ddof=1) / np.sqrt(N),
    }
    assert list(errors) == list(expected)
    for name, value in expected.items():
        assert errors[name].value == pytest.approx(value), name
        assert errors[name].half_width == pytest.approx(1.959964 * value), name


def test_scores_have_the_same_formulas():
    scores = RNG.random((10, 4))
    errors = by_name(ScoreOutcomes.from_scores(list(scores)), scores.mean(axis=0))
    assert errors["pooled trials"].value == pytest.approx(scores.ravel().std(ddof=1) / np.sqrt(40))
    means = scores.mean(axis=1)
    assert errors["question means"].value == pytest.approx(means.std(ddof=1) / np.sqrt(10))


def test_of_single_trials_there_is_one():
    single = R[:, :1]
    errors = by_name(Outcomes.from_matrix(single))
    assert list(errors) == ["questions, one run"]
    expected = single.ravel().std(ddof=1) / np.sqrt(M)
    assert errors["questions, one run"].value == pytest.approx(expected)


@pytest.mark.parametrize("name", ["questions, one run", "these questions", "pooled trials"])
@pytest.mark.parametrize("factor", [1.0, 1.959964])
@pytest.mark.parametrize("rounding", [0.99, 1.0, 1.01])
def test_a_candidate_is_found(name, factor, rounding):
    candidates = standard_errors(Outcomes.from_matrix(R))
    value = next(c.value for c in candidates if c.name == name)
    audit = audit_standard_error(factor * rounding * value, candidates)
    assert audit.matches
    found = [(audit.best, audit.is_half_width)]
    assert found[0] == (name, factor > 1) or any(
        next(c.label for c in candidates if c.name == name) in label for label in audit.also
    )


def test_the_other_divisor_counts_too():
    outcomes = Outcomes.from_matrix([[1], [1], [0], [1], [0], [0]])
    candidates = standard_errors(outcomes)
    audit = audit_standard_error(np.sqrt(0.25 / 6), candidates)  # not / 5
    assert (audit.best, audit.ratio, audit.matches) == (
        "questions, one run",
        pytest.approx(1.0),
        True,
    )


def test_none_matches():
    candidates = standard_errors(Outcomes.from_matrix(R))
    audit = audit_standard_error(0.5, candidates)
    assert not audit.matches
    assert audit.ratio > 1.05
    nothing = audit_standard_error(0.1, standard_errors(Outcomes.from_counts([[0, 4]] * 5)))
    assert (nothing.best, nothing.ratio, nothing.matches) == (None, None, False)
    assert nothing.nearest is None


def test_arguments():
    with pytest.raises(InvalidInputError, match="`outcomes` must hold trials of at least two"):
        standard_errors(Outcomes.from_counts([[1, 3], [0, 0]]))
    with pytest.raises(InvalidInputError, match="`published` must be a finite number above 0"):
        audit_standard_error(0.0, ())
