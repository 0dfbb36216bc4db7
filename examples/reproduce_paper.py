"""The tables and figures of [Hariri 2026], arXiv 2510.04265, with the paper's numbers beside ours.

    python reproduce_paper.py                                     # a minute
    python reproduce_paper.py --data FILE.npz                     # the authors' outcomes
    python reproduce_paper.py --data FILE.npz --replicates 100000 # as many as the paper, hours

FILE.npz holds the outcomes of 20 models in arrays aime24, aime25, hmmt_feb_2025 and brumo_2025 of
shape (20, 30, 80), with an array `models` of their names or in the order of Table 6. Without it a
simulated board takes their place: its scores are 4 points apart in the order of Table 2, so that
it shows what the tables look like and how long they take, and its deviations mean nothing. Then
follow the simulations of Figures 1 to 3 and Table 1. For these the paper prints the mean scores of
the models, and not the probabilities of their 30 questions. Here these are quantiles of Beta
distributions of strength 4.5, which needs as many trials as the paper to distinguish the models of
Figure 3.
"""

from __future__ import annotations

import argparse
import json
from collections import Counter
from pathlib import Path

import numpy as np

from lm_eval_bayes import (
    Outcomes,
    bayes_at_n,
    convergence_at_n,
    hbayes_at_n,
    kendall_curve,
    kendall_tau_b,
    query_independence,
    rank,
    read_runs,
    simulate_outcomes,
)
from lm_eval_bayes.analysis.other_rankings import paper_table
from lm_eval_bayes.runs.task_run import TaskRun
from lm_eval_bayes.stats import Convergence, mimics_with_means, prefix_scores

#: The numbers that the paper prints: Tables 2, 6, 8, 9, 10, Figures 4, 5 and 9.
PAPER = json.loads(Path(__file__).with_name("hariri_2026.json").read_text(encoding="utf-8"))
#: LLM1 to LLM11 of Figure 1 and Table 1.
MEANS = (
    *(0.2332, 0.2545, 0.3604, 0.3642, 0.3642, 0.4466),
    *(0.5418, 0.5276, 0.608, 0.6213, 0.7327),
)
QUESTIONS, TRIALS, STRENGTH = 30, 80, 4.5
METRICS = {
    "bayes": {},
    "pass@2": {"metric": "pass@k", "k": 2},
    "pass@4": {"metric": "pass@k", "k": 4},
    "pass@8": {"metric": "pass@k", "k": 8},
    "naive pass@4": {"metric": "naive pass@k", "k": 4},
    "g-pass@4 (.5)": {"metric": "g-pass", "k": 4, "tau": 0.5},
    "mg-pass@4": {"metric": "mg-pass", "k": 4},
}
STOPS = (1, 2, 5, 10, 20, 40, 80)
#: Table 1 from LLM11 down to LLM1: Bayes@80 without and with ties.
TABLE_1 = ((1, 3, 2, 5, 4, 6, 7, 8, 9, 10, 11), (1, 2, 2, 3, 3, 4, 5, 5, 5, 6, 7))
#: Models of Figures 5 and 9: the first of Table 6.
FEWER = 11
#: By task, an array (20, M, N).
Board = dict[str, np.ndarray]


def read_board(path: Path) -> Board:
    """Return the outcomes of a file, models in the order of Table 6."""
    board: Board = {}
    for task in PAPER["tasks"]:
        runs = read_runs([path], task=task).runs
        names = [run.model for run in runs]
        if names == [f"{path.stem} {i}" for i in range(1, 21)]:
            names = PAPER["models"]
        if set(names) != set(PAPER["models"]):
            raise SystemExit(f"{path} must hold the 20 models of Table 6 in {task}; got {names}")
        trials = dict(zip(names, (run.trials for run in runs), strict=True))
        board[task] = np.array([np.stack(trials[model]) for model in PAPER["models"]])
    return board


def simulated_board(seed: int) -> Board:
    """Return 20 models whose scores fall evenly from .88 to .12 in the order of Table 2."""
    board = {}
    for number, task in enumerate(PAPER["tasks"]):
        ranks = [PAPER["table_2"][model][number][1] for model in PAPER["models"]]
        p = mimics_with_means(0.92 - 0.04 * np.array(ranks), QUESTIONS, strength=1.0)
        board[task] = simulate_outcomes(p, TRIALS, seed=seed + number)
    return board


