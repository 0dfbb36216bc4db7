"""How often the interval of a mean over tasks holds the truth, in simulated benchmarks.

Every case is a number of tasks, their true means, questions per task and trials per question. The
success probabilities of a task's questions are Beta(s·mean, s·(1 − mean)), and for rubrics with the
scores 0, ½, 1 Dirichlet(s·q) with q the shares of Binomial(2, mean). Compared are
`mean_over_tasks`, where the tasks share a prior, and for scope "population" the stratified CLT. The
truth of scope "benchmark" is the mean of the questions' probabilities, that of scope "population"
the mean of the tasks' true means.

    python examples/task_means.py                 # few runs of the quick cases, under a minute
    python examples/task_means.py --runs 300      # all cases
"""

import argparse

import numpy as np
from scipy import stats

import lm_eval_bayes as leb

LEVEL = 0.95
Z = stats.norm.ppf(0.5 + LEVEL / 2)


def between(mean, strength, n_tasks):
    """Return a function that draws the true means of tasks, Beta with this mean and strength."""
    return lambda rng: rng.beta(strength * mean, strength * (1 - mean), n_tasks)


def fixed(*means):
    """Return a function that gives these true means."""
    return lambda rng: np.array(means)


#: The means, sizes and trials of a group of tasks that have little in common.
MIXED = (0.03, 0.2, 0.45, 0.6, 0.75, 0.9, 0.97, 0.99)
SIZES, TRIALS = (15, 30, 30, 50, 100, 200, 300, 40), (16, 4, 8, 4, 1, 1, 1, 2)

#: name: (true means of the tasks, questions per task, trials per question, s)
CASES = {
    "57 tasks x 100, N = 1, around .85": (between(0.85, 40, 57), 100, 1, 4.0),
    "57 tasks x 100, N = 1, around .95": (between(0.95, 60, 57), 100, 1, 4.0),
    "20 hard tasks x 30, N = 1, around .05": (between(0.05, 20, 20), 30, 1, 4.0),
    "27 tasks x 30, N = 4, around .9": (between(0.9, 30, 27), 30, 4, 4.0),
    "1 task, Beta(.1,3), N = 4": (fixed(0.1 / 3.1), 30, 4, 3.1),
    "16 tasks, Beta(.1,3), N = 4": (fixed(*[0.1 / 3.1] * 16), 30, 4, 3.1),
    "64 tasks, Beta(.1,3), N = 4": (fixed(*[0.1 / 3.1] * 64), 30, 4, 3.1),
    "4 contests x 30, N = 1": (fixed(0.7, 0.55, 0.8, 0.4), 30, 1, 2.5),
    "4 contests x 30, N = 4": (fixed(0.7, 0.55, 0.8, 0.4), 30, 4, 2.5),
    "4 contests x 30, N = 16": (fixed(0.7, 0.55, 0.8, 0.4), 30, 16, 2.5),
    "4 contests x 30, U-shaped questions, N = 1": (fixed(0.7, 0.55, 0.8, 0.4), 30, 1, 0.6),
    "4 contests x 30, equal questions, N = 1": (fixed(0.7, 0.55, 0.8, 0.4), 30, 1, 1e6),
    "half of 40 tasks at .5, half at .99, x 100, N = 1": (
        fixed(*[0.5] * 20, *[0.99] * 20),
        100,
        1,
        50.0,
    ),
    "8 mixed tasks, 15-300 questions, N = 1-16": (fixed(*MIXED), SIZES, TRIALS, 2.5),
    "20 equal tasks x 15, N = 2, around .97": (fixed(*[0.97] * 20), 15, 2, 3.0),
    "6 rubric tasks x 30, N = 4": (fixed(0.1, 0.3, 0.5, 0.6, 0.8, 0.9), 30, 4, 3.0),
    "6 rubric tasks x 30, N = 1": (fixed(0.1, 0.3, 0.5, 0.6, 0.8, 0.9), 30, 1, 3.0),
}
#: Cases of few tasks, for a run without options.
QUICK = ("20 hard tasks", "4 contests x 30, N")


def simulate(case, run, seed):
    """Return the outcomes of all tasks of a simulated benchmark, and the truth by scope."""
    true_means, n_questions, n_trials, s = CASES[case]
    rng = np.random.default_rng([seed, list(CASES).index(case), run])
    tasks, benchmark, means = {}, [], true_means(rng)
    categories = 2 if "rubric" in case else 1
    sizes = np.broadcast_to(n_questions, means.size), np.broadcast_to(n_trials, means.size)
    for i, (mean, size, trials) in enumerate(zip(means, *sizes, strict=True)):
        shares = stats.binom.pmf(np.arange(categories + 1), categories, mean)
        p = rng.dirichlet(s * shares, size)
        counts = np.array([rng.multinomial(trials, row) for row in p])
        tasks[f"task {i}"] = leb.Outcomes.from_counts(counts)
        benchmark.append((p @ np.linspace(0, 1, categories + 1)).mean())
    return tasks, {"benchmark": np.mean(benchmark), "population": np.mean(means)}


def stratified_clt(tasks):
    """Return the interval of the normal approximation, each task a stratum."""
    scores = [each.counts @ each.weights / each.n_trials for each in tasks.values()]
    mean = np.mean([score.mean() for score in scores])
    sd = np.sqrt(sum(score.var(ddof=1) / score.size for score in scores)) / len(scores)
    return mean - Z * sd, mean + Z * sd


def study(case, runs, seed):
    """Return coverage and mean width by (scope, method)."""
    ends = {}
    for run in range(runs):
        tasks, truth = simulate(case, run, seed)
        for scope in ("benchmark", "population"):
            interval = leb.mean_over_tasks(tasks, scope=scope, level=LEVEL).interval()
            by_method = {"shared": (interval.low, interval.high)}
            if scope == "population":
                by_method["stratified CLT"] = stratified_clt(tasks)
            for method, (low, high) in by_method.items():
                ends.setdefault((scope, method), []).append(
                    (low <= truth[scope] <= high, high - low)
                )
    return {key: np.mean(values, axis=0) for key, values in ends.items()}


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--runs", type=int, help="runs per case; left out, 3 of the quick cases")
    parser.add_argument("--seed", type=int, default=20_261_123, help="of the simulation")
    parser.add_argument("--cases", help="only cases whose names contain this text")
    options = parser.parse_args()
    runs = options.runs or 3
    print(f"coverage in % (mean width), nominal {100 * LEVEL:g}%, {runs} runs per case")
    print(f"standard error at 95%: {100 * np.sqrt(0.95 * 0.05 / runs):.1f} points")
    for case in CASES:
        if options.cases and options.cases not in case:
            continue
        if options.runs is None and not case.startswith(QUICK):
            continue
        print(case, flush=True)
        for (scope, method), (coverage, width) in study(case, runs, options.seed).items():
            print(f"  {scope:10s}  {method:14s}  {100 * coverage:5.1f}  ({width:.4f})", flush=True)


if __name__ == "__main__":
    main()
