"""`lm-eval-bayes rank`: leaderboards of files, their rules, and what cannot be ranked."""

from __future__ import annotations

import json
import math
import re
from itertools import pairwise

import numpy as np
import pytest
from _support import by_hand
from _support.command_line import called as lmeb
from _support.saved_matrices import HOSTILE, outcomes, saved
from scipy import stats

MATRICES = [outcomes(1, 0.2), outcomes(2, 0.15), outcomes(3, 0.05), outcomes(4, -0.2)]


@pytest.fixture(scope="module")
def four(tmp_path_factory):
    path = tmp_path_factory.mktemp("four") / "m.npz"
    np.savez(path, R=np.stack(MATRICES))
    return path


@pytest.fixture(scope="module")
def plain(four):
    code, printed, error = lmeb("rank", four, "--json")
    assert (code, error) == (0, "")
    return json.loads(printed)


def test_the_leaderboard_against_draws(plain):
    (board,) = plain["leaderboards"]
    assert plain["overall"] is None
    drawn = {
        f"m {i + 1}": by_hand.LearnedPrior(R.sum(axis=1), 8 - R.sum(axis=1))
        .draw(40_000, i)
        .mean(axis=1)
        for i, R in enumerate(MATRICES)
    }
    stack = np.stack([drawn[row["model"]] for row in board["places"]])
    assert np.all(np.diff([row["mu"] for row in board["places"]]) <= 0)
    best = np.bincount(stack.argmax(axis=0), minlength=4) / stack.shape[1]
    for i, item in enumerate(board["places"]):
        assert item["mu"] == pytest.approx(stack[i].mean(), abs=0.003)
        assert item["p_best"] == pytest.approx(best[i], abs=0.015)
        for j in range(4):
            if i != j:
                above = (stack[i] > stack[j]).mean()
                assert board["p_greater"][i][j] == pytest.approx(above, abs=0.015)


@pytest.mark.parametrize("ties", ["adjacent", "leader", "pairwise", "none"])
def test_ties(four, plain, ties):
    places = plain["leaderboards"][0]["places"]
    mu, sigma = ([place[key] for place in places] for key in ("mu", "sigma"))

    def tied(i, j):
        return abs(mu[i] - mu[j]) / math.hypot(sigma[i], sigma[j]) < stats.norm.ppf(0.95)

    ranks, start = [1], 0
    for i in range(1, 4):
        with_whom = {"adjacent": [i - 1], "leader": [start], "pairwise": range(start, i)}
        joins = ties != "none" and all(tied(j, i) for j in with_whom[ties])
        start = start if joins else i
        ranks.append(ranks[-1] + (not joins))
    code, printed, _ = lmeb("rank", four, "--ties", ties, "--json")
    assert code == 0
    (board,) = json.loads(printed)["leaderboards"]
    assert [row["rank"] for row in board["places"]] == ranks
    assert (board["ties"], board["confidence"]) == (ties, 0.95)


def test_what_is_printed(four):
    code, printed, error = lmeb("rank", four, "--pairs")
    assert (code, error) == (0, "")
    assert printed.startswith("outcomes: 12 questions, ")
    assert "outcomes: P(row > column)" in printed
    assert "ranks, jointly (95%)  alone" in printed
    head = "all pairs compared at once with 95% confidence, |z| above "
    critical_value = float(printed.split(head)[1].splitlines()[0])
    # Tukey's value at 2 * 12 * 7 degrees of freedom; drawn variances are at most the estimated ones
    tukey = stats.studentized_range.ppf(0.95, 4, 168) / math.sqrt(2)
    assert tukey - 0.04 < critical_value < 1.03 * tukey
    pairs = [line.split() for line in printed.split("P(row > column)")[1].splitlines()[1:6]]
    assert pairs[0] == ["model", "1", "2", "3", "4"]
    assert [row[:3] for row in pairs[1:]] == [[f"{i}", "m", f"{i}"] for i in range(1, 5)]
    assert pairs[4][3] == "<0.001"
    _, printed, _ = lmeb("rank", four, "--ties", "leader")
    assert "z is below 1.645 (95%, one-sided)" in printed
    _, printed, _ = lmeb("rank", four, "--ties", "intervals")
    assert "if their 95% credible intervals overlap" in printed
    _, printed, _ = lmeb("rank", four, "--ties", "none")
    assert "ranks: ties only for equal means" in printed
    assert "P(row > column)" not in printed


def test_the_shared_prior(four, plain):
    code, printed, error = lmeb("rank", four, "--shared")
    shared = plain["leaderboards"][0]["shared"]
    assert (code, error) == (0, f"note: outcomes: {shared['note']}\n")
    assert "outcomes: scores under a prior shared by the models" in printed
    assert "outcomes: P(row > column) under the shared prior" in printed
    assert (
        f"scale of the models' logits: {shared['tau']:.2f} ({shared['tau_low']:.2f} to " in printed
    )
    assert f"{shared['models'][0]['mu']:.3f} ± {shared['models'][0]['sigma']:.3f}" in printed
    assert "under the shared prior" not in lmeb("rank", four)[1]


