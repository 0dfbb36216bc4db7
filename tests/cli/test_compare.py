"""`lm-eval-bayes compare`: numbers, verdicts, exit codes, and what is A and what is B."""

from __future__ import annotations

import json
import shlex

import numpy as np
import pytest
from _support import by_hand
from _support.command_line import called as lmeb
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


def p_greater(a, b):
    """Return P(A > B) from draws of the plain grid."""
    drawn = [
        by_hand.LearnedPrior(item.sum(axis=1), item.shape[1] - item.sum(axis=1)).draw(40_000, seed)
        for seed, item in enumerate((a, b))
    ]
    return float((drawn[0].mean(axis=1) > drawn[1].mean(axis=1)).mean())


def test_numbers_of_a_comparison(two, tmp_path):
    close = outcomes(5, 0.2)
    third = saved(tmp_path / "third", "third", close)
    plain = compared(two[0], third, "--rope", ".1")
    assert plain["a"]["model"] == "good"
    assert plain["b"]["model"] == "third"
    (task,) = plain["tasks"]
    assert task["p_a_greater"] == pytest.approx(p_greater(GOOD, close), abs=0.012)
    assert plain["p_a_less"] == pytest.approx(1 - task["p_a_greater"])
    assert task["rope"] == [-0.1, 0.1]
    normal = stats.norm(task["difference"], task["sd"])
    assert task["p_rope"] == pytest.approx(normal.cdf(0.1) - normal.cdf(-0.1), abs=0.01)
    assert task["interval"]["low"] < task["difference"] < task["interval"]["high"]


def test_an_undecided_comparison_names_the_command_that_plans_further_trials(two, tmp_path):
    alike = saved(tmp_path / "a folder" / "alike", "alike", outcomes(5, 0.24))
    code, printed, error = lmeb("compare", two[0], alike)
    assert code == 0, error
    (command,) = [line for line in printed.splitlines() if "lm-eval-bayes plan" in line]
    program, name, *arguments = shlex.split(command.partition(": ")[2])
    assert (program, name, *arguments[:2]) == ("lm-eval-bayes", "plan", str(two[0]), str(alike))
    code, printed, error = lmeb(name, *arguments)
    assert code == 0, error
    assert "good" in printed


def test_the_command_that_plans_further_trials_reads_the_same_trials(tmp_path):
    rng = np.random.default_rng(1)
    rows = [
        f"{model},q {q},{rng.choice(['', '-1', '1'])}"
        for model in ("a", "b")
        for q in range(12)
        for _ in range(6)
    ]
    table = tmp_path / "two.csv"
    table.write_text("who,item,won\n" + "\n".join(rows) + "\n", encoding="utf-8")
    columns = "question=item,score=won,model=who"
    reading = ["--task", "a task", "--columns", columns, "--bounds", "-1:1"]
    reading += ["--unscored", "wrong"]
    code, printed, error = lmeb("compare", table, *reading)
    assert code == 0, error
    (command,) = [line for line in printed.splitlines() if "lm-eval-bayes plan" in line]
    _, *arguments = shlex.split(command.partition(": ")[2])
    assert arguments == ["plan", str(table), "--separate", *reading]
    code, printed, error = lmeb(*arguments)
    assert (code, "a task" in printed) == (0, True), error


def test_what_is_printed(two):
    code, printed, error = lmeb("compare", *two, "--k", "1,2,4,8", "--rope", ".02")
    assert (code, error) == (0, "")
    lines = printed.splitlines()
    assert lines[0].startswith(f"A is good, from {two[0]}")
    assert lines[1].startswith(f"B is poor, from {two[1]}")
    verdict = "A is better than B: they are distinguishable with 95% confidence."
    assert f"verdict, under a flat prior on the difference: {verdict}" in " ".join(printed.split())
    message = "P(A > B) > 0.999, P(A < B) < 0.001, P(-0.02 <= A - B <= 0.02) < 0.001"
    assert message in lines
    assert "contest_bayes: 12 questions, N = 8, " in printed
    (first,) = [line for line in lines if line.split()[:1] == ["1"]]
    # Pass@1 of the latent curves is the score itself
    (score,) = [line for line in lines if line.startswith("  A   ") and "±" in line]
    assert float(first.split()[1]) == pytest.approx(float(score.split()[1]), abs=0.005)
    assert sum("What is" in line for line in lines) == 5
    largest = max(abs(GOOD.mean(axis=1) - POOR.mean(axis=1)))
    driver = next(line for line in lines if "What is" in line).split()
    right = [int(cell.split("/")[0]) / 8 for cell in driver[1:3]]
    assert abs(right[0] - right[1]) == pytest.approx(largest, abs=0.13)


