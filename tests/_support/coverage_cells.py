"""Cells of coverage on simulated benchmarks of many shapes, for the tests of `hbayes_at_n`.

A benchmark of M questions is drawn (every question gets a success probability), then N trials per
question, then each method gives its 95% interval: "hbayes" and "paper" (the uniform prior) for the
mean of the questions' probabilities, "population" for that of the population they are drawn from.
"""

import csv
import functools

import numpy as np
from scipy import stats

import lm_eval_bayes as leb
from _support.paths import REPOSITORY

LEVEL = 0.95
#: name: (share, a, b) of each part of the distribution of p; a number: p of all questions
SHAPES = {
    "U(0,1)": [(1.0, 1.0, 1.0)],
    "Beta(.3,.3)": [(1.0, 0.3, 0.3)],
    "Beta(.2,2)": [(1.0, 0.2, 2.0)],
    "Beta(2,.3)": [(1.0, 2.0, 0.3)],
    "constant .7": 0.7,
    "Beta(5,5)": [(1.0, 5.0, 5.0)],
    "half Beta(.3,3), half Beta(8,2)": [(0.5, 0.3, 3.0), (0.5, 8.0, 2.0)],
    "Beta(20,5)": [(1.0, 20.0, 5.0)],
    "Beta(.1,3)": [(1.0, 0.1, 3.0)],
    "Beta(.05,.5)": [(1.0, 0.05, 0.5)],
    "80% zeros, 20% U(0,1)": [(0.8, 0.0, 1.0), (0.2, 1.0, 1.0)],
    "constant .95": 0.95,
    "constant .97": 0.97,
    "constant .98": 0.98,
    "constant .99": 0.99,
    "constant .02": 0.02,
    "one U(.9,1) for all": None,
}
#: Shapes whose parts have fixed numbers of questions, so that not all questions can be zeros.
FIXED = {"80% zeros, 20% U(0,1)"}
METHODS = ("hbayes", "population", "paper")
#: name: (share, parameters of a Dirichlet distribution) of each part; a tuple: the same shares for
#: all questions. Of K categories, category k scores k/(K - 1).
RUBRICS = {
    "spread out": [(1.0, (0.8, 1.2, 1.0, 1.2, 0.8))],
    "mostly best": [(1.0, (0.3, 0.3, 0.3, 0.3, 3.0))],
    "mostly worst": [(1.0, (1.8, 0.5, 0.3, 0.2, 0.1))],
    "middle": [(1.0, (0.4, 1.5, 3.0, 1.5, 0.4))],
    "half best, half worst": [(0.5, (2.5, 0.6, 0.3, 0.1, 0.1)), (0.5, (0.1, 0.1, 0.3, 0.6, 2.5))],
    "all alike, .9 worst": (0.9, 0.02, 0.02, 0.02, 0.04),
    "all alike, .86 best": (0.02, 0.01, 0.03, 0.08, 0.86),
    "three of five used": [(1.0, (0.6, 0.0, 0.4, 0.0, 1.2))],
    "three, all alike": (0.93, 0.04, 0.03),
    "seven, mostly best": [(1.0, (0.1, 0.1, 0.15, 0.15, 0.2, 0.2, 1.8))],
}
COUNTS = REPOSITORY / "examples" / "counts128_aime24_amc23.csv"


def draw_probabilities(shape, m, rng):
    """Return the success probability of m questions, and the mean of their population."""
    parts = SHAPES[shape]
    if parts is None:
        p = rng.uniform(0.9, 1.0)
        return np.full(m, p), p
    if isinstance(parts, float):
        return np.full(m, parts), parts
    share, a, b = np.array(parts).T
    if shape in FIXED:
        part = np.repeat(np.arange(share.size), np.rint(share * m).astype(int))
    else:
        part = rng.choice(share.size, size=m, p=share)
    p = rng.beta(np.maximum(a[part], 1e-300), b[part])  # a = 0 is a probability of 0
    return p, float(share @ (a / (a + b)))


def width_under_true_prior(shape, right, n):
    """Return the width of the 95% interval of one who knows the shape; nan for a constant."""
    parts = SHAPES[shape]
    if not isinstance(parts, list) or shape in FIXED:
        return np.nan
    share, a, b = np.array(parts).T[:, None, :]
    x = right[:, None]
    log = np.log(share) + stats.betabinom.logpmf(x, n, a, b)
    odds = np.exp(log - log.max(axis=1, keepdims=True))
    odds /= odds.sum(axis=1, keepdims=True)
    mean = (a + x) / (a + b + n)
    square = mean * (mean + (1 - mean) / (a + b + n + 1))
    variance = (odds * square).sum(axis=1) - (odds * mean).sum(axis=1) ** 2
    return 2 * stats.norm.ppf(0.5 + LEVEL / 2) * np.sqrt(variance.sum()) / right.size


