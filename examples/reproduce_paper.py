"""The simulations of [Hariri 2026], arXiv 2510.04265, with the paper's numbers beside ours.

    python reproduce_paper.py                         # a minute
    python reproduce_paper.py --replicates 10000      # many minutes

The paper prints the mean scores of its eleven simulated models, and not the probabilities of their
30 questions. Here these are quantiles of Beta distributions of strength 4.5, which needs as many
trials as the paper to distinguish the models of Figure 3. Its four benchmarks with 20 real models
are replaced by a simulated board, so there the paper's numbers show the order of magnitude.
"""

from __future__ import annotations

import argparse
from collections import Counter

import numpy as np

from lm_eval_bayes import (
    Outcomes,
    bayes_at_n,
    convergence_at_n,
    kendall_curve,
    kendall_tau_b,
    rank,
    simulate_outcomes,
)
from lm_eval_bayes.analysis.other_rankings import paper_table
from lm_eval_bayes.runs.task_run import TaskRun
from lm_eval_bayes.stats.convergence.convergence import Convergence
from lm_eval_bayes.stats.convergence.prefix_scores import prefix_scores
from lm_eval_bayes.stats.simulation import mimics_with_means

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
#: Averages over the rows of Tables 8 to 10, by size: AIME'24, AIME'25, HMMT'25, BrUMO'25.
SUBSETS = {5: (20.6, 43.4, 16.1, 18.8), 10: (50.6, 75.4, 51.8, 61.1), 15: (67.2, 79.0, 70.5, 69.7)}
#: Random subsets of each size.
N_SUBSETS = {5: 50, 10: 20, 15: 20}
#: Distinct ranks with ties in Table 2, in the order of its columns.
DISTINCT_RANKS = {"AIME'25": 11, "AIME'24": 13, "HMMT'25": 14, "BrUMO'25": 14}


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


def convergence(R: np.ndarray, replicates: int, seed: int) -> None:
    print("Convergence@n [Section 3.3, App. F.1] of the same models without LLM5, the tied one")
    R = np.delete(R, 4, axis=0)
    results = {}
    for gold in ("all", "replicate"):
        for name in ("bayes", "pass@2", "pass@4", "pass@8"):
            result = convergence_at_n(
                R, **METRICS[name], gold=gold, replicates=replicates, seed=seed
            )
            results[f"{name}, gold {gold}"] = result
        results[f"bayes, 95% ties, gold {gold}"] = convergence_at_n(
            R, gold=gold, ties="adjacent", replicates=replicates, seed=seed
        )
    for name, result in results.items():
        mean = "never" if result.mean is None else f"{result.mean:.1f}"
        print(f"{name:32} mean {mean:>5}, not converged {result.not_converged:6.1%}", end="")
        print("" if result.worst is None else f", latest at {result.worst.converged_at}")
    print("paper, 11 real models: bayes 44.2 on HMMT'25 and 27.1 on BrUMO'25; best of the Pass@k")
    print("family 69.5 and 48.5; Pass@4 and Pass@8 do not converge in Fig. 9. With gold all Pass@k")
    print("has to arrive at the ranking by bayes@80, and most replicates of Pass@8 do not.\n")


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


def subset_convergence(R: np.ndarray, size: int, replicates: int, seed: int) -> list[Convergence]:
    """Return convergence@n of different random subsets of the models."""
    rng = np.random.default_rng([seed, size])
    subsets: set[tuple[int, ...]] = set()
    while len(subsets) < N_SUBSETS[size]:
        chosen = rng.choice(len(R), size, replace=False)
        subsets.add(tuple(np.sort(chosen).tolist()))
    return [
        convergence_at_n(R[list(subset)], replicates=replicates, seed=seed)
        for subset in sorted(subsets)
    ]


def subsets_and_table_2(replicates: int, seed: int) -> None:
    models = [f"model {i}" for i in range(1, 21)]
    rng = np.random.default_rng(seed)
    tasks = {}
    for number, task in enumerate(("contest A", "contest B")):
        # 20 models from poor to good; a contest moves each a little
        logits = np.linspace(-1.8, 1.6, 20) + 0.25 * rng.standard_normal(20)
        p = mimics_with_means(1 / (1 + np.exp(-logits)), QUESTIONS, strength=1.0)
        tasks[task] = simulate_outcomes(p, TRIALS, seed=seed + number)
    print("Figure 6, Tables 8 to 10: mean convergence@n of subsets of 20 models, simulated board")
    for size, paper in SUBSETS.items():
        ours = []
        for R in tasks.values():
            results = subset_convergence(R, size, max(50, replicates // 10), seed)
            # of the replicates that converge, and of all with N for those that do not
            means = [result.mean for result in results if result.mean is not None]
            converged = np.mean(means) if means else np.nan
            filled = [
                TRIALS * r.not_converged + (1 - r.not_converged) * (r.mean or 0.0) for r in results
            ]
            share = np.mean([result.not_converged for result in results])
            ours.append(f"{converged:.1f} ({share:.0%} not; {np.mean(filled):.1f})")
        print(f"{size:3} models: {', '.join(ours)}; paper {', '.join(map(str, paper))}")
    print("The last number counts a replicate that does not converge as N = 80. In Tables 8 to 10")
    print("single means reach 79.9, which suggests that the paper's do the same.\n")
    runs = {
        task: [
            TaskRun.from_trials(name, task, matrix, [f"q{i}" for i in range(QUESTIONS)])
            for name, matrix in zip(models, R, strict=True)
        ]
        for task, R in tasks.items()
    }
    table = paper_table(runs)
    print(
        "Table 2: ranks with 95% ties | without, the board above (lm-eval-bayes study rank --paper)"
    )
    print(f"{'':10}" + "".join(f"{task:>12}" for task in table.tasks))
    for row in table.rows:
        cells = (row.ranks[task] for task in table.tasks)
        print(
            f"{row.model:10}" + "".join(f"{f'{r.with_ties} | {r.without_ties}':>12}" for r in cells)
        )
    ours = {task: max(row.ranks[task].with_ties for row in table.rows) for task in table.tasks}
    print(f"distinct ranks with ties: {ours}")
    print(f"paper, real models: {DISTINCT_RANKS}\n")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--replicates", type=int, default=500, help="of every bootstrap")
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    p = mimics_with_means(MEANS, QUESTIONS, strength=STRENGTH)
    R = simulate_outcomes(p, TRIALS, seed=options.seed)
    figure_1(p, R, options.replicates, options.seed)
    convergence(R, options.replicates, options.seed)
    figure_2(options.replicates, options.seed)
    figure_3(p, options.replicates, options.seed)
    table_1(p, options.replicates, options.seed)
    subsets_and_table_2(options.replicates, options.seed)


if __name__ == "__main__":
    main()
