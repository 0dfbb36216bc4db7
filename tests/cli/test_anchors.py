"""`lm-eval-bayes anchors`: where it places models, what it checks, and how it ends."""

from __future__ import annotations

import csv
import json
import re

import numpy as np
import pytest
from _support.command_line import called
from _support.paths import SHARED

import lm_eval_bayes as leb
from lm_eval_bayes._util.text import format_probability
from lm_eval_bayes.runs import reader

AIME = SHARED / "data" / "outcomes" / "matharena_aime_2025_II.csv"


def lmeb(*arguments):
    return called("anchors", *arguments)


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
    np.savez(folder / "short.npz", R=R[:2, :5], models=["a", "b"], task="sums")
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
        anchors, placed = anchors.take(saved), leb.take_queries(placed, saved)
    return leb.capability_intervals(anchors, placed, **(posterior or {}))


def test_a_run_is_placed_among_the_models_of_a_file(files):
    code, printed, error = lmeb(files / "four.npz", "--target", files / "new.npz", "--json")
    assert (code, error) == (0, "")
    (result,) = json.loads(printed)["tasks"]
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


def test_every_run_is_read_once(files, monkeypatch):
    read, original = [], reader._read_files

    def counted(run_files, query):
        read.extend(file.file.name for file in run_files)
        return original(run_files, query)

    monkeypatch.setattr(reader, "_read_files", counted)
    assert lmeb(files / "four.npz", "--target", files / "new.npz", "--target", "tiny")[0] == 0
    assert sorted(read) == ["four.npz", "new.npz"]


def test_named_models_and_filters(files):
    options = ["--target", "medium", "--anchor", "tiny", "--anchor", "huge"]
    code, printed, _ = lmeb(
        files / "five.npz", *options, "--keep", "0.3:0.6", "--pseudo-count", 1, "--json"
    )
    assert code == 0
    (result,) = json.loads(printed)["tasks"]
    kernel = expected("medium", ["tiny", "huge"], (0.3, 0.6), pseudo_count=1.0)
    assert result["placed"][0]["posterior"]["probability"] == pytest.approx(kernel.probability)
    assert 0 < len(result["kept"]["kept"]) < 20


def test_questions_like_these_with_a_seed(files):
    options = ["--target", "medium", "--scope", "population"]
    others = [name for name in NAMES if name != "medium"]
    result = []
    for seed in (1, 2):
        more = ["--level", 0.9, "--seed", seed, "--json"]
        code, printed, error = lmeb(files / "five.npz", *options, *more)
        assert (code, error) == (0, "")
        (task,) = json.loads(printed)["tasks"]
        (placed,) = task["placed"]
        kernel = expected("medium", others, posterior={"scope": "population", "seed": seed})
        assert placed["posterior"]["probability"] == kernel.probability.tolist()
        assert placed["inside"] == list(kernel.interval(0.9))
        assert (task["scope"], task["level"]) == ("population", 0.9)
        result.append(placed["posterior"]["probability"])
    assert result[0] != result[1]
    _, printed, _ = lmeb(files / "five.npz", *options)
    assert printed.splitlines()[-1] == "for the population of questions"


def test_checks_that_fail_are_spelt_out(files, tmp_path):
    message = "the method's assumptions are violated"
    assert message not in lmeb(files / "five.npz")[1]
    # all trials of a model end alike, whatever the question
    R = np.repeat(np.array([[0, 1] * 4, [1, 0] * 4, [1, 1, 0, 1] * 2])[:, None, :], 12, axis=1)
    np.savez(tmp_path / "one.npz", R=R, models=["a", "b", "c"], task="sums")
    code, printed, _ = lmeb(tmp_path / "one.npz")
    assert code == 0
    assert message in printed
    assert json.loads(lmeb(tmp_path / "one.npz", "--json")[1])["tasks"][0]["doubtful"] is True


def test_each_in_turn_among_all_the_others(files):
    code, printed, error = lmeb(files / "five.npz", "--json")
    assert (code, error) == (0, "")
    (result,) = json.loads(printed)["tasks"]
    assert [item["model"] for item in result["placed"]] == NAMES
    for placement in result["placed"]:
        kernel = expected(
            placement["model"], [name for name in NAMES if name != placement["model"]]
        )
        assert placement["posterior"]["probability"] == pytest.approx(kernel.probability)
    share = leb.ordering_violations(leb.AnchorMatrix.from_probabilities(tossed().mean(axis=2)))
    assert result["ordering"]["share"] == share.share
    code, printed, _ = lmeb(files / "five.npz")
    assert "sums: 5 anchors, 20 questions" in printed
    lines = re.findall(rf"^  ({'|'.join(NAMES)}) +0\.\d", printed, re.MULTILINE)
    assert set(lines) == set(NAMES)


