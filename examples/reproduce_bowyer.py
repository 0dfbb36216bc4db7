"""The figures of [Bowyer 2025], arXiv 2503.01747, as tables beside what the paper says of them.

    python reproduce_bowyer.py                                  # less than a minute
    python reproduce_bowyer.py --data langchain_typewriter_26.csv
    python reproduce_bowyer.py --out pictures/                  # needs matplotlib

The paper prints curves and few numbers. Cells hold the coverage of 95% intervals, in percent, at
its numbers of questions. Where the prior of the simulation is uniform the coverage of an interval
is the mean of its posterior probabilities over all results: exact in Figure 2, and in Figure 4 at
N = 3 and 10. Elsewhere 60 data sets have a standard error of 2.8 points at 95%.
The exact coverage of the paper's CLT at N = 100 is 92.2% with its own variance (eq. 5) and 92.3%
with the unbiased one that the package takes. `hbayes` is the package's recommended interval, of
scope population. Figures 1 and 8 need the file `data/langchain_data_tool_use_FULL.csv` of
github.com/sambowyer/no_clt_paper; without it follow the models of Figure 9, on AIME 2025 II.
"""

from __future__ import annotations

import argparse
import csv
from collections.abc import Iterable
from importlib.util import find_spec
from pathlib import Path

import numpy as np
from scipy import stats

from lm_eval_bayes import (
    Outcomes,
    bootstrap_interval,
    clopper_pearson_interval,
    clt_interval,
    clustered_interval,
    clustered_posterior,
    compare_paired,
    compare_unpaired,
    confusion_posterior,
    difference_interval,
    hbayes_at_n,
    odds_ratio_interval,
    read_runs,
    single_trial_posterior,
    wilson_interval,
)
from lm_eval_bayes.stats import difference_posterior

AIME = Path(__file__).with_name("matharena_aime_2025_II.csv")
SIZES, LEVEL = (3, 10, 30, 100), 0.95
#: Of Figure 2 and its coverage errors; the paper has 100 between the same ends.
LEVELS = (0.8, 0.85, 0.9, 0.95, 0.975, 0.99, 0.995)
#: Clusters of five questions, as in the authors' code.
CLUSTERS, CLUSTER_SIZE = (2, 6, 20, 60), 5
#: Percentages of Figure 14.
INFINITE = {3: 43.5, 10: 17.0, 30: 6.5, 100: 1.9}
#: Draws of a posterior whose share inside an interval is its probability.
DRAWS = 2000
Ends = tuple[float, float]


def ends(interval) -> Ends:
    return interval.low, interval.high


def single_trials(right: int, n: int) -> Outcomes:
    return Outcomes.from_matrix([[1]] * right + [[0]] * (n - right))


def one_model(right: int, n: int, level: float) -> dict[str, Ends]:
    """Return the intervals of Figures 1, 2, 8 and 9."""
    outcomes = single_trials(right, n)
    population = hbayes_at_n(outcomes, scope="population")
    # the package clips it to [0, 1], the paper does not
    clt = clt_interval(outcomes, level)
    half = stats.norm.ppf(0.5 + level / 2) * clt.standard_error
    intervals = {
        "bootstrap": bootstrap_interval(outcomes, level, replicates=2000),
        "Wilson": wilson_interval(right, n, level),
        "Clopper-Pearson": clopper_pearson_interval(right, n, level),
        "Bayes": single_trial_posterior(outcomes).interval(level, "exact"),
        "hbayes": population.interval(level, "exact"),
    }
    named = {name: ends(interval) for name, interval in intervals.items()}
    return {"CLT": (clt.estimate - half, clt.estimate + half)} | named


def table(title: str, sizes: Iterable[int], rows: dict[str, np.ndarray], paper: str) -> None:
    print(title)
    print(f"{'':26}" + "".join(f"{f'N = {n}':>10}" for n in sizes))
    for name, values in rows.items():
        print(f"{name:26}" + "".join(f"{value:10.1f}" for value in values))
    print(f"paper: {paper}\n")


