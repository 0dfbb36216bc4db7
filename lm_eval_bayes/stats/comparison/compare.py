"""Which of two models is better: the posterior of their difference, and two rules for a verdict."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal, TypeAlias

import numpy as np
from scipy import special

from lm_eval_bayes._util.plain import NOT_IN_JSON, Record
from lm_eval_bayes._util.validation import (
    as_real,
    check_confidence,
    check_option,
    check_pair,
    check_real,
)
from lm_eval_bayes.errors import InvalidInputError
from lm_eval_bayes.stats.comparison.difference import (
    difference_posterior,
    draw_variance,
    p_above,
    separation_in_sd,
)
from lm_eval_bayes.stats.comparison.shared_questions import (
    Align,
    align_questions,
    common_clusters,
    pair_posterior,
)
from lm_eval_bayes.stats.hierarchical.hbayes_at_n import hbayes_at_n
from lm_eval_bayes.stats.intervals import Interval, IntervalMethod, IntervalSpec, Scope
from lm_eval_bayes.stats.outcomes import Outcomes
from lm_eval_bayes.stats.results import Posterior
from lm_eval_bayes.stats.uniform_prior import bayes_at_n

Verdict: TypeAlias = Literal["a", "b", "undecided"]
Estimator: TypeAlias = Literal["hbayes", "bayes"]
#: The posterior of scope "benchmark", from outcomes and the seed of its draws.
FITS: Mapping[Estimator, Callable[[Outcomes, int], Posterior]] = {
    "hbayes": lambda outcomes, seed: hbayes_at_n(outcomes, seed=seed),
    "bayes": lambda outcomes, seed: bayes_at_n(outcomes),
}
ESTIMATORS: tuple[Estimator, ...] = tuple(FITS)
#: The ρ that the paper's rule of z asks for, and the confidence of verdicts.
CONFIDENCE = 0.95


@dataclass(frozen=True, eq=False)
class DifferenceSummary(Record):
    """What the posterior of A − B says; the attributes are those of `Comparison`."""

    interval: Interval
    z: float
    rho: float
    p_a_greater: float
    mc_error: float | None
    rope: tuple[float, float] | None
    p_rope: float | None
    rule_z: Verdict


@dataclass(frozen=True, eq=False)
class Comparison(DifferenceSummary):
    """The comparison of models A and B.

    Attributes
    ----------
    a, b : Posterior
        Each model's own score, in the scope of the comparison.
    interval_a, interval_b : Interval
        Their credible intervals.
    posterior : Posterior
        That of the difference A − B; ask it for other intervals.
    interval : Interval
        Of the difference, within [low_A − high_B, high_A − low_B].
    z : float
        |difference| / sd; inf where the sd is 0 and the difference is not.
    rho : float
        ½(1 + erf(z/√2)), the normal approximation to the probability that the model with the
        larger mean is the better one [Hariri 2026, §2.9]; one-sided, z = 1.645 gives .95.
    p_a_greater : float
        P(A > B) + ½ P(A = B) under the posterior of the difference, no approximation. The prior
        is flat on the difference, so that between close models it is too certain: `shared_scores`
        learns from all models of a board how far they are apart.
    mc_error : float or None
        Standard error of `p_a_greater` where it was drawn, None where computed. For rubrics it
        includes the error of the particles that represent the learned priors: with
        their effective sample sizes it is sqrt(P(1 − P)(1/draws + 1/ess)), an upper bound.
    rope : tuple of float or None
        The region of practical equivalence, in units of A − B.
    p_rope : float or None
        Probability that the difference lies in it.
    rule_intervals : "a", "b" or "undecided"
        The better model where the two intervals do not overlap [Hariri 2026, §2.5].
    rule_z : "a", "b" or "undecided"
        The better model where ρ reaches .95, z = 1.645 [Hariri 2026, §2.9].
    n_questions : int
        Questions compared.
    left_out_a, left_out_b : int
        Questions of each that the other lacks.
    n_clusters : int or None
        In scope "population" the number of clusters of the questions, None without.
    seed : int or None
        Seed of the draws; None where nothing was drawn.
    """

    a: Posterior = field(metadata=NOT_IN_JSON)
    b: Posterior = field(metadata=NOT_IN_JSON)
    interval_a: Interval = field(metadata=NOT_IN_JSON)
    interval_b: Interval = field(metadata=NOT_IN_JSON)
    posterior: Posterior = field(metadata=NOT_IN_JSON)
    rule_intervals: Verdict
    n_questions: int
    left_out_a: int = 0
    left_out_b: int = 0
    n_clusters: int | None = None
    seed: int | None = None

    @property
    def difference(self) -> float:
        """Posterior mean of A − B."""
        return self.posterior.mu

    @property
    def sd(self) -> float:
        """Posterior standard deviation of A − B."""
        return self.posterior.sigma

    @property
    def scope(self) -> Scope:
        """Whether this is about these questions or about the population of questions."""
        return self.posterior.scope

    def to_dict(self) -> dict[str, Any]:
        """Return plain JSON types; an infinite z becomes None."""
        return {
            **super().to_dict(),
            "scope": self.scope,
            "difference": self.difference,
            "sd": self.sd,
            "note": self.posterior.note,
            "a": self.a.to_dict(self.interval_a),
            "b": self.b.to_dict(self.interval_b),
        }


def compare(  # noqa: PLR0913  public options
    a: Outcomes,
    b: Outcomes,
    scope: Scope = "benchmark",
    level: float = 0.95,
    *,
    estimator: Estimator = "hbayes",
    align: Align = "strict",
    interval: IntervalMethod = "exact",
    rope: float | tuple[float, float] | None = None,
    seed: int = 0,
) -> Comparison:
    """Compare two models on the same questions [Hariri 2026, §2.5, 2.9; Bowyer 2025, §3.3–3.4].

    Scope "benchmark" asks which is better on these questions: the estimand is
    Δ = (1/M) Σ_α (s_α − s'_α), with s_α the expected score of a trial on question α. Given the
    data the two posteriors are independent, so Δ has mean μ − μ' and variance σ² + σ'²; its
    distribution, and with it P(A > B), is computed for two categories and drawn for more. The
    paper's z = |μ − μ'| / sqrt(σ² + σ'²) and ρ = ½(1 + erf(z/√2)) are reported too.

    Scope "population" asks about the population of questions: the estimand is the mean of s − s'
    over them, and its posterior Σ_α g_α d_α with g ~ Dirichlet(c, …, c), c = max(1 − 4/M, ½), a
    Bayesian bootstrap over the differences d_α of the questions' mean scores (Rubin 1981, c = 1;
    this c gives the variance of Student's t), so that a question's effect on both models
    cancels, as in the paired analysis of [Bowyer 2025, §3.4]; z and ρ are then those of this
    difference. The part of its variance that is due to the sampling of trials is drawn as a
    normal and the rest from the bootstrap; the variance is never less than that part. With no
    more than ten questions of skewed differences the interval is narrow (simulated: 93% for
    95%). For N = 1 see also `compare_paired`. Where the outcomes have clusters, the bootstrap draws
    the weights of clusters and not of questions, with the variance of Student's t for few of them.

    Parameters
    ----------
    a, b : Outcomes
        With the same weights. Paired by their question ids, by position without ids.
    scope : {"benchmark", "population"}
        About these M questions, or about the population of questions (M >= 2).
    level : float
        Credible level of the intervals, strictly between 0 and 1.
    estimator : {"hbayes", "bayes"}
        The learned prior, or the paper's uniform one (scope "benchmark" only).
    align : {"strict", "intersection"}
        Whether a question that one side lacks is an error, or left out and counted.
    interval : {"exact", "normal", "beta"}
        The kind of all three intervals.
    rope : float or (float, float), optional
        Differences that do not matter: ±rope, or from low to high.
    seed : int
        Seed of the states and draws that represent the posteriors.

    Returns
    -------
    Comparison

    Raises
    ------
    InvalidInputError
        If the questions or the weights do not match, or an argument breaks its rule.

    Examples
    --------
    >>> a = Outcomes.from_matrix([[1, 1, 1, 1], [1, 0, 1, 1], [0, 1, 1, 0]])
    >>> b = Outcomes.from_matrix([[1, 0, 0, 1], [0, 0, 1, 0], [0, 0, 0, 0]])
    >>> result = compare(a, b, estimator="bayes")
    >>> round(result.difference, 4), round(result.p_a_greater, 2), result.rule_z
    (0.3333, 0.99, 'a')
    """
    spec = IntervalSpec.of(level, scope, interval, seed)
    estimator = check_option("estimator", estimator, ESTIMATORS)
    region = _check_rope(rope)
    if spec.scope == "population" and estimator == "bayes":
        rule = 'be "hbayes" for scope "population"; Bayes@N is about these questions only'
        raise InvalidInputError.of("estimator", "unsupported", rule, estimator)
    pair = align_questions(a, b, align)
    if spec.scope == "benchmark":
        first, second = (FITS[estimator](side, spec.seed) for side in (pair.a, pair.b))
        posterior = difference_posterior(first, second)
    else:
        clusters = common_clusters([pair.a.clusters, pair.b.clusters])
        sides = [replace(side, clusters=clusters) for side in (pair.a, pair.b)]
        first, second = (hbayes_at_n(side, spec.scope, seed=spec.seed) for side in sides)
        posterior = pair_posterior(first, second)
    interval_a, interval_b = first.interval_by(spec), second.interval_by(spec)
    summary = summarise_difference(posterior, [first, second], spec, region)
    return Comparison(
        a=first,
        b=second,
        interval_a=interval_a,
        interval_b=interval_b,
        posterior=posterior,
        **vars(summary),
        rule_intervals=_verdict(interval_a.low > interval_b.high, interval_b.low > interval_a.high),
        n_questions=pair.a.n_questions,
        n_clusters=None if first.clusters is None else first.clusters.n_clusters,
        left_out_a=pair.left_out_a,
        left_out_b=pair.left_out_b,
        seed=spec.seed,
    )


def summarise_difference(
    posterior: Posterior,
    sides: Sequence[Posterior],
    spec: IntervalSpec,
    region: tuple[float, float] | None,
) -> DifferenceSummary:
    """Return what the posterior of A − B says.

    Parameters
    ----------
    posterior : Posterior
        Of the difference.
    sides : sequence of Posterior
        What it is the difference of, for the Monte-Carlo error.
    spec : IntervalSpec
        Settings of the interval.
    region : (float, float) or None
        The region of practical equivalence.
    """
    p_a_greater, n_draws = p_above(posterior, 0.0), posterior.distribution.n_draws
    z = separation_in_sd(posterior.mu, posterior.sigma)
    decided = z >= z_threshold(CONFIDENCE)
    return DifferenceSummary(
        interval=posterior.interval_by(spec),
        z=z,
        rho=float(special.ndtr(z)),
        p_a_greater=p_a_greater,
        mc_error=share_error(p_a_greater, n_draws, *sides) if posterior.sigma > 0.0 else None,
        rope=region,
        p_rope=None if region is None else _inside(posterior, region),
        rule_z=_verdict(decided and posterior.mu > 0.0, decided and posterior.mu < 0.0),
    )


def z_threshold(confidence: object) -> float:
    """Return the z at which ρ = ½(1 + erf(z/√2)) reaches `confidence` [Hariri 2026, §2.9].

    Raises
    ------
    InvalidInputError
        If `confidence` is not a number in [½, 1).

    Examples
    --------
    >>> round(z_threshold(0.95), 3), round(z_threshold(0.975), 2)
    (1.645, 1.96)
    """
    return float(special.ndtri(check_confidence(confidence)))


def share_error(share: float, n_draws: int, *posteriors: Posterior) -> float:
    """Return the standard error of a share of draws, above 0 also for none and all.

    Parameters
    ----------
    share : float
        In [0, 1].
    n_draws : int
        The draws that it is a share of.
    *posteriors : Posterior
        What they were drawn from; see `draw_variance`.
    """
    smoothed = (share * n_draws + 1.0) / (n_draws + 2.0)
    return float(np.sqrt(smoothed * (1.0 - smoothed) * draw_variance(n_draws, posteriors)))


def _check_rope(rope: object) -> tuple[float, float] | None:
    """Return the region of practical equivalence as (low, high)."""
    if rope is None:
        return None
    rule = "be a number of at least 0, or a pair (low, high) of numbers with low <= high"
    if as_real(rope) is not None:
        half = check_real("rope", rope, rule, lambda x: 0.0 <= x < np.inf)
        return -half, half
    return check_pair("rope", rope, rule, lambda low, high: -np.inf < low <= high < np.inf)


def _inside(posterior: Posterior, region: tuple[float, float]) -> float:
    """Return the probability of the closed region."""
    low, high = region
    if posterior.sigma == 0.0:
        return float(low <= posterior.mu <= high)
    sample = posterior.distribution.draws
    return float(((sample >= low) & (sample <= high)).mean())


def _verdict(a_better: bool, b_better: bool) -> Verdict:
    """Return the better model."""
    return "a" if a_better else "b" if b_better else "undecided"