def test_exit_codes_of_a_margin(two):
    good, poor = two
    assert lmeb("compare", good, poor, "--margin", "0")[0] == 0
    code, printed, error = lmeb("compare", poor, good, "--margin", "0")
    assert code == 1
    assert "verdict, under a flat prior on the difference: B is better than A" in printed
    assert error == "worse: P(A < B) > 0.999\n"
    # undecided is not worse
    assert lmeb("compare", good, good, "--margin", "0")[0] == 0
    plain = compared(poor, good, "--margin", "0", code=1)
    assert (plain["failed"], plain["checks"][0]["limit"]) == (True, 0.0)
    for wrong in ("-1", "nan"):
        code, printed, error = lmeb("compare", good, poor, "--margin", wrong)
        assert (code, printed) == (2, "")
        assert "`--margin` must be a finite number of at least 0" in error


def test_two_runs_of_one_name_are_compared_and_not_merged(tmp_path):
    a, b = (saved(tmp_path / side, "same", outcomes(seed)) for side, seed in (("x", 1), ("y", 2)))
    plain = compared(a, b)
    assert (plain["a"]["model"], plain["b"]["model"]) == ("same (A)", "same (B)")
    assert str(a) in plain["a"]["sources"][0]
    assert plain["tasks"][0]["a"]["n_range"] == [8, 8]


def test_scope_population_pairs_questions(two):
    (task,) = compared(*two, "--scope", "population")["tasks"]
    observed = GOOD.mean(axis=1) - POOR.mean(axis=1)
    assert task["difference"] == pytest.approx(observed.mean())
    assert task["interval"]["scope"] == "population"
    assert task["paired"] is None


def test_one_trial_a_question(tmp_path):
    first, second = outcomes(1, 0.2, m=30, n=1), outcomes(2, m=30, n=1)
    a, b = saved(tmp_path / "a", "a", first), saved(tmp_path / "b", "b", second)
    code, printed, _ = lmeb("compare", a, b, "--scope", "population")
    assert code == 0
    both = int(((first == 1) & (second == 1)).sum())
    assert f"right: both {both}, only A " in printed
    assert "(Bowyer et al. 2025): A - B = " in printed
    code, _, error = lmeb("compare", a, b)
    assert code == 0
    assert "note: contest_bayes: " in error  # that the prior speaks with few trials


def test_questions_that_only_one_has(two, tmp_path):
    few = saved(tmp_path / "few", "few", POOR[3:], first=3)
    code, printed, error = lmeb("compare", two[0], few)
    assert (code, printed) == (2, "")
    assert error.startswith("error: `B` must have answered the same questions of contest_bayes")
    assert "only good has " in error
    code, printed, _ = lmeb("compare", two[0], few, "--align", "intersection")
    assert code == 0
    assert "left out: 3 questions that only A has" in printed
    assert "contest_bayes: 9 questions" in printed


