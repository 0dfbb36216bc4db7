"""`lm-eval-bayes rank`: leaderboards of files, their rules, and what cannot be ranked."""

from __future__ import annotations

import math
from itertools import pairwise

import numpy as np
import pytest
from _support.command_line import answer, refusal
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
    return answer("rank", four)


def test_what_is_printed(four, plain):
    code, printed, error = lmeb("rank", four, "--pairs")
    assert (code, error) == (0, "")
    (board,) = plain["leaderboards"]
    rows = [line.split() for line in printed.splitlines()[3:7]]
    for row, place in zip(rows, board["places"], strict=True):
        low, high = int(place["rank_low"]), int(place["rank_high"])
        assert row[0] == (f"{low}-{high}" if low < high else str(low))
        assert row[3] == f"{place['mu']:.3f}"
        assert row[4].find("=") == low - 1
        assert row[4].count("=") == high - low + 1
    separated = np.array(board["distinguishable"])
    n_pairs = int(separated.sum()) // 2
    assert f" {n_pairs} of 6 pairs" in printed.splitlines()[0]
    stairs = [line.partition("\\")[2] for line in printed.splitlines() if "\\" in line]
    expected = ["".join(".#"[int(d)] for d in row[i + 1 :]) for i, row in enumerate(separated)]
    assert stairs == expected
    assert "\\" not in lmeb("rank", four)[1]


def test_the_critical_value_is_that_of_tukey(four):
    (board,) = answer("rank", four)["leaderboards"]
    critical_value = board["threshold"]
    # Tukey's value at 2 * 12 * 7 degrees of freedom; drawn variances are at most the estimated ones
    tukey = stats.studentized_range.ppf(0.95, 4, 168) / math.sqrt(2)
    assert tukey - 0.04 < critical_value < 1.03 * tukey
    (board,) = answer("study rank", four, "--ties", "adjacent")["leaderboards"]
    assert (board["ties"], board["confidence"]) == ("adjacent", 0.95)
    _, printed, _ = lmeb("study rank", four, "--ties", "adjacent")
    shown = [line.split()[5] for line in printed.splitlines()[3:7]]
    assert shown == [f"{place['rank']:g}" for place in board["places"]]


def test_the_shared_prior(four, plain):
    code, printed, error = lmeb("study rank", four, "--shared")
    shared = plain["leaderboards"][0]["shared"]
    assert (code, error) == (0, f"note: outcomes: {shared['note']}\n")
    assert f" {shared['tau']:.2f} ({shared['tau_low']:.2f} to " in printed
    shown = [line.split()[5] for line in printed.splitlines()[3:7]]
    assert shown == [f"{model['mu']:.3f}" for model in shared["models"]]


def test_scope_population_pairs_questions(four):
    (board,) = answer("rank", four, "--scope", "population")["leaderboards"]
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
    assert "\x1b" not in lmeb("rank", tmp_path)[1]
    plain = answer("rank", tmp_path)
    assert plain["overall"]["tasks"] == ["one", "two"]
    of_task = {
        leaderboard["task"]: {item["model"]: item for item in leaderboard["places"]}
        for leaderboard in plain["leaderboards"]
    }
    assert set(of_task["three"]) == {"a", HOSTILE}


def test_the_layout_of_the_paper(tmp_path):
    R = np.stack(MATRICES)
    np.savez(tmp_path / "a.npz", R=R, models=["w", "x", "y", "z"], task="first")
    np.savez(tmp_path / "b.npz", R=R[::-1][:3], models=["w", "x", "v"], task="second")
    files = (tmp_path / "a.npz", tmp_path / "b.npz")
    table = answer("study rank", *files, "--paper")["paper"]
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
    code, printed, _ = lmeb("study rank", *files, "--paper")
    assert code == 0
    for model in order:
        (line,) = (line for line in printed.splitlines() if line.startswith(f"{model} "))
        assert line.count("|") == len([task for task in expected if model in expected[task]])


def test_tasks_that_no_two_models_share(tmp_path):
    saved(tmp_path / "a", "a", outcomes(1), "one")
    saved(tmp_path / "b", "b", outcomes(2), "two")
    assert answer("rank", tmp_path)["overall"] is None
    assert "P(best)" not in lmeb("rank", tmp_path)[1]  # one model on each


def test_a_method_of_scorio_beside_ours(four):
    scorio = pytest.importorskip("scorio.rank", reason="scorio is not installed")
    content = answer("study rank", four, "--method", "bradley_terry")
    (other,) = content["scorio"]
    expected = scorio.bradley_terry(np.stack(MATRICES), return_scores=True)
    by_model = {row["model"]: row for row in other["rows"]}
    for i in range(4):
        assert by_model[f"m {i + 1}"]["rank"] == expected[0][i]
        assert by_model[f"m {i + 1}"]["score"] == pytest.approx(expected[1][i])
    places = content["leaderboards"][0]["places"]
    ours = [row["mu"] for row in places]
    theirs = [-by_model[row["model"]]["rank"] for row in places]
    assert other["tau_b"] == pytest.approx(stats.kendalltau(ours, theirs).statistic)
    assert "pass_at_k, k=2 of scorio" in lmeb("study rank", four, "--method", "pass_at_k:k=2")[1]
    assert refusal("study rank", four, "--method", "elo:x=1") == ("--method", "unknown-key")


def test_boards_of_several_tasks_are_named(tmp_path):
    """Without a mean every board says which task it is of, in `summary`, `plan` and `noise` too."""
    rows = [
        f"{model},{task},q{q},{t},{(q + t + len(task)) % 2}"
        for model, task in (("a", "one"), ("b", "one"), ("a", "third"), ("c", "third"))
        for q in range(6)
        for t in range(3)
    ]
    table = tmp_path / "board.csv"
    table.write_text("model,task,question,trial,score\n" + "\n".join(rows) + "\n", encoding="utf-8")
    for command in ("summary", "rank", "plan", "noise"):
        code, printed, _ = lmeb(command, table)
        titles = [line for line in printed.splitlines() if line in ("one:", "third:")]
        assert (code, titles) == (0, ["one:", "third:"]), command


@pytest.mark.parametrize("scope", ["benchmark", "population"])
def test_a_model_without_a_trial_that_counts_is_not_compared(tmp_path, scope):
    rows = [f"{m},q{q},{t},{1 if m == 'b' else ''}" for m in "ab" for q in range(9) for t in (0, 1)]
    table = tmp_path / "board.csv"
    table.write_text("model,question,trial,score\n" + "\n".join(rows) + "\n", encoding="utf-8")
    for command in ("rank", "compare", "plan"):
        code, printed, error = lmeb(command, table, "--scope", scope)
        assert (code, printed) == (2, ""), command
        assert "got none of a on outcomes" in error
    assert lmeb("rank", table, "--unscored", "wrong")[0] == 0
