"""Simulated models with known true scores [Hariri 2026].

A mimic (a biased-coin model) answers question α correctly with probability p_α, every trial
independently.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from lm_eval_bayes._util.validation import check_real, check_seed, check_size
from lm_eval_bayes.errors import InvalidInputError
from lm_eval_bayes.stats.arrays import FloatArray, IntArray, numeric
from lm_eval_bayes.stats.distributions import beta_quantile


def simulate_outcomes(p: npt.ArrayLike, n_trials: int, *, seed: int = 0) -> IntArray:
    """Simulate `n_trials` outcomes of every question.

    Parameters
    ----------
    p : array, shape (..., M)
        Probability of a correct trial, (L, M) for L models or (M,) for one; in [0, 1].
    n_trials : int
        N, 1 to 10⁷ (fewer for many questions).
    seed : int
        Seed of the outcomes.

    Returns
    -------
    array of int, shape (..., M, N)
        1 where correct.

    Raises
    ------
    InvalidInputError
        If a probability lies outside [0, 1], or `n_trials` or `seed` breaks its rule.

    Examples
    --------
    >>> R = simulate_outcomes([[0.1, 0.9], [0.5, 0.5]], 2000, seed=3)
    >>> R.shape, R.mean(axis=2).round(1).tolist()
    ((2, 2, 2000), [[0.1, 0.9], [0.5, 0.5]])
    """
    probabilities = numeric("p", p).astype(np.float64)
    if probabilities.ndim == 0 or probabilities.size == 0:
        rule = "hold a probability for each question"
        raise InvalidInputError.of("p", "shape", rule, f"{probabilities.shape}")
    if not ((probabilities >= 0.0) & (probabilities <= 1.0)).all():
        got = probabilities.tolist()
        raise InvalidInputError.of("p", "range", "hold probabilities in [0, 1]", got)
    n_trials = check_size("n_trials", n_trials, 1, probabilities.size)
    rng = np.random.default_rng(check_seed(seed))
    is_right = rng.random((*probabilities.shape, n_trials)) < probabilities[..., None]
    return is_right.astype(np.int64)


def mimics_with_means(
    means: npt.ArrayLike, n_questions: int, *, strength: float = 2.0
) -> FloatArray:
    """Return mimics whose mean over the questions is exactly as given.

    The M values are the midpoint quantiles of Beta(s·m, s(1−m)), the same in every call, with
    m chosen such that their mean over the questions is the wanted one. So the true score of
    mimic l is means[l], and two equal means are a true tie. Question α is the α-th hardest
    for every model.

    Parameters
    ----------
    means : array, shape (L,)
        True scores, strictly between 0 and 1.
    n_questions : int
        M, 1 to 10⁷ (fewer for many models).
    strength : float
        s in (0, 1e9]: small makes questions very easy or very hard, large makes them alike.

    Returns
    -------
    array, shape (L, M)

    Raises
    ------
    InvalidInputError
        If a mean is outside (0, 1), or another argument breaks its rule.

    Examples
    --------
    >>> p = mimics_with_means([0.3642, 0.6213], 30)
    >>> p.mean(axis=1).round(12).tolist(), bool(p.min() < 0.01), bool(p.max() > 0.99)
    ([0.3642, 0.6213], True, True)
    """
    wanted = numeric("means", means).astype(np.float64)
    if wanted.ndim != 1 or wanted.size == 0:
        got = f"shape {wanted.shape}"
        raise InvalidInputError.of("means", "shape", "be 1-D, one entry per model", got)
    if not ((wanted > 0.0) & (wanted < 1.0)).all():
        got = wanted.tolist()
        raise InvalidInputError.of("means", "range", "lie strictly between 0 and 1", got)
    n_questions = check_size("n_questions", n_questions, 1, wanted.size)
    rule = "be a finite number above 0, at most 1e9"
    s = check_real("strength", strength, rule, lambda x: 0.0 < x <= 1e9)
    u = (np.arange(n_questions) + 0.5) / n_questions
    low, high = np.zeros_like(wanted), np.ones_like(wanted)
    # the mean of the quantiles rises with m: sixty halvings reach the last digit
    for _ in range(60):
        middle = 0.5 * (low + high)
        below = _quantiles(u, s, middle).mean(axis=1) < wanted
        low, high = np.where(below, middle, low), np.where(below, high, middle)
    return _quantiles(u, s, 0.5 * (low + high))


def _quantiles(u: FloatArray, s: float, m: FloatArray) -> FloatArray:
    """Return the quantiles u of Beta(s·m, s(1−m)) for each m, (L, M)."""
    m = m[:, None]
    return beta_quantile(s * m, s * (1.0 - m), u)
