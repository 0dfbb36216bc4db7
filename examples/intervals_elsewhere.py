"""The same trials, counted as other tools count them: the tables of docs/differs.md.

    python intervals_elsewhere.py               # a taste
    python intervals_elsewhere.py --runs 200    # the tables of the page

The formulas are those of the releases named in docs/differs.md, written down again here; only
scorio is called itself, and its rows are left out where it is not installed.
"""

from __future__ import annotations

import argparse
import math
from collections.abc import Callable

import numpy as np
from scipy import stats

from lm_eval_bayes import Outcomes, compare, hbayes_at_n, pass_at_k

Interval = tuple[float, float]
Z = float(stats.norm.ppf(0.975))


def ours(R: np.ndarray, scope: str = "benchmark") -> Interval:
    interval = hbayes_at_n(Outcomes.from_matrix(R), scope=scope).interval(0.95)
    return interval.low, interval.high


def ours_population(R: np.ndarray) -> Interval:
    return ours(R, "population")


def uniform_prior(R: np.ndarray) -> Interval:
    """scorio's bayes_ci; evalscope's bayes_at_n has the same mean and sd, and no interval."""
    from scorio.eval import bayes_ci

    return bayes_ci(R)[2:]


def scorio_avg(R: np.ndarray) -> Interval:
    from scorio.eval import avg_ci

    return avg_ci(R)[2:]


def over_questions(R: np.ndarray) -> Interval:
    """The mean over questions and its standard error, times 1.96: lighteval, inspect_ai."""
    means = R.mean(axis=1)
    half = Z * means.std(ddof=1) / math.sqrt(len(means)) if len(means) > 1 else 0.0
    return means.mean() - half, means.mean() + half


def t_over_questions(R: np.ndarray) -> Interval:
    """inspect_ai's ci()."""
    means = R.mean(axis=1)
    if len(means) < 2:
        return means[0], means[0]
    half = stats.t.ppf(0.975, len(means) - 1) * means.std(ddof=1) / math.sqrt(len(means))
    return means.mean() - half, means.mean() + half


def wilson_over_questions(R: np.ndarray) -> Interval:
    """inspect_ai's ci_wilson(), which counts every question once however often it was asked."""
    return _wilson(R.mean() * len(R), len(R))


def evalstats_mean(R: np.ndarray) -> Interval:
    """evalstats' automatic interval of 0/1 data: Wilson's, of the questions' means, whose sum is
    rounded to a whole number."""
    return _wilson(round(float(R.mean(axis=1).sum())), len(R))


def _wilson(right: float, n: int) -> Interval:
    p, scale = right / n, 1 + Z * Z / n
    half = Z * math.sqrt(p * (1 - p) / n + Z * Z / (4 * n * n)) / scale
    center = (p + Z * Z / (2 * n)) / scale
    return max(center - half, 0.0), min(center + half, 1.0)


def across_runs(R: np.ndarray) -> Interval:
    """NeMo-Skills' std_err_across_runs, times 1.96: trial i of all questions is run i."""
    runs = R.mean(axis=0)
    half = Z * runs.std(ddof=1) / math.sqrt(len(runs)) if len(runs) > 1 else 0.0
    return runs.mean() - half, runs.mean() + half


METHODS: dict[str, Callable[[np.ndarray], Interval]] = {
    "`hbayes@N` (this package)": ours,
    "`hbayes@N_population` (this package)": ours_population,
    "scorio `bayes_ci`; evalscope `bayes_at_n` ± 1.96 sd": uniform_prior,
    "scorio `avg_ci`": scorio_avg,
    "lighteval, inspect_ai: `stderr` × 1.96": over_questions,
    "inspect_ai `ci`": t_over_questions,
    "inspect_ai `ci_wilson`": wilson_over_questions,
    "evalstats `compare`, automatic (Wilson)": evalstats_mean,
    "NeMo-Skills `std_err_across_runs` × 1.96": across_runs,
}


def our_difference(A: np.ndarray, B: np.ndarray, scope: str = "benchmark") -> Interval:
    interval = compare(*map(Outcomes.from_matrix, (A, B)), scope=scope).interval
    return interval.low, interval.high


def our_difference_population(A: np.ndarray, B: np.ndarray) -> Interval:
    return our_difference(A, B, "population")


def clt_difference(A: np.ndarray, B: np.ndarray) -> Interval:
    """The paired differences of the questions and their standard error, times 1.96."""
    return over_questions(A - B)


def evalstats_difference(A: np.ndarray, B: np.ndarray) -> Interval:
    """evalstats' automatic interval of a difference of 0/1 data: Bonett and Price's with two
    pseudo-questions, which are shrunk by the observed differences if there are several runs."""
    difference = (A - B).mean(axis=1)
    squares, unequal = (difference**2).sum(), np.abs(A - B).mean(axis=1).sum()
    pseudo = 2 * (squares + 2) / (unequal + 2)
    n = len(A) + 2
    center = difference.sum() / n
    half = Z * math.sqrt(((squares + pseudo) / n - center**2) / n)
    return max(center - half, -1.0), min(center + half, 1.0)


