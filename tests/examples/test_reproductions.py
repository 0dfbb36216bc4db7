"""The scripts about the papers print what brute force finds on planted outcomes."""

from __future__ import annotations

import csv
import importlib
import json
import math
from collections import Counter

import numpy as np
import pytest
from _support.paths import REPOSITORY
from scipy import special, stats

from lm_eval_bayes import read_runs

EXAMPLES = REPOSITORY / "examples"
PAPER = json.loads((EXAMPLES / "hariri_2026.json").read_text(encoding="utf-8"))
N_REPLICATES, SEED = 4, 3


def imported(name):
    return pytest.fixture(lambda monkeypatch: _import(name, monkeypatch))


def _import(name, monkeypatch):
    monkeypatch.syspath_prepend(str(EXAMPLES))
    return importlib.import_module(name)


paper = imported("reproduce_paper")
bowyer = imported("reproduce_bowyer")
xiao = imported("reproduce_xiao")


def planted(m, n):
    """Outcomes of 20 models whose skills differ by task; in the first, trials share a shift."""
    rng, board = np.random.default_rng(11), {}
    for number, task in enumerate(PAPER["tasks"]):
        skill = rng.permutation(np.linspace(-1.5, 1.5, 20))[:, None, None]
        shift = (1.0 if number == 0 else 0.0) * rng.standard_normal((20, 1, n))
        p = special.expit(skill + rng.standard_normal((1, m, 1)) + shift)
        board[task] = (rng.random((20, m, n)) < p).astype(np.int8)
    return board


@pytest.fixture
def board():
    return planted(8, 20)


def replicates(R):
    """The bootstrap replicates of trials that the package draws, one block of them."""
    n = R.shape[2]
    columns = np.random.default_rng([SEED, 0]).integers(0, n, (N_REPLICATES, 1, n))
    return [R[:, :, of_one[0]] for of_one in columns]


def dense(scores):
    order = sorted(set(scores), reverse=True)
    return [order.index(score) for score in scores]


def converged_at(R, gold):
    """The trial from which on rankings by right answers are the gold one; None where none is."""
    found = []
    for replicate in replicates(R):
        totals = replicate.sum(axis=1).cumsum(axis=1).T.tolist()
        target = dense(R.sum(axis=(1, 2)).tolist() if gold == "all" else totals[-1])
        last = max((s for s, row in enumerate(totals, 1) if dense(row) != target), default=0)
        found.append(last + 1 if last < R.shape[2] - (gold == "replicate") else None)
    return found


def test_the_numbers_of_the_paper_are_whole():
    assert [len(models) for models, _ in PAPER["combinations"]] == [5] * 50 + [10] * 20 + [15] * 20
    for models, _ in PAPER["combinations"]:
        assert models == sorted(set(models) & set(range(1, 21)))
    averages = {}
    for models, printed in PAPER["combinations"]:
        averages.setdefault(len(models), []).append(printed)
    for size, expected in {
        5: (20.6, 43.4, 16.1, 18.8),
        10: (50.6, 75.4, 51.8, 61.1),
        15: (67.2, 79.0, 70.5, 69.7),
    }.items():
        assert np.mean(averages[size], axis=0) == pytest.approx(expected, abs=0.05)
    ranks = np.array([PAPER["table_2"][model] for model in PAPER["models"]])
    assert (np.sort(ranks[:, :, 1], axis=0) == np.arange(1, 21)[:, None]).all()
    assert ranks[:, :, 0].max(axis=0).tolist() == [13, 11, 14, 14]


def test_a_board_of_the_authors_form_is_read(paper, tmp_path):
    board = planted(30, 80)
    combined = np.concatenate(list(board.values()), axis=1)
    np.savez(tmp_path / "R_top_p.npz", **board, combined=combined)
    runs = read_runs([tmp_path / "R_top_p.npz"]).runs
    assert Counter(run.task for run in runs) == dict.fromkeys([*board, "combined"], 20)
    order = np.random.default_rng(0).permutation(20)
    names = np.array(PAPER["models"])[order]
    np.savez(tmp_path / "named.npz", models=names, **{t: R[order] for t, R in board.items()})
    for name in ("R_top_p.npz", "named.npz"):
        found = paper.read_board(tmp_path / name)
        assert list(found) == ["aime24", "aime25", "hmmt_feb_2025", "brumo_2025"]
        assert all((found[task] == R).all() for task, R in board.items())
    np.savez(tmp_path / "few.npz", **{task: R[:19] for task, R in board.items()})
    with pytest.raises(SystemExit):
        paper.read_board(tmp_path / "few.npz")