@functools.lru_cache(maxsize=500_000)
def intervals_of_counts(right, n, methods=METHODS):
    """Return {method: (centre, low, high)} of sorted successes: at small N few are different."""
    counts = np.array(right)
    outcomes = leb.Outcomes.from_counts(np.stack([n - counts, counts], axis=1))
    posteriors = {
        "hbayes": (lambda: leb.hbayes_at_n(outcomes), "exact"),
        "population": (lambda: leb.hbayes_at_n(outcomes, scope="population"), "exact"),
        "paper": (lambda: leb.bayes_at_n(outcomes), "normal"),
    }
    ends = {}
    for method in methods:
        posterior_of, kind = posteriors[method]
        posterior = posterior_of()
        interval = posterior.interval(LEVEL, kind)
        ends[method] = (posterior.mu, interval.low, interval.high)
    return ends


def summary(rows):
    """Return {method: coverage, width, bias} from rows of {method: (centre, low, high, truth)}."""
    result = {}
    for method in rows[0]:
        centre, low, high, truth = np.array([row[method] for row in rows]).T
        held = (low - 1e-12 <= truth) & (truth <= high + 1e-12)
        result[method] = {
            "coverage": float(held.mean()),
            "width": float((high - low).mean()),
            "bias": float((centre - truth).mean()),
        }
    return result


def binary_cell(shape, m, n, runs, seed, methods=METHODS):
    """Simulate one shape, M and N."""
    rng = np.random.default_rng([seed, list(SHAPES).index(shape), m, n])
    rows, true_widths = [], []
    for _ in range(runs):
        p, population = draw_probabilities(shape, m, rng)
        right = rng.binomial(n, p)
        ours = intervals_of_counts(tuple(np.sort(right).tolist()), n, methods)
        truth = dict.fromkeys(ours, p.mean()) | {"population": population}
        rows.append({name: (*value, truth[name]) for name, value in ours.items()})
        true_widths.append(width_under_true_prior(shape, right, n))
    return {
        **summary(rows),
        "true prior": float(np.mean(true_widths)),
    }


def draw_shares(shape, m, rng):
    """Return each category's share in m questions, and its mean in their population."""
    parts = RUBRICS[shape]
    if isinstance(parts, tuple):
        return np.tile(parts, (m, 1)), np.array(parts)
    weight, parameters = zip(*parts, strict=True)
    weight, parameters = np.array(weight), np.array(parameters)
    # a category without a parameter has no share
    gamma = rng.standard_gamma(parameters[rng.choice(weight.size, size=m, p=weight)]) + 1e-300
    population = weight @ (parameters / parameters.sum(axis=1, keepdims=True))
    return gamma / gamma.sum(axis=1, keepdims=True), population


def rubric_cell(shape, m, n, runs, seed):
    """Simulate one rubric, M and N."""
    rng = np.random.default_rng([seed, 100 + list(RUBRICS).index(shape), m, n])
    rows = []
    for run in range(runs):
        theta, mean = draw_shares(shape, m, rng)
        outcomes = leb.Outcomes.from_counts(rng.multinomial(n, theta))
        truth = float((theta @ outcomes.weights).mean())
        population = leb.hbayes_at_n(outcomes, scope="population", seed=run)
        row = {}
        for name, posterior, method, value in (
            ("hbayes", population.benchmark, "exact", truth),
            ("population", population, "exact", float(mean @ outcomes.weights)),
            ("paper", leb.bayes_at_n(outcomes), "normal", truth),
        ):
            end = posterior.interval(LEVEL, method)
            row[name] = (posterior.mu, end.low, end.high, value)
        rows.append(row)
    return summary(rows)


def real_cell(model, source, n, runs, seed):
    """Draw N of the 128 real trials of each question without replacement."""
    with COUNTS.open() as lines:
        data = csv.DictReader(line for line in lines if not line.startswith("#"))
        right = np.array([int(row[model]) for row in data if row["source"] == source])
    rng = np.random.default_rng([seed, len(model), len(source), right.sum(), n, False])
    rows = []
    for _ in range(runs):
        x = rng.hypergeometric(right, 128 - right, n)
        ours = intervals_of_counts(tuple(np.sort(x).tolist()), n, ("hbayes", "paper"))
        rows.append({name: (*value, right.mean() / 128) for name, value in ours.items()})
    return summary(rows)
