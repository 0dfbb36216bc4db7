"""Coverage of the intervals of each method, simulated for benchmarks of many shapes.

A benchmark of M questions is drawn (every question gets a success probability), then N trials per
question, then each method gives its 95% interval for the benchmark's true score, the mean of
its questions' probabilities; "population" is that of `hbayes` for the mean of the population that
they are drawn from. Printed for every shape, M and N: how often the interval contained the truth,
its mean width, and the bias of its centre. Rubrics of three to seven categories and real counts
follow. The Pass@k family is in evidence.py.

    python examples/calibration.py                             # a short version, under a minute
    python examples/calibration.py --runs 2000 --jobs 2 --out calibration   # all cells
    python examples/calibration.py --runs 2000 --methods hbayes population  # of two methods
"""

import argparse
import csv
import functools
import json
import os
import signal
import threading
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager
from multiprocessing import active_children, get_context
from pathlib import Path

import numpy as np
from scipy import stats

import lm_eval_bayes as leb
from lm_eval_bayes.stats.frequentist.means import within_question_clt

LEVEL = 0.95
SIZES, TRIALS = (10, 30, 100), (2, 4, 8, 16, 64)
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
METHODS = ("hbayes", "population", "paper", "jeffreys", "avg ± σ_avg", "CLT")
PARTS = ("binary", "rubrics", "real")
#: The methods whose interval is about these questions.
FINITE = tuple(method for method in METHODS if method != "population")
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
COUNTS = Path(__file__).with_name("counts128_aime24_amc23.csv")


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


def intervals(outcomes, methods=METHODS):
    """Return {method: (centre, low, high)}."""
    posteriors = {
        "hbayes": (lambda: leb.hbayes_at_n(outcomes), "exact"),
        "population": (lambda: leb.hbayes_at_n(outcomes, scope="population"), "exact"),
        "paper": (lambda: leb.bayes_at_n(outcomes), "normal"),
        "jeffreys": (lambda: leb.bayes_at_n(outcomes, prior="jeffreys"), "exact"),
    }
    ends = {}
    for method in methods:
        if method == "avg ± σ_avg":
            average = leb.avg_at_n(outcomes)
            reach = stats.norm.ppf(0.5 + LEVEL / 2) * average.sigma
            ends[method] = (average.value, average.value - reach, average.value + reach)
        elif method == "CLT":
            clt = within_question_clt(outcomes, LEVEL)
            ends[method] = (clt.estimate, clt.low, clt.high)
        else:
            of, kind = posteriors[method]
            posterior = of()
            interval = posterior.interval(LEVEL, kind)
            ends[method] = (posterior.mu, interval.low, interval.high)
    return ends


@functools.lru_cache(maxsize=500_000)
def intervals_of_counts(right, n, methods=METHODS):
    """The same for sorted numbers of successes: at small N few of these are different."""
    counts = np.array(right)
    outcomes = leb.Outcomes.from_counts(np.stack([n - counts, counts], axis=1))
    return intervals(outcomes, methods)


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


def binary_cell(task, methods=METHODS):
    """Simulate one shape, M and N."""
    shape, m, n, runs, seed = task
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
        "shape": shape,
        "M": m,
        "N": n,
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


def rubric_cell(task):
    """Simulate one rubric, M and N."""
    shape, m, n, runs, seed = task
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
    return {"shape": shape, "M": m, "N": n, **summary(rows)}


def real_cell(task):
    """Draw N of the 128 real trials of each question without replacement, or with it."""
    model, source, n, runs, seed, replace = task
    with COUNTS.open() as lines:
        data = csv.DictReader(line for line in lines if not line.startswith("#"))
        right = np.array([int(row[model]) for row in data if row["source"] == source])
    rng = np.random.default_rng([seed, len(model), len(source), right.sum(), n, replace])
    rows = []
    for _ in range(runs):
        x = rng.binomial(n, right / 128) if replace else rng.hypergeometric(right, 128 - right, n)
        ours = intervals_of_counts(tuple(np.sort(x).tolist()), n, FINITE)
        rows.append({name: (*value, right.mean() / 128) for name, value in ours.items()})
    return {"model": model, "source": source, "N": n, "replace": replace, **summary(rows)}


