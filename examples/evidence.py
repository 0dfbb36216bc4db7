"""What do the intervals hold? Coverage, width and interval score on shapes, boards and real counts.

Parts: "shapes", the score, its population and the Pass@k family on ten distributions of p; "real",
the population of the questions of two real models; "boards", the scores of eight models and that of
the leader under the prior that they share. Every cell states how many data sets it has. Intervals
are 95% intervals, and hold a truth within .001 of their ends. Interval scores are those of Winkler.

    python examples/evidence.py                            # two data sets a cell
    python examples/evidence.py --runs 100 --out new.json  # the tables of docs/evidence.md
    python examples/evidence.py --read old.json new.json   # the tables of two versions
"""

import argparse
import csv
import json
from pathlib import Path

import numpy as np
from scipy import special, stats

import lm_eval_bayes as leb
from lm_eval_bayes.stats.pass_family_estimators import PassQuantity
from lm_eval_bayes.stats.pass_family_posteriors import pass_posteriors

#: name: (share, a, b) of each Beta distribution of p; b = 0 is p = a for all.
SHAPES = {
    "Beta(2,3)": [(1.0, 2.0, 3.0)],
    "Beta(.2,2)": [(1.0, 0.2, 2.0)],
    "Beta(.5,.5)": [(1.0, 0.5, 0.5)],
    "Beta(.05,.5)": [(1.0, 0.05, 0.5)],
    "all .5": [(1.0, 0.5, 0.0)],
    "all .98": [(1.0, 0.98, 0.0)],
    "half .3, half .7": [(0.5, 0.3, 0.0), (0.5, 0.7, 0.0)],
    "70% Beta(25,2), 30% zeros": [(0.7, 25.0, 2.0), (0.3, 0.0, 0.0)],
    "80% zeros, 20% Beta(2,2)": [(0.8, 0.0, 0.0), (0.2, 2.0, 2.0)],
    "97% .9, 3% zeros": [(0.97, 0.9, 0.0), (0.03, 0.0, 0.0)],
}
SIZES, TRIALS, LARGEST_K = (10, 30, 300), (1, 4, 16, 80), 16
#: name: mean score, sd of the models' logits, mean score of the first model if it is another.
BOARDS = {
    "around .5": (0.5, 0.4, None),
    "around .93": (0.93, 0.4, None),
    "around .97": (0.97, 0.4, None),
    "around .95, one .99": (0.95, 0.3, 0.99),
    "equal, .5": (0.5, 0.0, None),
    "equal, .93": (0.93, 0.0, None),
}
MODELS, BOARD_DESIGNS = 8, ((15, 4), (30, 8))
COUNTS = Path(__file__).with_name("counts128_aime24_amc23.csv")


