"""What `summary` and `noise` tell of a model that was run in several settings."""

from __future__ import annotations

import csv
import json
import re
from dataclasses import replace
from itertools import combinations

import numpy as np
import pytest
from _support.command_line import answer, called
from _support.tables import write_rows

from lm_eval_bayes.stats import (
    Outcomes,
    compare,
    difference_over_settings,
    hbayes_at_n,
    score_over_settings,
)


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
    """Return the lines of a summary about settings: those between the table and the trials."""
    lines = screen("summary", *words)
    last = next(i for i, line in enumerate(lines) if re.match(r"\d+ trials", line))
    heads = [i for i, line in enumerate(lines) if "settings like these  " in f"{line}  "]
    return lines[heads[0] : last] if heads else [x for x in lines[:last] if "settings" in x]


def of_scopes(core):
    """Return the cells of the block of a summary: means with intervals, by row and column."""
    return [
        [(s[scope].mean, s[scope].low, s[scope].high) for s in (core.these, core.like)]
        for scope in ("benchmark", "population")
    ]


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


def test_the_screen_has_both_intervals_in_both_scopes_the_scores_and_the_sd(days):
    printed = screen("summary", *days)
    core = score_over_settings(counted(days))
    head, here, elsewhere, scores, *sentence = on_settings(*days)
    assert head.split("  ")[0] == "4 settings, 95%"
    for line, cells in zip((here, elsewhere), of_scopes(core), strict=True):
        assert re.findall(r"[\d.]{5}", line) == [f"{x:.3f}" for cell in cells for x in cell]
    assert re.findall(r"[\d.]{5}", scores) == [f"{x:.3f}" for x in core.scores]
    spread = core.spread
    numbers = (spread.p_of_trials, spread.sd_seen, spread.sd_of_trials)
    numbers += (spread.sd.median, spread.sd.low, spread.sd.high)
    assert re.findall(r"0\.\d{3}", " ".join(sentence)) == [f"{x:.3f}" for x in numbers]
    assert spread.p_of_trials > 0.05
    assert "no more than trials" in " ".join(sentence)
    like = core.like["benchmark"]
    assert f"in settings like these {like.low:.3f} to {like.high:.3f}" in printed[0]
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
    # for other questions the variance that these add to the difference comes on top
    pair = [Outcomes.from_counts(c.sum(axis=0)) for c in counts]
    sds = [compare(*pair, scope).sd for scope in ("population", "benchmark")]
    cores = [score_over_settings(c, labels=labels) for c in counts]
    wider = difference_over_settings(*cores, question_variance=sds[0] ** 2 - sds[1] ** 2)
    printed = screen("compare", *paths)
    for start, row in (("settings like these  ", expected), ("other settings, questions", wider)):
        (line,) = [line for line in printed if line.startswith(start)]
        numbers = [f"{x:+.3f}" for x in (row.mean, row.low, row.high)]
        assert re.findall(r"[+-][\d.]{5}", line) == numbers
    (line,) = [line for line in printed if line.startswith("settings like these: ")]
    assert line.endswith(f"paired by day0, day1, day2, day3; P(A > B) = {expected.p_above:.3f}")
    (task,) = answer("compare", *paths, "--scope", "population")["tasks"]
    assert task["settings"]["low"] == pytest.approx(wider.low, abs=1e-9)
    for side, core in zip("ab", cores, strict=True):
        assert task[side]["settings"]["sd"] == core.spread.sd.median
        assert task[side]["settings"]["labels"] == labels
    one = planted(tmp_path / "one.csv", {"day0": rng.binomial(4, p)}, model="one")
    assert one.shape == (1, 20, 2)
    single = score_over_settings(one, labels=["day0"])
    (task,) = answer("compare", paths[0], tmp_path / "one.csv")["tasks"]
    expected = difference_over_settings(cores[0], single)  # with the spread of the other
    assert (task["settings"]["paired"], expected.paired) == ([], ())
    assert task["settings"]["low"] == pytest.approx(expected.low, abs=1e-9)


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
    (board,) = content["leaderboards"]
    labels = [f"day{s}" for s in range(3)]
    assert all(place["settings"]["labels"] == labels for place in board["places"])
    # a model with one setting takes the sd of the others: its trials alone tell it from them
    right = rng.binomial(16, np.clip(p - 0.12, 0.0, 1.0))
    counts = planted(tmp_path / "one.csv", {"day": right}, n_trials=16, model="one")
    one = score_over_settings(counts, labels=["one"], level=1 - 0.05 / 6)
    posteriors = [replace(posterior, level=one.level) for posterior in posteriors]
    pairs = combinations([*posteriors, one], 2)
    differences = [difference_over_settings(*pair) for pair in pairs]
    apart = [d.low > 0 or d.high < 0 for d in differences]
    assert apart == [False, True, False, True, False, False]
    words = ("rank", *paths, tmp_path / "one.csv")
    content = answer(*words)
    assert list(content["pairs_over_settings"].values()) == [2]
    settings = {place["model"]: place["settings"] for place in content["leaderboards"][0]["places"]}
    assert settings["one"] is None
    sentence = screen(*words)[0]
    assert "6 of 6 pairs of models are distinguishable on these 30 questions" in sentence
    assert "2 in settings like these (sd of the others for 1 model with one)" in sentence


