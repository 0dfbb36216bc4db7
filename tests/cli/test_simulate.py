"""`lm-eval-bayes simulate`: coverage, separation, the files it writes, and how it ends."""

from __future__ import annotations

import json
import re
from html import unescape
from pathlib import Path

import numpy as np
import pytest
from _support.command_line import called
from scipy import special, stats

import lm_eval_bayes as leb
from lm_eval_bayes.analysis.simulation import (
    SimulatedBenchmark,
    interval_study,
    matrix_file,
    separation_study,
)
from lm_eval_bayes.stats.intervals import IntervalSpec


def lmeb(*arguments, command="simulate"):
    return called(command, *arguments)


# -- numbers ---------------------------------------------------------------------------------------


def test_coverage_on_a_hard_benchmark_is_the_design_table():
    """p ~ Beta(.2, 2), M = 30: the paper's prior held the truth in 0 of 400 runs at N = 4."""
    hard = SimulatedBenchmark.even(1, 0.2 / 2.2, 0.0, 2.2, 30)
    result = {
        item.method: item
        for item in interval_study(hard, [4], IntervalSpec(method="beta"), replicates=300)
    }
    assert result["bayes@N"].coverage < 0.02
    assert result["hbayes@N"].coverage > 0.9
    # bias in closed form: E (Np + 1)/(N + 2) − p = (1 − 2p)/(N + 2)
    assert result["bayes@N"].bias == pytest.approx((1 - 2 * 0.2 / 2.2) / 6, abs=0.004)
    jeffreys = result["bayes@N, Jeffreys"]
    assert jeffreys.bias == pytest.approx((0.5 - 0.2 / 2.2) / 5, abs=0.004)
    assert abs(result["avg@N, CLT"].bias) < 0.004
    for value in result.values():
        assert value.rmse >= abs(value.bias)
        assert value.replicates == 300


def test_population_coverage_at_one_trial_is_that_of_the_beta_posterior():
    """At N = 1 the successes are Binomial(M, m) and the posterior Beta(1 + S, 1 + M − S)."""
    m, n_questions, level = 0.3, 20, 0.9
    s = np.arange(n_questions + 1)
    low, high = stats.beta.ppf([[0.05], [0.95]], 1 + s, 1 + n_questions - s)
    exact = float(stats.binom.pmf(s, n_questions, m)[(low <= m) & (m <= high)].sum())
    coins = SimulatedBenchmark((m,), 3.0, n_questions)
    study = interval_study(coins, [1], IntervalSpec(level, "population"), replicates=400)
    result = {item.method: item for item in study}
    assert set(result) == {"hbayes@N", "avg@N, CLT"}
    assert result["hbayes@N"].coverage == pytest.approx(
        exact, abs=4 * np.sqrt(exact * (1 - exact) / 400)
    )


def test_a_single_trial_has_no_interval_of_the_clt():
    study = interval_study(
        SimulatedBenchmark((0.4,), 2.0, 10), [1, 2], IntervalSpec(method="beta"), replicates=5
    )
    result = [(item.n_trials, item.method) for item in study]
    assert (1, "avg@N, CLT") not in result
    assert (2, "avg@N, CLT") in result


def test_separation_against_an_exact_count():
    """Two questions, two trials each: every outcome can be written down."""
    coins = SimulatedBenchmark((0.7, 0.4), 5.0, 2)
    p = leb.mimics_with_means([0.7, 0.4], 2, strength=5.0)
    threshold = special.ndtri(0.95)
    surely = wrongly = right = 0.0
    for outcome in np.ndindex(*[2] * 8):
        R = np.array(outcome).reshape(2, 2, 2)
        weight = np.where(R == 1, p[:, :, None], 1 - p[:, :, None]).prod()
        a, b = (leb.bayes_at_n(leb.Outcomes.from_matrix(matrix)) for matrix in R)
        z = (a.mu - b.mu) / np.hypot(a.sigma, b.sigma)
        surely += weight * (z >= threshold)
        wrongly += weight * (z <= -threshold)
        right += weight * (a.mu > b.mu + 1e-12)
    result = separation_study(coins, [2], replicates=4000)
    (pair,) = result.pairs
    for ours, exact in (
        (pair.surely[0], surely),
        (pair.wrongly[0], wrongly),
        (result.orders[0].right, right),
    ):
        assert ours == pytest.approx(exact, abs=4 * np.sqrt(0.25 / 4000))


def test_separation_of_equal_models():
    result = separation_study(SimulatedBenchmark((0.5, 0.5), 2.0, 10), [4, 8], replicates=200)
    (pair,) = result.pairs
    assert pair.trials is None
    assert pair.z == (0.0, 0.0)
    assert [order.tau for order in result.orders] == [None, None]
    json.dumps(result.to_dict(), allow_nan=False)


def test_trials_needed_are_those_of_the_paper():
    """.6080 and .6213 on thirty questions: 164 trials for z = 1.645, 232 for 1.96."""
    code, printed, _ = lmeb(
        "--means", ".608,.6213", "--beta", "1:1", "--trials", "80,240", "--replicates", 3, "--json"
    )
    assert code == 0
    result = json.loads(printed)
    (pair,) = result["separation"]["pairs"]
    assert (pair["better"], pair["worse"], pair["trials"]) == ("A 0.621", "B 0.608", 164)
    assert pair["z"] == pytest.approx([1.14, 2.0], abs=0.005)
    assert result["benchmark"]["strength"] == 2.0


# -- what is printed -------------------------------------------------------------------------------


