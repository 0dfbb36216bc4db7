"""The whole Pass@k curve of 1,060 real paired questions, beside passk-inference."""

from __future__ import annotations

import csv
from pathlib import Path

import numpy as np
import pytest

from lm_eval_bayes.stats.comparison.pass_curves import Turn, compare_pass_curves
from lm_eval_bayes.stats.outcomes import Outcomes

COUNTS = Path(__file__).with_name("deepscaler_counts.csv")


@pytest.fixture(scope="module")
def counts():
    with COUNTS.open(newline="") as file:
        rows = list(csv.DictReader(line for line in file if not line.startswith("#")))
    return np.array([[int(row["c_base"]), int(row["c_rl"])] for row in rows]).T


@pytest.fixture(scope="module")
def sides(counts):
    return [Outcomes.from_counts(np.column_stack([128 - c, c])) for c in counts]


def test_the_published_result(counts, sides):
    assert counts.shape == (2, 1060)
    base, rl = sides
    result = compare_pass_curves(rl, base, scope="population")
    assert result.better == tuple(range(1, 11))
    assert result.undecided == tuple(range(11, 61))
    assert result.worse == tuple(range(61, 129))
    assert result.turn == Turn("gain to loss", 11, 61)
    # the first entries of the release's expected.json
    expected = [0.6041052476415094, 0.685305628807012, 0.7227924358069628, 0.7456356052486369]
    np.testing.assert_allclose(result.b[:4], expected, rtol=0, atol=1e-12)


def test_the_other_way_round(sides):
    base, rl = sides
    result = compare_pass_curves(base, rl, scope="population")
    assert result.turn == Turn("loss to gain", 11, 61)


@pytest.mark.parametrize("ks", [None, [7]])
@pytest.mark.parametrize("level", [0.95, pytest.param(0.8, marks=pytest.mark.slow)])
def test_number_for_number_beside_the_package(counts, sides, ks, level):
    peer = pytest.importorskip("passk_inference", reason="passk-inference is not installed")
    base, rl = sides
    theirs = peer.compare(counts[0], 128, counts[1], 128, ks=ks, alpha=1 - level, seed=11)
    ours = compare_pass_curves(rl, base, ks, scope="population", level=level, seed=11)
    assert ours.ks.tolist() == theirs["ks"]
    np.testing.assert_allclose(ours.difference, theirs["mean"], rtol=0, atol=1e-12)
    np.testing.assert_allclose(ours.a, theirs["rl_pass_at_k"], rtol=0, atol=1e-12)
    np.testing.assert_allclose(ours.sd, theirs["se"], rtol=0, atol=1e-10)
    # the same multipliers in the same order
    assert ours.critical == pytest.approx(theirs["critical_value"], abs=1e-9)
    np.testing.assert_allclose(ours.low, theirs["lower"], rtol=0, atol=1e-9)
    np.testing.assert_allclose(ours.high, theirs["upper"], rtol=0, atol=1e-9)
    assert list(ours.better) == theirs["certified_positive_budgets"]
    assert list(ours.worse) == theirs["certified_negative_budgets"]
    if ks is None:
        assert [ours.turn.low, ours.turn.high] == theirs["first_loss_interval"]


def test_columns_without_spread_and_ragged_banks():
    peer = pytest.importorskip("passk_inference", reason="passk-inference is not installed")
    rng = np.random.default_rng(5)
    n_a, n_b = rng.integers(8, 20, (2, 25))
    c_a, c_b = rng.integers(1, n_a - 1), rng.integers(1, n_b - 1)
    # every question is solved by one of 8, so Pass@8 differs nowhere
    c_a, c_b = np.maximum(c_a, n_a - 7), np.maximum(c_b, n_b - 7)
    theirs = peer.compare(c_b, n_b, c_a, n_a, seed=3)
    ours = compare_pass_curves(
        Outcomes.from_counts(np.column_stack([n_a - c_a, c_a])),
        Outcomes.from_counts(np.column_stack([n_b - c_b, c_b])),
        scope="population",
        seed=3,
    )
    degenerate = theirs["degenerate_columns"]
    assert 8 in np.array(theirs["ks"])[degenerate]
    assert (ours.low == -1.0)[degenerate].all()
    assert (ours.high == 1.0)[degenerate].all()
    np.testing.assert_allclose(ours.low, np.clip(theirs["lower"], -1, 1), rtol=0, atol=1e-9)
    np.testing.assert_allclose(ours.high, np.clip(theirs["upper"], -1, 1), rtol=0, atol=1e-9)