def test_no_score_of_a_model_right_in_every_trial_is_pulled_down(tmp_path):
    """240 of 240: under a uniform prior of one probability .985^241 = 2.6% lies below .985."""
    counts = {"a": [8] * 30, "b": [7, 8, 6, 8, 8, 5] * 5, "c": [6, 7, 5, 7, 6, 8] * 5}
    for model, right in counts.items():
        lines = [",".join(["1"] * c + ["0"] * (8 - c)) for c in right]
        (tmp_path / f"{model}.csv").write_text("\n".join(lines), encoding="utf-8")
    board = [tmp_path / f"{model}.csv" for model in counts]
    code, printed, error = lmeb("rank", *board)
    assert code == 0
    means = [
        line.split("±")[0].split()[-1]
        for line in printed.splitlines()
        if re.search(r"\d ± \d", line)
    ]
    assert float(means[0]) > 0.985 > max(map(float, means[1:]))
    assert len(means) == 3
    assert "shared prior" not in error
    assert "winner" not in json.loads(lmeb("rank", *board, "--json")[1])["leaderboards"][0]
    assert "note: outcomes: The shared prior fails where " in lmeb("rank", *board, "--shared")[2]


def test_scope_population_pairs_questions(four):
    code, printed, _ = lmeb("rank", four, "--scope", "population", "--json")
    assert code == 0
    (board,) = json.loads(printed)["leaderboards"]
    assert (board["paired"], board["scope"]) == (True, "population")
    places = [int(row["model"].split()[1]) - 1 for row in board["places"]]
    # a paired t of the best and the worst, from the trials alone
    d = MATRICES[places[0]].mean(axis=1) - MATRICES[places[-1]].mean(axis=1)
    t = d.mean() / (d.std(ddof=1) / math.sqrt(12))
    assert board["p_greater"][0][-1] == pytest.approx(stats.t(11).cdf(t), abs=0.02)


def test_several_tasks(tmp_path):
    for model, lift in (("a", 0.2), ("b", 0.0), (HOSTILE, -0.2)):
        for number, task in enumerate(("one", "two", "three")):
            if (model, task) != ("b", "three"):
                folder = tmp_path / f"{len(model)}{task}{model[0]}"
                saved(folder, model, outcomes(10 * len(model) + number, lift), task)
    code, printed, _ = lmeb("rank", tmp_path)
    assert code == 0
    assert "mean of 2 tasks: 24 questions, " in printed
    assert "left out of the mean: three, " in printed
    assert "\x1b" not in printed
    code, printed, _ = lmeb("rank", tmp_path, "--json")
    plain = json.loads(printed)
    assert plain["overall"]["tasks"] == ["one", "two"]
    of_task = {
        leaderboard["task"]: {item["model"]: item for item in leaderboard["places"]}
        for leaderboard in plain["leaderboards"]
    }
    assert set(of_task["three"]) == {"a", HOSTILE}
    for row in plain["overall"]["places"]:
        parts = [of_task[task][row["model"]] for task in ("one", "two")]
        # the tasks share a prior, which moves their mean by a small part of its sd
        sigma = math.hypot(parts[0]["sigma"], parts[1]["sigma"]) / 2
        assert row["mu"] == pytest.approx((parts[0]["mu"] + parts[1]["mu"]) / 2, abs=0.1 * sigma)
        assert row["sigma"] == pytest.approx(sigma, rel=0.05)


