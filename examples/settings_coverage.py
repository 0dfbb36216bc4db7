"""How often intervals about settings like these hold the truth, in simulated settings.

A model is run in S settings, N trials of M questions each. p_α is from Beta(2,3) ("mid") or
Beta(19,1) ("high"); in setting s its logit is logit p_α + e_s + i_αs, with e_s of sd t and the
interaction i of sd .3. The truth of scope "benchmark" is the mean over further settings of the
score on these questions; that of scope "population" the mean over questions, too. There are 360
cells; without `--all` 44 of them are simulated, by a Latin square over N, M and the scores.

    python examples/settings_coverage.py                      # few runs of few cells, seconds
    python examples/settings_coverage.py --runs 300           # the fraction, 20 minutes
    python examples/settings_coverage.py --runs 60 --all      # an hour
    python examples/settings_coverage.py --runs 300 --cells "t=.2 S=4" --all
    python examples/settings_coverage.py --runs 300 --boards  # six equal models

Coverage in % of 95% intervals about settings like these, and mean width in points: of the trials
alone, of `score_over_settings` for these questions and the population, and of a t-interval of the
settings' means. Each row is the mean of 18 cells of 60 runs (standard error .7). "new": a further
setting is in its interval. "p": p_of_trials < .05. "named": settings are named as treatments.

    t   S    trials      like  population  t-interval   new   p  named
    0   2    94|9.6     99|13.4      98         88|48.5    100   5   0
    0   3    94|7.9     99|10.3      97         94|15.5    100   6   0
    0   4    93|6.8     98|8.5       96         94|10.5     99   7   0
    0   8    93|4.8     97|5.6       96         94|5.7      99   8   1
    0  16    94|3.4     96|3.8       95         95|3.7      99   7   1
    .1  2    89|9.5     99|13.7      98         88|54.9     99   9   0
    .1  3    89|7.8     98|10.6      97         94|17.1     99  11   0
    .1  4    87|6.7     97|8.8       97         94|11.1     99  15   1
    .1  8    90|4.8     96|5.9       95         95|6.2      97  19   2
    .1 16    90|3.4     96|4.0       95         95|4.1      97  27   3
    .2  2    81|9.5     97|14.3      97         88|62.7     98  17   0
    .2  3    83|7.9     96|11.4      97         95|19.9     97  24   1
    .2  4    83|6.8     97|9.6       96         94|13.4     96  28   2
    .2  8    82|4.9     95|6.6       96         95|7.3      95  38   4
    .2 16    83|3.4     95|4.6       95         95|4.7      93  48   4
    .4  2    69|9.6     90|15.8      93         91|88.6     88  32   1
    .4  3    68|8.0     90|13.5      92         93|28.1     89  39   7
    .4  4    68|6.8     91|11.6      94         94|18.6     87  50   8
    .4  8    68|4.9     93|8.5       95         96|10.2     90  63   9
    .4 16    67|3.5     93|6.0       96         94|6.6      91  74   7

With t = 0 and few settings the intervals are too wide; from S = 8 on they are at most as wide as
the t-interval, with t = 0 and S = 16 by 3% wider. Of the 270 cells with t <= .2 one is below 90%.
Of those with t = .4 the lowest were run 300 times: S = 3, N = 16, M = 100, high: 85; S = 2, N = 16,
M = 100, mid: 87; S = 2, N = 4, M = 30, mid: 87; S = 2, N = 16, M = 30: 88 and 88; S = 3, N = 16,
M = 15, mid: 88. By N they hold 94, 91 and 90%.

200 boards of six equal models, t = .2, 4 settings x 16 trials, 30 questions: some pair is separated
on 3.5%; intervals of a model hold 95.0%, with one t for the board 94.4% at .96 of the width;
those of differences 95.7% paired by setting, 93.8% unpaired.
"""

import argparse
import itertools
from dataclasses import replace

import numpy as np
from scipy import special, stats

from lm_eval_bayes.stats.ranking.simultaneous import compare_simultaneously
from lm_eval_bayes.stats.settings.comparison import difference_over_settings, errors_over_settings
from lm_eval_bayes.stats.settings.posterior import score_over_settings, share_t

