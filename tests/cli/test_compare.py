"""`lm-eval-bayes compare`: numbers, verdicts, exit codes, and what is A and what is B."""

from __future__ import annotations

import json
import re
import shlex

import numpy as np
import pytest
from _support.command_line import called as lmeb
from _support.command_line import refusal
from _support.saved_matrices import HOSTILE, outcomes, saved
from scipy import stats

GOOD, POOR = outcomes(1, 0.25), outcomes(2, -0.05)


@pytest.fixture(scope="module")
def two(tmp_path_factory):
    folder = tmp_path_factory.mktemp("two")
    return saved(folder / "good", "good", GOOD), saved(folder / "poor", "poor", POOR)


def compared(*arguments, code=0):
    result, printed, error = lmeb("compare", *arguments, "--json")
    assert result == code, error
    return json.loads(printed)


def test_numbers_of_a_comparison(two, tmp_path):
    close = outcomes(5, 0.2)
    third = saved(tmp_path / "third", "third", close)
    plain = compared(two[0], third, "--rope", ".1")
    assert (plain["a"]["model"], plain["b"]["model"]) == ("good", "third")
    (task,) = plain["tasks"]
    assert plain["p_a_less"] == pytest.approx(1 - task["p_a_greater"])
    normal = stats.norm(task["difference"], task["sd"])
    assert task["rope"] == [-0.1, 0.1]
    assert task["p_rope"] == pytest.approx(normal.cdf(0.1) - normal.cdf(-0.1), abs=0.01)
    assert task["interval"]["low"] < task["difference"] < task["interval"]["high"]


def test_the_command_that_plans_further_trials_reads_the_same_trials(tmp_path):
    rng = np.random.default_rng(1)
    rows = [
        f"{model},q {q},{rng.choice(['', '-1', '1'])}"
        for model in ("a", "b")
        for q in range(12)
        for _ in range(6)
    ]
    table = tmp_path / "two models.csv"
    table.write_text("who,item,won\n" + "\n".join(rows) + "\n", encoding="utf-8")
    columns = "question=item,score=won,model=who"
    reading = ["--task", "a task", "--columns", columns, "--bounds", "-1:1"]
    reading += ["--unscored", "wrong"]
    _, printed, _ = lmeb("compare", table, *reading)
    (command,) = [line for line in printed.splitlines() if line.startswith("Next: ")]
    _, *arguments = shlex.split(command.partition(": ")[2])
    assert arguments == ["plan", str(table), *reading]
    assert lmeb(*arguments)[0] == 0


def test_what_is_printed(two):
    code, printed, error = lmeb("compare", *two, "--k", "1,2,4,8", "--rope", ".02")
    assert (code, error) == (0, "")
    lines = printed.splitlines()
    (at,) = [number for number, line in enumerate(lines) if line.startswith("Pass@k")]
    first = lines[at + 1].split()
    # Pass@1 of the latent curves is the score itself
    a, b = map(float, re.findall(r"0\.\d{3}", lines[1]))
    assert [float(cell) for cell in first[1:3]] == pytest.approx([a, b], abs=0.005)
    here, elsewhere = (
        [float(cell) for cell in re.findall(r"[+-]\d\.\d{3}", line)[:3]]
        for line in lines
        if line.startswith(("these questions", "other questions"))
    )
    for scope, cells in (("benchmark", here), ("population", elsewhere)):
        (task,) = compared(*two, "--scope", scope)["tasks"]
        interval = task["interval"]
        expected = task["difference"], interval["low"], interval["high"]
        assert cells == pytest.approx(expected, abs=0.0006)
    largest = max(abs(GOOD.mean(axis=1) - POOR.mean(axis=1)))
    cells = re.findall(r"(\d)/8", next(line for line in lines if "/8" in line))
    right = [int(cell) / 8 for cell in cells]
    assert abs(right[0] - right[1]) == pytest.approx(largest, abs=0.13)
    assert sum("/8" in line for line in lines) == 3
    assert sum("/8" in line for line in lmeb("compare", *two, "--verbose")[1].splitlines()) == 5


def test_two_runs_of_one_name_are_compared_and_not_merged(tmp_path):
    a, b = (saved(tmp_path / side, "same", outcomes(seed)) for side, seed in (("x", 1), ("y", 2)))
    plain = compared(a, b)
    assert (plain["a"]["model"], plain["b"]["model"]) == ("same (A)", "same (B)")
    assert str(a) in plain["a"]["sources"][0]
    assert plain["tasks"][0]["a"]["n_range"] == [8, 8]


def test_one_trial_a_question(tmp_path):
    first, second = outcomes(1, 0.2, m=30, n=1), outcomes(2, m=30, n=1)
    a, b = saved(tmp_path / "a", "a", first), saved(tmp_path / "b", "b", second)
    assert "note: contest_bayes: " in lmeb("compare", a, b)[2]  # that few trials say little


def test_questions_that_only_one_has(two, tmp_path):
    few = saved(tmp_path / "few", "few", POOR[3:], first=3)
    assert refusal("compare", two[0], few) == ("B", "mismatch")
    (task,) = compared(two[0], few, "--align", "intersection")["tasks"]
    assert task["n_questions"] == 9
    _, printed, _ = lmeb("compare", two[0], few, "--align", "intersection")
    assert "left out: 3 questions" in printed


def test_several_tasks(two, tmp_path):
    for model, matrix, folder in (("good", outcomes(7), "g"), ("poor", outcomes(8), "p")):
        saved(tmp_path / folder / "1", model, GOOD if model == "good" else POOR)
        saved(tmp_path / folder / "2", model, matrix, task="other")
    saved(tmp_path / "g" / "3", "good", GOOD, task="alone")
    plain = compared(tmp_path / "g", tmp_path / "p")
    assert plain["only_a"] == ["alone"]
    assert plain["p_a_less"] == pytest.approx(1 - plain["overall"]["p_a_greater"])


def test_matrices_and_which_model_is_which(tmp_path):
    three = tmp_path / "three.npz"
    np.savez(three, R=np.stack([GOOD, POOR, GOOD]))
    for name, matrix in (("a", GOOD), ("b", POOR)):
        np.savetxt(tmp_path / f"{name}.csv", matrix, fmt="%d", delimiter=",")
    np.savez(tmp_path / "pair.npz", R=np.stack([GOOD, POOR]))
    by_file = compared(tmp_path / "a.csv", tmp_path / "b.csv")["tasks"][0]
    in_one = compared(tmp_path / "pair.npz")["tasks"][0]
    named = compared(three, "-b", "three 2", "-a", "three 3")["tasks"][0]
    turned = compared(tmp_path / "pair.npz", "-b", "pair 1")["tasks"][0]
    assert by_file["difference"] == in_one["difference"] == named["difference"]
    assert turned["difference"] == -in_one["difference"]
    one_named = ("compare", three, "-a", "three 1")
    assert refusal(*one_named) == ("A", "missing")
    assert refusal(*one_named, "-b", "three 1") == ("-b", "duplicate")


def test_names_reach_no_terminal(two, tmp_path):
    other = saved(tmp_path / "h", HOSTILE, POOR)
    code, printed, error = lmeb("compare", two[0], other)
    assert code == 0
    assert "\x1b" not in printed + error
    assert "\\x1b[31m[bold]x[/bold]\\n\\u202e:smiley:" in printed
