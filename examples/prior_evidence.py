"""Does a learned weight of prior trials ever cost anything? [Hariri 2026, Fig. 2].

Eight models, 30 questions. The older versions have fixed probabilities, and each new version draws
its own from Beta(a ± 1, b ± 1). D trials per question of the older versions are prior evidence, and
N of the new ones are ranked. Columns: Kendall's tau_b with the true ranking of the new versions
without prior trials, the gain of prior trials at full weight, and the gain where the weight is
learned. "wrong": the older versions have the probabilities 1 - p; "one wrong": that of the worst
model is the best one's.

The posteriors are computed by sums over tables, apart from the package's code.

    python examples/prior_evidence.py [--replicates 400] [--seed 0]
"""

from __future__ import annotations

import argparse

import numpy as np
from scipy import special

from lm_eval_bayes import kendall_tau_b, mimics_with_means, update_mimics
from lm_eval_bayes.stats.simulation import ORIGINAL_MEANS

M = 30
# m, s and their prior: m ~ Beta(.7, .7), s / (20 + s) ~ Beta(.7, 1), in logit m and log s
LOGIT, LOG_S = (
    grid.ravel()
    for grid in np.meshgrid(np.linspace(-6, 6, 37), np.linspace(-3, 9, 13), indexing="ij")
)
MEAN, S = special.expit(LOGIT), np.exp(LOG_S)
LOG_PRIOR = 0.7 * (np.log(MEAN) + np.log1p(-MEAN)) + 0.7 * LOG_S - 1.7 * np.log(20 + S)
# the weight of a prior trial, and the share of priors that are related to their model
STRENGTHS = (np.arange(8) + 0.5) / 8
SHARES = np.append(0.0, (np.arange(20) + 0.5) / 20)
SHARE_PRIOR = np.append(0.5, np.full(20, 0.5 / 20))


def scores(hist, x, d, x0, strength, uniform):
    """Posterior means, and log p(R | R0, λ), for how often each pair of counts occurs."""
    n = x.max()
    if uniform:
        a, b = 1 + strength * x0, 1 + strength * (d - x0)
        ratio = special.betaln(a + x, b + n - x) - special.betaln(a, b)
        return hist @ ((a + x) / (a + b + n)) / M, hist @ ratio
    a = S * MEAN + strength * x0[:, None]
    b = S * (1 - MEAN) + strength * (d - x0[:, None])
    base = special.betaln(S * MEAN, S * (1 - MEAN))
    both = hist @ (special.betaln(a + x[:, None], b + n - x[:, None]) - base) + LOG_PRIOR
    prior = hist @ (special.betaln(a, b) - base) + LOG_PRIOR
    weight = np.exp(both - special.logsumexp(both, axis=1, keepdims=True))
    mean = (weight * (hist @ ((a + x[:, None]) / (a + b + n)) / M)).sum(axis=1)
    return mean, special.logsumexp(both, axis=1) - special.logsumexp(prior, axis=1)


def learned_mean(means, evidence):
    """Average over the weights: (R, L, 1 + J) means and log evidence, the first without prior."""
    factor = np.exp(evidence[..., 1:] - evidence[..., :1])
    either = SHARES[:, None] * factor[:, :, None, :] + (1 - SHARES)[:, None]
    joint = SHARE_PRIOR[:, None] * either.prod(axis=1)
    joint /= joint.sum(axis=(1, 2), keepdims=True)
    related = joint[:, None] * SHARES[:, None] * factor[:, :, None, :] / either
    weight = related.sum(axis=2)
    unrelated = 1 - weight.sum(axis=2)
    mean = unrelated * means[..., 0] + (weight * means[..., 1:]).sum(axis=2)
    return np.where(unrelated >= 0.8, means[..., 0], mean)


def study(older, new, d, n, uniform, rng):
    """Kendall's tau_b of every replicate: without prior, at full weight, and with it learned."""
    truth, shape = new.mean(axis=2), new.shape[:2]
    x = rng.binomial(n, new)
    x0 = rng.binomial(d, np.broadcast_to(older, new.shape))
    cells = (x * (d + 1) + x0).reshape(-1, M)
    hist = np.stack([np.bincount(row, minlength=(n + 1) * (d + 1)) for row in cells]).astype(float)
    table = np.repeat(np.arange(n + 1), d + 1), d, np.tile(np.arange(d + 1), n + 1)
    parts = [scores(hist, *table, weight, uniform) for weight in (0.0, *STRENGTHS, 1.0)]
    means, evidence = (
        np.stack(part, axis=-1).reshape(*shape, -1) for part in zip(*parts, strict=True)
    )
    ranked = means[..., 0], means[..., -1], learned_mean(means[..., :-1], evidence[..., :-1])
    return [kendall_tau_b(score, truth) for score in ranked]


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--replicates", type=int, default=40)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--prior", default="2,16", help="the values of D")
    parser.add_argument("--trials", default="1,4,16", help="the values of N")
    options = parser.parse_args()
    rng = np.random.default_rng(options.seed)
    old = mimics_with_means(ORIGINAL_MEANS, M, strength=15.0)
    priors = {"right": old, "wrong": 1 - old, "one wrong": np.concatenate([old[-1:], old[1:]])}
    i = np.arange(1.0, 9.0)
    print(f"{options.replicates} replicates, gains ± standard error")
    print("score      prior       D    N   tau_b   full weight      learned")
    for d in map(int, options.prior.split(",")):
        for n in map(int, options.trials.split(",")):
            seed = int(rng.integers(2**31))
            new = update_mimics(i + 3, 12 - i, M, versions=options.replicates, seed=seed)
            for name, older in priors.items():
                for score in ("bayes@N", "hbayes@N"):
                    without, *others = study(older, new, d, n, score == "bayes@N", rng)
                    gains = [tau - without for tau in others]
                    cells = (
                        f"{gain.mean():+.3f} ± {gain.std() / options.replicates**0.5:.3f}"
                        for gain in gains
                    )
                    print(
                        f"{score:9s}  {name:9s}  {d:3d}  {n:3d}   {without.mean():.3f}  "
                        + "  ".join(cells)
                    )


if __name__ == "__main__":
    main()