LEVEL, INTERACTION = 0.95, 0.3
SDS, SETTINGS = (0.0, 0.1, 0.2, 0.4), (2, 3, 4, 8, 16)
TRIALS, QUESTIONS = (1, 4, 16), (15, 30, 100)
SHAPES = {"mid": (2, 3), "high": (19, 1)}
#: Small, with scores near the end: 30 to 60 trials in all.
HARD = [(t, S, 1, 15, "high") for t in (0.0, 0.2) for S in (2, 4)]
NODES, MASSES = np.polynomial.hermite_e.hermegauss(31)
MASSES = MASSES / MASSES.sum()


def cells(every):
    """Return all cells (t, S, N, M, shape), or two for each t and S."""
    if every:
        return list(itertools.product(SDS, SETTINGS, TRIALS, QUESTIONS, SHAPES))
    fraction = []
    for (i, t), (j, S) in itertools.product(enumerate(SDS), enumerate(SETTINGS)):
        for k, shape in enumerate(SHAPES):
            fraction.append((t, S, TRIALS[(i + j + k) % 3], QUESTIONS[(2 * i + j + k) % 3], shape))
    return fraction + [cell for cell in HARD if cell not in fraction]


def name_of(cell):
    t, S, N, M, shape = cell
    return f"t={t:g} S={S} N={N} M={M} {shape}".replace("=0.", "=.")


def over_settings(logit, sd):
    """Return the mean of expit(logit + e), e normal."""
    return special.expit(np.asarray(logit)[..., None] + sd * NODES) @ MASSES


def population_logits(shape):
    """Return logits of many questions, quantiles of their distribution."""
    return special.logit(stats.beta.ppf((np.arange(4_000) + 0.5) / 4_000, *SHAPES[shape]))


def simulate(cell, rng):
    """Return counts (S, M, 2), the truths by (settings, scope), and scores of two new settings."""
    t, S, N, M, shape = cell
    logit = special.logit(np.clip(rng.beta(*SHAPES[shape], M), 1e-9, 1 - 1e-9))
    effect = t * rng.standard_normal((S + 2, 1))
    p = special.expit(logit + effect + INTERACTION * rng.standard_normal((S + 2, M)))
    right = rng.binomial(N, p[:S])
    spread, many = np.hypot(t, INTERACTION), population_logits(shape)
    truth = {
        ("these", "benchmark"): p[:S].mean(),
        ("these", "population"): over_settings(many + effect[:S], INTERACTION).mean(),
        ("like", "benchmark"): over_settings(logit, spread).mean(),
        ("like", "population"): over_settings(many, spread).mean(),
    }
    return np.stack([N - right, right], axis=-1), truth, p[S:].mean(axis=1)


def t_interval(scores):
    """Return the t-interval of the settings' means."""
    reach = stats.t.ppf(0.5 + LEVEL / 2, scores.size - 1) * scores.std(ddof=1) / scores.size**0.5
    return scores.mean() - reach, scores.mean() + reach


def study(cell, runs, seed):
    """Return the mean of every measure over runs of a cell."""
    t, S, N, M, shape = cell
    measures = {}
    for run in range(runs):
        key = [seed, round(100 * t), S, N, M, list(SHAPES).index(shape), run]
        counts, truth, new = simulate(cell, np.random.default_rng(key))
        posterior = score_over_settings(counts, level=LEVEL)
        like = truth["like", "benchmark"]
        ends = {
            "trials": (posterior.these["benchmark"], like),
            **{
                f"{settings} {scope}": (getattr(posterior, settings)[scope], truth[settings, scope])
                for settings, scope in truth
            },
            "new setting": (posterior.spread.new_setting, new[0]),
        }
        row = {}
        for name, (interval, true) in ends.items():
            row[name] = interval.low <= true <= interval.high
            row[f"width {name}"] = interval.high - interval.low
        low, high = t_interval(posterior.scores)
        row |= {"t-interval": low <= like <= high, "width t-interval": high - low}
        row["apart"] = abs(new[0] - new[1]) <= posterior.spread.apart
        row["p < .05"] = posterior.spread.p_of_trials < 0.05
        row["named"] = posterior.spread.is_treatment
        row["t held"] = posterior.spread.logit_sd.low <= t <= posterior.spread.logit_sd.high
        for name, value in row.items():
            measures.setdefault(name, []).append(value)
    return {name: float(np.mean(values)) for name, values in measures.items()}