def table(header, rows):
    """Print a Markdown table."""
    print("| " + " | ".join(header) + " |")
    print("|" + "---|" * len(header))
    for row in rows:
        print("| " + " | ".join(row) + " |")
    print()


def percent(value):
    return f"{100 * value:.1f}"


def print_binary(cells, methods=METHODS):
    """Print coverage, width and bias of every cell, then whether the targets are met."""
    print("Coverage in % (mean width, bias) of 95% intervals\n")
    rows = []
    for cell in cells:
        texts = [
            f"{percent(v['coverage'])} ({v['width']:.3f}, {v['bias']:+.3f})"
            for v in (cell[name] for name in methods)
        ]
        rows.append([cell["shape"], str(cell["M"]), str(cell["N"]), *texts])
    table(["p ~", "M", "N", *methods], rows)
    coverage = np.array([cell["hbayes"]["coverage"] for cell in cells])
    selected = np.array([cell["N"] >= 4 and cell["M"] >= 30 for cell in cells])
    ratio = np.array([cell["hbayes"]["width"] / cell["true prior"] for cell in cells])
    finite = np.isfinite(ratio)
    print(f"hbayes, mean coverage over all {coverage.size} cells: {percent(coverage.mean())}%")
    if selected.any():
        worst = cells[int(np.flatnonzero(selected)[coverage[selected].argmin()])]
        where = f"{worst['shape']}, M = {worst['M']}, N = {worst['N']}"
        print(f"least where N >= 4 and M >= 30: {percent(coverage[selected].min())}% ({where})")
        print(f"cells below 93% among these {selected.sum()}: {(coverage[selected] < 0.93).sum()}")
        print(f"mean over these: {percent(coverage[selected].mean())}%")
    print(f"mean width over that under the true prior: {ratio[finite].mean():.3f}")
    if (finite & selected).any():
        print(f"the same where N >= 4 and M >= 30: {ratio[finite & selected].mean():.3f}\n")


def print_rubrics(cells, runs):
    """Print coverage and width of the rubrics."""
    print(f"Rubrics, M = 30, {runs} runs\n")
    methods = ("hbayes", "population", "paper")
    rows = [
        [cell["shape"], str(cell["N"])]
        + [f"{percent(cell[m]['coverage'])} ({cell[m]['width']:.3f})" for m in methods]
        for cell in cells
    ]
    table(["rubric", "N", *methods], rows)


def print_real(cells):
    """Print coverage on the real counts."""
    print("Real counts: N of 128 trials per question; the truth is the score over all 128\n")
    drawn = {(c["model"], c["source"], c["N"], c["replace"]): c for c in cells}
    rows = [
        [model, source, str(n)]
        + [percent(drawn[model, source, n, False][method]["coverage"]) for method in FINITE]
        + [percent(drawn[model, source, n, True]["hbayes"]["coverage"])]
        for model, source, n, replace in drawn
        if not replace
    ]
    table(["model", "set", "N", *FINITE, "hbayes, with replacement"], rows)


def draw_picture(cells, path):
    """Draw coverage against N for every shape at M = 30, if matplotlib is there."""
    try:
        import matplotlib

        matplotlib.use("Agg")
        from matplotlib import pyplot
    except ImportError:
        print("matplotlib is not installed, so there is no picture (pip install matplotlib)")
        return
    figure, axes = pyplot.subplots(2, 4, figsize=(13, 6), sharex=True, sharey=True)
    styles = {"hbayes": "o-", "paper": "s--", "jeffreys": "^:", "avg ± σ_avg": "v-.", "CLT": "x:"}
    for axis, shape in zip(axes.flat[:-1], SHAPES, strict=False):
        chosen = [cell for cell in cells if cell["shape"] == shape and cell["M"] == 30]
        for method in (name for name in FINITE if name in cells[0]):
            held = [100 * cell[method]["coverage"] for cell in chosen]
            axis.plot([cell["N"] for cell in chosen], held, styles[method], label=method)
        axis.axhline(95, color="black", linewidth=0.8)
        axis.set(title=f"p ~ {shape}", xscale="log", ylim=(-3, 103))
        axis.set_xticks(TRIALS, [str(n) for n in TRIALS])
        axis.minorticks_off()
    axes.flat[-1].axis("off")
    axes.flat[-1].legend(*axes.flat[0].get_legend_handles_labels(), loc="center")
    figure.supxlabel("trials per question, N (M = 30 questions)")
    figure.supylabel("runs whose 95% interval held the true score, %")
    figure.tight_layout()
    figure.savefig(path, dpi=120)
    print(f"wrote {path}")