def test_one_setting_tells_what_others_would_add(tmp_path):
    counts = planted(tmp_path / "m.csv", {"one": [1, 2, 3, 4, 0, 2, 2, 3]})
    (line,) = on_settings(tmp_path / "m.csv")
    assert len(line) <= 80
    sds, half_widths = zip(*score_over_settings(counts).sensitivity, strict=True)
    assert re.findall(r"0\.\d{3}", line) == [f"{x:.3f}" for x in half_widths]
    sigma = float(hbayes_at_n(Outcomes.from_counts(counts[0])).sigma)
    assert half_widths == pytest.approx([1.959964 * np.hypot(sd, sigma) for sd in sds])
    assert line.endswith("if sd .01, .02, .05")
    (task,) = answer("summary", tmp_path / "m.csv")["tasks"]
    assert task["settings"] is None
    # screens of several models, or tasks, are short
    planted(tmp_path / "n.csv", {"one": [1, 2, 3, 4, 0, 2, 2, 3]}, model="n")
    pair = (tmp_path / "m.csv", tmp_path / "n.csv")
    assert not any("ettings" in line for line in screen("summary", *pair))
    of_each = [line for line in screen("summary", *pair, "--verbose") if "ettings" in line]
    assert of_each == [line, line]


def test_two_settings_rest_on_the_prior(tmp_path):
    planted(tmp_path / "m.csv", {"a": [1, 2, 3, 4, 0, 2], "b": [2, 2, 3, 4, 0, 1]})
    assert "rests on the prior" in on_settings(tmp_path / "m.csv")[-1]
    assert "settings" not in screen("summary", tmp_path / "m.csv")[0]


def test_all_settings_that_are_other_methods_are_named(tmp_path):
    alike = {name: [3, 3, 4, 3, 3, 2] * 5 for name in "abcdefgh"}
    right = alike | {"few-shot": [0, 1, 1, 0, 2, 1] * 5, "tools": [4] * 30}
    counts = planted(tmp_path / "m.csv", right)
    core = score_over_settings(counts, labels=list(right))
    assert core.spread.outside == (8, 9)
    assert core.spread.p_of_trials < 1e-4
    *_, spread, named = on_settings(tmp_path / "m.csv")
    # of 120 trials each: 90 right in eight settings, 25 and 120 in two
    for name, own, other in (("few-shot", 25, 120), ("tools", 120, 25)):
        apart = own / 120 - (8 * 90 + other) / (9 * 120)
        assert f"{name} {apart:+.3f}" in named
    assert "by more than trials explain (p < 0.001)" in spread
    assert "compare" in named


def test_two_settings_that_differ_as_methods_do_are_said_to(tmp_path):
    right = {"a": [4, 4, 4, 3] * 10, "b": [0, 1, 0, 0] * 10}
    counts = planted(tmp_path / "m.csv", right)
    assert score_over_settings(counts).spread.logit_sd.median > 0.5
    assert "compare" in on_settings(tmp_path / "m.csv")[-1]


def test_of_eighty_passes_a_few_are_named(tmp_path):
    rng = np.random.default_rng(2)
    passes = {f"pass{i}": rng.binomial(1, 0.4, 12) for i in range(80)}
    counts = planted(tmp_path / "m.csv", passes, n_trials=1)
    scores, sentence = on_settings(tmp_path / "m.csv", "--verbose")[3:5]
    assert (scores.count("pass"), scores[-11:]) == (6, "and 74 more")
    spread = score_over_settings(counts).spread
    of_noise = screen("noise", tmp_path / "m.csv")
    assert of_noise[0] == sentence
    assert f"p = {spread.p_of_trials:.3f}" in sentence
    assert not any("pass1" in line for line in of_noise)


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
    assert on_settings(tmp_path / "m.csv") == []


