"""What `summary` and `noise` tell of a model that was run in several settings."""

from __future__ import annotations

import csv

import numpy as np
import pytest
from _support.command_line import answer, called
from _support.tables import write_rows

from lm_eval_bayes.stats import difference_over_settings, score_over_settings


@pytest.fixture
def days(shared):
    """Return four runs of one model on 30 questions, a table each."""
    return [shared / "cases" / "settings" / f"day{day}.csv" for day in (1, 2, 3, 4)]


def planted(path, right, n_trials=4, **columns):
    """Write settings with so many right trials of each of the questions; return their counts."""
    rows = [
        {"model": "m", "id": q, "trial": t, "correct": int(t < r), "setting": label, **columns}
        for label, of_setting in right.items()
        for q, r in enumerate(of_setting)
        for t in range(n_trials)
    ]
    write_rows(path, rows)
    return np.array([[[n_trials - r, r] for r in of_setting] for of_setting in right.values()])


def counted(files):
    """Count the trials of tables by hand, (S, M, 2)."""
    counts = []
    for path in files:
        with path.open(encoding="utf-8") as file:
            of_question = {}
            for line in csv.DictReader(file):
                of_question.setdefault(line["id"], [0, 0])[int(line["correct"])] += 1
        counts.append(list(of_question.values()))
    return np.array(counts)


def screen(*words):
    """Return the lines that a command prints."""
    code, printed, error = called(*words)
    assert code == 0, error
    return printed.splitlines()


def on_settings(*words):
    """Return the lines of a summary about settings."""
    starts = ("settings ", "sd ", "few-shot ", "these ")
    return [line for line in screen(*words) if line.startswith(starts)]


def test_the_json_of_a_summary_has_the_score_over_settings(days):
    (task,) = answer("summary", *days)["tasks"]
    counts = counted(days)
    core = score_over_settings(counts)
    settings = task["settings"]
    assert (settings["n"], settings["labels"]) == (4, ["day1", "day2", "day3", "day4"])
    assert settings["scores"] == pytest.approx(counts[..., 1].sum(axis=1) / counts.sum((1, 2)))
    sd = core.spread.sd
    assert [settings[name] for name in ("sd", "low", "high")] == [sd.median, sd.low, sd.high]
    for scope, like in core.like.items():
        assert settings["like"][scope] == like.to_dict()
    # the score stays that of these settings, of all trials together
    these = task["hbayes"]["benchmark"]["interval"]
    assert (these["low"], these["high"]) == pytest.approx(
        (core.these["benchmark"].low, core.these["benchmark"].high)
    )
    assert core.like["benchmark"].low < these["low"] < these["high"] < core.like["benchmark"].high


def test_a_column_gives_what_files_give(days):
    of_files, of_column = (
        answer("summary", *paths)["tasks"][0]["settings"]
        for paths in (days, [days[0].with_name("col.csv")])
    )
    assert of_files == of_column


def test_the_screen_has_the_interval_the_scores_and_the_sd(days):
    printed = screen("summary", *days)
    core = score_over_settings(counted(days))
    numbers = [core.like["benchmark"].mean, core.like["benchmark"].low, core.like["benchmark"].high]
    numbers += [core.like["population"].low, core.like["population"].high, *core.scores]
    numbers += [core.spread.sd.median, core.spread.sd.low, core.spread.sd.high]
    lines = " ".join(on_settings("summary", *days))
    for value in (*numbers, core.spread.sd_of_trials):
        assert f"{value:.3f}" in lines
    assert core.spread.p_of_trials > 0.05
    assert "no more than trials" in lines
    assert "prior" not in lines
    assert "differ" not in lines
    assert len(printed) <= 25


def test_two_models_are_compared_over_settings(tmp_path):
    rng = np.random.default_rng(5)
    p = rng.beta(2.0, 3.0, 20)
    counts = []
    for name, shift in (("a", 0.15), ("b", 0.0)):
        right = {f"day{s}": rng.binomial(4, np.clip(p + shift, 0, 1)) for s in range(4)}
        counts.append(planted(tmp_path / f"{name}.csv", right, model=name))
    paths = (tmp_path / "a.csv", tmp_path / "b.csv")
    labels = [f"day{s}" for s in range(4)]
    expected = difference_over_settings(*(score_over_settings(c, labels=labels) for c in counts))
    (task,) = answer("compare", *paths)["tasks"]
    for name in ("mean", "low", "high", "p_above"):
        assert task["settings"][name] == pytest.approx(getattr(expected, name), abs=1e-12)
    assert task["settings"]["paired"] == labels
    # the difference of the settings' means, by hand
    means = [c[..., 1].sum() / c.sum() for c in counts]
    assert expected.mean == pytest.approx(means[0] - means[1], abs=0.01)
    assert expected.low < task["interval"]["low"]
    assert expected.high > task["interval"]["high"]
    (line,) = [line for line in screen("compare", *paths) if line.startswith("settings like")]
    for value in (expected.mean, expected.low, expected.high):
        assert f"{value:+.3f}" in line
    one = planted(tmp_path / "one.csv", {"day0": rng.binomial(4, p)}, model="one")
    assert one.shape == (1, 20, 2)
    (task,) = answer("compare", paths[0], tmp_path / "one.csv")["tasks"]
    assert task["settings"] is None


