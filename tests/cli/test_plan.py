"""`lm-eval-bayes plan`: forecasts of files, what they cost, and goals that make no sense."""

from __future__ import annotations

import json
import re

import numpy as np
import pytest
from _support.command_line import called as lmeb
from _support.saved_matrices import outcomes, saved


@pytest.fixture(scope="module")
def two(tmp_path_factory):
    folder = tmp_path_factory.mktemp("two")
    a = saved(folder / "a", "a", outcomes(1, 0.1), completion_tokens=20)
    return a, saved(folder / "b", "b", outcomes(2), completion_tokens=50)


def test_a_width(two):
    code, printed, _ = lmeb("plan", *two, "--width", ".1", "--json")
    assert code == 0
    plain = json.loads(printed)
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
    code, printed, error = lmeb("plan", *two, "--width", ".1", "--separate")
    assert (code, error) == (0, "")
    assert "until 95% intervals are at most 0.1 wide" in printed
    # two models: the two-sided quantile, a little above 1.96 for variances that are estimated
    (target,) = re.findall(
        r"distinguishable\s+with\s+95%\s+confidence\s+\(z\s+=\s+([\d.]+)\)", printed
    )
    assert 1.94 < float(target) < 2.02
    assert "time was not recorded for a, b\n" in printed
    assert "tokens were not recorded" not in printed
    (pair,) = [line for line in printed.splitlines() if re.search(r"\ba  +b\b", line)]
    assert pair.split("  ")[-1].strip() == "-"
    code, printed, _ = lmeb("plan", *two, "--width", ".9")
    assert printed.count("reached") == 2


def test_a_correction_is_that_of_the_run(two):
    goal = ("--separate", "--max-trials", "400", "--json")
    totals = {}
    for correction in ("none", "pocock", "anytime"):
        code, printed, error = lmeb("plan", *two, *goal, "--correction", correction)
        assert code == 0, error
        plain = json.loads(printed)
        (pair,) = plain["separation"][0]["pairs"]
        assert plain["correction"] == correction
        totals[correction] = pair["forecast"]["total"]
    assert totals["none"] < totals["pocock"]
    assert totals["none"] < totals["anytime"]
    # an analysis is after every batch
    assert totals["pocock"] % 4 == totals["anytime"] % 4 == 0
    _, printed, _ = lmeb("plan", *two, "--separate", "--correction", "pocock")
    assert "at 95% (correction pocock, analyses every 4 trials)" in printed
    for wrong in (("--width", ".1"), ("--separate", "--scope", "population")):
        code, _, error = lmeb("plan", *two, *wrong, "--correction", "pocock")
        assert (code, "`--correction` must be left out without --separate" in error) == (2, True)


def test_greedy_answers_get_no_forecast(tmp_path):
    greedy = {"until": ["Q:"], "do_sample": False, "temperature": 0.0}
    rows = [
        {
            "doc_id": i,
            "doc": {"question": f"{i} + 1"},
            "target": str(i + 1),
            "arguments": {"gen_args_0": {"arg_0": f"Q: {i} + 1", "arg_1": greedy}},
            "resps": [[str(i + 1)]],
            "filtered_resps": [str(i + 1)],
            "filter": "strict-match",
            "metrics": ["exact_match"],
            "exact_match": float(i % 3 > 0),
        }
        for i in range(12)
    ]
    path = tmp_path / "samples_gsm8k_2026-01-31T10-00-00.5.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    code, printed, error = lmeb("plan", tmp_path, "--width", ".1")
    assert code == 0
    (row,) = [line.split() for line in printed.splitlines() if line.strip().startswith("gsm8k ")]
    assert row[-6:] == ["1", "-", "-", "-", "-", "-"]
    assert "decodes greedily on gsm8k: a further trial would repeat the first" in error


def test_the_progress_of_many_pairs_is_shown(tmp_path):
    path = tmp_path / "m.npz"
    np.savez(path, R=np.stack([outcomes(i, 0.4 - 0.15 * i)[:, :2] for i in range(11)]))
    code, _, error = lmeb("plan", path, "--separate")
    assert code == 0
    assert "pairs: 55 of 55 (100%" in error


