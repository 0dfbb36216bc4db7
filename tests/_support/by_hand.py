"""Numbers of saved runs computed anew with numpy and scipy: nothing here is of the package."""

from __future__ import annotations

import itertools
import math

import numpy as np
from scipy import special


def uniform_prior(counts, weights=(0.0, 1.0)):
    """Return mean and sd of the score with a uniform prior on every question."""
    nu = np.asarray(counts, dtype=float) + 1.0
    weights = np.asarray(weights)
    total = nu.sum(axis=1)
    mean = nu @ weights / total
    variance = (nu @ weights**2 / total - mean**2) / (total + 1.0)
    return float(mean.mean()), float(math.sqrt(variance.sum()) / len(nu))


class LearnedPrior:
    """p_α ~ Beta(s m, s (1 − m)), m ~ Beta(.7, .7), s/(20 + s) ~ Beta(.7, 1), on a plain grid."""

    def __init__(self, right, wrong, size=160):
        self.right, self.wrong = np.asarray(right, float), np.asarray(wrong, float)
        share = (np.arange(size) + 0.5) / size
        # even in the prior masses below m and below s
        m, s = special.betaincinv(0.7, 0.7, share), 20.0 / (share ** (-1.0 / 0.7) - 1.0)
        self.m, self.s = (side.ravel() for side in np.meshgrid(m, s))
        a, b = self.s * self.m, self.s * (1.0 - self.m)
        log = np.zeros(a.size)
        for r, w in zip(self.right, self.wrong, strict=True):
            log += special.betaln(a + r, b + w) - special.betaln(a, b)
        self.weight = np.exp(log - log.max())
        self.weight /= self.weight.sum()

    def questions(self):
        """Return the posterior mean of every question's p."""
        n_trials = self.right + self.wrong
        shrunk = (self.right[:, None] + self.s * self.m) / (n_trials[:, None] + self.s)
        return shrunk @ self.weight

    def draw(self, n, seed):
        """Draw every question's p jointly, shape (n, M)."""
        rng = np.random.default_rng(seed)
        node = rng.choice(self.weight.size, size=n, p=self.weight)
        s, m = self.s[node, None], self.m[node, None]
        return rng.beta(s * m + self.right, s * (1.0 - m) + self.wrong)


def g_pass_at_k(row, k, needed=1):
    """Return the share of k-subsets with so many right trials, by looking at each."""
    subsets = list(itertools.combinations(row, k))
    return sum(sum(subset) >= needed for subset in subsets) / len(subsets)


def maj_at_k(row, answers, k):
    """Return what a plurality vote earns on average, by looking at every k-subset."""
    earned = []
    for chosen in itertools.combinations(range(len(row)), k):
        votes = {}
        for i in chosen:
            if row[i]:
                votes["right"] = votes.get("right", 0) + 1
            elif answers[i] is not None:
                votes[answers[i]] = votes.get(answers[i], 0) + 1
        best = max(votes.values(), default=0)
        leaders = [answer for answer, n in votes.items() if n == best]
        earned.append(("right" in leaders) / len(leaders) if leaders else 0.0)
    return sum(earned) / len(earned)
