"""What the kernels hand back: frozen records that know how to become plain JSON."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from typing import Any, Literal, TypeAlias

from lm_eval_bayes.core.checks import FloatArray
from lm_eval_bayes.core.laws import Law

IntervalMethod: TypeAlias = Literal["normal", "beta", "exact", "hdi"]
Scope: TypeAlias = Literal["benchmark", "population"]


@dataclass(frozen=True)
class Interval:
    """A credible interval together with what it is an interval of.

    Attributes
    ----------
    low, high : float
        The ends, on the scale of the score.
    level : float
        The posterior mass meant to lie between them, in (0, 1).
    method : str
        "normal", "beta", "exact" or "hdi".
    scope : str
        "benchmark": about these questions; "population": about questions like these.
    mc_error : float or None
        Standard error of the worse end where it was drawn, None where it was computed.
    seed : int or None
        The seed of those draws.

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

    @property
    def width(self) -> float:
        """High minus low."""
        return self.high - self.low

    def to_dict(self) -> dict[str, Any]:
        """Return plain JSON types."""
        return asdict(self)


@dataclass(frozen=True, eq=False)
class PerQuestion:
    """Posterior mean and sd of every question's score, each read-only of shape (M,)."""

    mu: FloatArray
    sigma: FloatArray

    def to_dict(self) -> dict[str, Any]:
        """Return plain JSON types."""
        return {"mu": self.mu.tolist(), "sigma": self.sigma.tolist()}


@dataclass(frozen=True, eq=False)
class Posterior:
    """The posterior of a benchmark's score, the mean of its questions' scores.

    Attributes
    ----------
    quantity : str
        What is estimated, e.g. "bayes@N" or "pass@k posterior".
    mu, sigma : float
        Posterior mean and standard deviation of the benchmark's score.
    per_question : PerQuestion
        The same for each question.
    bounds : tuple of float
        The smallest and the largest score that are possible.
    prior : float
        The pseudo-count that the prior added to each category.
    scope : str
        "benchmark": about these questions; "population": about questions like these.
    k : int or None
        Trials that the quantity looks at, where it has such a number.
    tau : float or None
        Threshold of G-Pass.
    law : Law
        The distribution itself, from which :meth:`interval` works.
    """

    quantity: str
    mu: float
    sigma: float
    per_question: PerQuestion
    bounds: tuple[float, float]
    prior: float
    law: Law = field(repr=False)
    scope: Scope = "benchmark"
    k: int | None = None
    tau: float | None = None

    def interval(
        self,
        level: float = 0.95,
        method: IntervalMethod = "normal",
        *,
        seed: int = 0,
        draws: int | None = None,
    ) -> Interval:
        """Return a credible interval; see :func:`lm_eval_bayes.core.intervals.credible_interval`.

        Examples
        --------
        >>> from lm_eval_bayes.core.outcomes import Outcomes
        >>> from lm_eval_bayes.core.posterior import bayes_at_n
        >>> posterior = bayes_at_n(Outcomes.from_matrix([[1, 1, 1, 1]]))
        >>> exact = posterior.interval(0.95, "exact")
        >>> round(exact.low, 3), round(exact.high, 3)
        (0.478, 0.995)
        """
        # intervals.py speaks of this class, so it can only be fetched here
        from lm_eval_bayes.core.intervals import credible_interval

        return credible_interval(self, level, method, seed=seed, draws=draws)

    def to_dict(self) -> dict[str, Any]:
        """Return plain JSON types, without the law."""
        return {
            "quantity": self.quantity,
            "mu": self.mu,
            "sigma": self.sigma,
            "scope": self.scope,
            "prior": self.prior,
            "bounds": list(self.bounds),
            "k": self.k,
            "tau": self.tau,
            "n_questions": int(self.per_question.mu.size),
            "per_question": self.per_question.to_dict(),
        }


@dataclass(frozen=True, eq=False)
class Estimate:
    """A point estimate from the trials at hand.

    Attributes
    ----------
    quantity : str
        What is estimated, e.g. "avg@N" or "pass@k".
    value : float
        The benchmark's estimate, the mean of `per_question`.
    per_question : array, shape (M,)
        Each question's estimate, read-only.
    k : int or None
        Trials that the quantity looks at, where it has such a number.
    tau : float or None
        Threshold of G-Pass.
    sigma : float or None
        Standard deviation of `value`, where the estimate has one (avg@N).
    mc_error : float or None
        Monte-Carlo standard error of `value`, where any of it was drawn.
    seed : int or None
        The seed of those draws.
    """

    quantity: str
    value: float
    per_question: FloatArray
    k: int | None = None
    tau: float | None = None
    sigma: float | None = None
    mc_error: float | None = None
    seed: int | None = None

    def to_dict(self) -> dict[str, Any]:
        """Return plain JSON types."""
        return {**asdict(self), "per_question": self.per_question.tolist()}
