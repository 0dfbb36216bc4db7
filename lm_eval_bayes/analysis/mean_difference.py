"""Two models on several tasks at once: the posterior of the mean difference."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from scipy import special

from lm_eval_bayes.analysis.summary import plain_posterior
from lm_eval_bayes.analysis.task_mean import mean_posterior
from lm_eval_bayes.analysis.wording import verdict_in_words
from lm_eval_bayes.stats.comparison.compare import Comparison, Verdict, share_error, z_threshold
from lm_eval_bayes.stats.comparison.difference import p_above
from lm_eval_bayes.stats.distributions.base import SampleDistribution
from lm_eval_bayes.stats.intervals import Interval, IntervalMethod
from lm_eval_bayes.stats.results import Posterior, credible_interval
from lm_eval_bayes.stats.validation import FloatArray

#: Draws of a mean difference whose distribution is not computed.
_DRAWS = 20_000


@dataclass(frozen=True, eq=False)
class MeanDifference:
    """The equal-weighted mean over tasks of A − B.

    Attributes
    ----------
    tasks : tuple of str
        The tasks.
    posterior : Posterior
        Of the mean difference.
    interval : Interval
        Its credible interval.
    z, rho, p_a_greater, mc_error, rope, p_rope, confidence, rule_z
        As in `lm_eval_bayes.Comparison`.
    """

    tasks: tuple[str, ...]
    posterior: Posterior
    interval: Interval
    z: float
    rho: float
    p_a_greater: float
    mc_error: float | None
    rope: tuple[float, float] | None
    p_rope: float | None
    confidence: float
    rule_z: Verdict

    @property
    def verdict(self) -> str:
        """The verdict in words."""
        return verdict_in_words(self.p_a_greater, self.confidence, self.rope, self.p_rope)

    def to_dict(self) -> dict[str, Any]:
        """Return plain JSON types; an infinite z becomes None."""
        return {
            "tasks": list(self.tasks),
            **plain_posterior(self.posterior, self.interval),
            "z": self.z if np.isfinite(self.z) else None,
            "rho": self.rho,
            "p_a_greater": self.p_a_greater,
            "mc_error": self.mc_error,
            "rope": None if self.rope is None else list(self.rope),
            "p_rope": self.p_rope,
            "confidence": self.confidence,
            "rule_z": self.rule_z,
            "verdict": self.verdict,
        }


def mean_difference(
    comparisons: dict[str, Comparison], level: float, method: IntervalMethod, seed: int
) -> MeanDifference:
    """Return the posterior of the mean over tasks of A − B, each task counting the same.

    The trials of different tasks are independent, so the mean of T differences has the standard
    deviation sqrt(Σ σ²)/T.

    Parameters
    ----------
    comparisons : dict of str to Comparison
        By task, of one scope, rope and confidence.
    level, method
        Of the interval.
    seed : int
        Seed of the draws, where there are any.

    Examples
    --------
    >>> from lm_eval_bayes.stats.comparison.compare import compare
    >>> from lm_eval_bayes.stats.outcomes import Outcomes
    >>> a, b = Outcomes.from_counts([[2, 6]] * 9), Outcomes.from_counts([[5, 3]] * 9)
    >>> found = mean_difference({"x": compare(a, b), "y": compare(b, a)}, 0.95, "exact", 0)
    >>> abs(found.posterior.mu) < 1e-12, round(found.p_a_greater, 3)
    (True, 0.5)
    """
    like = next(iter(comparisons.values()))
    posterior = mean_posterior([one.posterior for one in comparisons.values()])
    sample: FloatArray | None = None
    shown = posterior
    if posterior.sigma > 0.0 and not posterior.distribution.computed:
        # one set of draws for the interval and the probabilities
        sample = posterior.distribution.draw(_DRAWS, np.random.default_rng(seed))
        shown = replace(posterior, distribution=SampleDistribution(sample))
    p_a_greater = p_above(posterior, 0.0, sample)
    z = 0.0
    if posterior.mu != 0.0:
        z = abs(posterior.mu) / posterior.sigma if posterior.sigma > 0.0 else float("inf")
    sides = [side for one in comparisons.values() for side in (one.a, one.b)]
    better: Verdict = "a" if posterior.mu > 0.0 else "b"
    decided = z > 0.0 and z >= z_threshold(like.confidence)
    return MeanDifference(
        tasks=tuple(comparisons),
        posterior=posterior,
        interval=credible_interval(shown, level, method, seed=seed, draws=_DRAWS),
        z=z,
        rho=float(special.ndtr(z)),
        p_a_greater=p_a_greater,
        mc_error=None if sample is None else share_error(p_a_greater, _DRAWS, *sides),
        rope=like.rope,
        p_rope=None if like.rope is None else _inside(posterior, like.rope, sample),
        confidence=like.confidence,
        rule_z=better if decided else "undecided",
    )


def _inside(posterior: Posterior, region: tuple[float, float], sample: FloatArray | None) -> float:
    """Return the probability of the closed region."""
    low, high = region
    if sample is not None:
        return float(((sample >= low) & (sample <= high)).mean())
    if posterior.sigma == 0.0:
        return float(low <= posterior.mu <= high)
    return p_above(posterior, low) - p_above(posterior, high)