def test_table_2_is_that_of_its_formulas(paper):
    board = planted(30, 80)
    found = paper.table_2(board)
    for column, R in enumerate(board.values()):
        m = (R.sum(axis=2) + 1) / 82
        mu, sigma = m.mean(axis=1), np.sqrt((m * (1 - m) / 83).sum(axis=1)) / 30
        order = np.argsort(-mu)
        tied = plain = 1
        for above, model in zip([None, *order], order, strict=False):
            if above is not None:
                z = (mu[above] - mu[model]) / math.hypot(sigma[above], sigma[model])
                tied, plain = tied + (z >= 1.6448536), plain + (z > 1e-9)
            assert found[PAPER["models"][model]][column] == (tied, plain)


def test_tau_b_is_scipys(paper, board, monkeypatch, capsys):
    metrics = {"bayes": {}, "pass@2": {"metric": "pass@k", "k": 2}}
    monkeypatch.setattr(paper, "METRICS", metrics)
    curves = paper.figure_4(board, N_REPLICATES, SEED)
    assert capsys.readouterr().out.count("paper 0.95") == 1
    R = board["aime25"]
    gold = R.sum(axis=(1, 2))
    for n in (2, 7, 20):
        taus = {"bayes": [], "pass@2": [], "bayes, 11 models": []}
        for replicate in replicates(R):
            right = replicate[:, :, :n].sum(axis=2)
            wrong = n - right
            pass_at_2 = 1 - wrong * (wrong - 1) / (n * (n - 1))
            scores = pass_at_2.mean(axis=1).round(9)
            taus["pass@2"].append(stats.kendalltau(scores, gold).statistic)
            taus["bayes"].append(stats.kendalltau(right.sum(axis=1), gold).statistic)
            fewer = stats.kendalltau(right.sum(axis=1)[:11], gold[:11])
            taus["bayes, 11 models"].append(fewer.statistic)
        for name, values in taus.items():
            assert curves["aime25"][name][n - 1] == pytest.approx(np.mean(values), abs=1e-9)


def test_convergence_is_that_of_counting(paper, board):
    results = paper.figures_5_and_9(board, N_REPLICATES, SEED)
    for (task, gold, size, name), result in results.items():
        if name == "bayes":
            when = converged_at(board[task][:size], gold)
            found = [s for s in when if s is not None]
            assert result.not_converged == 1 - len(found) / N_REPLICATES
            assert result.mean == (np.mean(found) if found else None)
            assert (result.worst.converged_at if found else None) == max(found, default=None)
            assert result.cdf[9] == sum(s <= 10 for s in found) / N_REPLICATES
    assert len(results) == 4 * 2 * 5


def test_every_combination_is_that_of_counting(paper, board, capsys):
    found = paper.tables_8_to_10(board, N_REPLICATES, SEED)
    lines = capsys.readouterr().out.splitlines()
    expected = {name: np.full((90, 4), np.nan) for name in found}
    for row, (models, _) in enumerate(PAPER["combinations"]):
        for column, R in enumerate(board.values()):
            for gold in ("all", "replicate"):
                when = converged_at(R[[i - 1 for i in models]], gold)
                filled = [20 if s is None else s for s in when]
                expected[f"{gold}, as N"][row, column] = np.mean(filled)
                some = [s for s in when if s is not None]
                expected[f"{gold}, left out"][row, column] = np.mean(some) if some else np.nan
    for name, values in expected.items():
        np.testing.assert_allclose(found[name], values, atol=1e-9)
    # a printed row: ours, the paper's and the deviation for four tasks, then the models
    (nearest,) = (line.split("under ")[1].split(":")[0] for line in lines if "Cells" in line)
    models, printed = PAPER["combinations"][52]
    (row,) = (line for line in lines if line.endswith(f"   {' '.join(map(str, models))}"))
    cells = np.array(row.split()[1:13], float).reshape(4, 3)
    assert cells[:, 1].tolist() == printed
    assert cells[:, 0] == pytest.approx(expected[nearest][52], abs=0.051)
    assert cells[:, 2] == pytest.approx(expected[nearest][52] - printed, abs=0.051)


def test_shared_seeds_are_found_and_intervals_hold_the_score(paper, board):
    ratios, intervals = paper.trials_and_settings(board, SEED)
    for task, R in board.items():
        together = R.sum(axis=1).var(axis=1, ddof=1).sum()
        assert ratios[task] == pytest.approx(together / R.var(axis=2, ddof=1).sum())
    first, *others = ratios.values()
    assert first > 1.5 > 1.3 > max(others)
    for column, R in enumerate(board.values()):
        for model, cells in zip(PAPER["models"], intervals.values(), strict=True):
            mean, low, high = cells[column]
            score = R[PAPER["models"].index(model)].mean()
            assert low < score < high
            assert mean == pytest.approx(score, abs=0.05)