DIFFERENCES: dict[str, Callable[[np.ndarray, np.ndarray], Interval]] = {
    "`compare` (this package)": our_difference,
    "`compare --scope population` (this package)": our_difference_population,
    "paired standard error × 1.96": clt_difference,
    "evalstats `compare`, automatic (Bonett–Price)": evalstats_difference,
}


def methods() -> dict[str, Callable[[np.ndarray], Interval]]:
    try:
        import scorio  # noqa: F401
    except ModuleNotFoundError:
        return {name: method for name, method in METHODS.items() if "scorio" not in name}
    return METHODS


def one_sided() -> str:
    """What each says where every trial went the same way."""
    cases = {
        "1 question, 4 of 4 right": np.ones((1, 4), int),
        "30 questions, 4 of 4 right each": np.ones((30, 4), int),
        "30 questions, all 120 wrong": np.zeros((30, 4), int),
    }
    rows = [["95% interval", *cases]]
    for name, method in methods().items():
        rows.append([name, *(_interval(method(R)) for R in cases.values())])
    return table(rows)


def coverage(runs: int, a: float, b: float, seed: int = 0) -> str:
    """How often each holds the truth: of these questions, and of the population of questions."""
    rng = np.random.default_rng(seed)
    truths = rng.beta(a, b, (runs, 30))
    drawn = [rng.binomial(1, p[:, None], (30, 4)) for p in truths]
    rows = [["method", "covers the score of these questions", "of their population", "width"]]
    for name, method in methods().items():
        intervals = np.array([method(R) for R in drawn])
        rows.append([name, *_held(intervals, (truths.mean(axis=1), np.full(runs, a / (a + b))))])
    return table(rows)


def differences(runs: int, a: float, b: float, seed: int = 2) -> str:
    """The same for the difference of two models; half of the questions are equally hard for both.

    The true difference in the population is 0.
    """
    rng = np.random.default_rng(seed)
    first = rng.beta(a, b, (runs, 30))
    second = np.where(rng.random((runs, 30)) < 0.5, first, rng.beta(a, b, (runs, 30)))
    drawn = [
        tuple(rng.binomial(1, p[:, None], (30, 4)) for p in pair)
        for pair in zip(first, second, strict=True)
    ]
    rows = [["method", "covers the difference on these questions", "in the population", "width"]]
    truths = ((first - second).mean(axis=1), np.zeros(runs))
    for name, method in DIFFERENCES.items():
        intervals = np.array([method(*pair) for pair in drawn])
        rows.append([name, *_held(intervals, truths)])
    return table(rows)


def _held(intervals: np.ndarray, truths: tuple[np.ndarray, ...]) -> list[str]:
    low, high = intervals.T
    held = [f"{100 * ((low <= truth) & (truth <= high)).mean():.0f}%" for truth in truths]
    return [*held, f"{(high - low).mean():.3f}"]


def order(runs: int, seed: int = 1) -> str:
    """How often the better of two models comes first, by the mean score and by Pass@k."""
    rng = np.random.default_rng(seed)
    first = rng.beta(2, 3, (10 * runs, 30))
    second = np.clip(first + rng.normal(0.06, 0.05, first.shape), 0, 1)
    better = np.sign(second.mean(axis=1) - first.mean(axis=1))
    names = {"mean score (Pass@1)": lambda n: 1, "Pass@2": lambda n: 2, "Pass@4": lambda n: 4}
    cells: dict[str, list[str]] = {name: [] for name in [*names, "Pass@N"]}
    trials = (4, 8, 16)
    for n in trials:
        right = [rng.binomial(n, p) for p in (first, second)]
        for name, k in {**names, "Pass@N": lambda n: n}.items():
            # Pass@k of a question with 0..n right answers, as the estimator has it
            of_count = np.array([_pass(c, n, k(n)) for c in range(n + 1)])
            a, b = (of_count[counts].mean(axis=1) for counts in right)
            placed = np.where(np.isclose(a, b), 0.5, np.sign(b - a) == better)
            cells[name].append(f"{100 * placed.mean():.0f}")
    rows = [["the better model comes first, percent", *(f"N = {n}" for n in trials)]]
    return table([*rows, *([name, *row] for name, row in cells.items())])


def _pass(right: int, n: int, k: int) -> float:
    return pass_at_k(Outcomes.from_counts([[n - right, right]]), k).value


def _interval(interval: Interval) -> str:
    return f"[{interval[0]:.3f}, {interval[1]:.3f}]".replace("-0.000", "0.000")


def table(rows: list[list[str]]) -> str:
    head, *body = ("| " + " | ".join(row) + " |" for row in rows)
    return "\n".join([head, "|---" * len(rows[0]) + "|", *body])


TABLES: dict[str, Callable[[int], str]] = {
    "one-sided": lambda runs: one_sided(),
    "hard": lambda runs: coverage(runs, 0.2, 2),
    "middling": lambda runs: coverage(runs, 2, 3),
    "hard-differences": lambda runs: differences(runs, 0.2, 2),
    "order": order,
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--runs", type=int, default=50, help="simulated runs (default 50)")
    runs = parser.parse_args().runs
    print("\n\n".join(make(runs) for make in TABLES.values()))


if __name__ == "__main__":
    main()
