"""Draws of the model of questions: those of its prior, weighted by the likelihood.

They share no code with the package: (w, m, s) come from the prior as `stats/mixture.py` states it,
the likelihood of a question from rising factorials, and θ from the Dirichlet distribution of its
kind.
"""

from __future__ import annotations

from functools import cache
from typing import NamedTuple

import numpy as np
from scipy import special

#: Draws of the prior, and those of the posterior that are resampled from them.
_PRIOR, _POSTERIOR = 200_000, 40_000


class Draws(NamedTuple):
    """D draws of the posterior.

    `theta` has shape (D, M, C+1), `weight` (D, T, 2), `mean` (D, 2, C+1) and `strength` (D, 2).
    `effective` is the number of independent draws that these are worth.
    """

    theta: np.ndarray
    weight: np.ndarray
    mean: np.ndarray
    strength: np.ndarray
    effective: float


@cache
def prior_draws(n_categories, n_tasks):
    """Return w (D, T, 2), m (D, 2, C+1) and s (D, 2) from the prior."""
    rng = np.random.default_rng(1)
    m = rng.dirichlet(np.full(n_categories, 1.4 / n_categories), (_PRIOR, 2))
    ends = special.expit(np.array([-2.5, 6.5]) - np.log(20.0)) ** 0.7
    share = rng.uniform(*ends, (_PRIOR, 2)) ** (1.0 / 0.7)
    s = np.where(rng.random((_PRIOR, 2)) < 0.25, 1e6, 20.0 * share / (1.0 - share))
    w = rng.beta(0.075, 0.075, (_PRIOR, 1))
    if n_tasks > 1:
        c = np.exp(np.log(50.0) + 2.0 * rng.standard_normal((_PRIOR, 1)))
        a, b = np.maximum(c * w, 1e-12), np.maximum(c * (1.0 - w), 1e-12)
        w = rng.beta(a, b, (_PRIOR, n_tasks))
    return np.stack([w, 1.0 - w], axis=2), m, s


def _log_rising(a, n):
    """Return log Γ(a + n)/Γ(a)."""
    if n == int(n) and n <= 40:
        product = np.ones_like(a)
        for i in range(int(n)):
            product *= a + i
        return np.log(product)
    return special.gammaln(a + n) - special.gammaln(a)


def posterior_draws(counts, task=None):
    """Return draws given the counts of M questions, (M, C+1), and the task of each."""
    counts = np.asarray(counts, dtype=float)
    task = np.zeros(len(counts), dtype=int) if task is None else np.asarray(task)
    w, m, s = prior_draws(counts.shape[1], int(task.max()) + 1)
    alpha = np.maximum(m * s[..., None], 1e-12)
    total = alpha.sum(axis=2)
    rows, where, times = np.unique(
        np.column_stack([task, counts]), axis=0, return_inverse=True, return_counts=True
    )
    log_weight, parts = np.zeros(_PRIOR), []
    for row, often in zip(rows, times, strict=True):
        log_like = -_log_rising(total, row[1:].sum())
        for a, n in zip(np.moveaxis(alpha, 2, 0), row[1:], strict=True):
            log_like += _log_rising(a, n)
        log_part = np.log(w[:, int(row[0])] + 1e-300) + log_like
        of_row = np.logaddexp(*log_part.T)
        log_weight += often * of_row
        parts.append(np.exp(log_part[:, 1] - of_row))
    weight = np.exp(log_weight - log_weight.max())
    weight /= weight.sum()
    rng = np.random.default_rng(2)
    even = (np.arange(_POSTERIOR) + rng.random()) / _POSTERIOR
    chosen = np.minimum(np.searchsorted(np.cumsum(weight), even), _PRIOR - 1)
    theta = np.empty((_POSTERIOR, *counts.shape))
    for question, row in enumerate(where.ravel()):
        kind = (rng.random(_POSTERIOR) < parts[row][chosen]).astype(int)
        gammas = rng.standard_gamma(alpha[chosen, kind] + counts[question]) + 1e-300
        theta[:, question] = gammas / gammas.sum(axis=1, keepdims=True)
    effective = min(1.0 / (weight**2).sum(), _POSTERIOR)
    return Draws(theta, w[chosen], m[chosen], s[chosen], effective)


def summary(values):
    """Return mean, sd, and the 2.5 and 97.5% quantiles of draws."""
    return np.array([values.mean(), values.std(), *np.quantile(values, [0.025, 0.975])])
