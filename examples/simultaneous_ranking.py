"""How often does a leaderboard of equal models show a difference? And what do real ones need?

Boards of L models are simulated. All answer the same M questions, N times each; the logit of a
question's success probability is normal with some sd, and equal models share it. Printed for the
rules of ties of `rank`: the share of boards on which some pair of equal models is separated, and
on boards whose models are equally spaced the share of truly different pairs that are
separated, beside Bonferroni's, and the coverage of the confidence sets for ranks.

    python examples/simultaneous_ranking.py                  # a taste, some seconds
    python examples/simultaneous_ranking.py --runs 500       # docs/evidence.md, half an hour
"""

import argparse
import functools
import json
from pathlib import Path

import numpy as np
from scipy import special, stats

import lm_eval_bayes as leb
from lm_eval_bayes.stats.ranking.rank import sort_best_first
from lm_eval_bayes.stats.ranking.simultaneous import compare_simultaneously, pair_errors

#: Questions are of these means of logits, difficulty of these sds.
DIFFICULTY = (0.5, 1.5, 3.0)
SIZES, TRIALS, SCOPES = (6, 20), (1, 4, 16), ("benchmark", "population")
M, CONFIDENCE = 30, 0.95
#: Distance of neighbours' logits on boards whose models differ.
STEP = {6: 0.25, 20: 0.08}


@functools.lru_cache(maxsize=2_000)
def learned(right, n):
    """Return hbayes@N of scope "population"; both scopes ask for it."""
    counts = np.array(right)
    outcomes = leb.Outcomes.from_counts(np.stack([n - counts, counts], axis=1))
    return leb.hbayes_at_n(outcomes, "population")


def simulate_board(lifts, n, sd, mean, rng):
    """Draw the successes of L models on M questions, and the success probabilities."""
    difficulty = rng.normal(mean, sd, M)
    p = special.expit(difficulty + np.asarray(lifts)[:, None])
    return rng.binomial(n, p), p


def posteriors_of(right, n, scope):
    """Return the models' posteriors by name, m0, m1, …."""
    posteriors = {f"m{i}": learned(tuple(row.tolist()), n) for i, row in enumerate(right)}
    if scope == "population":
        return posteriors
    return {name: posterior.benchmark for name, posterior in posteriors.items()}


def compare_all(posteriors, seed):
    """Return the models' numbers, best first, and their comparisons, as `rank` makes them."""
    ordered, _ = sort_best_first(posteriors)
    errors = [pair_errors(list(ordered.values()))]
    result = compare_simultaneously(errors, len(ordered), CONFIDENCE, seed, 1e-12)
    return np.array([int(name[1:]) for name in ordered]), result


def bonferroni(z):
    """Return which pairs the same z separates with Bonferroni's correction."""
    size = len(z)
    return np.abs(z) > stats.norm.isf((1 - CONFIDENCE) / (size * (size - 1)))


def true_scores(lifts, p, sd, mean, scope):
    """Return the scores that the ranks are about."""
    if scope == "benchmark":
        return p.mean(axis=1)
    node, weight = np.polynomial.hermite_e.hermegauss(80)
    at = special.expit(mean + sd * node + np.asarray(lifts)[:, None])
    return at @ (weight / weight.sum())


def study_equal(size, n, sd, mean, runs, seed):
    """Return the share of boards of equal models with a separated pair, by scope and rule."""
    rng = np.random.default_rng([seed, size, n, round(10 * sd), round(10 * mean) + 100])
    hits = {scope: [] for scope in SCOPES}
    for run in range(runs):
        right, _ = simulate_board(np.zeros(size), n, sd, mean, rng)
        for scope, rows in hits.items():
            if n == 1 and scope == "population":  # the same comparisons in both scopes
                rows.append(hits["benchmark"][-1])
                continue
            _, result = compare_all(posteriors_of(right, n, scope), run)
            from_leader = np.abs(result.z[0]).max() >= stats.norm.ppf(CONFIDENCE)
            rows.append((result.separated.any(), bonferroni(result.z).any(), from_leader))
    return {scope: np.mean(rows, axis=0).tolist() for scope, rows in hits.items()}


