"""How often intervals about settings like these hold the truth, in simulated settings.

A model is run in S settings, N trials of M questions each. p_α is from Beta(2,3) ("mid") or
Beta(19,1) ("high"); in setting s its logit is logit p_α + e_s + i_αs, with e_s of sd t and the
interaction i of sd .3. The truth of scope "benchmark" is the mean over further settings of the
score on these questions; that of scope "population" the mean over questions, too. Of the 360 cells
44 are simulated, by a Latin square over N, M and the scores.

    python examples/settings_coverage.py                      # few runs of few cells, seconds
    python examples/settings_coverage.py --runs 300           # the fraction, 20 minutes
    python examples/settings_coverage.py --runs 300 --cells "t=.2 S=4" --all
    python examples/settings_coverage.py --runs 300 --boards  # six equal models

Coverage in % of 95% intervals about settings like these, and mean width in points: of the trials
alone, of `score_over_settings` for these questions and the population, and of a t-interval of the
settings' means. Each row is the mean of two cells of 75 to 300 runs (standard error 1.3; 1.8 in the
row t = 0, S = 4). "new": a further setting is in its interval. "p": p_of_trials < .05.

    t   S    trials      like   population  t-interval  new   p
    0   2   95|18.2   98|20.4      98        86|96.7    100   6
    0   3   93|5.2    99|7.8       98        96|10.5    100   8
    0   4   90|2.2   100|4.5       97        97|3.9     100  16
    0   8   96|9.4    98|10.2      97        95|10.7     99   4
    0  16   92|2.3    96|2.6       94        91|2.5     100   9
    .1  2   86|5.0    99|10.0      99        93|32.0    100  10
    .1  3   87|7.7    95|10.7      94        93|17.4     98   9
    .1  4   95|9.1    99|10.8      98        96|14.1    100   9
    .1  8   86|2.5    95|3.6       97        95|3.7      96  24
    .1 16   91|3.3    97|4.0       97        95|4.1      97  27
    .2  2   77|5.8    99|11.9      98        91|50.2     98  22
    .2  3   91|8.3    95|11.2      97        95|19.1     97   9
    .2  4   90|6.6    98|9.3       97        97|13.5     98  26
    .2  8   77|2.9    94|5.1       98        94|5.4      95  48
    .2 16   91|3.6    96|4.4       97        95|4.7      92  32
    .4  2   89|18.2   94|20.8      95        89|121.2    88  14
    .4  3   50|5.2    87|11.1      90        93|23.2     88  62
    .4  4   57|6.5    93|13.2      95        92|19.7     92  53
    .4  8   85|9.4    92|10.9      94        95|13.7     87  31
    .4 16   52|2.3    93|5.3       94        95|5.8      92  99

Cells with t = .4 below 90%: S = 3, N = 16, M = 100, high: 84; S = 8, N = 4, M = 30, high: 89. With
t = 0 and few settings the intervals are too wide. With t = 0 and S = 16 they are 5% wider than the
t-interval, which then holds 91%. Settings are named as treatments in 0 to 3% of runs up to t = .2.

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