def figure_2() -> tuple[dict[str, np.ndarray], dict[str, np.ndarray]]:
    """Return coverage and mean width by method, (sizes, levels), theta uniform."""
    coverage: dict[str, np.ndarray] = {}
    width: dict[str, np.ndarray] = {}
    for row, n in enumerate(SIZES):
        for right in range(n + 1):  # S is uniform on 0..N as theta is on [0, 1]
            theta = stats.beta(1 + right, 1 + n - right)
            for column, level in enumerate(LEVELS):
                for name, (low, high) in one_model(right, n, level).items():
                    held = coverage.setdefault(name, np.zeros((len(SIZES), len(LEVELS))))
                    held[row, column] += (theta.cdf(high) - theta.cdf(low)) / (n + 1)
                    wide = width.setdefault(name, np.zeros_like(held))
                    wide[row, column] += (high - low) / (n + 1)
    at = LEVELS.index(LEVEL)
    shown = {name: 100 * held[:, at] for name, held in coverage.items()}
    claim = "CLT 92.5 at N = 100; CLT and bootstrap far below 95, only Bayes and Wilson near it"
    table("Figure 2: one model, independent questions", SIZES, shown, claim)
    print(f"deviation of CLT at N = 100: {shown['CLT'][-1] - 92.5:+.2f}")
    shown = {name: 100 * wide[:, at] for name, wide in width.items()}
    table("the mean width, in points", SIZES, shown, "Clopper-Pearson is too wide")
    errors = {n: 100 * np.abs(held - LEVELS).mean(axis=1) for n, held in coverage.items()}
    claim = "falls with N, Bayes and Wilson lowest"
    table(f"mean coverage error at levels of {LEVELS[0]} to {LEVELS[-1]}", SIZES, errors, claim)
    return coverage, width


def figure_3(replicates: int, rng: np.random.Generator) -> dict[str, np.ndarray]:
    """Return coverage of the mean of a population of clusters."""
    held: dict[str, np.ndarray] = {}
    for column, n_clusters in enumerate(CLUSTERS):
        n = n_clusters * CLUSTER_SIZE
        clusters = np.repeat(np.arange(n_clusters), CLUSTER_SIZE)
        for _ in range(replicates):
            theta, d = rng.uniform(), rng.gamma(1.0)
            means = rng.beta(d * theta, d * (1 - theta), n_clusters)
            y = rng.random(n) < means[clusters]
            outcomes = Outcomes.from_matrix(y[:, None].astype(int))
            names = ("CLT", "bootstrap", "Wilson", "Clopper-Pearson", "Bayes")
            of_one = one_model(int(y.sum()), n, LEVEL)
            intervals = {f"{name}, independent": of_one[name] for name in names}
            intervals["CLT, clustered"] = ends(clustered_interval(outcomes, clusters))
            posterior = clustered_posterior(outcomes, clusters)
            intervals["Bayes, clustered"] = ends(posterior.interval(LEVEL, "exact"))
            for name, (low, high) in intervals.items():
                share = held.setdefault(name, np.zeros(len(CLUSTERS)))
                share[column] += 100 * (low <= theta <= high) / replicates
    claim = "only the clustered Bayes has the right coverage at every N"
    sizes = [CLUSTER_SIZE * n_clusters for n_clusters in CLUSTERS]
    table(f"Figure 3: clusters of five, {replicates} data sets", sizes, held, claim)
    return held


def infinite_fisher(n: int) -> float:
    """Return the percentage of tables with an infinite Fisher interval, theta uniform."""
    sides = range(n + 1)
    # without an empty cell the interval is finite
    tables = [(a, b) for a in sides for b in sides if {a, b} & {0, n}]
    high = [odds_ratio_interval(a, n, b, n, LEVEL, method="fisher").high for a, b in tables]
    return 100 * float(np.isinf(high).sum()) / (n + 1) ** 2