def study_ladder(size, n, sd, scope, runs, seed):
    """Return the share of pairs separated on boards of equally spaced models, and coverage."""
    rng = np.random.default_rng([seed, 1, size, n, round(10 * sd)])
    lifts = STEP[size] * (np.arange(size)[::-1] - 0.5 * (size - 1))
    rows = []
    for run in range(runs):
        right, p = simulate_board(lifts, n, sd, 0.0, rng)
        order, result = compare_all(posteriors_of(right, n, scope), run)
        true_rank = stats.rankdata(-true_scores(lifts, p, sd, 0.0, scope))[order]
        # separated in the true direction
        better = (order[:, None] < order) & (result.z > 0)
        joint = (result.rank_low <= true_rank) & (true_rank <= result.rank_high)
        n_pairs = size * (size - 1) / 2
        rows.append(
            (
                (result.separated & better).sum() / n_pairs,
                (bonferroni(result.z) & better).sum() / n_pairs,
                joint.all(),
                (result.rank_high - result.rank_low + 1).mean(),
            )
        )
    names = ("separated", "bonferroni", "sets", "size")
    return dict(zip(names, np.mean(rows, axis=0).tolist(), strict=True))


def table(header, rows):
    """Print a Markdown table, row by row as they come."""
    print("| " + " | ".join(header) + " |")
    print("|" + "---|" * len(header))
    for row in rows:
        print("| " + " | ".join(row) + " |", flush=True)
    print()


def percent(shares):
    return [f"{100 * share:.1f}" for share in shares]


def equal_rows(trials, sizes, mean, runs, seed, numbers):
    """Yield the rows of the first table; the numbers are also added to `numbers`."""
    for n in trials:
        for size in sizes:
            for sd in DIFFICULTY:
                cell = study_equal(size, n, sd, mean, runs, seed)
                numbers[f"equal {size} {n} {sd}"] = cell
                shares = [share for of_scope in cell.values() for share in of_scope]
                yield [str(n), str(size), f"{sd:g}", *percent(shares)]


def ladder_rows(trials, sizes, runs, seed, numbers):
    """Yield the rows of the second table."""
    for n in trials:
        for size in sizes:
            for scope in SCOPES:
                cell = study_ladder(size, n, 1.5, scope, runs, seed)
                numbers[f"ladder {size} {n} {scope}"] = cell
                *shares, joint_size, own_size = cell.values()
                in_words = [f"{joint_size:.1f}", f"{own_size:.1f}"]
                yield [str(n), str(size), scope, *percent(shares), *in_words]


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--runs", type=int, default=4, help="boards per cell")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--trials", type=int, nargs="+", default=None, help="values of N")
    parser.add_argument("--mean", type=float, default=0.0, help="mean logit of equal boards")
    parser.add_argument("--only", choices=["equal", "ladder"], help="one study only")
    parser.add_argument("--out", type=Path, help="a JSON file for the numbers")
    args = parser.parse_args()
    trials = args.trials or (TRIALS if args.runs >= 100 else (1, 4))
    sizes = SIZES if args.runs >= 100 else SIZES[:1]
    runs, seed, numbers = args.runs, args.seed, {}
    if args.only in (None, "equal"):
        print(f"Boards of equal models with a separated pair, %, {runs} boards per cell, M = {M}\n")
        rules = ("simultaneous", "Bonferroni", "leader")
        columns = [f"{rule}, {scope}" for scope in SCOPES for rule in rules]
        rows = equal_rows(trials, sizes, args.mean, runs, seed, numbers)
        table(["N", "L", "sd", *columns], rows)
    if args.only in (None, "ladder"):
        print(f"Equally spaced models: pairs separated, %; the sets of ranks, {runs} boards\n")
        columns = ("separated", "Bonferroni", "sets hold")
        header = ["N", "L", "scope", *columns, "size"]
        table(header, ladder_rows(trials, sizes, runs, seed, numbers))
    if args.out is not None:
        args.out.write_text(json.dumps(numbers, indent=1), encoding="utf-8")


if __name__ == "__main__":
    main()