def credits_of(k):
    """Return what k trials with 0 .. k right are worth, by name."""
    i, half = np.arange(k + 1), -(-k // 2)
    return {
        "pass@k": 1.0 * (i > 0),
        "pass^k": 1.0 * (i == k),
        "g-pass@k": 1.0 * (i >= half),
        "mg-pass@k": 2 / k * np.maximum(i - half, 0),
    }


def expected(parts, credit):
    """Return the mean credit of k trials of a question of the population."""
    k = credit.size - 1
    i = np.arange(k + 1)
    laws = [stats.betabinom(k, a, b) if b > 0 else stats.binom(k, a) for _, a, b in parts]
    return sum(part[0] * credit @ law.pmf(i) for part, law in zip(parts, laws, strict=True))


def draw_p(parts, m, rng):
    """Return the success probabilities of m questions."""
    share, a, b = np.array(parts).T
    part = rng.choice(share.size, m, p=share)
    drawn = rng.beta(np.where(b > 0, a, 1.0)[part], np.where(b > 0, b, 1.0)[part])
    return np.where(b[part] > 0, drawn, a[part])


def outcomes_of(right, n):
    return leb.Outcomes.from_counts(np.stack([n - right, right], axis=1))


def judge(low, high, truth):
    """Return whether the interval holds the truth, its width and its interval score."""
    miss = max(low - truth, truth - high, 0.0)
    return float(miss <= 0.001), high - low, high - low + 40.0 * miss


def shape_sets(shape, m, n, run):
    """Yield quantity and judgement of one data set."""
    parts = SHAPES[shape]
    rng = np.random.default_rng([run, list(SHAPES).index(shape), m, n])
    p = draw_p(parts, m, rng)
    outcomes = outcomes_of(rng.binomial(n, p), n)
    credits = {"score": np.array([0.0, 1.0])}
    posteriors = [leb.hbayes_at_n(outcomes, scope="population")]
    k = min(n, LARGEST_K)
    if k > 1:
        family = credits_of(k)
        tau = {"g-pass@k": 0.5}
        quantities = [PassQuantity(name, k, tau.get(name)) for name in family]
        posteriors += pass_posteriors(outcomes, quantities, scope="population")
        credits |= family
    for (name, credit), posterior in zip(credits.items(), posteriors, strict=True):
        i = np.arange(credit.size)[:, None]
        here = (credit @ stats.binom.pmf(i, credit.size - 1, p)).mean()
        for scope, truth in ((posterior.benchmark, here), (posterior, expected(parts, credit))):
            interval = scope.interval(0.95)
            yield f"{name}, {scope.scope}", judge(interval.low, interval.high, truth)


def real_sets(model, m, n, run):
    """Yield the judgement of n of 128 real trials of m questions drawn from 69 with replacement."""
    with COUNTS.open() as lines:
        data = csv.DictReader(line for line in lines if not line.startswith("#"))
        counts = np.array([int(row[model]) for row in data])
    rng = np.random.default_rng([run, len(model), m, n])
    right = counts[rng.integers(0, counts.size, m)]
    outcomes = outcomes_of(rng.hypergeometric(right, 128 - right, n), n)
    interval = leb.hbayes_at_n(outcomes, scope="population").interval(0.95)
    yield "score, population", judge(interval.low, interval.high, counts.mean() / 128)


def board_sets(board, m, n, run):
    """Yield the judgements of all models of a board, own and shared, and of the leader."""
    mean, sd, first = BOARDS[board]
    rng = np.random.default_rng([run, 50 + list(BOARDS).index(board), m, n])
    means = special.expit(special.logit(mean) + sd * rng.standard_normal(MODELS))
    means[0] = first or means[0]
    p = rng.beta(3 * means[:, None], 3 * (1 - means[:, None]), (MODELS, m))
    posteriors = {
        str(i): leb.hbayes_at_n(outcomes_of(each, n)) for i, each in enumerate(rng.binomial(n, p))
    }
    shared = leb.shared_scores(posteriors)
    leader = np.argmax([posterior.mu for posterior in posteriors.values()])
    for i, posterior in enumerate(posteriors.values()):
        own, truth = posterior.interval(0.95), p[i].mean()
        judgements = {
            "own": judge(own.low, own.high, truth),
            "shared": judge(shared.low[i], shared.high[i], truth),
        }
        for name, judgement in judgements.items():
            yield f"{name}, all", judgement
            if i == leader:
                yield f"{name}, leader", judgement


#: part: the function, its names, its designs.
PARTS = {
    "shapes": (shape_sets, SHAPES, [(m, n) for m in SIZES for n in TRIALS]),
    "real": (real_sets, ("c_base", "c_rl"), [(69, n) for n in (4, 16, 128)]),
    "boards": (board_sets, BOARDS, BOARD_DESIGNS),
}


def study(part, runs, sizes):
    """Yield (name, M, N, runs, {quantity: mean judgement}); at M = 300 with 0.4 of the runs."""
    sets, names, designs = PARTS[part]
    for m, n in designs:
        for name in names if not sizes or m in sizes else ():
            held = {}
            of_cell = max(1, round(0.4 * runs)) if m == 300 else runs
            for run in range(of_cell):
                for quantity, judgement in sets(name, m, n, run):
                    held.setdefault(quantity, []).append(judgement)
            means = {each: np.mean(values, axis=0).tolist() for each, values in held.items()}
            yield name, m, n, of_cell, means


def table(header, rows):
    """Print a Markdown table."""
    for row in (header, ["---"] * len(header), *rows):
        print("| " + " | ".join(row) + " |")
    print()


def compared(old, new):
    """Return "old → new (width, interval score over the old)" of cells, coverage in percent.

    `old` and `new` have shape (cells, 3). The ratios are geometric means over the cells.
    """
    old, new = np.reshape(old, (-1, 3)), np.reshape(new, (-1, 3))
    ratio = np.exp(np.mean(np.log((new + 0.003) / (old + 0.003)), axis=0))
    before, after = 100 * old[:, 0].mean(), 100 * new[:, 0].mean()
    return f"{before:.1f} → {after:.1f} ({ratio[1]:.2f}, {ratio[2]:.2f})"


def print_tables(old, new):
    """Print the cells of a part: by design in the mean over the names, then one by one."""
    columns = list(dict.fromkeys(quantity for *_, means in new for quantity in means))
    family = [name for name in columns if "pass" in name]
    groups = {name: [name] for name in columns if name not in family}
    for scope in ("benchmark", "population") if family else ():
        groups[f"Pass family, {scope}"] = [name for name in family if name.endswith(scope)]
    before = {tuple(cell[:3]): cell[4] for cell in old}
    pairs = [(cell, before[tuple(cell[:3])]) for cell in new if tuple(cell[:3]) in before]

    def texts(cells):
        for names in groups.values():
            some = [(was[q], now[4][q]) for now, was in cells for q in names if q in now[4]]
            yield compared(*zip(*some, strict=True)) if some else ""

    designs = dict.fromkeys(tuple(cell[1:4]) for cell, _ in pairs)
    header = ["M", "N", "sets", *groups]
    table(
        header,
        [
            [*map(str, design), *texts([each for each in pairs if tuple(each[0][1:4]) == design])]
            for design in designs
        ],
    )
    table(["", *header], [[*map(str, each[0][:4]), *texts([each])] for each in pairs])
    for name, m, n, runs, means in new:
        for quantity, (held, *_) in means.items():
            if held < 0.89 and m >= 30 and n >= 4:
                print(f"{name}, {m} × {n}: {quantity} {100 * held:.1f}% of {runs}")


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--runs", type=int, default=2, help="data sets per cell")
    parser.add_argument("--parts", nargs="+", choices=PARTS, default=list(PARTS))
    parser.add_argument("--sizes", nargs="+", type=int, help="only these M")
    parser.add_argument("--out", type=Path, help="a JSON file for the cells")
    parser.add_argument("--read", type=Path, nargs=2, help="files of two versions to compare")
    options = parser.parse_args()
    if options.read:
        old, new = (json.loads(path.read_text()) for path in options.read)
    else:
        new = {}
        for part in options.parts:
            new[part] = []
            for cell in study(part, options.runs, options.sizes):
                new[part].append(cell)
                if options.out:
                    options.out.write_text(json.dumps(new))
        old = new
    for part in new:
        print(f"## {part}\n")
        print_tables(old[part], new[part])


if __name__ == "__main__":
    main()
