"""Models' scores under a prior that the models of a board share.

A posterior under a flat prior on the difference of two models takes large differences to be as
plausible as small ones, so that of close models too many are called different. Here the logits
of the scores are normal around a common mean, and how far the models are apart is learned from
all of them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt
from scipy import optimize, special

from lm_eval_bayes._util.plain import NOT_IN_JSON, Record
from lm_eval_bayes.errors import InvalidInputError
from lm_eval_bayes.stats.distributions.weighted import weighted_quantiles
from lm_eval_bayes.stats.intervals import Scope
from lm_eval_bayes.stats.ranking.rank import check_leaderboard
from lm_eval_bayes.stats.ranking.simultaneous import PairErrors, pair_errors
from lm_eval_bayes.stats.results import Posterior
from lm_eval_bayes.stats.validation import FloatArray, check_level, numeric, protect

#: Nodes of τ, and of the normal distributions where a mean is computed.
_NODES, _HERMITE = 400, 61
#: Scores are at least this far from the ends of their range before a logit is taken.
_EDGE = 1e-9
#: A model's own error variance is at least this share of the models' mean.
_SMALLEST_SHARE = 0.1


@dataclass(frozen=True, eq=False)
class SharedScores(Record):
    """The scores of L models under a prior that they share; every array follows `models`.

    Attributes
    ----------
    models : tuple of str
        The names, in the order of the posteriors.
    mu, sigma : array, shape (L,)
        Posterior mean and sd of each model's score.
    low, high : array, shape (L,)
        Equal tails of level `level`.
    unshared_mu : array, shape (L,)
        The posterior means without the shared prior.
    p_greater : array, shape (L, L)
        ``[i, j]``: probability that model i scores more than model j; ½ on the diagonal.
    tau, tau_low, tau_high : float or None
        How far the models are apart: posterior median of the sd τ of their logits, and the
        equal tails of level `level`; None where all scores, or all differences, are certain:
        nothing is shrunk then.
    level : float
        Level of the intervals.
    scope : str
        What the scores are about.
    """

    models: tuple[str, ...]
    mu: FloatArray = field(metadata=NOT_IN_JSON)
    sigma: FloatArray = field(metadata=NOT_IN_JSON)
    low: FloatArray = field(metadata=NOT_IN_JSON)
    high: FloatArray = field(metadata=NOT_IN_JSON)
    unshared_mu: FloatArray = field(metadata=NOT_IN_JSON)
    p_greater: FloatArray = field(repr=False)
    tau: float | None
    tau_low: float | None
    tau_high: float | None
    level: float
    scope: Scope

    def __post_init__(self) -> None:
        protect(self)

    def rows(self) -> list[dict[str, Any]]:
        """Return the numbers of every model by name: model, mu, sigma, low, high, unshared_mu."""
        names = ("mu", "sigma", "low", "high", "unshared_mu")
        return [
            {"model": model, **{name: float(getattr(self, name)[i]) for name in names}}
            for i, model in enumerate(self.models)
        ]

    def to_dict(self) -> dict[str, Any]:
        """Return plain JSON types."""
        return {**super().to_dict(), "models": self.rows()}


def midpoints(n: int) -> FloatArray:
    """Return n equally probable nodes of a uniform distribution on (0, 1)."""
    return np.asarray((np.arange(n) + 0.5) / n)


@dataclass(frozen=True, eq=False)
class LogitMixture:
    """A mixture of normal distributions of a logit."""

    weight: FloatArray
    mean: FloatArray
    sd: FloatArray

    def quantile(self, mass: float) -> float:
        """Return the logit below which `mass` lies."""
        ends = self.mean + self.sd * special.ndtri(mass)
        low, high = float(ends.min()), float(ends.max())
        if high - low <= 1e-12:
            return high

        def excess(x: float) -> float:
            return float(self.weight @ special.ndtr((x - self.mean) / self.sd)) - mass

        return float(optimize.brentq(excess, low - 1e-9, high + 1e-9))

    def moments_of_expit(self) -> tuple[float, float]:
        """Return mean and sd of the score."""
        node, weight = np.polynomial.hermite_e.hermegauss(_HERMITE)
        score = special.expit(self.mean[:, None] + self.sd[:, None] * node)
        mass = self.weight[:, None] * (weight / weight.sum())
        mean = float((mass * score).sum())
        return mean, float(np.sqrt((mass * (score - mean) ** 2).sum()))


@dataclass(frozen=True, eq=False)
class SharedLogits:
    """The joint posterior of L logits: given τ normal, with K nodes of τ.

    Attributes
    ----------
    tau, log_evidence : array, shape (K,)
        The nodes, and the log density of the estimates given each, up to a constant.
    mean : array, shape (K, L)
        Posterior means given τ.
    loadings, within, of_centre, precision : array, shape (L, L), (K, L), (K, L), (K,)
        The posterior covariance given τ is that of `loadings` times independent variables with the
        variances `within`, and of `of_centre` times one with the variance 1 / `precision`, which
        is that of the models' common mean.
    """

    tau: FloatArray
    log_evidence: FloatArray
    mean: FloatArray
    loadings: FloatArray
    within: FloatArray
    of_centre: FloatArray
    precision: FloatArray

    @cached_property
    def weight(self) -> FloatArray:
        """Posterior probabilities of the nodes, which are equally probable a priori."""
        return np.asarray(special.softmax(self.log_evidence))

    @cached_property
    def covariance(self) -> FloatArray:
        """Posterior covariances given τ, shape (K, L, L)."""
        within = np.einsum(
            "ik,nk,jk->nij", self.loadings, self.within, self.loadings, optimize=True
        )
        between = self.of_centre[:, :, None] * self.of_centre[:, None, :]
        return np.asarray(within + between / self.precision[:, None, None])

    def marginal(self, index: int) -> LogitMixture:
        """Return the distribution of one model's logit."""
        variance = self.within @ self.loadings[index] ** 2
        variance += self.of_centre[:, index] ** 2 / self.precision
        return LogitMixture(self.weight, self.mean[:, index], np.sqrt(np.maximum(variance, 1e-300)))

    def p_greater(self) -> FloatArray:
        """Return the probability that model i's logit is above model j's, shape (L, L)."""
        greater = np.full((self.mean.shape[1],) * 2, 0.5)
        own = np.diagonal(self.covariance, axis1=1, axis2=2)
        for i, row in enumerate(greater):
            variance = own[:, [i]] + own - 2.0 * self.covariance[:, i]
            z = (self.mean[:, [i]] - self.mean) / np.sqrt(np.maximum(variance, 1e-300))
            row[:] = self.weight @ special.ndtr(z)
        return greater


