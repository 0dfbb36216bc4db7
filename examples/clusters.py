"""Coverage of intervals for a population of questions that come in clusters, simulated.

Clusters are drawn, questions in them, N trials of each question, and then 95% intervals for the
mean score of the population: "clusters", `hbayes_at_n` of outcomes with clusters; "independent",
`hbayes_at_n` without clusters; "t", the clustered standard error with Student's t. Printed: how
often the interval contained the truth, with its mean width in units of that under the true prior,
whose d and s are known (of "clusters" where there is none).

    python examples/clusters.py                  # a short version, a few seconds
    python examples/clusters.py --runs 200       # those of docs/evidence.md, some minutes

The second table is of the difference of two equal models that answered the same questions, by
`compare` in scope population with and without the clusters.
"""

import argparse
from typing import NamedTuple

import numpy as np
from scipy import special

import lm_eval_bayes as leb

LEVEL = 0.95
METHODS = ("clusters", "independent", "t")
#: Sizes of unequal clusters, repeated as often as needed.
UNEQUAL = (1, 2, 2, 3, 4, 6, 9, 17)


class Shape(NamedTuple):
    """A population of clusters: their number and size (None: unequal), N, and how they differ.

    "beta": p_t ~ Beta(d θ, d (1 − θ)), q ~ Beta(s p_t, s (1 − p_t)), with (θ, d, s) as `numbers`.
    "normal": logit q is normal around a centre, with the sd of clusters and that of questions in
    them. "two kinds": a cluster's mean is .1 or .9. "sizes": as "normal", with larger clusters
    harder.
    """

    clusters: int
    size: int | None
    n: int
    kind: str
    numbers: tuple[float, float, float]

    def __str__(self):
        size = "unequal" if self.size is None else f"of {self.size}"
        names = ("θ", "d", "s") if self.kind == "beta" else ("centre", "sd", "sd within")
        text = ", ".join(f"{n} {x:g}" for n, x in zip(names, self.numbers, strict=True))
        return f"{self.clusters} {size}, N = {self.n}: {self.kind}, {text}"


SHAPES = (
    Shape(5, 8, 4, "beta", (0.65, 3, 2)),
    Shape(5, 20, 1, "beta", (0.4, 8, 3)),
    Shape(5, 20, 4, "beta", (0.93, 5, 2)),
    Shape(5, 10, 4, "beta", (0.6, 1.5, 5)),
    Shape(8, None, 4, "beta", (0.3, 2, 4)),
    Shape(12, 6, 2, "beta", (0.75, 15, 1)),
    Shape(15, None, 1, "beta", (0.55, 4, 3)),
    Shape(40, 5, 1, "beta", (0.2, 1.5, 3)),
    Shape(40, 5, 4, "beta", (0.92, 6, 1)),
    Shape(40, None, 4, "beta", (0.5, 50, 1)),
    Shape(40, 10, 2, "beta", (0.5, 0.7, 10)),
    Shape(5, 10, 4, "normal", (0.8, 1.0, 1.2)),
    Shape(10, None, 2, "normal", (2.2, 1.2, 1.5)),
    Shape(40, None, 4, "normal", (-1.0, 0.4, 2.0)),
    Shape(30, 4, 2, "two kinds", (0.5, 0.0, 0.0)),
    Shape(24, None, 2, "sizes", (1.0, 0.8, 1.0)),
)
#: Of the differences: clusters, their size, N, and the sd of the models' own cluster effects.
PAIRS = ((5, 10, 1, 0.8), (5, 10, 4, 0.0), (10, None, 4, 0.8), (40, 5, 4, 0.8))


def cluster_of_questions(n_clusters, size, rng):
    """Return the number of the cluster of every question."""
    sizes = np.resize(UNEQUAL, n_clusters) if size is None else np.full(n_clusters, size)
    return np.repeat(np.arange(n_clusters), rng.permutation(sizes))


def draw(shape, rng):
    """Return the clusters of the questions, their success probabilities, and the truth."""
    index = cluster_of_questions(shape.clusters, shape.size, rng)
    if shape.kind == "beta":
        theta, d, s = shape.numbers
        p = np.clip(rng.beta(d * theta, d * (1 - theta), shape.clusters), 1e-9, 1 - 1e-9)[index]
        return index, rng.beta(s * p, s * (1 - p)), theta
    if shape.kind == "two kinds":
        return index, rng.choice([0.1, 0.9], shape.clusters)[index], 0.5
    centre, between, within = shape.numbers
    of_cluster = between * rng.standard_normal(shape.clusters)
    if shape.kind == "sizes":
        of_cluster = -np.sort(-of_cluster)[np.argsort(np.argsort(np.bincount(index)))]
    logit = centre + of_cluster[index] + within * rng.standard_normal(index.size)
    return index, special.expit(logit), normal_mean(centre, np.hypot(between, within))