def figure_4(replicates: int, rng: np.random.Generator) -> dict[str, np.ndarray]:
    """Return coverage of differences and odds ratios of two independent models."""
    held: dict[str, list[list[float]]] = {}
    for column, n in enumerate(SIZES):
        # theta uniform makes all pairs of right answers equally frequent
        pairs = [(a, b) for a in range(n + 1) for b in range(n + 1)]
        if len(pairs) > replicates:
            pairs = rng.integers(0, n + 1, (replicates, 2)).tolist()
        for i, (a, b) in enumerate(pairs):
            theta = rng.beta([[1 + a], [1 + b]], [[1 + n - a], [1 + n - b]], (2, DRAWS))
            odds = theta / (1 - theta)
            difference, ratio = theta[0] - theta[1], odds[0] / odds[1]
            sides = single_trials(a, n), single_trials(b, n)
            fisher = odds_ratio_interval(a, n, b, n, LEVEL, method="fisher")
            judged = {
                "difference, CLT": (difference, difference_interval(*sides, paired=False)),
                "odds ratio, Fisher": (ratio, fisher),
                "odds ratio, delta": (ratio, odds_ratio_interval(a, n, b, n, LEVEL)),
            }
            if i < max(1, replicates // 24):  # it takes longer, and its cells hardly vary
                bayes = compare_unpaired(*sides, LEVEL)
                judged["difference, Bayes"] = (difference, bayes.interval)
                judged["odds ratio, Bayes"] = (ratio, bayes.odds_ratio_interval)
            for name, (draws, interval) in judged.items():
                inside = (interval.low <= draws) & (draws <= interval.high)
                held.setdefault(name, [[] for _ in SIZES])[column].append(100 * inside.mean())
    means = {name: np.array([np.mean(x) for x in columns]) for name, columns in held.items()}
    claim = "CLT far below 95 at small N, Fisher above it, Bayes at it"
    table(f"Figure 4: two models, all pairs of results or {replicates}", SIZES, means, claim)
    return means


def figure_14() -> None:
    print("Figure 14: Fisher intervals of infinite width, exact")
    for n, paper in INFINITE.items():
        share = infinite_fisher(n)
        print(f"  N = {n:3}  {share:5.2f}%, paper {paper}%, {share - paper:+.2f}")
    print()


def figure_5(replicates: int, rng: np.random.Generator) -> dict[str, np.ndarray]:
    """Return coverage of differences of two models on the same questions."""
    held: dict[str, np.ndarray] = {}
    for column, n in enumerate(SIZES):
        for seed in range(replicates):
            theta, rho = rng.uniform(size=2), 2 * rng.beta(4, 2) - 1
            normal = rng.multivariate_normal(stats.norm.ppf(theta), [[1, rho], [rho, 1]], n)
            right = normal > 0
            sides = [Outcomes.from_matrix(y[:, None].astype(int)) for y in right.T]
            # the bootstrap takes scores from 0 to 1
            halves = bootstrap_interval((right @ [1.0, -1.0] + 1) / 2, LEVEL, replicates=2000)
            alone = difference_posterior(*map(single_trial_posterior, sides))
            paired = compare_paired(*sides, LEVEL, draws=4000, seed=seed)
            intervals = {
                "CLT, unpaired": ends(difference_interval(*sides, paired=False)),
                "Bayes, unpaired": ends(alone.interval(LEVEL)),
                "CLT, paired": ends(difference_interval(*sides)),
                "bootstrap, paired": (2 * halves.low - 1, 2 * halves.high - 1),
                "Bayes, paired": ends(paired.interval),
            }
            for name, (low, high) in intervals.items():
                share = held.setdefault(name, np.zeros(len(SIZES)))
                share[column] += 100 * (low <= theta[0] - theta[1] <= high) / replicates
    claim = "at small N all but the Bayesian intervals are far below 95"
    table(f"Figure 5: the same questions, {replicates} pairs", SIZES, held, claim)
    return held


def f1(counts: np.ndarray) -> np.ndarray:
    """Return F1 of counts or shares (..., 4) of TP, FP, FN, TN; 0 where there is none."""
    tp, others = counts[..., 0], counts[..., 1] + counts[..., 2]
    return 2 * tp / np.where(tp + others > 0, 2 * tp + others, 1)


def figure_6(replicates: int, rng: np.random.Generator) -> dict[str, np.ndarray]:
    """Return coverage of F1 scores."""
    held: dict[str, np.ndarray] = {}
    z, tails = stats.norm.ppf(0.5 + LEVEL / 2), [0.5 - LEVEL / 2, 0.5 + LEVEL / 2]
    for column, n in enumerate(SIZES):
        for seed in range(replicates):
            counts = rng.multinomial(n, rng.dirichlet(np.ones(4)))
            draws, estimate = f1(rng.dirichlet(1 + counts, DRAWS)), float(f1(counts))
            # eq. 41
            positives = max(1, 2 * counts[0] + counts[1] + counts[2])
            error = np.sqrt(estimate * (1 - estimate) * (2 - estimate) / positives)
            resampled = f1(rng.multinomial(n, counts / n, DRAWS))
            posterior = confusion_posterior(counts, draws=4000, seed=seed)
            intervals = {
                "CLT, delta method": (estimate - z * error, estimate + z * error),
                "bootstrap": tuple(np.quantile(resampled, tails)),
                "Bayes": ends(posterior.interval(LEVEL)),
            }
            for name, (low, high) in intervals.items():
                share = held.setdefault(name, np.zeros(len(SIZES)))
                share[column] += 100 * ((low <= draws) & (draws <= high)).mean() / replicates
    claim = "Bayes follows the nominal level, the bootstrap is below it"
    table(f"Figure 6: F1, {replicates} data sets", SIZES, held, claim)
    return held


def read_models(path: Path | None) -> dict[str, np.ndarray]:
    """Return one 0/1 outcome per question and model."""
    if path is None:
        return {
            run.model: np.array([row[0] for row in run.trials]) for run in read_runs([AIME]).runs
        }
    with path.open(encoding="utf-8", newline="") as file:
        rows = list(csv.DictReader(file))
    names = [name for name in rows[0] if name not in ("index", "reference output")]
    models = {name: np.array([float(row[name]) for row in rows]) for name in names}
    if not all(np.isin(y, (0.0, 1.0)).all() for y in models.values()):
        raise SystemExit(f"{path} must hold 0 or 1 in the columns {', '.join(names)}")
    return models


def real_models(path: Path | None) -> dict[str, dict[str, Ends]]:
    """Print and return 95% intervals of real models, one trial a question."""
    models = read_models(path)
    found = {name: one_model(int(y.sum()), len(y), LEVEL) for name, y in models.items()}
    title = f"9: {AIME.name}" if path is None else f"1, 8: {path.name}"
    print(f"Figure {title}, 95% intervals in percent")
    print(f"{'':31}mean" + "".join(f"{name:>16}" for name in next(iter(found.values()))))
    for name, intervals in found.items():
        texts = (f"[{100 * low:.0f}, {100 * high:.0f}]" for low, high in intervals.values())
        cells = "".join(f"{text:>16}" for text in texts)
        print(f"{name[:28]:29}{100 * models[name].mean():6.1f}{cells}")
    for method in next(iter(found.values())):
        low, high = np.array([intervals[method] for intervals in found.values()]).T
        outside = ((low < 0) | (high > 1)).sum()
        print(f"{method}: {(low == high).sum()} of width 0, {outside} beyond 0 to 1")
    print("paper: CLT and bootstrap collapse, CLT goes beyond 0 to 1, the others do neither\n")
    return found


def draw(folder: Path, coverage: dict[str, np.ndarray], models: dict[str, dict[str, Ends]]) -> None:
    """Save Figure 2 and the intervals of real models."""
    import matplotlib as mpl

    mpl.use("Agg")
    from matplotlib import pyplot

    folder.mkdir(parents=True, exist_ok=True)
    figure, axes = pyplot.subplots(1, len(SIZES), figsize=(14, 4), sharey=True, squeeze=False)
    for row, (n, axis) in enumerate(zip(SIZES, axes[0], strict=True)):
        axis.plot(LEVELS, LEVELS, "k--", linewidth=1)
        for name, held in coverage.items():
            axis.plot(LEVELS, held[row], label=name)
        axis.set(title=f"N = {n}", xlabel="level")
    axes[0, 0].set_ylabel("coverage")
    axes[0, 0].legend()
    figure.savefig(folder / "bowyer_figure_2.png", bbox_inches="tight")
    figure, axis = pyplot.subplots(figsize=(12, 6))
    methods = list(coverage)
    for i, intervals in enumerate(models.values()):
        for j, method in enumerate(methods):
            axis.plot(2 * [i + j / 9], intervals[method], f"C{j}", marker="_")
    axis.set(xticks=range(len(models)), ylabel="95% interval")
    axis.set_xticklabels(list(models), rotation=60, ha="right")
    axis.legend(axis.lines[: len(methods)], methods)
    figure.savefig(folder / "bowyer_models.png", bbox_inches="tight")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data", type=Path, metavar="FILE.csv", help="LangChain's outcomes")
    parser.add_argument("--out", type=Path, metavar="FOLDER", help="save pictures there")
    parser.add_argument("--replicates", type=int, default=60, help="data sets of Figures 3 and 5")
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    if options.out and not find_spec("matplotlib"):
        parser.error("--out needs matplotlib: pip install matplotlib")
    rng = np.random.default_rng(options.seed)
    coverage, _ = figure_2()
    figure_3(options.replicates, rng)
    figure_4(4 * options.replicates, rng)
    figure_14()
    figure_5(options.replicates, rng)
    figure_6(4 * options.replicates, rng)
    models = real_models(options.data)
    if options.out:
        draw(options.out, coverage, models)


if __name__ == "__main__":
    main()
