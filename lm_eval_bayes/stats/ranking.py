"""Rankings with ties and with the posterior probability of every rank."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from scipy import special

from lm_eval_bayes._util.plain import NOT_IN_JSON, Record
from lm_eval_bayes.errors import InvalidInputError
from lm_eval_bayes.stats.comparison.difference import draw_variance
from lm_eval_bayes.stats.comparison.shared_questions import UNPAIRED, SharedQuestions
from lm_eval_bayes.stats.intervals import Scope
from lm_eval_bayes.stats.results import Posterior, joined_notes
from lm_eval_bayes.stats.tie_rules import (
    NUMBERINGS,
    TIE_RULES,
    Numbering,
    TieRule,
    best_first,
    numbered,
    separations,
    tie_groups,
)
from lm_eval_bayes.stats.validation import (
    FloatArray,
    check_confidence,
    check_option,
    check_seed,
    check_size,
    read_only,
)

#: Draws of single questions' scores where questions are paired, models times questions times
#: draws; and how many draws there are at the least and at the most.
_QUESTIONS_DRAWN, _FEWEST, _DRAWS = 20_000_000, 4_000, 20_000
#: Two means nearer than this share of the range of scores differ by rounding only.
_ROUNDING = 1e-12


@dataclass(frozen=True, eq=False)
class Ranking(Record):
    """A ranking of L models, best first; every array follows `models`.

    Attributes
    ----------
    models : tuple of str
        The names, best first.
    ranks : array, shape (L,)
        Ranks from 1, halves only with fractional numbering.
    mu, sigma : array, shape (L,)
        Posterior mean and sd of each model's score.
    z : array, shape (L, L)
        |μ − μ'| / sqrt(σ² + σ'²) of every two models [Hariri 2026, §2.5]; where `paired`, the
        z of `compare`, 0 where it favours the model with the lower μ.
    p_best : array, shape (L,)
        Posterior probability of being the best.
    expected_rank : array, shape (L,)
        Posterior mean of the rank.
    rank_low, rank_high : array, shape (L,)
        Central ranks that hold at least `confidence` of the posterior mass.
    rank_distribution : array, shape (L, L)
        ``[i, r]``: probability that model i has rank r + 1; rows and columns sum to 1.
    p_greater : array, shape (L, L)
        ``[i, j]``: probability that model i scores more than model j; ½ on the diagonal.
    ties, numbering : str
        The rules by which `ranks` came about.
    confidence, threshold : float
        Two models tie where z < threshold = Φ⁻¹(confidence), one-sided.
    quantity, scope : str
        What was ranked, and of which questions it speaks.
    draws, seed : int
        The joint draws behind the probabilities.
    mc_error : float
        The largest Monte-Carlo standard error among them; for rubrics an upper bound that
        includes the error of the particles that represent the learned priors.
    paired : bool
        Whether the models' questions were paired, which scope "population" asks for.
    note : str or None
        A warning about the ranking.
    """

    models: tuple[str, ...]
    ranks: FloatArray = field(metadata=NOT_IN_JSON)
    mu: FloatArray = field(metadata=NOT_IN_JSON)
    sigma: FloatArray = field(metadata=NOT_IN_JSON)
    z: FloatArray = field(repr=False)
    p_best: FloatArray = field(metadata=NOT_IN_JSON)
    expected_rank: FloatArray = field(metadata=NOT_IN_JSON)
    rank_low: FloatArray = field(metadata=NOT_IN_JSON)
    rank_high: FloatArray = field(metadata=NOT_IN_JSON)
    rank_distribution: FloatArray = field(repr=False)
    p_greater: FloatArray = field(repr=False)
    ties: TieRule
    numbering: Numbering
    confidence: float
    threshold: float
    quantity: str
    scope: Scope
    draws: int
    seed: int
    mc_error: float
    paired: bool = False
    note: str | None = None

    def rank_of(self, model: str) -> float:
        """Return the rank of one model.

        Raises
        ------
        InvalidInputError
            If no such model was ranked.
        """
        if not isinstance(model, str) or model not in self.models:
            raise InvalidInputError.of("model", f"be one of {', '.join(self.models)}", model)
        return float(self.ranks[self.models.index(model)])

    def rows(self) -> list[dict[str, Any]]:
        """Return the numbers of every model by name, best first: model, rank, mu, sigma, …."""
        numbers = ("mu", "sigma", "p_best", "expected_rank", "rank_low", "rank_high")
        columns = {"rank": self.ranks, **{name: getattr(self, name) for name in numbers}}
        return [
            {"model": model, **{name: float(column[i]) for name, column in columns.items()}}
            for i, model in enumerate(self.models)
        ]

    def to_dict(self) -> dict[str, Any]:
        """Return plain JSON types; a z of two certain, different scores is None."""
        return {**super().to_dict(), "models": self.rows()}


def rank(
    posteriors: Mapping[str, Posterior],
    ties: TieRule = "adjacent",
    confidence: float = 0.95,
    *,
    numbering: Numbering = "dense",
    seed: int = 0,
    draws: int | None = None,
) -> Ranking:
    """Rank models by posterior mean, with ties [Hariri 2026, §2.9, Table 1].

    Models are sorted by μ. Two of them tie where z = |μ − μ'| / sqrt(σ² + σ'²) is below
    Φ⁻¹(confidence). The paper's rule ("adjacent") compares neighbours, which chains: ten
    models, each barely below the last, can all share a first rank though the tenth is
    certainly worse than the first. Two stricter rules are available, and the result has the
    posterior itself with every rule: the probability of every rank and of every A > B, from
    joint draws.

    In scope "benchmark" the models' scores are independent given their trials. In scope
    "population" they are not where all models answered the same questions: a sample of hard
    questions lowers them all. There z and the draws are those of `compare`: a Bayesian
    bootstrap over the questions whose weights all models share. Questions are paired by
    their ids, by position where no model has ids; μ and σ stay each model's own. Posteriors
    of different questions are treated as independent, which gives more ties than necessary:
    `paired` is then False and the `note` says why.

    Parameters
    ----------
    posteriors : mapping of str to Posterior
        One per model, at least one: the same quantity, scope and range of scores, and in scope
        "benchmark" the same number of questions.
    ties : {"adjacent", "leader", "pairwise", "none"}
        The models that a model must tie with to share a rank: its upper neighbour, the best of
        the group, all of the group, or none (only equal means tie).
    confidence : float
        In [0.5, 1), one-sided: 0.95 asks for z >= 1.645. Also the level of the rank
        intervals.
    numbering : {"competition", "dense", "fractional"}
        Ranks after a tie: 1, 2, 2, 4; or 1, 2, 2, 3 (the paper); or 1, 2.5, 2.5, 4.
    seed : int
        Seed of the draws.
    draws : int, optional
        Their number, 1,000 to 10⁷; left out 20,000, and where questions are paired down to
        4,000 by the size of the problem.

    Returns
    -------
    Ranking

    Raises
    ------
    InvalidInputError
        If there is no model, a mean or sd is not a finite number or an sd is negative (the
        model is named), the posteriors differ in what they are about, or another argument
        breaks its rule.

    Examples
    --------
    >>> from lm_eval_bayes.stats.outcomes import Outcomes
    >>> from lm_eval_bayes.stats.bayes_at_n import bayes_at_n
    >>> counts = {"a": [[1, 15], [3, 13]], "b": [[2, 14], [4, 12]], "c": [[9, 7], [12, 4]]}
    >>> ranking = rank({m: bayes_at_n(Outcomes.from_counts(c)) for m, c in counts.items()})
    >>> ranking.models, ranking.ranks.tolist()
    (('a', 'b', 'c'), [1.0, 1.0, 2.0])
    >>> ranking.p_best.round(2).tolist()
    [0.73, 0.27, 0.0]
    """
    ties = check_option("ties", ties, TIE_RULES)
    numbering = check_option("numbering", numbering, NUMBERINGS)
    confidence = check_confidence(confidence)
    seed = check_seed(seed)
    names = check_leaderboard(posteriors)
    if draws is not None:
        draws = check_size("draws", draws, 1000, len(names))
    ordered, levelled = sort_best_first(posteriors)
    best = list(ordered.values())
    shared = SharedQuestions.of(best) if best[0].scope == "population" else None
    if shared is None:
        z = separations(levelled, np.array([posterior.sigma for posterior in best]))
        scores = draw_scores(best, _DRAWS if draws is None else draws, seed)
    else:
        z = shared.separations(levelled)
        if draws is None:
            n_scores = len(best) * shared.columns[0].size
            draws = int(np.clip(_QUESTIONS_DRAWN // n_scores, _FEWEST, _DRAWS))
        scores = shared.draw(draws, seed)
    return ranking_of_draws(
        ordered,
        z,
        scores,
        ties=ties,
        numbering=numbering,
        confidence=confidence,
        seed=seed,
        paired=shared is not None,
        note=_note(best, shared),
    )


def sort_best_first(
    posteriors: Mapping[str, Posterior],
) -> tuple[dict[str, Posterior], FloatArray]:
    """Return posteriors by falling μ, and these μ with rounding taken out; see `best_first`."""
    names = list(posteriors)
    mu = np.array([posteriors[name].mu for name in names])
    sigma = np.array([posteriors[name].sigma for name in names])
    low, high = posteriors[names[0]].bounds
    order, levelled = best_first(mu, sigma, _ROUNDING * (high - low))
    return {names[i]: posteriors[names[i]] for i in order}, levelled


def ranking_of_draws(
    posteriors: Mapping[str, Posterior],
    z: FloatArray,
    scores: FloatArray,
    *,
    ties: TieRule,
    numbering: Numbering,
    confidence: float,
    seed: int,
    paired: bool,
    note: str | None,
) -> Ranking:
    """Return the ranking of models whose z and joint draws are computed.

    Parameters
    ----------
    posteriors : mapping of str to Posterior
        One per model, best first.
    z : array, shape (L, L)
        See `Ranking`.
    scores : array, shape (L, draws)
        Joint draws of the models' scores.
    ties, numbering, confidence, seed, paired, note
        As in `Ranking`.
    """
    best = list(posteriors.values())
    threshold, draws = float(special.ndtri(confidence)), scores.shape[1]
    distribution, greater, worst_variance = count_ranks(scores)
    low, high = rank_interval(distribution, confidence)
    ranks_from_1 = np.arange(1.0, len(best) + 1.0)
    return Ranking(
        models=tuple(posteriors),
        ranks=read_only(numbered(tie_groups(z, ties, threshold), numbering), np.float64),
        mu=read_only(np.array([posterior.mu for posterior in best]), np.float64),
        sigma=read_only(np.array([posterior.sigma for posterior in best]), np.float64),
        z=read_only(z, np.float64),
        p_best=read_only(distribution[:, 0], np.float64),
        expected_rank=read_only((distribution * ranks_from_1).sum(axis=1), np.float64),
        rank_low=read_only(low, np.float64),
        rank_high=read_only(high, np.float64),
        rank_distribution=read_only(distribution, np.float64),
        p_greater=read_only(greater, np.float64),
        ties=ties,
        numbering=numbering,
        confidence=confidence,
        threshold=threshold,
        quantity=best[0].quantity,
        scope=best[0].scope,
        draws=draws,
        seed=seed,
        mc_error=float(np.sqrt(worst_variance * draw_variance(draws, best))),
        paired=paired,
        note=note,
    )


def _note(posteriors: list[Posterior], shared: SharedQuestions | None) -> str | None:
    """Return what a reader of the ranking must know."""
    if shared is not None:
        return shared.note
    notes = [posterior.note for posterior in posteriors]
    alone = posteriors[0].scope == "population" and len(posteriors) > 1
    return joined_notes([*notes, UNPAIRED if alone else None])


def check_leaderboard(posteriors: object) -> list[str]:
    """Return the models' names, once all posteriors are comparable.

    Raises
    ------
    InvalidInputError
        If there is none, one has no finite mean and sd, or two are about different things.
    """
    rule = "be a mapping from at least one model's name to its posterior"
    if not isinstance(posteriors, Mapping) or not posteriors:
        raise InvalidInputError.of("posteriors", rule, posteriors)
    for name, posterior in posteriors.items():
        if not isinstance(name, str) or not isinstance(posterior, Posterior):
            raise InvalidInputError.of("posteriors", rule, {name: posterior})
        if not np.isfinite(posterior.mu):
            rule = f'have a finite mean for every model ("{name}")'
            raise InvalidInputError.of("posteriors", rule, posterior.mu)
        if not (np.isfinite(posterior.sigma) and posterior.sigma >= 0.0):
            rule = f'have a finite sd of at least 0 for every model ("{name}")'
            raise InvalidInputError.of("posteriors", rule, posterior.sigma)
    names = list(posteriors)
    expected = _subject(posteriors[names[0]])
    for name in names[1:]:
        for what, value in _subject(posteriors[name]).items():
            if value != expected[what]:
                rule = f'have the same {what} ("{names[0]}" has {expected[what]})'
                raise InvalidInputError.of("posteriors", rule, f'{value} for "{name}"')
    return names


def _subject(posterior: Posterior) -> dict[str, object]:
    """Return what a posterior is about, which all on one leaderboard must share."""
    names = ("quantity", "scope", "bounds", "k", "tau")
    subject: dict[str, object] = {name: getattr(posterior, name) for name in names}
    if posterior.scope == "benchmark":
        subject["number of questions"] = int(posterior.per_question.mu.size)
    return subject


def draw_scores(posteriors: Sequence[Posterior], draws: int, seed: int) -> FloatArray:
    """Draw the scores of L models, independent of each other.

    Where the quantiles are computed, uniform numbers are sent through them, which costs
    the same for 3 questions and for 3,000. Every model draws from a stream of its own.

    Parameters
    ----------
    posteriors : sequence of Posterior
        L of them.
    draws : int
        How many joint draws.
    seed : int
        The seed of all streams.

    Returns
    -------
    array, shape (L, draws)
    """
    scores = np.empty((len(posteriors), draws))
    streams = np.random.SeedSequence(seed).spawn(len(posteriors))
    for row, posterior, stream in zip(scores, posteriors, streams, strict=True):
        rng, distribution = np.random.default_rng(stream), posterior.distribution
        if posterior.sigma == 0.0:
            row[:] = posterior.mu
        elif distribution.computed:
            row[:] = distribution.quantiles(rng.random(draws))
        else:
            row[:] = distribution.draw(draws, rng)
    return scores


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
    greater = np.empty((n_models, n_models))
    for i, own in enumerate(scores):
        above = scores > own
        equal = scores == own
        greater[:, i] = (above.sum(axis=1) + 0.5 * equal.sum(axis=1)) / draws
        # places first..last (from 0) are shared by the models equal to this one, itself included
        first = above.sum(axis=0)
        last = first + equal.sum(axis=0) - 1
        times = np.bincount(first * n_models + last, minlength=n_models**2)
        for pair in np.flatnonzero(times).tolist():
            begin, end = divmod(pair, n_models)
            distribution[i, begin : end + 1] += times[pair] / (end + 1 - begin)
    distribution /= draws
    others = greater[~np.eye(n_models, dtype=bool)]  # a model and itself are level for certain
    events = np.concatenate([distribution.ravel(), others])
    return distribution, greater, float((events * (1.0 - events)).max())


def rank_interval(distribution: FloatArray, level: float) -> tuple[FloatArray, FloatArray]:
    """Return the central ranks that hold at least `level` of each model's mass.

    Parameters
    ----------
    distribution : array, shape (L, L)
        Of `count_ranks`.
    level : float
        In (0, 1); at most half of the rest lies on either side.

    Returns
    -------
    low, high : array, shape (L,)
        Whole ranks, counted from 1.

    Examples
    --------
    >>> low, high = rank_interval(np.array([[0.9, 0.1], [0.1, 0.9]]), 0.9)
    >>> low.tolist(), high.tolist()
    ([1.0, 1.0], [2.0, 2.0])
    """
    below = np.cumsum(distribution, axis=1)
    tail = 0.5 * (1.0 - level)
    slack = 1e-12  # a mass of exactly the tail, summed in floats
    low = (below <= tail + slack).sum(axis=1) + 1.0
    high = (below < 1.0 - tail - slack).sum(axis=1) + 1.0
    return low, np.maximum(low, high)
