"""`lm-eval-bayes plan`: forecasts of files, what they cost, and goals that make no sense."""

from __future__ import annotations

import re

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
        assert line["unrecorded"] == [f"time was not recorded for {line['models'][0]}"]


def test_what_is_printed(two):
    code, printed, error = lmeb("plan", *two, "--width", ".1", "--apart")
    assert (code, error) == (0, "")
    # two models: the two-sided quantile, a little above 1.96 for variances that are estimated
    (target,) = re.findall(r"\(z\s+=\s+([\d.]+)\)", printed)
    assert 1.94 < float(target) < 2.02
    assert lmeb("plan", *two, "--width", ".9")[1].count("reached") == 2


def test_models_that_are_already_distinguishable(tmp_path):
    path = tmp_path / "m.npz"
    np.savez(path, R=np.stack([outcomes(1, 0.4), outcomes(2, -0.3)]))
    (separation,) = answer("plan", path, "--apart")["separation"]
    assert (len(separation["distinguishable"]), separation["pairs"]) == (1, [])
    assert len(lmeb("plan", path, "--apart")[1].splitlines()) == 1


def test_a_width_that_few_draws_reach_is_out_of_reach(two):
    """The median decides what is shown; the note says how many of the draws reach the goal."""
    plan = ("plan", two[0], "--width", ".23", "--scope", "population")
    forecast = answer(*plan)["runs"][0]["forecast"]
    assert forecast["additional"] is None
    assert forecast["additional_low"] is not None
    _, printed, error = lmeb(*plan)
    assert "out of reach" in printed
    share = int(re.search(r"only (\d+)% of the predictive draws", error)[1]) / 100.0
    assert 0.05 <= share < 0.5
    assert forecast["probability"] == pytest.approx(share, abs=0.02)


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
    _, printed, _ = lmeb("plan", *files, "--apart", "--verbose")
    assert " and ".join(f"{own[model]:g}" for model in line["models"]) in printed