def test_noise_tells_where_a_new_setting_lies_and_how_far_two_lie_apart(days, tmp_path):
    spread = score_over_settings(counted(days)).spread
    (task,) = answer("noise", *days)["tasks"]
    assert task["models"][0]["settings"] == spread.to_dict()
    numbers = (spread.new_setting.low, spread.new_setting.high, spread.apart, spread.runs_apart)
    of_new = screen("noise", *days)[-2]
    assert re.findall(r"0\.\d{3}", of_new) == [f"{value:.3f}" for value in numbers]
    planted(tmp_path / "m.csv", {"one": [1, 2, 3, 4, 0, 2, 2, 3]})
    (task,) = answer("noise", tmp_path / "m.csv")["tasks"]
    assert task["models"][0]["settings"] is None


def test_a_gate_has_the_difference_in_settings_like_these_beside_its_outcome(tmp_path):
    rng = np.random.default_rng(4)
    p, cores = rng.beta(3.0, 3.0, 30), []
    for name, shifts in (("new", (-0.3, 0.0, -0.2)), ("old", (0.1, 0.0, -0.1))):
        chances = {f"day{s}": np.clip(p + x, 0.0, 1.0) for s, x in enumerate(shifts)}
        right = {label: rng.binomial(16, chance) for label, chance in chances.items()}
        counts = planted(tmp_path / f"{name}.csv", right, n_trials=16, model=name)
        cores.append(score_over_settings(counts, labels=list(right)))
    expected = difference_over_settings(*cores)
    assert expected.low < 0.0 < expected.high
    table, junit = tmp_path / "gate.md", tmp_path / "gate.xml"
    words = ("gate", tmp_path / "new.csv", tmp_path / "old.csv", "--margin", "0", "--floor", ".1")
    code, printed, _ = called(*words, "--level", ".8", "--markdown", table, "--junit", junit)
    # the rule is about these settings, and the second interval has 95% at any --level
    assert code == 1
    worse, numbers, _, below, _ = printed.splitlines()
    like = cores[0].like["benchmark"]
    assert worse.startswith("FAIL  new is worse than old: distinguishable on these 30 questions, ")
    assert worse.endswith(" not known in settings like these.")
    assert f"; in settings like these {expected.low:.3f} to +{expected.high:.3f})" in numbers
    assert f"; in settings like these {like.low:.3f} to {like.high:.3f})" in below
    for path in (table, junit):
        assert "not known in settings like these" in path.read_text()
        assert f"{expected.low:.3f} to +{expected.high:.3f}" in path.read_text()
    code, printed, _ = called(*words, "--json")
    checks = json.loads(printed)["checks"]
    for check, second in zip(checks, (expected, like), strict=True):
        ends = [check["settings"][end] for end in ("low", "high")]
        assert ends == pytest.approx([second.low, second.high], abs=1e-9)
    for level in (".5", ".95"):  # the rule is that of 95% at any level of the intervals
        answered = screen("compare", *words[1:3], "--level", level)[0]
        assert answered.endswith(", but not in settings like these.")
    code, printed, _ = called("gate", *words[1:3], "--floor", ".1", "--on", "question")
    assert "settings" not in printed


@pytest.mark.parametrize("width", [0.1, 0.04])
def test_a_plan_says_how_many_settings_and_trials_reach_a_width(days, width):
    counts = counted(days)
    core = score_over_settings(counts)
    (line,) = answer("plan", *days, "--width", width)["runs"]
    plan, tau = line["settings"], core.spread.sd
    like = core.like["benchmark"]
    assert (plan["n"], plan["width"]) == (4, pytest.approx(like.high - like.low))
    ends = (tau.median, tau.low, tau.high)
    assert plan["floor"] == pytest.approx([1.959964 * sd for sd in ends])  # 2 z τ/√4
    # the mean of simulated scores: S settings with this sd, N trials of this variance
    rng, by_trials = np.random.default_rng(1), core.trial_variance
    for cost, (n, trials) in zip((0.0, 4.0), (plan["prompts"], plan["engines"]), strict=True):
        effect = rng.normal(0.0, tau.median, (40_000, n))
        noise = rng.normal(0.0, np.sqrt(by_trials / trials), (40_000, n))
        simulated = 2 * 1.959964 * (effect + noise).mean(axis=1).std()
        assert simulated < 1.02 * width
        # the cheapest of all designs by brute force
        designs = [
            (s * (cost + t), s, t)
            for s in range(3, 120)
            for t in range(1, 40)
            if 2 * 1.959964 * np.sqrt((tau.median**2 + by_trials / t) / s) <= width
        ]
        assert n * (cost + trials) <= 1.03 * min(designs)[0]
    said = " ".join(screen("plan", *days, "--width", width))
    for value in (plan["width"], *plan["floor"]):
        assert f"{value:.3f}" in said
    for n, trials in (plan["prompts"], plan["engines"]):
        assert f"{n} settings x {trials} " in said
    for words in ((days[0],), (*days, "--scope", "population")):
        (line,) = answer("plan", *words, "--width", ".2")["runs"]
        assert line["settings"] is None
