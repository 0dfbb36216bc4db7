"""Is A better than B as often as P(A > B) claims? With a flat and with a shared prior.

Boards of L models are simulated whose logits are drawn from a normal distribution. All answer
the same M questions, N times each; a question's difficulty adds to the logits of all models.
Over all pairs of a board whose larger probability lies in .85–.99 the mean of that probability is
compared with the share of pairs in which that model is truly better: under a flat prior on the
difference (the ρ of `compare`), and under the prior that is learned from the board
(`shared_scores`). Then equal models at N = 1: how often does `compare` call one of two better?

    python examples/shared_prior.py                  # a short version, some seconds
    python examples/shared_prior.py --runs 300       # the tables of the docs, about ten minutes
"""

import argparse
import functools
import json
from pathlib import Path

import numpy as np
from scipy import special

import lm_eval_bayes as leb
from lm_eval_bayes.stats.ranking.simultaneous import pair_errors

M, DIFFICULTY = 30, 1.5
SIZES, TRIALS, SPREADS, SCOPES = (6, 12), (4, 16), (0.1, 0.3, 1.0), ("benchmark", "population")
#: Claimed probabilities.
BANDS = ((0.85, 0.99), (0.85, 0.92), (0.92, 0.99))


@functools.lru_cache(maxsize=100_000)
def learned(right, n):
    """Return hbayes@N of scope "population"."""
    counts = np.array(right)
    outcomes = leb.Outcomes.from_counts(np.stack([n - counts, counts], axis=1))
    return leb.hbayes_at_n(outcomes, "population")


def simulate_board(size, n, spread, rng, difficulty=DIFFICULTY):
    """Draw the models' abilities, in logits, and their posteriors of scope "population"."""
    ability = rng.normal(0.0, spread, size)
    p = special.expit(rng.normal(0.0, difficulty, M) + ability[:, None])
    right = rng.binomial(n, p)
    return ability, [learned(tuple(row.tolist()), n) for row in right]


def claims(posteriors):
    """Return P(i > j) for all pairs i < j under a flat prior, and under the shared one."""
    errors = pair_errors(posteriors)
    flat = special.ndtr(errors.difference / np.sqrt(errors.variance))
    shared = leb.shared_scores({f"m{i}": each for i, each in enumerate(posteriors)})
    return flat, shared.p_greater[np.triu_indices(len(posteriors), 1)]


def calibration(boards, low, high):
    """Return the mean claim, the share that is right, its error and the number of pairs.

    The standard error is that of right minus claimed, with boards as clusters.
    """
    counts = []
    for claimed, better in boards:
        p = np.maximum(claimed, 1.0 - claimed)
        inside = (p >= low) & (p < high)
        right = np.where(claimed >= 0.5, better, ~better)
        counts.append((inside.sum(), p[inside].sum(), right[inside].sum()))
    n, claimed, right = np.sum(counts, axis=0)
    if n == 0:
        return None
    _, p, hit = np.array(counts).T
    error = np.sqrt(((hit - p - (right - claimed) / n * np.array(counts)[:, 0]) ** 2).sum()) / n
    return {"claimed": claimed / n, "right": right / n, "se": float(error), "pairs": int(n)}


def study_board(size, n, spread, runs, seed):
    """Return the calibration by scope, prior and band."""
    rng = np.random.default_rng([seed, size, n, round(10 * spread)])
    boards = {(scope, prior): [] for scope in SCOPES for prior in ("flat", "shared")}
    for _ in range(runs):
        ability, posteriors = simulate_board(size, n, spread, rng)
        first, second = np.triu_indices(size, 1)
        better = ability[first] > ability[second]
        for scope in SCOPES:
            of_scope = [p if scope == "population" else p.benchmark for p in posteriors]
            for prior, claimed in zip(("flat", "shared"), claims(of_scope), strict=True):
                boards[scope, prior].append((claimed, better))
    return {
        f"{scope}, {prior}": [calibration(cell, *band) for band in BANDS]
        for (scope, prior), cell in boards.items()
    }


def board_rows(runs, seed, trials, sizes, numbers):
    """Yield the rows of the first table; the numbers are also added to `numbers`."""
    for n in trials:
        for size in sizes:
            for spread in SPREADS:
                cell = study_board(size, n, spread, runs, seed)
                numbers[f"board {n} {size} {spread}"] = cell
                for scope in SCOPES:
                    flat, shared = cell[f"{scope}, flat"], cell[f"{scope}, shared"]
                    in_words = [as_text(flat[0]), *map(as_text, shared)]
                    yield [str(n), str(size), f"{spread:g}", scope, *in_words]


def as_text(cell):
    """Return "claimed → right (difference ± standard error)" in %."""
    if cell is None:
        return "no pair"
    off = 100 * (cell["right"] - cell["claimed"])
    share = f"{100 * cell['claimed']:.1f} → {100 * cell['right']:.1f}"
    return f"{share} ({off:+.1f} ± {100 * cell['se']:.1f})"


def single_trial_rows(runs, seed, numbers):
    """Yield the rows of the second table: two equal models at N = 1, nominal 10%."""
    for difficulty in (0.5, 1.5, 3.0):
        rng = np.random.default_rng([seed, 1, round(10 * difficulty)])
        different = []
        for run in range(runs):
            p = special.expit(rng.normal(0.0, difficulty, M))
            a, b = (
                leb.Outcomes.from_matrix(rng.binomial(1, p)[:, None].tolist()) for _ in range(2)
            )
            results = [leb.compare(a, b, scope, seed=run) for scope in SCOPES]
            shares = [result.p_a_greater for result in results]
            different.append([max(share, 1.0 - share) >= 0.95 for share in shares])
        share = np.mean(different, axis=0)
        numbers[f"equal {difficulty}"] = share.tolist()
        yield [f"{difficulty:g}", *(f"{100 * each:.1f}" for each in share)]


def table(header, rows):
    """Print a Markdown table, row by row as they come."""
    print("| " + " | ".join(header) + " |")
    print("|" + "---|" * len(header))
    for row in rows:
        print("| " + " | ".join(row) + " |", flush=True)
    print()


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--runs", type=int, default=4, help="boards per cell")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--trials", type=int, nargs="+", default=None, help="values of N")
    parser.add_argument("--only", choices=["boards", "equal"], help="one study only")
    parser.add_argument("--out", type=Path, help="a JSON file for the numbers")
    args = parser.parse_args()
    trials = args.trials or (TRIALS if args.runs >= 50 else TRIALS[:1])
    sizes = SIZES if args.runs >= 50 else SIZES[:1]
    numbers = {}
    if args.only in (None, "boards"):
        print(f"Claimed P(A > B) → share that is right, %, {args.runs} boards per cell, M = {M}\n")
        bands = [f"shared, {low:g}–{high:g}" for low, high in BANDS]
        header = ["N", "L", "sd of logits", "scope", "flat, 0.85–0.99", *bands]
        table(header, board_rows(args.runs, args.seed, trials, sizes, numbers))
    if args.only in (None, "equal"):
        print(f"Two equal models, N = 1: called different, %, nominal 10, {args.runs} pairs\n")
        header = ["sd of difficulty", *SCOPES]
        table(header, single_trial_rows(args.runs, args.seed, numbers))
    if args.out is not None:
        args.out.write_text(json.dumps(numbers, indent=1), encoding="utf-8")


if __name__ == "__main__":
    main()
