"""`lm-eval-bayes study anchors`: where it places models, what it checks, and how it ends."""

from __future__ import annotations

import re

import numpy as np
import pytest
from _support.command_line import answer, called, refusal

import lm_eval_bayes as leb


def tossed(n_models=5, n_questions=20, n_trials=8, seed=1):
    rng = np.random.default_rng(seed)
    hard = np.sort(rng.normal(0.0, 1.5, n_questions))
    able = np.linspace(-1.5, 1.5, n_models)
    p = 1.0 / (1.0 + np.exp(hard - able[:, None]))
    return (rng.random((n_models, n_questions, n_trials)) < p[:, :, None]).astype(int)


NAMES = ["tiny", "small", "medium", "large", "huge"]


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    folder = tmp_path_factory.mktemp("runs")
    R = tossed()
    np.savez(folder / "five.npz", R=R, models=NAMES, task="sums")
    others = [0, 1, 3, 4]
    names = [NAMES[i] for i in others]
    np.savez(folder / "four.npz", R=R[others], models=names, task="sums")
    # the questions the other way round: they are matched by their names
    ids = [str(i) for i in range(20)]
    np.savez(folder / "new.npz", R=R[2][::-1], models=["new"], question_ids=ids[::-1], task="sums")
    return folder


def expected(target, among, keep=None, posterior=None, **more):
    R = tossed()
    outcomes = {
        name: leb.Outcomes.from_matrix(matrix) for name, matrix in zip(NAMES, R, strict=True)
    }
    anchors = leb.AnchorMatrix.from_outcomes({name: outcomes[name] for name in among}, **more)
    placed = outcomes[target]
    if keep is not None:
        saved = leb.filter_queries(anchors, *keep).kept
        anchors, placed = anchors.take(saved), placed.take(saved)
    return leb.capability_intervals(anchors, placed, **(posterior or {}))


def test_a_run_is_placed_among_the_models_of_a_file(files):
    runs = (files / "four.npz", files / "new.npz")
    (result,) = answer("study anchors", *runs, "--target", "new")["tasks"]
    (placed,) = result["placed"]
    kernel = expected("medium", ["tiny", "small", "large", "huge"])
    assert placed["model"] == "new"
    assert placed["posterior"]["probability"] == pytest.approx(kernel.probability, abs=1e-12)
    assert placed["inside"] == list(kernel.interval(0.95))
    assert placed["p_above"] == pytest.approx(
        {name: kernel.p_above(name) for name in kernel.anchors}
    )
    R = tossed()[[0, 1, 3, 4, 2]]
    assert result["independence"]["variance_ratio"] == pytest.approx(
        leb.query_independence(R, permutations=100).variance_ratio
    )


def test_named_models_and_filters(files):
    options = ["--target", "medium", "--anchor", "tiny", "--anchor", "huge"]
    filters = ["--keep", "0.3:0.6", "--pseudo-count", 1]
    (result,) = answer("study anchors", files / "five.npz", *options, *filters)["tasks"]
    kernel = expected("medium", ["tiny", "huge"], (0.3, 0.6), pseudo_count=1.0)
    assert result["placed"][0]["posterior"]["probability"] == pytest.approx(kernel.probability)
    assert 0 < len(result["kept"]["kept"]) < 20


def test_the_population_of_questions_with_a_seed(files):
    options = ["--target", "medium", "--scope", "population", "--level", 0.9, "--seed", 2]
    (task,) = answer("study anchors", files / "five.npz", *options)["tasks"]
    (placed,) = task["placed"]
    others = [name for name in NAMES if name != "medium"]
    kernel = expected("medium", others, posterior={"scope": "population", "seed": 2})
    assert placed["posterior"]["probability"] == kernel.probability.tolist()
    assert placed["inside"] == list(kernel.interval(0.9))


def test_checks_that_fail(files, tmp_path):
    assert answer("study anchors", files / "five.npz")["tasks"][0]["doubtful"] is False
    # all trials of a model end alike, whatever the question
    R = np.repeat(np.array([[0, 1] * 4, [1, 0] * 4, [1, 1, 0, 1] * 2])[:, None, :], 12, axis=1)
    np.savez(tmp_path / "alike.npz", R=R, models=["a", "b", "c"], task="sums")
    assert answer("study anchors", tmp_path / "alike.npz")["tasks"][0]["doubtful"] is True


def test_each_in_turn_among_all_the_others(files):
    (result,) = answer("study anchors", files / "five.npz")["tasks"]
    assert [item["model"] for item in result["placed"]] == NAMES
    share = leb.ordering_violations(leb.AnchorMatrix.from_probabilities(tossed().mean(axis=2)))
    assert result["ordering"]["share"] == share.share
    _, printed, _ = called("study anchors", files / "five.npz")
    lines = re.findall(rf"^({'|'.join(NAMES)}) +0\.\d", printed, re.MULTILINE)
    assert set(lines) == set(NAMES)


@pytest.mark.parametrize(
    ("options", "refused"),
    [
        ("--target tiny --anchor tiny", ("--anchor", "conflict")),
        ("--keep 0:0", ("--keep", "empty")),
    ],
)
def test_without_an_anchor_or_a_question_nothing_is_placed(files, options, refused):
    assert refusal("study anchors", files / "five.npz", *options.split()) == refused
