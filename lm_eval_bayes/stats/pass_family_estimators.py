"""Estimators of Pass@k, Pass^k, G-Pass@k and their relatives from a finite bank of trials.

An estimator is the expected score of a random k-subset of the given trials, so k <= N.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from functools import lru_cache
from math import isqrt
from typing import Any, NamedTuple

import numpy as np

from lm_eval_bayes._util.validation import Tau, check_k, successes_needed
from lm_eval_bayes.stats.arrays import FloatArray, IntArray, read_only
from lm_eval_bayes.stats.outcomes import (
    Outcomes,
    distinct_pairs,
    require_binary,
    require_trials,
)
from lm_eval_bayes.stats.results import Estimate
from lm_eval_bayes.stats.states import MOST_DEGREE

#: The most numbers of successes that are all listed; of more, only the likely ones are.
_MOST_SUCCESSES = 1_000_000


#: The successes among k trials that a quantity asks for; None for a credit that grows with the
#: successes J, (2/k) max(J − ⌈k/2⌉, 0).
THRESHOLDS: Mapping[str, Callable[[int, Any], int | None]] = {
    "pass@k": lambda k, tau: 1,
    "pass^k": lambda k, tau: k,
    "g-pass@k": lambda k, tau: successes_needed(tau, k),
    "mg-pass@k": lambda k, tau: None,
}


class PassQuantity(NamedTuple):
    """A member of the family.

    `name` is "pass@k", "pass^k", "g-pass@k" or "mg-pass@k"; `tau` is the
    threshold of "g-pass@k".
    """

    name: str
    k: int
    tau: Tau | None = None


def quantities_by_row(ks: Iterable[int], tau: Tau | None) -> dict[str, PassQuantity]:
    """Return the members of the family that a table of results has, by their rows' names.

    At k = 1 every member is the mean score, so that a single row is enough. G-Pass and mG-Pass,
    whose posteriors end at k = 500, have none above.

    Parameters
    ----------
    ks : iterable of int
        The values of k.
    tau : float, Fraction, Decimal or None
        The threshold of G-Pass; None for Pass@k and Pass^k alone.

    Examples
    --------
    >>> list(quantities_by_row([1, 4], 0.5))
    ['pass@1', 'pass@4', 'pass^4', 'g-pass@4_0.5', 'mg-pass@4']
    """
    ks = tuple(ks)
    above_one = [k for k in ks if k > 1]
    rows = {f"pass@{k}": PassQuantity("pass@k", k) for k in ks}
    rows |= {f"pass^{k}": PassQuantity("pass^k", k) for k in above_one}
    if tau is None:
        return rows
    shares = [k for k in above_one if 2 * k <= MOST_DEGREE]
    rows |= {f"g-pass@{k}_{tau:g}": PassQuantity("g-pass@k", k, tau) for k in shares}
    return rows | {f"mg-pass@{k}": PassQuantity("mg-pass@k", k) for k in shares}


def posterior_row(name: str) -> str:
    """Return the name of the posterior's row beside that of the estimate from the trials.

    Examples
    --------
    >>> posterior_row("g-pass@4_0.5")
    'hg-pass@4_0.5'
    """
    return f"h{name}"


def estimate(outcomes: Outcomes, quantity: PassQuantity) -> Estimate:
    """Return a member of the family from a finite bank of trials, by its name.

    Parameters
    ----------
    outcomes : Outcomes
        Binary outcomes of M questions.
    quantity : PassQuantity
        The member; its k is at most N, the smallest N_α where they differ.

    Raises
    ------
    InvalidInputError
        If the outcomes are not binary, or k or tau is out of range.

    Examples
    --------
    >>> outcomes = Outcomes.from_matrix([[0, 1, 1, 0, 1], [1, 1, 0, 1, 1]])
    >>> round(estimate(outcomes, PassQuantity("pass@k", 2)).value, 6)
    0.95
    """
    name, k, tau = quantity
    k = _check(outcomes, k)
    needed = THRESHOLDS[name](k, tau)
    pairs = distinct_pairs(outcomes.counts[:, 0], outcomes.counts[:, 1])
    counts = np.stack([pairs.first, pairs.second], axis=1).astype(np.int64).tolist()
    scores = np.array([_question_score(wrong + right, right, k, needed) for wrong, right in counts])
    return _from_rows(name, scores[pairs.where], k, None if tau is None else float(tau))


@lru_cache(maxsize=4096)
def _question_score(n: int, c: int, k: int, needed: int | None) -> float:
    """Return the score of a question with c of n trials right; see `THRESHOLDS`."""
    j, probability = success_counts(n, c, k)
    credit = j >= needed if needed is not None else np.maximum(j - (k + 1) // 2, 0) * (2.0 / k)
    return float(probability @ credit.astype(np.float64))


def pass_at_k(outcomes: Outcomes, k: int) -> Estimate:
    """Return Pass@k, the chance that at least one of k trials is correct.

    Per question 1 − C(N−c, k)/C(N, k) with c correct of N trials [Chen 2021, eq. 1].

    Parameters
    ----------
    outcomes : Outcomes
        Binary outcomes of M questions.
    k : int
        1 <= k <= N, the smallest N_α where they differ.

    Returns
    -------
    Estimate
        In [0, 1]; the mean over questions.

    Raises
    ------
    InvalidInputError
        If the outcomes are not binary, or an argument is out of range.

    Examples
    --------
    >>> outcomes = Outcomes.from_matrix([[0, 1, 1, 0, 1], [1, 1, 0, 1, 1]])
    >>> round(pass_at_k(outcomes, 2).value, 6)
    0.95
    """
    return estimate(outcomes, PassQuantity("pass@k", k))


def pass_hat_k(outcomes: Outcomes, k: int) -> Estimate:
    """Return Pass^k, the chance that all of k trials are correct.

    Per question C(c, k)/C(N, k) with c correct of N trials [Yao 2024].

    Parameters
    ----------
    outcomes : Outcomes
        Binary outcomes of M questions.
    k : int
        1 <= k <= N, the smallest N_α where they differ.

    Returns
    -------
    Estimate
        In [0, 1]; the mean over questions.

    Raises
    ------
    InvalidInputError
        If the outcomes are not binary, or an argument is out of range.

    Examples
    --------
    >>> outcomes = Outcomes.from_matrix([[0, 1, 1, 0, 1], [1, 1, 0, 1, 1]])
    >>> round(pass_hat_k(outcomes, 2).value, 6)
    0.45
    """
    return estimate(outcomes, PassQuantity("pass^k", k))


def g_pass_at_k(outcomes: Outcomes, k: int, tau: Tau) -> Estimate:
    """Return G-Pass@k_τ, the chance that at least max(1, ⌈τk⌉) of k trials are correct.

    [Liu 2025]; τ = 0 is Pass@k and τ = 1 is Pass^k.

    Parameters
    ----------
    outcomes : Outcomes
        Binary outcomes of M questions.
    k : int
        1 <= k <= N, the smallest N_α where they differ.
    tau : float, Fraction or Decimal
        In [0, 1]. The ceiling is exact: .28 · 25 asks for 7, see `successes_needed`.

    Returns
    -------
    Estimate
        In [0, 1]; the mean over questions.

    Raises
    ------
    InvalidInputError
        If the outcomes are not binary, or an argument is out of range.

    Examples
    --------
    >>> outcomes = Outcomes.from_matrix([[0, 1, 1, 0, 1], [1, 1, 0, 1, 1]])
    >>> round(g_pass_at_k(outcomes, 3, 0.5).value, 6)
    0.85
    """
    return estimate(outcomes, PassQuantity("g-pass@k", k, tau))


def mg_pass_at_k(outcomes: Outcomes, k: int) -> Estimate:
    """Return mG-Pass@k, G-Pass averaged over the thresholds above one half.

    (2/k) Σ_{i=⌈k/2⌉+1..k} G-Pass@k_{i/k} [Liu 2025], which is the mean of
    (2/k) max(J − ⌈k/2⌉, 0) for J correct of k. At most (k − 1)/k when k is odd, and an empty
    sum, 0, at k = 1.

    Parameters
    ----------
    outcomes : Outcomes
        Binary outcomes of M questions.
    k : int
        1 <= k <= N, the smallest N_α where they differ.

    Returns
    -------
    Estimate
        In [0, 1]; the mean over questions.

    Raises
    ------
    InvalidInputError
        If the outcomes are not binary, or an argument is out of range.

    Examples
    --------
    >>> outcomes = Outcomes.from_matrix([[0, 1, 1, 0, 1], [1, 1, 0, 1, 1]])
    >>> round(mg_pass_at_k(outcomes, 3).value, 6)
    0.166667
    """
    return estimate(outcomes, PassQuantity("mg-pass@k", k))


def naive_pass_at_k(outcomes: Outcomes, k: int) -> Estimate:
    """Return 1 − (1 − p̂)^k with p̂ = c/N, which is biased downwards.

    [Chen 2021, App. A] shows the bias; it is included for comparison with published numbers.

    Parameters
    ----------
    outcomes : Outcomes
        Binary outcomes of M questions.
    k : int
        1 <= k <= N, the smallest N_α where they differ.

    Returns
    -------
    Estimate
        In [0, 1]; the mean over questions.

    Raises
    ------
    InvalidInputError
        If the outcomes are not binary, or an argument is out of range.

    Examples
    --------
    >>> outcomes = Outcomes.from_matrix([[0, 1, 1, 0, 1], [1, 1, 0, 1, 1]])
    >>> round(naive_pass_at_k(outcomes, 2).value, 6)
    0.9
    """
    k = _check(outcomes, k)
    wrong = outcomes.counts[:, 0] / require_trials(outcomes)
    return _from_rows("naive-pass@k", 1.0 - wrong**k, k)


def naive_pass_hat_k(outcomes: Outcomes, k: int) -> Estimate:
    """Return p̂^k with p̂ = c/N, which is biased upwards as an estimate of Pass^k.

    Parameters
    ----------
    outcomes : Outcomes
        Binary outcomes of M questions.
    k : int
        1 <= k <= N, the smallest N_α where they differ.

    Returns
    -------
    Estimate
        In [0, 1]; the mean over questions.

    Raises
    ------
    InvalidInputError
        If the outcomes are not binary, or an argument is out of range.

    Examples
    --------
    >>> outcomes = Outcomes.from_matrix([[0, 1, 1, 0, 1], [1, 1, 0, 1, 1]])
    >>> round(naive_pass_hat_k(outcomes, 2).value, 6)
    0.5
    """
    k = _check(outcomes, k)
    correct = outcomes.counts[:, 1] / require_trials(outcomes)
    return _from_rows("naive-pass^k", correct**k, k)


def _check(outcomes: Outcomes, k: int) -> int:
    """Check an estimator's input and return k as an int."""
    require_binary(outcomes)
    require_trials(outcomes)
    return check_k(k, outcomes.n_trials)


