"""`lm-eval-bayes study convergence`: its numbers, its picture, and how it ends."""

from __future__ import annotations

import json
import re

import numpy as np
import pytest
from _support.command_line import answer, called
from _support.errors import refused

import lm_eval_bayes as leb
from lm_eval_bayes.analysis.convergence import score_named, task_convergence
from lm_eval_bayes.runs.task_run import TaskRun
from lm_eval_bayes.stats.intervals import IntervalSpec
from lm_eval_bayes.stats.prefixes import prefix_scores

#: A name that would colour a terminal, be taken as mathematics, and break a line.
HOSTILE = "mod$x_1$el \x1b[31m\n\u202e\ud800"


def lmeb(*arguments):
    return called("study convergence", *arguments)


def tossed(n_models=3, n_questions=12, n_trials=16, seed=3):
    rng = np.random.default_rng(seed)
    p = rng.beta(0.8, 1.2, n_questions) + 0.1 * np.arange(n_models)[:, None]
    return (rng.random((n_models, n_questions, n_trials)) < p[:, :, None]).astype(int)


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    """Outcomes of three models in one file, and those of the first in a file of its own."""
    folder = tmp_path_factory.mktemp("runs")
    R = tossed()
    np.savez(folder / "three.npz", R=R, models=["small", "medium", HOSTILE], task="sums")
    np.savez(folder / "small.npz", R=R[0])
    return folder


def test_json_is_what_the_kernels_say(files):
    R = tossed()
    options = ["--replicates", 300, "--seed", 5]
    scores = ["--score", "bayes", "--score", "pass@4", "--score", "g-pass@4_0.5"]
    (result,) = answer("study convergence", files / "three.npz", *options, *scores)["tasks"]
    assert (result["task"], result["questions"], result["trials"]) == ("sums", 12, 16)
    drawn = {"replicates": 300, "seed": 5}
    for item, (metric, more) in zip(
        result["rankings"],
        [("bayes", {}), ("pass@k", {"k": 4}), ("g-pass", {"k": 4, "tau": 0.5})],
        strict=True,
    ):
        assert item["convergence"] == leb.convergence_at_n(R, metric, **more, **drawn).to_dict()
        gold = prefix_scores(R)[:, -1]
        assert item["kendall"] == leb.kendall_curve(R, gold, metric, **more, **drawn).to_dict()
    tied = leb.convergence_at_n(R, ties="adjacent", **drawn)
    assert result["rankings"][0]["with_ties"] == tied.to_dict()
    assert result["rankings"][1]["with_ties"] is None
    for model, matrix in zip(result["models"], R, strict=True):
        along = result["along"][model]
        assert [element["n"] for element in along] == [1, 2, 4, 8, 16]
        for item in along:
            posterior = leb.hbayes_at_n(leb.Outcomes.from_matrix(matrix[:, : item["n"]]), seed=5)
            assert (item["mu"], item["sigma"]) == (posterior.mu, posterior.sigma)
            assert item["interval"] == posterior.interval(0.95, "exact").to_dict()


def test_the_table_of_several_models(files):
    code, printed, error = lmeb(files / "three.npz", "--replicates", 200)
    assert (code, error) == (0, "")
    settled = leb.convergence_at_n(tossed(), replicates=200)
    n_converged = int(settled.counts.sum())
    sentence = printed.splitlines()[0]
    assert f" {settled.mean:.1f} trials" in sentence
    assert f" {n_converged} of 200 orders" in sentence
    assert f" {200 - n_converged} did not" in sentence
    row = re.search(r"^bayes@N +(\S+) +(\S+) .* \((\S+)%\)$", printed, re.MULTILINE)
    assert row[1] == f"{settled.mean:.1f}"
    assert row[2] == str(int(np.flatnonzero(settled.cdf >= 0.5)[0]) + 1)
    assert row[3] == f"{100 * settled.not_converged:.1f}"


def test_questions_in_another_order_are_matched_by_their_ids():
    R = tossed()
    ids = [f"q{i}" for i in range(12)]
    turned = TaskRun.from_trials("medium", "sums", R[1][::-1], ids[::-1])
    straight = TaskRun.from_trials("medium", "sums", R[1], ids)
    first = TaskRun.from_trials("small", "sums", R[0], ids)
    a, b = (task_convergence([first, x], replicates=100) for x in (straight, turned))
    assert a.rankings[0].convergence.to_dict() == b.rankings[0].convergence.to_dict()


def test_fewer_trials_of_one_model():
    R = tossed()
    ids = [f"q{i}" for i in range(12)]
    runs = [
        TaskRun.from_trials("small", "sums", R[0], ids),
        TaskRun.from_trials("large", "sums", R[2][:, :10], ids),
    ]
    result = task_convergence(runs, replicates=50)
    assert result.n_trials == 10
    assert "10" in result.notes[0]
    assert [item.n for item in result.prefixes["small"]] == [1, 2, 4, 8, 16]
    single = task_convergence(
        [TaskRun.from_trials(r.model, "sums", [t[:1] for t in r.trials], ids) for r in runs]
    )
    assert (single.rankings, len(single.notes)) == ((), 1)


def test_categories_are_ranked_by_their_scores_and_equal_models_have_no_order():
    rng = np.random.default_rng(2)
    R = rng.integers(0, 3, (2, 10, 8))
    R[1] = np.maximum(R[0] - 1, 0)
    weights = (0.0, 0.2, 1.0)
    ids = [f"q{i}" for i in range(10)]
    runs = [TaskRun.from_trials(f"m{i}", "t", R[i], ids, weights=weights) for i in range(2)]
    result = task_convergence(runs, IntervalSpec(method="beta"), replicates=50)
    assert [ranking.score.name for ranking in result.rankings] == ["bayes@N"]
    expected = leb.convergence_at_n(R, weights=weights, replicates=50)
    assert result.rankings[0].convergence.to_dict() == expected.to_dict()
    with refused("score", "unsupported"):
        task_convergence(runs, scores=[score_named("pass@2")])
    same = [TaskRun.from_trials(f"m{i}", "t", R[0] > 0, ids) for i in range(2)]
    level = task_convergence(same, replicates=50)
    assert level.rankings[0].kendall is None
    assert len(level.notes) == 1
    json.dumps(level.to_dict(), allow_nan=False)


@pytest.mark.parametrize(
    ("text", "parts"),
    [
        ("avg@N", ("avg", None, None)),
        ("mg-pass@4", ("mg-pass", 4, None)),
        ("G-Pass@16_.75", ("g-pass", 16, 0.75)),
    ],
)
def test_names_of_scores(text, parts):
    score = score_named(text)
    assert (score.metric, score.k, score.tau) == parts


@pytest.mark.parametrize("text", ["", "pass@", "pass@1.5", "naive-pass@4", "mg-pass@4_0.5"])
def test_what_is_no_name_of_a_score(text):
    with refused("score", "choice", text):
        score_named(text)
