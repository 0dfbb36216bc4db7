"""Coverage of the intervals of scores between 0 and 1, such as F1, ROUGE or a judge's grade.

Printed: how often 95% intervals of `hbayes_at_n` contained the mean score of 30 questions ("these")
and of the population that they were drawn from, in percent, with mean widths; "t" are Student's
intervals of the same runs, for these questions (pooled variance within questions) and for the
population (the questions' mean scores). ``--differences`` prints the same of the difference of two
such models (`compare`), and of the mean of eight tasks of 30 questions (`mean_over_tasks`).

    python examples/scores.py                 # one run
    python examples/scores.py --runs 150      # the figures of docs/evidence.md, four minutes
"""

from __future__ import annotations

import argparse
from collections.abc import Callable

import numpy as np
from scipy import stats

from lm_eval_bayes import ScoreOutcomes, compare, hbayes_at_n, mean_over_tasks
from lm_eval_bayes.stats.intervals import SCOPES

#: Scores (M, N), the mean of these questions, and that of their population.
Sample = tuple[np.ndarray, float, float]


def beta_scores(a: float, b: float, k: float) -> Callable[..., Sample]:
    """Question means from Beta(a, b); scores from Beta(k p, k (1 - p))."""

    def draw(rng: np.random.Generator, m: int, n: int) -> Sample:
        p = np.clip(rng.beta(a, b, (m, 1)), 1e-4, 1 - 1e-4)
        return rng.beta(k * p, k * (1 - p), (m, n)), float(p.mean()), a / (a + b)

    return draw


def equal_questions(rng: np.random.Generator, m: int, n: int) -> Sample:
    """All questions have scores from Beta(6, 2)."""
    return rng.beta(6, 2, (m, n)), 0.75, 0.75


def two_points(a: float, b: float, low: float, high: float) -> Callable[..., Sample]:
    """Scores `low` and `high`; the share of the latter from Beta(a, b)."""

    def draw(rng: np.random.Generator, m: int, n: int) -> Sample:
        p = rng.beta(a, b, (m, 1))
        scores = np.where(rng.random((m, n)) < p, high, low)
        return scores, float((low + (high - low) * p).mean()), low + (high - low) * a / (a + b)

    return draw


def zero_inflated(z1: float, z2: float, a: float, b: float) -> Callable[..., Sample]:
    """Zeros with a share from Beta(z1, z2), else scores around a mean from Beta(a, b)."""

    def draw(rng: np.random.Generator, m: int, n: int) -> Sample:
        zero, q = rng.beta(z1, z2, (m, 1)), rng.beta(a, b, (m, 1))
        scores = rng.beta(8 * q + 1e-3, 8 * (1 - q) + 1e-3, (m, n))
        scores[rng.random((m, n)) < zero] = 0.0
        q = (8 * q + 1e-3) / (8 + 2e-3)
        mean = (8 * a / (a + b) + 1e-3) / (8 + 2e-3)
        return scores, float(((1 - zero) * q).mean()), z2 / (z1 + z2) * mean

    return draw


SHAPES: dict[str, Callable[..., Sample]] = {
    "Beta, Beta(2,3), k 4": beta_scores(2, 3, 4),
    "Beta, Beta(8,2), k 10": beta_scores(8, 2, 10),
    "Beta, Beta(2,9), k 20": beta_scores(2, 9, 20),
    "Beta, Beta(.5,.5), k 2": beta_scores(0.5, 0.5, 2),
    "Beta, Beta(3,1), k 6": beta_scores(3, 1, 6),
    "Beta(6,2) for all": equal_questions,
    ".2 or .9, Beta(2,3)": two_points(2, 3, 0.2, 0.9),
    "0 or .7, Beta(.3,2)": two_points(0.3, 2, 0.0, 0.7),
    ".5 or 1, Beta(5,1)": two_points(5, 1, 0.5, 1.0),
    ".4 or .6, Beta(1,1)": two_points(1, 1, 0.4, 0.6),
    "half zeros, Beta(4,2)": zero_inflated(2, 2, 4, 2),
    "5/6 zeros, Beta(4,4)": zero_inflated(5, 1, 4, 4),
    "1/7 zeros, Beta(5,2)": zero_inflated(0.5, 3, 5, 2),
}