def table_2(board: Board) -> dict[str, list[tuple[int, int]]]:
    """Print and return each model's ranks with the 95% interval and without, by task."""
    models, tasks = PAPER["models"], PAPER["tasks"]
    runs = {
        task: [
            TaskRun.from_trials(name, task, matrix, [f"q{i}" for i in range(len(matrix))])
            for name, matrix in zip(models, R, strict=True)
        ]
        for task, R in board.items()
    }
    rows = {row.model: row.ranks for row in paper_table(runs).rows}
    ours = {
        name: [(rows[name][t].with_ties, rows[name][t].without_ties) for t in tasks]
        for name in models
    }
    deviation = np.array([ours[name] for name in models]) - [
        PAPER["table_2"][name] for name in models
    ]
    print("Table 2: rank with 95% interval | without, ours, the paper's, the deviation")
    print(f"{'':32}" + "".join(f"{name:^22}" for name in tasks.values()))
    for name in sorted(models, key=lambda name: PAPER["table_2"][name][1][1]):
        cells = zip(ours[name], PAPER["table_2"][name], deviation[models.index(name)], strict=True)
        texts = ("{:2}|{:<2} {:2}|{:<2}{:+4}{:+4}".format(*a, *b, *c) for a, b, c in cells)
        print(f"{name[:31]:32}" + "   ".join(texts))
    equal = (deviation == 0).sum(axis=0)
    for number, name in enumerate(tasks.values()):
        with_ties, without = equal[number]
        print(f"{name}: {with_ties} and {without} of 20 ranks are the paper's")
    print()
    return ours


def figure_4(board: Board, replicates: int, seed: int) -> dict[str, dict[str, np.ndarray]]:
    """Print and return the mean tau_b with the ranking of all trials, by task and metric."""
    curves: dict[str, dict[str, np.ndarray]] = {}
    print(
        f"Figure 4: mean tau_b with the ranking by bayes@N of all trials, {replicates} replicates"
    )
    for task, R in board.items():
        stops = [n for n in STOPS if n <= R.shape[2]]
        print(f"{PAPER['tasks'][task]:24}" + "".join(f"{f'N = {n}':>9}" for n in stops))
        rows = {name: (R, arguments) for name, arguments in METRICS.items()}
        rows[f"bayes, {FEWER} models"] = (R[:FEWER], {})
        curves[task] = {}
        for name, (part, arguments) in rows.items():
            gold = prefix_scores(part)[:, -1]
            curve = kendall_curve(part, gold, **arguments, replicates=replicates, seed=seed).mean
            curves[task][name] = curve
            cells = (curve[n - 1] for n in stops)
            print(f"{name:24}" + "".join(f"{'-':>9}" if t != t else f"{t:9.3f}" for t in cells))
        bayes, paper = curves[task]["bayes"], PAPER["tau_at_80"][task]
        print(f"bayes at N = 10: {bayes[9]:.3f}, paper above .90; ", end="")
        print(f"at N = {len(bayes)}: {bayes[-1]:.3f}, paper {paper:.2f}, {bayes[-1] - paper:+.3f}")
    print("paper (curves without numbers): bayes highest at every N\n")
    return curves