def test_several_tasks(two, tmp_path):
    for model, matrix, folder in (("good", outcomes(7), "g"), ("poor", outcomes(8), "p")):
        saved(tmp_path / folder / "1", model, GOOD if model == "good" else POOR)
        saved(tmp_path / folder / "2", model, matrix, task="other")
    saved(tmp_path / "g" / "3", "good", GOOD, task="alone")
    code, printed, _ = lmeb("compare", tmp_path / "g", tmp_path / "p", "--margin", "0")
    assert code == 0
    assert "mean of 2 tasks" in printed
    assert "left out: alone, which only A has" in printed
    plain = compared(tmp_path / "g", tmp_path / "p")
    parts = plain["tasks"]
    # the tasks of either model share a prior, which moves their mean by a small part of its sd
    mean, sd = np.mean([part["difference"] for part in parts]), np.hypot(*[p["sd"] for p in parts])
    assert plain["overall"]["mu"] == pytest.approx(mean, abs=0.1 * sd / 2)
    assert plain["overall"]["sigma"] == pytest.approx(sd / 2, rel=0.05)
    assert plain["p_a_less"] == pytest.approx(1 - plain["overall"]["p_a_greater"])


def test_matrices_and_which_model_is_which(tmp_path):
    three = tmp_path / "three.npz"
    np.savez(three, R=np.stack([GOOD, POOR, GOOD]))
    for name, matrix in (("a", GOOD), ("b", POOR)):
        np.savetxt(tmp_path / f"{name}.csv", matrix, fmt="%d", delimiter=",")
    np.savez(tmp_path / "pair.npz", R=np.stack([GOOD, POOR]))
    by_file = compared(tmp_path / "a.csv", tmp_path / "b.csv")["tasks"][0]
    in_one = compared(tmp_path / "pair.npz")["tasks"][0]
    named = compared(three, "--model-b", "three 2", "--model-a", "three 3")["tasks"][0]
    turned = compared(tmp_path / "pair.npz", "--model-b", "pair 1")["tasks"][0]
    assert by_file["difference"] == in_one["difference"] == named["difference"]
    assert turned["difference"] == -in_one["difference"]
    for arguments, message in (
        ([three], "`A` must hold two models"),
        ([three, "--model-a", "three 1"], "`A` must hold two models"),
        ([three, "--model-a", "x"], "`--model-a` must be one of three 1, three 2, three 3; got"),
        ([three, "--model-a", "three 1", "--model-b", "three 1"], "`--model-b` must be another"),
        ([tmp_path / "a.csv"], "`A` must hold two models"),
        ([tmp_path / "a.csv", three], "`B` must hold one model"),
    ):
        code, printed, error = lmeb("compare", *arguments)
        assert (code, printed) == (2, "")
        assert error.startswith(f"error: {message}")


def test_names_reach_no_terminal(two, tmp_path):
    other = saved(tmp_path / "h", HOSTILE, POOR)
    code, printed, error = lmeb("compare", two[0], other)
    assert code == 0
    assert "\x1b" not in printed + error
    assert "\\x1b[31m[bold]x[/bold]\\n\\u202e:smiley:" in printed


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--rope", "-1"], "`--rope` must be a finite number of at least 0"),
        (["--rope", "nan"], "`--rope` must be a finite number of at least 0"),
        (["--level", "1"], "`--level` must be"),
        (["--questions", "-1"], "`--questions` must be an integer of at least 0"),
        (["--k", "x"], "`--k` must be integers"),
        (
            ["--k", "9", "--scope", "population"],
            '`--k` must be at most N for scope "population" (N=8 on contest_bayes)',
        ),
        (["--task", "gsm8k"], "gsm8k"),
    ],
)
def test_wrong_options_end_in_one_sentence(two, options, message):
    code, printed, error = lmeb("compare", *two, *options)
    assert (code, printed) == (2, "")
    assert error.startswith("error: ")
    assert message in error
    assert len(error.splitlines()) == 1


def test_runs_that_have_nothing_in_common(two, tmp_path):
    other = saved(tmp_path / "o", "other", POOR, task="hmmt")
    code, printed, error = lmeb("compare", two[0], other)
    assert (code, printed) == (2, "")
    assert error == ("error: `B` must have a task in common with A (contest_bayes); got 'hmmt'\n")
    code, _, error = lmeb("compare", two[0], tmp_path / "missing")
    assert code == 2
    assert len(error.splitlines()) == 1


def test_help():
    code, printed, _ = lmeb("compare", "--help")
    assert code == 0
    assert printed.count("\n    lm-eval-bayes compare ") == 4
    assert "exit code is 1" in " ".join(printed.split())