def test_the_simulated_board_has_the_order_of_table_2_and_is_called_simulated(
    paper, monkeypatch, capsys
):
    board = paper.simulated_board(0)
    means = np.array([R.mean(axis=(1, 2)) for R in board.values()]).T
    ranks = np.array([PAPER["table_2"][model] for model in PAPER["models"]])[:, :, 1]
    assert means == pytest.approx(0.92 - 0.04 * ranks, abs=0.03)
    for name in ("table_2", "figure_4", "figures_5_and_9", "tables_8_to_10", "figure_1"):
        monkeypatch.setattr(paper, name, lambda *_: None)
    for name in ("trials_and_settings", "figure_2", "figure_3", "table_1"):
        monkeypatch.setattr(paper, name, lambda *_: None)
    monkeypatch.setattr("sys.argv", ["reproduce_paper.py"])
    paper.main()
    assert "SIMULATED" in capsys.readouterr().out


# -- Bowyer ----------------------------------------------------------------------------------------


def test_coverage_over_theta_is_that_of_quadrature(bowyer, monkeypatch):
    monkeypatch.setattr(bowyer, "SIZES", (3, 10))
    monkeypatch.setattr(bowyer, "LEVELS", (0.8, 0.95))
    coverage, width = bowyer.figure_2()
    theta = (np.arange(20_000) + 0.5) / 20_000
    for row, n in enumerate((3, 10)):
        for column, level in enumerate((0.8, 0.95)):
            z = stats.norm.ppf(0.5 + level / 2)
            total, wide = dict.fromkeys(("CLT", "Wilson", "Clopper-Pearson", "Bayes"), 0.0), 0.0
            for s in range(n + 1):
                exact = stats.binomtest(s, n)
                error = z * math.sqrt(s / n * (1 - s / n) / (n - 1))
                ends = {
                    "CLT": (s / n - error, s / n + error),
                    "Wilson": exact.proportion_ci(level, "wilson"),
                    "Clopper-Pearson": exact.proportion_ci(level, "exact"),
                    "Bayes": stats.beta(1 + s, 1 + n - s).interval(level),
                }
                wide += 2 * error / (n + 1)
                for name, (low, high) in ends.items():
                    inside = (theta >= low) & (theta <= high)
                    total[name] += (inside * stats.binom.pmf(s, n, theta)).mean()
            assert width["CLT"][row, column] == pytest.approx(wide)
            for name, value in total.items():
                assert coverage[name][row, column] == pytest.approx(value, abs=1e-4)
    assert coverage["Bayes"] == pytest.approx(np.array([[0.8, 0.95]] * 2), abs=1e-9)


def test_infinite_fisher_intervals(bowyer):
    # of one side all right, or of the other none
    for n in (1, 3, 10):
        assert bowyer.infinite_fisher(n) == pytest.approx(100 * (1 - (n / (n + 1)) ** 2))


def test_clusters_and_pairs_are_counted(bowyer, monkeypatch):
    monkeypatch.setattr(bowyer, "CLUSTERS", (4,))
    held = bowyer.figure_3(12, np.random.default_rng(5))
    rng, expected = np.random.default_rng(5), 0
    for _ in range(12):
        theta, d = rng.uniform(), rng.gamma(1.0)
        means = rng.beta(d * theta, d * (1 - theta), 4)
        y = (rng.random(20) < np.repeat(means, 5)).reshape(4, 5)
        # the clustered standard error of Section 3.2
        error = math.sqrt(((y - y.mean()).sum(axis=1) ** 2).sum()) / 20
        expected += abs(theta - y.mean()) <= 1.96 * error
    assert held["CLT, clustered"] == pytest.approx([100 * expected / 12])
    monkeypatch.setattr(bowyer, "SIZES", (10,))
    held = bowyer.figure_5(12, np.random.default_rng(6))
    rng, expected = np.random.default_rng(6), 0
    for _ in range(12):
        theta, rho = rng.uniform(size=2), 2 * rng.beta(4, 2) - 1
        normal = rng.multivariate_normal(stats.norm.ppf(theta), [[1, rho], [rho, 1]], 10)
        difference = (normal > 0) @ [1.0, -1.0]
        off = abs(difference.mean() - (theta[0] - theta[1]))
        expected += off <= 1.96 * difference.std(ddof=1) / math.sqrt(10)
    assert held["CLT, paired"] == pytest.approx([100 * expected / 12])
    assert held["Bayes, paired"][0] >= 75


