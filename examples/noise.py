"""Coverage of the intervals of `variance_components`, and of the distance of two runs.

A benchmark of M questions is drawn, then N trials per question, from which the variance components
are estimated. Printed for every shape, M and N, in percent:

- icc, flip: how often the 95% intervals of the share of variance between questions and of the
  probability that two trials of a question differ contained their true values on these questions;
- closer, 1 and N: how often two *new* single runs, and two new runs with N trials, lay no farther
  apart than the 95% distance; "wide" is that distance of single runs over the true 1.96 √2 σ;
- power: how often a two-sided z test at 5% found a true difference of the size of
  `detectable_difference`, about these questions (80 is right; the test knows the variance).

    python examples/noise.py                    # a short version, under a minute
    python examples/noise.py --runs 200         # all cells, a quarter of an hour
"""

import argparse

import numpy as np
from scipy import stats

import lm_eval_bayes as leb

#: name: (share, a, b) of each part of the distribution of p; a number: p of all questions
SHAPES = {
    "U(0,1)": [(1.0, 1.0, 1.0)],
    "Beta(.3,.3)": [(1.0, 0.3, 0.3)],
    "Beta(5,5)": [(1.0, 5.0, 5.0)],
    "Beta(20,5)": [(1.0, 20.0, 5.0)],
    "Beta(.1,3)": [(1.0, 0.1, 3.0)],
    "half .05, half .9": [(0.5, 5e4, 9.5e5), (0.5, 9e5, 1e5)],
    "Beta(50,1)": [(1.0, 50.0, 1.0)],
    "constant .7": 0.7,
    "constant .98": 0.98,
}
CELLS = [(10, 2), (10, 8), (30, 2), (30, 4), (30, 16), (100, 4)]
SHORT = [(10, 2), (30, 4)]


def draw_probabilities(shape, m, rng):
    """Return the success probability of m questions."""
    parts = SHAPES[shape]
    if isinstance(parts, float):
        return np.full(m, parts)
    share, a, b = np.array(parts).T
    # as many of each part as its share, so that "half" is half
    sizes = np.diff(np.rint(np.cumsum([0, *share]) * m)).astype(int)
    part = np.repeat(np.arange(share.size), sizes)
    return rng.beta(a[part], b[part])


def one(shape, m, n, rng):
    """Return what held in one simulated benchmark, and how wide the distance was."""
    p = draw_probabilities(shape, m, rng)
    right = rng.binomial(n, p)
    outcomes = leb.Outcomes.from_counts(np.stack([n - right, right], axis=1))
    components = leb.variance_components(outcomes, seed=int(rng.integers(2**31)))
    within, between = np.mean(p * (1 - p)), np.var(p, ddof=1)
    icc, flip = between / (within + between), 2 * within
    closer = []
    for trials in (1, n):
        a, b = rng.binomial(trials, p, size=(2, 20, m)).mean(axis=2) / trials
        closer.append(np.mean(np.abs(a - b) <= components.distance(trials, 0.95) + 1e-9))
    sd = np.sqrt(2 * within / m)
    difference = leb.detectable_difference(components, n)
    power = stats.norm.cdf(difference / (sd / np.sqrt(n)) - 1.96)
    return (
        components.icc.low <= icc + 1e-12 and icc <= components.icc.high,
        components.flip.low <= flip <= components.flip.high,
        *closer,
        components.distance(1, 0.95) / (1.96 * sd),
        power,
    )


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--runs", type=int, help="benchmarks per cell; without it 25, two cells")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--short", action="store_true", help="two cells of every shape")
    options = parser.parse_args()
    runs, cells = options.runs or 25, CELLS if options.runs and not options.short else SHORT
    print(f"{runs} benchmarks per cell; in percent, wide as a ratio")
    print(f"{'shape':<20}{'M':>5}{'N':>4}  icc  flip  closer, 1  closer, N   wide  power")
    for shape in SHAPES:
        for m, n in cells:
            rng = np.random.default_rng([options.seed, m, n, list(SHAPES).index(shape)])
            held = np.array([one(shape, m, n, rng) for _ in range(runs)], dtype=float).mean(axis=0)
            icc, flip, single, several, wide, power = held * [100, 100, 100, 100, 1, 100]
            print(
                f"{shape:<20}{m:>5}{n:>4}{icc:>6.1f}{flip:>6.1f}{single:>11.1f}{several:>11.1f}"
                f"{wide:>7.2f}{power:>7.1f}",
                flush=True,
            )


if __name__ == "__main__":
    main()