def test_the_table_of_one_model(files):
    code, printed, _ = lmeb(files / "five.npz", "--target", "medium")
    assert code == 0
    kernel = expected("medium", ["tiny", "small", "large", "huge"])
    peak = kernel.labels[kernel.peak]
    row = next(line for line in printed.splitlines() if line.startswith(f"  {peak} "))
    assert format_probability(kernel.probability.max()) in row
    assert row.rstrip().endswith("*")


def test_counts_without_an_order_of_trials_are_enough(files, tmp_path):
    R = tossed()
    for name, matrix in zip(NAMES, R, strict=True):
        with open(tmp_path / f"{name}.csv", "w", newline="", encoding="utf-8") as output:
            writer = csv.writer(output)
            writer.writerow(["id", "c", "n"])
            writer.writerows([i, int(row.sum()), 8] for i, row in enumerate(matrix))
    paths = [tmp_path / f"{name}.csv" for name in NAMES]
    code, printed, _ = lmeb(*paths, "--target", "medium", "--json")
    assert code == 0
    (result,) = json.loads(printed)["tasks"]
    kernel = expected("medium", ["tiny", "small", "large", "huge"])
    assert result["placed"][0]["posterior"]["probability"] == pytest.approx(kernel.probability)
    assert result["independence"] is None
    assert "not tested" in lmeb(*paths, "--target", "medium")[1]


def test_the_nineteen_models_of_matharena():
    """AIME 2025 II, 15 questions and 4 attempts, against the kernels on the file itself."""
    if not AIME.is_file():
        pytest.skip("the shared outcomes are not here")
    with AIME.open(newline="", encoding="utf-8") as file:
        header, *rows = list(csv.reader(file))
    R = np.array([row[1:] for row in rows], dtype=int).reshape(15, 4, 19).transpose(2, 0, 1)
    code, printed, _ = lmeb(AIME, "--keep", "0.01:0.5", "--json")
    assert code == 0
    (result,) = json.loads(printed)["tasks"]
    models = {
        name: leb.Outcomes.from_matrix(matrix) for name, matrix in zip(header[1:], R, strict=True)
    }
    everyone = leb.AnchorMatrix.from_outcomes(models)
    saved = leb.filter_queries(everyone).kept
    assert result["kept"]["kept"] == saved.tolist()
    assert len(result["placed"]) == 19
    name = "QwQ-32B-Preview"
    others = {item: leb.take_queries(o, saved) for item, o in models.items() if item != name}
    kernel = leb.capability_intervals(
        leb.AnchorMatrix.from_outcomes(others),
        leb.take_queries(models[name], saved),
    )
    placed = next(placement for placement in result["placed"] if placement["model"] == name)
    assert placed["posterior"]["probability"] == pytest.approx(kernel.probability)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["five.npz", "--target", "nobody"], "`--target` must be one of the models"),
        (["five.npz", "--anchor", "nobody"], "`--anchor` must be one of the models"),
        (["five.npz", "--target", "tiny", "--anchor", "tiny"], "`--anchor` must leave out the"),
        (["five.npz", "--keep", "0.5"], "`--keep` must be two shares"),
        (["five.npz", "--keep", "0.9:0.1"], "`--keep` must be two shares"),
        (["five.npz", "--keep", "0:0"], "`--keep` must leave a question"),
        (["five.npz", "--pseudo-count", "-1"], "`--pseudo-count` must be a finite number"),
        (["five.npz", "--level", "0"], "`--level` must"),
        (["five.npz", "--seed", "-1"], "`--seed` must"),
        (["four.npz", "--target", "short.npz"], "must have answered the same questions of sums"),
        (["new.npz"], "`RUN` must be a model to place and at least one anchor"),
        (["nowhere"], "nowhere"),
    ],
)
def test_errors_are_one_sentence(files, arguments, message, monkeypatch):
    monkeypatch.chdir(files)
    code, printed, error = lmeb(*arguments)
    assert code == 2
    assert printed == ""
    assert error.startswith("error: ")
    assert message in error
    assert error.count("\n") == 1


def test_a_target_that_is_among_the_runs_is_named(files):
    code, _, error = lmeb(files / "five.npz", "--target", files / "four.npz")
    assert code == 2
    assert "`--target` must be a model that is not in the RUNs" in error