def test_coverage_of_differences_is_that_of_all_tables(bowyer, monkeypatch):
    monkeypatch.setattr(bowyer, "SIZES", (3,))
    held = bowyer.figure_4(16, np.random.default_rng(0))
    assert held["difference, Bayes"] == pytest.approx([95], abs=1)
    assert held["odds ratio, Bayes"] == pytest.approx([95], abs=1)
    theta, total = (np.arange(400) + 0.5) / 400, 0.0
    difference = theta[:, None] - theta
    for a in range(4):
        for b in range(4):
            error = 1.96 * math.sqrt((a * (3 - a) + b * (3 - b)) / 18)
            inside = abs(difference - (a - b) / 3) <= error
            density = np.outer(stats.binom.pmf(a, 3, theta), stats.binom.pmf(b, 3, theta))
            total += (inside * density).mean()
    assert held["difference, CLT"] == pytest.approx([100 * total], abs=0.6)
    assert held["odds ratio, Fisher"] > 98


def test_bayes_has_its_level_for_f1(bowyer, monkeypatch):
    monkeypatch.setattr(bowyer, "SIZES", (10,))
    held = bowyer.figure_6(60, np.random.default_rng(0))
    assert held["Bayes"] == pytest.approx([95], abs=0.7)
    assert max(held["bootstrap"], held["CLT, delta method"]) < 85


def test_outcomes_of_langchains_form_are_read(bowyer, tmp_path, capsys):
    right = {"always (functions)": 20, "never": 0, "some": 1, "half": 10}
    path = tmp_path / "tools.csv"
    with path.open("w", newline="") as file:
        rows = csv.writer(file)
        rows.writerow(["index", "reference output", *right])
        for i in range(20):
            rows.writerow([i + 1, "ab"[: i % 2], *(f"{i < n:d}.00" for n in right.values())])
    found = bowyer.real_models(path)
    for name, n in right.items():
        assert found[name]["Wilson"] == pytest.approx(
            stats.binomtest(n, 20).proportion_ci(method="wilson")
        )
        assert found[name]["Bayes"] == pytest.approx(stats.beta(1 + n, 21 - n).interval(0.95))
    text = capsys.readouterr().out
    # the two of equal answers; p = .05 of 20 goes below 0
    assert "CLT: 2 of width 0, 1 beyond 0 to 1" in text
    assert "Wilson: 0 of width 0, 0 beyond 0 to 1" in text
    path.write_text(path.read_text().replace("0.00", "0.50"))
    with pytest.raises(SystemExit):
        bowyer.read_models(path)


def test_pictures_are_saved(bowyer, tmp_path):
    pytest.importorskip("matplotlib")
    coverage = {"CLT": np.full((4, len(bowyer.LEVELS)), 0.9)}
    bowyer.draw(tmp_path / "new", coverage, {"A": {"CLT": (0.1, 0.3)}})
    assert len(list((tmp_path / "new").glob("*.png"))) == 2


# -- Xiao ------------------------------------------------------------------------------------------


def test_chances_have_the_accuracies(xiao):
    p = xiao.chances(np.array([0.14, 0.5, 0.82]), np.random.default_rng(0).standard_normal(20))
    assert p.mean(axis=1) == pytest.approx([0.14, 0.5, 0.82])
    assert (np.diff(p, axis=0) > 0).all()


def test_the_peak_is_that_of_equation_4(xiao, monkeypatch):
    monkeypatch.setattr(xiao, "SWEEP", {20: ""})
    found = xiao.sweep(1, 1, 0.0, 7)[20, "query"]
    rng = np.random.default_rng(7)
    accuracies = np.append(np.linspace(0.14, 0.82, 5), rng.uniform(0.14, 0.82))
    *anchors, p = xiao.chances(accuracies, rng.standard_normal(20))
    rng.standard_normal(20)
    right = rng.binomial(1, p)
    rows = np.vstack([np.full(20, 0.01), np.clip(anchors, 0.01, 0.99), np.full(20, 0.99)])
    likelihood = np.where(right, rows, 1 - rows)
    posterior = ((likelihood[:-1] + likelihood[1:]) / 2).prod(axis=1)
    assert found[0] == pytest.approx(posterior.max() / posterior.sum())
    place = (accuracies[:5] < accuracies[5]).sum()
    assert found[1] == (posterior.argmax() == place)


def test_twenty_queries_give_the_papers_peak(xiao, monkeypatch):
    monkeypatch.setattr(xiao, "SWEEP", {50: "", 20: "", 5: ""})
    found = xiao.sweep(60, 1, 0.0, 0)
    peaks = [found[m, "query"][0] for m in (50, 20, 5)]
    assert peaks == pytest.approx([0.84, 0.65, 0.42], abs=0.05)
    assert min(found[m, "shared"][2] for m in (50, 20, 5)) >= 0.93