def test_the_tables():
    options = ["--models", 3, "--trials", "2,8", "--replicates", 20]
    code, printed, _ = lmeb(*options)
    assert code == 0
    assert "3 models with true scores 0.230, 0.200, 0.170; 30 questions, A + B = 1.5" in printed
    assert len(re.findall(r"^  [28] +(?:hbayes|bayes|avg)@N", printed, re.MULTILINE)) == 8
    assert "A 0.230  B 0.200  0.030" in printed
    assert re.search(r"^95% .*, in 20 simulated benchmarks for each N$", printed, re.M)
    again = lmeb(*options)[1]
    assert printed == again
    assert lmeb(*options, "--seed", 1)[1] != printed


def test_a_single_model_has_no_separation():
    options = ("--models", 1, "--trials", 4, "--replicates", 5)
    code, printed, _ = lmeb(*options, "--json")
    assert code == 0
    assert json.loads(printed)["separation"] is None
    assert "N needed" not in lmeb(*options)[1]


# -- files -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("suffix", [".npz", ".csv"])
def test_the_matrix_is_read_by_the_other_commands(tmp_path, suffix):
    path = tmp_path / f"coins{suffix}"
    options = ["--models", 2, "--questions", 8, "--trials", "4,12", "--seed", 9, "-o", path]
    code, printed, error = lmeb(*options)
    assert (code, error) == (0, "")
    assert printed.startswith(f"{path}: ")
    code, printed, _ = lmeb(path, "--json", command="summary")
    assert code == 0
    R = leb.simulate_outcomes(leb.mimics_with_means([0.215, 0.185], 8, strength=1.5), 12, seed=9)
    tasks = json.loads(printed)["tasks"]
    assert [task["model"] for task in tasks] == ["A 0.215", "B 0.185"]
    for item, matrix in zip(tasks, R, strict=True):
        assert (item["task"], item["questions"], item["n_range"]) == ("simulated", 8, [12, 12])
        assert item["avg"]["value"] == pytest.approx(matrix.mean())
    assert lmeb(path, command="rank")[0] == 0


def test_the_npz_file_tells_the_truth(tmp_path):
    coins = SimulatedBenchmark.even(3, 0.5, 0.1, 2.0, 20)
    path = tmp_path / "coins.npz"
    path.write_bytes(matrix_file(coins, 6, 4, ".npz"))
    with np.load(path, allow_pickle=False) as result:
        np.testing.assert_allclose(result["p"].mean(axis=1), [0.6, 0.5, 0.4], rtol=0, atol=1e-12)
        np.testing.assert_allclose(result["true_scores"], [0.6, 0.5, 0.4])
        assert result["R"].shape == (3, 20, 6)


def test_the_page_has_the_cells_of_the_printed_tables(tmp_path):
    path = tmp_path / "study.html"
    settings = ["--models", 3, "--questions", 20, "--trials", "2,8", "--replicates", 20]
    code, printed, error = lmeb(*settings, "--html", path)
    assert (code, f"{path}: " in error) == (0, True)
    page = path.read_text(encoding="utf-8")
    assert "default-src 'none'" in page
    assert not re.search(r"<script|src=|href=", page)
    rows = re.findall(r"<tr>(.*?)</tr>", page)
    # eight intervals, two pairs of neighbours and two orders, each table with a head
    assert len(rows) == 1 + 8 + 1 + 2 + 1 + 2
    lines = [" ".join(line.split()) for line in printed.splitlines()]
    for row in rows:
        cells = re.findall(r"<t[dh]>(.*?)</t[dh]>", row)
        assert unescape(" ".join(cells)) in lines


def test_files_and_tables_at_once_and_what_is_there_stays(tmp_path):
    page, matrix = tmp_path / "demo.html", tmp_path / "coins.csv"
    options = ["--trials", 2, "--html", page, "-o", matrix]
    code, printed, error = lmeb(*options, "--replicates", 2)
    assert code == 0
    assert "coverage" in printed
    assert f"{page}: " in error
    matrix.write_text("mine", encoding="utf-8")
    page.unlink()
    code, printed, error = lmeb(*options)
    assert (code, printed) == (2, "")
    assert "must be a new file, unless --overwrite is given" in error
    assert matrix.read_text(encoding="utf-8") == "mine"
    assert not page.exists()
    code, printed, _ = lmeb(*options, "--replicates", 2, "--overwrite", "--json")
    assert code == 0
    assert json.loads(printed)["files"] == [str(matrix), str(page)]
    assert matrix.read_text(encoding="utf-8").startswith("task,model,question,trial 1")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--models", "0"], "`--models` must be an integer of at least 1"),
        (["--models", "40"], "`--gap` must leave 40 models around 0.2 strictly between 0 and 1"),
        (["--means", ".4,x"], "`--means` must be numbers"),
        (["--means", ".4,1.2"], "`--means` must be true scores strictly between 0 and 1"),
        (["--means", ".4,.5", "--models", "2"], "`--models` must be left out with --means"),
        (["--trials", "4,"], "`--trials` must be integers of at least 1"),
        (["--trials", "0"], "`--trials` must be integers of at least 1"),
        (["--beta", "3"], "`--beta` must be two numbers"),
        (["--beta", "nan:1"], "`--beta` must be two numbers"),
        (["--questions", "0"], "`--questions` must be an integer of at least 1"),
        (["--replicates", "0"], "`--replicates` must"),
        (["--level", "2"], "`--level` must"),
        (["-o", "coins.parquet"], "`--output` must end with .npz or .csv"),
        (["--html", "demo.pdf"], "`--html` must end with .html"),
    ],
)
def test_errors_are_one_sentence(arguments, message, monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    code, printed, error = lmeb(*arguments)
    assert code == 2
    assert printed == ""
    assert error.startswith("error: ")
    assert message in error
    assert error.count("\n") == 1
    assert list(Path().iterdir()) == []