COLUMNS = {
    "trials": "trials",
    "these benchmark": "these",
    "like benchmark": "like",
    "like population": "pop",
    "t-interval": "t-int",
    "new setting": "new",
    "apart": "apart",
    "p < .05": "p<.05",
    "named": "named",
    "t held": "t",
}


def print_row(name, means, runs):
    shown = []
    for key, heading in COLUMNS.items():
        width = means.get(f"width {key}")
        text = f"{100 * means[key]:5.1f}" + (f"|{100 * width:4.1f}" if width is not None else "")
        shown.append(f"{heading} {text}")
    print(f"{name:30s} {runs:5d}  " + "  ".join(shown), flush=True)


def print_groups(results, runs):
    """Print means over the cells by t and S, by t, and by N, M and score."""
    groups = {
        "t and S": lambda cell: f"t={cell[0]:g} S={cell[1]}",
        "t": lambda cell: f"t={cell[0]:g}",
        "N": lambda cell: f"N={cell[2]}",
        "M": lambda cell: f"M={cell[3]}",
        "score": lambda cell: cell[4],
    }
    for heading, group_of in groups.items():
        print(f"means by {heading}, of the fraction")
        members = {}
        for cell, means in results.items():
            if cell not in HARD:
                members.setdefault(group_of(cell), []).append(means)
        for name, several in members.items():
            means = {key: np.mean([each[key] for each in several]) for key in several[0]}
            print_row(name, means, runs * len(several))


def boards(runs, seed, t=0.2, S=4, N=16, M=30, L=6):
    """Print how often equal models are separated, and what intervals of differences hold."""
    measures = {}
    for run in range(runs):
        rng = np.random.default_rng([seed, 6, run])
        logit = special.logit(rng.beta(2, 3, M))
        effect = t * rng.standard_normal((L, S, 1)) + INTERACTION * rng.standard_normal((L, S, M))
        right = rng.binomial(N, special.expit(logit + effect))
        truth = over_settings(logit, np.hypot(t, INTERACTION)).mean()
        models = [
            score_over_settings(np.stack([N - x, x], axis=-1), labels=[f"{i}" for i in range(S)])
            for x in right
        ]
        separated = compare_simultaneously([errors_over_settings(models)], L, LEVEL, run).separated
        row = {"false separation": separated.any(), "models": [], "shared": [], "paired": []}
        row |= {"unpaired": [], "ratio": []}
        for own, shared in zip(models, share_t(models), strict=True):
            (a, b) = (each.like["benchmark"] for each in (own, shared))
            row["models"].append(a.low <= truth <= a.high)
            row["shared"].append(b.low <= truth <= b.high)
            row["ratio"].append((b.high - b.low) / (a.high - a.low))
        for i in range(0, L, 2):
            paired = difference_over_settings(models[i], models[i + 1])
            other = replace(models[i + 1], labels=tuple(f"other {s}" for s in range(S)))
            unpaired = difference_over_settings(models[i], other)
            row["paired"].append(paired.low <= 0 <= paired.high)
            row["unpaired"].append(unpaired.low <= 0 <= unpaired.high)
        for name, value in row.items():
            measures.setdefault(name, []).append(np.mean(value))
    print(f"{runs} boards of {L} equal models, t={t:g}, {S} settings x {N} trials, {M} questions")
    for name, values in measures.items():
        print(f"  {name:20s} {100 * np.mean(values):5.1f}%", flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--runs", type=int, default=3, help="runs per cell")
    parser.add_argument("--seed", type=int, default=20_261_129, help="of the simulation")
    parser.add_argument("--cells", default="", help="only cells whose names contain this text")
    parser.add_argument("--all", action="store_true", help="all 360 cells, not the fraction")
    parser.add_argument("--boards", action="store_true", help="boards of equal models alone")
    options = parser.parse_args()
    if options.boards:
        boards(options.runs, options.seed)
        return
    chosen = [cell for cell in cells(options.all) if options.cells in name_of(cell)]
    if options.runs < 10 and not options.cells:
        chosen = chosen[::9]
    print(f"coverage in % | mean width in points, nominal {100 * LEVEL:g}%", flush=True)
    results = {}
    for cell in chosen:
        results[cell] = study(cell, options.runs, options.seed)
        print_row(name_of(cell), results[cell], options.runs)
    print_groups(results, options.runs)


if __name__ == "__main__":
    main()
