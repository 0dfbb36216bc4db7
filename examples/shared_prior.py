"""Is A better than B as often as P(A > B) claims? With a flat and with a shared prior.

Boards of 20 models are simulated whose logits are drawn from a normal distribution. All answer
the same M questions, N times each; a question's difficulty adds to the logits of all models. The
first 18 models make three boards of 6. Over all pairs of a board whose larger probability lies in
.85–.99 the mean of that probability is compared with the share of pairs in which that model is
truly better: under a flat prior on the difference (the ρ of `compare`), and under the prior that is
learned from the board (`shared_scores`). Then equal models at N = 1: how often does `compare` call
one better?

    python examples/shared_prior.py                  # a short version, some seconds
    python examples/shared_prior.py --runs 100       # docs/evidence.md, a quarter of an hour
"""

import argparse
import json
from pathlib import Path

import numpy as np
from scipy import special

import lm_eval_bayes as leb

M, MODELS = 30, 20
TRIALS, SPREADS, DIFFICULTY = (4, 16), (0.1, 0.3, 0.6, 1.0), (0.5, 1.5, 3.0)
SCOPES, PRIORS = ("benchmark", "population"), ("flat", "shared")
#: Boards by their size, as models of a board of 20.
BOARDS = {6: (slice(0, 6), slice(6, 12), slice(12, 18)), 20: (slice(0, 20),)}
#: Claimed probabilities.
LOW, HIGH = 0.85, 0.99


def simulate_models(n, spread, difficulty, rng):
    """Draw abilities, in logits, and posteriors."""
    ability = rng.normal(0.0, spread, MODELS)
    p = special.expit(rng.normal(0.0, difficulty, M) + ability[:, None])
    counts = [np.stack([n - right, right], axis=1) for right in rng.binomial(n, p)]
    return ability, [leb.hbayes_at_n(leb.Outcomes.from_counts(each)) for each in counts]


def claims(posteriors):
    """Return P(i > j) for all pairs i < j by prior."""
    named = {str(i): posterior for i, posterior in enumerate(posteriors)}
    mu, sigma = np.array([(each.mu, each.sigma) for each in posteriors]).T
    z = (mu[:, None] - mu) / np.hypot(sigma[:, None], sigma)
    pairs = np.triu_indices(mu.size, 1)
    return {
        "flat": special.ndtr(z[pairs]),
        "shared": leb.shared_scores(named).p_greater[pairs],
    }


def calibration(boards):
    """Return the mean claim, the share that is right, its error and the share of pairs.

    The standard error is that of right minus claimed, with boards as clusters.
    """
    counts = []
    for claimed, better in boards:
        p = np.maximum(claimed, 1.0 - claimed)
        inside = (p >= LOW) & (p < HIGH)
        right = np.where(claimed >= 0.5, better, ~better)
        counts.append((inside.sum(), p[inside].sum(), right[inside].sum(), p.size))
    n, claimed, right, pairs = np.sum(counts, axis=0)
    if n == 0:
        return {"claimed": None, "right": None, "se": None, "pairs": 0.0}
    inside, p, hit, _ = np.array(counts).T
    error = np.sqrt(((hit - p - (right - claimed) / n * inside) ** 2).sum()) / n
    return {"claimed": claimed / n, "right": right / n, "se": float(error), "pairs": n / pairs}


def study(n, spread, difficulty, runs, seed):
    """Return by size the calibration under each prior."""
    rng = np.random.default_rng([seed, n, round(10 * spread), round(10 * difficulty)])
    pairs = {(size, prior): [] for size in BOARDS for prior in PRIORS}
    for _ in range(runs):
        ability, posteriors = simulate_models(n, spread, difficulty, rng)
        for size, parts in BOARDS.items():
            first, second = np.triu_indices(size, 1)
            for part in parts:
                better = ability[part][first] > ability[part][second]
                claimed = claims(posteriors[part])
                for prior in PRIORS:
                    pairs[size, prior].append((claimed[prior], better))
    return {size: {prior: calibration(pairs[size, prior]) for prior in PRIORS} for size in BOARDS}


def board_rows(cells):
    """Yield a row per setting, with a column per size."""
    for setting, cell in cells.items():
        yield [
            *(f"{value:g}" for value in setting),
            *(claims_in_words(each) for each in cell.values()),
        ]


def claims_in_words(cell):
    """Return "flat | shared ± standard error (share of pairs)", right minus claimed in points."""
    flat, shared = cell["flat"], cell["shared"]
    if not shared["pairs"]:
        return "no pair"
    off = [100 * (each["right"] - each["claimed"]) for each in (flat, shared)]
    return f"{off[0]:+.1f}, {off[1]:+.1f} ± {100 * shared['se']:.1f} ({100 * shared['pairs']:.0f}%)"


def single_trial_rows(runs, seed, numbers):
    """Yield the rows of the last table: two equal models at N = 1, nominal 10%."""
    for difficulty in DIFFICULTY:
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
    parser.add_argument("--runs", type=int, default=2, help="boards of 20 models per cell")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--trials", type=int, nargs="+", default=None, help="values of N")
    parser.add_argument("--only", choices=["boards", "equal"], help="one study only")
    parser.add_argument("--out", type=Path, help="a JSON file for the numbers")
    args = parser.parse_args()
    is_short = args.runs < 20
    trials = args.trials or (TRIALS[:1] if is_short else TRIALS)
    numbers = {}
    if args.only in (None, "boards"):
        settings = [
            (n, difficulty, spread)
            for n in trials
            for difficulty in (DIFFICULTY[1:2] if is_short else DIFFICULTY)
            for spread in (SPREADS[1:2] if is_short else SPREADS)
        ]
        cells = {}
        for n, difficulty, spread in settings:
            cell = study(n, spread, difficulty, args.runs, args.seed)
            cells[n, difficulty, spread] = cell
            for size, values in cell.items():
                numbers[f"{n} {difficulty} {spread} {size}"] = values
            if args.out is not None:
                args.out.write_text(json.dumps(numbers, indent=1), encoding="utf-8")
        header = ["N", "sd of difficulty", "sd of logits"]
        columns = [f"L = {size}" for size in BOARDS]
        boards = f"{args.runs} boards of 20 and {3 * args.runs} of 6 models per cell, M = {M}"
        print(f"Right minus claimed, points: flat, shared ± se (pairs with a claim), {boards}\n")
        table([*header, *columns], board_rows(cells))
    if args.only in (None, "equal"):
        runs = 4 * args.runs
        print(f"Two equal models, N = 1: called different, %, nominal 10, {runs} pairs\n")
        table(["sd of difficulty", *SCOPES], single_trial_rows(runs, args.seed, numbers))
    if args.out is not None:
        args.out.write_text(json.dumps(numbers, indent=1), encoding="utf-8")


if __name__ == "__main__":
    main()