def shared_logits(
    logit: FloatArray,
    errors: FloatArray,
    prior_variance: FloatArray,
    relative_sd: FloatArray | None = None,
) -> SharedLogits:
    """Return the posterior of L logits with a normal prior whose mean is flat.

    θ_i ~ N(m, τ² r_i²) independently, the estimates are N(θ, errors); m is integrated out.

    Parameters
    ----------
    logit : array, shape (L,)
        The estimates.
    errors : array, shape (L, L)
        The covariance of their errors.
    prior_variance : array, shape (K,)
        Nodes of τ², of equal prior probability.
    relative_sd : array, shape (L,), optional
        r; left out, 1 for every model.

    Examples
    --------
    Two estimates 0 and 1, errors of variance ½ and τ² = ½: the difference is halved.

    >>> posterior = shared_logits(np.array([0.0, 1.0]), np.eye(2) / 2, np.array([0.5]))
    >>> posterior.mean.round(3).tolist(), posterior.covariance.round(3).tolist()
    ([[0.25, 0.75]], [[[0.375, 0.125], [0.125, 0.375]]])
    """
    relative = np.ones_like(logit) if relative_sd is None else relative_sd
    # in units of r the prior is the same for every model, and so in the basis of the eigenvectors
    values, vectors = np.linalg.eigh(errors / np.outer(relative, relative))
    values = np.maximum(values, 0.0)
    estimate, direction = (logit / relative) @ vectors, (1.0 / relative) @ vectors
    loadings = relative[:, None] * vectors
    total = values + prior_variance[:, None]
    precision = (direction**2 / total).sum(axis=1)
    centre = (direction * estimate / total).sum(axis=1) / precision
    residual = estimate - centre[:, None] * direction
    log_evidence = -np.log(relative).sum() - 0.5 * (
        np.log(total).sum(axis=1) + np.log(precision) + (residual**2 / total).sum(axis=1)
    )
    prior_share = prior_variance[:, None] / total
    return SharedLogits(
        tau=np.sqrt(prior_variance),
        log_evidence=log_evidence,
        mean=centre[:, None] + (prior_share * residual) @ loadings.T,
        loadings=loadings,
        within=prior_share * values,
        of_centre=(values / total * direction) @ loadings.T,
        precision=precision,
    )