def _from_rows(quantity: str, rows: FloatArray, k: int, tau: float | None = None) -> Estimate:
    """Wrap per-question scores, whose rounding must not leave [0, 1]."""
    rows = np.clip(rows, 0.0, 1.0)
    value = float(min(rows.mean(), 1.0))
    return Estimate(quantity, value, read_only(rows, np.float64), k=k, tau=tau)


def success_counts(n: int, c: int, k: int) -> tuple[IntArray, FloatArray]:
    """Return the distribution of the successes in a random k-subset of n trials.

    P(J = j) = C(c, j) C(n − c, k − j) / C(n, k). Neighbouring probabilities have a simple
    ratio; its logarithms are summed outwards from the mode and the result is normalised,
    so that no binomial coefficient is ever formed and nothing large cancels.

    Parameters
    ----------
    n, c, k : int
        Trials, successes among them, subset size; 0 <= c <= n, 1 <= k <= n.

    Returns
    -------
    j, probability : array, shape (S,)
        The possible numbers of successes and their probabilities, which sum to 1.

    Examples
    --------
    >>> j, probability = success_counts(5, 3, 2)
    >>> j.tolist(), [round(float(x), 12) for x in probability]
    ([0, 1, 2], [0.1, 0.6, 0.3])
    """
    low, high = max(0, k - (n - c)), min(c, k)
    mode = min(max(((k + 1) * (c + 1)) // (n + 2), low), high)
    if high - low > _MOST_SUCCESSES:
        # less than 1e-100 of the probability is further from the mode
        reach = 40 + 40 * isqrt(k * c * (n - c) // n**2 + 1)
        low, high = max(low, mode - reach), min(high, mode + reach)
    j = np.arange(low, high + 1, dtype=np.int64)
    i = j[:-1].astype(np.float64)
    steps = np.log((c - i) * (k - i)) - np.log((i + 1.0) * (n - c - k + i + 1.0))
    mode -= low
    log_p = np.zeros(j.size)
    log_p[mode + 1 :] = np.cumsum(steps[mode:])
    log_p[:mode] = -np.cumsum(steps[:mode][::-1])[::-1]
    with np.errstate(under="ignore"):
        probability = np.exp(log_p)
    probability /= probability.sum()
    return j, probability
