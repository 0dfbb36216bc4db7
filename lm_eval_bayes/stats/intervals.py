"""Credible intervals: their settings, their record, and three methods that compute them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from typing import Literal, TypeAlias

import numpy as np
from scipy import special

from lm_eval_bayes._util.plain import NOT_IN_JSON, Record
from lm_eval_bayes._util.validation import check_level, check_option, check_seed
from lm_eval_bayes.errors import InvalidInputError
from lm_eval_bayes.stats.arrays import FloatArray
from lm_eval_bayes.stats.distributions import Distribution, MatchedBeta

IntervalMethod: TypeAlias = Literal["normal", "beta", "exact"]
METHODS: tuple[IntervalMethod, ...] = ("normal", "beta", "exact")
Scope: TypeAlias = Literal["benchmark", "population"]
SCOPES: tuple[Scope, ...] = ("benchmark", "population")
Settings: TypeAlias = Literal["these", "like"]
Ends: TypeAlias = tuple[float, float]
_BATCHES = 20


def normal_ends(mu: float, sigma: float, bounds: Ends, level: float) -> Ends:
    """Return μ ± zσ clipped to `bounds` [Hariri 2026, §2.5].

    Examples
    --------
    >>> low, high = normal_ends(0.95, 0.1, (0.0, 1.0), 0.95)
    >>> round(low, 3), high
    (0.754, 1.0)
    """
    z = float(special.ndtri(0.5 + 0.5 * level))
    return max(mu - z * sigma, bounds[0]), min(mu + z * sigma, bounds[1])


def beta_ends(mu: float, sigma: float, bounds: Ends, level: float) -> Ends:
    """Return the equal tails of the Beta distribution on `bounds` with this mean and sd.

    Examples
    --------
    >>> low, high = beta_ends(5 / 6, (5 / 252) ** 0.5, (0.0, 1.0), 0.95)  # Beta(5, 1)
    >>> round(low, 3), round(high, 3)
    (0.478, 0.995)
    """
    return equal_tails(MatchedBeta(mu, sigma, bounds).quantiles, level)


def equal_tails(quantiles: Callable[[FloatArray], FloatArray], level: float) -> Ends:
    """Return the quantiles that leave equal masses outside."""
    low, high = quantiles(np.array([0.5 * (1.0 - level), 0.5 * (1.0 + level)])).tolist()
    return low, high


def sample_tails(sample: FloatArray, level: float) -> Ends:
    """Return the equal-tailed quantiles of a sample."""
    return equal_tails(partial(np.quantile, sample), level)


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
    method : {"exact", "normal", "beta"}
        See `Posterior.interval`.
    seed : int
        Seed of the posterior draws, where there are any.
    settings : {"these", "like"}
        In which settings the score is that of the model: in those in which it was run, or in
        settings like these, which `interval_of_run` alone knows; others refuse "like".

    Raises
    ------
    InvalidInputError
        If a setting breaks its rule.

    Examples
    --------
    >>> IntervalSpec(0.9, method="beta").to_dict()
    {'level': 0.9, 'scope': 'benchmark', 'method': 'beta', 'seed': 0, 'settings': 'these'}
    """

    level: float = 0.95
    scope: Scope = "benchmark"
    method: IntervalMethod = "exact"
    seed: int = 0
    settings: Settings = "these"

    def __post_init__(self) -> None:
        object.__setattr__(self, "level", check_level(self.level))
        object.__setattr__(self, "scope", check_option("scope", self.scope, SCOPES))
        object.__setattr__(self, "method", check_option("method", self.method, METHODS))
        object.__setattr__(self, "seed", check_seed(self.seed))
        settings: tuple[Settings, ...] = ("these", "like")
        object.__setattr__(self, "settings", check_option("settings", self.settings, settings))

    def require_these(self) -> None:
        """Raise where settings like these are asked of what knows these settings alone.

        Raises
        ------
        InvalidInputError
            If `settings` is "like".
        """
        if self.settings == "like":
            rule = 'be "these" here; `interval_of_run` has the interval about settings like these'
            raise InvalidInputError.of("settings", "unsupported", rule, self.settings)

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


#: The settings that functions take unless they get others: 95%, benchmark, exact.
DEFAULT_INTERVAL = IntervalSpec()


@dataclass(frozen=True)
class Interval(Record):
    """A credible interval together with what it is an interval of.

    Attributes
    ----------
    low, high : float
        The endpoints, on the scale of the score.
    level : float
        The posterior mass meant to lie between them, in (0, 1).
    method : str
        "normal", "beta" or "exact".
    scope : str
        "benchmark": about these questions; "population": about the population of questions.
    mc_error : float or None
        Monte-Carlo standard error of the less certain endpoint where it was drawn, None where
        it was computed.
    seed : int or None
        The seed of those draws.
    settings : str
        "these" or "like": of a score in the settings of the runs, or in settings like these.

    Examples
    --------
    >>> Interval(0.2, 0.6, level=0.95, method="normal", scope="benchmark").to_dict()["high"]
    0.6
    """

    low: float
    high: float
    level: float
    method: IntervalMethod
    scope: Scope
    mc_error: float | None = None
    seed: int | None = None
    settings: Settings = field(default="these", metadata=NOT_IN_JSON)

    @property
    def width(self) -> float:
        """High minus low."""
        return self.high - self.low


def score_interval(
    distribution: Distribution,
    moments: tuple[float, float],
    bounds: tuple[float, float],
    spec: IntervalSpec,
) -> Interval:
    """Return the credible interval of a score.

    Parameters
    ----------
    distribution : Distribution
        Of the score.
    moments : (float, float)
        Posterior mean and standard deviation of the score.
    bounds : (float, float)
        The smallest and the largest possible score; the endpoints are clipped to them.
    spec : IntervalSpec
        Level, scope and method.
    """
    mu, sigma = moments
    mc_error = None
    if sigma == 0.0:
        low, high = mu, mu
    elif spec.method == "normal":
        low, high = normal_ends(mu, sigma, bounds, spec.level)
    elif spec.method == "beta":
        low, high = beta_ends(mu, sigma, bounds, spec.level)
    elif distribution.computed:
        low, high = equal_tails(distribution.quantiles, spec.level)
    else:
        low, high, mc_error = drawn_ends(distribution.draws, spec.level)
    # of a long tail the mean can lie beyond a quantile; no interval leaves it out
    low, high = np.clip([min(low, mu), max(high, mu)], *bounds).tolist()
    return Interval(
        low=low,
        high=high,
        level=spec.level,
        method=spec.method,
        scope=spec.scope,
        mc_error=mc_error,
        seed=None if mc_error is None else distribution.seed,
        settings=spec.settings,
    )


def drawn_ends(sample: FloatArray, level: float) -> tuple[float, float, float]:
    """Return the equal tails of draws, and the standard error of the less certain end.

    The error comes from the scatter of the ends between 20 equal batches of the draws, which are
    in random order.
    """
    in_batches = sample[: sample.size // _BATCHES * _BATCHES].reshape(_BATCHES, -1)
    tails = [0.5 * (1.0 - level), 0.5 * (1.0 + level)]
    error = np.quantile(in_batches, tails, axis=1).std(axis=1, ddof=1).max() / np.sqrt(_BATCHES)
    return *sample_tails(sample, level), float(error)