def logits_and_slopes(
    posteriors: Mapping[str, Posterior],
) -> tuple[FloatArray, FloatArray]:
    """Return the logits of the posterior means, on the range of the scores, and their slopes.

    A slope is the derivative of the logit by the score, by which an sd of the score becomes one
    of the logit. All posteriors have one range.
    """
    low, high = next(iter(posteriors.values())).bounds
    mu = np.array([posterior.mu for posterior in posteriors.values()])
    score = np.clip((mu - low) / (high - low), _EDGE, 1.0 - _EDGE)
    return special.logit(score), 1.0 / ((high - low) * score * (1.0 - score))


def shared_scores(
    posteriors: Mapping[str, Posterior],
    level: float = 0.95,
    *,
    difference_sd: npt.ArrayLike | None = None,
) -> SharedScores:
    """Return the models' scores under a prior that learns from all models how far they are apart.

    The logits θ_i of the L scores are N(m, τ²), and the logits of the posterior means are
    normal around them. m is flat, and τ is half-Cauchy with scale √v, where v is the mean error
    variance of the models: equal models and models far apart are both plausible. Both are
    integrated out, τ on 400 nodes.

    Errors of two models' difference are those of `rank` and `compare`: independent in scope
    "benchmark" from two trials per question on, paired by question in scope "population".
    The variances of the pairs' differences are divided into one part per model by least squares;
    what models have in common cancels in every difference and adds to the scores' own sd.

    Parameters
    ----------
    posteriors : mapping of str to Posterior
        One per model, as for `rank`, at least two. The more models, the more is learned.
    level : float
        Credible level of the intervals, strictly between 0 and 1.
    difference_sd : array, shape (L, L), optional
        The sd of the difference of every two models, in the order of `posteriors`; left out,
        that of `rank`.

    Returns
    -------
    SharedScores

    Raises
    ------
    InvalidInputError
        If there are fewer than two models, the posteriors cannot be ranked together, or an
        argument breaks its rule.

    Notes
    -----
    `examples/shared_prior.py` measures how often A is better where P(A > B) is .85 to .99. With
    four trials on each of 30 questions and models whose logits have sd .1, well below the noise,
    few pairs reach .85, and those are right in 82–83% where 90% is claimed (flat prior: 73–77%
    where 92% is). With sd .3 or 1, claims were 0–4 points too low. A model
    far from all others is shrunk too much, as the prior is normal.

    Examples
    --------
    >>> from lm_eval_bayes.stats.hierarchical.hbayes_at_n import hbayes_at_n
    >>> from lm_eval_bayes.stats.outcomes import Outcomes
    >>> right = {"a": [4, 3, 4, 2], "b": [3, 3, 4, 2], "c": [3, 2, 3, 2], "d": [2, 3, 3, 2]}
    >>> posteriors = {
    ...     model: hbayes_at_n(Outcomes.from_counts([[4 - c, c] for c in counts]))
    ...     for model, counts in right.items()
    ... }
    >>> shared = shared_scores(posteriors)
    >>> shared.unshared_mu.round(2).tolist(), shared.mu.round(2).tolist()
    ([0.79, 0.73, 0.61, 0.61], [0.7, 0.69, 0.66, 0.66])
    """
    level = check_level(level)
    names = check_leaderboard(posteriors)
    if len(names) < 2:
        raise InvalidInputError.of("posteriors", "be of at least two models", len(names))
    in_order = [posteriors[name] for name in names]
    sd = _difference_sd(in_order, difference_sd)
    mu = np.array([posterior.mu for posterior in in_order])
    sigma = np.array([posterior.sigma for posterior in in_order])
    if not (sigma.any() and sd.any()):
        own_ends = np.array([(i.low, i.high) for i in (p.interval(level) for p in in_order)])
        return SharedScores(
            models=tuple(names),
            mu=mu,
            sigma=sigma,
            low=own_ends[:, 0],
            high=own_ends[:, 1],
            unshared_mu=mu,
            p_greater=0.5 + 0.5 * np.sign(mu[:, None] - mu),
            tau=None,
            tau_low=None,
            tau_high=None,
            level=level,
            scope=in_order[0].scope,
        )
    logit, slope = logits_and_slopes(posteriors)
    own = _own_variances(sd**2, sigma**2) * slope**2
    common = max(float((sigma**2 * slope**2 - own).mean()), 0.0)
    tau_nodes = np.tan(0.5 * np.pi * midpoints(_NODES))  # half-Cauchy
    posterior = shared_logits(logit, np.diag(own) + common, own.mean() * tau_nodes**2)
    low, high = in_order[0].bounds
    tail = 0.5 * (1.0 - level)
    marginals = [posterior.marginal(i) for i in range(len(names))]
    moments = np.array([marginal.moments_of_expit() for marginal in marginals])
    ends = special.expit([[m.quantile(tail), m.quantile(1.0 - tail)] for m in marginals])
    masses = np.array([tail, 0.5, 1.0 - tail])
    tau_low, tau, tau_high = weighted_quantiles(posterior.tau, posterior.weight, masses).tolist()
    return SharedScores(
        models=tuple(names),
        mu=low + (high - low) * moments[:, 0],
        sigma=(high - low) * moments[:, 1],
        low=low + (high - low) * ends[:, 0],
        high=low + (high - low) * ends[:, 1],
        unshared_mu=mu,
        p_greater=posterior.p_greater(),
        tau=tau,
        tau_low=tau_low,
        tau_high=tau_high,
        level=level,
        scope=in_order[0].scope,
    )


