"""Intervals of other tools beside those of this package: the table of docs/differs.md.

Ten shapes of benchmark, each with its success probabilities of questions. Of every data set each
method gives its 95% interval. A method about these questions is judged by the mean of their
probabilities, one about the population by its mean. A cell holds the coverage in percent, the mean
width and the mean interval score of Winkler (width + 40 times the distance of a missed truth). The
columns of evalstats 0.3.3 are left out where it is not installed.

    python intervals_elsewhere.py --designs 15x1    # a few seconds
    python intervals_elsewhere.py                   # the table, a quarter of an hour
"""

from __future__ import annotations

import argparse
import functools
import json
import math
from collections.abc import Callable
from pathlib import Path

import numpy as np
from evidence import draw_p, outcomes_of
from scipy import stats

from lm_eval_bayes import hbayes_at_n

#: name: (share, a, b) of each Beta distribution of p; b = 0 is p = a for all.
SHAPES = {
    "Beta(.5,1.5)": [(1.0, 0.5, 1.5)],
    "Beta(.2,2)": [(1.0, 0.2, 2.0)],
    "Beta(30,1)": [(1.0, 30.0, 1.0)],
    "Beta(.3,.3)": [(1.0, 0.3, 0.3)],
    "Beta(2,3)": [(1.0, 2.0, 3.0)],
    "half .2, half .8": [(0.5, 0.2, 0.0), (0.5, 0.8, 0.0)],
    "all .9": [(1.0, 0.9, 0.0)],
    "all .04": [(1.0, 0.04, 0.0)],
    "third 0, else Beta(8,2)": [(1 / 3, 0.0, 0.0), (2 / 3, 8.0, 2.0)],
    "97% .9, 3% 0": [(0.97, 0.9, 0.0), (0.03, 0.0, 0.0)],
}
#: Questions and trials; the table has a row for every shape at the first, and then for every
#: design the mean over the shapes.
DESIGNS = ((30, 4), (15, 1), (30, 1), (100, 1), (15, 4), (100, 4), (30, 16), (30, 64))
REPLICATES = 400
Z = float(stats.norm.ppf(0.975))
Ends = tuple[np.ndarray, np.ndarray]


def clt_within(right: np.ndarray, n: int) -> Ends:
    """nemo-evaluator's sample_level_ci: the variance of the trials of each question."""
    share = right / n
    error = np.sqrt((share * (1 - share) / (n - 1)).sum(axis=1)) / right.shape[1]
    return share.mean(axis=1) - Z * error, share.mean(axis=1) + Z * error


def bayes_at_n(right: np.ndarray, n: int) -> Ends:
    """scorio's bayes_ci: mean and sd under a uniform prior per question, which evalscope prints."""
    mean = (right + 1) / (n + 2)
    error = np.sqrt((mean * (1 - mean) / (n + 3)).sum(axis=1)) / right.shape[1]
    return mean.mean(axis=1) - Z * error, mean.mean(axis=1) + Z * error


def clt_over(right: np.ndarray, n: int) -> Ends:
    """The standard error of the questions' means, as in the harness, lighteval and inspect_ai."""
    share = right / n
    error = share.std(axis=1, ddof=1) / math.sqrt(right.shape[1])
    return share.mean(axis=1) - Z * error, share.mean(axis=1) + Z * error


def wilson(right: np.ndarray, n: int) -> Ends:
    """Wilson's interval that counts every trial."""
    trials = right.shape[1] * n
    p, scale = right.sum(axis=1) / trials, 1 + Z * Z / trials
    half = Z * np.sqrt(p * (1 - p) / trials + (Z / (2 * trials)) ** 2) / scale
    center = (p + Z * Z / (2 * trials)) / scale
    return center - half, center + half


def evalstats_interval(name: str, right: np.ndarray, n: int) -> Ends:
    """A function of evalstats, of the questions' means, as its `compare` calls wilson_ci_1d."""
    from evalstats.core import resampling

    interval = getattr(resampling, name)
    low, high = np.transpose([interval(means, 0.05) for means in right / n])
    return low, high


