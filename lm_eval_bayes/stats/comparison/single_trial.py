"""Two models with one trial per question: the models of [Bowyer 2025, §3.2-3.4, App. A].

θ_A and θ_B are the models' chances of being right on the population of questions, each uniform
beforehand. The unpaired model takes the two sets of answers as independent. The paired one
lets the same questions be easy or hard for both: each question gives the two models a pair of
normal variables with correlation ρ, and an answer is right where its variable is above 0.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Literal

import numpy as np
from scipy import fft, special

from lm_eval_bayes._util.plain import Record
from lm_eval_bayes.stats.aligned_questions import Align, align_questions, check_same_weights
from lm_eval_bayes.stats.arrays import FloatArray
from lm_eval_bayes.stats.distributions.base import CdfTable, beta_quantile, tabulate
from lm_eval_bayes.stats.distributions.weighted import weighted_quantiles
from lm_eval_bayes.stats.intervals import Interval
from lm_eval_bayes.stats.outcomes import Outcomes, require_single_trials
from lm_eval_bayes.stats.validation import check_level, check_pair, check_seed, check_size

#: Rounds in which the proposal learns where the posterior lies, at the most.
_ROUNDS = 40
_LEARNING_DRAWS = 4_000
#: Effective draws that each of them learns from, at the least.
_LEARNING_ESS = 400.0
#: Degrees of freedom of the Student proposal, and its widening over the covariance seen.
_FREEDOM, _WIDENING = 6.0, 1.2
#: Share of draws kept from the broad proposal, which bounds every weight.
_BROAD = 0.1

_BATCHES = 20


#: Lattice steps in one standard deviation of the difference.
_STEPS = 512
_MAX_POINTS = 1 << 20
#: Masses at which a quantile function is tabulated: dense at both ends, then out to 1e-12.
_INNER = 0.5 - 0.5 * np.cos(np.pi * np.arange(1, 4096) / 4096)
_OUTER = np.logspace(-12, -7.5, 19)
_MASSES = np.concatenate([_OUTER, _INNER, 1.0 - _OUTER[::-1]])


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
    left_out_a, left_out_b : int
        Questions of each that the other lacks (paired, align="intersection").
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
    left_out_a: int = 0
    left_out_b: int = 0


def compare_unpaired(a: Outcomes, b: Outcomes, level: float = 0.95) -> SingleTrialComparison:
    """Compare two models with one trial per question as if the questions were different ones.

    θ_A ~ Beta(1 + S, 1 + M − S) with S of M right, θ_B likewise and independently
    [Bowyer 2025, §3.3]. Computed, not drawn. The questions are not paired and their
    numbers may differ.

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
    >>> round(result.difference, 6), round(result.p_a_greater, 5), round(result.odds_ratio, 2)
    (0.2, 0.75714, 2.62)
    """
    check_same_weights(a, b)
    level = check_level(level)
    beta_a, beta_b = _beta("a", a), _beta("b", b)
    x, y = np.transpose([beta_a, beta_b])
    means, variances = x / (x + y), x * y / (x + y) ** 2 / (x + y + 1.0)
    logit_means = special.digamma(x) - special.digamma(y)
    logit_variances = special.polygamma(1, x) + special.polygamma(1, y)
    difference, sd = float(means[0] - means[1]), float(np.sqrt(variances.sum()))
    table = difference_table(
        partial(beta_quantile, *beta_a), partial(beta_quantile, *beta_b), difference, sd
    )
    log_odds = difference_table(
        partial(_logit_quantile, *beta_a),
        partial(_logit_quantile, *beta_b),
        float(logit_means[0] - logit_means[1]),
        float(np.sqrt(logit_variances.sum())),
    )
    tails = np.array([0.5 * (1.0 - level), 0.5, 0.5 * (1.0 + level)])
    low, _, high = np.clip(table.quantile(tails), -1.0, 1.0)
    odds = np.exp(log_odds.quantile(tails))
    return SingleTrialComparison(
        model="unpaired",
        theta_a=float(means[0]),
        theta_b=float(means[1]),
        difference=difference,
        sd=sd,
        interval=_interval(low, high, level),
        odds_ratio=float(odds[1]),
        odds_ratio_interval=_interval(odds[0], odds[2], level),
        p_a_greater=float(1.0 - table.cdf(np.zeros(1))[0]),
    )


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
        Beta parameters of ρ̂, above 0. (4, 2) is the paper's; the paper's library
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
        "be a pair of finite numbers above 0",
        lambda alpha, beta: 0.0 < alpha < np.inf and 0.0 < beta < np.inf,
    )
    seed, draws = check_seed(seed), check_size("draws", draws, 1000)
    pair = align_questions(a, b, align)
    right_a, right_b = require_single_trials("a", pair.a), require_single_trials("b", pair.b)
    only_a, only_b = int((right_a & ~right_b).sum()), int((~right_a & right_b).sum())
    both = int((right_a & right_b).sum())
    counts = (both, only_a, only_b, pair.a.n_questions - both - only_a - only_b)
    logits, weight = paired_posterior_draws(counts, prior, draws, seed)
    theta_a, theta_b, rho_hat = special.expit(logits)
    difference, log_odds = theta_a - theta_b, logits[0] - logits[1]
    mean = float(weight @ difference)
    above = theta_a > theta_b
    p_a_greater = float(weight @ above)
    tails = np.array([0.5 * (1.0 - level), 0.5, 0.5 * (1.0 + level)])
    ends, error = _quantiles_with_error(difference, weight, tails)
    odds_ends, odds_error = _quantiles_with_error(log_odds, weight, tails)
    odds = np.exp(odds_ends)
    return SingleTrialComparison(
        model="paired",
        theta_a=float(weight @ theta_a),
        theta_b=float(weight @ theta_b),
        difference=mean,
        sd=float(np.sqrt(weight @ (difference - mean) ** 2)),
        interval=_interval(ends[0], ends[2], level, float(error[[0, 2]].max()), seed),
        odds_ratio=float(odds[1]),
        odds_ratio_interval=_interval(
            odds[0], odds[2], level, float((odds * odds_error)[[0, 2]].max()), seed
        ),
        p_a_greater=p_a_greater,
        table=counts,
        correlation=float(weight @ (2.0 * rho_hat - 1.0)),
        ess=float(1.0 / (weight**2).sum()),
        mc_error=float(np.sqrt((weight**2 * (above - p_a_greater) ** 2).sum())),
        draws=draws,
        seed=seed,
        left_out_a=pair.left_out_a,
        left_out_b=pair.left_out_b,
    )


def _beta(name: str, outcomes: Outcomes) -> tuple[float, float]:
    """Return the Beta parameters of θ under a uniform prior."""
    right = require_single_trials(name, outcomes)
    return 1.0 + float(right.sum()), 1.0 + float((~right).sum())


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


def _interval(
    low: float, high: float, level: float, mc_error: float | None = None, seed: int | None = None
) -> Interval:
    """Return an equal-tailed interval of scope "population"."""
    return Interval(float(low), float(high), level, "exact", "population", mc_error, seed)


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

    The proposal mixes a broad part, Beta distributions from half the counts and the prior of
    ρ, with a Student distribution in the logits, which learns its place and shape in rounds.
    Where a round's weights are too uneven to learn from they are flattened, so that the
    proposal walks to a narrow posterior in steps.

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
    both, only_a, only_b, neither = counts
    broad = np.array([
        [1.0 + 0.5 * (both + only_a), 1.0 + 0.5 * (only_b + neither)],
        [1.0 + 0.5 * (both + only_b), 1.0 + 0.5 * (only_a + neither)],
        correlation_prior,
    ])  # fmt: skip
    logits = _draw_broad(broad, _LEARNING_DRAWS, rng)
    log_weight = _log_target(logits, counts, correlation_prior) - _log_beta(logits, broad)
    for turn in range(_ROUNDS + 1):
        power = _flattening(log_weight)
        weight = _normalised(power * log_weight)
        mean = logits @ weight
        centred = logits - mean[:, None]
        covariance = _WIDENING * ((centred * weight) @ centred.T)
        last = turn == _ROUNDS or (power == 1.0 and turn > 0)
        size = n_draws if last else _LEARNING_DRAWS
        logits = np.where(
            rng.random(size) < _BROAD,
            _draw_broad(broad, size, rng),
            _draw_student(mean, covariance, size, rng),
        )
        log_proposal = np.logaddexp(
            np.log(_BROAD) + _log_beta(logits, broad),
            np.log1p(-_BROAD) + _log_student(logits, mean, covariance),
        )
        log_weight = _log_target(logits, counts, correlation_prior) - log_proposal
        if last:
            break
    return logits, _normalised(log_weight)


def _flattening(log_weight: FloatArray) -> float:
    """Return the largest power, up to 1, at which the weights leave enough effective draws."""
    low, high = 0.0, 1.0
    power = 1.0
    for _ in range(30):
        weight = _normalised(power * log_weight)
        enough = 1.0 / (weight**2).sum() >= _LEARNING_ESS
        if enough and power == 1.0:
            return 1.0
        low, high = (power, high) if enough else (low, power)
        power = 0.5 * (low + high)
    return low


def _log_target(
    logits: FloatArray, counts: tuple[int, int, int, int], prior: tuple[float, float]
) -> FloatArray:
    """Return the log posterior density of the logits, up to a constant."""
    theta, wrong = special.expit(logits), special.expit(-logits)
    rho = theta[2] - wrong[2]
    root = 2.0 * np.sqrt(theta[2] * wrong[2])
    # from whichever side has the digits
    h = np.where(wrong < 0.5, special.ndtri(wrong), -special.ndtri(theta))
    neither = bivariate_normal_cdf(h[0], h[1], rho, root)
    only_a, only_b = wrong[1] - neither, wrong[0] - neither
    cells = np.maximum(np.stack([theta[0] - only_a, only_a, only_b, neither]), 1e-300)
    log_likelihood = special.xlogy(np.array(counts, dtype=np.float64)[:, None], cells).sum(axis=0)
    priors = np.array([[1.0, 1.0], [1.0, 1.0], prior])
    return np.asarray(log_likelihood + _log_beta(logits, priors))


def _log_beta(logits: FloatArray, parameters: FloatArray) -> FloatArray:
    """Return the joint log density of the logits of three independent Beta variables."""
    a, b = parameters[:, :1], parameters[:, 1:]
    log_density = -a * np.logaddexp(0.0, -logits) - b * np.logaddexp(0.0, logits)
    return np.asarray((log_density - special.betaln(a, b)).sum(axis=0))


def _draw_broad(parameters: FloatArray, n_draws: int, rng: np.random.Generator) -> FloatArray:
    """Draw the logits of three independent Beta variables, shape (3, n_draws)."""
    gammas = rng.standard_gamma(parameters[:, :, None], size=(3, 2, n_draws))
    logs = np.log(np.maximum(gammas, 1e-300))
    return np.asarray(logs[:, 0] - logs[:, 1])


def _draw_student(
    mean: FloatArray, covariance: FloatArray, n_draws: int, rng: np.random.Generator
) -> FloatArray:
    """Draw from a multivariate Student distribution, shape (3, n_draws)."""
    normal = np.linalg.cholesky(covariance) @ rng.standard_normal((3, n_draws))
    return np.asarray(mean[:, None] + normal * np.sqrt(_FREEDOM / rng.chisquare(_FREEDOM, n_draws)))


def _log_student(logits: FloatArray, mean: FloatArray, covariance: FloatArray) -> FloatArray:
    """Return its log density."""
    factor = np.linalg.cholesky(covariance)
    scaled = np.linalg.solve(factor, logits - mean[:, None])
    constant = (
        special.gammaln(0.5 * (_FREEDOM + 3.0))
        - special.gammaln(0.5 * _FREEDOM)
        - 1.5 * np.log(_FREEDOM * np.pi)
        - np.log(np.diag(factor)).sum()
    )
    tail = np.log1p((scaled**2).sum(axis=0) / _FREEDOM)
    return np.asarray(constant - 0.5 * (_FREEDOM + 3.0) * tail)


def _normalised(log_weight: FloatArray) -> FloatArray:
    """Return weights of sum 1."""
    weight = np.exp(log_weight - log_weight.max())
    return np.asarray(weight / weight.sum())


def difference_table(
    first: Callable[[FloatArray], FloatArray],
    second: Callable[[FloatArray], FloatArray],
    mu: float,
    sigma: float,
) -> CdfTable:
    """Tabulate the distribution function of A − B for independent A and B.

    Parameters
    ----------
    first, second : callable
        Quantile functions of A and B.
    mu, sigma : float
        Exact mean and standard deviation of A − B, sigma > 0; the table is stretched to
        them, which undoes what the lattice adds.

    Returns
    -------
    CdfTable
        Its steps are sigma/512 or finer unless the distributions reach further than 2000 sigma.
    """
    x, y = first(_MASSES), second(_MASSES)
    reach = float(max(x[-1] - x[0], y[-1] - y[0]))
    step = max(sigma / _STEPS, reach / (_MAX_POINTS - 4))
    mass_a, start_a = _lattice(x, step)
    mass_b, start_b = _lattice(y, step)
    size = mass_a.size + mass_b.size - 1
    length = fft.next_fast_len(size, real=True)
    transform = fft.rfft(mass_a, length) * fft.rfft(mass_b[::-1], length)
    total = np.maximum(fft.irfft(transform, n=length)[:size], 0.0)
    total /= total.sum()
    first_point = start_a - (start_b + mass_b.size - 1)
    points = np.arange(first_point, first_point + size, dtype=np.float64) * step
    return tabulate(total, points, mu, sigma)


def _lattice(score: FloatArray, step: float) -> tuple[FloatArray, int]:
    """Return the masses around multiples of `step`, and the first multiple."""
    start, stop = int(np.floor(score[0] / step)), int(np.ceil(score[-1] / step))
    edges = (np.arange(start, stop + 2) - 0.5) * step
    return np.diff(np.interp(edges, score, _MASSES, left=0.0, right=1.0)), start