def normal_mean(centre, sd):
    """Return the mean of a probability whose logit is normal."""
    x, w = np.polynomial.hermite_e.hermegauss(60)
    return float(w @ special.expit(centre + sd * x) / w.sum())


def known_prior_width(right, n, index, d, s):
    """Return the width of the interval for θ where d and s are known, by plain quadrature."""
    y = np.linspace(-16, 16, 801)
    log_p, log_q = special.log_expit(y), special.log_expit(-y)
    a, b = s * np.exp(log_p), s * np.exp(log_q)
    logs = np.zeros((index.max() + 1, y.size))
    for x in range(n + 1):
        value = special.betaln(a + x, b + n - x) - special.betaln(a, b)
        logs += np.bincount(index, right == x, index.max() + 1)[:, None] * value
    of_cluster = np.exp(logs - logs.max(axis=1, keepdims=True))
    mean = np.linspace(-9, 9, 361)
    alpha, beta = d * special.expit(mean), d * special.expit(-mean)
    density = log_p[:, None] * alpha + log_q[:, None] * beta - special.betaln(alpha, beta)
    logs = np.log(of_cluster @ np.exp(density)).sum(axis=0)
    logs += 0.7 * (special.log_expit(mean) + special.log_expit(-mean))
    below = np.cumsum(np.exp(logs - logs.max()))
    ends = np.interp([0.5 - LEVEL / 2, 0.5 + LEVEL / 2], below / below[-1], mean + 0.025)
    return float(np.diff(special.expit(ends))[0])


def intervals(right, n, index):
    """Return the interval of every method."""
    outcomes = leb.Outcomes.from_counts(np.stack([n - right, right], axis=1))
    clustered = leb.Outcomes.from_counts(outcomes.counts, clusters=index)
    return {
        "clusters": leb.hbayes_at_n(clustered, "population").interval(LEVEL),
        "independent": leb.hbayes_at_n(outcomes, "population").interval(LEVEL),
        "t": leb.clustered_interval(outcomes, index, LEVEL, small_sample=True),
    }


def coverage(shape, runs, seed):
    """Return for every method the share of intervals that hold the truth, and the mean width."""
    rng = np.random.default_rng([seed, SHAPES.index(shape)])
    hits, widths = dict.fromkeys(METHODS, 0), dict.fromkeys(METHODS, 0.0)
    known = 0.0
    for _ in range(runs):
        index, q, truth = draw(shape, rng)
        right = rng.binomial(shape.n, q)
        if shape.kind == "beta":
            known += known_prior_width(right, shape.n, index, *shape.numbers[1:])
        for method, interval in intervals(right, shape.n, index).items():
            hits[method] += interval.low <= truth <= interval.high
            widths[method] += interval.high - interval.low
    unit = known or widths["clusters"]
    return {method: (hits[method] / runs, widths[method] / unit) for method in METHODS}


def pair_coverage(pair, runs, seed):
    """Return how often the interval for the difference of equal models holds 0, both ways."""
    n_clusters, size, n, own_sd = pair
    rng = np.random.default_rng([seed, 100 + PAIRS.index(pair)])
    hits = [0, 0]
    for _ in range(runs):
        index = cluster_of_questions(n_clusters, size, rng)
        shared = 0.5 + rng.standard_normal(n_clusters)[index] + rng.standard_normal(index.size)
        sides = []
        for _ in "ab":
            own = own_sd * rng.standard_normal(n_clusters)[index]
            right = rng.binomial(
                n, special.expit(shared + own + 0.5 * rng.standard_normal(own.size))
            )
            sides.append(np.stack([n - right, right], axis=1))
        for i, clusters in enumerate((index, None)):
            a, b = (leb.Outcomes.from_counts(counts, clusters=clusters) for counts in sides)
            interval = leb.compare(a, b, "population", LEVEL).interval
            hits[i] += interval.low <= 0.0 <= interval.high
    return [hit / runs for hit in hits]


def main():
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--runs", type=int, default=4)
    parser.add_argument("--seed", type=int, default=20261122)
    arguments = parser.parse_args()
    runs, seed = arguments.runs, arguments.seed
    error = 100 * np.sqrt(0.95 * 0.05 / runs)
    print(f"{runs} runs a row, standard error {error:.1f} points at 95%; percent (relative width)")
    print("|".join(["clusters", *METHODS]))
    for shape in SHAPES:
        cells = coverage(shape, runs, seed)
        row = [f"{100 * share:.1f} ({width:.2f})" for share, width in cells.values()]
        print("|".join([str(shape), *row]), flush=True)
    print("difference of equal models|clusters|independent")
    for pair in PAIRS:
        n_clusters, size, n, own_sd = pair
        name = f"{n_clusters} {'unequal' if size is None else f'of {size}'}, N = {n}, sd {own_sd:g}"
        shares = pair_coverage(pair, runs, seed)
        print("|".join([name, *(f"{100 * share:.1f}" for share in shares)]), flush=True)


if __name__ == "__main__":
    main()