#: Shapes of the second table.
DIFFERENCES = [
    *("Beta, Beta(2,3), k 4", "Beta, Beta(8,2), k 10", ".2 or .9, Beta(2,3)"),
    *("half zeros, Beta(4,2)", "1/7 zeros, Beta(5,2)", "0 or .7, Beta(.3,2)"),
]


def student(scores: np.ndarray) -> tuple[tuple[float, float], tuple[float, float]]:
    """Return Student's intervals of the mean of these questions and of their population."""
    m, n = scores.shape
    of_trials = np.sqrt(scores.var(axis=1, ddof=1).mean() / n / m)
    of_questions = scores.mean(axis=1).std(ddof=1) / np.sqrt(m)
    mean = float(scores.mean())
    ends = []
    for error, free in ((of_trials, m * (n - 1)), (of_questions, m - 1)):
        half = float(stats.t.ppf(0.975, free) * error)
        ends.append((mean - half, mean + half))
    return ends[0], ends[1]


def simulate(shape: str, n: int, runs: int, m: int = 30, seed: int = 20261123) -> np.ndarray:
    """Return the coverage and mean width of four intervals, (2, 4), both in scope order."""
    rows = []
    for run in range(runs):
        rng = np.random.default_rng([seed, run, n, list(SHAPES).index(shape)])
        scores, these, population = SHAPES[shape](rng, m, n)
        posterior = hbayes_at_n(ScoreOutcomes.from_scores(scores), "population")
        assert posterior.benchmark is not None
        learned = [p.interval() for p in (posterior.benchmark, posterior)]
        ends = [*((float(i.low), float(i.high)) for i in learned), *student(scores)]
        truths = (these, population) * 2
        covered = [low <= truth <= high for (low, high), truth in zip(ends, truths, strict=True)]
        rows.append([covered, [high - low for low, high in ends]])
    return np.array(rows, dtype=float).mean(axis=0)


def simulate_differences(shape: str, runs: int, m: int = 30, n: int = 4) -> np.ndarray:
    """Return the coverage of A − B and of a mean over eight tasks by scope, and widths, (2, 4)."""
    rows = []
    for run in range(runs):
        rng = np.random.default_rng([7, run, len(shape)])
        draws = [SHAPES[shape](rng, m, n) for _ in range(10)]
        outcomes = [ScoreOutcomes.from_scores(scores) for scores, _, _ in draws]
        these, population = [truth for _, truth, _ in draws], draws[0][2]
        tasks = {str(i): task for i, task in enumerate(outcomes[2:])}
        intervals = [
            *(compare(*outcomes[:2], scope).interval for scope in SCOPES),
            *(mean_over_tasks(tasks, scope=scope).interval() for scope in SCOPES),
        ]
        truths = (these[0] - these[1], 0.0, float(np.mean(these[2:])), population)
        covered = [i.low <= truth <= i.high for i, truth in zip(intervals, truths, strict=True)]
        rows.append([covered, [i.high - i.low for i in intervals]])
    return np.array(rows, dtype=float).mean(axis=0)


def print_differences(runs: int) -> None:
    """Print the table of differences and of means over tasks."""
    print(f"| scores, {runs} runs | A − B, these | population | mean of 8, these | population |")
    print("|---|---|---|---|---|")
    for shape in DIFFERENCES:
        share, width = simulate_differences(shape, runs)
        cells = [f"{100 * share[i]:.1f} ({width[i]:.3f})" for i in (0, 1)]
        cells += [f"{100 * share[i]:.1f}" for i in (2, 3)]
        print(f"| {shape} | {' | '.join(cells)} |", flush=True)


def main() -> None:
    """Print a table."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--runs", type=int, default=1)
    parser.add_argument("--differences", action="store_true")
    arguments = parser.parse_args()
    runs = arguments.runs
    if arguments.differences:
        print_differences(runs)
        return
    print(f"| scores, {runs} runs | these, N = 4 | population | t | N = 16 | population |")
    print("|---|---|---|---|---|---|")
    for shape in SHAPES:
        cells = []
        for n in (4, 16):
            share, width = simulate(shape, n, runs)
            cells += [f"{100 * share[i]:.1f} ({width[i]:.3f})" for i in (0, 1)]
            cells += [f"{100 * share[2]:.1f}, {100 * share[3]:.1f}"] if n == 4 else []
        print(f"| {shape} | {' | '.join(cells)} |", flush=True)


if __name__ == "__main__":
    main()