@functools.cache
def posterior_ends(right: tuple[int, ...], n: int) -> dict[str, tuple[float, float]]:
    """Return the ends of `hbayes@N` in both scopes."""
    posterior = hbayes_at_n(outcomes_of(np.array(right), n), scope="population")
    intervals = (each.interval(0.95) for each in (posterior.benchmark, posterior))
    return {interval.scope: (interval.low, interval.high) for interval in intervals}


def hbayes(scope: str, right: np.ndarray, n: int) -> Ends:
    # questions are exchangeable: equal counts in another order have the same posterior
    low, high = np.transpose(
        [posterior_ends(tuple(each), n)[scope] for each in np.sort(right).tolist()]
    )
    return low, high


#: Scope, name and function of each column.
METHODS: list[tuple[str, str, Callable[[np.ndarray, int], Ends]]] = [
    ("benchmark", "CLT within questions", clt_within),
    ("benchmark", "Bayes@N", bayes_at_n),
    ("benchmark", "`hbayes@N`", functools.partial(hbayes, "benchmark")),
    ("population", "CLT over questions", clt_over),
    ("population", "Wilson", wilson),
    ("population", "evalstats", functools.partial(evalstats_interval, "wilson_ci_1d")),
    (
        "population",
        "evalstats `bayes_binary`",
        functools.partial(evalstats_interval, "bayes_binary_ci_1d"),
    ),
    ("population", "`hbayes@N_population`", functools.partial(hbayes, "population")),
]


def methods() -> list[tuple[str, str, Callable[[np.ndarray, int], Ends]]]:
    """Return the columns that can be computed here."""
    try:
        import evalstats  # noqa: F401
    except ModuleNotFoundError:
        return [method for method in METHODS if "evalstats" not in method[1]]
    return METHODS


def cell(shape: str, m: int, n: int, replicates: int) -> dict[str, list[float]]:
    """Return coverage, mean width and mean interval score by method."""
    parts = SHAPES[shape]
    rng = np.random.default_rng([list(SHAPES).index(shape), m, n])
    p = np.array([draw_p(parts, m, rng) for _ in range(replicates)])
    right = rng.binomial(n, p)
    mean = sum(share * (a / (a + b) if b > 0 else a) for share, a, b in parts)
    truths = {"benchmark": p.mean(axis=1), "population": np.full(replicates, mean)}
    judged = {}
    for scope, name, ends in methods():
        if n == 1 and ends is clt_within:
            continue
        low, high = ends(right, n)
        miss = np.maximum(np.maximum(low - truths[scope], truths[scope] - high), 0.0)
        # rounding: where all questions are alike, the truth may be the end itself
        held, width = miss < 1e-12, high - low
        judged[name] = [held.mean(), width.mean(), (width + 40 * miss).mean()]
    return judged


def row(label: str, cells: list[dict[str, list[float]]]) -> list[str]:
    """Return a row of the table: the means over the cells."""
    texts = []
    for _, name, _ in methods():
        if name in cells[0]:
            held, width, score = np.mean([each[name] for each in cells], axis=0)
            texts.append(f"{100 * held:.0f}/{width:.3f}/{score:.3f}".replace("/0.", "/."))
        else:
            texts.append("–")
    return [label, *texts]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--replicates", type=int, default=REPLICATES, help="data sets per cell")
    parser.add_argument("--designs", nargs="+", help="MxN, as 30x4 (default: those of the page)")
    parser.add_argument("--out", type=Path, help="a JSON file for the cells")
    options = parser.parse_args()
    designs = [tuple(map(int, each.split("x"))) for each in options.designs or ()] or DESIGNS
    header = ["{} × {}".format(*designs[0]), *(name for _, name, _ in methods())]
    rows, cells = [header, ["---"] * len(header)], {}
    for m, n in designs:
        of_design = {shape: cell(shape, m, n, options.replicates) for shape in SHAPES}
        if (m, n) == designs[0]:
            rows += [row(shape, [each]) for shape, each in of_design.items()]
        rows.append(row(f"all, {m} × {n}", list(of_design.values())))
        posterior_ends.cache_clear()
        cells[f"{m}x{n}"] = of_design
        if options.out:
            options.out.write_text(json.dumps(cells))
    for texts in rows:
        print("| " + " | ".join(texts) + " |")


if __name__ == "__main__":
    main()