def test_a_ranking_counts_the_pairs_that_settings_like_these_distinguish(tmp_path):
    rng = np.random.default_rng(8)
    p = rng.beta(2.0, 3.0, 30)
    # settings move every model by themselves: far more than trials explain
    moves = {"a": (0.2, 0.0, 0.25), "b": (0.05, -0.1, 0.2), "c": (-0.3, -0.25, -0.28)}
    paths, posteriors = [], []
    for name, shifts in moves.items():
        chances = {f"day{s}": np.clip(p + shift, 0.0, 1.0) for s, shift in enumerate(shifts)}
        right = {label: rng.binomial(16, chance) for label, chance in chances.items()}
        paths.append(tmp_path / f"{name}.csv")
        counts = planted(paths[-1], right, n_trials=16, model=name)
        # of no setting in common, and three pairs at once by Bonferroni's bound
        labels = [f"{name} {label}" for label in right]
        posteriors.append(score_over_settings(counts, labels=labels, level=1 - 0.05 / 3))
    differences = [
        difference_over_settings(posteriors[i], posteriors[j]) for i, j in ((0, 1), (0, 2), (1, 2))
    ]
    apart = sum(d.low > 0 or d.high < 0 for d in differences)
    assert apart == 2
    content = answer("rank", *paths)
    ((_, n_apart),) = content["pairs_over_settings"].items()
    assert n_apart == apart
    sentence = " ".join(screen("rank", *paths)[:2])
    assert f"{n_apart} in settings like these" in sentence
    one = planted(tmp_path / "one.csv", {"day0": rng.binomial(4, p)}, model="one")
    assert one.shape == (1, 30, 2)
    content = answer("rank", *paths, tmp_path / "one.csv")
    assert list(content["pairs_over_settings"].values()) == [None]


def test_one_setting_is_not_told_but_for_its_sensitivity(tmp_path):
    counts = planted(tmp_path / "m.csv", {"one": [1, 2, 3, 4, 0, 2, 2, 3]})
    assert on_settings("summary", tmp_path / "m.csv") == []
    (line,) = on_settings("summary", tmp_path / "m.csv", "--verbose")
    for sd, half_width in score_over_settings(counts).sensitivity:
        assert f"{sd:.3f}" in line
        assert f"{half_width:.3f}" in line
    (task,) = answer("summary", tmp_path / "m.csv")["tasks"]
    assert task["settings"] is None


def test_two_settings_rest_on_the_prior(tmp_path):
    planted(tmp_path / "m.csv", {"a": [1, 2, 3, 4, 0, 2], "b": [2, 2, 3, 4, 0, 1]})
    assert "rests on the prior" in " ".join(on_settings("summary", tmp_path / "m.csv"))


def test_a_setting_that_is_another_method_is_named(tmp_path):
    right = {name: [3, 3, 4, 3, 3, 2] * 5 for name in "abc"} | {"few-shot": [0, 1, 1, 0, 2, 1] * 5}
    counts = planted(tmp_path / "m.csv", right)
    core = score_over_settings(counts, labels=list(right))
    assert core.spread.outside == (3,)
    assert core.spread.p_of_trials < 1e-4
    _, sd, named = on_settings("summary", tmp_path / "m.csv")
    apart = 18 * 5 / (30 * 4) - 5 * 5 / (30 * 4)
    assert f"3 others by {apart:.3f}" in named
    assert "no more" not in sd


def test_two_settings_that_differ_as_methods_do_are_said_to(tmp_path):
    right = {"a": [4, 4, 4, 3] * 10, "b": [0, 1, 0, 0] * 10}
    counts = planted(tmp_path / "m.csv", right)
    assert score_over_settings(counts).spread.logit_sd.median > 0.5
    assert "compare" in on_settings("summary", tmp_path / "m.csv")[2]


@pytest.mark.parametrize(("scored", "named"), [(False, "clusters"), (True, "scores")])
def test_what_has_no_score_over_settings_says_so(tmp_path, scored, named):
    rows = [
        {"model": "m", "id": q, "trial": 0, "correct": q % 2, "setting": s, "cluster": f"c{q % 3}"}
        for q in range(6)
        for s in "ab"
    ]
    for line in rows if scored else ():
        del line["cluster"]
    rows[0] |= {"correct": 0.5} if scored else {}
    write_rows(tmp_path / "m.csv", rows)
    (task,) = answer("summary", tmp_path / "m.csv")["tasks"]
    assert task["settings"] is None
    (note,) = [note for note in task["notes"] if "settings like these" in note]
    assert named in note
    assert on_settings("summary", tmp_path / "m.csv") == []


def test_noise_tells_where_a_new_setting_lies_and_how_far_two_lie_apart(days, tmp_path):
    spread = score_over_settings(counted(days)).spread
    (task,) = answer("noise", *days)["tasks"]
    assert task["models"][0]["settings"] == spread.to_dict()
    new, apart = screen("noise", *days)[-3:-1]
    for value in (spread.new_setting.low, spread.new_setting.high):
        assert f"{value:.3f}" in new
    for value in (spread.apart, spread.runs_apart):
        assert f"{value:.3f}" in apart
    planted(tmp_path / "m.csv", {"one": [1, 2, 3, 4, 0, 2, 2, 3]})
    (task,) = answer("noise", tmp_path / "m.csv")["tasks"]
    assert task["models"][0]["settings"] is None
