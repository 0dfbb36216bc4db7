"""What is an earlier run worth as prior evidence, where the score has shifted since?

Thirty questions, D trials each of an earlier version and N of the new one. First the questions'
probabilities are Beta(2, 2) and differ by one shift in logits between the versions: how often 95%
intervals hold the score, and in brackets their mean width in units of that without the earlier run,
where the shift is learned (auto) and where every earlier trial counts as a trial (weight 1).

Then Kendall's tau_b with the true ranking of eight new versions [Hariri 2026, Fig. 2], whose
probabilities are drawn from Beta(a ± 1, b ± 1) anew while those of the older versions are fixed:
without the earlier runs, and its gain with them. "wrong": the older versions have the probabilities
1 - p.

    python examples/prior_evidence.py [--runs 1] [--seed 0]
"""

from __future__ import annotations

import argparse
from dataclasses import replace

import numpy as np
from scipy import special

from lm_eval_bayes import Outcomes, hbayes_at_n, kendall_tau_b, learn_shift
from lm_eval_bayes.stats.simulation import mimics_with_means

M = 30
#: Means of the eight original models [Hariri 2026, §2.8].
ORIGINAL_MEANS = (0.3021, 0.3166, 0.4144, 0.4985, 0.5351, 0.5759, 0.6679, 0.7487)
DESIGNS = ((8, 4), (8, 8), (8, 16), (1, 4))


def outcomes_of(new, old, n, d, rng):
    """Return n trials of the new version with d of the old one as prior trials."""
    x, x0 = rng.binomial(n, new), rng.binomial(d, old)
    return Outcomes.from_counts(np.c_[n - x, x], prior_counts=np.c_[d - x0, x0])


def posteriors(models):
    """Return hbayes@N of every model: without the earlier run, with auto, and with weight 1."""
    shift = learn_shift(models)
    return [
        [
            hbayes_at_n(each)
            for each in (model.without_prior(), replace(model, prior_strength=shift), model)
        ]
        for model in models
    ]


def coverage(runs, rng):
    print("shift   D   N   without    auto            weight 1")
    for shift in (-1.0, -0.5, 0.0, 0.5, 1.0):
        for d, n in DESIGNS:
            held, width = np.empty((2, runs, 3))
            for run in range(runs):
                old = special.logit(rng.beta(2, 2, M))
                new = special.expit(old + shift)
                model = outcomes_of(new, special.expit(old), n, d, rng)
                intervals = [posterior.interval() for posterior in posteriors([model])[0]]
                held[run] = [i.low <= new.mean() <= i.high for i in intervals]
                width[run] = [i.width / intervals[0].width for i in intervals]
            cells = [
                f"{100 * h:5.1f}% ({w:.2f})"
                for h, w in zip(held.mean(axis=0), width.mean(axis=0), strict=True)
            ]
            print(
                f"{shift:+5.1f}  {d:2d}  {n:2d}   {cells[0][:6]}   {cells[1]}   {cells[2]}",
                flush=True,
            )


def rankings(runs, rng):
    print("\nprior    D   N   tau_b   gain with auto   gain with weight 1")
    right = mimics_with_means(ORIGINAL_MEANS, M, strength=15.0)
    i = np.arange(1.0, 9.0)
    for name, older in (("right", right), ("wrong", 1.0 - right)):
        for d, n in ((2, 1), (16, 1), (16, 4), (16, 16)):
            a, b = (
                rng.choice((-1, 1), (2, runs, 8, 1)) + np.stack([i + 3, 12 - i])[:, None, :, None]
            )
            new = rng.beta(a, b, (runs, 8, M))
            tau = np.empty((runs, 3))
            for run in range(runs):
                models = [outcomes_of(*p, n, d, rng) for p in zip(new[run], older, strict=True)]
                mu = np.array([[p.mu for p in of_model] for of_model in posteriors(models)])
                tau[run] = [kendall_tau_b(scores, new[run].mean(axis=1)) for scores in mu.T]
            gain = tau[:, 1:] - tau[:, :1]
            cells = [
                f"{mean:+.3f} ± {sd / runs**0.5:.3f}"
                for mean, sd in zip(gain.mean(axis=0), gain.std(axis=0), strict=True)
            ]
            print(
                f"{name}  {d:2d}  {n:2d}   {tau[:, 0].mean():.3f}   {cells[0]}   {cells[1]}",
                flush=True,
            )


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--runs", type=int, default=1)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    rng = np.random.default_rng(options.seed)
    coverage(options.runs, rng)
    rankings(max(1, options.runs // 5), rng)


if __name__ == "__main__":
    main()
