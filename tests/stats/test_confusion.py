"""Scores of a confusion matrix, against Beta distributions, closed forms and loops."""

from __future__ import annotations

import math

import numpy as np
import pytest
from _support.errors import refusals
from scipy import stats

from lm_eval_bayes.stats.confusion import SCORES, as_matrix, confusion_posterior, f_score

TP, FP, FN, TN = CELLS = 12, 3, 2, 13
THREE = np.array([[5, 1, 0], [2, 6, 1], [0, 1, 4]])
DRAWS = 200_000


def cases(matrix):
    """Truth and answer of every case of a confusion matrix."""
    rows, columns = np.indices(matrix.shape)
    times = matrix.astype(int).ravel()
    return np.repeat(rows.ravel(), times), np.repeat(columns.ravel(), times)


def test_scores_of_two_classes():
    precision, recall = TP / (TP + FP), TP / (TP + FN)
    truth, answer = cases(as_matrix(CELLS))
    expected = {
        "precision": precision,
        "recall": recall,
        "f1": 2 * precision * recall / (precision + recall),
        "g_score": math.sqrt(precision * recall),
        "mcc": np.corrcoef(truth, answer)[0, 1],
    }
    assert set(SCORES) == set(expected)
    for name, value in expected.items():
        assert confusion_posterior(CELLS, name, draws=1000).estimate == pytest.approx(value), name
    both = 5 * precision * recall / (4 * precision + recall)
    assert confusion_posterior(CELLS, f_score(2.0), draws=1000).estimate == pytest.approx(both)


def f1_quantile(u):
    """F1 = 2x/(1 + x) with x = tp/(tp + fp + fn), and x ~ Beta(1 + tp, 2 + fp + fn)."""
    x = stats.beta(1 + TP, 2 + FP + FN).ppf(u)
    return 2 * x / (1 + x)


def accuracy(matrices):
    return np.trace(matrices, axis1=1, axis2=2) / matrices.sum(axis=(1, 2))


@pytest.mark.parametrize(
    ("name", "quantile"),
    [
        ("recall", stats.beta(1 + TP, 1 + FN).ppf),
        (accuracy, stats.beta(2 + TP + TN, 2 + FP + FN).ppf),
        ("f1", f1_quantile),
    ],
)
def test_posteriors_that_are_known(name, quantile):
    posterior = confusion_posterior(CELLS, name, draws=DRAWS)
    interval = posterior.interval(0.9)
    assert (interval.low, interval.high) == pytest.approx(
        tuple(quantile(np.array([0.05, 0.95]))), abs=5 * interval.mc_error
    )
    assert interval.mc_error < 1e-3
    u = np.linspace(0, 1, 20_001)[1:-1]
    assert posterior.mu == pytest.approx(quantile(u).mean(), abs=5 * posterior.mc_error + 1e-4)
    assert (interval.method, interval.seed) == ("exact", 0)
    assert interval.scope == "population"


def test_forms_of_the_counts():
    mapping = {"tn": TN, "tp": TP, "fn": FN, "fp": FP}
    same = [confusion_posterior(form, draws=1000).mu for form in (CELLS, mapping, as_matrix(CELLS))]
    assert len(set(same)) == 1


def test_zero_over_zero_in_the_counts_is_said():
    posterior = confusion_posterior((0, 0, 5, 5), "precision", draws=DRAWS)
    assert posterior.estimate is None
    assert posterior.note is not None
    assert posterior.n_undefined == 0
    assert posterior.mu == pytest.approx(0.5, abs=0.005)  # Beta(1, 1)


def halves(matrices):
    """Be 0/0 for about half of the draws."""
    return np.where(matrices[:, 0, 0] > matrices[:, 1, 1], matrices[:, 1, 1], np.nan)


def test_draws_without_a_value_are_counted():
    posterior = confusion_posterior((5, 5, 5, 5), halves, draws=20_000)
    assert posterior.quantity == "halves"
    assert posterior.n_undefined + posterior.draws.size == 20_000
    assert posterior.n_undefined == pytest.approx(10_000, abs=400)
    assert np.isfinite(posterior.draws).all()


def nowhere(matrices):
    """Be 0/0 for all draws."""
    return np.full(len(matrices), np.nan)


test_bad_input_is_named = refusals(
    (lambda: confusion_posterior((1, 2, 3)), "counts", "shape"),
    (lambda: confusion_posterior({"tp": 1}), "counts", "choice"),
    (lambda: confusion_posterior("abcd"), "counts", "type"),
    (lambda: confusion_posterior((1, -1, 0, 2)), "counts", "range"),
    (lambda: confusion_posterior(CELLS, "f3"), "score", "choice"),
    (lambda: confusion_posterior(CELLS, lambda m: m), "score", "shape"),
    (lambda: f_score(0), "beta", "range"),
    (lambda: confusion_posterior(CELLS, nowhere), "score", "unsupported"),
    (lambda: confusion_posterior(THREE, "f1"), "score", "choice"),
)
