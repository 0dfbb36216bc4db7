"""Models' scores under a prior that the models of a board share, see `shared_prior`.

A posterior under a flat prior on the difference of two models takes large differences to be as
plausible as small ones, so that of close models too many are called different. Here the prior of
the scores learns from all models how far they are apart.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt
from scipy import special

from lm_eval_bayes._util.plain import NOT_IN_JSON, Record
from lm_eval_bayes.errors import InvalidInputError
from lm_eval_bayes.stats.arrays import FloatArray, numeric, protect
from lm_eval_bayes.stats.intervals import Scope
from lm_eval_bayes.stats.ranking.rank import check_leaderboard
from lm_eval_bayes.stats.ranking.shared_prior import FAILS_NEAR_ENDS, board_logits
from lm_eval_bayes.stats.ranking.simultaneous import PairErrors, pair_errors
from lm_eval_bayes.stats.results import Posterior
from lm_eval_bayes.stats.validation import check_level


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
        How far the models are apart: posterior median of the scale τ of their logits, and the
        equal tails of level `level`. Two thirds of models other than outliers are within τ. None
        where all scores, or all differences, are certain: nothing is shrunk then.
    level : float
        Level of the intervals.
    scope : str
        What the scores are about.
    note : str or None
        That the prior fails near the ends of the range of scores; None where `tau` is.
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
    note: str | None = None

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


def shared_scores(
    posteriors: Mapping[str, Posterior],
    level: float = 0.95,
    *,
    own_variance: npt.ArrayLike | None = None,
) -> SharedScores:
    """Return the models' scores under a prior that learns from all models how far they are apart.

    The logits of the L scores are normal around m with sd τ, and the logits of the posterior means
    are normal around them. m is flat, and τ is half-Cauchy with scale 2√v, where v is the mean
    error variance of the models: equal models and models far apart are both plausible. With
    probability .3 a model is an outlier, whose variance is larger by (3, 9, 27 or 81)² v, each as
    probable, so that a model far from all others is shrunk little. All this is integrated out.

    In scope "population" the logits are those of the posterior means of scope "benchmark", moved
    together to the mean of those of scope "population", which vary more than paired differences.
    The errors of two models are independent in scope "benchmark" from two trials per question on,
    as in `rank` and `compare`. Otherwise models are paired by question: what they have in
    common cancels in every difference and adds to the scores' own sd. The rest is each
    model's own, and is estimated from all models together.

    `rank` with ``prior="shared"`` has the probabilities of ranks under this prior. It fails near
    the ends of the range of scores, where the logits of posterior means are far from normal.

    Parameters
    ----------
    posteriors : mapping of str to Posterior
        One per model, as for `rank`, at least two. The more models, the more is learned.
    level : float
        Credible level of the intervals, strictly between 0 and 1.
    own_variance : array, shape (L,), optional
        The variance of each model's error that it does not share with the others, in the order of
        `posteriors`; left out, it follows from these.

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
    `examples/shared_prior.py` measures how often A is better where P(A > B) is .85 to .99, on
    boards of 6 and 20 models whose logits are normal, with 30 questions; 81 of 96 cells are within
    3 points, at 16 trials per question all 48. At four trials and an sd of .1, well below the
    noise, 5 to 10% of the pairs reach .85, and claims are mostly 5 to 11 points too high: they are
    right on average over the prior of τ, and too high where τ is below half a standard error, with
    known errors too (13 points of six models at .4). At four trials and six models with an sd of .3
    or .6 they are up to 4 points too low.

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
    ([0.79, 0.73, 0.61, 0.61], [0.72, 0.69, 0.65, 0.65])
    """
    level = check_level(level)
    names = check_leaderboard(posteriors)
    if len(names) < 2:
        raise InvalidInputError.of("posteriors", "empty", "be of at least two models", len(names))
    in_order = [posteriors[name] for name in names]
    own = pair_errors(in_order).own_variance if own_variance is None else own_variance
    posterior = board_logits(posteriors, _check_variances(own, len(names)))
    unshared_mu = np.array([each.mu for each in in_order])
    if posterior is None:
        mu, sigma = unshared_mu, np.array([each.sigma for each in in_order])
        ends = np.array([(i.low, i.high) for i in (each.interval(level) for each in in_order)])
        p_greater = 0.5 + 0.5 * np.sign(mu[:, None] - mu)
        tau_low = tau = tau_high = None
    else:
        low, high = in_order[0].bounds
        tail = 0.5 * (1.0 - level)
        marginals = [posterior.marginal(i) for i in range(len(names))]
        mean, sd = np.array([marginal.moments_of_expit() for marginal in marginals]).T
        mu, sigma = low + (high - low) * mean, (high - low) * sd
        quantiles = [[m.quantile(tail), m.quantile(1.0 - tail)] for m in marginals]
        ends = low + (high - low) * special.expit(quantiles)
        p_greater = posterior.p_greater()
        tau_low, tau, tau_high = posterior.tau_quantiles(np.array([tail, 0.5, 1.0 - tail])).tolist()
    return SharedScores(
        models=tuple(names),
        mu=mu,
        sigma=sigma,
        low=ends[:, 0],
        high=ends[:, 1],
        unshared_mu=unshared_mu,
        p_greater=p_greater,
        tau=tau,
        tau_low=tau_low,
        tau_high=tau_high,
        level=level,
        scope=in_order[0].scope,
        note=None if posterior is None else FAILS_NEAR_ENDS,
    )


def mean_own_variance(tasks: Sequence[PairErrors]) -> FloatArray:
    """Return the models' own variances of the mean of tasks, shape (L,).

    Parameters
    ----------
    tasks : sequence of PairErrors
        One per task, of the same models in the same order; tasks are independent.
    """
    return np.asarray(np.sum([task.own_variance for task in tasks], axis=0) / len(tasks) ** 2)


def _check_variances(variances: npt.ArrayLike, n_models: int) -> FloatArray:
    values = np.asarray(numeric("own_variance", variances), dtype=np.float64)
    rule = f"be non-negative, one per model ({n_models})"
    if values.shape != (n_models,):
        raise InvalidInputError.of("own_variance", "shape", rule, f"shape {values.shape}")
    if not (values >= 0.0).all():
        raise InvalidInputError.of("own_variance", "range", rule, float(values.min()))
    return values
