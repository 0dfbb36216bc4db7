"""The bivariate normal distribution of two models' answers, and draws of its posterior."""

from __future__ import annotations

import numpy as np
from scipy import special

from lm_eval_bayes.stats.validation import FloatArray

#: Rounds in which the proposal learns where the posterior lies, at the most.
_ROUNDS = 40
_LEARNING_DRAWS = 4_000
#: Effective draws that each of them learns from, at the least.
_LEARNING_ESS = 400.0
#: Degrees of freedom of the Student proposal, and its widening over the covariance seen.
_FREEDOM, _WIDENING = 6.0, 1.2
#: Share of draws kept from the broad proposal, which bounds every weight.
_BROAD = 0.1


def bivariate_normal_cdf(h: FloatArray, k: FloatArray, rho: FloatArray) -> FloatArray:
    """Return P(X <= h, Y <= k) for standard normal X, Y with correlation ρ.

    Through Owen's T function [Owen 1956], which scipy computes to rounding:
    ½(Φ(h) + Φ(k)) − T(h, (k − ρh)/(h√(1−ρ²))) − T(k, (h − ρk)/(k√(1−ρ²))) − β, with β = 0
    where h and k have the same sign and ½ where not.

    Parameters
    ----------
    h, k, rho : array
        Of one shape; ρ strictly between −1 and 1.

    Examples
    --------
    A quarter plus asin(ρ)/2π at the origin:

    >>> zero = np.zeros(1)
    >>> round(float(bivariate_normal_cdf(zero, zero, np.array([0.5]))[0]), 12)
    0.333333333333
    """
    return _quadrant(h, k, rho, np.sqrt((1.0 - rho) * (1.0 + rho)))


def _quadrant(h: FloatArray, k: FloatArray, rho: FloatArray, root: FloatArray) -> FloatArray:
    """Return the bivariate normal distribution function, given √(1 − ρ²) to full digits."""
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
    neither = _quadrant(h[0], h[1], rho, root)
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
