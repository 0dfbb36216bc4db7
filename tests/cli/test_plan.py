"""`lm-eval-bayes plan`: forecasts of files, what they cost, and goals that make no sense."""

from __future__ import annotations

import numpy as np
import pytest
from _support.command_line import answer
from _support.command_line import called as lmeb
from _support.saved_matrices import outcomes


@pytest.fixture(scope="module")
def two(files):
    return files / "a", files / "b"


def test_a_width(two):
    plain = answer("plan", *two, "--width", ".1")
    assert plain["separation"] == []
    for line, tokens in zip(plain["runs"], (20, 50), strict=True):
        f = line["forecast"]
        # the sd falls like 1/sqrt(N), or a little faster where a prior gives way
        rough = 8 * ((f["current"] / 0.1) ** 2 - 1)
        assert 0.7 * rough < f["additional"] < 1.3 * rough
        assert line["trials"]["middle"] == 12 * f["additional"]
        assert line["tokens"]["high"] == 12 * tokens * f["additional_high"]
        assert line["seconds"] is None


def rows_of(printed):
    """Return the cells of the rows of a printed table."""
    rows = printed.partition("\n\n")[2].splitlines()[1:]
    return [row.replace("or more", "ormore").split() for row in rows]


def test_what_is_printed(two):
    code, printed, error = lmeb("plan", *two, "--width", ".1")
    assert (code, error) == (0, "")
    lines = answer("plan", *two, "--width", ".1")["runs"]
    for row, line in zip(rows_of(printed), lines, strict=False):
        f = line["forecast"]
        low, high = f["additional_low"], f["additional_high"]
        further = str(f["additional"]), str(low), "to", str(high)
        assert row[:3] == [line["models"][0], f"{f['current']:.3f}", str(8 + f["additional"])]
        assert tuple(row[3:7]) == further
    _, printed, _ = lmeb("plan", *two, "--width", ".9")
    assert [row[2:5] for row in rows_of(printed)[:2]] == [["8", "0", "-"]] * 2


def test_without_a_goal(two):
    """One model gets the trials of several widths, and several the pairs after some trials."""
    lines = answer("plan", two[0])["runs"]
    assert [line["forecast"]["target"] for line in lines] == [0.08, 0.05, 0.03, 0.02]
    rows = rows_of(lmeb("plan", two[0])[1])[:4]
    totals = [str(8 + line["forecast"]["additional"]) for line in lines]
    assert [row[1] for row in rows] == totals
    (plan,) = answer("plan", *two)["separation"]
    (pair,) = plan["pairs"]
    needed = 8 + pair["forecast"]["additional"]
    rows = rows_of(lmeb("plan", *two)[1])
    counts = {int(row[0]): int(row[2]) for row in rows if row[0].isdecimal()}
    assert counts == {n: int(n >= needed) for n in counts}
    assert max(counts) >= needed > max(n for n in counts if not counts[n])


def test_models_that_are_already_distinguishable(tmp_path):
    path = tmp_path / "m.npz"
    np.savez(path, R=np.stack([outcomes(1, 0.4), outcomes(2, -0.3)]))
    (separation,) = answer("plan", path, "--apart")["separation"]
    assert (len(separation["distinguishable"]), separation["pairs"]) == (1, [])
    assert len(lmeb("plan", path)[1].splitlines()) == 2


def test_a_width_that_few_draws_reach_is_out_of_reach(two):
    """The median decides what is shown."""
    plan = ("plan", two[0], "--width", ".23", "--scope", "population")
    forecast = answer(*plan)["runs"][0]["forecast"]
    assert forecast["additional"] is None
    assert forecast["additional_low"] is not None
    assert rows_of(lmeb(*plan)[1])[0][2:4] == ["-", "-"]
    assert not forecast["reachable"]
    assert 0.05 <= forecast["probability"] < 0.5


@pytest.mark.parametrize(
    "options", [("--width", ".02", "--max-trials", "50"), ("--width", ".05", "--scope=population")]
)
def test_a_goal_that_no_draw_reaches(two, options):
    (run,) = answer("plan", two[0], *options)["runs"]
    assert run["forecast"]["additional"] is None
    assert run["forecast"]["probability"] < 0.015


def test_models_of_different_n_show_their_own(tmp_path):
    rng = np.random.default_rng(4)
    for name, n in (("A", 3), ("B", 12)):
        np.savez(tmp_path / f"{name}.npz", R=(rng.random((30, n)) < 0.5).astype(int))
    files = tmp_path / "A.npz", tmp_path / "B.npz"
    (line,) = answer("plan", *files, "--apart")["separation"][0]["pairs"]
    own = {"A": 3.0, "B": 12.0}
    assert line["n"] == [own[model] for model in line["models"]]
    further = line["forecast"]["additional"]
    printed = lmeb("plan", *files, "--verbose")[1]
    assert printed.startswith(f"{further} more trials ")
    assert max(12 + further, 24) <= max(
        int(row[0]) for row in rows_of(printed) if row and row[0].isdecimal()
    )
