"""Credible intervals: their settings, and four ways from a posterior to a low and a high end."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from scipy import special

from lm_eval_bayes._util.plain import Record
from lm_eval_bayes.errors import InvalidInputError
from lm_eval_bayes.stats.distributions.convolution import SingleQuantiles, mean_table
from lm_eval_bayes.stats.distributions.distributions import BetaLaw, Law
from lm_eval_bayes.stats.distributions.mixtures import BetaMixtureLaw, TabulatedLaw
from lm_eval_bayes.stats.distributions.success_curves import beta_quantile
from lm_eval_bayes.stats.results import SCOPES, Interval, IntervalMethod, Posterior, Scope
from lm_eval_bayes.stats.validation import (
    FloatArray,
    check_level,
    check_option,
    check_seed,
    check_size,
)

METHODS: tuple[IntervalMethod, ...] = ("normal", "beta", "exact", "hdi")
_BATCHES = 20


@dataclass(frozen=True)
class IntervalSpec(Record):
    """The settings of a credible interval, checked once.

    Parameters
    ----------
    level : float
        Posterior mass, strictly between 0 and 1.
    scope : {"benchmark", "population"}
        What the score is the mean of: these questions, or the population that they are a
        sample of.
    method : {"exact", "normal", "beta", "hdi"}
        See :func:`credible_interval`.
    seed : int
        Seed of the posterior draws, where there are any.

    Raises
    ------
    InvalidInputError
        If a setting breaks its rule.

    Examples
    --------
    >>> IntervalSpec(0.9, method="hdi").to_dict()
    {'level': 0.9, 'scope': 'benchmark', 'method': 'hdi', 'seed': 0}
    """

    level: float = 0.95
    scope: Scope = "benchmark"
    method: IntervalMethod = "exact"
    seed: int = 0

    def __post_init__(self) -> None:
        object.__setattr__(self, "level", check_level(self.level))
        object.__setattr__(self, "scope", check_option("scope", self.scope, SCOPES))
        object.__setattr__(self, "method", check_option("method", self.method, METHODS))
        object.__setattr__(self, "seed", check_seed(self.seed))

    @classmethod
    def of(
        cls,
        level: float = 0.95,
        scope: Scope = "benchmark",
        interval: IntervalMethod = "exact",
        seed: int = 0,
    ) -> IntervalSpec:
        """Build the settings from the arguments of a function that calls the method `interval`.

        Raises
        ------
        InvalidInputError
            If an argument breaks its rule; the message names `interval`.
        """
        return cls(level, scope, check_option("interval", interval, METHODS), seed)


def credible_interval(
    posterior: Posterior,
    level: float | None = None,
    method: IntervalMethod | None = None,
    *,
    seed: int = 0,
    draws: int | None = None,
) -> Interval:
    """Return an interval that holds `level` of the posterior mass.

    Parameters
    ----------
    posterior : Posterior
        From `bayes_at_n`, `hbayes_at_n` or a `*_posterior` of the pass family.
    level : float, optional
        Posterior mass, strictly between 0 and 1; left out, the posterior's own (0.95).
    method : {"normal", "beta", "exact", "hdi"}, optional
        Left out, the posterior's own ("exact"). "normal": μ ± zσ [Hariri 2026, §2.5],
        clipped to the possible scores. "beta": equal tails of the Beta distribution on the
        possible scores with the posterior's mean and variance. "exact": equal tails of the
        true posterior. "hdi": the shortest interval of the true posterior. For two distinct
        weights and for the pass family the true posterior is computed by numeric
        convolution; for more it is drawn from.
    seed : int
        Seed of the draws, where there are any.
    draws : int, optional
        Their number, 1,000 to 10⁷; left out, between 4,000 and 200,000 by the size of the
        problem.

    Returns
    -------
    Interval
        With `mc_error` and `seed` set where the ends were drawn.

    Raises
    ------
    InvalidInputError
        If `level` is outside (0, 1), the method is unknown, or `seed` or `draws` is no such
        integer.

    Examples
    --------
    The paper's interval [Hariri 2026, §2.5] for weights 0, 0, ¼, 1:

    >>> from lm_eval_bayes.stats.outcomes import Outcomes
    >>> from lm_eval_bayes.stats.bayes_at_n import bayes_at_n
    >>> R = [[3, 2, 3, 1, 3], [2, 3, 0, 3, 1]]
    >>> posterior = bayes_at_n(Outcomes.from_matrix(R, weights=[0, 0, 0.25, 1]))
    >>> interval = credible_interval(posterior, 0.95, "normal")
    >>> round(interval.low, 6), round(interval.high, 6)
    (0.247392, 0.641497)
    """
    if not isinstance(posterior, Posterior):
        rule = "be a Posterior, as from bayes_at_n or hbayes_at_n"
        raise InvalidInputError.of("posterior", rule, type(posterior).__name__)
    level = check_level(posterior.level if level is None else level)
    method = check_option("method", posterior.method if method is None else method, METHODS)
    seed = check_seed(seed)
    if draws is not None:
        draws = check_size("draws", draws, 1000)
    mc_error = None
    if posterior.sigma == 0.0:
        low, high = posterior.mu, posterior.mu
    elif method == "normal":
        low, high = normal_ends(posterior.mu, posterior.sigma, posterior.bounds, level)
    elif method == "beta":
        low, high = beta_ends(posterior.mu, posterior.sigma, posterior.bounds, level)
    else:
        quantiles = quantile_function(posterior)
        if quantiles is None:
            size = posterior.per_question.mu.size
            low, high, mc_error = _drawn_ends(posterior.law, level, method, seed, draws, size)
        else:
            low, high = _computed_ends(quantiles, level, method)
    bottom, top = posterior.bounds
    return Interval(
        low=float(np.clip(low, bottom, top)),
        high=float(np.clip(high, bottom, top)),
        level=level,
        method=method,
        scope=posterior.scope,
        mc_error=mc_error,
        seed=None if mc_error is None else seed,
    )


def normal_ends(
    mu: float, sigma: float, bounds: tuple[float, float], level: float
) -> tuple[float, float]:
    """Return μ ± zσ clipped to `bounds` [Hariri 2026, §2.5].

    Examples
    --------
    >>> low, high = normal_ends(0.95, 0.1, (0.0, 1.0), 0.95)
    >>> round(low, 3), high
    (0.754, 1.0)
    """
    z = float(special.ndtri(0.5 + 0.5 * level))
    return max(mu - z * sigma, bounds[0]), min(mu + z * sigma, bounds[1])


def beta_ends(
    mu: float, sigma: float, bounds: tuple[float, float], level: float
) -> tuple[float, float]:
    """Return the equal tails of the Beta distribution on `bounds` with this mean and sd.

    On [0, 1] with mean m, no variance exceeds m(1 − m), and the Beta distributions that
    come near it approach two atoms: m at the upper bound and 1 − m at the lower. From there on
    the ends are those atoms. A σ too small for a Beta's parameters gets the normal ends.

    Examples
    --------
    >>> low, high = beta_ends(5 / 6, (5 / 252) ** 0.5, (0.0, 1.0), 0.95)  # Beta(5, 1)
    >>> round(low, 3), round(high, 3)
    (0.478, 0.995)
    >>> beta_ends(0.99, 0.2, (0.0, 1.0), 0.95)
    (1.0, 1.0)
    """
    bottom, top = bounds
    span = top - bottom
    mean, variance = (mu - bottom) / span, (sigma / span) ** 2
    tail = 0.5 * (1.0 - level)
    if variance >= mean * (1.0 - mean):
        low, high = (top if tail >= 1.0 - mean else bottom), (bottom if tail >= mean else top)
        return low, high
    concentration = mean * (1.0 - mean) / variance - 1.0
    if concentration > 1e12:
        return normal_ends(mu, sigma, bounds, level)
    a, b = mean * concentration, (1.0 - mean) * concentration
    low, high = float(beta_quantile(a, b, tail)), float(beta_quantile(a, b, 1.0 - tail))
    if high > 0.5:  # the other tail has more digits here
        high = 1.0 - float(beta_quantile(b, a, tail))
    return bottom + span * low, bottom + span * high


def quantile_function(posterior: Posterior) -> Callable[[FloatArray], FloatArray] | None:
    """Return the quantiles of the true posterior, or None where they have to be drawn.

    Parameters
    ----------
    posterior : Posterior
        With a σ above 0.

    Returns
    -------
    callable or None
        Takes masses in [0, 1], an array of any shape; gives scores on the posterior's scale.
    """
    law = posterior.law
    if isinstance(law, (BetaMixtureLaw, TabulatedLaw)):
        return law.table.quantile
    if not isinstance(law, BetaLaw):
        return None
    low, span = law.low, law.high - law.low
    unit: Callable[[FloatArray], FloatArray]
    if law.a.size == 1:
        unit = SingleQuantiles(law)
    else:
        unit = mean_table(law, (posterior.mu - low) / span, posterior.sigma / span).quantile
    return lambda u: low + span * unit(u)


def _computed_ends(
    quantiles: Callable[[FloatArray], FloatArray], level: float, method: IntervalMethod
) -> tuple[float, float]:
    """Return the ends from the quantiles of the true posterior."""
    if method != "exact":
        return _shortest(quantiles, level)
    low, high = quantiles(np.array([0.5 * (1.0 - level), 0.5 * (1.0 + level)]))
    return float(low), float(high)


def _shortest(quantiles: Callable[[FloatArray], FloatArray], level: float) -> tuple[float, float]:
    """Return the shortest [Q(u), Q(u + level)], zooming in on u three times."""
    left, right = 0.0, 1.0 - level
    for _ in range(3):
        u = np.linspace(left, right, 129)
        low, high = quantiles(u), quantiles(np.minimum(u + level, 1.0))
        best = int(np.argmin(high - low))
        left, right = u[max(best - 2, 0)], u[min(best + 2, u.size - 1)]
    return float(low[best]), float(high[best])


def _drawn_ends(
    law: Law,
    level: float,
    method: IntervalMethod,
    seed: int,
    draws: int | None,
    n_questions: int,
) -> tuple[float, float, float]:
    """Return the ends from seeded draws, and the standard error of the worse one.

    The error comes from the scatter of the ends between 20 equal batches.
    """
    if draws is None:
        draws = int(np.clip(2_000_000 // n_questions, 4_000, 200_000))
    sample = law.draw(draws, np.random.default_rng(seed))
    find = _sample_tails if method == "exact" else _sample_shortest
    low, high = find(sample, level)
    batches = np.array([find(part, level) for part in np.array_split(sample, _BATCHES)])
    error = batches.std(axis=0, ddof=1).max() / np.sqrt(_BATCHES)
    return low, high, float(error)


def _sample_tails(sample: FloatArray, level: float) -> tuple[float, float]:
    """Return the equal-tailed quantiles of a sample."""
    low, high = np.quantile(sample, [0.5 * (1.0 - level), 0.5 * (1.0 + level)])
    return float(low), float(high)


def _sample_shortest(sample: FloatArray, level: float) -> tuple[float, float]:
    """Return the shortest interval that holds `level` of a sample."""
    ordered = np.sort(sample)
    held = min(int(np.ceil(level * ordered.size)), ordered.size - 1)
    widths = ordered[held:] - ordered[: ordered.size - held]
    best = int(np.argmin(widths))
    return float(ordered[best]), float(ordered[best + held])