def test_models_that_are_already_distinguishable(tmp_path):
    path = tmp_path / "m.npz"
    np.savez(path, R=np.stack([outcomes(1, 0.4), outcomes(2, -0.3)]))
    code, printed, _ = lmeb("plan", path, "--separate")
    assert code == 0
    assert printed.splitlines() == [
        "outcomes: all pairs of models are already distinguishable with 95% confidence: 1 pair, "
        "for these questions"
    ]


def test_more_trials_do_not_help_about_questions_like_these(two):
    code, printed, error = lmeb("plan", two[0], "--width", ".05", "--scope", "population")
    assert code == 0
    assert "out of reach" in printed
    assert "more questions are needed" in error


def test_a_width_that_few_draws_reach_is_out_of_reach(two):
    """The median decides what is shown; the note says how many of the draws reach the goal."""
    goal = ("--width", ".24", "--scope", "population")
    code, printed, error = lmeb("plan", two[0], *goal, "--json")
    forecast = json.loads(printed)["runs"][0]["forecast"]
    assert forecast["additional"] is None
    assert forecast["additional_low"] is not None
    code, printed, error = lmeb("plan", two[0], *goal)
    assert code == 0
    assert "out of reach" in printed
    assert "or more" not in printed
    share = re.search(r"at most 0\.24 in only (\d+)% of the predictive draws", error)
    assert 0.05 <= int(share[1]) / 100.0 < 0.5
    assert forecast["probability"] == pytest.approx(int(share[1]) / 100.0, abs=0.02)


def test_a_goal_beyond_the_most_trials(two):
    code, printed, error = lmeb("plan", two[0], "--width", ".02", "--max-trials", "50")
    assert code == 0
    assert "out of reach" in printed
    assert (
        "Within 50 further trials per question only 0% of the predictive draws reach the goal."
        in error
    )


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ([], "`plan` must be given a goal: --width .05, or --separate, or both"),
        (["--width", "0"], "`--width` must be a finite number above 0"),
        (["--width", "nan"], "`--width` must be a finite number above 0"),
        (["--width", ".1", "--max-trials", "0"], "`--max-trials` must be"),
        (["--width", ".1", "--level", "2"], "`--level` must be"),
    ],
)
def test_goals_that_make_no_sense(two, options, message):
    code, printed, error = lmeb("plan", two[0], *options)
    assert (code, printed) == (2, "")
    assert error.startswith(f"error: {message}")
    assert len(error.splitlines()) == 1


def test_one_model_cannot_be_separated(two, tmp_path):
    code, _, error = lmeb("plan", two[0], "--separate")
    assert code == 2
    assert "`RUN` must hold at least two models of one task for --separate" in error
    other = saved(tmp_path / "o", "other", outcomes(3), first=5)
    code, _, error = lmeb("plan", two[0], other, "--separate")
    assert code == 2
    assert "`RUN` must have answered the same questions" in error


def test_help():
    code, printed, _ = lmeb("plan", "--help")
    assert code == 0
    assert printed.count("\n    lm-eval-bayes plan ") == 3


def test_models_of_different_n_show_their_own(tmp_path):
    rng = np.random.default_rng(4)
    for name, n in (("A", 3), ("B", 12)):
        right = rng.random((30, n)) < 0.5
        rows = [f"{name},q{q},{t},{int(right[q, t])}" for q in range(30) for t in range(n)]
        (tmp_path / f"{name}.csv").write_text("model,question,trial,score\n" + "\n".join(rows))
    files = tmp_path / "A.csv", tmp_path / "B.csv"
    code, printed, _ = lmeb("plan", *files, "--separate", "--json")
    assert code == 0
    (line,) = json.loads(printed)["separation"][0]["pairs"]
    own = {"A": 3.0, "B": 12.0}
    assert line["n"] == [own[model] for model in line["models"]]
    code, printed, _ = lmeb("plan", *files, "--separate", "--wide")
    assert " and ".join(f"{own[model]:g}" for model in line["models"]) in printed
    assert "7.5" not in printed
