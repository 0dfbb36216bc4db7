"""Joint draws of models' scores: independent, paired by question, or under a shared prior.

`count_ranks` counts the ranks in them.

A posterior under a flat prior on the difference of two models takes large differences to be as
plausible as small ones, so that of close models too many are called different. A prior
that the models of a board share learns from all how far they are apart, see `related_scores`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from scipy import special

from lm_eval_bayes._util.plain import NOT_IN_JSON, Record
from lm_eval_bayes._util.validation import check_level, check_seed
from lm_eval_bayes.errors import InvalidInputError
from lm_eval_bayes.stats.arrays import FloatArray, IntArray, protect
from lm_eval_bayes.stats.comparison.shared_questions import SharedQuestions
from lm_eval_bayes.stats.hierarchical.hbayes_at_n import hbayes_at_n
from lm_eval_bayes.stats.intervals import Scope
from lm_eval_bayes.stats.outcomes import Outcomes
from lm_eval_bayes.stats.related_scores import draw_shared
from lm_eval_bayes.stats.results import Posterior, check_leaderboard
from lm_eval_bayes.stats.states import QuestionStates

#: What a user of the shared prior must know.
SURE_NEAR_ENDS = (
    "Under the shared prior P(A > B) of equal models near 0 or 1 stays 5 to 15 points too sure."
)
#: Draws of single questions' scores where questions are paired, models times questions times
#: draws; and how many draws there are at the least and at the most.
_QUESTIONS_DRAWN, _FEWEST, DRAWS = 20_000_000, 4_000, 20_000
#: Draws of independent scores in all.
_SCORES_DRAWN = 1_000_000


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


def draw_scores(posteriors: Sequence[Posterior], draws: int | None, seed: int) -> FloatArray:
    """Draw the scores of L models, independent of each other.

    Every model draws from a stream of its own.

    Parameters
    ----------
    posteriors : sequence of Posterior
        L of them.
    draws : int or None
        How many joint draws; None for 20,000, or down to 4,000 for many models.
    seed : int
        The seed of all streams.

    Returns
    -------
    array, shape (L, draws)
    """
    if draws is None:
        draws = int(np.clip(_SCORES_DRAWN // len(posteriors), _FEWEST, DRAWS))
    scores = np.empty((len(posteriors), draws))
    streams = np.random.SeedSequence(seed).spawn(len(posteriors))
    for row, posterior, stream in zip(scores, posteriors, streams, strict=True):
        rng, distribution = np.random.default_rng(stream), posterior.distribution
        if posterior.sigma == 0.0:
            row[:] = posterior.mu
        else:
            row[:] = rng.permutation(distribution.draw(draws, rng))
    return scores


def draw_paired(tasks: Sequence[SharedQuestions], seed: int, draws: int | None) -> FloatArray:
    """Draw the mean scores over tasks of L models, paired by question, (L, draws)."""
    if draws is None:
        n_scores = len(tasks[0].posteriors) * sum(task.n_units for task in tasks)
        draws = int(np.clip(_QUESTIONS_DRAWN // n_scores, _FEWEST, DRAWS))
    if len(tasks) == 1:
        return tasks[0].draw(draws, seed)
    # tasks are independent, so each has a seed of its own
    seeds = np.random.SeedSequence(seed).generate_state(len(tasks), np.uint64).tolist()
    drawn = [task.draw(draws, own) for task, own in zip(tasks, seeds, strict=True)]
    return np.asarray(np.mean(drawn, axis=0))


def draw_under_shared_prior(
    posteriors: Sequence[Posterior], seed: int
) -> tuple[FloatArray, FloatArray | None]:
    """Draw the scores of L models under a prior that they share, (L, 4000), and its τ.

    The own prior is the posterior of as many questions without trials. τ is None where all scores
    are certain.

    Raises
    ------
    InvalidInputError
        If the posteriors are not of hbayes@N or its means.
    """
    first = posteriors[0]
    if first.prior is not None or first.k is not None:
        rule = "be of hbayes@N or of its means over tasks for a shared prior"
        raise InvalidInputError.of("posteriors", "unsupported", rule, first.quantity)
    if not any(posterior.sigma for posterior in posteriors):
        return draw_scores(posteriors, _FEWEST, seed), None
    on_questions = [posterior.benchmark or posterior for posterior in posteriors]
    questions = on_questions[0].distribution
    weights = questions.weights if isinstance(questions, QuestionStates) else first.bounds
    counts = np.zeros((first.per_question.mu.size, len(weights)), dtype=np.int64)
    prior = hbayes_at_n(
        Outcomes.from_counts(counts, weights=weights), on_questions[0].scope, seed=seed
    )
    own = [posterior.distribution for posterior in on_questions]
    scores, tau = draw_shared(own, prior.distribution, first.bounds, seed)
    common = np.random.default_rng([seed, 3]).standard_normal(scores.shape[1])
    for row, of_questions, posterior in zip(scores, on_questions, posteriors, strict=True):
        if posterior is of_questions:
            continue
        # the share of the error that is due to the questions is common to all models
        below = np.clip(of_questions.distribution.cdf(row), 1e-9, 1.0 - 1e-9)
        share = min(of_questions.sigma / posterior.sigma, 1.0)
        normal = share * special.ndtri(below) + np.sqrt(1.0 - share**2) * common
        row[:] = posterior.distribution.quantiles(special.ndtr(normal))
    return scores, tau


def count_ranks(scores: FloatArray) -> tuple[FloatArray, FloatArray, float]:
    """Count the ranks of L models in joint draws; equal scores share their places evenly.

    Parameters
    ----------
    scores : array, shape (L, draws)
        One column a joint draw.

    Returns
    -------
    distribution : array, shape (L, L)
        ``distribution[i, r]``: the probability that model i has rank r + 1. Rows and columns
        sum to 1.
    greater : array, shape (L, L)
        ``greater[i, j]``: the probability that model i scores more than model j, a draw that
        is equal counting half; ½ on the diagonal.
    worst_variance : float
        The largest variance of one draw of these events; the probabilities' own is that over
        the number of draws.

    Examples
    --------
    Two draws of three models; in the second the first two are equal:

    >>> distribution, greater, _ = count_ranks(np.array([[0.9, 0.5], [0.4, 0.5], [0.1, 0.2]]))
    >>> distribution.tolist()
    [[0.75, 0.25, 0.0], [0.25, 0.75, 0.0], [0.0, 0.0, 1.0]]
    >>> greater.tolist()
    [[0.5, 0.75, 1.0], [0.25, 0.5, 1.0], [0.0, 0.0, 0.5]]
    """
    n_models, draws = scores.shape
    distribution = np.zeros((n_models, n_models))
    greater = np.full((n_models, n_models), 0.5)
    first, last = _places(scores)
    has_ties = not np.array_equal(first, last)
    for i, own in enumerate(scores):
        rest = slice(i + 1, None)
        above = np.count_nonzero(scores[rest] > own, axis=1)
        equal = np.count_nonzero(scores[rest] == own, axis=1) if has_ties else 0
        greater[rest, i] = (above + 0.5 * equal) / draws
        greater[i, rest] = (draws - above - equal + 0.5 * equal) / draws
        # places first..last (from 0) are shared by the models equal to this one, itself included
        times = np.bincount(first[i] * n_models + last[i], minlength=n_models**2)
        for pair in np.flatnonzero(times).tolist():
            begin, end = divmod(pair, n_models)
            distribution[i, begin : end + 1] += times[pair] / (end + 1 - begin)
    distribution /= draws
    others = greater[~np.eye(n_models, dtype=bool)]  # a model and itself are level for certain
    events = np.concatenate([distribution.ravel(), others])
    return distribution, greater, float((events * (1.0 - events)).max())


def _places(scores: FloatArray) -> tuple[IntArray, IntArray]:
    """Return the first and the last place, from 0, of every model's score in its column."""
    order = np.argsort(-scores, axis=0)
    falling = np.take_along_axis(scores, order, axis=0)
    place = np.arange(len(scores))[:, None]
    differs = falling[1:] != falling[:-1]
    begins = np.where(np.pad(differs, ((1, 0), (0, 0)), constant_values=True), place, 0)
    ends = np.where(np.pad(differs, ((0, 1), (0, 0)), constant_values=True), place, len(scores))
    first, last = np.empty((2, *scores.shape), dtype=np.int64)
    np.put_along_axis(first, order, np.maximum.accumulate(begins, axis=0), axis=0)
    np.put_along_axis(last, order, np.minimum.accumulate(ends[::-1], axis=0)[::-1], axis=0)
    return first, last
