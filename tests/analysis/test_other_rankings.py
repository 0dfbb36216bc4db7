"""scorio's rankings of runs: the table that is passed on, and what cannot be."""

from __future__ import annotations

import sys
from dataclasses import replace

import numpy as np
import pytest
from _support.errors import refused

from lm_eval_bayes.analysis.leaderboard import leaderboard
from lm_eval_bayes.analysis.other_rankings import rank_by_scorio, scorio_methods
from lm_eval_bayes.runs.task_run import TaskRun

IDS = [f"q{i}" for i in range(12)]


def build(model, p, seed, n=6, order=1):
    trials = (np.random.default_rng(seed).random((12, n)) < p).astype(int)
    return TaskRun.from_trials(model, "aime", trials[::order], IDS[::order]), trials


@pytest.fixture(scope="module")
def scorio():
    return pytest.importorskip("scorio.rank", reason="scorio is not installed")


@pytest.fixture(scope="module")
def runs():
    return [build("a", 0.4, 1), build("b", 0.6, 2, n=8, order=-1), build("c", 0.5, 3)]


def test_trials_are_aligned_and_cut(scorio, runs):
    table = np.stack([trials[:, :6] for _, trials in runs])
    given = [run for run, _ in runs]
    ranking = leaderboard(given).ranking
    for method in ("borda", "plackett_luce", "rasch", "bayes"):
        result = rank_by_scorio(given, method, ranking)
        ranks, scores = getattr(scorio, method)(table, return_scores=True)
        by_model = {row.model: row for row in result.rows}
        assert [by_model[name].rank for name in "abc"] == list(ranks)
        assert [by_model[name].score for name in "abc"] == pytest.approx(list(scores))
        assert result.n_trials == 6
        assert "scorio was given the first 6 trials of every question, of up to 8" in result.notes
    assert {"bradley_terry", "elo", "schulze"} <= set(scorio_methods())
    assert "GaussianPrior" not in scorio_methods()


def test_counts_are_in_a_drawn_order(scorio, runs):
    given = [replace(run, trials=None) for run, _ in runs]
    ranking = leaderboard(given).ranking
    result = rank_by_scorio(given, "avg", ranking, seed=3)
    assert (result.seed, result.to_dict()) == (
        3,
        rank_by_scorio(given, "avg", ranking, seed=3).to_dict(),
    )
    assert any("a, b and c is unknown and was drawn" in note for note in result.notes)
    means = {run.model: run.outcomes.counts[:, 1].sum() / 72 for run in given}
    by_model = {row.model: row.score for row in result.rows}
    assert by_model["a"] == pytest.approx(means["a"])


def test_what_cannot_be_ranked(scorio, runs):
    given = [run for run, _ in runs]
    ranking = leaderboard(given).ranking
    with refused("RUN", "empty", 1):
        rank_by_scorio(given[:1], "borda", ranking)
    rubric = [
        TaskRun.from_trials(name, "aime", [[0, 1, 2]], ["q"], weights=(0, 0.5, 1)) for name in "ab"
    ]
    with refused("RUN", "unsupported", "a rubric on aime"):
        rank_by_scorio(rubric, "borda", leaderboard(rubric).ranking)


def test_without_scorio_the_extra_is_named(runs, monkeypatch):
    monkeypatch.setitem(sys.modules, "scorio.rank", None)
    given = [run for run, _ in runs]
    with refused("method", "not-installed"):
        rank_by_scorio(given, "borda", leaderboard(given).ranking)