def difference_sds(tasks: Sequence[PairErrors], n_models: int) -> FloatArray:
    """Return the sd of the difference of every two models on the mean of tasks, (L, L).

    Parameters
    ----------
    tasks : sequence of PairErrors
        One per task, of the same models in the same order; tasks are independent.
    n_models : int
        L.
    """
    matrix = np.zeros((n_models, n_models))
    variance = np.sum([task.variance for task in tasks], axis=0)
    matrix[np.triu_indices(n_models, 1)] = np.sqrt(variance) / len(tasks)
    return np.asarray(matrix + matrix.T)


def _difference_sd(posteriors: list[Posterior], given: npt.ArrayLike | None) -> FloatArray:
    n_models = len(posteriors)
    if given is None:
        return difference_sds([pair_errors(posteriors)], n_models)
    matrix = np.array(numeric("difference_sd", given), dtype=np.float64)
    rule = f"be non-negative, with one row and one column per model ({n_models})"
    if matrix.shape != (n_models, n_models):
        raise InvalidInputError.of("difference_sd", rule, f"shape {matrix.shape}")
    if not (matrix >= 0.0).all():
        raise InvalidInputError.of("difference_sd", rule, float(matrix.min()))
    np.fill_diagonal(matrix, 0.0)
    return matrix


def _own_variances(pair_variance: FloatArray, variance: FloatArray) -> FloatArray:
    """Return d_i such that d_i + d_j is the variance of a difference, by least squares.

    Two models share theirs in proportion to their own variances. A d_i is at least a tenth of
    their mean, except where a score is certain.
    """
    n_models = len(variance)
    of_model = pair_variance.sum(axis=1)
    if n_models == 2:
        return np.asarray(of_model * variance / variance.sum())
    total = of_model.sum() / (2.0 * (n_models - 1))
    own = (of_model - total) / (n_models - 2)
    return np.where(variance > 0.0, np.maximum(own, _SMALLEST_SHARE * total / n_models), 0.0)