def figures_5_and_9(board: Board, replicates: int, seed: int) -> dict[tuple, Convergence]:
    """Print and return convergence@n by task, gold ranking, number of models and metric."""
    results: dict[tuple, Convergence] = {}
    print(f"Figures 5 and 9: convergence@n, {replicates} replicates (paper 100,000). Gold: the")
    print("ranking by all trials once (all, Section 3.3) or each replicate's own (replicate, F.1)")
    for task, R in board.items():
        stops = [n for n in STOPS if 5 <= n <= R.shape[2]]
        cdf = "".join(f"{f'<= {n}':>7}" for n in stops)
        print(f"{PAPER['tasks'][task]:24}{cdf}{'mean':>7}  paper   dev.  never latest paper")
        for gold in ("all", "replicate"):
            rows = [(FEWER, name) for name in ("bayes", "pass@2", "pass@4", "pass@8")]
            for size, name in [*rows, (len(R), "bayes")]:
                result = convergence_at_n(
                    R[:size], **METRICS[name], gold=gold, replicates=replicates, seed=seed
                )
                results[task, gold, size, name] = result
                paper_mean, paper_latest = None, "-"
                if name == "bayes":
                    paper_latest = "never"
                    if size == FEWER:
                        paper_mean = PAPER["mean_of_bayes"].get(task)
                        paper_latest = PAPER["latest_of_11_models"][task] or "never"
                difference = None
                if result.mean is not None and paper_mean is not None:
                    difference = f"{result.mean - paper_mean:+.1f}"
                mean = None if result.mean is None else f"{result.mean:.1f}"
                latest = result.worst.converged_at if result.worst else "never"
                cells = [f"{result.cdf[n - 1]:.3f}" for n in stops] + [mean, paper_mean, difference]
                print(f"{f'{size}, {name}, {gold}':24}", end="")
                print("".join(f"{'-' if cell is None else cell:>7}" for cell in cells), end="")
                print(f"{result.not_converged:7.1%}{latest:>7}{paper_latest:>6}")
        if task in PAPER["best_mean_of_pass_at_k"]:
            best = PAPER["best_mean_of_pass_at_k"][task]
            for gold in ("all", "replicate"):
                means = [results[task, gold, FEWER, f"pass@{k}"].mean for k in (2, 4, 8)]
                ours = min((mean for mean in means if mean is not None), default=np.nan)
                print(f"best mean of Pass@k, {gold}: {ours:.1f}, paper {best}, {ours - best:+.1f}")
    print("paper: Pass@4 and Pass@8 do not converge. Its latest is never where at least one")
    print("replicate does not converge; ours is of those that do.\n")
    return results


def tables_8_to_10(board: Board, replicates: int, seed: int) -> dict[str, np.ndarray]:
    """Print and return mean convergence@n of the paper's combinations, (90, 4) by convention."""
    combinations = PAPER["combinations"]
    paper = np.array([printed for _, printed in combinations])
    shape = paper.shape
    ours = {
        f"{gold}, {rest}": np.full(shape, np.nan)
        for gold in ("all", "replicate")
        for rest in ("left out", "as N")
    }
    for row, (models, _) in enumerate(combinations):
        for column, R in enumerate(board.values()):
            for gold in ("all", "replicate"):
                chosen = R[np.array(models) - 1]
                result = convergence_at_n(chosen, gold=gold, replicates=replicates, seed=seed)
                mean, share = result.mean, result.not_converged
                ours[f"{gold}, left out"][row, column] = np.nan if mean is None else mean
                filled = share * result.n_max + (1.0 - share) * (mean or 0.0)
                ours[f"{gold}, as N"][row, column] = filled
    print(f"Tables 8 to 10, Figure 6: mean convergence@n, {replicates} replicates (paper 100,000)")
    print("Mean absolute deviation from the paper by gold ranking, and by what is done with a")
    print("replicate that does not converge. The paper does not say; its means reach 79.9, which")
    print("suggests that it counts them as N:")
    names = PAPER["tasks"].values()
    print(f"{'':22}" + "".join(f"{name:>10}" for name in names))
    off = {name: np.abs(values - paper) for name, values in ours.items()}
    for name, values in off.items():
        print(f"{name:22}" + "".join(f"{x:10.2f}" for x in np.nanmean(values, axis=0)))
    nearest = min(off, key=lambda name: np.nan_to_num(off[name], nan=np.inf).mean())
    print(f"Cells under {nearest}: ours, the paper's, the deviation")
    print("   " + "".join(f"{name:>21}" for name in names) + "   models")
    for size in (5, 10, 15):
        rows = [i for i, (models, _) in enumerate(combinations) if len(models) == size]
        for number, row in enumerate(rows, 1):
            pairs = zip(ours[nearest][row], paper[row], strict=True)
            cells = "".join(f"{a:8.1f}{b:6.1f}{a - b:+7.1f}" for a, b in pairs)
            print(f"{number:3}{cells}   {' '.join(map(str, combinations[row][0]))}")
        pairs = zip(ours[nearest][rows].mean(axis=0), paper[rows].mean(axis=0), strict=True)
        print("all" + "".join(f"{a:8.1f}{b:6.1f}{a - b:+7.1f}" for a, b in pairs))
    print()
    return ours