@contextmanager
def worker_processes(jobs):
    """Give a pool of processes that end when this one is told to, by SIGTERM or Ctrl-C."""

    def leave(number, frame):
        raise SystemExit(128 + number)

    before = signal.signal(signal.SIGTERM, leave)
    with ProcessPoolExecutor(jobs, mp_context=get_context("spawn")) as pool:
        try:
            yield pool
        except BaseException:
            workers = active_children()
            # the pool's own thread may stumble over cancelled work, and would say so at length
            threading.excepthook = lambda args: None
            pool.shutdown(wait=False, cancel_futures=True)
            for worker in workers:
                worker.terminate()
            raise
        finally:
            signal.signal(signal.SIGTERM, before)


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--runs", type=int, default=40, help="benchmarks simulated a cell")
    parser.add_argument("--sizes", type=int, nargs="+", default=None, help="values of M")
    parser.add_argument("--trials", type=int, nargs="+", default=None, help="values of N")
    shapes = list(SHAPES)
    parser.add_argument(
        "--shapes",
        nargs="+",
        choices=shapes,
        default=shapes,
        metavar="SHAPE",
        help="distributions of p, by the names in the tables",
    )
    parser.add_argument(
        "--methods",
        nargs="+",
        choices=METHODS,
        default=list(METHODS),
        help="of the simulated benchmarks; hbayes is always among them",
    )
    parser.add_argument("--parts", nargs="+", choices=PARTS, default=list(PARTS))
    parser.add_argument("--jobs", type=int, default=1, help="processes at a time")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--out", type=Path, help="folder for the numbers (JSON) and the picture")
    args = parser.parse_args()
    # the processes are the parallelism; they inherit this and start their own numpy
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    published = args.runs >= 500
    sizes = args.sizes or (SIZES if published else (30,))
    trials = args.trials or (TRIALS if published else (4, 16))
    run, seed = args.runs, args.seed
    methods = tuple(method for method in METHODS if method in {"hbayes", *args.methods})
    few = max(run // 4, 10)
    binary = [
        (shape, m, n, run, seed)
        for m in sizes
        for n in trials
        for shape in SHAPES
        if shape in args.shapes
    ]
    rubrics = [
        (shape, 30, n, few, seed) for shape in RUBRICS for n in ((4, 16) if published else (4,))
    ]
    real = [
        (model, source, n, run, seed, replace)
        for model in ("c_base", "c_rl")
        for source in ("aime24", "amc23")
        for n in ((2, 4, 8, 16) if published else (4,))
        for replace in (False, True)
    ]
    work = {
        "binary": (functools.partial(binary_cell, methods=methods), binary),
        "rubrics": (rubric_cell, rubrics),
        "real": (real_cell, real),
    }
    with worker_processes(args.jobs) as pool:
        results = {part: list(pool.map(*work[part])) for part in args.parts}
    if binary and "binary" in args.parts:
        print_binary(results["binary"], methods)
    if "rubrics" in args.parts:
        print_rubrics(results["rubrics"], few)
    if "real" in args.parts:
        print_real(results["real"])
    if args.out is not None:
        args.out.mkdir(parents=True, exist_ok=True)
        (args.out / "calibration.json").write_text(json.dumps(results, indent=1))
        if binary and "binary" in args.parts:
            draw_picture(results["binary"], args.out / "calibration.png")


if __name__ == "__main__":
    main()
