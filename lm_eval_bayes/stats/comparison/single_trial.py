"""Two models with one trial per question: the models of [Bowyer 2025, §3.2-3.4, App. A].

θ_A and θ_B are the models' chances of being right on the population of questions, each uniform
beforehand. The unpaired model takes the two sets of answers as independent. The paired one
lets the same questions be easy or hard for both: each question gives the two models a pair of
normal variables with correlation ρ, and an answer is right where its variable is above 0.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Literal

import numpy as np
from scipy import optimize, special

from lm_eval_bayes._util.plain import Record
from lm_eval_bayes._util.validation import check_level, check_pair, check_seed, check_size
from lm_eval_bayes.stats.arrays import FloatArray
from lm_eval_bayes.stats.comparison.shared_questions import (
    Align,
    align_questions,
    check_same_weights,
)
from lm_eval_bayes.stats.distributions import beta_quantile, weighted_quantiles
from lm_eval_bayes.stats.intervals import Interval
from lm_eval_bayes.stats.outcomes import Outcomes, require_single_trials

#: Degrees of freedom of the Student proposal, and its widening over the covariance seen.
_FREEDOM, _WIDENING = 4.0, 1.2
#: Draws that the proposal learns its place and shape from, and the step of the first derivatives.
_LEARNING_DRAWS, _STEP = 4_000, 1e-3
_BATCHES = 20
#: Points of the unpaired posterior: mid-quantiles of A, each beside one of B by a step near the
#: golden section, which spreads them evenly over all pairs.
_POINTS, _GOLDEN = 1 << 16, 40_503


@dataclass(frozen=True)
class SingleTrialComparison(Record):
    """The posterior of θ_A − θ_B and of the odds ratio; scope "population".

    Attributes
    ----------
    model : str
        "paired" or "unpaired".
    theta_a, theta_b : float
        Posterior means of the chances of being right.
    difference, sd : float
        Posterior mean and standard deviation of θ_A − θ_B.
    interval : Interval
        Equal-tailed, of the difference.
    odds_ratio : float
        Posterior median of (θ_A/(1 − θ_A)) / (θ_B/(1 − θ_B)). The mean is infinite as soon
        as A has no wrong or B no right answer, so the median is reported.
    odds_ratio_interval : Interval
        Equal-tailed, of the odds ratio.
    p_a_greater : float
        P(θ_A > θ_B).
    table : tuple of int or None
        Paired only: both right, only A, only B, neither.
    correlation : float or None
        Paired only: posterior mean of ρ.
    ess : float or None
        Effective sample size of the draws; None where computed.
    mc_error : float or None
        Standard error of `p_a_greater`, likewise.
    draws, seed : int or None
        Of the importance sampling, likewise.
    """

    model: Literal["paired", "unpaired"]
    theta_a: float
    theta_b: float
    difference: float
    sd: float
    interval: Interval
    odds_ratio: float
    odds_ratio_interval: Interval
    p_a_greater: float
    table: tuple[int, int, int, int] | None = None
    correlation: float | None = None
    ess: float | None = None
    mc_error: float | None = None
    draws: int | None = None
    seed: int | None = None


def compare_unpaired(a: Outcomes, b: Outcomes, level: float = 0.95) -> SingleTrialComparison:
    """Compare two models with one trial per question as if the questions were different ones.

    θ_A ~ Beta(1 + S, 1 + M − S) with S of M right, θ_B likewise and independently
    [Bowyer 2025, §3.3]. Computed on 65,536 even points, to 2·10⁻⁴ of probabilities. The questions
    are not paired and their numbers may differ.

    Parameters
    ----------
    a, b : Outcomes
        Binary, one trial per question.
    level : float
        Credible level, strictly between 0 and 1.

    Returns
    -------
    SingleTrialComparison

    Raises
    ------
    InvalidInputError
        If the outcomes are not binary with one trial per question, or the level is no such.

    Examples
    --------
    Two of three right against one of three: Beta(3, 2) and Beta(2, 3), P = 53/70.

    >>> a = Outcomes.from_matrix([[1], [1], [0]])
    >>> b = Outcomes.from_matrix([[0], [1], [0]])
    >>> result = compare_unpaired(a, b)
    >>> round(result.difference, 6), round(result.p_a_greater, 3), round(result.odds_ratio, 2)
    (0.2, 0.757, 2.62)
    """
    check_same_weights(a, b)
    level = check_level(level)
    sides = [require_single_trials(name, side) for name, side in (("a", a), ("b", b))]
    parameters = [(1.0 + float(right.sum()), 1.0 + float((~right).sum())) for right in sides]
    rank = np.arange(_POINTS)
    masses = (np.stack([rank, rank * _GOLDEN % _POINTS]) + 0.5) / _POINTS
    rows = zip(parameters, masses, strict=True)
    logits = np.stack([_logit_quantile(*beta, mass) for beta, mass in rows])
    return _summary("unpaired", logits, np.full(_POINTS, 1.0 / _POINTS), level)


def compare_paired(
    a: Outcomes,
    b: Outcomes,
    level: float = 0.95,
    *,
    align: Align = "strict",
    correlation_prior: tuple[float, float] = (4.0, 2.0),
    seed: int = 0,
    draws: int = 100_000,
) -> SingleTrialComparison:
    """Compare two models that answered the same questions once each.

    θ_A, θ_B ~ U(0, 1) and ρ = 2ρ̂ − 1 with ρ̂ ~ Beta(4, 2); the 2×2 table of right and wrong
    is multinomial with the four quadrant probabilities of a bivariate normal distribution
    [Bowyer 2025, §3.4, App. A]. Importance sampling; the proposal adapts to the data,
    and `ess` is the effective number of draws.

    Parameters
    ----------
    a, b : Outcomes
        Binary, one trial per question; paired by their ids, by position without ids.
    level : float
        Credible level, strictly between 0 and 1.
    align : {"strict", "intersection"}
        Whether a question that one side lacks is an error, or left out and counted.
    correlation_prior : (float, float)
        Beta parameters of ρ̂, at least 1. (4, 2) is the paper's; the paper's library
        ``bayes_evals`` has ρ uniform, which is (1, 1).
    seed : int
        Seed of the draws.
    draws : int
        Their number, 1,000 to 10⁷.

    Returns
    -------
    SingleTrialComparison
        Both intervals have the Monte-Carlo error of the less certain endpoint.

    Raises
    ------
    InvalidInputError
        If the outcomes are not binary with one trial per question, the questions or weights
        do not match, or an argument breaks its rule.

    Examples
    --------
    >>> a = Outcomes.from_matrix([[1]] * 12 + [[0]] * 8)
    >>> b = Outcomes.from_matrix([[1]] * 6 + [[0]] * 14)
    >>> paired, unpaired = compare_paired(a, b), compare_unpaired(a, b)
    >>> paired.table, paired.sd < unpaired.sd, paired.p_a_greater > unpaired.p_a_greater
    ((6, 6, 0, 8), True, True)
    """
    level = check_level(level)
    prior = check_pair(
        "correlation_prior",
        correlation_prior,
        "be a pair of finite numbers of at least 1",
        lambda alpha, beta: 1.0 <= alpha < np.inf and 1.0 <= beta < np.inf,
    )
    seed, draws = check_seed(seed), check_size("draws", draws, 1000)
    pair = align_questions(a, b, align)
    right_a, right_b = require_single_trials("a", pair.a), require_single_trials("b", pair.b)
    only_a, only_b = int((right_a & ~right_b).sum()), int((~right_a & right_b).sum())
    both = int((right_a & right_b).sum())
    counts = (both, only_a, only_b, pair.a.n_questions - both - only_a - only_b)
    logits, weight = paired_posterior_draws(counts, prior, draws, seed)
    summary = _summary("paired", logits[:2], weight, level, seed)
    above = logits[0] > logits[1]
    return replace(
        summary,
        table=counts,
        correlation=float(weight @ (2.0 * special.expit(logits[2]) - 1.0)),
        ess=float(1.0 / (weight**2).sum()),
        mc_error=float(np.sqrt((weight**2 * (above - summary.p_a_greater) ** 2).sum())),
        draws=draws,
        seed=seed,
    )


def _summary(
    model: Literal["paired", "unpaired"],
    logits: FloatArray,
    weight: FloatArray,
    level: float,
    seed: int | None = None,
) -> SingleTrialComparison:
    """Summarize weighted logits of θ_A and θ_B, shape (2, n): draws if `seed` is given."""
    theta = special.expit(logits)
    difference, log_odds = theta[0] - theta[1], logits[0] - logits[1]
    mean = float(weight @ difference)
    tails = np.array([0.5 * (1.0 - level), 0.5, 0.5 * (1.0 + level)])
    ends, error = _quantiles_with_error(difference, weight, tails)
    odds_ends, odds_error = _quantiles_with_error(log_odds, weight, tails)
    odds = np.exp(odds_ends)

    def interval(of: FloatArray, errors: FloatArray) -> Interval:
        error = None if seed is None else float(errors[[0, 2]].max())
        return Interval(float(of[0]), float(of[2]), level, "exact", "population", error, seed)

    return SingleTrialComparison(
        model=model,
        theta_a=float(weight @ theta[0]),
        theta_b=float(weight @ theta[1]),
        difference=mean,
        sd=float(np.sqrt(weight @ (difference - mean) ** 2)),
        interval=interval(ends, error),
        odds_ratio=float(odds[1]),
        odds_ratio_interval=interval(odds, odds * odds_error),
        p_a_greater=float(weight @ (logits[0] > logits[1])),
    )


def _logit_quantile(a: float, b: float, u: FloatArray) -> FloatArray:
    """Return the quantiles of log(θ/(1 − θ)), θ ~ Beta(a, b), each tail from its own side."""
    return np.asarray(np.log(beta_quantile(a, b, u)) - np.log(beta_quantile(b, a, 1.0 - u)))


def _quantiles_with_error(
    values: FloatArray, weight: FloatArray, at: FloatArray
) -> tuple[FloatArray, FloatArray]:
    """Return weighted quantiles, and their errors from the scatter between 20 batches."""
    batches = np.array(
        [weighted_quantiles(values[i::_BATCHES], weight[i::_BATCHES], at) for i in range(_BATCHES)]
    )
    return weighted_quantiles(values, weight, at), batches.std(axis=0, ddof=1) / np.sqrt(_BATCHES)


def bivariate_normal_cdf(
    h: FloatArray, k: FloatArray, rho: FloatArray, root: FloatArray
) -> FloatArray:
    """Return P(X <= h, Y <= k) for standard normal X, Y with correlation ρ.

    Through Owen's T function [Owen 1956], which scipy computes to rounding:
    ½(Φ(h) + Φ(k)) − T(h, (k − ρh)/(h√(1−ρ²))) − T(k, (h − ρk)/(k√(1−ρ²))) − β, with β = 0
    where h and k have the same sign and ½ where not.

    Parameters
    ----------
    h, k, rho : array
        Of one shape; ρ strictly between −1 and 1.
    root : array
        √(1 − ρ²), to full digits also near ρ = ±1.

    Examples
    --------
    A quarter plus asin(ρ)/2π at the origin:

    >>> zero, rho = np.zeros(1), np.array([0.5])
    >>> round(float(bivariate_normal_cdf(zero, zero, rho, np.sqrt(1 - rho**2))[0]), 12)
    0.333333333333
    """
    with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
        first = special.owens_t(h, (k - rho * h) / (h * root))
        second = special.owens_t(k, (h - rho * k) / (k * root))
    opposite = (h * k < 0.0) | ((h * k == 0.0) & (h + k < 0.0))
    value = 0.5 * (special.ndtr(h) + special.ndtr(k)) - first - second - 0.5 * opposite
    origin = (h == 0.0) & (k == 0.0)
    value = np.where(origin, 0.25 + np.arcsin(rho) / (2.0 * np.pi), value)
    return np.asarray(np.clip(value, 0.0, 1.0))


def paired_posterior_draws(
    counts: tuple[int, int, int, int],
    correlation_prior: tuple[float, float],
    n_draws: int,
    seed: int,
) -> tuple[FloatArray, FloatArray]:
    """Draw (θ_A, θ_B, ρ̂) given a 2×2 table, with importance weights.

    The proposal is a linear function of three Student variables, whose tails are heavier than those
    of the logits. Its place and shape are those of the mode, and then of the first draws.

    Parameters
    ----------
    counts : tuple of int
        Both right, only A, only B, neither.
    correlation_prior : (float, float)
        Beta parameters of ρ̂ = (1 + ρ)/2.
    n_draws : int
        How many draws are returned.
    seed : int
        Their seed.

    Returns
    -------
    logits : array, shape (3, n_draws)
        Logits of θ_A, θ_B and ρ̂.
    weight : array, shape (n_draws,)
        Sum 1.
    """
    rng = np.random.default_rng(seed)
    mean, covariance = _at_the_mode(counts, correlation_prior)
    for size in (_LEARNING_DRAWS, n_draws):
        student = rng.standard_t(_FREEDOM, (3, size))
        logits = mean[:, None] + np.linalg.cholesky(_WIDENING * covariance) @ student
        proposal = -0.5 * (_FREEDOM + 1.0) * np.log1p(student**2 / _FREEDOM).sum(axis=0)
        weight = special.softmax(_log_target(logits, counts, correlation_prior) - proposal)
        mean = logits @ weight
        covariance = ((logits - mean[:, None]) * weight) @ (logits - mean[:, None]).T
    return logits, weight


def _at_the_mode(
    counts: tuple[int, int, int, int], prior: tuple[float, float]
) -> tuple[FloatArray, FloatArray]:
    """Return the mode of the logits and the inverse of the curvature there."""
    both, only_a, only_b, neither = counts
    right = np.array([both + only_a + 2.0, both + only_b + 2.0, prior[0]])
    wrong = np.array([only_b + neither + 2.0, only_a + neither + 2.0, prior[1]])
    start = np.log(right / wrong)
    mode = optimize.minimize(
        lambda x: -float(_log_target(x[:, None], counts, prior)[0]), start, method="Nelder-Mead"
    ).x
    i, j = (axis.ravel() for axis in np.indices((3, 3)))
    steps = _STEP * np.eye(3)
    signs = ((1.0, 1.0), (1.0, -1.0), (-1.0, 1.0), (-1.0, -1.0))
    points = [mode[:, None] + x * steps[:, i] + y * steps[:, j] for x, y in signs]
    values = [_log_target(point, counts, prior) for point in points]
    hessian = (values[0] - values[1] - values[2] + values[3]).reshape(3, 3) / (4.0 * _STEP**2)
    return np.asarray(mode), np.asarray(np.linalg.inv(-hessian))


def _log_target(
    logits: FloatArray, counts: tuple[int, int, int, int], prior: tuple[float, float]
) -> FloatArray:
    """Return the log posterior density of the logits, up to a constant."""
    theta, wrong = special.expit(logits), special.expit(-logits)
    rho = theta[2] - wrong[2]
    root = 2.0 * np.sqrt(theta[2] * wrong[2])
    # from whichever side has the digits; + 0 as the distribution function takes no −0
    h = np.where(wrong < 0.5, special.ndtri(wrong), -special.ndtri(theta)) + 0.0
    neither = bivariate_normal_cdf(h[0], h[1], rho, root)
    only_a, only_b = wrong[1] - neither, wrong[0] - neither
    cells = np.maximum(np.stack([theta[0] - only_a, only_a, only_b, neither]), 1e-300)
    log_likelihood = special.xlogy(np.array(counts, dtype=np.float64)[:, None], cells).sum(axis=0)
    # the density of a logit is that of the probability times p (1 − p)
    a, b = np.array([[1.0, 1.0, prior[0]], [1.0, 1.0, prior[1]]])
    return np.asarray(
        log_likelihood + a @ special.log_expit(logits) + b @ special.log_expit(-logits)
    )