def trials_and_settings(board: Board, seed: int) -> tuple[dict[str, float], dict[str, list]]:
    """Print and return what trials share by task, and the interval of every model."""
    ratios, intervals = {}, {}
    print(
        "Do the questions of a trial share anything? The paper gives all questions of trial i the"
    )
    print("seed 1233 + i. Variance of per-trial means over what independent questions explain:")
    for task, R in board.items():
        check = query_independence(R, permutations=200, seed=seed)
        ratios[task] = check.variance_ratio
        print(f"  {PAPER['tasks'][task]:10} {check.variance_ratio:5.2f}, p = {check.p_value:.3f}")
    print("On 24 prompts from one template a shared seed gave 3.8 and one seed a prompt 0.9. Above")
    print("1, intervals about these questions are too narrow by the root of the ratio.\n")
    print("Score and 95% interval by hbayes@N, in percent")
    print(f"{'':32}" + "".join(f"{name:>20}" for name in PAPER["tasks"].values()))
    for name, of_model in zip(PAPER["models"], zip(*board.values(), strict=True), strict=True):
        intervals[name] = []
        for trials in of_model:
            posterior = hbayes_at_n(Outcomes.from_matrix(trials))
            interval = posterior.interval(0.95, "exact")
            intervals[name].append((posterior.mu, interval.low, interval.high))
        cells = ("{:.1f} [{:.1f}, {:.1f}]".format(*100 * np.array(x)) for x in intervals[name])
        print(f"{name[:31]:32}" + "".join(f"{cell:>20}" for cell in cells))
    p = np.concatenate([R.mean(axis=2).ravel() for R in board.values()])
    half = np.mean([(high - low) / 2 for cells in intervals.values() for _, low, high in cells])
    print(f"The mean half width is {100 * half:.1f} points. It is about trials in this one setting")
    print("(prompt, engine, day) and does not tell how scores differ between settings: that takes")
    print("several. A sd of .2 logit between settings, were it so, would be a half width of")
    print(
        f"{100 * 1.96 * 0.2 * (p * (1 - p)).mean():.1f} points, which more trials do not lower.\n"
    )
    return ratios, intervals


