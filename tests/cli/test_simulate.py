"""`lm-eval-bayes study simulate`: coverage, separation, the files it writes, and how it ends."""

from __future__ import annotations

import re
from functools import partial
from html import unescape

import numpy as np
import pytest
from _support.command_line import answer, called, refusal
from scipy import stats

import lm_eval_bayes as leb
from lm_eval_bayes.analysis.simulation import (
    SimulatedBenchmark,
    interval_study,
)
from lm_eval_bayes.stats.intervals import IntervalSpec
from lm_eval_bayes.stats.simulation import mimics_with_means

lmeb = partial(called, "study simulate")


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
    study = interval_study(coins, [1], IntervalSpec(level, "population"), replicates=150)
    result = {item.method: item for item in study}
    assert set(result) == {"hbayes@N", "avg@N, CLT"}
    assert result["hbayes@N"].coverage == pytest.approx(
        exact, abs=4 * np.sqrt(exact * (1 - exact) / 150)
    )


def test_a_single_trial_has_no_interval_of_the_clt():
    coins = SimulatedBenchmark((0.4,), 2.0, 10)
    study = interval_study(coins, [1, 2], IntervalSpec(method="beta"), replicates=5)
    assert [item.n_trials for item in study if item.method == "avg@N, CLT"] == [2]


# -- what is printed -------------------------------------------------------------------------------


def test_the_tables_depend_on_the_seed_alone():
    options = ["--models", 3, "--trials", "2,8", "--replicates", 5]
    _, printed, _ = lmeb(*options)
    assert len(re.findall(r"^[ ]?[28] +(?:hbayes|bayes|avg)@N", printed, re.MULTILINE)) == 8
    assert lmeb(*options)[1] == printed
    assert lmeb(*options, "--seed", 1)[1] != printed


# -- files -----------------------------------------------------------------------------------------


def test_the_matrix_is_read_by_the_other_commands(tmp_path):
    path = tmp_path / "coins.csv"
    options = ["--models", 2, "--questions", 8, "--trials", "4,12", "--seed", 9, "-o", path]
    assert lmeb(*options)[0] == 0
    R = leb.simulate_outcomes(mimics_with_means([0.215, 0.185], 8, strength=1.5), 12, seed=9)
    tasks = answer("summary", path)["tasks"]
    assert [task["model"] for task in tasks] == ["A 0.215", "B 0.185"]
    for item, matrix in zip(tasks, R, strict=True):
        assert (item["task"], item["questions"], item["n_range"]) == ("simulated", 8, [12, 12])
        assert item["avg"]["value"] == pytest.approx(matrix.mean())


def test_the_page_has_the_cells_of_the_printed_tables(tmp_path):
    path = tmp_path / "study.html"
    settings = ["--models", 3, "--questions", 20, "--trials", "2,8", "--replicates", 5]
    _, printed, _ = lmeb(*settings, "--html", path)
    page = path.read_text(encoding="utf-8")
    assert "default-src 'none'" in page
    assert not re.search(r"<script|src=|href=", page)
    rows = re.findall(r"<tr>(.*?)</tr>", page)
    assert len(rows) == 1 + 8
    lines = [" ".join(line.split()) for line in printed.splitlines()]
    for row in rows:
        cells = re.findall(r"<t[dh]>(.*?)</t[dh]>", row)
        assert unescape(" ".join(cells)) in lines


def test_what_is_there_stays_unless_told(tmp_path):
    page, matrix = tmp_path / "demo.html", tmp_path / "coins.csv"
    options = ["--trials", 2, "--replicates", 2, "--html", page, "-o", matrix]
    matrix.write_text("mine", encoding="utf-8")
    assert refusal("study simulate", *options) == ("--output", "path")
    assert matrix.read_text(encoding="utf-8") == "mine"
    assert not page.exists()
    content = answer("study simulate", *options, "--overwrite")
    assert content["files"] == [str(matrix), str(page)]
    assert matrix.read_text(encoding="utf-8").startswith("task,model,question,trial 1")