def test_the_layout_of_the_paper(tmp_path):
    R = np.stack(MATRICES)
    np.savez(tmp_path / "a.npz", R=R, models=["w", "x", "y", "z"], task="first")
    np.savez(tmp_path / "b.npz", R=R[::-1][:3], models=["w", "x", "v"], task="second")
    files = (tmp_path / "a.npz", tmp_path / "b.npz")
    code, printed, error = lmeb("rank", *files, "--paper", "--json")
    assert (code, error) == (0, "")
    table = json.loads(printed)["paper"]
    assert table["tasks"] == ["first", "second"]
    assert table["threshold"] == pytest.approx(stats.norm.ppf(0.95))

    def by_hand_ranks(matrices):
        """Ranks with ties and without, from Alg. 1 and the rule of Table 1."""
        moments = []
        for trials in matrices:
            n, right = trials.shape[1], trials.sum(axis=1)
            m = (right + 1) / (n + 2)
            sigma = math.sqrt((m * (1 - m) / (n + 3)).sum()) / len(right)
            moments.append((m.mean(), sigma))
        order = sorted(range(len(moments)), key=lambda i: -moments[i][0])
        tied, ranks = 1, {order[0]: (1, 1)}
        for place, (above, below) in enumerate(pairwise(order), start=2):
            (mu, sigma), (other, spread) = moments[above], moments[below]
            tied += (mu - other) / math.hypot(sigma, spread) >= stats.norm.ppf(0.95)
            ranks[below] = (tied, place)
        return ranks

    first, second = by_hand_ranks(MATRICES), by_hand_ranks(MATRICES[::-1][:3])
    expected = {
        "first": {"wxyz"[i]: pair for i, pair in first.items()},
        "second": {"wxv"[i]: pair for i, pair in second.items()},
    }
    for row in table["rows"]:
        for task, ranks in row["ranks"].items():
            pair = None if ranks is None else (ranks["with_ties"], ranks["without_ties"])
            assert pair == expected[task].get(row["model"])
    order = [row["model"] for row in table["rows"]]
    assert order == [*sorted("wxyz", key=lambda model: expected["first"][model][1]), "v"]
    code, printed, _ = lmeb("rank", *files, "--paper")
    assert code == 0
    for model in order:
        (line,) = (line for line in printed.splitlines() if line.startswith(f"  {model} "))
        assert line.count("|") == len([task for task in expected if model in expected[task]])
    for wrong in (
        ("--pairs",),
        ("--scope", "population"),
        ("--shared",),
        ("--ties", "leader"),
        ("--method", "borda"),
    ):
        code, _, error = lmeb("rank", *files, "--paper", *wrong)
        assert code == 2
        assert "`--paper` must be given without other rules of ranking" in error
        assert (" ".join(wrong) if wrong[0] == "--scope" else wrong[0]) in error.split("; got ")[1]


def test_tasks_that_no_two_models_share(tmp_path):
    saved(tmp_path / "a", "a", outcomes(1), "one")
    saved(tmp_path / "b", "b", outcomes(2), "two")
    code, printed, _ = lmeb("rank", tmp_path)
    assert code == 0
    assert "no leaderboard of all tasks: fewer than two of them have all models" in printed
    for comparison in ("P(best)", "jointly"):  # one model on each
        assert comparison not in printed


def test_other_questions_cannot_be_ranked(tmp_path):
    a = saved(tmp_path / "a", "a", outcomes(1))
    b = saved(tmp_path / "b", "b", outcomes(2), first=2)
    code, printed, error = lmeb("rank", a, b)
    assert (code, printed) == (2, "")
    assert error.startswith("error: `RUN` must have answered the same questions of contest_bayes")
    assert len(error.splitlines()) == 1


def test_a_method_of_scorio_beside_ours(four):
    scorio = pytest.importorskip("scorio.rank", reason="scorio is not installed")
    code, printed, error = lmeb("rank", four, "--method", "bradley_terry", "--json")
    assert (code, error) == (0, "")
    (other,) = json.loads(printed)["scorio"]
    expected = scorio.bradley_terry(np.stack(MATRICES), return_scores=True)
    by_model = {row["model"]: row for row in other["rows"]}
    for i in range(4):
        assert by_model[f"m {i + 1}"]["rank"] == expected[0][i]
        assert by_model[f"m {i + 1}"]["score"] == pytest.approx(expected[1][i])
    ours = [row["mu"] for row in json.loads(printed)["leaderboards"][0]["places"]]
    names = [row["model"] for row in json.loads(printed)["leaderboards"][0]["places"]]
    theirs = [-by_model[name]["rank"] for name in names]
    assert other["agreement"]["tau_b"] == pytest.approx(stats.kendalltau(ours, theirs).statistic)
    code, printed, _ = lmeb("rank", four, "--method", "pass_at_k:k=2")
    assert code == 0
    assert "by pass_at_k, k=2 (scorio " in printed
    assert "with the order by mean: tau_b " in printed


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--method", "magic"], "`--method` must be one of scorio's ranking functions: alpharank"),
        (["--method", "elo:x=1"], "`--method` must have arguments of elo: ['K', "),
        (["--method", "elo:x"], "`--method` must be NAME or NAME:ARG=VALUE"),
        (["--method", "pass_at_k:k=99"], "`--method` must be one that scorio can compute"),
        (["--level", "0"], "`--level` must be"),
        (["--seed", "-1"], "`--seed` must be"),
    ],
)
def test_wrong_options_end_in_one_sentence(four, options, message):
    if "--method" in options:
        pytest.importorskip("scorio.rank", reason="scorio is not installed")
    code, printed, error = lmeb("rank", four, *options)
    assert (code, printed) == (2, "")
    assert error.startswith(f"error: {message}")


def test_help():
    code, printed, _ = lmeb("rank", "--help")
    assert code == 0
    assert printed.count("\n    lm-eval-bayes rank ") == 4