def figure_1(p: np.ndarray, R: np.ndarray, replicates: int, seed: int) -> None:
    matrices = max(10, replicates // 10)
    print("Figure 1: mean tau_b with the true ranking of eleven simulated models")
    print(f"(a) {matrices} independent outcome matrices; the paper has 1,000")
    print(f"{'':15}" + "".join(f"{f'N = {n}':>9}" for n in STOPS))
    curves, independent = {}, {}
    for name, arguments in METRICS.items():
        taus = []
        for i in range(matrices):
            outcomes = simulate_outcomes(p, TRIALS, seed=seed + 1 + i)
            taus.append(kendall_tau_b(prefix_scores(outcomes, **arguments).T, MEANS))
        mean = np.mean(taus, axis=0)
        independent[name] = mean
        cells = (mean[n - 1] for n in STOPS)
        print(f"{name:15}" + "".join("        -" if np.isnan(t) else f"{t:9.3f}" for t in cells))
        curves[name] = kendall_curve(R, MEANS, **arguments, replicates=replicates, seed=seed)
    behind = [mean[7:] - independent["bayes"][7:] for mean in independent.values()]
    print(f"highest lead of another metric over bayes from N = 8 on: {np.max(behind):.3f}")
    print("paper (a figure, no numbers): bayes highest at every N, all metrics arrive by N = 80")
    row = kendall_curve(R, MEANS, scheme="row", replicates=replicates, seed=seed)
    apart = np.abs(row.mean - curves["bayes"].mean).max()
    from_a = np.abs(curves["bayes"].mean - independent["bayes"]).max()
    print(f"(b) and (c), bootstraps of one matrix: {apart:.3f} apart at most; paper: nearly alike")
    print(f"(b) is at most {from_a:.3f} from (a); paper: close. One matrix has its own order of")
    print("LLM9 and LLM10 and of LLM4 and LLM5, which its bootstraps share.\n")


#: Means of the eight original models [Hariri 2026, §2.8]; depths and trials of Figure 2.
ORIGINAL_MEANS = (0.3021, 0.3166, 0.4144, 0.4985, 0.5351, 0.5759, 0.6679, 0.7487)
DEPTHS, LENGTHS = (0, 1, 2, 4, 8, 16), (1, 2, 3, 5, 8, 16, 32, 64)


def figure_2(replicates: int, seed: int) -> None:
    """Rank updated models, p ~ Beta(i + 3 ± 1, 12 − i ± 1), with trials of their old versions.

    With equal N and D the order of μ is the order of all successes together.
    """
    old = mimics_with_means(ORIGINAL_MEANS, QUESTIONS, strength=15.0)
    rng, i = np.random.default_rng(seed), np.arange(1.0, 9.0)
    shifts = rng.choice((-1.0, 1.0), (2, replicates, 8, 1))
    parameters = shifts + np.stack([i + 3.0, 12.0 - i])[:, None, :, None]
    new = rng.beta(*parameters, (replicates, 8, QUESTIONS))
    truth = new.mean(axis=2)

    def successes(p: np.ndarray, sizes: tuple[int, ...]) -> np.ndarray:
        steps = np.diff((0, *sizes))
        return np.cumsum([rng.binomial(step, p).sum(axis=2) for step in steps], axis=0)

    prior = successes(np.broadcast_to(old, new.shape), DEPTHS)
    totals = prior[:, None] + successes(new, LENGTHS)
    tau = np.nanmean(kendall_tau_b(totals, truth), axis=2)
    update = kendall_tau_b(np.broadcast_to(ORIGINAL_MEANS, truth.shape), truth)
    print("Figure 2: eight models, ranked with D trials of their old versions")
    print(f"mean tau_b of the old and the new ranking {update.mean():.3f}; paper .88")
    print(f"share of rankings that changed {(update < 1.0).mean():.3f}; paper about .86")
    print(f"{'gain over D = 0':15}" + "".join(f"{f'N = {n}':>9}" for n in LENGTHS))
    print(f"{'tau at D = 0':15}" + "".join(f"{value:9.3f}" for value in tau[0]))
    for d, gains in zip(DEPTHS[1:], tau[1:] - tau[0], strict=True):
        print(f"{f'D = {d}':15}" + "".join(f"{gain:+9.3f}" for gain in gains))
    print("paper: D <= 4 helps until about N = 5; D = 8 and 16 hurt at larger N\n")


def expected_z(p: np.ndarray, other: np.ndarray, n: np.ndarray) -> np.ndarray:
    """Return |E μ − E μ'| / sqrt(E σ² + E σ'²) under Bayes@N after n trials, in closed form."""
    n = np.asarray(n, dtype=float)
    means, variances = [], []
    for q in (p, other):
        means.append((1.0 + n * q.mean()) / (n + 2.0))
        # Σ (n p + 1)(n (1 − p) + 1) − n p (1 − p)
        top = (n * n - n) * (q * (1.0 - q)).sum() + q.size * (n + 1.0)
        variances.append(top / ((n + 2.0) ** 2 * (n + 3.0) * q.size**2))
    return np.abs(means[0] - means[1]) / np.sqrt(variances[0] + variances[1])


def figure_3(p: np.ndarray, replicates: int, seed: int) -> None:
    first, second = (p[MEANS.index(mean)] for mean in (0.608, 0.6213))
    rng = np.random.default_rng(seed)
    runs = 10 * replicates
    print(f"Figure 3: LLM10 (.6213) against LLM9 (.608), {runs} simulated runs")
    print("    N  right order  paper  expected z  paper")
    for n, share, z in ((80, 0.837, 1.14), (199, 0.947, 1.645), (285, 0.969, 1.96)):
        right = rng.binomial(n, second, (runs, QUESTIONS)).sum(axis=1)
        right = right > rng.binomial(n, first, (runs, QUESTIONS)).sum(axis=1)
        ours = float(expected_z(first, second, n))
        print(f"  {n:3}  {right.mean():11.1%}  {share:5.1%}  {ours:10.3f}  {z:5.3f}")
    curve = expected_z(first, second, np.arange(1, 1001))
    reached = [1 + int((curve >= z).argmax()) for z in (1.645, 1.96)]
    print(f"expected z of 1.645 and 1.96 at N = {reached[0]} and {reached[1]}; paper 199 and 285")
    print("z grows as the root of N: 1.645 at 199 means 1.04 at 80. The paper's 1.14 is the z of")
    print("simulated trials, whose noise it mentions; its 83.7% means z = .98.\n")


def ranks_of(mu: np.ndarray, sigma: np.ndarray, threshold: float) -> np.ndarray:
    """Rank each run's models as Table 1 does, from LLM11 down to LLM1: (runs, L)."""
    order = np.argsort(-mu, axis=1)
    means, sds = (np.take_along_axis(values, order, axis=1) for values in (mu, sigma))
    z = (means[:, :-1] - means[:, 1:]) / np.hypot(sds[:, :-1], sds[:, 1:])
    ranks = np.ones(mu.shape, dtype=np.int64)
    np.put_along_axis(ranks, order[:, 1:], 1 + np.cumsum(z >= threshold, axis=1), axis=1)
    return ranks[:, ::-1]


def table_1(p: np.ndarray, replicates: int, seed: int) -> None:
    runs = 10 * replicates
    c = np.random.default_rng(seed).binomial(TRIALS, p, (runs, *p.shape))
    m = (c + 1) / (TRIALS + 2)
    mu = m.mean(axis=2)
    sigma = np.sqrt((m * (1 - m) / (TRIALS + 3)).sum(axis=2)) / QUESTIONS
    plain, tied = (ranks_of(mu, sigma, threshold) for threshold in (0.0, 1.6448536))
    first = {
        f"LLM{i}": bayes_at_n(Outcomes.from_counts(np.stack([TRIALS - right, right], axis=1)))
        for i, right in enumerate(c[0], start=1)
    }
    for ties, rows in (("none", plain), ("adjacent", tied)):
        board = rank(first, ties=ties, draws=1000)
        package = [board.rank_of(f"LLM{i}") for i in range(11, 0, -1)]
        if package != rows[0].tolist():
            raise SystemExit(f"the package ranks {package}, this file {rows[0].tolist()}")
    print(f"Table 1: ranks by Bayes@80 from LLM11 down to LLM1, {runs} runs")
    print("the true ranks                 1 2 3 5 4 6 7 7 8 9 10")
    for label, paper, rows in zip(
        ("without ties", "with 95% ties"), TABLE_1, (plain, tied), strict=True
    ):
        same = (rows == np.array(paper)).all(axis=1)
        ((usual, times),) = Counter(map(tuple, rows.tolist())).most_common(1)
        print(f"{label + ', paper':30} {' '.join(map(str, paper))}, in {same.mean():.1%} of runs")
        print(f"{'  most frequent':30} {' '.join(map(str, usual))}, in {times / runs:.1%} of runs")
    distinct = tied.max(axis=1)
    print(f"ranks with ties: {distinct.mean():.1f} on average; paper {max(TABLE_1[1])}")
    print(f"LLM9 and LLM10 tie in {(tied[:, 1] == tied[:, 2]).mean():.0%}", end=", ")
    print(f"and without ties change places in {(plain[:, 1] > plain[:, 2]).mean():.0%} of runs\n")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data", type=Path, metavar="FILE.npz", help="outcomes of 20 models")
    parser.add_argument("--replicates", type=int, default=400, help="of every bootstrap")
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    replicates, seed = options.replicates, options.seed
    board = read_board(options.data) if options.data else simulated_board(seed)
    print(f"The outcomes are {options.data or 'SIMULATED: deviations mean nothing'}.\n")
    table_2(board)
    figure_4(board, replicates, seed)
    figures_5_and_9(board, replicates, seed)
    tables_8_to_10(board, max(1, replicates // 4), seed)
    trials_and_settings(board, seed)
    if not options.data:
        p = mimics_with_means(MEANS, QUESTIONS, strength=STRENGTH)
        figure_1(p, simulate_outcomes(p, TRIALS, seed=seed), replicates, seed)
        figure_2(replicates, seed)
        figure_3(p, replicates, seed)
        table_1(p, replicates, seed)


if __name__ == "__main__":
    main()
