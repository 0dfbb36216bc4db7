"""Models' scores under a prior that the models of a board share, see `related_scores`.

A posterior under a flat prior on the difference of two models takes large differences to be as
plausible as small ones, so that of close models too many are called different. Here the prior of
the scores learns from all models how far they are apart.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from lm_eval_bayes._util.plain import NOT_IN_JSON, Record
from lm_eval_bayes._util.validation import check_level, check_seed
from lm_eval_bayes.errors import InvalidInputError
from lm_eval_bayes.stats.arrays import FloatArray, protect
from lm_eval_bayes.stats.comparison.shared_questions import SharedQuestions
from lm_eval_bayes.stats.intervals import Scope
from lm_eval_bayes.stats.ranking.rank import check_leaderboard
from lm_eval_bayes.stats.ranking.rank_draws import (
    SURE_NEAR_ENDS,
    count_ranks,
    draw_paired,
    draw_under_shared_prior,
)
from lm_eval_bayes.stats.results import Posterior


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
        How far the models are apart: posterior median of the sd τ of their logits, and the equal
        tails of level `level`. None where all scores are certain.
    level : float
        The credible level.
    scope : str
        Of the posteriors.
    draws, seed : int
        The joint draws that all this is computed from.
    note : str or None
        Where P(A > B) is too sure.
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
    draws: int
    seed: int
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
    posteriors: Mapping[str, Posterior], level: float = 0.95, *, seed: int = 0
) -> SharedScores:
    """Return the models' scores under a prior that learns from all models how far they are apart.

    A model's own posterior, on cells of the logit of its score, is multiplied by one factor that
    all models share: normal around m with sd τ, over its mean under the own prior, which is the
    posterior of as many questions without trials. expit(m) is Beta(.7, .7), and τ half-normal with
    scale 1. With probability .1 a model is unlike the others and keeps its own posterior. All this
    is integrated out. The score of the model that leads, which is too high because it leads, is
    corrected so.

    In scope "population" the scores of scope "benchmark" are moved to each model's own posterior of
    that scope by their ranks in the own posteriors, with a part of the error that is due to the
    questions and so common to all models. P(A > B) stays that of the paired comparison there, as
    in `rank`.

    Parameters
    ----------
    posteriors : mapping of str to Posterior
        One per model, as for `rank`, at least two; of hbayes@N or of its means over tasks. The more
        models, the more is learned.
    level : float
        Credible level of the intervals, strictly between 0 and 1.
    seed : int
        Seed of the draws.

    Returns
    -------
    SharedScores

    Raises
    ------
    InvalidInputError
        If there are fewer than two models, the posteriors cannot be ranked together or are of
        another quantity, or an argument breaks its rule.

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
    >>> shared.unshared_mu.round(1).tolist(), shared.mu.round(1).tolist()
    ([0.8, 0.7, 0.6, 0.6], [0.7, 0.7, 0.7, 0.7])
    """
    level, seed = check_level(level), check_seed(seed)
    names = check_leaderboard(posteriors)
    if len(names) < 2:
        raise InvalidInputError.of("posteriors", "empty", "be of at least two models", len(names))
    in_order = [posteriors[name] for name in names]
    scores, tau = draw_under_shared_prior(in_order, seed)
    paired = SharedQuestions.of(in_order) if in_order[0].scope == "population" else None
    of_pairs = scores if paired is None else draw_paired([paired], seed, None)
    masses = 0.5 + 0.5 * level * np.array([-1.0, 0.0, 1.0])
    low, _, high = np.quantile(scores, masses, axis=1)
    tau_low, middle, tau_high = [None] * 3 if tau is None else np.quantile(tau, masses).tolist()
    return SharedScores(
        models=tuple(names),
        mu=scores.mean(axis=1),
        sigma=scores.std(axis=1),
        low=low,
        high=high,
        unshared_mu=np.array([each.mu for each in in_order]),
        p_greater=count_ranks(of_pairs)[1],
        tau=middle,
        tau_low=tau_low,
        tau_high=tau_high,
        level=level,
        scope=in_order[0].scope,
        draws=scores.shape[1],
        seed=seed,
        note=None if tau is None else SURE_NEAR_ENDS,
    )
